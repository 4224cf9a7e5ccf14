//! Executors at work.

use std::{
    collections::VecDeque,
    fmt,
    future::{Future, poll_fn},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    thread,
};

use evento_core::ConsumerKey;
use tokio_util::task::TaskTracker;

use super::{Core, Ended};
use crate::{
    engine::{Failure, Job, Limits, Outcome, Start},
    executor::{ConsumerExecutor, ExecutorKind, Next, Permits, Queue},
    sync::spawn,
};

/// One executor of a running bundle.
///
/// Its workers live as long as it does and pull their work: nothing is spawned per event. A worker that runs out of work
/// takes its consumer's turn itself, so that a permit that comes free is spent on the thread that freed it.
pub(crate) struct Executor {
    name: String,
    kind: ExecutorKind,
    /// How many workers there are at the most: so many handlers run at once.
    capacity: usize,
    /// One for each worker, and for each start that may be recorded ahead of them.
    permits: Arc<Permits>,
    queue: Queue<Arc<Core>, Start>,
    /// How many ended attempts a worker keeps to itself: so few that the others always find work.
    batch: usize,
    tasks: TaskTracker,
    counters: Counters,
}

/// Counts since the bundle began.
#[derive(Debug, Default)]
struct Counters {
    admitted: AtomicU64,
    rejected: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
}

/// An executor, as a bundle's status shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ExecutorStatus {
    /// Its name.
    pub name: String,
    /// What runs its handlers.
    pub kind: ExecutorKind,
    /// How many handlers run at once, at most.
    pub capacity: usize,
    /// Permits in use.
    pub in_flight: usize,
    /// Attempts started.
    pub admitted: u64,
    /// Events that were ready and found no permit.
    pub rejected: u64,
    /// Attempts that succeeded.
    pub completed: u64,
    /// Attempts that failed.
    pub failed: u64,
}

/// How many ended attempts a worker keeps to itself at the most.
const LARGEST_BATCH: usize = 32;

