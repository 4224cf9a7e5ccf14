use std::{
    any::TypeId,
    collections::{BTreeMap, BTreeSet},
};

use evento_core::{ComponentDescriptor, EventType};

use super::{component_name, handler_name, known_note};
use crate::bundle::{BundleBuilder, Problem};

/// The components that the checks are about, each type once, sorted as the registry is.
pub(super) fn considered(builder: &BundleBuilder, linked: &[&ComponentDescriptor]) -> Vec<ComponentDescriptor> {
    let provided = builder.provided.iter().map(|provided| provided.component);
    let linked = linked.iter().filter(|_| !builder.only_provided).map(|component| **component);
    let mut seen = BTreeSet::new();
    let mut all: Vec<_> = linked.chain(provided).filter(|component| seen.insert((component.type_id)())).collect();
    all.sort_by_key(|component| (component.kind, component.name, component.location, (component.type_name)()));
    all
}

pub(super) fn check(
    builder: &BundleBuilder,
    linked: &[&ComponentDescriptor],
    components: &[ComponentDescriptor],
    problems: &mut Vec<Problem>,
) {
    problems.extend(nothing_to_run(builder, linked));
    one_name_twice(components, problems);
    one_event_two_types(components, problems);
    for component in components {
        problems.extend(no_handlers(component));
        problems.extend(instances(builder, component));
    }
    overrides(builder, components, problems);
}

fn nothing_to_run(builder: &BundleBuilder, linked: &[&ComponentDescriptor]) -> Option<Problem> {
    if !builder.provided.is_empty() {
        return None;
    }
    if builder.only_provided {
        let what = "the bundle is made of only what is provided, and nothing is";
        return Some(Problem::new(what, "add `.provide(..)`, or leave `.only_provided()` out"));
    }
    linked.is_empty().then(|| {
        let cure = "name the crate that has them: its `components!` constant in a `plan!`, `use my_crate as _;`, or an \
                    instance in `.provide(..)`";
        Problem::new("no component is linked into this binary", cure)
            .note("a library crate that no code names is not linked, and its components register nothing")
    })
}

/// Two components that would share one stored state.
fn one_name_twice(components: &[ComponentDescriptor], problems: &mut Vec<Problem>) {
    for same in components.chunk_by(|a, b| (a.kind, a.name) == (b.kind, b.name)) {
        let [first, second, ..] = same else { continue };
        let types: Vec<_> = same.iter().map(|one| format!("`{}` ({})", (one.type_name)(), one.location)).collect();
        let what = format!("{} is declared {} times", component_name(first), same.len());
        let problem = if is_linked_twice(first, second) {
            linked_twice(what, crate_of((first.type_name)()))
        } else {
            Problem::new(what, "give one of them another name: `name = \"..\"` in the attribute on its struct")
        };
        problems.push(problem.at(first.location).note(types.join(" and ")));
    }
}

/// Whether two types are one declaration, compiled twice: the versions of a crate lie in folders of their own, and keep
/// the paths within.
fn is_linked_twice(a: &ComponentDescriptor, b: &ComponentDescriptor) -> bool {
    let one_declaration = a.location.file != b.location.file || a.location.line == b.location.line;
    one_declaration && (a.type_name)() == (b.type_name)()
}

fn linked_twice(what: String, name: &str) -> Problem {
    let cure = format!("have every dependency agree on one version; `cargo tree -d` shows who wants which of `{name}`");
    Problem::new(what, cure).note(format!("crate `{name}` is linked twice, in two versions"))
}

fn crate_of(type_name: &str) -> &str {
    type_name.split("::").next().unwrap_or(type_name)
}

/// One stored name that would be decoded as two types.
fn one_event_two_types(components: &[ComponentDescriptor], problems: &mut Vec<Problem>) {
    let mut by_name: BTreeMap<&str, Vec<(TypeId, EventType, String)>> = BTreeMap::new();
    for component in components {
        for handler in component.handlers {
            let of_name = by_name.entry(handler.event.name).or_default();
            let type_id = (handler.event.type_id)();
            if of_name.iter().all(|(known, ..)| *known != type_id) {
                of_name.push((type_id, handler.event, handler_name(component, handler)));
            }
        }
    }
    for (name, types) in by_name {
        let [(_, first, _), (_, second, _), ..] = types.as_slice() else { continue };
        let what = format!("event `{name}` is taken as {} Rust types", types.len());
        let type_name = (first.type_name)();
        let mut problem = if type_name == (second.type_name)() {
            linked_twice(what, crate_of(type_name))
        } else {
            Problem::new(what, "rename one of the events, or have both handlers take the same type")
        };
        for (_, event, handler) in &types {
            problem = problem.note(format!("`{}` by {handler}", (event.type_name)()));
        }
        problems.push(problem);
    }
}

