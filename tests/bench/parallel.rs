//! Parallel dispatch: handlers under executors of 64, beside what one would write by hand.

mod raw;

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use evento_core::{
    Event, NewEvent, Position, RecordedEvent, event_handler, projector,
    store::{Filter, OpenStore, ReadLog, Store},
};
use evento_runtime::{
    Bundle, ConsumerExecutor,
    store::{MemoryStore, SqliteStore},
};
use serde::{Deserialize, Serialize};
use tokio::{runtime::Runtime, sync::Notify};

use self::raw::{lanes, spawned, unordered};
use crate::{
    inline::fill_with,
    support::{Case, Measured, Pair, runtime, timed},
};

const PERMITS: usize = 64;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name, events, rounds, make| Case { name, events, rounds, make };
    vec![
        case("tasks64_noop", 1_000_000, 5, tasks_noop),
        case("partitioned64_noop", 1_000_000, 5, |events| partitioned_noop(events, key_of_10_000)),
        case("partitioned64_noop_hot_key", 1_000_000, 5, |events| partitioned_noop(events, quarter_on_one_key)),
        case("tasks64_sleep1ms", 60_000, 5, tasks_sleep),
        case("partitioned64_sleep5ms_10k_keys", 20_000, 5, partitioned_sleep),
        case("partitioned64_hot_key", 20_000, 5, hot_key),
        case("tasks64_mixed_unhandled", 20_000, 5, mixed_unhandled),
        case("on_start_sqlite_tasks64_sleep5ms", 20_000, 5, on_start),
        case("stuck_key", 1_000_000, 5, stuck_key),
    ]
}

// ---- keys and times

/// A number that looks random, the same in every run.
fn mixed(number: usize) -> usize {
    let mixed = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 33).unwrap()
}

fn key_of_10_000(number: usize) -> String {
    format!("key-{}", mixed(number) % 10_000)
}

fn quarter_on_one_key(number: usize) -> String {
    if number.is_multiple_of(4) { "hot".to_owned() } else { key_of_10_000(number) }
}

fn with_key(number: usize, key: String) -> NewEvent {
    let event = Measured { key, ..Measured::new(number, 1) };
    NewEvent::of(&event).unwrap().with_id(evento_core::EventId::new(format!("measured-{number}")).unwrap())
}

// ---- what the handlers do

/// What a handler of a case does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Work {
    Nothing,
    Sleep(Duration),
    /// As `Sleep`, and only events of other keys than the hot one are waited for.
    SleepCold(Duration),
    /// Nothing, but events of the stuck key never return.
    Stuck,
}

struct Handled {
    work: Work,
    left: AtomicUsize,
    done: Notify,
}

impl Handled {
    fn new(work: Work, events: usize) -> Arc<Self> {
        Arc::new(Self { work, left: AtomicUsize::new(events), done: Notify::new() })
    }

