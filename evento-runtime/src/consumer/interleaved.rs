//! Whole consumers and their executors, whatever the order in which their threads run: the tasks, the workers, the turns
//! they take with the engine, and the end. No timer goes off, so what only a timer would notice is a failure.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use evento_core::{
    CheckpointMode, ComponentDescriptor, ConsumerKey, Context, Event, EventId, NewEvent, Position, event_handler,
    projector,
    store::{
        Append, CheckpointStore, Claim, ClaimOutcome, ClaimRequest, ClaimStore, EventLog, Expected, Owner,
        Registration, Store,
    },
};
use serde::{Deserialize, Serialize};
use shuttle::future;
use tokio::{runtime::Runtime, sync::watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Consumer, ConsumerState, ConsumerStatus, Control, Executor, Keeper, OpenRequests, Shared};
use crate::{
    ConsumerExecutor, Settings,
    bundle::ConsumerSpec,
    clock::Clock,
    fault::Classifiers,
    store::MemoryStore,
    sync::{Mutex, order, spawn},
};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "interleaved.happened", aggregate = "interleaved")]
struct Happened {
    #[event(aggregate_id)]
    key: String,
    number: u64,
}

/// Numbers by key, in the order in which their handlers returned, those that began, and how many of them run.
#[derive(Default)]
struct Seen {
    began: Mutex<Vec<u64>>,
    handled: Mutex<BTreeMap<String, Vec<u64>>>,
    running: Mutex<usize>,
}

const CAPACITY: usize = 2;

impl Seen {
    /// Every third waits once, every fifth fails.
    async fn handle(&self, event: &Happened) -> anyhow::Result<()> {
        self.began.lock().unwrap().push(event.number);
        {
            let mut running = self.running.lock().unwrap();
            *running += 1;
            assert!(*running <= CAPACITY, "{running} run at once");
        }
        if event.number.is_multiple_of(3) {
            future::yield_now().await;
        }
        *self.running.lock().unwrap() -= 1;
        self.handled.lock().unwrap().entry(event.key.clone()).or_default().push(event.number);
        anyhow::ensure!(!event.number.is_multiple_of(5), "told to fail");
        Ok(())
    }
}

#[projector(on_dead = "continue")]
struct Unordered(Arc<Seen>);

#[projector]
impl Unordered {
    #[event_handler(executor = "shared")]
    async fn on_happened(&self, event: &Happened, _ctx: &Context) -> anyhow::Result<()> {
        self.0.handle(event).await
    }
}

#[projector(on_dead = "continue")]
struct Other(Arc<Seen>);

#[projector]
impl Other {
    #[event_handler(executor = "shared")]
    async fn on_happened(&self, event: &Happened, _ctx: &Context) -> anyhow::Result<()> {
        self.0.handle(event).await
    }
}

/// Never driven: attempts and timers only have to find one. No timer of it ever goes off.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());

/// Consumers on a store in memory, and what a bundle gives them.
struct World {
    store: MemoryStore,
    shared: Arc<Shared>,
    wake: watch::Sender<u64>,
    _requests: watch::Sender<OpenRequests>,
    tasks: TaskTracker,
    seen: Arc<Seen>,
    specs: Vec<ConsumerSpec>,
}

impl World {
    fn new(executor: ConsumerExecutor, mode: CheckpointMode, consumers: usize) -> Self {
        let store = MemoryStore::new();
        let opened: Arc<dyn Store> = Arc::new(store.clone());
        let (clock, settings) = (Clock::system(), Settings::default());
        let (wake, requests) = (watch::Sender::new(0), watch::Sender::new(OpenRequests::default()));
        let (tasks, seen) = (TaskTracker::new(), Arc::new(Seen::default()));
        let spec = |component: ComponentDescriptor, instance| ConsumerSpec {
            key: Arc::new(ConsumerKey {
                bundle: "interleaved".to_owned(),
                kind: component.kind,
                name: component.name.to_owned(),
                version: component.version,
                context: "default".to_owned(),
            }),
            names: component.handlers.iter().map(|handler| handler.event.name.to_owned()).collect(),
            component,
            instance,
            mode,
        };
        let specs = vec![
            spec(ComponentDescriptor::of::<Unordered>(), Arc::new(Unordered(Arc::clone(&seen)))),
            spec(ComponentDescriptor::of::<Other>(), Arc::new(Other(Arc::clone(&seen)))),
        ];
        let shared = Arc::new(Shared {
            executors: vec![Executor::new(&executor, 0, tasks.clone())],
            keeper: Keeper::new(Arc::clone(&opened), settings.claim.clone(), clock),
            store: opened,
            page_bytes: 1 << 20,
            clock,
            classifiers: Classifiers::default(),
            interceptors: Arc::new([]),
            owner: Owner { name: "interleaved".to_owned(), process: None },
            wake: wake.subscribe(),
            requests: requests.subscribe(),
            stop: CancellationToken::new(),
            cut: CancellationToken::new(),
            settings,
        });
        Self {
            store,
            shared,
            wake,
            _requests: requests,
            tasks,
            seen,
            specs: specs.into_iter().take(consumers).collect(),
        }
    }

