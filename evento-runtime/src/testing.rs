//! A kit for tests of your own handlers: a bundle on a store in memory, driven to the end of its log.
//!
//! A [`Harness`] collects components and starts a real bundle: the engine, the consumers and the store are those of
//! production, and the store refuses what the others refuse. Time is tokio's, so a test under
//! `#[tokio::test(start_paused = true)]` goes through delays of hours at once. A handler alone needs none of this: it is
//! a plain method, to be called with [`Context::fake`](evento_core::Context::fake).
//!
//! ```
//! use std::sync::{Arc, Mutex};
//!
//! use evento_core::{Event, event_handler, projector};
//! use evento_runtime::testing::Harness;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Event, Serialize, Deserialize)]
//! #[event(name = "order.placed", aggregate = "order")]
//! struct OrderPlaced {
//!     #[event(aggregate_id)]
//!     order_id: String,
//!     total_cents: i64,
//! }
//!
//! #[projector]
//! #[derive(Default)]
//! struct Revenue(Mutex<i64>);
//!
//! #[projector]
//! impl Revenue {
//!     #[event_handler(retry = 2)]
//!     async fn on_placed(&self, event: &OrderPlaced) -> anyhow::Result<()> {
//!         anyhow::ensure!(event.total_cents >= 0, "a negative total");
//!         *self.0.lock().unwrap() += event.total_cents;
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> anyhow::Result<()> {
//! # tokio::time::pause();
//! // In a test: #[tokio::test(start_paused = true)]
//! let revenue = Arc::new(Revenue::default());
//! let test = Harness::new().provide(Arc::clone(&revenue)).start().await?;
//!
//! let placed = |order_id: &str, total_cents| OrderPlaced { order_id: order_id.into(), total_cents };
//! test.given([placed("o-1", 250), placed("o-2", -1), placed("o-3", 50)]).await?;
//! test.run_until_idle().await?;
//!
//! test.assert_handled::<OrderPlaced>(2);
//! assert_eq!(*revenue.0.lock().unwrap(), 300);
//! let dead = test.dead_events::<Revenue>().await?;
//! assert_eq!((dead.len(), dead[0].attempts), (1, 3));
//!
//! // Nothing is handled twice after a clean stop.
//! let test = test.restart().await?;
//! test.run_until_idle().await?;
//! test.assert_handled::<OrderPlaced>(2);
//! test.shutdown().await?;
//! # Ok(())
//! # }
//! ```

mod attempt;
mod error;

use std::{fmt, sync::Arc, time::Duration};

use evento_core::{
    BoxFuture, Component, ConsumerKey, Event, IntoInstance, IntoNewEvent, Position,
    store::{AppendError, DeadEvent, DeadFilter, Expected, OpenStore, Store, StoreError},
};
use tokio::time::Instant;

use self::attempt::{Attempts, Listed};
pub use self::{attempt::TestAttempt, error::TestError};
use crate::{
    Bundle, BundleBuilder, ConsumerStatus, Drained, Running, ShutdownError, StartError, WaitError, clock::Clock,
    store::MemoryStore,
};

/// What is done to the builder at each start.
type Describe = Arc<dyn Fn(BundleBuilder) -> BundleBuilder + Send + Sync>;

/// Collects what a test's bundle consists of; [`Harness::start`] starts it.
///
/// The bundle is called `test` and is made of the provided components alone, whatever else is linked into the test
/// binary.
#[derive(Clone)]
#[must_use = "a harness does nothing until it is started"]
pub struct Harness {
    described: Vec<Describe>,
    store: Arc<dyn OpenStore>,
    clock: Clock,
    patience: Duration,
}

impl Harness {
    /// A harness on an empty store.
    pub fn new() -> Self {
        Self {
            described: Vec::new(),
            store: Arc::new(MemoryStore::new()),
            clock: Clock::tokio(),
            patience: Duration::from_secs(30),
        }
    }

    /// Gives the instance of a component: the component itself, or an [`Arc`] of it that the test keeps a clone of.
    pub fn provide<I>(self, instance: I) -> Self
    where
        I: IntoInstance,
        I::Component: Sized,
    {
        let instance = instance.into_instance();
        self.with(move |bundle| bundle.provide(Arc::clone(&instance)))
    }

    /// Says anything else to the bundle's builder: settings, interceptors, executors, contexts. It is said again at
    /// each restart.
    ///
    /// ```
    /// use std::time::Duration;
    /// use evento_runtime::{Settings, testing::Harness};
    ///
    /// let settings = Settings { shutdown_budget: Duration::from_secs(2), ..Settings::default() };
    /// let harness = Harness::new().with(move |bundle| bundle.settings(settings.clone()).contexts(["eu", "us"]));
    /// # drop(harness);
    /// ```
    pub fn with(mut self, describe: impl Fn(BundleBuilder) -> BundleBuilder + Send + Sync + 'static) -> Self {
        self.described.push(Arc::new(describe));
        self
    }

    /// Runs on another store than an empty one in memory: on one that another bundle of the test uses too, or on a file.
    pub fn store(mut self, store: impl OpenStore) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// Sets how long [`TestBundle::run_until_idle`] waits, by tokio's clock: 30 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Checks everything and starts the bundle.
    ///
    /// # Errors
    /// As [`BundleBuilder::start`].
    pub async fn start(self) -> Result<TestBundle, StartError> {
        let attempts = Attempts::default();
        self.start_with(attempts).await
    }

    async fn start_with(self, attempts: Attempts) -> Result<TestBundle, StartError> {
        let mut builder = Bundle::builder("test")
            .store(Described(Arc::clone(&self.store)))
            .only_provided()
            .clock(self.clock)
            .interceptor(attempts.clone());
        for describe in &self.described {
            builder = describe(builder);
        }
        let running = builder.start().await?;
        Ok(TestBundle { harness: self, running, attempts })
    }
}

impl Default for Harness {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness").field("store", &self.store).field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// A bundle under test.
#[derive(Debug)]
pub struct TestBundle {
    harness: Harness,
    running: Running,
    attempts: Attempts,
}

impl TestBundle {
    /// Appends events, and answers the position of the last.
    ///
    /// # Errors
    /// [`AppendError`] says why nothing was appended.
    pub async fn given<E: IntoNewEvent>(&self, events: impl IntoIterator<Item = E>) -> Result<Position, AppendError> {
        Ok(self.running.log().append(Expected::Any, events).await?.position)
    }

    /// Runs until every consumer has settled everything in the log, what handlers appended meanwhile included, and has
    /// stored that. Dead and parked events count as settled.
    ///
    /// # Errors
    /// [`TestError::Wait`] says what holds which consumer, [`TestError::Unwritten`] whose checkpoint is behind.
    pub async fn run_until_idle(&self) -> Result<(), TestError> {
        let began = Instant::now();
        loop {
            let left = self.harness.patience.saturating_sub(began.elapsed());
            let head = self.running.log().head().await?.committed;
            self.running.wait_until_caught_up(left).await?;
            let behind = self.stored().await?.into_iter().find(|(_, stored)| *stored < head);
            match behind {
                None if self.running.log().head().await?.committed == head => return Ok(()),
                Some((consumer, stored)) if began.elapsed() >= self.harness.patience => {
                    return Err(TestError::Unwritten { consumer, stored, head });
                }
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Every attempt so far that reached its handler, over restarts too, in the order they ended.
    #[must_use]
    pub fn attempts(&self) -> Vec<TestAttempt> {
        self.attempts.all()
    }

    /// How many times an event of type `E` was handled, by any component: attempts that succeeded.
    #[must_use]
    pub fn handled<E: Event>(&self) -> usize {
        self.attempts.handled(|attempt| attempt.event == E::NAME)
    }

    /// How many times the component `T` handled an event of type `E`.
    #[must_use]
    pub fn handled_by<T: Component, E: Event>(&self) -> usize {
        self.attempts.handled(|attempt| attempt.event == E::NAME && attempt.component == T::NAME)
    }

    /// Asserts that events of type `E` were handled `times` times, by all components together.
    ///
    /// # Panics
    /// If it was another number; the message lists the attempts there were, and how the consumers stand.
    #[track_caller]
    pub fn assert_handled<E: Event>(&self, times: usize) {
        self.assert_count(self.handled::<E>(), times, format_args!("`{}`", E::NAME));
    }

    /// Asserts that the component `T` handled events of type `E` `times` times.
    ///
    /// # Panics
    /// As [`TestBundle::assert_handled`].
    #[track_caller]
    pub fn assert_handled_by<T: Component, E: Event>(&self, times: usize) {
        self.assert_count(self.handled_by::<T, E>(), times, format_args!("`{}` by `{}`", E::NAME, T::NAME));
    }

    #[track_caller]
    fn assert_count(&self, seen: usize, times: usize, what: fmt::Arguments<'_>) {
        assert!(
            seen == times,
            "{what} was to be handled {times} times and was handled {seen} times\n{}{}",
            Listed(&self.attempts.all()),
            Standing(&self.running.consumers()),
        );
    }

    /// The stored checkpoint of a component, in the bundle's first context: the last position admitted.
    ///
    /// # Errors
    /// [`TestError::Wait`] where the component is not part of the bundle; [`TestError::Store`].
    pub async fn checkpoint<T: Component>(&self) -> Result<Position, TestError> {
        let consumer = self.running.dead_events::<T>()?.consumer().clone();
        let stored = self.stored().await?.into_iter().find(|(stored, _)| *stored == consumer);
        stored.map(|(_, frontier)| frontier).ok_or(TestError::Wait(WaitError::NoConsumer { component: T::NAME }))
    }

    /// All dead events of a component, in the bundle's first context, by position.
    ///
    /// # Errors
    /// [`TestError::Wait`] where the component is not part of the bundle; [`TestError::Store`].
    pub async fn dead_events<T: Component>(&self) -> Result<Vec<DeadEvent>, TestError> {
        let queue = self.running.dead_events::<T>()?;
        let mut letters = Vec::new();
        let mut filter = DeadFilter { limit: 1_000, ..DeadFilter::default() };
        loop {
            let page = queue.list(filter.clone()).await?;
            letters.extend(page.letters);
            match page.next {
                Some(next) => filter.after = next,
                None => return Ok(letters),
            }
        }
    }

    /// The running bundle, for everything else.
    #[must_use]
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Stops the bundle in order and starts it again on the same store.
    ///
    /// # Errors
    /// [`TestError::Shutdown`] where something was left, [`TestError::Start`].
    pub async fn restart(self) -> Result<Self, TestError> {
        let Self { harness, running, attempts } = self;
        running.shutdown().await?;
        Ok(harness.start_with(attempts).await?)
    }

    /// Stops the bundle in order.
    ///
    /// # Errors
    /// As [`Running::shutdown`].
    pub async fn shutdown(self) -> Result<Drained, ShutdownError> {
        self.running.shutdown().await
    }

    async fn stored(&self) -> Result<Vec<(ConsumerKey, Position)>, StoreError> {
        let consumers = self.running.shared.store.consumers(self.running.name().to_owned()).await?;
        let ours: Vec<_> = self.running.consumers().into_iter().map(|status| status.consumer).collect();
        let stored = consumers.into_iter().map(|stored| (stored.consumer, stored.frontier));
        Ok(stored.filter(|(consumer, _)| ours.contains(consumer)).collect())
    }
}

/// A description that is shared by the starts of a harness.
#[derive(Debug)]
struct Described(Arc<dyn OpenStore>);

impl OpenStore for Described {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn problems(&self) -> Vec<String> {
        self.0.problems()
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        self.0.open()
    }
}

/// How the consumers stand, for messages.
struct Standing<'a>(&'a [ConsumerStatus]);

impl fmt::Display for Standing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for status in self.0 {
            let ConsumerStatus { consumer, state, settled_to, head, .. } = status;
            write!(f, "{consumer} is {state:?}, settled to {settled_to} of {head}")?;
            if let Some(trouble) = &status.trouble {
                write!(f, "; {trouble}")?;
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}
