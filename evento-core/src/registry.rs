use crate::{__private::Entry, ComponentDescriptor};

/// Every component linked into this binary, sorted by kind, name and place.
///
/// Link order differs between profiles and compilers, so nothing may depend on it. A crate that no code names is not
/// linked at all: see [`components!`](crate::components!).
#[must_use]
pub fn linked() -> Vec<&'static ComponentDescriptor> {
    let mut all: Vec<_> = inventory::iter::<Entry>.into_iter().map(|entry| &entry.0).collect();
    all.sort_by_key(|component| (component.kind, component.name, component.location));
    all
}
