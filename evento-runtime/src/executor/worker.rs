//! Executors at work.

use std::{
    fmt,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    thread,
};

use tokio_util::task::TaskTracker;

use super::{
    ConsumerExecutor, ExecutorKind,
    permit::Permits,
    queue::{Next, Queue},
};
use crate::{
    consumer::{Core, Ended},
    engine::{Job, Outcome, Start},
};

/// One executor of a running bundle.
///
/// Its workers live as long as it does and pull their work: nothing is spawned per event. A worker that runs out of work
/// takes its consumer's turn itself, so that a permit that comes free is spent on the thread that freed it.
pub(crate) struct Executor {
    name: String,
    kind: ExecutorKind,
    permits: Arc<Permits>,
    queue: Queue<Work>,
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

/// Attempts of one consumer.
#[derive(Debug)]
struct Work {
    core: Arc<Core>,
    start: Start,
}

/// How many ended attempts a worker keeps to itself at the most.
const BATCH: usize = 32;

impl Executor {
    pub(crate) fn new(described: &ConsumerExecutor, tasks: TaskTracker) -> Arc<Self> {
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
            permits: Permits::new(capacity),
            queue: Queue::new(capacity, threads),
            tasks,
            counters: Counters::default(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn permits(&self) -> &Arc<Permits> {
        &self.permits
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.kind == ExecutorKind::Partitioned
    }

    /// Takes attempts over; each has its permit.
    pub(crate) fn run(self: &Arc<Self>, core: &Arc<Core>, starts: impl Iterator<Item = Start>) {
        let made = self.queue.push(starts.map(|start| {
            self.counters.admitted.fetch_add(1 + start.more.len() as u64, Ordering::Relaxed);
            Work { core: Arc::clone(core), start }
        }));
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
            capacity: self.permits.capacity(),
            in_flight: self.permits.in_use(),
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
                self.tasks.spawn(worker);
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
                self.tasks.spawn(Arc::clone(self).work());
            }
        }
    }

    async fn work(self: Arc<Self>) {
        let mut ended = Batch::default();
        loop {
            let work = match self.queue.try_next() {
                Some(work) => work,
                None => {
                    // What ended here may be what lets the next attempt start.
                    ended.flush();
                    match self.queue.next() {
                        Next::Work(work) => work,
                        Next::Sleep => {
                            self.queue.sleep().await;
                            continue;
                        }
                        Next::End => return,
                    }
                }
            };
            self.attempt(work, &mut ended).await;
            // A blocking handler would sit on what has ended before it.
            if self.kind == ExecutorKind::Pooled {
                ended.flush();
            }
            tokio::task::coop::consume_budget().await;
        }
    }

    /// Runs the attempts of one permit, one after the other, until one fails.
    async fn attempt(self: &Arc<Self>, work: Work, ended: &mut Batch) {
        let Work { core, start } = work;
        let mut left = start.more.len();
        for job in std::iter::once(start.job).chain(start.more) {
            let slot = job.slot;
            let outcome = self.outcome(&core, job, ended).await;
            let counter = match outcome {
                Outcome::Handled => &self.counters.completed,
                Outcome::Failed(_) | Outcome::CutOff => &self.counters.failed,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            let last = left == 0 || !matches!(outcome, Outcome::Handled);
            ended.push(&core, Ended { slot, outcome, last });
            if last {
                return;
            }
            left -= 1;
        }
    }

    async fn outcome(self: &Arc<Self>, core: &Arc<Core>, job: Job, ended: &mut Batch) -> Outcome {
        if core.is_cut() {
            return Outcome::CutOff;
        }
        let mut attempt = core.attempt(job);
        match poll_fn(|context| Poll::Ready(attempt.as_mut().poll(context))).await {
            Poll::Ready(Ok(())) => return Outcome::Handled,
            Poll::Ready(Err(failure)) => return Outcome::Failed(failure),
            Poll::Pending => {}
        }
        ended.flush();
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
}

/// Attempts that have ended, on their way to their consumer.
#[derive(Debug, Default)]
struct Batch {
    core: Option<Arc<Core>>,
    ended: Vec<Ended>,
}

impl Batch {
    fn push(&mut self, core: &Arc<Core>, ended: Ended) {
        if self.core.as_ref().is_none_or(|of| !Arc::ptr_eq(of, core)) {
            self.flush();
            self.core = Some(Arc::clone(core));
        }
        self.ended.push(ended);
        if self.ended.len() >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if let Some(core) = self.core.as_ref().filter(|_| !self.ended.is_empty()) {
            core.ended(&mut self.ended);
        }
        // An idle worker keeps no consumer alive.
        self.core = None;
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
