use std::{sync::Arc, time::Duration};

use evento_core::{
    ConsumerKey, Position, RecordedEvent,
    store::{
        Action, DeadEvent, DeadFilter, DeadPage, ReadAt, RequestId, RequestState, Store, StoreError, StoredRequest,
        Target,
    },
};
use tokio::sync::Notify;

/// The dead event queue of one consumer.
#[derive(Clone, Debug)]
pub struct DeadEvents {
    store: Arc<dyn Store>,
    consumer: ConsumerKey,
    kick: Arc<Notify>,
}

impl DeadEvents {
    pub(super) fn new(store: Arc<dyn Store>, consumer: ConsumerKey, kick: Arc<Notify>) -> Self {
        Self { store, consumer, kick }
    }

    /// The consumer.
    #[must_use]
    pub fn consumer(&self) -> &ConsumerKey {
        &self.consumer
    }

    /// One page of letters, by position.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn list(&self, filter: DeadFilter) -> Result<DeadPage, StoreError> {
        self.store.dead_events(self.consumer.clone(), filter).await
    }

    /// One letter with its event, as far as the log still has it.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn show(
        &self,
        position: Position,
    ) -> Result<Option<(DeadEvent, Option<Arc<RecordedEvent>>)>, StoreError> {
        let filter = DeadFilter { after: position.just_before(), limit: 1, ..DeadFilter::default() };
        let page = self.store.dead_events(self.consumer.clone(), filter).await?;
        let Some(letter) = page.letters.into_iter().find(|letter| letter.position == position) else { return Ok(None) };
        let read = ReadAt { positions: vec![position], max_bytes: usize::MAX, max_payload: usize::MAX >> 1 };
        let found = self.store.read_at(read).await?;
        Ok(Some((letter, found.events.into_iter().next())))
    }

    /// How many letters there are, counted from storage.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn depth(&self) -> Result<u64, StoreError> {
        self.store.dead_depth(self.consumer.clone()).await
    }

    /// Has dead events handled again, with a fresh budget, in the order of their aggregates; a letter goes only after
    /// its event was handled, then what is parked behind it follows. At least once.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn retry(&self, target: Target) -> Result<Request, StoreError> {
        self.make(Action::Retry, target).await
    }

    /// Drops dead events, and releases what is parked behind them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn discard(&self, target: Target) -> Result<Request, StoreError> {
        self.make(Action::Discard, target).await
    }

    async fn make(&self, action: Action, target: Target) -> Result<Request, StoreError> {
        let made = self.store.make_request(self.consumer.clone(), action, target).await?;
        self.kick.notify_one();
        Ok(Request { store: Arc::clone(&self.store), kick: Arc::clone(&self.kick), made })
    }
}

/// A stored request: it is carried out by whoever holds the consumer's claim, whether or not this is kept.
#[derive(Clone, Debug)]
pub struct Request {
    store: Arc<dyn Store>,
    kick: Arc<Notify>,
    made: StoredRequest,
}

impl Request {
    /// Its number, under which it can be found later.
    #[must_use]
    pub fn id(&self) -> RequestId {
        self.made.id
    }

    /// How many letters it had when it was made.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.made.total
    }

    /// How far it has got.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn progress(&self) -> Result<StoredRequest, StoreError> {
        self.store.request(self.made.id).await
    }

    /// Waits until it is finished or stopped.
    ///
    /// # Errors
    /// [`StoreError`].
    ///
    /// # Cancel safety
    /// It only waits.
    pub async fn wait(&self) -> Result<StoredRequest, StoreError> {
        let mut pause = Duration::from_millis(5);
        loop {
            let request = self.progress().await?;
            if matches!(request.state, RequestState::Finished | RequestState::Stopped) {
                return Ok(request);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    /// Stops it after the event in hand; what it has done stays done.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stop(&self) -> Result<(), StoreError> {
        self.store.stop_request(self.made.id).await?;
        self.kick.notify_one();
        Ok(())
    }
}
