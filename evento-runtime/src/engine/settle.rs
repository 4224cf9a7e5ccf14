use std::ops::Bound;

use evento_core::{OnDead, Position, RecordedEvent, store::DeadReason};

use super::{
    Engine, Now, Slot,
    active::{Active, Stage},
};

/// What becomes of an event in the end.
impl Engine {
    pub(super) fn settle(&mut self, slot: Slot, event: &RecordedEvent) {
        match slot {
            Slot::Stream => self.settle_position(event.position(), true),
            Slot::Drain(id) => self.settle_drained(id, event.position()),
        }
    }

    pub(super) fn settle_position(&mut self, position: Position, counts: bool) {
        if position <= self.pending.frontier() {
            self.settle_open(position);
        } else {
            self.forget_retries_between(self.pending.frontier(), position.just_before());
            self.pending.settled(position, counts);
        }
        self.forget(position);
    }

    pub(super) fn settle_open(&mut self, position: Position) {
        if self.open.remove(&position) {
            self.pending.close(position);
        }
        self.forget(position);
    }

    /// Drops what was stored of the event's attempts.
    pub(super) fn forget(&mut self, position: Position) {
        if !self.retries.is_empty() && self.retries.remove(&position).is_some() {
            self.pending.retry_ended(position);
        }
        if !self.crashes.is_empty() {
            self.crashes.remove(&position);
        }
        self.pending.start_ended(position);
    }

    /// What was recorded of the event's start is as before it. The count of deaths is that of *earlier* starts, so what
    /// is stored is one less than what the next process that finds it so will count.
    pub(super) fn unbegin(&mut self, event: &RecordedEvent) {
        let position = event.position();
        match self.crashes.get(&position) {
            Some(deaths) => self.pending.start_put_back(position, event.key_hash(), deaths - 1),
            None => self.pending.start_ended(position),
        }
    }

    /// Retries of events that the source no longer hands over: their handler is gone.
    pub(super) fn forget_retries_between(&mut self, from: Position, to: Position) {
        if self.retries.is_empty() || from >= to {
            return;
        }
        let gone: Vec<_> =
            self.retries.range((Bound::Excluded(from), Bound::Included(to))).map(|(at, _)| *at).collect();
        for position in gone {
            self.counts.skipped += 1;
            self.forget(position);
        }
    }

    /// Gives the event up: its place is free once letter and held key are stored.
    pub(super) fn die(&mut self, slot: Slot, active: &mut Active, reason: DeadReason, now: Now) {
        let parks = match slot {
            Slot::Stream => self.config.on_dead == OnDead::Park,
            Slot::Drain(id) => self.drains.parks(id),
        };
        if parks {
            self.pending.hold(self.keys.die(&active.event));
        }
        let letter = active.letter(reason, parks, now.wall);
        active.stage = Stage::Dying;
        active.needs_write = self.pending.dead(letter);
    }

    pub(super) fn settle_dead(&mut self, slot: Slot, active: &Active) {
        let position = active.event.position();
        match slot {
            Slot::Stream => {
                self.counts.dead += 1;
                self.settle_position(position, true);
            }
            Slot::Drain(id) => self.drain_died(id, position),
        }
    }
}
