mod answer;

use std::{sync::Arc, time::Duration};

use evento_core::{
    BoxFuture,
    store::{Claim, CommitError, Filter},
};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::sync::watch;

use super::{
    Command, Consumer, Core, Executor, Kept, OpenRequests,
    attempt::{Attempts, Inline},
    core::now,
    io::{self, Done, Io},
    watchdog::Watchdog,
};
use crate::engine::{Engine, Outcome, SlotId, Start};

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
///
/// Inline handlers run here; attempts under executors run on their workers.
pub(super) struct Drive<'a> {
    consumer: &'a mut Consumer,
    core: Arc<Core>,
    io: Io,

    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    inline: Inline,
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
    watchdog: Watchdog,
    stopping: bool,
}

/// What one turn left for the consumer's task.
struct Left {
    inline: Option<Start>,
    /// By the clock as it was last read.
    taken_at: Duration,
    wake_at: Option<Duration>,
    stopped: bool,
}

/// Why reading stops over what waits for its next attempt.
const TOO_MANY_OPEN: &str = "as many events are open as a checkpoint keeps: nothing more is read until some have settled; \
                             see why they are tried again";

/// After so many events handled without waiting, the consumer looks after everything else.
const BURST: u32 = 64;

/// The same after so long.
const LONGEST_BURST: Duration = Duration::from_millis(2);

impl<'a> Drive<'a> {
    pub(super) fn new(
        consumer: &'a mut Consumer,
        claim: &Claim,
        engine: Engine,
        executors: Vec<Arc<Executor>>,
        kept: &Arc<Kept>,
        looked_at: Duration,
    ) -> Self {
        let shared = Arc::clone(&consumer.shared);
        let spec = Arc::clone(&consumer.spec);
        let filter = Filter { names: spec.names.clone(), context: spec.key.context.clone(), segment: claim.segment };
        let watchdog = Watchdog::new(shared.settings.silence);
        let attempts = Arc::new(Attempts { shared: Arc::clone(&shared), spec, epoch: claim.epoch });
        Self {
            core: Core::new(engine, attempts, executors, Arc::clone(kept)),
            wake: shared.wake.clone(),
            requests: shared.requests.clone(),
            looked_at,
            io: Io { shared, claim: claim.clone(), filter: Arc::new(filter) },
            under_way: FuturesUnordered::new(),
            inline: Inline::default(),
            trouble: None,
            failures: 0,
            look_again: None,
            look_again_after: Duration::ZERO,
            watchdog,
            stopping: false,
            consumer,
        }
    }

    /// Consumes until it ends, and until every attempt has returned.
    pub(super) async fn run(&mut self) -> End {
        let end = self.consume().await;
        let inline = self.inline.cut_off();
        self.core.close().await;
        let mut inner = self.core.lock();
        let cut_off = inline.and_then(|slot| inner.engine.position_of(slot));
        let left = std::mem::take(&mut inner.left);
        if self.io.shared.stop.is_cancelled() {
            // Nobody waits for what was cut off any more.
            self.consumer.left.extend(left.into_iter().chain(cut_off));
            self.consumer.left.sort_unstable();
        }
        self.consumer.paused = inner.engine.is_paused();
        self.consumer.memory = inner.engine.take_memory();
        end
    }

    async fn consume(&mut self) -> End {
        if !self.consumer.resets.is_empty() {
            self.core.lock().engine.stop();
        }
        let mut ended: Option<(SlotId, Outcome)> = None;
        let mut burst: u32 = 0;
        loop {
            let left = self.turn(ended.take(), burst.is_multiple_of(BURST));
            if burst.is_multiple_of(BURST) && self.core.is_lost() {
                return End::Lost;
            }
            if let Some(start) = left.inline {
                let (mut next, first) = (Some(start.job), burst + 1);
                while let Some(job) = next.take() {
                    ended = self.inline.begin(self.core.attempts(), job).await;
                    burst += 1;
                    let Some((slot, outcome)) = &ended else { break };
                    if self.consumer.attention.is_asked() || self.is_burst_over(burst, left.taken_at) {
                        break;
                    }
                    if matches!(outcome, Outcome::Handled) {
                        next = self.core.straight_on(*slot);
                    }
                }
                if ended.is_none() && burst > first {
                    // What has settled since the last turn is to be written while this one waits.
                    continue;
                }
                if ended.is_some() && !self.consumer.attention.is_asked() {
                    if self.is_burst_over(burst, left.taken_at) {
                        burst = 0;
                        tokio::task::consume_budget().await;
                        if let Some(end) = self.look_around() {
                            return end;
                        }
                    }
                    continue;
                }
            }
            // There may be nothing to wait for: look up from the work, and go on.
            let wake_at = if ended.is_some() { Some(Duration::ZERO) } else { left.wake_at };
            if left.stopped && ended.is_none() {
                if !self.stopping && !self.consumer.resets.is_empty() {
                    return End::Reset;
                }
                return End::Stopped { clean: !self.core.lock().engine.guards() };
            }
            burst = 0;
            self.publish();
            if let Some(end) = self.wait(wake_at, &mut ended).await {
                return end;
            }
        }
    }

