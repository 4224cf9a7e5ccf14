#[cfg(test)]
mod tests;

use std::{
    any::Any,
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use evento_core::{
    BoxFuture,
    store::{StoreError, Wake},
};
use rusqlite::Connection;
use tokio::sync::{oneshot, watch};

use super::{
    SqliteStore,
    connection::{Failure, open_reader, open_writer, store_error},
    queue::{Abandon, Lane, Queue},
};

const READERS: usize = 2;

/// A transaction takes in what is queued until it has lasted this long, so that a claim's renewal never waits much
/// longer than that.
const GROUP_TIME: Duration = Duration::from_millis(5);
const GROUP_JOBS: usize = 64;

/// The threads of one open file. Dropping it ends them once they have done what is queued.
pub(super) struct Threads {
    writes: Arc<Queue>,
    reads: Arc<Queue>,
    wakes: Arc<Mutex<Vec<Wake>>>,
    /// Each thread holds a receiver until its connection is closed.
    running: watch::Sender<()>,
    handles: Mutex<Vec<JoinHandle<()>>>,
}

impl Threads {
    pub(super) async fn start(store: &SqliteStore) -> Result<Self, StoreError> {
        let threads = Self {
            writes: Arc::default(),
            reads: Arc::default(),
            wakes: Arc::default(),
            running: watch::Sender::new(()),
            handles: Mutex::default(),
        };
        // The writer comes first: it creates what the readers open.
        let wakes = Arc::clone(&threads.wakes);
        threads
            .spawn("evento-sqlite-writer".to_owned(), &threads.writes, store, open_writer, move |conn, queue| {
                write_all(conn, queue, &wakes);
            })
            .await?;
        for number in 1..=READERS {
            threads
                .spawn(format!("evento-sqlite-reader-{number}"), &threads.reads, store, open_reader, read_all)
                .await?;
        }
        Ok(threads)
    }

    async fn spawn(
        &self,
        name: String,
        queue: &Arc<Queue>,
        store: &SqliteStore,
        open: fn(&SqliteStore) -> Result<Connection, StoreError>,
        work: impl FnOnce(&Connection, &Queue) + Send + 'static,
    ) -> Result<(), StoreError> {
        let (ready, opened) = oneshot::channel();
        let (queue, store, running) = (Arc::clone(queue), store.clone(), self.running.subscribe());
        let thread = move || {
            let _running = running;
            // Whatever ends the thread, nobody waits for an answer that cannot come.
            let _abandoned = Abandon(&queue);
            match open(&store) {
                Ok(conn) => {
                    if ready.send(Ok(())).is_ok() {
                        work(&conn, &queue);
                    }
                }
                // An opener that has gone away wants no answer.
                Err(error) => drop(ready.send(Err(error))),
            }
        };
        let handle = thread::Builder::new().name(name).spawn(thread).map_err(StoreError::unavailable)?;
        self.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        opened.await.map_err(|_| stopped())?
    }

    /// Has the writer run `work` in a transaction: kept if it answers `Ok`, undone if not.
    pub(super) fn write<'a, T, E>(
        &'a self,
        lane: Lane,
        work: impl FnOnce(&Connection) -> Result<T, Failure<E>> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, E>>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.submit(&self.writes, lane, work)
    }

    /// Has a reader run `work` on one snapshot.
    pub(super) fn read<'a, T, E>(
        &'a self,
        work: impl FnOnce(&Connection) -> Result<T, Failure<E>> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, E>>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        self.submit(&self.reads, Lane::Other, work)
    }

    fn submit<'a, T, E>(
        &'a self,
        queue: &'a Queue,
        lane: Lane,
        work: impl FnOnce(&Connection) -> Result<T, Failure<E>> + Send + 'static,
    ) -> BoxFuture<'a, Result<T, E>>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            queue.push(lane, Box::new(Work { work: Some(work), result: None, answer }))?;
            answered.await.map_err(|_| stopped())?
        })
    }

    pub(super) fn on_append(&self, wake: Wake) {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    /// Lets the threads do what is queued, and waits for their end without blocking the runtime.
    pub(super) async fn close(&self) {
        self.writes.close();
        self.reads.close();
        self.running.closed().await;
        let handles = mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            // It has let go of its connection: what is left of it is its return. One that panicked has told already.
            drop(handle.join());
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.writes.close();
        self.reads.close();
    }
}

pub(super) fn stopped() -> StoreError {
    StoreError::unavailable(io::Error::other("the sqlite store is closed, or one of its threads has ended"))
}

fn panicked(panic: &(dyn Any + Send)) -> StoreError {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("with no message");
    StoreError::unavailable(io::Error::other(format!("the store's job panicked: {text}")))
}

/// A command on its way.
pub(super) trait Job: Send {
    /// Runs it, and tells whether what it did is to be kept: nothing of one that panics is.
    fn run(&mut self, conn: &Connection) -> bool;
    /// Whether somebody still wants its answer.
    fn is_wanted(&self) -> bool;
    /// Answers: with what running it gave, or with why that could not be kept.
    fn finish(self: Box<Self>, lost: Option<StoreError>);
}

struct Work<F, T, E> {
    work: Option<F>,
    result: Option<Result<T, E>>,
    answer: oneshot::Sender<Result<T, E>>,
}

