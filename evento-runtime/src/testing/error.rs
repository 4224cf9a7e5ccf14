use evento_core::{
    ConsumerKey, Position,
    store::{AppendError, StoreError},
};

use crate::{ShutdownError, StartError, WaitError};

/// What a test's bundle could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestError {
    /// The events could not be appended.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The bundle could not be started again.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The bundle did not stop in order.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
    /// Some consumer has not caught up, or is not there at all.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// Everything is settled, and not all of it stored.
    #[error("consumer {consumer} has settled everything up to {head}, its stored checkpoint is at {stored}")]
    Unwritten {
        /// Which.
        consumer: ConsumerKey,
        /// What is stored.
        stored: Position,
        /// What should be.
        head: Position,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
