//! Runs the engine's simulation: `simulate --seeds 200000`, `simulate --mutants`, `simulate --seed 7 --trace`.

#![allow(clippy::print_stdout, reason = "a command line's output")]

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use clap::Parser;
use evento_runtime::simulation::{Mutant, Options, Report, run, shorten};

/// The production engine under a seeded driver.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Runs this seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Shows the history of `--seed`.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Runs deliberately broken engines too, and fails unless every one is caught.
    #[arg(long)]
    mutants: bool,
    /// How many threads run seeds.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// How many lines of a broken promise's history are shown.
    #[arg(long, default_value_t = 60)]
    lines: usize,
}

/// A mutant that this many seeds do not catch is not caught.
const SEEDS_A_MUTANT: u64 = 5_000;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A broken engine may panic: that is caught, and counts as a violation.
    std::panic::set_hook(Box::new(|_| ()));
    let (from, seeds) = arguments.seed.map_or((arguments.from, arguments.seeds), |seed| (seed, 1));
    if let Some(seed) = arguments.seed.filter(|_| arguments.trace) {
        let report = run(seed, &Options { trace: true, ..Options::default() });
        report.trace.iter().for_each(|line| println!("{line}"));
        println!("{report:?}", report = Report { trace: vec![], ..report });
    }
    let began = Instant::now();
    let (total, broken) = run_all(from, seeds, arguments.threads);
    let mut violations = broken.len();
    println!("seeds={seeds} steps={} violations={violations}", total.steps);
    println!(
        "starts={} handled={} crashes={} lost={} repeated={} dead={} redelivered={} killed={} seconds={:.1}",
        total.starts,
        total.handled,
        total.crashes,
        total.lost,
        total.repeated,
        total.dead,
        total.redelivered,
        total.killed,
        began.elapsed().as_secs_f64()
    );
    if let Some((seed, violation)) = broken.first() {
        for (seed, violation) in broken.iter().take(50) {
            println!("seed={seed} {violation}");
        }
        show(*seed, violation, arguments.lines);
    }
    if arguments.mutants {
        violations += run_mutants();
    }
    if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_all(from: u64, seeds: u64, threads: u64) -> (Report, Vec<(u64, String)>) {
    const MOST_VIOLATIONS: u64 = 50;
    let (next, found) = (AtomicU64::new(from), AtomicU64::new(0));
    let work = || {
        let (mut total, mut broken) = (Report::default(), Vec::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + seeds || found.load(Ordering::Relaxed) >= MOST_VIOLATIONS {
                return (total, broken);
            }
            let report = run(seed, &Options::default());
            total.add(&report);
            if let Some(violation) = report.violation {
                found.fetch_add(1, Ordering::Relaxed);
                broken.push((seed, violation));
            }
        }
    };
    let done = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect::<Vec<_>>()
    });
    let (mut total, mut broken) = (Report::default(), Vec::new());
    for (report, found) in done {
        total.add(&report);
        broken.extend(found);
    }
    broken.sort();
    (total, broken)
}

fn show(seed: u64, violation: &str, lines: usize) {
    let (options, report) = shorten(seed, &Options::default());
    println!("\nseed={seed}: {violation}");
    let events = options.events.unwrap_or(500);
    println!("the shortest history of it, {events} events, without {:?}:", options.without);
    let from = report.trace.len().saturating_sub(lines);
    report.trace[from..].iter().for_each(|line| println!("  {line}"));
    println!("  {}", report.violation.unwrap_or_default());
}

/// Answers how many were not caught.
fn run_mutants() -> usize {
    let mut missed = 0;
    for mutant in Mutant::ALL {
        let options = Options { mutant: Some(mutant), ..Options::default() };
        // What breaks the engine as it is says nothing of the mutant.
        let caught = (1..=SEEDS_A_MUTANT).find_map(|seed| {
            let violation = run(seed, &options).violation?;
            run(seed, &Options::default()).violation.is_none().then_some((seed, violation))
        });
        match caught {
            Some((seed, violation)) => println!("mutant={mutant:?} caught seed={seed} {violation}"),
            None => {
                missed += 1;
                println!("mutant={mutant:?} MISSED by {SEEDS_A_MUTANT} seeds");
            }
        }
    }
    println!("mutants={} caught={}", Mutant::ALL.len(), Mutant::ALL.len() - missed);
    missed
}
