//! Consumers: each drives one engine against the store, under its claim.

mod attempt;
mod control;
mod drive;
mod io;
mod keeper;
mod status;

use std::{fmt, sync::Arc, time::Duration};

use evento_core::{
    HandlerDescriptor, RetryOption, Segment,
    retry::Backoff,
    store::{Claim, ClaimOutcome, ClaimRequest, CommitError, Owner, Reset, Store, StoredRequest},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

pub use self::status::{ConsumerState, ConsumerStatus, FailingEvent};
pub(crate) use self::{
    control::{Attention, Command, Control},
    keeper::Keeper,
    status::StatusCell,
};
use self::{
    drive::{Drive, End},
    keeper::Kept,
    status::Fall,
};
use crate::{
    bundle::ConsumerSpec,
    clock::Clock,
    config::Settings,
    engine::{Budget, Cadence, Config, Engine, Policy},
    fault::Classifiers,
    interceptor::Interceptor,
};

/// What the consumers of a bundle share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) classifiers: Classifiers,
    pub(crate) interceptors: Arc<[Arc<dyn Interceptor>]>,
    pub(crate) owner: Owner,
    pub(crate) keeper: Keeper,
    /// How many bytes of events a page holds, so that all that every consumer reads fits into the bundle's bound.
    pub(crate) page_bytes: usize,
    /// Changes whenever the log may have grown.
    pub(crate) wake: watch::Receiver<u64>,
    /// The stored requests that are open.
    pub(crate) requests: watch::Receiver<Arc<[StoredRequest]>>,
    /// Stop admitting, finish what runs.
    pub(crate) stop: CancellationToken,
    /// The shutdown's budget is spent: cut off what runs.
    pub(crate) cut: CancellationToken,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("store", &self.store).field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// One consumer of a bundle.
#[derive(Debug)]
pub(crate) struct Consumer {
    shared: Arc<Shared>,
    spec: Arc<ConsumerSpec>,
    status: Arc<StatusCell>,
    attention: Attention,
    commands: mpsc::Receiver<Command>,
    paused: bool,
}

/// A claim that was taken.
struct Taken {
    claim: Claim,
    /// On the clock of leases.
    asked_at: Duration,
    /// Whether nobody can have died in a handler under it.
    clean: bool,
}

/// How long before the store is tried again after it failed.
const STORE_PAUSE: Duration = Duration::from_secs(1);

/// How often a claim that another holds is asked for.
const CLAIM_PAUSE: Duration = Duration::from_secs(1);

impl Consumer {
    pub(crate) fn new(shared: Arc<Shared>, spec: ConsumerSpec) -> (Self, Control) {
        let status = Arc::new(StatusCell::new(&spec));
        let attention = Attention::default();
        let (sender, commands) = mpsc::channel(16);
        let control = Control::new(Arc::clone(&status), attention.clone(), sender);
        (Self { shared, spec: Arc::new(spec), status, attention, commands, paused: false }, control)
    }

    /// Consumes until the bundle stops. Takes its claim again whenever it was lost.
    pub(crate) async fn run(mut self) {
        let _fall = Fall(Arc::clone(&self.status));
        let mut claimed = None;
        // Kept over the store's failures, and let go only in order.
        let mut held = None;
        loop {
            let Taken { claim, asked_at, clean } = match claimed.take() {
                Some(taken) => taken,
                None => match self.take_claim().await {
                    Some(taken) => taken,
                    None => {
                        if let Some((claim, clean)) = held {
                            self.release(claim, clean).await;
                        }
                        break;
                    }
                },
            };
            held = Some((claim.clone(), clean));
            let kept = self.shared.keeper.keep(claim.clone(), asked_at, self.attention.clone());
            let end = self.consume(&claim, clean, &kept).await;
            drop(kept);
            match end {
                Ok(End::Stopped { left }) => {
                    self.release(claim, true).await;
                    self.status.stopped(left);
                    break;
                }
                Ok(End::Lost) => {
                    tracing::warn!(consumer = %self.spec.key, "claim lost: another process may go on, this one waits");
                    self.status.waiting(None);
                }
                Ok(End::Reset { to, reply }) => {
                    let time_to_live = self.shared.settings.claim.time_to_live;
                    let asked_at = self.shared.keeper.asked_at();
                    let reset = self.shared.store.reset(Reset { claim, to, time_to_live }).await;
                    let outcome = reset.map(|claim| claimed = Some(Taken { claim, asked_at, clean: true }));
                    reply.answer(outcome);
                }
                // The claim is kept, and asked for again: let go, it would count as let go in order, and the next to take
                // it would not know that a process may have died in a handler.
                Ok(End::Again(problem)) => {
                    self.troubled(&problem);
                    self.pause(STORE_PAUSE).await;
                }
                Err(CommitError::Fenced) => self.status.waiting(None),
                Err(error) => {
                    self.troubled(&anyhow::Error::new(error));
                    self.pause(STORE_PAUSE).await;
                }
            }
        }
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            command.refuse();
        }
    }

    /// Waits for the claim. `None` where the bundle stops before.
    async fn take_claim(&mut self) -> Option<Taken> {
        let request = ClaimRequest {
            consumer: (*self.spec.key).clone(),
            segment: Segment::WHOLE,
            owner: self.shared.owner.clone(),
            time_to_live: self.shared.settings.claim.time_to_live,
            names: self.spec.names.clone(),
        };
        let mut told = None;
        loop {
            if self.shared.stop.is_cancelled() {
                self.status.stopped(None);
                return None;
            }
            let asked_at = self.shared.keeper.asked_at();
            match self.shared.store.claim(request.clone()).await {
                Ok(ClaimOutcome::Taken { claim, clean }) => return Some(Taken { claim, asked_at, clean }),
                Ok(ClaimOutcome::Held { owner, until }) => {
                    if told.as_ref() != Some(&owner) {
                        tracing::info!(consumer = %self.spec.key, held_by = %owner, until = until.0, "waiting for the claim");
                        told = Some(owner.clone());
                    }
                    self.status.waiting(Some(owner.name));
                }
                Ok(ClaimOutcome::StandBack { owner, lacking }) => {
                    if told.as_ref() != Some(&owner) {
                        tracing::warn!(
                            consumer = %self.spec.key, stands_back_for = %owner, ?lacking,
                            "this process lacks events that the checkpoint was advanced with; another that takes them goes first"
                        );
                        told = Some(owner.clone());
                    }
                    self.status.waiting(Some(owner.name));
                }
                Err(error) => self.troubled(&anyhow::Error::new(error)),
            }
            self.pause(CLAIM_PAUSE).await;
        }
    }

    /// Loads everything stored and consumes under the claim.
    async fn consume(&mut self, claim: &Claim, clean: bool, kept: &Kept) -> Result<End, CommitError> {
        let shared = Arc::clone(&self.shared);
        let guard_until = if clean { None } else { Some(shared.store.head().await?.bound) };
        let state = shared.store.load(claim.clone()).await?;
        self.warn_of_new_names(&state.names);
        tracing::info!(
            consumer = %self.spec.key, epoch = claim.epoch.0, frontier = %state.frontier, open = state.open.len(), clean,
            "claim taken"
        );
        let now = drive::now(shared.clock);
        let mut engine = Engine::new(self.engine_config(), state, guard_until, now);
        engine.requests(&self.open_requests());
        if self.paused {
            engine.pause();
        }
        let mut drive = Drive::new(self, claim, engine, kept);
        let end = drive.run().await;
        self.paused = drive.is_paused();
        Ok(end)
    }

    fn warn_of_new_names(&self, stored: &[String]) {
        let new: Vec<_> = self.spec.names.iter().filter(|name| !stored.contains(name)).collect();
        if !new.is_empty() && !stored.is_empty() {
            tracing::warn!(
                consumer = %self.spec.key, ?new,
                "the component takes events its checkpoint was not advanced with: it sees them from here on; \
                 raise its version, or reset it, to see the earlier ones too"
            );
        }
    }

    fn open_requests(&self) -> Vec<StoredRequest> {
        let requests = self.shared.requests.borrow();
        requests.iter().filter(|request| request.consumer == *self.spec.key).cloned().collect()
    }

    fn engine_config(&self) -> Config {
        let settings = &self.shared.settings;
        let handlers = self.spec.component.handlers;
        Config {
            routes: handlers
                .iter()
                .enumerate()
                .map(|(index, handler)| (handler.event.name.to_owned(), index))
                .collect(),
            policies: handlers.iter().map(|handler| policy(handler, settings)).collect(),
            on_dead: self.spec.component.on_dead,
            cadence: Cadence {
                every: settings.checkpoint.every,
                events: settings.checkpoint.events,
                every_event: settings.checkpoint.every_event,
                skipped_every: settings.checkpoint.skipped_every,
                max_unwritten: settings.checkpoint.max_unwritten,
                overdue: settings.checkpoint.overdue,
            },
            max_crashes: settings.crashes,
            names: self.spec.names.clone(),
        }
    }

    async fn release(&self, claim: Claim, clean: bool) {
        if let Err(error) = self.shared.store.release(claim, clean).await {
            tracing::warn!(consumer = %self.spec.key, error = &error as &dyn std::error::Error, "the claim could not be let go; it runs out by itself");
        }
    }

    fn troubled(&self, problem: &anyhow::Error) {
        if self.status.troubled(format!("{problem:#}")) {
            tracing::error!(consumer = %self.spec.key, problem = format!("{problem:#}"), "consumer cannot go on; it tries again");
        }
    }

    /// Waits a while, or until the bundle stops; answers commands meanwhile.
    async fn pause(&mut self, wait: Duration) {
        let until = tokio::time::Instant::now() + wait;
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = tokio::time::sleep_until(until) => return,
                Some(command) = self.commands.recv() => match command {
                    Command::Pause(reply) => {
                        self.paused = true;
                        reply.answer(Ok(()));
                    }
                    Command::Resume(reply) => {
                        self.paused = false;
                        reply.answer(Ok(()));
                    }
                    Command::Reset { reply, .. } => {
                        let owner = Owner { name: self.status.snapshot().held_by.unwrap_or_default(), process: None };
                        reply.answer(Err(CommitError::Held { owner }));
                    }
                },
            }
        }
    }
}

/// What the engine knows of a handler: inline ones are tried for ever unless they say otherwise, others not again.
fn policy(handler: &HandlerDescriptor, settings: &Settings) -> Policy {
    let first = handler.retry_delay.unwrap_or(settings.retry.delay);
    let budget = match (handler.retry, handler.executor) {
        (RetryOption::Unset, None) | (RetryOption::Forever, _) => Budget::Forever,
        (RetryOption::Unset, Some(_)) => Budget::Times(0),
        (RetryOption::Times(times), _) => Budget::Times(u32::from(times)),
    };
    Policy { budget, backoff: Backoff { first, cap: settings.retry.cap } }
}
