//! Executors at work.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    thread,
};

use evento_core::Context;
use tokio_util::task::TaskTracker;

use super::{Core, Ended, attempt::outcome_of};
use crate::{
    engine::{Job, Limits, Outcome, Start},
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
            if own.starts.is_empty() && !self.try_next(&mut own) {
                self.look_for_work(&mut own).await;
                if own.ends {
                    return;
                }
            }
            self.attempts(&mut own).await;
            // A blocking handler would sit on what has ended before it.
            if own.ended.len() >= self.batch || self.kind == ExecutorKind::Pooled {
                self.hand_over(&mut own);
            }
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Hands over what ended, which may be what lets the next attempt start; sleeps if there is none all the same.
    async fn look_for_work(&self, own: &mut Own) {
        if std::mem::take(&mut own.waited) {
            // Handlers that waited for the same return together: one turn, and one write, for all of them.
            self.leave(own);
            tokio::task::yield_now().await;
        }
        self.hand_over(own);
        if self.try_next(own) {
            return;
        }
        // Another thread may be about to start more: waking up costs more than looking again.
        tokio::task::yield_now().await;
        match self.queue.next(own.core.as_ref(), &mut own.starts, self.ahead()) {
            Next::Work(other) => self.take_up(other, own),
            Next::Sleep => {
                // An idle worker keeps no consumer alive.
                *own = Own::default();
                self.queue.sleep().await;
            }
            Next::End => own.ends = true,
        }
    }

    fn try_next(&self, own: &mut Own) -> bool {
        let Some(other) = self.queue.try_next(own.core.as_ref(), &mut own.starts, self.ahead()) else { return false };
        self.take_up(other, own);
        true
    }

    /// How many more starts a worker takes at once: none, where its handlers may block.
    fn ahead(&self) -> usize {
        if self.kind == ExecutorKind::Pooled { 0 } else { self.batch - 1 }
    }

    /// Notes whose attempts follow, where they are another consumer's.
    fn take_up(&self, other: Option<Arc<Core>>, own: &mut Own) {
        if let Some(core) = other {
            self.hand_over(own);
            own.core = Some(core);
            own.context = None;
        }
    }

    /// Runs the attempts of the next permit, one after the other, until one fails.
    async fn attempts(self: &Arc<Self>, own: &mut Own) {
        let Some(core) = own.core.take() else { return };
        if let Some(Start { job, more, .. }) = own.starts.pop_front() {
            let mut more = more.into_iter();
            let (mut slot, mut handler, mut context) = (job.slot, job.handler, own.context_of(&core, job));
            loop {
                let outcome =
                    if core.is_cut() { Outcome::CutOff } else { self.attempt(&core, handler, &context, own).await };
                let next = match outcome {
                    Outcome::Handled => {
                        own.completed += 1;
                        more.next()
                    }
                    Outcome::Failed(_) | Outcome::CutOff => {
                        own.failed += 1;
                        None
                    }
                };
                own.ended.push(Ended { slot, outcome, last: next.is_none() });
                let Some(job) = next else { break };
                (slot, handler) = (job.slot, job.handler);
                context.renew(job.event, job.attempt, job.replay);
            }
            own.context = Some(context);
        }
        own.core = Some(core);
    }

    async fn attempt(self: &Arc<Self>, core: &Arc<Core>, handler: usize, context: &Context, own: &mut Own) -> Outcome {
        let mut attempt = std::pin::pin!(core.attempts().of_worker(handler, context));
        if let Poll::Ready(tried) = poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await {
            return outcome_of(tried);
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
            tried = attempt => outcome_of(tried),
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
    /// The context of that consumer's last attempt here, for the next one: counters that several threads share would cost
    /// more than all the rest of it.
    context: Option<Box<Context>>,
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

impl Own {
    fn context_of(&mut self, core: &Core, job: Job) -> Box<Context> {
        match self.context.take() {
            Some(mut context) => {
                context.renew(job.event, job.attempt, job.replay);
                context
            }
            None => Box::new(core.attempts().context(job)),
        }
    }
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
