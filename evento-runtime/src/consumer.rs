//! Consumers: each drives one engine against the store, under its claim.

mod attempt;
mod control;
mod core;
mod drive;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleaved;
mod io;
mod keeper;
mod status;
mod watchdog;
mod worker;

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use evento_core::{
    ConsumerKey, HandlerDescriptor, OnTransient, Position, RetryOption, Segment,
    retry::Backoff,
    store::{Claim, ClaimOutcome, ClaimRequest, CommitError, Epoch, Owner, Reset, Store, StoredRequest},
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::{
    control::Reply,
    drive::{Drive, End},
    keeper::Kept,
    status::Fall,
};
pub(crate) use self::{
    control::{Attention, Command, Control},
    core::{Core, Ended},
    keeper::Keeper,
    status::StatusCell,
    worker::Executor,
};
pub use self::{
    status::{ConsumerState, ConsumerStatus, FailingEvent},
    worker::ExecutorStatus,
};
use crate::{
    bundle::ConsumerSpec,
    clock::Clock,
    config::Settings,
    engine::{Budget, Cadence, Config, Engine, MOST_OPEN, Memory, Policy, Run, Taking},
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
    pub(crate) requests: watch::Receiver<OpenRequests>,
    pub(crate) executors: Vec<Arc<Executor>>,
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
    /// Resets to be made, one after the other, as soon as it can.
    resets: VecDeque<(Position, Reply)>,
    /// The epoch under which it last loaded what is stored, and what it knows beyond that.
    loaded: Option<Epoch>,
    memory: Memory,
    /// The events whose handlers a shutdown cut off.
    left: Vec<Position>,
}

/// A claim that was taken.
#[derive(Clone, Debug)]
struct Taken {
    claim: Claim,
    /// On the clock of leases.
    asked_at: Duration,
    /// Whether nobody can have died in a handler before.
    clean: bool,
}

/// The stored requests of a bundle that are open.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenRequests {
    /// By [`Clock::now`], just before the store was asked.
    pub(crate) asked_at: Duration,
    pub(crate) requests: Arc<[StoredRequest]>,
}

