//! The queue between consumers that start work and the workers that run it.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Semaphore;

/// Work for a bounded number of workers, of which no more are awake than can be of use.
///
/// As many sleepers are woken as there are threads to run them; a worker whose handler waits wakes the next. So handlers
/// that return at once keep few workers busy without a wake-up per event, and handlers that wait spread over all of them.
pub(crate) struct Queue<W> {
    state: Mutex<State<W>>,
    /// One permit wakes one sleeper.
    sleepers: Semaphore,
}

struct State<W> {
    work: VecDeque<W>,
    /// Workers that run on a thread now, or are about to.
    awake: usize,
    sleeping: usize,
    made: usize,
    most: usize,
    /// How many awake workers are of use.
    threads: usize,
    closed: bool,
}

/// What a worker does next.
pub(crate) enum Next<W> {
    Work(W),
    /// Sleep until woken.
    Sleep,
    /// The queue is closed and empty.
    End,
}

impl<W> Queue<W> {
    /// `most` workers at the most, of which `threads` can run at once.
    pub(crate) fn new(most: usize, threads: usize) -> Self {
        let state = State { work: VecDeque::new(), awake: 0, sleeping: 0, made: 0, most, threads, closed: false };
        Self { state: Mutex::new(state), sleepers: Semaphore::new(0) }
    }

    /// Adds work. Answers how many workers are to be made for it.
    #[must_use]
    pub(crate) fn push(&self, work: impl Iterator<Item = W>) -> usize {
        let mut state = self.state();
        state.work.extend(work);
        let (woken, made) = state.rouse();
        drop(state);
        self.sleepers.add_permits(woken);
        made
    }

    /// The next piece of work. A worker that is told to sleep calls [`Queue::sleep`].
    pub(crate) fn next(&self) -> Next<W> {
        let mut state = self.state();
        if let Some(work) = state.work.pop_front() {
            return Next::Work(work);
        }
        state.awake -= 1;
        if state.closed {
            return Next::End;
        }
        state.sleeping += 1;
        Next::Sleep
    }

    /// Takes work only if there is some, without going to sleep.
    pub(crate) fn try_next(&self) -> Option<W> {
        self.state().work.pop_front()
    }

    /// Sleeps until there is work, or the queue is closed.
    pub(crate) async fn sleep(&self) {
        if let Ok(woken) = self.sleepers.acquire().await {
            woken.forget();
        }
    }

    /// The caller's handler waits: its thread can run another worker. Answers how many are to be made.
    #[must_use]
    pub(crate) fn waits(&self) -> usize {
        let mut state = self.state();
        state.awake -= 1;
        let (woken, made) = state.rouse();
        drop(state);
        self.sleepers.add_permits(woken);
        made
    }

    /// The caller's handler has returned after it waited.
    pub(crate) fn goes_on(&self) {
        self.state().awake += 1;
    }

    /// Has every worker end once the work is done.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let sleeping = std::mem::take(&mut state.sleeping);
        state.awake += sleeping;
        drop(state);
        self.sleepers.add_permits(sleeping);
    }

    fn state(&self) -> MutexGuard<'_, State<W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> State<W> {
    /// Counts workers awake for the work there is: sleepers first, then new ones.
    fn rouse(&mut self) -> (usize, usize) {
        let (mut woken, mut made) = (0, 0);
        while self.awake < self.threads && woken + made < self.work.len() {
            if self.sleeping > 0 {
                self.sleeping -= 1;
                woken += 1;
            } else if self.made < self.most {
                self.made += 1;
                made += 1;
            } else {
                break;
            }
            self.awake += 1;
        }
        (woken, made)
    }
}

impl<W> fmt::Debug for Queue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Queue").field("work", &state.work.len()).field("awake", &state.awake).finish_non_exhaustive()
    }
}