    async fn handle(&self, event: &Measured) {
        black_box(event.number);
        match self.work {
            Work::Nothing => {}
            Work::Sleep(time) | Work::SleepCold(time) => tokio::time::sleep(time).await,
            Work::Stuck if event.key == "stuck" => std::future::pending().await,
            Work::Stuck => {}
        }
        if matches!(self.work, Work::SleepCold(_)) && event.key == "hot" {
            return;
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }
}

#[projector(checkpoint = "watermark")]
struct OnTasks(Arc<Handled>);

#[projector]
impl OnTasks {
    #[event_handler(executor = "bench", retry = 3)]
    async fn on_measured(&self, event: &Measured) -> anyhow::Result<()> {
        self.0.handle(event).await;
        Ok(())
    }
}

#[projector(checkpoint = "on-start")]
struct OnStart(Arc<Handled>);

#[projector]
impl OnStart {
    #[event_handler(executor = "bench", retry = 3)]
    async fn on_measured(&self, event: &Measured) -> anyhow::Result<()> {
        self.0.handle(event).await;
        Ok(())
    }
}

/// An event that no handler takes.
#[derive(Event, Serialize, Deserialize)]
#[event(name = "bench.unhandled", aggregate = "bench")]
struct Unhandled {
    #[event(aggregate_id)]
    key: String,
}

// ---- both sides

/// Consumes the store under `executor` until every counted event is handled.
async fn ours(executor: ConsumerExecutor, store: impl OpenStore, handled: Arc<Handled>, name: String) -> Duration {
    let began = Instant::now();
    let builder = Bundle::builder(name).store(store).executor(executor).only_provided();
    let running = builder.provide(OnTasks(Arc::clone(&handled))).start().await.unwrap();
    handled.done.notified().await;
    let took = began.elapsed();
    if handled.work == Work::Stuck {
        drop(running);
    } else {
        running.shutdown().await.unwrap();
    }
    took
}

fn filled(runtime: &Runtime, events: usize, event: impl Fn(usize) -> NewEvent) -> MemoryStore {
    let store = MemoryStore::new();
    runtime.block_on(fill_with(&store, events, event));
    store
}

/// Everything in the store that the raw side handles, in memory.
fn stored(runtime: &Runtime, store: &dyn Store) -> Vec<Arc<RecordedEvent>> {
    let names = vec!["bench.measured".to_owned()];
    let read = ReadLog {
        after: Position::BEGINNING,
        filter: Arc::new(Filter { names, context: "default".into(), ..Filter::default() }),
        max_events: usize::MAX,
        max_bytes: usize::MAX,
        max_scanned: u64::MAX,
        max_payload: usize::MAX,
    };
    runtime.block_on(store.read(read)).unwrap().events
}

/// A pair of a raw loop over `raw_events` and our bundle over `store`, both doing `work`.
fn pair<F>(
    runtime: Arc<Runtime>,
    store: MemoryStore,
    raw_events: Vec<Arc<RecordedEvent>>,
    raw: fn(Vec<Arc<RecordedEvent>>, Arc<Handled>) -> F,
    executor: fn() -> ConsumerExecutor,
    work: Work,
) -> Pair
where
    F: Future<Output = ()> + Send + 'static,
{
    let events = raw_events.len();
    let (raw_runtime, mut round) = (Arc::clone(&runtime), 0);
    Pair {
        raw: Box::new(move || timed(&raw_runtime, raw(raw_events.clone(), Handled::new(work, events)))),
        ours: Box::new(move || {
            round += 1;
            let (store, handled) = (store.clone(), Handled::new(work, events));
            // On a worker, as the raw side's tasks are.
            let consuming = runtime.spawn(ours(executor(), store, handled, format!("round-{round}")));
            runtime.block_on(consuming).unwrap()
        }),
    }
}

fn tasks() -> ConsumerExecutor {
    ConsumerExecutor::tasks("bench", PERMITS)
}

fn partitioned() -> ConsumerExecutor {
    ConsumerExecutor::partitioned("bench", PERMITS)
}

// ---- cases

fn tasks_noop(events: usize) -> Pair {
    let runtime = runtime();
    let store = filled(&runtime, events, |number| with_key(number, key_of_10_000(number)));
    let raw = stored(&runtime, &store);
    pair(runtime, store, raw, spawned, tasks, Work::Nothing)
}

fn partitioned_noop(events: usize, key: fn(usize) -> String) -> Pair {
    let runtime = runtime();
    let store = filled(&runtime, events, |number| with_key(number, key(number)));
    let raw = stored(&runtime, &store);
    pair(runtime, store, raw, lanes, partitioned, Work::Nothing)
}

fn tasks_sleep(events: usize) -> Pair {
    let runtime = runtime();
    let store = filled(&runtime, events, |number| with_key(number, key_of_10_000(number)));
    let raw = stored(&runtime, &store);
    pair(runtime, store, raw, spawned, tasks, Work::Sleep(Duration::from_millis(1)))
}

fn partitioned_sleep(events: usize) -> Pair {
    let runtime = runtime();
    let store = filled(&runtime, events, |number| with_key(number, key_of_10_000(number)));
    let raw = stored(&runtime, &store);
    pair(runtime, store, raw, unordered, partitioned, Work::Sleep(Duration::from_millis(5)))
}

/// Raw: ours over the cold events alone. Ours: until the cold ones are done beside the hot key.
fn hot_key(events: usize) -> Pair {
    let runtime = runtime();
    let work = Work::SleepCold(Duration::from_millis(5));
    let all = filled(&runtime, events, |number| with_key(number, quarter_on_one_key(number)));
    let cold = filled(&runtime, events - events / 4, |number| {
        let number = number + number / 3 + 1;
        with_key(number, key_of_10_000(number))
    });
    beside(runtime, [cold, all], partitioned, work, events - events / 4)
}

/// Our bundle over two stores, until the same number of events is handled in each.
fn beside(
    runtime: Arc<Runtime>,
    [less, more]: [MemoryStore; 2],
    executor: fn() -> ConsumerExecutor,
    work: Work,
    counted: usize,
) -> Pair {
    let side = |store: MemoryStore| -> Box<dyn FnMut() -> Duration> {
        let (runtime, mut round) = (Arc::clone(&runtime), 0);
        Box::new(move || {
            round += 1;
            let name = format!("round-{round}");
            let consuming = runtime.spawn(until(executor(), store.clone(), Handled::new(work, counted), name));
            runtime.block_on(consuming).unwrap()
        })
    };
    Pair { raw: side(less), ours: side(more) }
}

/// As `ours`, without waiting for what is not counted.
async fn until(executor: ConsumerExecutor, store: MemoryStore, handled: Arc<Handled>, name: String) -> Duration {
    let began = Instant::now();
    let builder = Bundle::builder(name).store(store).executor(executor).only_provided();
    let running = builder.provide(OnTasks(Arc::clone(&handled))).start().await.unwrap();
    handled.done.notified().await;
    let took = began.elapsed();
    drop(running);
    took
}

/// Raw: the handled ones alone, from pages of the same stored payloads.
fn mixed_unhandled(events: usize) -> Pair {
    let runtime = runtime();
    let store = filled(&runtime, events * 2, |number| {
        if number.is_multiple_of(2) {
            with_key(number, key_of_10_000(number))
        } else {
            let event = NewEvent::of(&Unhandled { key: key_of_10_000(number) }).unwrap();
            event.with_id(evento_core::EventId::new(format!("unhandled-{number}")).unwrap())
        }
    });
    let raw = stored(&runtime, &store);
    pair(runtime, store, raw, spawned, tasks, Work::Sleep(Duration::from_millis(5)))
}

/// Raw: the same under watermark.
fn on_start(events: usize) -> Pair {
    let runtime = runtime();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.db");
    runtime.block_on(async {
        let store = SqliteStore::at(&path).open().await.unwrap();
        fill_with(&*store, events, |number| with_key(number, key_of_10_000(number))).await;
        store.close().await;
    });
    let folder = Arc::new(folder);
    let side = |on_start: bool| -> Box<dyn FnMut() -> Duration> {
        let (runtime, path, folder, mut round) = (Arc::clone(&runtime), path.clone(), Arc::clone(&folder), 0);
        Box::new(move || {
            round += 1;
            assert!(folder.path().exists());
            let handled = Handled::new(Work::Sleep(Duration::from_millis(5)), events);
            let builder = Bundle::builder(format!("round-{round}-{on_start}")).store(SqliteStore::at(&path));
            let builder = builder.executor(tasks()).only_provided();
            let builder = match on_start {
                true => builder.provide(OnStart(Arc::clone(&handled))),
                false => builder.provide(OnTasks(Arc::clone(&handled))),
            };
            let consuming = runtime.spawn(async move {
                let began = Instant::now();
                let running = builder.start().await.unwrap();
                handled.done.notified().await;
                let took = began.elapsed();
                running.shutdown().await.unwrap();
                took
            });
            runtime.block_on(consuming).unwrap()
        })
    };
    Pair { raw: side(false), ours: side(true) }
}

/// Raw: the same without the stuck key's events. Ours: every tenth event is the stuck key's.
fn stuck_key(events: usize) -> Pair {
    let runtime = runtime();
    let key = |number: usize| if number.is_multiple_of(10) { "stuck".to_owned() } else { key_of_10_000(number) };
    let all = filled(&runtime, events, |number| with_key(number, key(number)));
    let others = filled(&runtime, events - events / 10, |number| {
        let number = number + number / 9 + 1;
        with_key(number, key(number))
    });
    let mut pair = beside(runtime, [others, all], partitioned, Work::Stuck, events - events / 10);
    let mut most = 0;
    let mut inner = std::mem::replace(&mut pair.ours, Box::new(|| Duration::ZERO));
    pair.ours = Box::new(move || {
        let before = resident_kib();
        let took = inner();
        let grown = resident_kib().saturating_sub(before);
        if grown > most {
            most = grown;
            println!("stuck_key: resident memory grew by {} KiB in a round", grown);
        }
        took
    });
    pair
}

/// Resident memory of this process; 0 where the system does not tell.
fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(0)
}
