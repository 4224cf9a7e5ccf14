mod answer;

use std::{
    future::poll_fn,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use evento_core::{
    BoxFuture,
    store::{Claim, CommitError, Filter},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::watch;

use super::{
    Command, Consumer, Kept, OpenRequests,
    attempt::{Attempt, Attempts},
    io::{self, Done, Io},
};
use crate::{
    clock::Clock,
    engine::{Engine, Failure, Now, Output, Slot, Start},
};

/// Why consuming under a claim ended.
#[derive(Debug)]
pub(super) enum End {
    /// The bundle stops, and everything is written; `clean` where the next to take the claim need not beware of events at
    /// which processes died.
    Stopped { clean: bool },
    /// The claim is another's, or may be by now.
    Lost,
    /// Everything is written, for a reset to be made.
    Reset,
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
    requests: watch::Receiver<OpenRequests>,
    /// When the engine was last told what is open, or later.
    looked_at: Duration,
    /// The store's failure, and how often in a row it failed.
    trouble: Option<String>,
    failures: u32,
    /// When to look again at a head that an open transaction held back.
    look_again: Option<Duration>,
    look_again_after: Duration,
    random: u64,
    stopping: bool,
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
    pub(super) fn new(
        consumer: &'a mut Consumer,
        claim: &Claim,
        engine: Engine,
        kept: &'a Kept,
        looked_at: Duration,
    ) -> Self {
        let shared = Arc::clone(&consumer.shared);
        let spec = Arc::clone(&consumer.spec);
        let filter = Filter { names: spec.names.clone(), context: spec.key.context.clone(), segment: claim.segment };
        Self {
            kept,
            attempts: Arc::new(Attempts { shared: Arc::clone(&shared), spec, epoch: claim.epoch }),
            now: now(shared.clock),
            wake: shared.wake.clone(),
            requests: shared.requests.clone(),
            looked_at,
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
            consumer,
        }
    }

    pub(super) fn into_engine(self) -> Engine {
        self.engine
    }

    pub(super) async fn run(&mut self) -> End {
        let end = self.work().await;
        if self.stopping && self.attempt.is_some() {
            // Nobody waits for it any more.
            self.cut_off();
        }
        end
    }

    async fn work(&mut self) -> End {
        if !self.consumer.resets.is_empty() {
            self.engine.stop();
        }
        let mut burst: u32 = 0;
        loop {
            if burst.is_multiple_of(BURST) {
                self.now = now(self.io.shared.clock);
                if self.kept.is_lost(self.io.shared.clock) {
                    return End::Lost;
                }
            }
            self.engine.poll(self.now, &mut self.out);
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
                if !self.stopping && !self.consumer.resets.is_empty() {
                    return End::Reset;
                }
                return End::Stopped { clean: !self.engine.guards() };
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
        let mut random = 0;
        if outcome.is_err() {
            self.now = now(self.io.shared.clock);
            // SplitMix64: jitter needs no more.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            random = mixed ^ (mixed >> 31);
        }
        self.engine.ended(slot, outcome, random, self.now);
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
            Command::Reset { reply, .. } if self.stopping => reply.answer(Err(CommitError::Fenced)),
            Command::Reset { to, reply } => {
                self.engine.stop();
                self.consumer.resets.push_back((to, reply));
            }
        }
        // Another may have been given while this one was: who is busy is to look up for it too.
        self.consumer.attention.ask();
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
            self.consumer.left = Some(event.position());
        }
    }

    fn take_requests(&mut self) {
        let open = self.requests.borrow_and_update();
        if open.asked_at >= self.looked_at {
            self.looked_at = open.asked_at;
            let open = super::of_consumer(&self.consumer.spec.key, &open.requests);
            self.engine.requests(&open);
        }
    }

    fn publish(&self) {
        let refused = self.engine.out_of_order().map(ToString::to_string);
        if let Some(refused) = &refused {
            self.consumer.troubled(refused);
        }
        self.consumer.status.publish(&self.engine, refused.as_deref().or(self.trouble.as_deref()));
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
