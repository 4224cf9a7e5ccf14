//! What an engine is set up with.

use evento_core::{CheckpointMode, OnDead, retry::Backoff};

use super::{Cadence, Routes};

/// How often a handler is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Budget {
    /// For ever.
    Forever,
    /// This many times after the first.
    Times(u32),
}

/// Where a handler runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Run {
    /// One event at a time, between everything before it and everything after it.
    Inline,
    /// Under an executor, by its place in `Config::executors`; `ordered` keeps an aggregate's order.
    Executor { index: usize, ordered: bool },
}

/// What the engine knows of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) run: Run,
    pub(crate) budget: Budget,
    pub(crate) backoff: Backoff,
    /// A transient failure uses up no budget even where the checkpoint has passed the event.
    pub(crate) redeliver: bool,
}

/// What the engine knows of an executor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) capacity: usize,
    /// How many of the stream's events may be in memory for it.
    pub(crate) look_ahead: usize,
}

/// How many open positions a checkpoint keeps.
pub(crate) const MOST_OPEN: usize = 100_000;

/// What the engine is set up with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) mode: CheckpointMode,
    /// Handlers by event name.
    pub(crate) routes: Routes,
    pub(crate) policies: Vec<Policy>,
    pub(crate) executors: Vec<Limits>,
    /// Starts that may be recorded beyond the permits there are, under `OnStart`.
    pub(crate) start_ahead: usize,
    /// How many bytes of events may be in memory.
    pub(crate) max_bytes: usize,
    /// How many events may be open before nothing more is taken in.
    pub(crate) max_open: usize,
    pub(crate) on_dead: OnDead,
    pub(crate) cadence: Cadence,
    /// An event that was under way when this many processes died is dead.
    pub(crate) max_crashes: u32,
    /// The event names the component takes; sorted.
    pub(crate) names: Vec<String>,
    /// What a deliberately broken engine leaves out; for the simulation's own test.
    #[cfg(feature = "simulation")]
    pub(crate) mutant: Option<Mutant>,
}

/// Ways in which the simulation breaks the engine, to see that it would notice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub, reason = "public where the simulation is"))]
pub enum Mutant {
    /// The checkpoint names what has not been taken in.
    WatermarkPlusOne,
    /// Under `OnStart` an event that runs is still open.
    CheckpointOnCompletion,
    /// Nothing is parked behind a dead event.
    NoParking,
    /// The permit of a failed attempt never comes back.
    PermitLeakedOnFailure,
    /// An event without a handler waits until everything before it has settled.
    SkippedIsBarrier,
    /// What a handler depends on is down, and it is asked all the same.
    NoBreaker,
    /// A dead event counts as passed before its letter is stored.
    DeadBeforeDurable,
    /// Under `OnStart` an event starts before that is recorded.
    StartBeforeRecord,
    /// An inline event waits for nothing, and nothing waits for it.
    OneSidedBarrier,
    /// A failed attempt is forgotten by a crash.
    RetryNotStored,
    /// The next attempt does not wait until it is due.
    RetryTooEarly,
    /// The last open position is left out of the checkpoint.
    OpenForgotten,
    /// A held key is left out of the checkpoint.
    HeldForgotten,
    /// The second event of a lane starts beside the first.
    LaneRunsTwo,
}

#[cfg(feature = "simulation")]
impl Mutant {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::WatermarkPlusOne,
        Self::CheckpointOnCompletion,
        Self::NoParking,
        Self::PermitLeakedOnFailure,
        Self::SkippedIsBarrier,
        Self::NoBreaker,
        Self::DeadBeforeDurable,
        Self::StartBeforeRecord,
        Self::OneSidedBarrier,
        Self::RetryNotStored,
        Self::RetryTooEarly,
        Self::OpenForgotten,
        Self::HeldForgotten,
        Self::LaneRunsTwo,
    ];
}
