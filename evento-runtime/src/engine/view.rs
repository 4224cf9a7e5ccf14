use std::fmt;

use evento_core::{Position, store::Revision};

use super::{Counts, Engine, Failing, OutOfOrder, active::Active};

/// What people and tests ask.
impl Engine {
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The last position admitted and settled.
    pub(crate) fn frontier(&self) -> Position {
        self.pending.frontier()
    }

    /// Everything at or below this position is settled, dead or parked.
    pub(crate) fn settled_to(&self) -> Position {
        let lowest = self.open.first().copied().into_iter().chain(self.keys.lowest_waiting()).min();
        lowest.map_or(self.pending.frontier(), |open| open.just_before().min(self.pending.frontier()))
    }

    /// The last head a page told of.
    pub(crate) fn head(&self) -> Position {
        self.head
    }

    /// The event being handled or waiting for its next attempt, and how it stands.
    pub(crate) fn failing(&self) -> Option<Failing> {
        self.active.iter().chain(self.drains.actives()).find_map(Active::failing)
    }

    /// Why nothing more is handed over.
    pub(crate) fn out_of_order(&self) -> Option<&OutOfOrder> {
        self.out_of_order.as_ref()
    }

    /// Whether the next to take the claim is to record starts too: not everything up to the head as of an unclean taking
    /// is settled yet, or processes died at an event that is not.
    pub(crate) fn guards(&self) -> bool {
        !self.crashes.is_empty() || self.settled_to() < self.guard_until
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// How many aggregates have events parked behind a dead one.
    pub(crate) fn keys_dead(&self) -> usize {
        self.keys.dead()
    }

    /// Whether nothing has a place, is asked for or is left to write.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.active.is_none() && self.drains.is_empty() && self.requests.is_empty() && self.pending.is_clean()
    }

    /// Whether nothing runs and nothing is left to write.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopping && self.running.is_none() && self.pending.is_clean()
    }

    /// The revision that the write under way replaces.
    pub(crate) fn replaces(&self) -> Option<Revision> {
        self.pending.replaces()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("frontier", &self.pending.frontier())
            .field("running", &self.running)
            .field("active", &self.active)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
