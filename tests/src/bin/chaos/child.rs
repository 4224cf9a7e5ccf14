//! The process that is killed: it consumes the log, and its handlers write effects.

use std::{
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use evento_core::{Context, event_handler, projector};
use evento_runtime::{Bundle, ClaimSettings, Settings, store::SqliteStore};
use evento_tests::faulty::{Faults, FaultyStore, Operation};

use crate::{
    effect::{Effect, Effects, What},
    log::Happened,
    random::mixed,
    setup::{Combination, Executor, Setup},
};

/// What starts this process as one that consumes.
pub(crate) const SUBCOMMAND: &str = "consume-until-killed";

/// What it prints when its first handler begins.
pub(crate) const CONSUMES: &str = "consumes";

/// What every handler does, whatever runs it.
struct Work {
    setup: Setup,
    effects: Effects,
    /// Counts the writes of the checkpoint.
    faults: Faults,
    running: AtomicUsize,
    consumes: Once,
}

/// A handler that runs.
struct Running<'a> {
    work: &'a Work,
    effect: Effect,
}

impl Work {
    async fn handle(&self, event: &Happened, ctx: &Context) -> anyhow::Result<()> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        let effect = Effect {
            process: self.setup.process,
            epoch: ctx.epoch().0,
            number: event.number,
            key: event.key.clone(),
            sequence: ctx.event().sequence().0,
            attempt: ctx.attempt(),
            what: What::Began { running },
        };
        self.effects.write(&effect)?;
        self.consumes.call_once(|| println!("{CONSUMES}"));
        let mut guard = Running { work: self, effect: Effect { what: What::CutOff, ..effect } };
        let random = mixed(self.setup.seed ^ (event.number as u64) << 8 ^ u64::from(self.setup.process));
        let wait = Duration::from_micros(random % 4 * 1_000);
        if self.setup.combination.executor == Executor::Pooled {
            #[expect(clippy::disallowed_methods, reason = "a pooled handler may block")]
            std::thread::sleep(wait);
        } else if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        if ctx.attempt() == 1 && mixed(event.number as u64).is_multiple_of(50) {
            guard.effect.what = What::Failed;
            anyhow::bail!("fails the first time");
        }
        guard.effect.what = What::Handled { writes: self.faults.count(Operation::Commit) };
        Ok(())
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Without its end the handler counts as one that never returned.
        if let Err(error) = self.work.effects.write(&self.effect) {
            eprintln!("chaos: {error:#}");
        }
        self.work.running.fetch_sub(1, Ordering::SeqCst);
    }
}

#[projector]
struct UnderExecutor(Work);

#[projector]
impl UnderExecutor {
    #[event_handler(executor = "work", retry = 3, retry_delay = "5ms")]
    async fn on_happened(&self, event: &Happened, ctx: &Context) -> anyhow::Result<()> {
        self.0.handle(event, ctx).await
    }
}

#[projector]
struct InTurn(Work);

#[projector]
impl InTurn {
    #[event_handler(retry = 3, retry_delay = "5ms")]
    async fn on_happened(&self, event: &Happened, ctx: &Context) -> anyhow::Result<()> {
        self.0.handle(event, ctx).await
    }
}

/// Consumes the log to its end, unless it is killed before. Answers whether nothing was given up.
pub(crate) fn consume(setup: Setup) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async move {
        let Combination { mode, executor } = setup.combination;
        let faults = Faults::default();
        let work = Work {
            effects: Effects::open(&setup.effects())?,
            faults: faults.clone(),
            running: AtomicUsize::new(0),
            consumes: Once::new(),
            setup: setup.clone(),
        };
        // Kills are the test's, not the events'.
        let settings = Settings {
            crashes: 100,
            claim: ClaimSettings {
                time_to_live: setup.time_to_live,
                renew_every: (setup.time_to_live - Duration::from_secs(1)) / 4,
            },
            ..Settings::default()
        };
        let mut bundle = Bundle::builder("chaos")
            .store(FaultyStore::describing(SqliteStore::at(setup.database()), faults))
            .settings(settings)
            .checkpoint_mode(mode)
            .only_provided();
        bundle = match setup.combination.build() {
            Some(built) => bundle.executor(built).provide(Arc::new(UnderExecutor(work))),
            None => bundle.provide(Arc::new(InTurn(work))),
        };
        let running = bundle.start().await?;
        if let Err(error) = running.wait_until_caught_up(Duration::from_secs(60)).await {
            eprintln!("chaos: {error:#}\n{:#?}\n{:#?}", running.consumers(), running.executors());
            return Ok(false);
        }
        let queue = match executor {
            Executor::Inline => running.dead_events::<InTurn>()?,
            _ => running.dead_events::<UnderExecutor>()?,
        };
        let dead = queue.list(evento_core::store::DeadFilter::default()).await?;
        if !dead.letters.is_empty() {
            eprintln!("chaos: dead events: {:#?}", dead.letters);
        }
        running.shutdown().await?;
        Ok(dead.letters.is_empty())
    })
}
