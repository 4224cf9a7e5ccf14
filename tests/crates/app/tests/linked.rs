//! What the linker brings along, in every profile.

use std::process::Command;

/// Every handler of the crates that the plan names, sorted by component.
const CENSUS: [&str; 5] = [
    "OpenInvoices::on_paid",
    "OrderAudit::on_placed",
    "OrderView::on_placed",
    "OrderView::on_cancelled",
    "Turnover::on_paid",
];

#[test]
fn r1_a_crate_that_nobody_names_is_missing() {
    let unnamed = app::census().into_iter().any(|handler| handler.starts_with("Forest"));
    assert!(
        !unnamed,
        "`handlers-unnamed` is linked without being named: the advice on an empty registry is out of date"
    );
}

#[test]
fn r2_a_handler_in_a_nested_module_without_other_code_is_linked() {
    let census = app::census();
    for handler in ["OrderAudit::on_placed", "Turnover::on_paid"] {
        assert!(census.iter().any(|linked| linked == handler), "{handler} is missing from {census:?}");
    }
}

#[test]
fn r3_every_profile_links_every_handler() {
    for profile in ["dev", "release"] {
        let run = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--offline", "--package", "app", "--profile", profile])
            .output()
            .unwrap();
        let census = String::from_utf8(run.stdout).unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert_eq!(census.lines().collect::<Vec<_>>(), CENSUS, "profile {profile}");
    }
}

#[test]
fn r6_a_plan_links_the_crates_it_names() {
    assert_eq!(app::SHOP.components.len(), 2);
    assert_eq!(app::census(), CENSUS);
}
