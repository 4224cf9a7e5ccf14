//! Executors: named, bounded capacity for handlers that run in parallel.

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod interleaved;
mod permit;
mod queue;

use std::fmt;

use evento_core::Location;
use serde::{Deserialize, Serialize};

pub(crate) use self::{
    permit::{Grant, Permits},
    queue::{Next, Queue},
};

/// What runs the handlers that name an executor.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ExecutorKind {
    /// Tokio tasks: for handlers that wait for I/O.
    Tasks,
    /// Its own threads, each with its own runtime, where blocking is allowed: for handlers that compute.
    Pooled,
    /// Tokio tasks, one at a time per consumer and aggregate: for handlers that need each aggregate's order.
    Partitioned,
}

impl ExecutorKind {
    /// The word used in settings, tables and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tasks => "tasks",
            Self::Pooled => "pooled",
            Self::Partitioned => "partitioned",
        }
    }
}

impl fmt::Display for ExecutorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A named capacity budget for a whole bundle: every handler that names it competes for the same permits.
///
/// The constructors take what they are given. A name that no handler could write, a capacity of 0 or a pool that is too
/// small is reported when the bundle starts, together with everything else that is wrong.
///
/// ```
/// use evento_core::ExecutorName;
/// use evento_runtime::ConsumerExecutor;
///
/// const READ_MODEL: ExecutorName = ExecutorName::new("read-model");
///
/// let read_model = ConsumerExecutor::partitioned(READ_MODEL, 32).draws_from("orders-db", 40);
/// assert_eq!((read_model.name(), read_model.capacity()), ("read-model", 32));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use = "an executor does nothing until a bundle is given it: `.executor(..)`"]
pub struct ConsumerExecutor {
    name: String,
    kind: ExecutorKind,
    capacity: usize,
    pool: Option<Pool>,
    /// Where it was made in the application's source; `None` where the settings made it.
    location: Option<Location>,
}

/// A pool of connections, or of anything else that runs out, which executors draw from.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// Its name, which executors that share it have in common.
    pub name: String,
    /// How many it holds.
    pub size: usize,
}

impl ConsumerExecutor {
    /// The most permits an executor of tasks may have: as many positions as a checkpoint keeps open.
    pub const MAX_CAPACITY: usize = 100_000;

    /// The most threads a pooled executor may have.
    pub const MAX_THREADS: usize = 1_024;

    /// Tokio tasks, at most `capacity` at once: for handlers that wait for I/O.
    #[track_caller]
    pub fn tasks(name: impl Into<String>, capacity: usize) -> Self {
        Self::new(name.into(), ExecutorKind::Tasks, capacity, Some(caller()))
    }

    /// `capacity` threads of its own, each with its own current-thread runtime: handlers may block and compute.
    #[track_caller]
    pub fn pooled(name: impl Into<String>, capacity: usize) -> Self {
        Self::new(name.into(), ExecutorKind::Pooled, capacity, Some(caller()))
    }

    /// Tokio tasks, at most `capacity` at once and one at a time per consumer and aggregate, in sequence order.
    #[track_caller]
    pub fn partitioned(name: impl Into<String>, capacity: usize) -> Self {
        Self::new(name.into(), ExecutorKind::Partitioned, capacity, Some(caller()))
    }

    pub(crate) fn new(name: String, kind: ExecutorKind, capacity: usize, location: Option<Location>) -> Self {
        Self { name, kind, capacity, pool: None, location }
    }

    /// Declares that each permit takes one of the `size` places of a pool, a database's connections for example.
    ///
    /// The capacities of all executors that draw from it, and the headroom that the settings leave to everything else,
    /// must fit into its size, or the bundle does not start.
    pub fn draws_from(mut self, pool: impl Into<String>, size: usize) -> Self {
        self.pool = Some(Pool { name: pool.into(), size });
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What runs its handlers.
    #[must_use]
    pub fn kind(&self) -> ExecutorKind {
        self.kind
    }

    /// How many handlers run at once, at most.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The pool that its permits draw from.
    #[must_use]
    pub fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    pub(crate) fn location(&self) -> Option<Location> {
        self.location
    }

    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
    }

    pub(crate) fn set_pool(&mut self, pool: Pool) {
        self.pool = Some(pool);
    }
}

/// The place in the application that called; its module is not known.
#[track_caller]
pub(crate) fn caller() -> Location {
    let place = std::panic::Location::caller();
    Location { file: place.file(), line: place.line(), module: "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_knows_the_line_that_made_it() {
        let made = ConsumerExecutor::tasks("a", 1);
        let line = line!() - 1;
        assert_eq!(made.location().map(|place| (place.file, place.line)), Some((file!(), line)));
    }

    #[test]
    fn nonsense_is_kept_for_the_report_at_start_and_never_panics() {
        let nonsense = ConsumerExecutor::pooled("No Such Name!", 0).draws_from("", 0);
        assert_eq!((nonsense.name(), nonsense.capacity()), ("No Such Name!", 0));
    }
}
