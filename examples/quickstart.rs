//! Quickstart.
fn main() {}