    async fn start(&self) -> Vec<Control> {
        let registrations = self.specs.iter().map(|spec| Registration {
            consumer: (*spec.key).clone(),
            start: spec.component.start,
            names: spec.names.clone(),
        });
        self.store.register(registrations.collect()).await.unwrap();
        let start = |spec: &ConsumerSpec| {
            let (consumer, control) = Consumer::new(Arc::clone(&self.shared), spec.clone());
            spawn(&self.tasks, consumer.run());
            control
        };
        self.specs.iter().map(start).collect()
    }

    /// Takes the claim away, as it goes where its time was up.
    async fn take_claim_away(&self) {
        let held = self.store.claims("interleaved".to_owned()).await.unwrap().remove(0);
        let Some((owner, _)) = held.owner else { return };
        let claim = Claim { consumer: held.consumer.clone(), segment: held.segment, owner, epoch: held.epoch };
        self.store.release(claim, false).await.unwrap();
        let taken = ClaimRequest {
            consumer: held.consumer,
            segment: held.segment,
            owner: Owner { name: "another".to_owned(), process: None },
            time_to_live: Duration::from_secs(60),
            names: self.specs[0].names.clone(),
        };
        assert!(matches!(self.store.claim(taken).await.unwrap(), ClaimOutcome::Taken { .. }));
    }

    async fn append(&self, numbers: impl Iterator<Item = u64>) -> Position {
        let event = |number: u64| {
            let id = EventId::new(format!("e-{number}")).unwrap();
            NewEvent::of(&Happened { key: format!("{}", number % 2), number }).unwrap().with_id(id)
        };
        let append = Append { expected: Expected::Any, events: numbers.map(event).collect() };
        let appended = self.store.append(append).await.unwrap();
        self.wake.send_modify(|count| *count += 1);
        appended.position
    }

    /// As a bundle does it: consumers first, then the workers.
    async fn stop(&self, controls: &[Control]) {
        self.shared.stop.cancel();
        for control in controls {
            let stopped = |status: &ConsumerStatus| status.state == ConsumerState::Stopped;
            control.status.subscribe().wait_for(stopped).await.unwrap();
        }
        for executor in &self.shared.executors {
            executor.close();
        }
        self.tasks.close();
        self.tasks.wait().await;
        for executor in self.shared.executors.iter().map(|executor| executor.status()) {
            assert_eq!(executor.in_flight, 0, "permits have leaked: {executor:?}");
        }
    }
}

const EVENTS: u64 = 8;

/// Everything is handled once, in order where that is promised, and known to be settled, with no timer's help.
fn everything_is_handled(executor: fn() -> ConsumerExecutor, mode: CheckpointMode, consumers: usize) {
    let ordered = executor().kind() == crate::ExecutorKind::Partitioned;
    order::each(1_000, move || {
        let _entered = RUNTIME.enter();
        future::block_on(async {
            let world = World::new(executor(), mode, consumers);
            world.append(1..EVENTS / 2).await;
            let controls = world.start().await;
            let last = world.append(EVENTS / 2..=EVENTS).await;
            for control in &controls {
                control.status.subscribe().wait_for(|status| status.settled_to >= last).await.unwrap();
            }
            world.stop(&controls).await;

            let handled = world.seen.handled.lock().unwrap().clone();
            for (key, numbers) in handled {
                assert!(!ordered || consumers > 1 || numbers.is_sorted(), "key {key}: {numbers:?}");
                let mut sorted = numbers.clone();
                sorted.sort_unstable();
                let parity = u64::from(key == "1");
                let expected = (1..=EVENTS).filter(|number| number % 2 == parity);
                let expected: Vec<_> = expected.flat_map(|number| std::iter::repeat_n(number, consumers)).collect();
                assert_eq!(sorted, expected, "key {key}");
            }
            for stored in world.store.consumers("interleaved".to_owned()).await.unwrap() {
                assert_eq!((stored.frontier, stored.open), (last, 0), "{stored:?}");
            }
        });
    });
}

