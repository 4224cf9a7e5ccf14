use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use evento_core::{
    BoxFuture, Position,
    store::{Claim, CommitError, Filter, StoredRequest},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::watch;

use super::{
    Command, Consumer, Kept,
    attempt::{Attempt, Attempts},
    control::Reply,
    io::{self, Done, Io},
};
use crate::{
    clock::Clock,
    engine::{Engine, Failure, Now, Output, Read, Slot, Start},
};

/// Why consuming under a claim ended.
#[derive(Debug)]
pub(super) enum End {
    /// The bundle stops; `left` is the event that was cut off.
    Stopped { left: Option<Position> },
    /// The claim is another's, or may be by now.
    Lost,
    /// Everything is written, for a reset to be made.
    Reset { to: Position, reply: Reply },
    /// What the store holds is not what this process thinks: read everything again.
    Again(anyhow::Error),
}

/// Drives the engine of one claim: carries out what it asks for, and tells it what came of it.
pub(super) struct Drive<'a> {
    consumer: &'a mut Consumer,
    kept: &'a Kept,
    attempts: Arc<Attempts>,
    io: Io,
    engine: Engine,
    out: Output,
    now: Now,

    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    attempt: Option<(Slot, Attempt)>,
    wake: watch::Receiver<u64>,
    requests: watch::Receiver<Arc<[StoredRequest]>>,
    /// The store's failure, and how often in a row it failed.
    trouble: Option<String>,
    failures: u32,
    /// When to look again at a head that an open transaction held back.
    look_again: Option<Duration>,
    look_again_after: Duration,
    random: u64,
    stopping: bool,
    reset: Option<(Position, Reply)>,
    left: Option<Position>,
}

/// After so many events handled without waiting, the consumer looks after everything else.
const BURST: u32 = 64;

/// The same after so long.
const LONGEST_BURST: Duration = Duration::from_millis(2);

/// Reads both clocks.
pub(super) fn now(clock: Clock) -> Now {
    Now { since_start: clock.now(), wall: clock.recorded() }
}

