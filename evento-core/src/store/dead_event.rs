use std::fmt;

use super::StoreError;
use crate::{Aggregate, BoxFuture, ConsumerKey, Position, Sequence, Timestamp};

/// Why an event is dead.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DeadReason {
    /// Its handler failed, and will not be tried again.
    Failed,
    /// Its payload does not decode as the event's type.
    Undecodable,
    /// Its payload is over the limit.
    TooLarge,
    /// It killed the process three times.
    KilledTheProcess,
    /// Its handler was cut off by a shutdown; it may have had its effect.
    AbandonedAtShutdown,
}

impl DeadReason {
    const ALL: [Self; 5] =
        [Self::Failed, Self::Undecodable, Self::TooLarge, Self::KilledTheProcess, Self::AbandonedAtShutdown];

    /// The phrase used in tables and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Undecodable => "undecodable",
            Self::TooLarge => "too large",
            Self::KilledTheProcess => "killed the process",
            Self::AbandonedAtShutdown => "abandoned at shutdown",
        }
    }

    /// The reason that [`DeadReason::as_str`] names so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

impl fmt::Display for DeadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A letter: an event that a consumer gave up on. One per consumer and position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadEvent {
    /// Where the event is in its source, which keeps its payload.
    pub position: Position,
    /// Its id.
    pub event_id: String,
    /// Its name.
    pub name: String,
    /// Its aggregate.
    pub aggregate: Aggregate,
    /// Its place in the aggregate.
    pub sequence: Sequence,
    /// Why.
    pub reason: DeadReason,
    /// The error and what led to it, outermost first.
    pub cause: Vec<String>,
    /// Attempts made.
    pub attempts: u32,
    /// When it failed first.
    pub first_failed_at: Timestamp,
    /// When it failed last.
    pub last_failed_at: Timestamp,
    /// Whether the later events of its aggregate are parked behind it.
    pub parks: bool,
}

/// Which letters to list: all the given parts must fit.
///
/// By default the first 100 of all.
#[derive(Clone, Debug)]
pub struct DeadFilter {
    /// Of this event name.
    pub name: Option<String>,
    /// Of this aggregate.
    pub aggregate: Option<Aggregate>,
    /// For this reason.
    pub reason: Option<DeadReason>,
    /// After this position: where the page before ended.
    pub after: Position,
    /// The most letters to list; at least 1.
    pub limit: usize,
}

impl Default for DeadFilter {
    fn default() -> Self {
        Self { name: None, aggregate: None, reason: None, after: Position::BEGINNING, limit: 100 }
    }
}

/// A page of letters.
#[derive(Clone, Debug, Default)]
pub struct DeadPage {
    /// The letters, by position.
    pub letters: Vec<DeadEvent>,
    /// Where the next page begins; `None` on the last.
    pub next: Option<Position>,
}

/// Where a letter is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DeadPosition {
    /// The event's position.
    pub position: Position,
    /// Whether later events of its aggregate are parked behind it.
    pub parks: bool,
}

/// The dead event queue, read. It is written through [`CheckpointStore::commit`](super::CheckpointStore::commit).
pub trait DeadEventStore: Send + Sync + 'static {
    /// Lists a consumer's letters.
    ///
    /// # Errors
    /// [`StoreError`].
    fn dead_events(&self, consumer: ConsumerKey, filter: DeadFilter) -> BoxFuture<'_, Result<DeadPage, StoreError>>;

    /// Where a consumer's letters are, without what is in them: the first `limit` that fit.
    ///
    /// # Errors
    /// [`StoreError`].
    fn dead_positions(
        &self,
        consumer: ConsumerKey,
        filter: DeadFilter,
    ) -> BoxFuture<'_, Result<Vec<DeadPosition>, StoreError>>;

    /// How many letters a consumer has, counted from storage.
    ///
    /// # Errors
    /// [`StoreError`].
    fn dead_depth(&self, consumer: ConsumerKey) -> BoxFuture<'_, Result<u64, StoreError>>;
}
