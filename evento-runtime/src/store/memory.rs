//! A store that lives as long as its process: for tests, and as strict as the others.

mod checkpoint;
mod claim;
mod dead_event;
mod log;
mod request;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use evento_core::{
    BoxFuture, ConsumerKey, Segment, Timestamp,
    store::{OpenStore, Store, StoreError, StoredRequest, Wake},
};
use tokio::time::Instant;

use self::checkpoint::Consumer;
use self::log::Log;
use crate::{clock::Clock, store::decision};

/// Keeps everything in memory.
///
/// A clone is the same store. Opening it answers a handle on the same state, so that a test can stop a bundle and
/// start it again; closing a handle closes that handle. Time is tokio's, which a test can pause.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    closed: Arc<AtomicBool>,
}

struct Shared {
    began: Instant,
    began_at: Timestamp,
    state: Mutex<State>,
    wakes: Mutex<Vec<(Arc<AtomicBool>, Wake)>>,
}

struct State {
    log: Log,
    consumers: BTreeMap<ConsumerKey, Consumer>,
    requests: Vec<StoredRequest>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::with_holes(1)
    }

    /// An empty store whose positions are `step` apart: in other sources, too, the next position is not the next
    /// number.
    #[must_use]
    pub fn with_holes(step: u32) -> Self {
        let state = State { log: Log::new(step), consumers: BTreeMap::new(), requests: Vec::new() };
        Self {
            shared: Arc::new(Shared {
                began: Instant::now(),
                began_at: Clock::wall(),
                state: Mutex::new(state),
                wakes: Mutex::default(),
            }),
            closed: Arc::default(),
        }
    }

    /// Runs one operation on its own, at one moment.
    fn run<'a, T, E>(
        &'a self,
        operation: impl FnOnce(&mut State, Timestamp) -> Result<T, E> + Send + 'a,
    ) -> BoxFuture<'a, Result<T, E>>
    where
        T: Send + 'a,
        E: From<StoreError> + Send + 'a,
    {
        Box::pin(async move {
            if self.closed.load(Ordering::Acquire) {
                return Err(StoreError::unavailable("the store is closed").into());
            }
            let now = self.shared.now();
            operation(&mut self.shared.state(), now)
        })
    }

    fn wake(&self) {
        let wakes: Vec<_> = {
            let mut wakes = self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner);
            wakes.retain(|(closed, _)| !closed.load(Ordering::Acquire));
            wakes.iter().map(|(_, wake)| Arc::clone(wake)).collect()
        };
        for wake in wakes {
            wake();
        }
    }
}

impl Shared {
    fn now(&self) -> Timestamp {
        let elapsed = Instant::now().saturating_duration_since(self.began);
        Timestamp(self.began_at.0.saturating_add(i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn known(&mut self, consumer: &ConsumerKey) -> Result<&mut Consumer, StoreError> {
        self.consumers.get_mut(consumer).ok_or_else(|| StoreError::Refused(decision::unknown_consumer(consumer)))
    }

    fn known_segment(
        &mut self,
        consumer: &ConsumerKey,
        segment: Segment,
    ) -> Result<&mut checkpoint::StoredSegment, StoreError> {
        let segments = self.consumers.get_mut(consumer).map(|consumer| &mut consumer.segments);
        segments
            .and_then(|segments| segments.get_mut(&segment))
            .ok_or_else(|| StoreError::Refused(decision::unknown_segment(consumer, segment)))
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("closed", &self.closed).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move { self.closed.store(true, Ordering::Release) })
    }
}

impl OpenStore for MemoryStore {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        let handle = Self { shared: Arc::clone(&self.shared), closed: Arc::default() };
        Box::pin(async move { Ok(Arc::new(handle) as Arc<dyn Store>) })
    }
}
