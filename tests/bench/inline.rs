//! One event at a time, through a handler that does nothing.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use evento_core::{
    BoxFuture, NewEvent, Position, event_handler, projector,
    store::{Append, EventLog, Expected, Filter, OpenStore, ReadLog},
};
use evento_runtime::{Bundle, Settings, store::MemoryStore};
use tokio::sync::Notify;

use crate::support::{Case, Measured, Pair, runtime};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case { name: "inline_memory", events: 1_000_000, rounds: 7, make: memory }]
}

#[projector]
pub(crate) struct Counter {
    pub(crate) left: AtomicUsize,
    pub(crate) done: Notify,
}

#[projector]
impl Counter {
    #[event_handler]
    async fn on_measured(&self, event: &Measured) -> anyhow::Result<()> {
        self.count(event);
        Ok(())
    }
}

impl Counter {
    pub(crate) fn of(events: usize) -> Arc<Self> {
        Arc::new(Self { left: AtomicUsize::new(events), done: Notify::new() })
    }

    pub(crate) fn count(&self, event: &Measured) {
        black_box(event.number);
        if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.done.notify_one();
        }
    }

    /// What the raw loop calls: one boxed future per event, as a dispatcher needs it.
    pub(crate) fn boxed<'a>(&'a self, event: &'a Measured) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            self.count(event);
            Ok(())
        })
    }
}

/// Appends `events` events of `keys` aggregates.
pub(crate) async fn fill(log: &dyn EventLog, events: usize, keys: usize) {
    fill_with(log, events, |number| Measured::stored(number, keys)).await;
}

/// Appends `events` events.
pub(crate) async fn fill_with(log: &dyn EventLog, events: usize, event: impl Fn(usize) -> NewEvent) {
    for first in (0..events).step_by(1000) {
        let batch = (first..events.min(first + 1000)).map(&event).collect();
        log.append(Append { expected: Expected::Any, events: batch }).await.unwrap();
    }
}

/// Starts a bundle named anew, so that it reads from the beginning, and waits until its handler has seen everything.
pub(crate) async fn consume(name: String, store: impl OpenStore, events: usize) -> Duration {
    let counter = Counter::of(events);
    let began = Instant::now();
    let running = Bundle::builder(name)
        .store(store)
        .settings(Settings::default())
        .only_provided()
        .provide(Arc::clone(&counter))
        .start()
        .await
        .unwrap();
    counter.done.notified().await;
    let took = began.elapsed();
    running.shutdown().await.unwrap();
    took
}

/// Raw: decode, and one boxed call, over pages that are in memory already.
fn memory(events: usize) -> Pair {
    let runtime = runtime();
    let store = MemoryStore::new();
    runtime.block_on(fill(&store, events, 10_000));
    let filter = Filter { names: vec!["bench.measured".into()], context: "default".into(), ..Filter::default() };
    let read = ReadLog {
        after: Position::BEGINNING,
        filter: Arc::new(filter),
        max_events: events,
        max_bytes: usize::MAX,
        max_scanned: u64::MAX,
        max_payload: usize::MAX,
    };
    let stored = runtime.block_on(store.read(read)).unwrap().events;
    assert_eq!(stored.len(), events);
    let (raw_runtime, mut round) = (Arc::clone(&runtime), 0);
    Pair {
        raw: Box::new(move || {
            let (counter, stored) = (Counter::of(events), stored.clone());
            crate::support::timed(&raw_runtime, async move {
                for event in &stored {
                    let event: Measured = serde_json::from_slice(event.payload()).unwrap();
                    counter.boxed(&event).await.unwrap();
                }
            })
        }),
        ours: Box::new(move || {
            round += 1;
            let store = store.clone();
            let name = format!("round-{round}");
            runtime.block_on(async {
                tokio::task::spawn_blocking(|| ()).await.unwrap();
                consume(name, store, events).await
            })
        }),
    }
}