impl Executor {
    /// `start_ahead` attempts may wait for a worker.
    pub(crate) fn new(described: &ConsumerExecutor, start_ahead: usize, tasks: TaskTracker) -> Arc<Self> {
        let capacity = described.capacity();
        let threads = match described.kind() {
            ExecutorKind::Pooled => capacity,
            ExecutorKind::Tasks | ExecutorKind::Partitioned => {
                tokio::runtime::Handle::current().metrics().num_workers().max(1)
            }
        };
        Arc::new(Self {
            name: described.name().to_owned(),
            kind: described.kind(),
            capacity,
            permits: Permits::new(capacity.saturating_add(start_ahead)),
            queue: Queue::new(capacity, threads),
            batch: (capacity / (2 * threads)).clamp(1, LARGEST_BATCH),
            tasks,
            counters: Counters::default(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What an engine is to know of it.
    pub(super) fn limits(&self) -> Limits {
        Limits { capacity: self.capacity, look_ahead: self.capacity.saturating_mul(4) }
    }

    pub(crate) fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.kind == ExecutorKind::Partitioned
    }

    /// Takes attempts over; each has its permit.
    pub(super) fn run(self: &Arc<Self>, core: &Arc<Core>, starts: &mut Vec<Start>) {
        let admitted: usize = starts.iter().map(|start| 1 + start.more.len()).sum();
        self.counters.admitted.fetch_add(admitted as u64, Ordering::Relaxed);
        let made = self.queue.push(core, starts.drain(..));
        self.make(made);
    }

    pub(crate) fn rejected(&self, events: u64) {
        self.counters.rejected.fetch_add(events, Ordering::Relaxed);
    }

    /// Has the workers end once their work is done.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    pub(crate) fn status(&self) -> ExecutorStatus {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ExecutorStatus {
            name: self.name.clone(),
            kind: self.kind,
            capacity: self.capacity,
            in_flight: self.permits.in_use().min(self.capacity),
            admitted: read(&self.counters.admitted),
            rejected: read(&self.counters.rejected),
            completed: read(&self.counters.completed),
            failed: read(&self.counters.failed),
        }
    }

    fn make(self: &Arc<Self>, workers: usize) {
        for _ in 0..workers {
            let worker = Arc::clone(self).work();
            if self.kind != ExecutorKind::Pooled {
                spawn(&self.tasks, worker);
                continue;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let thread = runtime.and_then(|runtime| {
                let token = self.tasks.token();
                thread::Builder::new().name(format!("evento-{}", self.name)).spawn(move || {
                    runtime.block_on(worker);
                    drop(token);
                })
            });
            if let Err(error) = thread {
                let error = &error as &dyn std::error::Error;
                tracing::error!(executor = self.name, error, "no thread for the pool: a task takes its place");
                spawn(&self.tasks, Arc::clone(self).work());
            }
        }
    }

    async fn work(self: Arc<Self>) {
        let mut own = Own::default();
        loop {
            let start = match own.starts.pop_front().map(|start| (start, None)).or_else(|| self.try_next(&mut own)) {
                Some((start, core)) => self.take_up(start, core, &mut own),
                None => match self.look_for_work(&mut own).await {
                    Some(start) => start,
                    None if own.ends => return,
                    None => continue,
                },
            };
            self.attempts(start, &mut own).await;
            // A blocking handler would sit on what has ended before it.
            if own.ended.len() >= self.batch || self.kind == ExecutorKind::Pooled {
                self.hand_over(&mut own);
            }
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Hands over what ended, which may be what lets the next attempt start; sleeps if there is none all the same.
    async fn look_for_work(&self, own: &mut Own) -> Option<Start> {
        if std::mem::take(&mut own.waited) {
            // Handlers that waited for the same return together: one turn, and one write, for all of them.
            self.leave(own);
            tokio::task::yield_now().await;
        }
        self.hand_over(own);
        if let Some((start, core)) = self.try_next(own) {
            return Some(self.take_up(start, core, own));
        }
        // Another thread may be about to start more: waking up costs more than looking again.
        tokio::task::yield_now().await;
        match self.queue.next(own.core.as_ref(), &mut own.starts, self.ahead()) {
            Next::Work(start, core) => return Some(self.take_up(start, core, own)),
            Next::Sleep => {
                // An idle worker keeps no consumer alive.
                *own = Own::default();
                self.queue.sleep().await;
            }
            Next::End => own.ends = true,
        }
        None
    }

    fn try_next(&self, own: &mut Own) -> Option<(Start, Option<Arc<Core>>)> {
        self.queue.try_next(own.core.as_ref(), &mut own.starts, self.ahead())
    }

    /// How many more starts a worker takes at once: none, where its handlers may block.
    fn ahead(&self) -> usize {
        if self.kind == ExecutorKind::Pooled { 0 } else { self.batch - 1 }
    }

    /// Notes whose attempts follow, where they are another consumer's.
    fn take_up(&self, start: Start, core: Option<Arc<Core>>, own: &mut Own) -> Start {
        if let Some(core) = core {
            self.hand_over(own);
            own.key = Some(Arc::new(core.consumer().clone()));
            own.core = Some(core);
        }
        start
    }

    /// Runs the attempts of one permit, one after the other, until one fails.
    async fn attempts(self: &Arc<Self>, start: Start, own: &mut Own) {
        let mut left = start.more.len();
        for job in std::iter::once(start.job).chain(start.more) {
            let slot = job.slot;
            let outcome = self.outcome(job, own).await;
            match outcome {
                Outcome::Handled => own.completed += 1,
                Outcome::Failed(_) | Outcome::CutOff => own.failed += 1,
            }
            let last = left == 0 || !matches!(outcome, Outcome::Handled);
            own.ended.push(Ended { slot, outcome, last });
            if last {
                return;
            }
            left -= 1;
        }
    }

    async fn outcome(self: &Arc<Self>, job: Job, own: &mut Own) -> Outcome {
        let (Some(core), Some(key)) = (own.core.take(), own.key.clone()) else { return Outcome::CutOff };
        let outcome =
            if core.is_cut() { Outcome::CutOff } else { self.attempt(&core, core.attempt_of(job, key), own).await };
        own.core = Some(core);
        outcome
    }

    async fn attempt(
        self: &Arc<Self>,
        core: &Arc<Core>,
        attempt: impl Future<Output = Result<(), Failure>> + Send,
        own: &mut Own,
    ) -> Outcome {
        let mut attempt = std::pin::pin!(attempt);
        match poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await {
            Poll::Ready(Ok(())) => return Outcome::Handled,
            Poll::Ready(Err(failure)) => return Outcome::Failed(failure),
            Poll::Pending => {}
        }
        self.hand_over_to(core, own);
        if !own.starts.is_empty() {
            let made = self.queue.put_back(core, &mut own.starts);
            self.make(made);
        }
        own.waited = true;
        let made = self.queue.waits();
        self.make(made);
        let outcome = tokio::select! {
            biased;
            outcome = attempt => match outcome {
                Ok(()) => Outcome::Handled,
                Err(failure) => Outcome::Failed(failure),
            },
            () = core.cut() => Outcome::CutOff,
        };
        self.queue.goes_on();
        outcome
    }

    fn hand_over(&self, own: &mut Own) {
        if let Some(core) = own.core.take() {
            self.hand_over_to(&core, own);
            own.core = Some(core);
        }
    }

    fn hand_over_to(&self, core: &Arc<Core>, own: &mut Own) {
        self.leave_to(core, own);
        if let Some(starts) = own.left.take() {
            core.end(starts);
        }
    }

    /// Puts what has ended where the next turn finds it, whoever takes that.
    fn leave(&self, own: &mut Own) {
        if let Some(core) = own.core.take() {
            self.leave_to(&core, own);
            own.core = Some(core);
        }
    }

    fn leave_to(&self, core: &Arc<Core>, own: &mut Own) {
        if !own.ended.is_empty() {
            self.counters.completed.fetch_add(std::mem::take(&mut own.completed), Ordering::Relaxed);
            self.counters.failed.fetch_add(std::mem::take(&mut own.failed), Ordering::Relaxed);
            *own.left.get_or_insert(0) += own.ended.iter().filter(|ended| ended.last).count();
            core.leave(&mut own.ended);
        }
    }
}

/// What a worker has to itself.
#[derive(Debug, Default)]
struct Own {
    /// The consumer whose attempts it runs.
    core: Option<Arc<Core>>,
    /// A copy of that consumer's key, which only this worker counts references to.
    key: Option<Arc<ConsumerKey>>,
    /// Starts of that consumer that it has taken and not come to.
    starts: VecDeque<Start>,
    /// Attempts that have ended, on their way to their consumer.
    ended: Vec<Ended>,
    /// Attempts are left with their consumer and no turn has been taken for them: how many starts they end.
    left: Option<usize>,
    /// Its last handler did not return at once.
    waited: bool,
    completed: u64,
    failed: u64,
    ends: bool,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor")
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("permits", &self.permits)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}
