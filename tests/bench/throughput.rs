//! What the framework costs: each case runs the raw work and ours alternately in one process.
//!
//! `cargo bench -p evento-tests --bench throughput` runs every case, `-- NAME..` those named. A case prints the medians
//! of its rounds: `case=NAME ours=EVENTS_PER_S raw=EVENTS_PER_S ratio=R`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    missing_docs,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a benchmark prints, and fails by panicking"
)]

mod append;
mod inline;
mod parallel;
mod sqlite;
mod support;

use support::Case;

fn main() {
    let cases: Vec<Case> = [inline::cases(), append::cases(), parallel::cases()].into_iter().flatten().collect();
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let unknown: Vec<_> = wanted.iter().filter(|name| cases.iter().all(|case| case.name != name.as_str())).collect();
    if !unknown.is_empty() {
        let known: Vec<_> = cases.iter().map(|case| case.name).collect();
        eprintln!("no case {unknown:?}; there are: {}", known.join(", "));
        std::process::exit(2);
    }
    for case in cases.iter().filter(|case| wanted.is_empty() || wanted.iter().any(|name| name == case.name)) {
        support::run(case);
    }
}