impl<'a> Drive<'a> {
    pub(super) fn new(consumer: &'a mut Consumer, claim: &Claim, engine: Engine, kept: &'a Kept) -> Self {
        let shared = Arc::clone(&consumer.shared);
        let spec = Arc::clone(&consumer.spec);
        let filter = Filter { names: spec.names.clone(), context: spec.key.context.clone(), segment: claim.segment };
        Self {
            kept,
            attempts: Arc::new(Attempts { shared: Arc::clone(&shared), spec, epoch: claim.epoch }),
            now: now(shared.clock),
            wake: shared.wake.clone(),
            requests: shared.requests.clone(),
            io: Io { shared, claim: claim.clone(), filter: Arc::new(filter) },
            engine,
            out: Output::default(),
            under_way: FuturesUnordered::new(),
            attempt: None,
            trouble: None,
            failures: 0,
            look_again: None,
            look_again_after: Duration::ZERO,
            random: RandomState::new().hash_one(claim.epoch),
            stopping: false,
            reset: None,
            left: None,
            consumer,
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.engine.is_paused()
    }

    pub(super) async fn run(&mut self) -> End {
        let mut burst: u32 = 0;
        loop {
            if burst.is_multiple_of(BURST) {
                self.now = now(self.io.shared.clock);
                if self.kept.is_lost(self.io.shared.clock) {
                    return End::Lost;
                }
            }
            if let Err(problem) = self.engine.poll(self.now, &mut self.out) {
                return End::Again(anyhow::Error::new(problem));
            }
            self.carry_out();
            if let Some(start) = self.out.start.take() {
                let ended_at_once = self.begin(start).await;
                burst += 1;
                if ended_at_once && self.consumer.attention.is_asked() {
                    // There may be nothing to wait for: look up from the work, and go on.
                    self.out.wake_at = Some(self.now.since_start);
                } else if ended_at_once {
                    // Handlers that compute, or block, take time without ever waiting. Looked at after the first event of a
                    // burst and then ever more seldom: a slow handler ends each burst at its first, a quick one pays little.
                    let is_long = burst.is_power_of_two()
                        && self.io.shared.clock.now().saturating_sub(self.now.since_start) >= LONGEST_BURST;
                    if !burst.is_multiple_of(BURST) && !is_long {
                        continue;
                    }
                    burst = 0;
                    tokio::task::consume_budget().await;
                    if let Some(end) = self.look_around().await {
                        return end;
                    }
                    continue;
                }
            }
            if self.engine.is_stopped() {
                if let Some((to, reply)) = self.reset.take() {
                    return End::Reset { to, reply };
                }
                return End::Stopped { left: self.left };
            }
            burst = 0;
            self.publish();
            if let Some(end) = self.wait().await {
                return end;
            }
        }
    }

    /// Starts what the engine asked for, but for the attempt.
    fn carry_out(&mut self) {
        if let Some(commit) = self.out.commit.take() {
            self.under_way.push(Box::pin(self.io.clone().commit(commit)));
        }
        if let Some(after) = self.out.fetch.take() {
            // Seen before the read, so that what is appended during it wakes us after it.
            self.wake.mark_unchanged();
            self.under_way.push(Box::pin(self.io.clone().page(after, self.backoff())));
        }
        for read in self.out.reads.drain(..) {
            self.under_way.push(Box::pin(self.io.clone().read(read, io::backoff(self.failures))));
        }
    }

    /// Begins an attempt, and answers whether it has ended already: most that need not wait do.
    async fn begin(&mut self, start: Start) -> bool {
        let slot = start.slot;
        let mut attempt = self.attempts.begin(start);
        match poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await {
            Poll::Ready(outcome) => {
                self.ended(slot, outcome);
                true
            }
            Poll::Pending => {
                self.attempt = Some((slot, attempt));
                false
            }
        }
    }

    fn ended(&mut self, slot: Slot, outcome: Result<(), Failure>) {
        if outcome.is_err() {
            self.now = now(self.io.shared.clock);
        }
        // SplitMix64: jitter needs no more.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.engine.ended(slot, outcome, mixed ^ (mixed >> 31), self.now);
    }

    /// Takes what is ready, without waiting.
    async fn look_around(&mut self) -> Option<End> {
        while let Some(Some(done)) = self.under_way.next().now_or_never() {
            if let Some(end) = self.done(done) {
                return Some(end);
            }
        }
        if self.requests.has_changed().unwrap_or(false) {
            self.take_requests();
        }
        self.publish();
        None
    }

    /// Waits until something happens.
    async fn wait(&mut self) -> Option<End> {
        let shared = Arc::clone(&self.io.shared);
        self.consumer.attention.given();
        let wake_at = [self.out.wake_at, self.look_again].into_iter().flatten().min();
        let attempt_runs = self.attempt.is_some();
        tokio::select! {
            biased;
            () = self.kept.lost() => return Some(End::Lost),
            () = shared.cut.cancelled(), if attempt_runs => self.cut_off(),
            () = shared.stop.cancelled(), if !self.stopping => {
                self.stopping = true;
                self.engine.stop();
            }
            Some(command) = self.consumer.commands.recv() => self.obey(command),
            Some(done) = self.under_way.next(), if !self.under_way.is_empty() => {
                self.now = now(shared.clock);
                return self.done(done);
            }
            (slot, outcome) = outcome(&mut self.attempt), if attempt_runs => {
                self.attempt = None;
                self.now = now(shared.clock);
                self.ended(slot, outcome);
            }
            Ok(()) = self.wake.changed() => self.engine.head_moved(),
            Ok(()) = self.requests.changed() => self.take_requests(),
            () = sleep_until(shared.clock, wake_at) => {
                if self.look_again.take_if(|at| *at <= shared.clock.now()).is_some() {
                    self.engine.head_moved();
                }
            }
        }
        None
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Pause(reply) => {
                self.engine.pause();
                self.publish();
                reply.answer(Ok(()));
            }
            Command::Resume(reply) => {
                self.engine.resume();
                self.publish();
                reply.answer(Ok(()));
            }
            Command::Reset { to, reply } if self.reset.is_none() && !self.stopping => {
                self.engine.stop();
                self.reset = Some((to, reply));
            }
            Command::Reset { reply, .. } => reply.answer(Err(CommitError::Fenced)),
        }
    }

