//! The queue between consumers that start work and the workers that run it.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, PoisonError},
};

use tokio::sync::Semaphore;

use crate::sync::{Mutex, MutexGuard};

/// Work of several owners for a bounded number of workers, of which no more are awake than can be of use.
///
/// As many sleepers are woken as there are threads to run them; a worker whose handler waits wakes the next. So handlers
/// that return at once keep few workers busy without a wake-up per event, and handlers that wait spread over all of them.
pub(crate) struct Queue<O, W> {
    state: Mutex<State<O, W>>,
    /// One permit wakes one sleeper.
    sleepers: Semaphore,
}

struct State<O, W> {
    /// Work, with its owner: an owner's neighbours are together, so that it is not counted for each.
    work: VecDeque<(O, VecDeque<W>)>,
    waiting: usize,
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
pub(crate) enum Next<O> {
    /// There is work, of another owner if one is given.
    Work(Option<O>),
    /// Sleep until woken.
    Sleep,
    /// The queue is closed and empty.
    End,
}

impl<O: Clone + Same, W> Queue<O, W> {
    /// `most` workers at the most, of which `threads` can run at once.
    pub(crate) fn new(most: usize, threads: usize) -> Self {
        let state =
            State { work: VecDeque::new(), waiting: 0, awake: 0, sleeping: 0, made: 0, most, threads, closed: false };
        Self { state: Mutex::new(state), sleepers: Semaphore::new(0) }
    }

    /// Adds an owner's work. Answers how many workers are to be made for it.
    #[must_use]
    pub(crate) fn push(&self, owner: &O, work: impl ExactSizeIterator<Item = W>) -> usize {
        let mut state = self.state();
        state.waiting += work.len();
        match state.work.back_mut() {
            Some((last, of_last)) if last.same(owner) => of_last.extend(work),
            _ => state.work.push_back((owner.clone(), work.collect())),
        }
        let (woken, made) = state.rouse();
        drop(state);
        if woken > 0 {
            self.sleepers.add_permits(woken);
        }
        made
    }

    /// Puts the next piece of work into `work`, with up to `most` further ones of the same owner, and answers that owner where
    /// it is not `owner`. A worker that is told to sleep calls [`Queue::sleep`].
    pub(crate) fn next(&self, owner: Option<&O>, work: &mut VecDeque<W>, most: usize) -> Next<O> {
        let mut state = self.state();
        if let Some(other) = state.pop(owner, work, most) {
            return Next::Work(other);
        }
        state.awake -= 1;
        if state.closed {
            return Next::End;
        }
        state.sleeping += 1;
        Next::Sleep
    }

    /// The same where there is work; the worker that finds none stays awake.
    pub(crate) fn try_next(&self, owner: Option<&O>, work: &mut VecDeque<W>, most: usize) -> Option<Option<O>> {
        self.state().pop(owner, work, most)
    }

    /// Puts back what a worker has taken of an owner's work and does not come to. Answers how many workers are to be made.
    #[must_use]
    pub(crate) fn put_back(&self, owner: &O, work: &mut VecDeque<W>) -> usize {
        let mut state = self.state();
        state.waiting += work.len();
        state.work.push_front((owner.clone(), std::mem::take(work)));
        let (woken, made) = state.rouse();
        drop(state);
        self.sleepers.add_permits(woken);
        made
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

    fn state(&self) -> MutexGuard<'_, State<O, W>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether two owners are one.
pub(crate) trait Same {
    fn same(&self, other: &Self) -> bool;
}

impl<T> Same for Arc<T> {
    fn same(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}

impl<O: Clone + Same, W> State<O, W> {
    fn pop(&mut self, owner: Option<&O>, taken: &mut VecDeque<W>, most: usize) -> Option<Option<O>> {
        loop {
            let (of, work) = self.work.front_mut()?;
            if !work.is_empty() {
                // The less there is, the less each takes: nobody sits on what another could do.
                let take = (1 + most.min(self.waiting / (2 * self.threads))).min(work.len());
                taken.extend(work.drain(..take));
                self.waiting -= take;
                return Some(owner.is_none_or(|owner| !owner.same(of)).then(|| of.clone()));
            }
            self.work.pop_front();
        }
    }

    /// Counts workers awake for the work there is: sleepers first, then new ones.
    fn rouse(&mut self) -> (usize, usize) {
        let (mut woken, mut made) = (0, 0);
        while self.awake < self.threads && woken + made < self.waiting {
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

impl<O: Clone + Same, W> fmt::Debug for Queue<O, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("Queue").field("work", &state.waiting).field("awake", &state.awake).finish_non_exhaustive()
    }
}
