//! What start-up says of a bundle: one line a component, then the warnings.

use super::Prepared;
use crate::config::mode_name;

/// Logs one line per component, so that one that is missing is seen to be, and one per warning.
pub(crate) fn log(prepared: &Prepared) {
    let bundle = prepared.name.as_str();
    for of_component in prepared.consumers.chunk_by(|a, b| a.component.name == b.component.name) {
        let Some(first) = of_component.first() else { continue };
        let component = &first.component;
        let contexts: Vec<_> = of_component.iter().map(|consumer| consumer.key.context.as_str()).collect();
        tracing::info!(
            bundle,
            kind = component.kind.as_str(),
            component = component.name,
            version = component.version,
            handlers = component.handlers.len(),
            contexts = contexts.join(","),
            checkpoint = mode_name(first.mode),
            at = %component.location,
            "component linked"
        );
    }
    for warning in &prepared.warnings {
        tracing::warn!(bundle, "{warning}");
    }
}
