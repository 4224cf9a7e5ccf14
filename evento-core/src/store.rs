//! What a store must keep: the contracts that every back end and its fakes are held to.
//!
//! One conformance suite (`evento-tests`) runs against every implementation. Operations are futures; an
//! implementation may be dropped at any await without leaving half an operation behind.

mod checkpoint;
mod claim;
mod dead_event;
mod error;
mod log;
mod request;

use std::{fmt, sync::Arc};

pub use checkpoint::{
    CheckpointStore, Commit, ConsumerState, Generation, HeldKey, Registration, Replay, Reset, Revision, Started,
    StoredConsumer, StoredRetry, WhyHeld,
};
pub use claim::{Claim, ClaimOutcome, ClaimRequest, ClaimStatus, ClaimStore, Epoch, Owner, ProcessIdentity};
pub use dead_event::{DeadEvent, DeadEventStore, DeadFilter, DeadPage, DeadPosition, DeadReason};
pub use error::{AppendError, CommitError, StoreError};
pub use log::{
    Append, Appended, EventLog, Expected, Filter, Head, Page, ReadAggregate, ReadAt, ReadLog, Selection, Wake,
};
pub use request::{Action, RequestId, RequestProgress, RequestState, RequestStore, StoredRequest, Target};

use crate::BoxFuture;

/// Everything a bundle keeps in one place: log, claims, checkpoints, dead events and requests.
pub trait Store: EventLog + ClaimStore + CheckpointStore + DeadEventStore + RequestStore + fmt::Debug {
    /// Waits for what is under way and lets the store's resources go. Later calls answer
    /// [`StoreError::Unavailable`].
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// A description of a store: what the builder is given, opened only after every check has passed.
pub trait OpenStore: Send + Sync + fmt::Debug + 'static {
    /// Where the store is, in one phrase for messages: `sqlite at shop.db`.
    fn describe(&self) -> String;

    /// What is wrong with the description itself, told without touching anything.
    fn problems(&self) -> Vec<String>;

    /// Opens the store, creating what is missing.
    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>>;
}
