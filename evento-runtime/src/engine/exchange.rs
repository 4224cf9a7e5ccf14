//! What an engine is told, and what it wants done.

use std::{sync::Arc, time::Duration};

use evento_core::{
    Aggregate, Fault, Position, RecordedEvent, Timestamp,
    store::{Commit, RequestId, Target},
};

use super::{LaneId, SlotId};

/// The time, as both clocks read it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    /// Since the bundle began; everything is decided by it.
    pub(crate) since_start: Duration,
    /// For what is stored and read by people.
    pub(crate) wall: Timestamp,
}

/// One event to hand to its handler.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) slot: SlotId,
    pub(crate) event: Arc<RecordedEvent>,
    pub(crate) handler: usize,
    /// From 1.
    pub(crate) attempt: u32,
    pub(crate) replay: bool,
}

/// Attempts to start: one, or a run of one aggregate's events under one permit.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// By its place in `Config::executors`; `None` runs inline.
    pub(crate) executor: Option<usize>,
    pub(crate) job: Job,
    pub(crate) more: Vec<Job>,
}

/// How an attempt ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Handled,
    Failed(Box<Failure>),
    /// It was cut off before it returned.
    CutOff,
}

/// A failed attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The error and what led to it, outermost first.
    pub(crate) cause: Vec<String>,
}

/// What sort of failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FailureKind {
    /// The handler's, or what stands around it.
    Handler(Fault),
    /// The handler took longer than it may: ordinary for its budget, transient for its breaker.
    Overrun,
    /// The payload does not decode.
    Undecodable,
    /// The payload is over the limit.
    TooLarge,
}

/// Whether an event is handled again beside the stream, after a dead event.
#[cfg(feature = "simulation")]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Redelivery {
    No,
    /// It was parked behind one.
    Parked,
    /// It is one.
    Dead,
}

/// An event that fails, for people.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    pub(crate) event: Arc<RecordedEvent>,
    pub(crate) attempts: u32,
    pub(crate) since: Timestamp,
    pub(crate) cause: Vec<String>,
}

/// Something to read beside the stream's pages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Read {
    /// The events at these positions: answered by [`Engine::recovered`].
    At(Vec<Position>),
    /// The events of a held aggregate, and its letters: answered by [`Engine::drained`].
    Aggregate { lane: LaneId, aggregate: Aggregate, after: Position, until: Position, max: usize, max_bytes: usize },
    /// Letters of a request: answered by [`Engine::letters`].
    Letters { request: RequestId, target: Target, after: Position },
    /// The event of a letter that parks nothing: answered by [`Engine::redriven`].
    Letter(Position),
}

/// What the engine wants done. One is reused from step to step.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Read a page after this position.
    pub(crate) fetch: Option<Position>,
    pub(crate) reads: Vec<Read>,
    /// Starts under executors.
    pub(crate) starts: Vec<Start>,
    /// A start of an inline handler.
    pub(crate) inline: Option<Start>,
    /// Write this, and answer with `committed` or `commit_failed`.
    pub(crate) commit: Option<Commit>,
    /// Take the next turn at this time at the latest.
    pub(crate) wake_at: Option<Duration>,
}