fn tasks() -> ConsumerExecutor {
    ConsumerExecutor::tasks("shared", CAPACITY)
}

fn lanes() -> ConsumerExecutor {
    ConsumerExecutor::partitioned("shared", CAPACITY)
}

#[test]
fn everything_is_handled_by_tasks_under_watermark() {
    everything_is_handled(tasks, CheckpointMode::Watermark, 1);
}

#[test]
fn everything_is_handled_by_tasks_on_start() {
    everything_is_handled(tasks, CheckpointMode::OnStart, 1);
}

#[test]
fn everything_is_handled_in_lanes_under_watermark() {
    everything_is_handled(lanes, CheckpointMode::Watermark, 1);
}

#[test]
fn everything_is_handled_by_two_consumers_that_share_their_permits() {
    everything_is_handled(tasks, CheckpointMode::Watermark, 2);
}

/// A stop in the middle: what runs is finished, and written; what has not begun is still open. A budget that is spent cuts
/// off what runs: no worker is left behind, and no permit.
fn a_stop_in_the_middle(cut: bool) {
    order::each(1_000, move || {
        let _entered = RUNTIME.enter();
        future::block_on(async {
            let world = World::new(tasks(), CheckpointMode::Watermark, 1);
            let last = world.append(1..=EVENTS).await;
            let controls = world.start().await;
            let mut status = controls[0].status.subscribe();
            status.wait_for(|status| status.frontier > Position::BEGINNING).await.unwrap();
            if cut {
                world.shared.cut.cancel();
            }
            world.stop(&controls).await;
            let handled: usize = world.seen.handled.lock().unwrap().values().map(Vec::len).sum();
            let stored = world.store.consumers("interleaved".to_owned()).await.unwrap().remove(0);
            let settled = usize::try_from(stored.frontier.minor()).unwrap() - usize::try_from(stored.open).unwrap();
            let left = &controls[0].status.snapshot().left;
            if cut {
                assert!(settled <= handled, "{settled} count as settled, {handled} were handled: {stored:?}");
            } else {
                assert_eq!(settled, handled, "{stored:?}");
            }
            assert!(stored.frontier <= last);
            let returned: Vec<_> = world.seen.handled.lock().unwrap().values().flatten().copied().collect();
            for number in world.seen.began.lock().unwrap().iter().filter(|number| !returned.contains(number)) {
                assert!(left.contains(&Position::new(*number)), "{number} was cut off, and is not told of: {left:?}");
            }
        });
    });
}

#[test]
fn a_stop_in_the_middle_loses_nothing_and_writes_what_was_handled() {
    a_stop_in_the_middle(false);
}

#[test]
fn b67_a_stop_that_cuts_off_what_runs_leaves_no_worker_and_no_permit_behind() {
    a_stop_in_the_middle(true);
}

/// A claim that is lost in the middle, by a write that is refused: what runs is cut off, and no permit stays with it.
#[test]
fn b67_a_lost_claim_leaves_no_worker_and_no_permit_behind() {
    for mode in [CheckpointMode::OnStart, CheckpointMode::Watermark] {
        order::each(500, move || {
            let _entered = RUNTIME.enter();
            future::block_on(async {
                let world = World::new(tasks(), mode, 1);
                let last = world.append(1..=EVENTS).await;
                let controls = world.start().await;
                let mut status = controls[0].status.subscribe();
                status.wait_for(|status| status.frontier > Position::BEGINNING).await.unwrap();
                world.take_claim_away().await;
                let lost =
                    |status: &ConsumerStatus| status.state == ConsumerState::Waiting || status.settled_to >= last;
                status.wait_for(lost).await.unwrap();
                world.stop(&controls).await;
            });
        });
    }
}
