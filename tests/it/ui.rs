//! What does not compile, and what the compiler says of it.
//!
//! `TRYBUILD=overwrite` writes the messages anew.

#[test]
fn refusals_name_the_cure() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("ui/*.rs");
    cases.pass("ui/pass/*.rs");
}
