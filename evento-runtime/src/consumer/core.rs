use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{Arc, PoisonError, TryLockError, atomic::Ordering},
    time::Duration,
};

use evento_core::Position;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Kept, attempt::Attempts, worker::Executor};
use crate::{
    clock::Clock,
    engine::{Counts, Engine, Job, Now, Outcome, Output, SlotId},
    executor::Grant,
    sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard},
};

/// The engine of one claim, shared by its consumer's task and the workers that run its attempts.
///
/// Whoever has something for the engine takes a turn: it hands over what ended, and what the engine answers is carried
/// out by the same thread as far as it can be. Who finds another at it leaves what it has, and the other goes on.
pub(crate) struct Core {
    inner: Mutex<Inner>,
    ended: Mutex<Vec<Ended>>,
    attempts: Arc<Attempts>,
    executors: Vec<Arc<Executor>>,
    clock: Clock,
    kept: Arc<Kept>,
    /// Something is to be done that only the consumer's task can do.
    task: Arc<Notify>,
    cut: CancellationToken,
    /// What `cut` says, for those that ask often.
    is_cut: AtomicBool,
    /// Attempts under executors that have not ended.
    outstanding: AtomicUsize,
    none_outstanding: Notify,
}

/// What the engine's lock guards.
pub(super) struct Inner {
    pub(super) engine: Engine,
    pub(super) out: Output,
    pub(super) now: Now,
    grants: Vec<Grant>,
    random: u64,
    /// When the consumer's task wakes up by itself.
    pub(super) wakes_at: Option<Duration>,
    /// Events that were cut off.
    pub(super) left: Vec<Position>,
    told: Vec<u64>,
    closed: bool,
}

/// An attempt that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) slot: SlotId,
    pub(crate) outcome: Outcome,
    /// Its permit is free again.
    pub(crate) last: bool,
}

/// Reads both clocks.
pub(super) fn now(clock: Clock) -> Now {
    Now { since_start: clock.now(), wall: clock.recorded() }
}

