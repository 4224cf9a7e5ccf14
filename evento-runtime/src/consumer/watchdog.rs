use std::time::Duration;

use evento_core::Position;

use crate::engine::{Counts, Engine};

/// Notices that there is work and nothing comes of it: a consumer never stops without a word.
#[derive(Debug)]
pub(super) struct Watchdog {
    patience: Duration,
    /// What there was when something happened last, and when that was.
    last: Option<(Counts, Position)>,
    since: Duration,
    /// It has been told; once is enough.
    told: bool,
}

impl Watchdog {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, last: None, since: Duration::ZERO, told: false }
    }

    /// Looks at the engine. `unanswered` is since when reads or writes have been without an answer.
    ///
    /// Answers how long nothing has happened, where that is news and there is work.
    pub(super) fn look(&mut self, engine: &Engine, unanswered: Option<Duration>, now: Duration) -> Option<Duration> {
        let counts = engine.counts();
        let standing = Some((counts, engine.frontier()));
        if standing != self.last {
            *self = Self { last: standing, since: now, ..Self::new(self.patience) };
            return None;
        }
        let silent = now.saturating_sub(self.since);
        if self.told || silent < self.patience {
            return None;
        }
        // A pause is meant, and what keeps failing is told elsewhere.
        let waits = unanswered.is_some_and(|since| now >= since + self.patience);
        let work = waits || engine.settled_to() < engine.head();
        if !work || engine.is_paused() || engine.failing().is_some() {
            self.since = now;
            return None;
        }
        self.told = true;
        Some(silent)
    }

    /// When to look again if nothing happens before.
    pub(super) fn look_at(&self) -> Option<Duration> {
        (!self.told).then_some(self.since + self.patience)
    }
}
