use std::error::Error;

use super::{Owner, Revision};
use crate::{InvalidEvent, Position, Sequence};

/// A store's failure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// It cannot be reached, or did not answer. What was asked for may have happened.
    #[error("the store is unavailable")]
    Unavailable {
        /// What the back end said.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// What it holds is not what this version writes.
    #[error(
        "the store holds something unreadable: {what}; restore it from a backup, or open it with the version that wrote it"
    )]
    Corrupt {
        /// What, and where.
        what: String,
    },
    /// It was asked for something it does not do, as the message says.
    #[error("{0}")]
    Refused(String),
}

impl StoreError {
    /// Wraps a back end's error.
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable { source: source.into() }
    }
}

/// Why an append appended nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The aggregate is not at the expected sequence.
    #[error("the aggregate is at sequence {actual}, not at {expected}; read it again, decide again and append again")]
    Conflict {
        /// What the caller expected.
        expected: Sequence,
        /// What the log holds; 0 where the aggregate has no event.
        actual: Sequence,
    },
    /// An expected sequence was given for events of several aggregates.
    #[error(
        "an expected sequence goes with the events of one aggregate, these belong to several; append them apart, or with `Expected::Any`"
    )]
    SeveralAggregates,
    /// Some of the events are in the log already, and others are not.
    #[error("{} of the events are in the log already and the others are not; append those others alone", known.len())]
    PartlyKnown {
        /// The places, in the append, of those that are known.
        known: Vec<usize>,
    },
    /// An id is in the log with another aggregate, name, context or payload, or twice in this append.
    #[error("event id `{id}` is taken by a different event; give this one an id of its own")]
    Altered {
        /// The id.
        id: String,
    },
    /// An event no store takes.
    #[error("event {index} of the append is invalid")]
    Invalid {
        /// Its place in the append, from 0.
        index: usize,
        /// What is wrong.
        #[source]
        source: InvalidEvent,
    },
    /// A typed event could not be encoded.
    #[error(transparent)]
    Encode(#[from] crate::EncodeError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a consumer's write was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The claim is another's by now, or the consumer was reset: nothing was written.
    #[error("the claim is no longer held: it was taken over or the consumer was reset")]
    Fenced,
    /// The write replaces a revision that is not the stored one: nothing was written.
    #[error("the stored checkpoint is at revision {stored}, this write replaces {replaced}")]
    Superseded {
        /// What is stored.
        stored: Revision,
        /// What the write said it replaces.
        replaced: Revision,
    },
    /// The frontier would fall: nothing was written.
    #[error("a checkpoint at {stored} cannot go back to {written}; reset the consumer instead")]
    Backwards {
        /// What is stored.
        stored: Position,
        /// What was to be written.
        written: Position,
    },
    /// Another holds the claim that the operation needs.
    #[error("the claim is held by {owner}; ask it through a stored request, or stop it")]
    Held {
        /// Who.
        owner: Owner,
    },
    /// The store failed; whether the write was made is unknown until the revision is read back.
    #[error(transparent)]
    Store(#[from] StoreError),
}