impl Core {
    pub(super) fn new(
        engine: Engine,
        attempts: Arc<Attempts>,
        executors: Vec<Arc<Executor>>,
        kept: Arc<Kept>,
    ) -> Arc<Self> {
        let clock = attempts.shared.clock;
        let task = Arc::new(Notify::new());
        let grants: Vec<_> = executors
            .iter()
            .map(|executor| {
                let task = Arc::clone(&task);
                executor.permits().join(Box::new(move || task.notify_one()))
            })
            .collect();
        let inner = Inner {
            engine,
            out: Output::default(),
            now: now(clock),
            told: vec![0; grants.len()],
            grants,
            random: RandomState::new().hash_one(attempts.epoch),
            wakes_at: None,
            left: Vec::new(),
            closed: false,
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            ended: Mutex::default(),
            attempts,
            executors,
            clock,
            kept,
            task,
            cut: CancellationToken::new(),
            is_cut: AtomicBool::new(false),
            outstanding: AtomicUsize::new(0),
            none_outstanding: Notify::new(),
        })
    }

    pub(super) fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }

    /// Takes attempts that have ended, for the next turn; [`Core::end`] sees to it that there is one.
    pub(crate) fn leave(&self, ended: &mut Vec<Ended>) {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).append(ended);
    }

    /// `starts` starts are over, and all their attempts are left here: takes a turn, unless another took it for them.
    pub(crate) fn end(self: &Arc<Self>, starts: usize) {
        if self.has_ended() {
            self.turn();
        }
        // Only now: a closing core waits for the last of them to have been handed over.
        if self.outstanding.fetch_sub(starts, Ordering::AcqRel) == starts {
            self.none_outstanding.notify_waiters();
        }
    }

    /// Takes turns until nothing has ended that the engine does not know of, unless another is at it.
    fn turn(self: &Arc<Self>) {
        loop {
            let mut inner = match self.inner.try_lock() {
                Ok(inner) => inner,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            inner.now = now(self.clock);
            inner.closed |= self.kept.is_lost(self.clock);
            self.step(&mut inner);
            if inner.needs_task() {
                self.task.notify_one();
            }
            drop(inner);
            // Who came while the lock was held has left its own here.
            if self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                return;
            }
        }
    }

    /// One turn of the engine: what ended goes in, what is to start goes out.
    pub(super) fn step(self: &Arc<Self>, inner: &mut Inner) {
        let ended = std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner));
        for Ended { slot, outcome, last } in ended {
            inner.end(slot, outcome, last);
        }
        if inner.closed {
            return;
        }
        let now = inner.now;
        inner.engine.admit(now);
        for (index, grant) in inner.grants.iter_mut().enumerate() {
            let (returned, wanted) = (inner.engine.take_returned(index), inner.engine.wants(index, now));
            inner.engine.grant(index, grant.exchange(returned, wanted));
        }
        inner.engine.dispatch(now, &mut inner.out);
        for (index, grant) in inner.grants.iter_mut().enumerate() {
            let unused = inner.engine.take_returned(index);
            if unused > 0 {
                inner.engine.grant(index, grant.exchange(unused, 0));
            }
        }
        self.tell_rejected(inner);
        if inner.out.starts.is_empty() {
            return;
        }
        self.outstanding.fetch_add(inner.out.starts.len(), Ordering::AcqRel);
        if let [executor] = &self.executors[..] {
            executor.run(self, &mut inner.out.starts);
            return;
        }
        for (index, executor) in self.executors.iter().enumerate() {
            let mut starts: Vec<_> = inner.out.starts.extract_if(.., |start| start.executor == Some(index)).collect();
            if !starts.is_empty() {
                executor.run(self, &mut starts);
            }
        }
    }

    /// The next inline attempt, where the one in `slot` was handled and nothing else is to be done.
    pub(super) fn straight_on(&self, slot: SlotId) -> Option<Job> {
        let mut inner = self.lock();
        let now = inner.now;
        if inner.closed { None } else { inner.engine.straight_on(slot, now) }
    }

    fn tell_rejected(&self, inner: &mut Inner) {
        for (index, executor) in self.executors.iter().enumerate() {
            let rejected = inner.engine.executor_counts(index).rejected;
            if rejected != inner.told[index] {
                executor.rejected(rejected - inner.told[index]);
                inner.told[index] = rejected;
            }
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends when the consumer's task is needed.
    pub(super) async fn task_needed(&self) {
        self.task.notified().await;
    }

    /// Whether attempts under executors have ended that the engine does not know of.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(super) fn is_lost(&self) -> bool {
        self.kept.is_lost(self.clock)
    }

    pub(super) async fn lost(&self) {
        self.kept.lost().await;
    }

    /// Cuts off every attempt that runs.
    pub(super) fn cut_off(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.cut.cancel();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Acquire)
    }

    pub(crate) async fn cut(&self) {
        self.cut.cancelled().await;
    }

    /// Starts nothing more, cuts off what runs, and waits until it has returned. Then every permit goes back.
    pub(super) async fn close(&self) -> Counts {
        self.lock().closed = true;
        self.cut_off();
        loop {
            let mut none = std::pin::pin!(self.none_outstanding.notified());
            none.as_mut().enable();
            if self.outstanding.load(Ordering::Acquire) == 0 {
                break;
            }
            none.await;
        }
        let mut inner = self.lock();
        inner.grants.clear();
        inner.engine.counts()
    }
}

impl Inner {
    /// Tells the engine of an attempt that ended.
    pub(super) fn end(&mut self, slot: SlotId, outcome: Outcome, last: bool) {
        let mut random = 0;
        if !matches!(outcome, Outcome::Handled) {
            // SplitMix64: jitter needs no more.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            random = mixed ^ (mixed >> 31);
        }
        if matches!(outcome, Outcome::CutOff) {
            self.left.extend(self.engine.position_of(slot));
        }
        self.engine.ended(slot, outcome, last, random, self.now);
    }

    /// Tells the engine of an inline attempt that ended, if one has.
    pub(super) fn end_inline(&mut self, ended: &mut Option<(SlotId, Outcome)>) {
        if let Some((slot, outcome)) = ended.take() {
            self.end(slot, outcome, true);
        }
    }

    /// Whether there is something that only the consumer's task does.
    fn needs_task(&self) -> bool {
        let wakes_too_late = match (self.out.wake_at, self.wakes_at) {
            (Some(wanted), Some(set)) => wanted < set,
            (Some(_), None) => true,
            (None, _) => false,
        };
        self.out.commit.is_some()
            || self.out.fetch.is_some()
            || self.out.inline.is_some()
            || !self.out.reads.is_empty()
            || wakes_too_late
            || self.engine.is_stopped()
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("outstanding", &self.outstanding.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}
