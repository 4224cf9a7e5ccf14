use evento_core::{ComponentDescriptor, plan::Plan};

use super::{component_name, known_note, place};
use crate::{
    ConsumerExecutor,
    bundle::{BundleBuilder, Problem},
};

/// Reports every difference between what was planned and what the builder was given.
pub(super) fn check(
    builder: &BundleBuilder,
    components: &[ComponentDescriptor],
    executors: &[ConsumerExecutor],
    problems: &mut Vec<Problem>,
) {
    if builder.plans.is_empty() {
        return;
    }
    check_executors(builder, executors, problems);
    check_components(builder, components, problems);
}

fn check_executors(builder: &BundleBuilder, executors: &[ConsumerExecutor], problems: &mut Vec<Problem>) {
    let planned: Vec<_> = builder.plans.iter().flat_map(|plan| plan.executors).map(|name| name.as_str()).collect();
    for executor in executors.iter().filter(|executor| !planned.contains(&executor.name())) {
        let name = executor.name();
        let what = format!("executor `{name}` ({}) is registered, but not planned", place(executor.location()));
        let cure = format!("add \"{name}\" to `executors` of {}, or do not register it", plans(builder));
        let note = known_note("planned", name, &planned).0;
        problems.push(Problem::new(what, cure).at(executor.location()).note(note));
    }
    let registered: Vec<_> = executors.iter().map(ConsumerExecutor::name).collect();
    for plan in &builder.plans {
        for name in plan.executors.iter().map(|name| name.as_str()).filter(|name| !registered.contains(name)) {
            let what = format!("executor `{name}` is planned, but not registered");
            let cure = format!(
                "register it: `.executor(ConsumerExecutor::tasks(\"{name}\", 64))`, or take it out of {}",
                plan_name(plan)
            );
            let note = known_note("registered", name, &registered).0;
            problems.push(Problem::new(what, cure).at(plan.location).note(note));
        }
    }
}

fn check_components(builder: &BundleBuilder, components: &[ComponentDescriptor], problems: &mut Vec<Problem>) {
    let mut provided: Vec<_> = builder.provided.iter().collect();
    provided.sort_by_key(|given| (given.component.kind, given.component.name, given.location));
    provided.dedup_by(|a, b| is_same(&a.component, &b.component));
    for given in provided {
        let mut planned = builder.plans.iter().flat_map(Plan::descriptors);
        if !planned.any(|planned| is_same(planned, &given.component)) {
            let what =
                format!("{} ({}) is provided, but not planned", component_name(&given.component), given.location);
            let cure = format!("add its crate's `components!` constant to {}, or do not provide it", plans(builder));
            problems.push(Problem::new(what, cure).at(given.location));
        }
    }
    for plan in &builder.plans {
        // One that is linked or provided is among the components, and its instance is seen to there.
        for planned in plan.descriptors().filter(|planned| !components.iter().any(|known| is_same(known, planned))) {
            let what = format!("{} ({}) is planned, but not provided", component_name(planned), planned.location);
            let cure = format!("add `.provide(..)` with an instance of it, or take it out of {}", plan_name(plan));
            problems.push(Problem::new(what, cure).at(planned.location));
        }
    }
}

fn is_same(a: &ComponentDescriptor, b: &ComponentDescriptor) -> bool {
    (a.type_id)() == (b.type_id)()
}

fn plan_name(plan: &Plan) -> String {
    format!("plan `{}` ({})", plan.name, plan.location)
}

fn plans(builder: &BundleBuilder) -> String {
    builder.plans.iter().map(plan_name).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use evento_core::{Components, ExecutorName, Location};

    use super::*;
    use crate::bundle::fixture::{Inline, Paid, problems_of, shop};

    const SHOP: Plan = Plan::checked(
        "fixture::SHOP",
        Location { file: "src/main.rs", line: 8, module: "fixture" },
        &[ExecutorName::new("read-model")],
        &[Components { name: "fixture::INLINE", components: &[ComponentDescriptor::of::<Inline>()] }],
    );

    #[test]
    fn a_bundle_that_is_as_planned_passes() {
        let builder = shop().plan(&SHOP).executor(ConsumerExecutor::tasks("read-model", 1)).provide(Inline);
        assert_eq!(problems_of(builder, &[&ComponentDescriptor::of::<Inline>()]), [""; 0]);
    }

    #[test]
    fn an_executor_that_was_planned_under_another_name_is_refused_from_both_sides() {
        let builder = shop().plan(&SHOP).executor(ConsumerExecutor::tasks("read-modle", 1)).provide(Inline);
        let text = problems_of(builder, &[]);
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(
            text[0].contains("executor `read-modle`") && text[0].contains("registered, but not planned"),
            "{text:?}"
        );
        assert!(text[0].contains("planned: `read-model`; did you mean `read-model`?"), "{text:?}");
        assert!(text[1].contains("executor `read-model` is planned, but not registered"), "{text:?}");
        assert!(text.iter().all(|one| one.contains("plan `fixture::SHOP` (src/main.rs:8)")), "{text:?}");
    }

    #[test]
    fn components_beyond_the_plan_and_short_of_it_are_refused() {
        let builder = shop().plan(&SHOP).executor(ConsumerExecutor::tasks("read-model", 1)).provide(Paid);
        let text = problems_of(builder.only_provided(), &[&ComponentDescriptor::of::<Inline>()]);
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text[0].contains("projector `Paid`") && text[0].contains("provided, but not planned"), "{text:?}");
        assert!(text[1].contains("projector `Inline` (src/inline.rs:10) is planned, but not provided"), "{text:?}");
    }

    #[test]
    fn a_planned_component_that_is_linked_without_an_instance_is_reported_once() {
        let builder = shop().plan(&SHOP).executor(ConsumerExecutor::tasks("read-model", 1));
        let text = problems_of(builder, &[&ComponentDescriptor::of::<Inline>()]);
        assert_eq!(text.len(), 1, "{text:?}");
    }
}
