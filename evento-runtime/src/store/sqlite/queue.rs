use std::{
    collections::VecDeque,
    mem,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use evento_core::store::StoreError;

use super::thread::{Job, stopped};

/// Which of the writer's commands goes first.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Lane {
    /// Claims: nothing that others queue may cost one its time to live.
    Claim,
    /// An append: wakes readers once it has committed.
    Append,
    /// Everything else.
    Other,
}

/// Commands that wait for a thread.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

#[derive(Default)]
struct Waiting {
    claims: VecDeque<Box<dyn Job>>,
    others: VecDeque<(Lane, Box<dyn Job>)>,
    closed: bool,
}

impl Waiting {
    fn pop(&mut self) -> Option<(Lane, Box<dyn Job>)> {
        self.claims.pop_front().map(|job| (Lane::Claim, job)).or_else(|| self.others.pop_front())
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, lane: Lane, job: Box<dyn Job>) -> Result<(), StoreError> {
        let mut waiting = self.lock();
        if waiting.closed {
            return Err(stopped());
        }
        match lane {
            Lane::Claim => waiting.claims.push_back(job),
            Lane::Append | Lane::Other => waiting.others.push_back((lane, job)),
        }
        drop(waiting);
        self.arrived.notify_one();
        Ok(())
    }

    /// Waits for a command; `None` once the queue is closed and empty.
    pub(super) fn next(&self) -> Option<(Lane, Box<dyn Job>)> {
        let mut waiting = self.lock();
        loop {
            if let Some(job) = waiting.pop() {
                return Some(job);
            }
            if waiting.closed {
                return None;
            }
            waiting = self.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn try_next(&self) -> Option<(Lane, Box<dyn Job>)> {
        self.lock().pop()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }
}

/// Empties a queue when a thread that serves it ends.
pub(super) struct Abandon<'a>(pub(super) &'a Queue);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        // Ended out of turn, it refuses what comes and drops what waits, which answers it. In turn, nothing waits.
        waiting.closed = true;
        let left = (mem::take(&mut waiting.claims), mem::take(&mut waiting.others));
        drop(waiting);
        drop(left);
        self.0.arrived.notify_all();
    }
}
