//! Components that note what they are handed, and do with it what a test says.

use std::{
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use evento_core::{BoxFuture, Context, Event, Position, event_handler, projector, store::Epoch};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// The event that every probe takes.
#[derive(Clone, Debug, Deserialize, Event, Serialize)]
#[event(name = "probe.happened", aggregate = "probe")]
pub struct Happened {
    /// The aggregate.
    #[event(aggregate_id)]
    pub key: String,
    /// Tells events apart in assertions.
    pub number: u64,
}

/// An event that some probes take.
#[derive(Clone, Debug, Deserialize, Event, Serialize)]
#[event(name = "probe.followed", aggregate = "probe")]
pub struct Followed {
    /// The aggregate.
    #[event(aggregate_id)]
    pub key: String,
    /// Tells events apart in assertions.
    pub number: u64,
}

/// An event that no probe takes.
#[derive(Clone, Debug, Deserialize, Event, Serialize)]
#[event(name = "probe.ignored", aggregate = "probe")]
pub struct Ignored {
    /// The aggregate.
    #[event(aggregate_id)]
    pub key: String,
}

/// `Happened` number `number` of aggregate `key`.
#[must_use]
pub fn happened(key: &str, number: u64) -> Happened {
    Happened { key: key.to_owned(), number }
}

/// `Followed` number `number` of aggregate `key`.
#[must_use]
pub fn followed(key: &str, number: u64) -> Followed {
    Followed { key: key.to_owned(), number }
}

/// `Ignored` of aggregate `key`.
#[must_use]
pub fn ignored(key: &str) -> Ignored {
    Ignored { key: key.to_owned() }
}

/// One call of a probe's handler.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Call {
    /// The event's name.
    pub event: String,
    /// The aggregate's id.
    pub key: String,
    /// The event's number.
    pub number: u64,
    /// Where the event is.
    pub position: Position,
    /// Which attempt.
    pub attempt: u32,
    /// Whether it is a replay.
    pub replay: bool,
    /// The epoch of the claim.
    pub epoch: Epoch,
}

type Script = Arc<dyn Fn(Call) -> BoxFuture<'static, anyhow::Result<()>> + Send + Sync>;

/// Notes every call, then does what the test says; clones are one.
#[derive(Clone, Default)]
pub struct Probe(Arc<Inner>);

#[derive(Default)]
struct Inner {
    script: Mutex<Option<Script>>,
    calls: watch::Sender<Vec<Call>>,
    returned: watch::Sender<usize>,
}

impl Probe {
    /// A probe that handles everything at once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A probe whose handlers do this.
    pub fn doing<F>(script: impl Fn(Call) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let probe = Self::new();
        probe.does(script);
        probe
    }

    /// A probe that fails, with an ordinary failure, where `fails` says so.
    pub fn failing(fails: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        Self::doing(move |call| {
            let outcome = if fails(&call) { Err(anyhow::anyhow!("told to fail")) } else { Ok(()) };
            std::future::ready(outcome)
        })
    }

    /// From now on the handlers do this.
    pub fn does<F>(&self, script: impl Fn(Call) -> F + Send + Sync + 'static)
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let script: Script = Arc::new(move |call| Box::pin(script(call)));
        *self.0.script.lock().unwrap_or_else(PoisonError::into_inner) = Some(script);
    }

    /// From now on the handlers handle everything at once.
    pub fn recovers(&self) {
        *self.0.script.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Every call so far, in the order they began.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.0.calls.borrow().clone()
    }

    /// The numbers of the events called with so far, in order.
    #[must_use]
    pub fn numbers(&self) -> Vec<u64> {
        self.0.calls.borrow().iter().map(|call| call.number).collect()
    }

    /// How many calls have returned; one that was cut off has not.
    #[must_use]
    pub fn returned(&self) -> usize {
        *self.0.returned.borrow()
    }

    /// Forgets the calls so far.
    pub fn forget(&self) {
        self.0.calls.send_replace(Vec::new());
        self.0.returned.send_replace(0);
    }

    /// Waits until so many calls have begun.
    ///
    /// # Panics
    /// If they have not after a minute.
    pub async fn began(&self, calls: usize) {
        let mut seen = self.0.calls.subscribe();
        let began = tokio::time::timeout(Duration::from_secs(60), seen.wait_for(|seen| seen.len() >= calls)).await;
        assert!(began.is_ok(), "{calls} calls were to begin, after a minute there were {:?}", self.calls());
    }

    async fn call(&self, key: &str, number: u64, ctx: &Context) -> anyhow::Result<()> {
        let call = Call {
            event: ctx.event().name().to_owned(),
            key: key.to_owned(),
            number,
            position: ctx.position(),
            attempt: ctx.attempt(),
            replay: ctx.is_replay(),
            epoch: ctx.epoch(),
        };
        self.0.calls.send_modify(|calls| calls.push(call.clone()));
        let script = self.0.script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let outcome = match script {
            Some(script) => script(call).await,
            None => Ok(()),
        };
        self.0.returned.send_modify(|returned| *returned += 1);
        outcome
    }
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("calls", &self.0.calls.borrow().len()).finish_non_exhaustive()
    }
}

/// Declares probes: options of the projector, options of both its handlers.
macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident($($option:tt)*)[$($handler:tt)*];)*) => {$(
        $(#[$doc])*
        #[projector($($option)*)]
        #[derive(Clone, Debug)]
        pub struct $name(pub Probe);

        #[projector]
        impl $name {
            #[event_handler($($handler)*)]
            async fn on_happened(&self, event: &Happened, ctx: &Context) -> anyhow::Result<()> {
                self.0.call(&event.key, event.number, ctx).await
            }

            #[event_handler($($handler)*)]
            async fn on_followed(&self, event: &Followed, ctx: &Context) -> anyhow::Result<()> {
                self.0.call(&event.key, event.number, ctx).await
            }
        }
    )*};
}

probes! {
    /// Tries for ever.
    Forever()[];
    /// Another that tries for ever.
    Another()[];
    /// One attempt; what follows in the aggregate is parked.
    Once()[retry = 0];
    /// One attempt; what follows in the aggregate goes on.
    Going(on_dead = "continue")[retry = 0];
    /// Up to four attempts, a second before the second.
    Thrice()[retry = 3, retry_delay = "1s"];
    /// Two attempts of at most two seconds each.
    Timed()[retry = 1, retry_delay = "1s", timeout = "2s"];
    /// Begins at the head.
    FromHead(start = "head")[];
    /// A read model in its first version.
    First(name = "versioned", version = 1)[];
    /// The same in its second.
    Second(name = "versioned", version = 2)[];
    /// Takes both events, and has the name of `Narrow`.
    Wide(name = "width")[];
}

/// Takes one event, and has the name of [`Wide`].
#[projector(name = "width")]
#[derive(Clone, Debug)]
pub struct Narrow(pub Probe);

#[projector]
impl Narrow {
    #[event_handler]
    async fn on_happened(&self, event: &Happened, ctx: &Context) -> anyhow::Result<()> {
        self.0.call(&event.key, event.number, ctx).await
    }
}
