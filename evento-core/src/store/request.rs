use std::fmt;

use super::StoreError;
use crate::{Aggregate, BoxFuture, ConsumerKey, Position, Timestamp};

/// Numbers the requests of a store.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Handle dead events again, with a fresh budget.
    Retry,
    /// Drop dead events, and release what is parked behind them.
    Discard,
}

impl Action {
    /// The word used in tables and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard => "discard",
        }
    }

    /// The action that [`Action::as_str`] names so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Retry, Self::Discard].into_iter().find(|action| action.as_str() == name)
    }
}

/// Which dead events.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Target {
    /// The one at this position.
    Event(Position),
    /// Those of this aggregate.
    Aggregate(Aggregate),
    /// All of the consumer's.
    Consumer,
}

/// How a request stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RequestState {
    /// Not begun.
    Pending,
    /// Under way.
    Running,
    /// Asked to stop, and stopped or about to.
    Stopped,
    /// Carried out: every letter it counted has been handled, discarded, or has failed again.
    Finished,
}

impl RequestState {
    /// The word used in tables and messages.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        }
    }

    /// The state that [`RequestState::as_str`] names so.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Stopped, Self::Finished].into_iter().find(|state| state.as_str() == name)
    }
}

/// A stored request: carried out by whoever holds the claim, in its own loop.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct StoredRequest {
    /// Its number.
    pub id: RequestId,
    /// The consumer.
    pub consumer: ConsumerKey,
    /// What to do.
    pub action: Action,
    /// With which letters.
    pub target: Target,
    /// How many letters it had when it was made.
    pub total: u64,
    /// How many have been handled or discarded.
    pub done: u64,
    /// How many have failed again.
    pub failed: u64,
    /// The last letter it has dealt with; it goes on after it.
    pub at: Position,
    /// How it stands.
    pub state: RequestState,
    /// When it was made, by the store's clock.
    pub made_at: Timestamp,
}

/// How far a request has got: part of the commit that got it there.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RequestProgress {
    /// The request.
    pub id: RequestId,
    /// How many letters have been handled or discarded.
    pub done: u64,
    /// How many have failed again.
    pub failed: u64,
    /// The last letter it has dealt with.
    pub at: Position,
    /// Whether that was the last.
    pub finished: bool,
}

/// Requests by people, carried out by the claim's holder.
pub trait RequestStore: Send + Sync + 'static {
    /// Counts the letters and stores the request.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the consumer is unknown; other [`StoreError`]s.
    fn make_request(
        &self,
        consumer: ConsumerKey,
        action: Action,
        target: Target,
    ) -> BoxFuture<'_, Result<StoredRequest, StoreError>>;

    /// One request.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where there is no such request; other [`StoreError`]s.
    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<StoredRequest, StoreError>>;

    /// The requests of a bundle's consumers that are pending or running, oldest first.
    ///
    /// # Errors
    /// [`StoreError`].
    fn open_requests(&self, bundle: String) -> BoxFuture<'_, Result<Vec<StoredRequest>, StoreError>>;

    /// Asks for a request to stop; one that has ended stays as it is.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where there is no such request; other [`StoreError`]s.
    fn stop_request(&self, id: RequestId) -> BoxFuture<'_, Result<(), StoreError>>;
}
