//! What threads of our own meet on: the standard library's, or, for tests under the feature `shuttle`, those of a checker
//! that runs one order of the threads after another.

#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize},
};

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize},
};
use tokio_util::task::TaskTracker;

/// Spawns a task that `tasks` waits for.
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) fn spawn(tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(task);
}

#[cfg(all(test, feature = "shuttle"))]
pub(crate) fn spawn(tasks: &TaskTracker, task: impl Future<Output = ()> + Send + 'static) {
    drop(shuttle::future::spawn(tasks.track_future(task)));
}

#[cfg(all(test, feature = "shuttle"))]
pub(crate) mod order {
    //! Runs a test in many orders.

    use shuttle::{
        Config, Runner,
        scheduler::{PctScheduler, RandomScheduler},
    };

    /// Runs `test` in so many orders of its threads: half of them at random, half with few changes between threads. One
    /// in which every thread waits for another fails, and so does one that never ends. A failure prints its schedule.
    pub(crate) fn each(orders: usize, test: impl Fn() + Send + Sync + 'static) {
        let mut config = Config::new();
        config.stack_size = 512 * 1024;
        let test = std::sync::Arc::new(test);
        let again = std::sync::Arc::clone(&test);
        Runner::new(RandomScheduler::new(orders / 2), config.clone()).run(move || test());
        Runner::new(PctScheduler::new(4, orders / 2), config).run(move || again());
    }
}
