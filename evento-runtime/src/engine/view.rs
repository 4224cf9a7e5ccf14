use std::fmt;

use evento_core::{Position, store::Revision};

use super::{
    Counts, Engine, Failing, OutOfOrder,
    slot::{Origin, Slot, Stage},
};

/// How an executor stands, as one consumer sees it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct UseCounts {
    pub(crate) in_flight: usize,
    pub(crate) rejected: u64,
}

/// What people and tests ask.
impl Engine {
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn executor_counts(&self, executor: usize) -> UseCounts {
        let used = &self.uses[executor];
        UseCounts { in_flight: used.running, rejected: used.rejected }
    }

    /// The last position taken in.
    pub(crate) fn frontier(&self) -> Position {
        self.admitted
    }

    /// Everything at or below this position is settled, dead or parked.
    pub(crate) fn settled_to(&self) -> Position {
        let in_slots = self.slots.iter().filter(|slot| slot.origin != Origin::Redriven).map(Slot::position).min();
        let open = self.unrecovered.first().copied().into_iter().chain(self.off_slot.keys().next().copied());
        let lowest = open.chain(in_slots).chain(self.keys.lowest_waiting()).min();
        lowest.map_or(self.admitted, |open| open.just_before().min(self.admitted))
    }

    /// The last head a page told of.
    pub(crate) fn head(&self) -> Position {
        self.head
    }

    /// An event that has failed and has not settled: the oldest.
    pub(crate) fn failing(&self) -> Option<Failing> {
        let failed = self.slots.iter().filter(|slot| slot.tried.is_some() && slot.attempts() > 0);
        failed.min_by_key(|slot| slot.position())?.failing()
    }

    /// How many events are open, where nothing more is taken in for that.
    pub(crate) fn too_many_open(&self) -> Option<usize> {
        self.crowded.then(|| self.slots.len() + self.off_slot.len())
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

    /// Whether nothing is in memory, is held back, is asked for or is left to write.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.slots.len() == 0
            && self.lanes.iter().all(|lane| lane.aside.is_none())
            && self.requests.is_idle()
            && self.pending.is_clean()
    }

    /// Whether nothing runs and nothing is left to write.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopping && self.busy == 0 && self.recording.is_empty() && self.dying.is_empty() && self.pending.is_clean()
    }

    /// Where the event in a slot is.
    pub(crate) fn position_of(&self, slot: super::SlotId) -> Option<Position> {
        self.slots.get(slot).map(Slot::position)
    }

    /// The events whose handlers run.
    pub(crate) fn running(&self) -> impl Iterator<Item = Position> {
        self.slots.iter().filter(|slot| slot.stage == Stage::Running).map(Slot::position)
    }

    /// The revision that the write under way replaces.
    pub(crate) fn replaces(&self) -> Option<Revision> {
        self.pending.replaces()
    }

    /// Whether the event in a slot is handled again beside the stream.
    #[cfg(feature = "simulation")]
    pub(crate) fn redelivery(&self, slot: super::SlotId) -> super::Redelivery {
        match self.slots.get(slot).map(|slot| slot.origin) {
            Some(Origin::Redriven) => super::Redelivery::Dead,
            Some(Origin::Released) => super::Redelivery::Parked,
            Some(Origin::Stream | Origin::Again) | None => super::Redelivery::No,
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("admitted", &self.admitted)
            .field("slots", &self.slots.len())
            .field("busy", &self.busy)
            .field("ready", &self.ready.iter().map(std::collections::VecDeque::len).sum::<usize>())
            .field("recording", &self.recording.len())
            .field("dying", &self.dying.len())
            .field("asides", &self.lanes.aside.len())
            .field("off_slot", &self.off_slot.len())
            .field("unrecovered", &self.unrecovered.len())
            .field("pages", &self.pages.len())
            .field("fetching", &self.fetching)
            .field("at_head", &self.at_head)
            .field("barrier", &self.barrier)
            .field("writing", &self.pending.is_writing())
            .field("executors", &(0..self.uses.len()).map(|index| self.executor_counts(index)).collect::<Vec<_>>())
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