fn of_consumer(key: &ConsumerKey, requests: &[StoredRequest]) -> Vec<StoredRequest> {
    requests.iter().filter(|request| request.consumer == *key).cloned().collect()
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
        let consumer = Self {
            shared,
            spec: Arc::new(spec),
            status,
            attention,
            commands,
            paused: false,
            resets: VecDeque::new(),
            loaded: None,
            memory: Memory::default(),
            left: Vec::new(),
        };
        (consumer, control)
    }

    /// Consumes until the bundle stops. Takes its claim again whenever it was lost.
    pub(crate) async fn run(mut self) {
        let _fall = Fall(Arc::clone(&self.status));
        let mut claimed = None;
        // Kept over the store's failures, and let go only in order.
        let mut held: Option<Taken> = None;
        let released = loop {
            let taken = match claimed.take() {
                Some(taken) => taken,
                None => match self.take_claim().await {
                    Some(taken) => taken,
                    None => break self.release(held).await,
                },
            };
            held = Some(taken.clone());
            let kept = Arc::new(self.shared.keeper.keep(taken.claim.clone(), taken.asked_at, self.attention.clone()));
            let end = self.consume(&taken, &kept).await;
            drop(kept);
            match end {
                Ok(End::Stopped { clean }) => break self.release(Some(Taken { clean, ..taken })).await,
                Ok(End::Lost) => {
                    tracing::warn!(consumer = %self.spec.key, "claim lost: another process may go on, this one waits");
                    self.status.waiting(None);
                }
                Ok(End::Reset) => claimed = self.reset(taken.claim).await,
                // The claim is kept, and asked for again: let go, it would count as let go in order, and the next to take
                // it would not know that a process may have died in a handler.
                Ok(End::Again(problem)) => {
                    self.troubled(&format!("{problem:#}"));
                    self.pause(STORE_PAUSE).await;
                }
                Err(CommitError::Fenced) => self.status.waiting(None),
                Err(error) => {
                    self.troubled(&format!("{:#}", anyhow::Error::new(error)));
                    self.pause(STORE_PAUSE).await;
                }
            }
        };
        self.status.stopped(std::mem::take(&mut self.left), released);
        for (_, reply) in self.resets.drain(..) {
            reply.answer(Err(CommitError::Fenced));
        }
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            command.refuse();
        }
    }

    /// Makes the reset that was asked for first. Answers the claim as it is after it.
    async fn reset(&mut self, claim: Claim) -> Option<Taken> {
        let (to, reply) = self.resets.pop_front()?;
        let time_to_live = self.shared.settings.claim.time_to_live;
        let asked_at = self.shared.keeper.asked_at();
        match self.shared.store.reset(Reset { claim, to, time_to_live }).await {
            Ok(claim) => {
                self.memory = Memory::default();
                self.status.rewound(to);
                reply.answer(Ok(()));
                Some(Taken { claim, asked_at, clean: true })
            }
            Err(error) => {
                reply.answer(Err(error));
                None
            }
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
                    self.held_elsewhere(owner);
                }
                Ok(ClaimOutcome::StandBack { owner, lacking }) => {
                    if told.as_ref() != Some(&owner) {
                        tracing::warn!(
                            consumer = %self.spec.key, stands_back_for = %owner, ?lacking,
                            "this process lacks events that the checkpoint was advanced with; another that takes them goes first"
                        );
                        told = Some(owner.clone());
                    }
                    self.held_elsewhere(owner);
                }
                Err(error) => self.troubled(&format!("{:#}", anyhow::Error::new(error))),
            }
            self.pause(CLAIM_PAUSE).await;
        }
    }

    fn held_elsewhere(&mut self, owner: Owner) {
        for (_, reply) in self.resets.drain(..) {
            reply.answer(Err(CommitError::Held { owner: owner.clone() }));
        }
        self.status.waiting(Some(owner.name));
    }

    /// Loads everything stored and consumes under the claim.
    async fn consume(&mut self, taken: &Taken, kept: &Arc<Kept>) -> Result<End, CommitError> {
        let Taken { claim, clean, .. } = taken;
        let shared = Arc::clone(&self.shared);
        let guard_until = if *clean { None } else { Some(shared.store.head().await?.bound) };
        let state = shared.store.load(claim.clone()).await?;
        // What finished before this moment is not carried out again, whatever an older look at the requests says.
        let looked_at = shared.clock.now();
        let requests = shared.store.open_requests(self.spec.key.bundle.clone()).await?;
        self.warn_of_new_names(&state.names);
        tracing::info!(
            consumer = %self.spec.key, epoch = claim.epoch.0, frontier = %state.frontier, open = state.open.len(), clean,
            "claim taken"
        );
        let now = core::now(shared.clock);
        // Nobody else held the claim where its epoch follows on that of this process, which lives.
        let died = !clean && self.loaded.is_none_or(|last| claim.epoch != last.next());
        self.loaded = Some(claim.epoch);
        let taking = Taking { guard_until, died, memory: std::mem::take(&mut self.memory) };
        let mut engine = Engine::new(self.engine_config(), state, taking, now);
        engine.requests(&of_consumer(&self.spec.key, &requests));
        if self.paused {
            engine.pause();
        }
        let executors = self.executors();
        Ok(Drive::new(self, claim, engine, executors, kept, looked_at).run().await)
    }

    /// The executors that the component's handlers name.
    fn executors(&self) -> Vec<Arc<Executor>> {
        let named = |executor: &&Arc<Executor>| {
            let name = executor.name();
            self.spec.component.handlers.iter().any(|handler| handler.executor.is_some_and(|it| it.as_str() == name))
        };
        self.shared.executors.iter().filter(named).map(Arc::clone).collect()
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

    fn engine_config(&self) -> Config {
        let settings = &self.shared.settings;
        let handlers = self.spec.component.handlers;
        let executors = self.executors();
        Config {
            routes: handlers
                .iter()
                .enumerate()
                .map(|(index, handler)| (handler.event.name.to_owned(), index))
                .collect(),
            policies: handlers.iter().map(|handler| self.policy(handler, &executors)).collect(),
            executors: executors.iter().map(|executor| executor.limits()).collect(),
            mode: self.spec.mode,
            start_ahead: settings.start_ahead,
            max_bytes: self.shared.page_bytes,
            max_open: MOST_OPEN,
            #[cfg(feature = "simulation")]
            mutant: None,
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

    /// What the engine knows of a handler: inline ones are tried for ever unless they say otherwise, others not again.
    fn policy(&self, handler: &HandlerDescriptor, executors: &[Arc<Executor>]) -> Policy {
        let retry = &self.shared.settings.retry;
        let budget = match (handler.retry, handler.executor) {
            (RetryOption::Unset, None) | (RetryOption::Forever, _) => Budget::Forever,
            (RetryOption::Unset, Some(_)) => Budget::Times(0),
            (RetryOption::Times(times), _) => Budget::Times(u32::from(times)),
        };
        let named = handler.executor.and_then(|name| executors.iter().position(|it| it.name() == name.as_str()));
        Policy {
            run: named.map_or(Run::Inline, |index| Run::Executor { index, ordered: executors[index].is_ordered() }),
            budget,
            backoff: Backoff { first: handler.retry_delay.unwrap_or(retry.delay), cap: retry.cap },
            redeliver: self.spec.component.transient == OnTransient::Redeliver,
        }
    }

    /// Lets the claim go, if there is one. Answers whether none is held any more.
    async fn release(&self, taken: Option<Taken>) -> bool {
        let Some(Taken { claim, clean, .. }) = taken else { return true };
        let released = self.shared.store.release(claim, clean).await;
        if let Err(error) = &released {
            let error = error as &dyn std::error::Error;
            tracing::warn!(consumer = %self.spec.key, error, "the claim could not be let go; it runs out by itself");
        }
        released.is_ok()
    }

    fn troubled(&self, problem: &str) {
        if self.status.troubled(problem.to_owned()) {
            tracing::error!(consumer = %self.spec.key, problem, "consumer cannot go on");
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
                    Command::Reset { to, reply } => self.resets.push_back((to, reply)),
                },
            }
        }
    }
}
