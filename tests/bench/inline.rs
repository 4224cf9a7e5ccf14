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
use rusqlite::{Connection, params};
use tokio::sync::Notify;

use crate::{
    sqlite,
    support::{Case, Measured, Pair, runtime, timed},
};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case { name: "inline_memory", events: 1_000_000, rounds: 7, make: memory },
        Case { name: "inline_sqlite", events: 400_000, rounds: 9, make: sqlite },
    ]
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
pub(crate) async fn fill(log: &(impl EventLog + ?Sized), events: usize, keys: usize) {
    fill_with(log, events, |number| Measured::stored(number, keys)).await;
}

/// Appends `events` events.
pub(crate) async fn fill_with(log: &(impl EventLog + ?Sized), events: usize, event: impl Fn(usize) -> NewEvent) {
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
            timed(&raw_runtime, async move {
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

/// Raw: pages of 1,000, each row decoded and one boxed call made for it, a checkpoint for each page. The columns are
/// those that a loop by hand cannot do without.
fn sqlite(events: usize) -> Pair {
    let runtime = runtime();
    let (directory, store) = sqlite::stored(&runtime, async |store| fill(store, events, 10_000).await);
    let (path, raw_runtime, mut round) = (store.path().to_owned(), Arc::clone(&runtime), 0);
    Pair {
        raw: Box::new(move || {
            let (counter, conn) = (Counter::of(events), sqlite::raw(&path));
            timed(&raw_runtime, async move {
                let mut after = 0;
                while let Some(last) = page(&conn, after, &counter).await {
                    after = last;
                }
                assert_eq!(counter.left.load(Ordering::Relaxed), 0);
            })
        }),
        ours: Box::new(move || {
            round += 1;
            let (name, store, _kept) = (format!("round-{round}"), store.clone(), &directory);
            runtime.block_on(consume(name, store, events))
        }),
    }
}

/// Handles one page, and answers where it ended.
async fn page(conn: &Connection, after: i64, counter: &Counter) -> Option<i64> {
    let mut last = None;
    {
        let mut select = conn
            .prepare_cached(
                "SELECT position, name, payload FROM evento_event WHERE position > ?1 ORDER BY position LIMIT 1000",
            )
            .unwrap();
        let mut rows = select.query([after]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            if row.get_ref(1).unwrap().as_str().unwrap() == "bench.measured" {
                let event: Measured = serde_json::from_slice(row.get_ref(2).unwrap().as_blob().unwrap()).unwrap();
                counter.boxed(&event).await.unwrap();
            }
            last = Some(row.get::<_, i64>(0).unwrap());
        }
    }
    if let Some(last) = last {
        conn.prepare_cached(
            "INSERT INTO evento_checkpoint (segment, consumer, number, mask, revision, generation, frontier, names) \
             VALUES (1000000, 1000000, 0, 0, 0, 0, ?1, '') ON CONFLICT (segment) DO UPDATE SET frontier = ?1",
        )
        .unwrap()
        .execute(params![Position::new(last.cast_unsigned()).to_bytes()])
        .unwrap();
    }
    last
}
