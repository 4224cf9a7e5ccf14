//! The engine's simulation, small: `simulate --seeds 200000 --mutants` is the whole of it.

use evento_runtime::simulation::{Mutant, Options, Report, run};

const SEEDS: u64 = 400;
/// As many seeds as catch every mutant several times over.
const SEEDS_A_MUTANT: u64 = 60;

#[test]
fn no_seed_breaks_a_promise() {
    let mut total = Report::default();
    for seed in 1..=SEEDS {
        let report = run(seed, &Options::default());
        total.add(&report);
        assert_eq!(report.violation, None, "simulate --seed {seed} --trace");
    }
    // A simulation in which nothing goes wrong shows nothing.
    let happened = [total.crashes, total.lost, total.repeated, total.dead, total.redelivered, total.killed];
    assert!(happened.iter().all(|count| *count > 0), "{total:?}");
}

#[test]
fn every_broken_engine_is_caught() {
    let missed = Mutant::ALL.into_iter().filter(|mutant| {
        let options = Options { mutant: Some(*mutant), ..Options::default() };
        (1..=SEEDS_A_MUTANT).all(|seed| run(seed, &options).violation.is_none())
    });
    assert_eq!(missed.collect::<Vec<_>>(), []);
}

#[test]
fn a_seed_decides_everything() {
    let options = Options { trace: true, ..Options::default() };
    for seed in [1, 16, 77] {
        let (first, second) = (run(seed, &options), run(seed, &options));
        assert!(first.trace.len() > 100 && first.trace == second.trace, "seed {seed}");
    }
}
