//! Everything that can be checked before anything is opened, all problems at once and in the same order every time.

mod component;
mod executor;
mod nearest;
mod plan;
mod pool;
mod warning;

use std::{collections::BTreeSet, sync::Arc};

use evento_core::{ComponentDescriptor, ExecutorName, HandlerDescriptor, Location, NewEvent, store::OpenStore};

use super::{BundleBuilder, Problem, Report, StartError};
use crate::ConsumerExecutor;

/// What is known of a bundle once it has passed.
pub(super) struct Accepted {
    pub(super) store: Arc<dyn OpenStore>,
    pub(super) executors: Vec<ConsumerExecutor>,
    pub(super) warnings: Vec<String>,
}

/// Checks a bundle whose binary has these components linked in.
pub(super) fn validate(builder: &BundleBuilder, linked: &[&ComponentDescriptor]) -> Result<Accepted, StartError> {
    let mut problems = Vec::new();
    let components = component::considered(builder, linked);
    let mut misfits = Vec::new();
    let executors = executor::merged(builder, &mut misfits);

    problems.extend(name(&builder.name));
    problems.extend(panic_strategy(cfg!(panic = "abort")));
    contexts(&builder.contexts, &mut problems);
    stores(&builder.stores, &mut problems);
    problems.extend(builder.settings.problems());
    component::check(builder, linked, &components, &mut problems);
    problems.extend(misfits);
    executor::check(builder, &components, &executors, &mut problems);
    plan::check(builder, &components, &executors, &mut problems);

    match builder.stores.first() {
        Some(store) if problems.is_empty() => {
            let warnings = warning::warnings(builder, &components, &executors);
            Ok(Accepted { store: Arc::clone(store), executors, warnings })
        }
        _ => Err(StartError::Refused(Report::new(&builder.name, problems))),
    }
}

fn name(name: &str) -> Option<Problem> {
    // One rule for all names that people type on command lines and see in metrics.
    (!ExecutorName::is_valid(name)).then(|| {
        let what = format!("`{name}` cannot name a bundle");
        Problem::new(what, "give it 1 to 64 bytes of `a-z`, `0-9`, `-` and `_`, such as `shop`")
    })
}

fn panic_strategy(abort: bool) -> Option<Problem> {
    abort.then(|| {
        let what = "the profile says `panic = \"abort\"`";
        Problem::new(what, "take it out of `[profile.*]` in Cargo.toml").note(
            "a handler's panic is to fail one event; with it, one would end the process, and again after each restart",
        )
    })
}

fn contexts(contexts: &[String], problems: &mut Vec<Problem>) {
    if contexts.is_empty() {
        let cure = "name one, or leave `.contexts(..)` out to take `default`";
        problems.push(Problem::new("the list of contexts is empty: nothing would be consumed", cure));
    }
    let mut seen = BTreeSet::new();
    for context in contexts {
        if context.is_empty() || context.len() > NewEvent::MAX_PART || context.contains('\0') {
            let cure = format!("give it 1 to {} bytes and no zero byte", NewEvent::MAX_PART);
            problems
                .push(Problem::new(format!("no event can be published in context `{}`", context.escape_debug()), cure));
        } else if !seen.insert(context) {
            problems.push(Problem::new(format!("context `{context}` is listed twice"), "list it once"));
        }
    }
}

fn stores(stores: &[Arc<dyn OpenStore>], problems: &mut Vec<Problem>) {
    match stores {
        [] => problems.push(Problem::new("no store was given", "describe one: `.store(..)`")),
        [store] => {
            for what in store.problems() {
                let cure = "correct the description given to `.store(..)`";
                problems.push(Problem::new(format!("the store, {}: {what}", store.describe()), cure));
            }
        }
        several => {
            let all: Vec<_> = several.iter().map(|store| store.describe()).collect();
            let what = format!("{} stores were given: {}", several.len(), all.join("; "));
            problems.push(Problem::new(what, "give one: a bundle keeps everything in one store"));
        }
    }
}

