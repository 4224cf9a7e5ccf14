//! The production engine under a seeded driver: for the project's own tests.
//!
//! A seed decides a log, the components that consume it, what their handlers do, how the store behaves, and when the
//! process is stopped, killed and started again. The clock is virtual. What happens is held against what is promised:
//! the first promise that is broken ends the run.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a virtual clock and a log of a few hundred events are far from any bound"
)]
#![allow(missing_docs, reason = "no interface: used by the project's own tests")]

mod bits;
mod history;
mod random;
mod scenario;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use self::{scenario::Scenario, world::World};
pub use crate::engine::Mutant;

/// How a seed is run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How many events the log has; 500 if not said.
    pub events: Option<usize>,
    pub without: Vec<Without>,
    pub mutant: Option<Mutant>,
    pub trace: bool,
}

/// What is left out, to find a shorter history.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Without {
    SecondConsumer,
    Requests,
    Stops,
    Pauses,
    Downs,
    Hangs,
    StoreFaults,
    Crashes,
    Failures,
}

impl Without {
    pub const ALL: [Self; 9] = [
        Self::SecondConsumer,
        Self::Requests,
        Self::Stops,
        Self::Pauses,
        Self::Downs,
        Self::Hangs,
        Self::StoreFaults,
        Self::Crashes,
        Self::Failures,
    ];
}

/// What a seed came to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub steps: u64,
    pub crashes: u64,
    pub starts: u64,
    pub handled: u64,
    /// Events lost to crashes, as `OnStart` allows.
    pub lost: u64,
    /// Events that were handled again after a crash, as `Watermark` allows.
    pub repeated: u64,
    pub dead: u64,
    /// Attempts at dead events, on request.
    pub redelivered: u64,
    /// Events given up because they killed the process.
    pub killed: u64,
    /// The promise that was broken.
    pub violation: Option<String>,
    pub trace: Vec<String>,
}

impl Report {
    /// Adds another seed's counts.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.crashes += other.crashes;
        self.starts += other.starts;
        self.handled += other.handled;
        self.lost += other.lost;
        self.repeated += other.repeated;
        self.dead += other.dead;
        self.redelivered += other.redelivered;
        self.killed += other.killed;
    }
}

/// Runs one seed to its end, or to its first violation.
#[must_use]
pub fn run(seed: u64, options: &Options) -> Report {
    let (scenario, random) = Scenario::new(seed, options);
    let mut world = World::new(&scenario, random, options);
    let ran = catch_unwind(AssertUnwindSafe(|| world.run()));
    let violation = match ran {
        Ok(checked) => checked.err(),
        Err(panic) => Some(format!(
            "the engine panics: {}",
            panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")
        )),
    };
    let mut report = Report { steps: world.steps, crashes: world.crashes, violation, ..Report::default() };
    for totals in world.totals() {
        report.starts += totals.starts;
        report.handled += totals.handled;
        report.lost += totals.lost;
        report.repeated += totals.repeated;
        report.dead += totals.dead;
        report.redelivered += totals.redelivered;
        report.killed += totals.killed;
    }
    report.trace = world.trace.take().unwrap_or_default();
    report
}

/// Leaves out whatever the violation can do without, and cuts the log short.
#[must_use]
pub fn shorten(seed: u64, options: &Options) -> (Options, Report) {
    let mut best = Options { trace: true, ..options.clone() };
    let mut report = run(seed, &best);
    let mut attempt = |options: Options, best: &mut Options| {
        let tried = run(seed, &options);
        let better = tried.violation.is_some() && tried.steps <= report.steps;
        if better {
            *best = options;
            report = tried;
        }
        better
    };
    for left_out in Without::ALL {
        let mut options = best.clone();
        options.without.push(left_out);
        attempt(options, &mut best);
    }
    let mut events = best.events.unwrap_or(500);
    let mut cut = events / 2;
    while cut > 0 && events > 1 {
        let fewer = events.saturating_sub(cut).max(1);
        if attempt(Options { events: Some(fewer), ..best.clone() }, &mut best) {
            events = fewer;
        } else {
            cut /= 2;
        }
    }
    (best, report)
}
