//! The crate that `linked.rs` finds missing, linked by one mention.

evento_core::plan! {
    WOOD = { executors: [], components: [handlers_unnamed::FOREST] }
}

#[test]
fn r6_naming_a_crate_links_it() {
    assert_eq!(WOOD.components.len(), 1);
    let linked: Vec<_> = evento_core::linked().iter().map(|component| component.name).collect();
    assert_eq!(linked, ["Forest"]);
}