/// The component, as messages name it: ``projector `OrderView` ``.
fn component_name(component: &ComponentDescriptor) -> String {
    format!("{} `{}`", component.kind, component.name)
}

/// The handler, as messages name it, with its place.
fn handler_name(component: &ComponentDescriptor, handler: &HandlerDescriptor) -> String {
    format!("{}: `{}` ({})", component_name(component), handler.method, handler.location)
}

/// A place for messages; what has none comes from the settings.
fn place(location: Option<Location>) -> String {
    location.map_or_else(|| "the settings".to_owned(), |location| location.to_string())
}

/// Names for messages: `` `a`, `b` ``, or `none`.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

/// A note that lists the names that would have been right, and asks for the nearest.
fn known_note<'a>(what: &str, wanted: &str, known: &[&'a str]) -> (String, Option<&'a str>) {
    let nearest = nearest::nearest(wanted, known);
    let asked = nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
    (format!("{what}: {}{asked}", listed(known.iter().copied())), nearest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Bundle, Settings,
        bundle::fixture::{Inline, Untouched, problems_of, shop},
    };

    #[test]
    fn e18_a_sound_bundle_is_prepared_with_nothing_opened() {
        let prepared = shop().provide(Inline).prepare_among(&[&ComponentDescriptor::of::<Inline>()]).unwrap();
        assert_eq!(prepared.consumers.len(), 1);
        assert_eq!(prepared.consumers[0].key.to_string(), "shop/projector/Inline/v1/default");
        assert_eq!(prepared.consumers[0].names, ["order.paid", "order.placed"]);
        assert_eq!(prepared.warnings, Vec::<String>::new());
    }

    #[test]
    fn e18_every_problem_stands_in_one_report_in_the_same_order_every_time() {
        let settings = Settings { crashes: 0, ..Settings::default() };
        let report = || {
            let builder = Bundle::builder("").settings(settings.clone()).contexts([""; 0]);
            builder.prepare_among(&[&ComponentDescriptor::of::<Inline>()]).unwrap_err().to_string()
        };
        let first = report();
        assert!(first.contains("cannot start: 5 problems, nothing was opened or started"), "{first}");
        let order = ["cannot name a bundle", "contexts is empty", "no store", "`crashes`", "`Inline`"];
        let places: Vec<_> =
            order.iter().map(|part| first.find(part).unwrap_or_else(|| panic!("{part}: {first}"))).collect();
        assert!(places.is_sorted(), "{first}");
        assert_eq!(first, report());
    }

    #[test]
    fn a_name_that_metrics_could_not_carry_is_refused() {
        assert!(name("shop-2_b").is_none());
        assert!(name("Shop").unwrap().cure().contains("`a-z`"));
        assert!(name(&"x".repeat(65)).is_some());
    }

    #[test]
    fn a_profile_that_aborts_on_panic_is_refused_with_the_place_to_change() {
        assert_eq!(panic_strategy(false), None);
        let problem = panic_strategy(true).unwrap();
        assert!(problem.what().contains("panic = \"abort\"") && problem.cure().contains("Cargo.toml"), "{problem}");
    }

    #[test]
    fn contexts_that_no_event_can_have_or_that_repeat_are_refused() {
        let text = problems_of(shop().provide(Inline).contexts(["a", "", "a", "b\0"]), &[]);
        assert_eq!(text.len(), 3, "{text:?}");
        assert!(text[0].contains("context ``") && text[1].contains("`a` is listed twice"), "{text:?}");
        assert!(text[2].contains(r"`b\0`"), "{text:?}");
    }

    #[test]
    fn a_stores_own_problems_and_a_second_store_are_refused() {
        let broken = Untouched { problems: vec!["the path is empty".into()] };
        let text = problems_of(Bundle::builder("shop").store(broken).provide(Inline), &[]);
        assert_eq!(text.len(), 1);
        assert!(text[0].contains("untouched store") && text[0].contains("the path is empty"), "{text:?}");
        let text = problems_of(shop().store(Untouched::default()).provide(Inline), &[]);
        assert!(text[0].contains("2 stores were given"), "{text:?}");
    }
}
