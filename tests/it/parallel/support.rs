//! Components whose handlers do what a test says.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use evento_core::{BoxFuture, CheckpointMode, Context, Event, Position, event_handler, projector};
use evento_runtime::{ConsumerExecutor, testing::Harness};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "parallel.numbered", aggregate = "parallel")]
pub(super) struct Numbered {
    #[event(aggregate_id)]
    pub(super) key: String,
    pub(super) number: usize,
}

/// Handled inline where it is handled at all.
#[derive(Event, Serialize, Deserialize)]
#[event(name = "parallel.marked", aggregate = "parallel")]
pub(super) struct Marked {
    #[event(aggregate_id)]
    pub(super) key: String,
    pub(super) number: usize,
}

/// One attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Call {
    pub(super) key: String,
    pub(super) number: usize,
    pub(super) attempt: u32,
    pub(super) position: Position,
}

/// What a handler does.
#[derive(Clone)]
pub(super) struct Script(Arc<dyn Fn(Call) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>);

impl Script {
    pub(super) fn new<F, R>(handle: F) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        Self(Arc::new(move |call| Box::pin(handle(call))))
    }

    async fn run(&self, key: &str, number: usize, ctx: &Context) -> anyhow::Result<()> {
        (self.0)(Call { key: key.to_owned(), number, attempt: ctx.attempt(), position: ctx.position() }).await
    }
}

macro_rules! scripted {
    ($($component:ident [$($of_component:tt)*] [$($of_handler:tt)*];)*) => {
        $(#[projector($($of_component)*)]
        pub(super) struct $component(pub(super) Script);

        #[projector]
        impl $component {
            #[event_handler($($of_handler)*)]
            async fn on_numbered(&self, event: &Numbered, ctx: &Context) -> anyhow::Result<()> {
                self.0.run(&event.key, event.number, ctx).await
            }
        })*
    };
}

scripted! {
    Lanes [] [executor = "lanes", retry = 3, retry_delay = "10ms"];
    Tasks [] [executor = "tasks", retry = 3, retry_delay = "10ms"];
    Pool [] [executor = "pool", retry = 3, retry_delay = "10ms"];
    OtherTasks [] [executor = "tasks", retry = 3, retry_delay = "10ms"];
    LanesOnce [] [executor = "lanes"];
    LanesSlowly [] [executor = "lanes", retry = 1000, retry_delay = "30s"];
    TasksSlowly [] [executor = "tasks", retry = 1000, retry_delay = "30s"];
    TasksOnce [] [executor = "tasks"];
    TasksTimed [] [executor = "tasks", retry = 1, retry_delay = "10ms", timeout = "2s"];
    LanesTimed [] [executor = "lanes", retry = 1, retry_delay = "10ms", timeout = "2s"];
    TasksRedelivering [transient = "redeliver"] [executor = "tasks", retry = 1, retry_delay = "10ms"];
}

/// Numbered events in parallel, marked ones inline.
#[projector]
pub(super) struct Mixed(pub(super) Script);

#[projector]
impl Mixed {
    #[event_handler(executor = "lanes", retry = 3, retry_delay = "10ms")]
    async fn on_numbered(&self, event: &Numbered, ctx: &Context) -> anyhow::Result<()> {
        self.0.run(&event.key, event.number, ctx).await
    }

    #[event_handler]
    async fn on_marked(&self, event: &Marked, ctx: &Context) -> anyhow::Result<()> {
        self.0.run(&event.key, event.number, ctx).await
    }
}

pub(super) const MODES: [CheckpointMode; 2] = [CheckpointMode::OnStart, CheckpointMode::Watermark];

/// A harness with the executors that the components name, of this capacity.
pub(super) fn harness(mode: CheckpointMode, capacity: usize) -> Harness {
    let settings = evento_runtime::Settings::default();
    harness_of(mode, capacity, settings)
}

pub(super) fn harness_of(mode: CheckpointMode, capacity: usize, settings: evento_runtime::Settings) -> Harness {
    Harness::new().patience(Duration::from_secs(3_600)).with(move |bundle| {
        bundle
            .executor(ConsumerExecutor::tasks("tasks", capacity))
            .executor(ConsumerExecutor::partitioned("lanes", capacity))
            .executor(ConsumerExecutor::pooled("pool", capacity))
            .checkpoint_mode(mode)
            .settings(settings.clone())
    })
}

pub(super) fn numbered(count: usize, key: impl Fn(usize) -> usize) -> impl Iterator<Item = Numbered> {
    (0..count).map(move |number| Numbered { key: format!("key-{}", key(number)), number })
}

/// Notes calls, in their order.
#[derive(Clone, Default)]
pub(super) struct Noted(Arc<Mutex<Vec<Call>>>);

impl Noted {
    pub(super) fn note(&self, call: &Call) {
        self.0.lock().unwrap().push(call.clone());
    }

    pub(super) fn all(&self) -> Vec<Call> {
        self.0.lock().unwrap().clone()
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    pub(super) fn numbers(&self) -> Vec<usize> {
        self.all().iter().map(|call| call.number).collect()
    }

    /// Numbers by key, in the order in which they were handled.
    pub(super) fn by_key(&self) -> HashMap<String, Vec<usize>> {
        let mut by_key: HashMap<_, Vec<_>> = HashMap::new();
        for call in self.all() {
            by_key.entry(call.key).or_default().push(call.number);
        }
        by_key
    }
}

/// Counts what runs, and the most of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Gauge(Arc<Mutex<(usize, usize)>>);

pub(super) struct Counted(Gauge);

impl Gauge {
    pub(super) fn enter(&self) -> Counted {
        let mut state = self.0.lock().unwrap();
        state.0 += 1;
        state.1 = state.1.max(state.0);
        Counted(self.clone())
    }

    pub(super) fn most(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.lock().unwrap().0 -= 1;
    }
}

/// Waits, by tokio's clock, until something is so.
pub(super) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = tokio::time::Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(3_600), "never: {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(super) fn pseudo_random(number: usize) -> usize {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}