    fn done(&mut self, done: Done) -> Option<End> {
        match done {
            Done::Page(Ok(page)) => {
                self.calm();
                let held_back = page.more_above && page.scanned_to >= page.head;
                self.look_again_after = match held_back {
                    true => (self.look_again_after * 2).clamp(Duration::from_millis(2), Duration::from_millis(100)),
                    false => Duration::ZERO,
                };
                self.look_again = held_back.then(|| self.now.since_start + self.look_again_after);
                self.engine.page(page);
            }
            Done::Page(Err(error)) => {
                self.troubled("reading the log", error);
                self.engine.fetch_failed();
            }
            Done::Read(read, Ok(found)) => {
                self.calm();
                match read {
                    Read::At(asked) => self.engine.recovered(&asked, found.selection),
                    Read::Aggregate { drain, .. } => self.engine.drained(drain, found.selection, found.dead),
                    Read::Letters { request, .. } => self.engine.letters(request, found.letters, found.last),
                }
            }
            Done::Read(read, Err(error)) => {
                self.troubled("reading again", error);
                self.engine.read_failed(read);
            }
            Done::Commit(Ok(revision)) => {
                self.calm();
                self.engine.committed(revision, self.now);
            }
            Done::Commit(Err(CommitError::Store(error))) => {
                self.troubled("writing the checkpoint", error);
                self.under_way.push(Box::pin(self.io.clone().resolve(self.backoff())));
            }
            Done::Resolved(Ok(stored)) => match self.engine.replaces() {
                Some(replaced) if stored == replaced.next() => {
                    self.calm();
                    self.engine.committed(stored, self.now);
                }
                Some(replaced) if stored == replaced => self.engine.commit_failed(self.now),
                _ => {
                    return Some(End::Again(anyhow::anyhow!(
                        "the stored checkpoint is at an unknown revision {stored}"
                    )));
                }
            },
            Done::Resolved(Err(CommitError::Store(error))) => {
                self.troubled("reading the checkpoint back", error);
                self.under_way.push(Box::pin(self.io.clone().resolve(self.backoff())));
            }
            // A write that was sent again after it had been made: nobody else writes under this epoch.
            Done::Commit(Err(CommitError::Superseded { stored, replaced })) if stored == replaced.next() => {
                self.engine.committed(stored, self.now);
            }
            Done::Commit(Err(CommitError::Fenced)) | Done::Resolved(Err(CommitError::Fenced)) => {
                return Some(End::Lost);
            }
            Done::Commit(Err(error)) | Done::Resolved(Err(error)) => {
                return Some(End::Again(anyhow::Error::new(error)));
            }
        }
        None
    }

    /// The shutdown's budget is spent.
    fn cut_off(&mut self) {
        let Some((slot, attempt)) = self.attempt.take() else { return };
        drop(attempt);
        if let Some(event) = self.engine.cut_off(slot) {
            tracing::warn!(
                consumer = %self.consumer.spec.key, event = event.name(), position = %event.position(),
                aggregate = %event.aggregate(),
                "the shutdown's budget is spent: its handler was cut off; the event is delivered again after the start"
            );
            self.left = Some(event.position());
        }
    }

    fn take_requests(&mut self) {
        self.requests.mark_unchanged();
        let open = self.consumer.open_requests();
        self.engine.requests(&open);
    }

    fn publish(&self) {
        self.consumer.status.publish(&self.engine, self.trouble.as_deref());
    }

    fn troubled(&mut self, doing: &str, error: impl Into<anyhow::Error>) {
        let trouble = format!("{doing}: {:#}", error.into());
        if self.trouble.is_none() {
            tracing::warn!(consumer = %self.consumer.spec.key, "{trouble}; trying again");
        }
        self.trouble = Some(trouble);
        self.failures += 1;
    }

    fn calm(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!(consumer = %self.consumer.spec.key, "the store answers again");
        }
        self.failures = 0;
    }

    fn backoff(&self) -> Duration {
        io::backoff(self.failures)
    }
}

async fn outcome(attempt: &mut Option<(Slot, Attempt)>) -> (Slot, Result<(), Failure>) {
    match attempt {
        Some((slot, attempt)) => (*slot, attempt.await),
        None => std::future::pending().await,
    }
}

async fn sleep_until(clock: Clock, at: Option<Duration>) {
    match at {
        Some(at) => tokio::time::sleep_until(clock.instant(at)).await,
        None => std::future::pending().await,
    }
}
