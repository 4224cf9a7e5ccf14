use std::sync::Arc;

use evento_core::{
    EventId, IntoNewEvent, Position,
    store::{Append, AppendError, Appended, Expected, Head, Store, StoreError},
};

/// The bundle's event log, to append to.
#[derive(Clone, Debug)]
pub struct Log {
    store: Arc<dyn Store>,
}

impl Log {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Appends all of `events`, or nothing, and wakes the consumers that take them.
    ///
    /// An event without an id of its own is given a fresh one. With ids of the caller's a repeated append is safe: it
    /// appends nothing, and answers the position of the first time.
    ///
    /// # Errors
    /// [`AppendError`] says why nothing was appended.
    ///
    /// # Cancel safety
    /// The append may happen or not where the future is dropped; with ids of the caller's, append again.
    pub async fn append<E: IntoNewEvent>(
        &self,
        expected: Expected,
        events: impl IntoIterator<Item = E>,
    ) -> Result<Appended, AppendError> {
        let mut new = Vec::new();
        for event in events {
            let mut event = event.into_new_event()?;
            if event.id.is_none() {
                let index = new.len();
                let id = EventId::new(uuid::Uuid::now_v7().to_string());
                event.id = Some(id.map_err(|source| AppendError::Invalid { index, source })?);
            }
            new.push(event);
        }
        if new.is_empty() {
            return Ok(Appended { position: Position::BEGINNING, appended: 0 });
        }
        self.store.append(Append { expected, events: new }).await
    }

    /// The end of the log.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn head(&self) -> Result<Head, StoreError> {
        self.store.head().await
    }
}
