use std::collections::BTreeMap;

use evento_core::{ComponentDescriptor, ExecutorName, HandlerDescriptor};

use super::{handler_name, known_note, place, pool};
use crate::{
    ConsumerExecutor, ExecutorKind,
    bundle::{BundleBuilder, Problem},
};

/// The executors of the code, as the settings change them, then those that the settings define.
pub(super) fn merged(builder: &BundleBuilder, problems: &mut Vec<Problem>) -> Vec<ConsumerExecutor> {
    let mut executors = builder.executors.clone();
    for set in &builder.settings.executors {
        let name = &set.name;
        let registered = executors.iter_mut().find(|executor| executor.name() == name && executor.location().is_some());
        match (registered, set.kind) {
            (Some(registered), kind) => {
                if let Some(kind) = kind.filter(|kind| *kind != registered.kind()) {
                    let code = registered.kind();
                    let at = place(registered.location());
                    let what =
                        format!("the settings make executor `{name}` `{kind}`, the code ({at}) makes it `{code}`");
                    problems.push(Problem::new(what, "leave `kind` out of the settings").at(registered.location()));
                }
                registered.set_capacity(set.capacity);
                set.draws_from.iter().for_each(|pool| registered.set_pool(pool.clone()));
            }
            (None, Some(kind)) => {
                let defined = ConsumerExecutor::new(name.clone(), kind, set.capacity, None);
                executors.push(match &set.draws_from {
                    Some(pool) => defined.draws_from(&pool.name, pool.size),
                    None => defined,
                });
            }
            (None, None) => {
                let names: Vec<_> = builder.executors.iter().map(ConsumerExecutor::name).collect();
                let what = format!("the settings change executor `{name}`, which is not registered");
                let cure = "correct its name, or add `kind` (`tasks`, `pooled` or `partitioned`) to define it";
                problems.push(Problem::new(what, cure).note(known_note("registered", name, &names).0));
            }
        }
    }
    set_twice(builder, problems);
    executors
}

fn set_twice(builder: &BundleBuilder, problems: &mut Vec<Problem>) {
    let set = &builder.settings.executors;
    for (i, executor) in set.iter().enumerate() {
        let earlier = set[..i].iter().filter(|other| other.name == executor.name).count();
        // One that the settings define twice is found by its name below.
        if earlier == 1 && builder.executors.iter().any(|registered| *registered.name() == executor.name) {
            let what = format!("the settings change executor `{}` twice", executor.name);
            problems.push(Problem::new(what, "list it once in `executors`"));
        }
    }
}

pub(super) fn check(
    builder: &BundleBuilder,
    components: &[ComponentDescriptor],
    executors: &[ConsumerExecutor],
    problems: &mut Vec<Problem>,
) {
    for executor in executors {
        problems.extend(invalid_name(executor));
        problems.extend(capacity(executor));
    }
    one_name_twice(executors, problems);
    pool::check(executors, builder.settings.headroom, problems);
    for (component, handler, name) in named(components) {
        if !is_registered(executors, name) {
            problems.push(not_registered(component, handler, name, executors));
        }
    }
}

/// Every handler that names an executor.
pub(super) fn named(
    components: &[ComponentDescriptor],
) -> impl Iterator<Item = (&ComponentDescriptor, &'static HandlerDescriptor, &'static str)> {
    let handlers =
        components.iter().flat_map(|component| component.handlers.iter().map(move |handler| (component, handler)));
    handlers.filter_map(|(component, handler)| Some((component, handler, handler.executor?.as_str())))
}

fn is_registered(executors: &[ConsumerExecutor], name: &str) -> bool {
    executors.iter().any(|executor| executor.name() == name)
}

fn invalid_name(executor: &ConsumerExecutor) -> Option<Problem> {
    (!ExecutorName::is_valid(executor.name())).then(|| {
        let what = format!("`{}` ({}) cannot name an executor", executor.name(), place(executor.location()));
        let cure = format!("give it 1 to {} bytes of `a-z`, `0-9`, `-` and `_`", ExecutorName::MAX_LEN);
        Problem::new(what, cure).at(executor.location())
    })
}

