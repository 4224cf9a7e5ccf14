use std::{fmt, time::Duration};

use super::StoreError;
use crate::{BoxFuture, ConsumerKey, Segment, Timestamp};

/// Rises with every taking of a claim and with every reset: a write that names a lower one is refused.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the next taking.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What tells a process from every other of its host, as far as the host says.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct ProcessIdentity {
    /// The host's boot and process namespace; processes are only compared within one.
    pub scope: String,
    /// The process id.
    pub pid: u32,
    /// When the process began, in the host's ticks: a reused id begins later.
    pub started: u64,
}

/// Who holds a claim: unique to one start of one process.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Owner {
    /// A name for people and tables: host, process id and a random part.
    pub name: String,
    /// The process, where its host can tell; lets another process of the host see that it is dead.
    pub process: Option<ProcessIdentity>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// The right to consume one segment of one consumer. Every write names it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Claim {
    /// The consumer.
    pub consumer: ConsumerKey,
    /// The segment.
    pub segment: Segment,
    /// Who holds it.
    pub owner: Owner,
    /// The epoch of this taking.
    pub epoch: Epoch,
}

/// Asks for a claim.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// The consumer; registered before.
    pub consumer: ConsumerKey,
    /// The segment.
    pub segment: Segment,
    /// Who asks.
    pub owner: Owner,
    /// How long the claim lasts without renewal.
    pub time_to_live: Duration,
    /// The event names the asker takes; sorted. One that lacks a name the checkpoint was advanced with stands back
    /// for one that has it, while that one lives.
    pub names: Vec<String>,
}

/// The answer to a [`ClaimRequest`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ClaimOutcome {
    /// It is the asker's now.
    Taken {
        /// The claim.
        claim: Claim,
        /// Whether the holder before let it go by itself and said that it was clean, or there was none. If not, a
        /// process may have died in a handler.
        /// A holder that asks again is answered what its first taking was: it has not died.
        clean: bool,
    },
    /// Another holds it.
    Held {
        /// Who.
        owner: Owner,
        /// Until when, by the store's clock, unless renewed.
        until: Timestamp,
    },
    /// It is free, but the asker lacks event names that a waiting process has.
    StandBack {
        /// Who has them.
        owner: Owner,
        /// The names the asker lacks.
        lacking: Vec<String>,
    },
}

/// A claim as stored, for people.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimStatus {
    /// The consumer.
    pub consumer: ConsumerKey,
    /// The segment.
    pub segment: Segment,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who holds it and until when; `None` where it was let go.
    pub owner: Option<(Owner, Timestamp)>,
}

/// Claims: at most one holder of a segment at a time, by the store's own clock.
pub trait ClaimStore: Send + Sync + 'static {
    /// Takes the claim if it is free: never held, let go, past its time, or its holder is a dead process of this host.
    /// Taking it raises its epoch. A holder that asks again is answered [`ClaimOutcome::Taken`] with a new epoch.
    ///
    /// Who is not given it is remembered as waiting, with its names, for its time to live: ask again within that.
    ///
    /// # Errors
    /// [`StoreError::Refused`] where the consumer or the segment is unknown; other [`StoreError`]s.
    fn claim(&self, request: ClaimRequest) -> BoxFuture<'_, Result<ClaimOutcome, StoreError>>;

    /// Prolongs claims by `time_to_live` from now, in one statement, and answers those that are no longer held.
    ///
    /// A claim past its time that nobody has taken over is still held: it can be renewed, and written under.
    ///
    /// # Errors
    /// [`StoreError`]: nothing is known of any of them.
    fn renew(&self, claims: Vec<Claim>, time_to_live: Duration) -> BoxFuture<'_, Result<Vec<Claim>, StoreError>>;

    /// Lets a claim go; nothing happens where it is another's by now. The next taking is answered `clean`: whether
    /// nothing is left of a process that may have died in a handler.
    ///
    /// # Errors
    /// [`StoreError`].
    fn release(&self, claim: Claim, clean: bool) -> BoxFuture<'_, Result<(), StoreError>>;

    /// Every stored claim of a bundle.
    ///
    /// # Errors
    /// [`StoreError`].
    fn claims(&self, bundle: String) -> BoxFuture<'_, Result<Vec<ClaimStatus>, StoreError>>;
}
