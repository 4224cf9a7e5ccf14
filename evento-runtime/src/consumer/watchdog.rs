use std::time::Duration;

use evento_core::{ConsumerKey, Position};

use crate::engine::{Counts, Engine};

/// Notices that there is work and nothing comes of it: a consumer never stops without a word.
#[derive(Debug)]
pub(super) struct Watchdog {
    patience: Duration,
    /// What there was when something happened last, and when that was.
    last: Option<(Counts, Position)>,
    since: Duration,
    /// Since when reads or writes have been without an answer.
    unanswered_since: Option<Duration>,
    /// It has been told; once is enough.
    told: bool,
}

impl Watchdog {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, last: None, since: Duration::ZERO, unanswered_since: None, told: false }
    }

    /// A read or a write has been answered.
    pub(super) fn answered(&mut self) {
        self.unanswered_since = None;
    }

    /// Looks at the engine, and says so where there is work and nothing comes of it. `unanswered` is how many reads and
    /// writes are under way.
    pub(super) fn look(&mut self, consumer: &ConsumerKey, engine: &Engine, unanswered: usize, now: Duration) {
        self.unanswered_since = (unanswered > 0).then(|| self.unanswered_since.unwrap_or(now));
        let standing = Some((engine.counts(), engine.frontier()));
        if standing != self.last {
            (self.last, self.since, self.told) = (standing, now, false);
            return;
        }
        let silent = now.saturating_sub(self.since);
        if self.told || silent < self.patience {
            return;
        }
        // A pause is meant, and what keeps failing is told elsewhere.
        let waits = self.unanswered_since.is_some_and(|since| now >= since + self.patience);
        let work = waits || engine.settled_to() < engine.head();
        if !work || engine.is_paused() || engine.failing().is_some() {
            self.since = now;
            return;
        }
        self.told = true;
        let running: Vec<_> = engine.running().take(20).map(|position| position.to_string()).collect();
        tracing::error!(
            %consumer, ?silent, running = running.join(", "), ?engine, unanswered,
            "there is work, and nothing has started or ended: a handler that does not return, or a store that does not \
             answer; give handlers a `timeout`"
        );
    }

    /// When to look again if nothing happens before.
    pub(super) fn look_at(&self) -> Option<Duration> {
        (!self.told).then_some(self.since + self.patience)
    }
}