fn capacity(executor: &ConsumerExecutor) -> Option<Problem> {
    let most = match executor.kind() {
        ExecutorKind::Pooled => ConsumerExecutor::MAX_THREADS,
        ExecutorKind::Tasks | ExecutorKind::Partitioned => ConsumerExecutor::MAX_CAPACITY,
    };
    let capacity = executor.capacity();
    (!(1..=most).contains(&capacity)).then(|| {
        let what = format!("executor `{}` ({}) has capacity {capacity}", executor.name(), place(executor.location()));
        Problem::new(what, format!("give it 1 to {most}")).at(executor.location())
    })
}

fn one_name_twice(executors: &[ConsumerExecutor], problems: &mut Vec<Problem>) {
    let mut by_name: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for executor in executors {
        by_name.entry(executor.name()).or_default().push(executor);
    }
    for (name, same) in by_name.iter().filter(|(_, same)| same.len() > 1) {
        let places: Vec<_> = same.iter().map(|one| format!("`{}` ({})", one.kind(), place(one.location()))).collect();
        let what = format!("{} executors are named `{name}`", same.len());
        let cure = "register it once, or give one of them another name";
        problems.push(Problem::new(what, cure).at(same[0].location()).note(places.join(" and ")));
    }
}

fn not_registered(
    component: &ComponentDescriptor,
    handler: &HandlerDescriptor,
    name: &str,
    executors: &[ConsumerExecutor],
) -> Problem {
    let names: Vec<_> = executors.iter().map(ConsumerExecutor::name).collect();
    let (known, nearest) = known_note("registered", name, &names);
    let register = format!("register it: `.executor(ConsumerExecutor::tasks(\"{name}\", 64))`");
    let cure = match nearest {
        Some(nearest) => format!("write `executor = \"{nearest}\"`, or {register}"),
        None => register,
    };
    let what = format!("{} names executor `{name}`, which is not registered", handler_name(component, handler));
    Problem::new(what, cure).at(handler.location).note(known).note(NOT_BUILT)
}

/// What a handler under an executor is told besides, for as long as executors do not run them.
const NOT_BUILT: &str =
    "this version checks executors and does not run them yet: without `executor` the handler runs inline";