    /// Handlers that compute, or block, take time without ever waiting. Looked at after the first event of a burst and then
    /// ever more seldom: a slow handler ends each burst at its first, a quick one pays little.
    fn is_burst_over(&self, burst: u32, began: Duration) -> bool {
        burst.is_multiple_of(BURST)
            || burst.is_power_of_two() && self.io.shared.clock.now().saturating_sub(began) >= LONGEST_BURST
    }

    /// Takes a turn with the engine, and starts what only this task can.
    fn turn(&mut self, mut ended: Option<(SlotId, Outcome)>, fresh: bool) -> Left {
        let core = Arc::clone(&self.core);
        let mut inner = core.lock();
        if fresh || ended.as_ref().is_some_and(|(_, outcome)| !matches!(outcome, Outcome::Handled)) {
            inner.now = now(self.io.shared.clock);
        }
        inner.end_inline(&mut ended);
        core.step(&mut inner);
        if let Some(commit) = inner.out.commit.take() {
            self.under_way.push(Box::pin(self.io.clone().commit(commit)));
        }
        if let Some(after) = inner.out.fetch.take() {
            // Seen before the read, so that what is appended during it wakes us after it.
            self.wake.mark_unchanged();
            self.under_way.push(Box::pin(self.io.clone().page(after, io::backoff(self.failures))));
        }
        for read in inner.out.reads.drain(..) {
            self.under_way.push(Box::pin(self.io.clone().read(read, io::backoff(self.failures))));
        }
        let (consumer, unanswered) = (&self.consumer.spec.key, self.under_way.len());
        self.watchdog.look(consumer, &inner.engine, unanswered, inner.now.since_start);
        let wake_at = [inner.out.wake_at, self.look_again, self.watchdog.look_at()].into_iter().flatten().min();
        inner.wakes_at = wake_at;
        Left {
            inline: inner.out.inline.take(),
            taken_at: inner.now.since_start,
            wake_at,
            stopped: inner.engine.is_stopped(),
        }
    }

    /// Takes what is ready, without waiting.
    fn look_around(&mut self) -> Option<End> {
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
    async fn wait(&mut self, wake_at: Option<Duration>, ended: &mut Option<(SlotId, Outcome)>) -> Option<End> {
        let shared = Arc::clone(&self.io.shared);
        let core = Arc::clone(&self.core);
        // A worker that found the engine locked, by us, has left what ended.
        if core.has_ended() {
            return None;
        }
        self.consumer.attention.given();
        let inline_runs = self.inline.runs();
        let was_cut = core.is_cut();
        tokio::select! {
            biased;
            () = core.lost() => return Some(End::Lost),
            () = shared.cut.cancelled(), if !was_cut => self.cut_off(ended),
            () = shared.stop.cancelled(), if !self.stopping => {
                self.stopping = true;
                core.lock().engine.stop();
            }
            Some(command) = self.consumer.commands.recv() => self.obey(command),
            Some(done) = self.under_way.next(), if !self.under_way.is_empty() => return self.done(done),
            outcome = self.inline.ended(), if inline_runs => *ended = Some(outcome),
            () = core.task_needed() => {}
            Ok(()) = self.wake.changed() => core.lock().engine.head_moved(),
            Ok(()) = self.requests.changed() => self.take_requests(),
            () = shared.clock.sleep_until(wake_at) => {
                if self.look_again.take_if(|at| *at <= shared.clock.now()).is_some() {
                    core.lock().engine.head_moved();
                }
            }
        }
        None
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Pause(reply) => {
                self.core.lock().engine.pause();
                self.publish();
                reply.answer(Ok(()));
            }
            Command::Resume(reply) => {
                self.core.lock().engine.resume();
                self.publish();
                reply.answer(Ok(()));
            }
            Command::Reset { reply, .. } if self.stopping => reply.answer(Err(CommitError::Fenced)),
            Command::Reset { to, reply } => {
                self.core.lock().engine.stop();
                self.consumer.resets.push_back((to, reply));
            }
        }
        // Another may have been given while this one was: who is busy is to look up for it too.
        self.consumer.attention.ask();
    }

    /// The shutdown's budget is spent.
    fn cut_off(&mut self, ended: &mut Option<(SlotId, Outcome)>) {
        self.core.cut_off();
        if let Some(slot) = self.inline.cut_off() {
            *ended = Some((slot, Outcome::CutOff));
        }
        let inner = self.core.lock();
        for position in inner.engine.running() {
            tracing::warn!(
                consumer = %self.consumer.spec.key, %position,
                "the shutdown's budget is spent: the event's handler is cut off"
            );
        }
    }

    fn take_requests(&mut self) {
        let open = self.requests.borrow_and_update();
        if open.asked_at >= self.looked_at {
            self.looked_at = open.asked_at;
            let open = super::of_consumer(&self.consumer.spec.key, &open.requests);
            self.core.lock().engine.requests(&open);
        }
    }

    fn publish(&self) {
        let inner = self.core.lock();
        let refused = inner.engine.out_of_order().map(ToString::to_string);
        let refused = refused.or_else(|| inner.engine.too_many_open().map(|_| TOO_MANY_OPEN.to_owned()));
        if let Some(refused) = &refused {
            self.consumer.troubled(refused);
        }
        self.consumer.status.publish(&inner.engine, refused.as_deref().or(self.trouble.as_deref()));
    }
}
