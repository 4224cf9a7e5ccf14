use std::{fmt, time::Duration};

use super::{Claim, CommitError, DeadEvent, RequestProgress, StoreError};
use crate::{Aggregate, BoxFuture, ConsumerKey, Position, Segment, StartAt, Timestamp};

/// Counts the writes of one segment's checkpoint: a write names the one it replaces.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Revision(pub u64);

impl Revision {
    /// What the next write makes of it. At the end of its range a store refuses the write.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Counts the resets of a consumer: within one, the frontier never falls.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Generation(pub u64);

/// Makes a consumer known, with its start, at first sight.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The consumer.
    pub consumer: ConsumerKey,
    /// Where it begins if it has no state yet.
    pub start: StartAt,
    /// The event names it takes; sorted.
    pub names: Vec<String>,
}

/// Why events of an aggregate are not handed out.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum WhyHeld {
    /// They wait behind a running event, beyond their share of memory.
    Waiting,
    /// They wait behind an event that waits for another attempt.
    Retrying,
    /// They are parked behind a dead event.
    Dead,
}

/// A held key: everything of the aggregate from `from` to the frontier is open or parked.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeldKey {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// Its first event that is held; for a dead one, the first that is parked or dead.
    pub from: Position,
    /// Why.
    pub why: WhyHeld,
}

/// A failed event that will be tried again: survives a crash.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredRetry {
    /// The event.
    pub position: Position,
    /// Its aggregate's hash, by which a segment finds its own.
    pub key_hash: u64,
    /// Attempts made.
    pub attempts: u32,
    /// How many of them used up budget.
    pub spent: u32,
    /// Not before this time.
    pub not_before: Timestamp,
    /// When it failed first.
    pub first_failed_at: Timestamp,
}

/// An event whose start was recorded because processes have died here before.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Started {
    /// The event.
    pub position: Position,
    /// Its aggregate's hash.
    pub key_hash: u64,
    /// How many processes died after starting it.
    pub crashes: u32,
}

/// What had been passed when a consumer was reset: events in it are replays.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Replay {
    /// The frontier at the reset.
    pub until: Position,
    /// What was open, waiting or parked below it, and so was never passed; sorted.
    pub except: Vec<Position>,
}

impl Replay {
    /// Whether the event at `position` had been passed.
    #[must_use]
    pub fn contains(&self, position: Position) -> bool {
        position <= self.until && self.except.binary_search(&position).is_err()
    }
}

/// Everything stored of one segment of a consumer: read at every claim.
#[derive(Clone, Debug, Default)]
pub struct ConsumerState {
    /// The last write.
    pub revision: Revision,
    /// The last reset.
    pub generation: Generation,
    /// The last position admitted.
    pub frontier: Position,
    /// What is unsettled at or below the frontier; sorted.
    pub open: Vec<Position>,
    /// Held keys.
    pub held: Vec<HeldKey>,
    /// Failed events that will be tried again; sorted by position.
    pub retries: Vec<StoredRetry>,
    /// Recorded starts that have not settled; sorted by position.
    pub started: Vec<Started>,
    /// Positions above the frontier, or open, that have a letter and so are settled; sorted.
    pub letters: Vec<Position>,
    /// The event names the checkpoint was advanced with; sorted.
    pub names: Vec<String>,
    /// What was passed before the last reset, where there was one.
    pub replay: Option<Replay>,
}

/// One write of a consumer: everything in one transaction, or nothing. It lists what changed.
///
/// What goes (closed, released, ended) goes before what comes: a row that is in both is there afterwards.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// The revision it replaces; it makes the next one.
    pub replaces: Revision,
    /// The frontier; never below the stored one.
    pub frontier: Position,
    /// Positions that became open; none is above the frontier.
    pub opened: Vec<Position>,
    /// Positions that are no longer open.
    pub closed: Vec<Position>,
    /// Keys that are held, each replacing what was stored of it.
    pub held: Vec<HeldKey>,
    /// Keys that are no longer held.
    pub released: Vec<Aggregate>,
    /// Retries, each replacing what was stored of its position.
    pub retries: Vec<StoredRetry>,
    /// Positions that have no retry any more.
    pub retries_ended: Vec<Position>,
    /// Recorded starts, each replacing what was stored of its position.
    pub started: Vec<Started>,
    /// Positions whose recorded start has settled.
    pub started_ended: Vec<Position>,
    /// Letters. One that is there already is left as it is, but for its attempts, times, cause and reason.
    pub dead: Vec<DeadEvent>,
    /// Positions whose letter goes: handled after all, or discarded.
    pub dead_ended: Vec<Position>,
    /// The event names it advances with, where they changed; sorted.
    pub names: Option<Vec<String>>,
    /// How far stored requests have got.
    pub requests: Vec<RequestProgress>,
}

/// A reset of one segment, under its claim.
#[derive(Clone, Debug)]
pub struct Reset {
    /// The claim; its epoch ends with the reset.
    pub claim: Claim,
    /// The last position that counts as passed, at most the frontier; [`Position::BEGINNING`] replays everything.
    /// What is open at or below it stays open, with its retry.
    pub to: Position,
    /// How long the claim that the answer carries lasts.
    pub time_to_live: Duration,
}

/// A consumer as stored, for people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredConsumer {
    /// The consumer.
    pub consumer: ConsumerKey,
    /// The segment.
    pub segment: Segment,
    /// The last position admitted.
    pub frontier: Position,
    /// How many positions are open below it.
    pub open: u64,
    /// How many aggregates are held for another reason than a dead event: what is behind them is unsettled too.
    pub waiting: u64,
    /// The last reset.
    pub generation: Generation,
    /// When its checkpoint was last written, by the store's clock; `None` where it never was.
    pub written_at: Option<Timestamp>,
}

/// Checkpoints with all that hangs on them.
pub trait CheckpointStore: Send + Sync + 'static {
    /// Makes consumers known, all in one transaction; what is stored of those already known stays.
    ///
    /// # Errors
    /// [`StoreError`].
    fn register(&self, consumers: Vec<Registration>) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Reads everything stored of the claimed segment.
    ///
    /// # Errors
    /// [`CommitError::Fenced`] where the claim is no longer held; [`CommitError::Store`].
    fn load(&self, claim: Claim) -> BoxFuture<'_, Result<ConsumerState, CommitError>>;

    /// Makes one write, fenced by the claim's owner and epoch, and answers the revision it made.
    ///
    /// # Errors
    /// [`CommitError`]; after [`CommitError::Store`] the write may have been made: read the revision back.
    fn commit(&self, claim: Claim, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>>;

    /// The stored revision, by which an unknown outcome is resolved.
    ///
    /// # Errors
    /// [`CommitError::Fenced`] where the claim is no longer held; [`CommitError::Store`].
    fn revision(&self, claim: Claim) -> BoxFuture<'_, Result<Revision, CommitError>>;

    /// Resets a segment: a new generation and a new epoch. Archives letters, retries, starts and held keys above
    /// `to`; what had been passed, in this generation or one before, is kept as [`Replay`]. Answers the claim under its
    /// new epoch.
    ///
    /// # Errors
    /// [`CommitError::Fenced`] where the claim is no longer held; [`CommitError::Store`], with
    /// [`StoreError::Refused`] where `to` is beyond the frontier.
    fn reset(&self, reset: Reset) -> BoxFuture<'_, Result<Claim, CommitError>>;

    /// Every stored consumer of a bundle, segment by segment.
    ///
    /// # Errors
    /// [`StoreError`].
    fn consumers(&self, bundle: String) -> BoxFuture<'_, Result<Vec<StoredConsumer>, StoreError>>;
}
