//! Kills a consuming process with `kill -9` at random moments, starts it again until its log is done, and counts from
//! what the handlers wrote durably what that cost.
//!
//! `cargo run --release -p evento-tests --bin chaos -- --runs 50`
//!
//! One line per mode and executor; exit status 1 where a promise is broken. `--freeze` stops and continues the process
//! for longer than its claim lasts, in place of killing it.
#![allow(clippy::print_stdout, reason = "a program: what it finds is printed")]
#![allow(clippy::print_stderr, reason = "a program: what went wrong is printed")]

mod child;
mod effect;
mod log;
mod parent;
mod random;
mod setup;
mod verdict;

use std::process::ExitCode;

use anyhow::{Context, bail};

use self::setup::{Combination, Setup};

/// What the command line asks for.
#[derive(Debug)]
struct Options {
    runs: u64,
    seed: u64,
    freeze: bool,
    mode: Option<String>,
    executor: Option<String>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == child::SUBCOMMAND => Setup::from_arguments(rest).and_then(child::consume),
        _ => options(&arguments).and_then(|options| run(&options)),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn options(arguments: &[String]) -> anyhow::Result<Options> {
    let mut options = Options { runs: 1, seed: 1, freeze: false, mode: None, executor: None };
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        if name == "--freeze" {
            options.freeze = true;
            continue;
        }
        let value = arguments.next().with_context(|| format!("`{name}` needs a value"))?;
        match name.as_str() {
            "--runs" => options.runs = value.parse().context("`--runs` is a number")?,
            "--seed" => options.seed = value.parse().context("`--seed` is a number")?,
            "--mode" => options.mode = Some(value.clone()),
            "--executor" => options.executor = Some(value.clone()),
            _ => bail!("unknown option `{name}`; there are --runs, --seed, --mode, --executor and --freeze"),
        }
    }
    Ok(options)
}

/// Answers whether every promise was kept.
fn run(options: &Options) -> anyhow::Result<bool> {
    let chosen = Combination::ALL.into_iter().filter(|combination| {
        options.mode.as_deref().is_none_or(|mode| mode == combination.mode_name())
            && options.executor.as_deref().is_none_or(|executor| executor == combination.executor_name())
    });
    let chosen: Vec<_> = chosen.collect();
    if chosen.is_empty() {
        bail!("no such combination; modes are on-start and watermark, executors tasks, pooled, partitioned and inline");
    }
    println!("seed={}", options.seed);
    let mut kept = true;
    for combination in chosen {
        let mut total = verdict::Totals::default();
        for run in 0..options.runs {
            let seed = random::mixed(options.seed.wrapping_mul(1_000_003).wrapping_add(run));
            let totals = parent::to_the_end(combination, seed, options.freeze)
                .with_context(|| format!("log {run} of {combination}"))?;
            for broken in &totals.broken {
                println!("broken: {combination} log={run}: {broken}");
            }
            total.add(totals);
        }
        println!("{combination} {total}");
        kept &= total.broken.is_empty();
    }
    Ok(kept)
}
