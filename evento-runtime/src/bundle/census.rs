//! What start-up says of a bundle: one line a component, then the warnings.

use super::{ConsumerSpec, Prepared};
use crate::config::mode_name;

/// Logs one line per component, so that one that is missing is seen to be, and one per warning.
pub(crate) fn log(prepared: &Prepared) {
    let bundle = prepared.name.as_str();
    for (consumer, contexts) in components(&prepared.consumers) {
        let component = &consumer.component;
        tracing::info!(
            bundle,
            kind = component.kind.as_str(),
            component = component.name,
            version = component.version,
            handlers = component.handlers.len(),
            contexts,
            checkpoint = mode_name(consumer.mode),
            at = %component.location,
            "component linked"
        );
    }
    for warning in &prepared.warnings {
        tracing::warn!(bundle, "{warning}");
    }
}

/// One consumer of each component, with the contexts of all.
fn components(consumers: &[ConsumerSpec]) -> impl Iterator<Item = (&ConsumerSpec, String)> {
    let by_component = consumers.chunk_by(|a, b| (a.key.kind, &a.key.name) == (b.key.kind, &b.key.name));
    by_component.filter_map(|same| {
        let contexts: Vec<_> = same.iter().map(|consumer| consumer.key.context.as_str()).collect();
        Some((same.first()?, contexts.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::fixture::{Inline, Paid, shop};

    #[test]
    fn a_component_is_listed_once_with_all_its_contexts() {
        let prepared = shop().provide(Paid).provide(Inline).contexts(["eu", "default"]).prepare_among(&[]).unwrap();
        assert_eq!(prepared.consumers.len(), 4);
        let listed: Vec<_> = components(&prepared.consumers).map(|(first, all)| (first.component.name, all)).collect();
        let all = "default, eu".to_owned();
        assert_eq!(listed, [("Inline", all.clone()), ("Paid", all)]);
    }
}