fn no_handlers(component: &ComponentDescriptor) -> Option<Problem> {
    component.handlers.is_empty().then(|| {
        let what = format!("{} ({}) has no handlers", component_name(component), component.location);
        let cure = "put `#[event_handler]` on a method of its impl block, or take the component out";
        Problem::new(what, cure).at(component.location)
    })
}

fn instances(builder: &BundleBuilder, component: &ComponentDescriptor) -> Option<Problem> {
    let type_id = (component.type_id)();
    let given: Vec<_> = builder.provided.iter().filter(|given| (given.component.type_id)() == type_id).collect();
    match given.as_slice() {
        [] => {
            let what = format!("{} ({}) is linked, but has no instance", component_name(component), component.location);
            let type_name = (component.type_name)();
            let short = type_name.rsplit("::").next().unwrap_or(type_name);
            let cure = format!("add `.provide({short} {{ .. }})`, or `.only_provided()` to run just what is provided");
            Some(Problem::new(what, cure).at(component.location))
        }
        [_] => None,
        several => {
            let places: Vec<_> = several.iter().map(|given| given.location.to_string()).collect();
            let what = format!("{} is provided {} times", component_name(component), several.len());
            Some(Problem::new(what, "provide it once").at(several[0].location).note(places.join(" and ")))
        }
    }
}

/// Overrides that would pass silently and do nothing.
fn overrides(builder: &BundleBuilder, components: &[ComponentDescriptor], problems: &mut Vec<Problem>) {
    for (i, given) in builder.overrides.iter().enumerate() {
        let type_id = (given.component.type_id)();
        let name = component_name(&given.component);
        let mode = format!("a checkpoint mode is set for {name} ({})", given.location);
        if components.iter().all(|component| (component.type_id)() != type_id) {
            let what = format!("{mode}, which is no component of this bundle");
            problems.push(Problem::new(what, "provide an instance of it, or take the mode out").at(given.location));
        } else if let Some(other) = builder.overrides[..i].iter().find(|earlier| earlier.is_of(type_id)) {
            let what = format!("{mode}, and before that at {}", other.location);
            problems.push(Problem::new(what, "set it once").at(given.location));
        }
    }
    let mut names: Vec<_> = components.iter().map(|component| component.name).collect();
    names.dedup();
    for name in builder.settings.components.keys().filter(|name| !names.contains(&name.as_str())) {
        let (known, nearest) = known_note("components", name, &names);
        let cure = match nearest {
            Some(nearest) => format!("write `components.{nearest}`, or take the setting out"),
            None => "write the name of a component, or take the setting out".to_owned(),
        };
        let what = format!("setting `components.{name}` names no component of this bundle");
        problems.push(Problem::new(what, cure).note(known));
    }
}

#[cfg(test)]
mod tests {
    use evento_core::CheckpointMode::{OnStart, Watermark};

    use super::*;
    use crate::{
        ComponentSettings, Settings,
        bundle::fixture::{Bare, Inline, Paid, PaidElsewhere, SecondInline, problems_of, shop},
    };

    #[test]
    fn e18_a_linked_component_without_an_instance_is_refused_by_name_and_line() {
        let text = problems_of(
            shop().provide(Paid),
            &[&ComponentDescriptor::of::<Inline>(), &ComponentDescriptor::of::<Paid>()],
        );
        assert_eq!(
            text,
            [concat!(
                "projector `Inline` (src/inline.rs:10) is linked, but has no instance\n",
                "add `.provide(Inline { .. })`, or `.only_provided()` to run just what is provided"
            )]
        );
        let only = shop().provide(Paid).only_provided();
        assert_eq!(
            problems_of(only, &[&ComponentDescriptor::of::<Inline>(), &ComponentDescriptor::of::<Paid>()]),
            [""; 0]
        );
    }

