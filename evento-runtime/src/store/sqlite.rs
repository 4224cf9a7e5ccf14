//! A store in a SQLite file.
//!
//! One thread writes, a few read, each on a connection of its own; commands reach them through queues, answers come
//! back to whoever awaits them. Dropping a future that waits for an answer drops the answer, never the work.

mod checkpoint;
mod claim;
mod connection;
mod consumer;
mod dead_event;
mod log;
mod number;
mod queue;
mod request;
mod schema;
mod thread;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use evento_core::{
    BoxFuture,
    store::{OpenStore, Store, StoreError},
};

use self::thread::Threads;

/// How much a write waits for the disk.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Synchronous {
    /// A crash of the process loses nothing; a power failure may lose the last writes, never the file's consistency.
    #[default]
    Normal,
    /// A power failure loses nothing that was answered; every write waits for the disk.
    Full,
}

/// Describes a store in a SQLite file: opened, and created where it is missing, only by [`OpenStore::open`].
///
/// ```
/// use evento_core::store::OpenStore;
/// use evento_runtime::store::{SqliteStore, Synchronous};
///
/// let store = SqliteStore::at("shop.db").synchronous(Synchronous::Full);
/// assert_eq!(store.describe(), "sqlite at shop.db");
/// assert!(store.problems().is_empty());
/// assert!(!SqliteStore::at("").problems().is_empty());
/// ```
///
/// The file is in write-ahead mode. The tables are named `evento_..`; an application may keep its own beside them.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    path: PathBuf,
    synchronous: Synchronous,
    busy_timeout: Duration,
}

impl SqliteStore {
    /// The longest that a write may be told to wait for another process.
    pub const MAX_BUSY_TIMEOUT: Duration = Duration::from_secs(60);

    /// The store in the file at `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), synchronous: Synchronous::default(), busy_timeout: Duration::from_secs(5) }
    }

    /// How much a write waits for the disk; [`Synchronous::Normal`] by default.
    #[must_use]
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// How long a write waits for another process that is writing, before the store counts as unavailable; 5 s by
    /// default, at most [`Self::MAX_BUSY_TIMEOUT`].
    #[must_use]
    pub fn busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl OpenStore for SqliteStore {
    fn describe(&self) -> String {
        format!("sqlite at {}", self.path.display())
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let path = self.path.to_string_lossy();
        if path.trim().is_empty() {
            problems
                .push("the path of the sqlite store is empty: write one such as `SqliteStore::at(\"shop.db\")`".into());
        } else if path.starts_with(":memory:") {
            problems.push("a sqlite store needs a file: for one in memory write `MemoryStore::new()`".into());
        } else if path.starts_with("file:") {
            problems.push(format!("`{path}` is a URI: write the plain path of the sqlite file"));
        } else if path.contains('\0') {
            problems.push("the path of the sqlite store holds a zero byte: write it without".into());
        }
        if self.busy_timeout > Self::MAX_BUSY_TIMEOUT {
            let (given, most) = (self.busy_timeout, Self::MAX_BUSY_TIMEOUT);
            problems.push(format!("a sqlite busy timeout of {given:?} is too long: write at most {most:?}"));
        }
        problems
    }

    fn open(&self) -> BoxFuture<'_, Result<Arc<dyn Store>, StoreError>> {
        Box::pin(async move {
            if let Some(problem) = self.problems().into_iter().next() {
                return Err(StoreError::Refused(problem));
            }
            let threads = Threads::start(self).await?;
            Ok(Arc::new(OpenSqlite { threads, description: self.describe() }) as Arc<dyn Store>)
        })
    }
}

/// An open file.
struct OpenSqlite {
    threads: Threads,
    description: String,
}

impl fmt::Debug for OpenSqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenSqlite({})", self.description)
    }
}

impl Store for OpenSqlite {
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.threads.close())
    }
}