/// Refuses handlers under an executor for as long as executors do not run them.
pub(super) fn parallel_not_built(
    components: &[ComponentDescriptor],
    executors: &[ConsumerExecutor],
    problems: &mut Vec<Problem>,
) {
    for (component, handler, name) in named(components).filter(|(.., name)| is_registered(executors, name)) {
        let handler_name = handler_name(component, handler);
        let what = format!("{handler_name} names executor `{name}`, and this version does not run executors yet");
        let cure = "leave `executor` out: the handler then runs inline, one event at a time";
        problems.push(Problem::new(what, cure).at(handler.location));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ExecutorSettings, Settings,
        bundle::fixture::{Inline, Misspelt, Parallel, problems_of, shop},
    };

    fn tasks(name: &str, capacity: usize) -> ConsumerExecutor {
        ConsumerExecutor::tasks(name, capacity)
    }

    fn setting(name: &str, kind: Option<ExecutorKind>, capacity: usize) -> ExecutorSettings {
        ExecutorSettings { name: name.into(), kind, capacity, draws_from: None }
    }

    #[test]
    fn e18_an_unknown_executor_is_refused_by_method_and_line_with_the_nearest() {
        let builder = shop().executor(tasks("read-model", 1)).executor(tasks("audit", 1)).provide(Misspelt);
        assert_eq!(
            problems_of(builder, &[]),
            [concat!(
                "projector `Misspelt`: `on_total` (src/orders.rs:31) names executor `read-modle`, which is not registered\n",
                "registered: `read-model`, `audit`; did you mean `read-model`?\n",
                "this version checks executors and does not run them yet: without `executor` the handler runs inline\n",
                "write `executor = \"read-model\"`, or register it: `.executor(ConsumerExecutor::tasks(\"read-modle\", 64))`"
            )]
        );
        let text = problems_of(shop().provide(Misspelt), &[]);
        assert!(text[0].contains("registered: none\n") && text[0].contains("\nregister it:"), "{text:?}");
    }

    #[test]
    fn e18_capacity_0_a_bad_name_and_too_many_threads_are_refused() {
        let builder = shop()
            .provide(Inline)
            .executor(tasks("none", 0))
            .executor(tasks("Read Model", 1))
            .executor(ConsumerExecutor::pooled("threads", 2_000));
        let text = problems_of(builder, &[]);
        assert_eq!(text.len(), 3, "{text:?}");
        assert!(text[0].contains("executor `none`") && text[0].contains("has capacity 0"), "{text:?}");
        assert!(text[1].contains("`Read Model`") && text[1].contains("cannot name an executor"), "{text:?}");
        assert!(text[2].contains("has capacity 2000") && text[2].contains("1 to 1024"), "{text:?}");
    }

    #[test]
    fn e18_two_executors_of_one_name_are_refused_with_both_places() {
        let builder = shop().provide(Inline).executor(tasks("a", 1)).executor(ConsumerExecutor::pooled("a", 1));
        let text = problems_of(builder, &[]);
        assert_eq!(text.len(), 1);
        assert!(text[0].contains("2 executors are named `a`"), "{text:?}");
        assert_eq!(text[0].matches(file!()).count(), 2, "{text:?}");
    }

    #[test]
    fn settings_change_a_capacity_and_define_an_executor() {
        let executors = vec![setting("a", None, 7), setting("b", Some(ExecutorKind::Partitioned), 3)];
        let builder = shop().executor(tasks("a", 1)).settings(Settings { executors, ..Settings::default() });
        let mut problems = Vec::new();
        let merged = merged(&builder, &mut problems);
        assert_eq!(problems, []);
        let seen: Vec<_> = merged.iter().map(|one| (one.name(), one.kind(), one.capacity())).collect();
        assert_eq!(seen, [("a", ExecutorKind::Tasks, 7), ("b", ExecutorKind::Partitioned, 3)]);
    }

    #[test]
    fn settings_that_fit_no_executor_are_refused() {
        let executors = vec![
            setting("aa", None, 1),
            setting("a", Some(ExecutorKind::Pooled), 1),
            setting("a", None, 2),
            setting("b", Some(ExecutorKind::Tasks), 1),
            setting("b", Some(ExecutorKind::Tasks), 1),
        ];
        let settings = Settings { executors, ..Settings::default() };
        let text = problems_of(shop().provide(Inline).executor(tasks("a", 1)).settings(settings), &[]);
        assert_eq!(text.len(), 4, "{text:?}");
        assert!(text[0].contains("`aa`, which is not registered") && text[0].contains("did you mean `a`?"), "{text:?}");
        assert!(text[1].contains("make executor `a` `pooled`") && text[1].contains("makes it `tasks`"), "{text:?}");
        assert!(text[2].contains("change executor `a` twice"), "{text:?}");
        assert!(text[3].contains("2 executors are named `b`") && text[3].contains("the settings"), "{text:?}");
    }

    #[test]
    fn a_handler_under_a_registered_executor_is_refused_until_executors_run() {
        let text = problems_of(shop().executor(tasks("read-model", 4)).provide(Parallel), &[]);
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text[0].contains("names executor `audit`, which is not registered"), "{text:?}");
        assert!(text[1].contains("`on_placed` (src/parallel.rs:5)"), "{text:?}");
        assert!(text[1].contains("does not run executors yet"), "{text:?}");
    }
}