    #[test]
    fn e18_an_empty_registry_is_refused_with_its_cause_and_its_cure() {
        let text = problems_of(shop(), &[]);
        assert_eq!(text.len(), 1);
        for part in ["no component is linked", "no code names", "`components!`", "`plan!`", "`use my_crate as _;`"] {
            assert!(text[0].contains(part), "{part}: {text:?}");
        }
        assert!(
            problems_of(shop().only_provided(), &[&ComponentDescriptor::of::<Inline>()])[0].contains("`.provide(..)`")
        );
    }

    #[test]
    fn e18_one_instance_too_many_is_refused_with_both_places() {
        let text = problems_of(shop().provide(Inline).provide(Inline), &[]);
        assert_eq!(text.len(), 1);
        assert!(text[0].contains("projector `Inline` is provided 2 times"), "{text:?}");
        assert_eq!(text[0].matches(file!()).count(), 2, "{text:?}");
    }

    #[test]
    fn a_component_without_handlers_is_refused() {
        let text = problems_of(shop().provide(Bare), &[]);
        assert!(text[0].contains("projector `Bare` (src/bare.rs:3) has no handlers"), "{text:?}");
    }

    #[test]
    fn e18_two_components_of_one_name_are_refused_with_both_places() {
        let text = problems_of(shop().provide(Inline).provide(SecondInline), &[]);
        assert_eq!(text.len(), 1);
        for part in ["projector `Inline` is declared 2 times", "src/inline.rs:10", "src/second.rs:7", "`name = \"..\"`"]
        {
            assert!(text[0].contains(part), "{part}: {text:?}");
        }
    }

    #[test]
    fn a_crate_linked_in_two_versions_is_named_with_the_command_that_shows_why() {
        let twin = ComponentDescriptor { type_id: TypeId::of::<u8>, ..ComponentDescriptor::of::<Inline>() };
        let text = problems_of(shop().provide(Inline), &[&ComponentDescriptor::of::<Inline>(), &twin]);
        for part in ["crate `evento_runtime` is linked twice", "`cargo tree -d`"] {
            assert!(text[0].contains(part), "{part}: {text:?}");
        }
        let mut elsewhere = twin;
        elsewhere.location.file = "other-version/src/inline.rs";
        let text = problems_of(shop().provide(Inline), &[&ComponentDescriptor::of::<Inline>(), &elsewhere]);
        assert!(text[0].contains("is linked twice"), "{text:?}");
    }

    #[test]
    fn e18_one_event_name_on_two_types_is_refused_with_both_handlers() {
        let text = problems_of(shop().provide(Paid).provide(PaidElsewhere), &[]);
        assert_eq!(text.len(), 1);
        for part in [
            "event `order.paid` is taken as 2 Rust types",
            "projector `Paid`: `on_paid` (src/paid.rs:21)",
            "projector `PaidElsewhere`: `on_paid_too` (src/elsewhere.rs:33)",
        ] {
            assert!(text[0].contains(part), "{part}: {text:?}");
        }
    }

    #[test]
    fn e18_an_override_of_an_unknown_component_is_refused() {
        let text = problems_of(shop().provide(Inline).component_checkpoint_mode::<Paid>(OnStart), &[]);
        assert!(text[0].contains("set for projector `Paid`") && text[0].contains(file!()), "{text:?}");
        let twice = shop()
            .provide(Inline)
            .component_checkpoint_mode::<Inline>(OnStart)
            .component_checkpoint_mode::<Inline>(Watermark);
        assert!(problems_of(twice, &[])[0].contains("and before that at"));
    }

    #[test]
    fn e18_a_setting_for_an_unknown_component_is_refused_with_the_nearest() {
        let mut settings = Settings::default();
        settings.components.insert("Inlien".into(), ComponentSettings::default());
        let text = problems_of(shop().provide(Inline).settings(settings), &[]);
        assert_eq!(
            text,
            [concat!(
                "setting `components.Inlien` names no component of this bundle\n",
                "components: `Inline`; did you mean `Inline`?\n",
                "write `components.Inline`, or take the setting out"
            )]
        );
    }
}