impl<F, T, E> Job for Work<F, T, E>
where
    F: FnOnce(&Connection) -> Result<T, Failure<E>> + Send,
    T: Send,
    E: From<StoreError> + Send,
{
    fn run(&mut self, conn: &Connection) -> bool {
        let Some(work) = self.work.take() else { return false };
        // What it wrote is undone; what it holds is dropped.
        let ran = catch_unwind(AssertUnwindSafe(|| work(conn)));
        let result = match ran {
            Ok(result) => result.map_err(Failure::into_error),
            Err(panic) => Err(panicked(&*panic).into()),
        };
        let keep = result.is_ok();
        self.result = Some(result);
        keep
    }

    fn is_wanted(&self) -> bool {
        !self.answer.is_closed()
    }

    fn finish(self: Box<Self>, lost: Option<StoreError>) {
        let answer = match (lost, self.result) {
            (Some(lost), _) => Err(lost.into()),
            (None, Some(result)) => result,
            (None, None) => Err(stopped().into()),
        };
        // Who asked may have gone: the work stands all the same.
        drop(self.answer.send(answer));
    }
}

fn write_all(conn: &Connection, queue: &Queue, wakes: &Mutex<Vec<Wake>>) {
    let mut groups = 0_u32;
    while let Some(first) = queue.next() {
        let appended = write_group(conn, queue, first);
        groups = groups.wrapping_add(1);
        if groups.is_multiple_of(64)
            && let Err(error) = super::connection::shorten_log(conn)
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "the write-ahead file cannot be shortened now; it grows until it can");
        }
        if appended {
            let wakes = wakes.lock().unwrap_or_else(PoisonError::into_inner).clone();
            for wake in wakes {
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| wake())) {
                    let error = &panicked(&*panic) as &dyn std::error::Error;
                    tracing::error!(error, "what was to be woken by an append is not: it finds it by its poll");
                }
            }
        }
    }
}

/// Runs one transaction with what is queued by now; each command is undone by itself if it fails. Answers whether an
/// append is among what was kept.
fn write_group(conn: &Connection, queue: &Queue, first: (Lane, Box<dyn Job>)) -> bool {
    let began = Instant::now();
    let mut group: Vec<Box<dyn Job>> = Vec::new();
    let mut appended = false;
    let mut next = Some(first);
    let mut outcome = execute(conn, "BEGIN IMMEDIATE");
    while outcome.is_ok()
        && let Some((lane, mut job)) = next.take()
    {
        if job.is_wanted() {
            // The first has the transaction to itself: guarding it would copy every page it changes.
            let ran = if group.is_empty() { run_first(conn, job.as_mut()) } else { run_guarded(conn, job.as_mut()) };
            match ran {
                Ok(kept) => appended |= kept && lane == Lane::Append,
                Err(error) => outcome = Err(error),
            }
        }
        group.push(job);
        if group.len() < GROUP_JOBS && began.elapsed() < GROUP_TIME {
            next = queue.try_next();
        }
    }
    // Left where the transaction did not begin, or broke.
    group.extend(next.map(|(_, job)| job));
    outcome = outcome.and_then(|()| execute(conn, "COMMIT"));
    if outcome.is_err() && !conn.is_autocommit() {
        // If even that fails, the next BEGIN will, and say so.
        drop(execute(conn, "ROLLBACK"));
    }
    let lost = outcome.err();
    for job in group {
        job.finish(lost.as_ref().map(same_error));
    }
    appended && lost.is_none()
}

/// Runs the first command of a transaction, which begins anew if that command is undone. Answers whether it is kept.
fn run_first(conn: &Connection, job: &mut dyn Job) -> Result<bool, StoreError> {
    let keep = job.run(conn);
    check_open(conn)?;
    if !keep {
        execute(conn, "ROLLBACK")?;
        execute(conn, "BEGIN IMMEDIATE")?;
    }
    Ok(keep)
}

/// Runs a further command so that it can be undone by itself. Answers whether it is kept.
fn run_guarded(conn: &Connection, job: &mut dyn Job) -> Result<bool, StoreError> {
    execute(conn, "SAVEPOINT evento_job")?;
    let keep = job.run(conn);
    check_open(conn)?;
    if !keep {
        execute(conn, "ROLLBACK TO evento_job")?;
    }
    execute(conn, "RELEASE evento_job")?;
    Ok(keep)
}

/// A full disk and its like end the whole transaction, whatever the command made of it.
fn check_open(conn: &Connection) -> Result<(), StoreError> {
    if conn.is_autocommit() { Err(StoreError::unavailable("sqlite ended the transaction")) } else { Ok(()) }
}

/// What became of one transaction, told to each command that was in it.
fn same_error(error: &StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { what } => StoreError::Corrupt { what: what.clone() },
        StoreError::Unavailable { source } => StoreError::unavailable(source.to_string()),
        other => StoreError::unavailable(other.to_string()),
    }
}

fn read_all(conn: &Connection, queue: &Queue) {
    while let Some((_, mut job)) = queue.next() {
        if !job.is_wanted() {
            continue;
        }
        let begun = execute(conn, "BEGIN");
        if begun.is_ok() {
            job.run(conn);
        }
        // A snapshot that cannot be let go is of no more use than one that could not be taken.
        let outcome = begun.and_then(|()| if conn.is_autocommit() { Ok(()) } else { execute(conn, "COMMIT") });
        job.finish(outcome.err());
    }
}

fn execute(conn: &Connection, sql: &str) -> Result<(), StoreError> {
    conn.prepare_cached(sql).and_then(|mut statement| statement.execute([])).map(drop).map_err(store_error)
}
