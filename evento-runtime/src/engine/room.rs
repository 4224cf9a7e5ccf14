use std::sync::Arc;

use evento_core::store::WhyHeld;

use super::{
    Engine, Run,
    lane::{Aside, Lane, ReadState},
    slot::{LaneId, Origin, Slot, SlotId, Stage},
};

/// Room in memory.
impl Engine {
    /// Whether another of the stream's events may be in memory for the executor. One that waits for another attempt
    /// gives its place back where a permit is free and nothing else could use it.
    pub(super) fn has_room(&mut self, executor: usize) -> bool {
        let used = &self.uses[executor];
        let nothing_ready = used.handlers.iter().all(|&handler| self.ready[handler].is_empty());
        let starves = used.running < used.limits.capacity && nothing_ready;
        // What waits behind an attempt that never returns does not keep out what could run.
        if self.bytes >= self.config.max_bytes && self.slots.len() > 0 && !starves {
            return false;
        }
        if used.in_memory < used.limits.look_ahead {
            return true;
        }
        if starves {
            return (self.give_back(executor, Origin::Stream) || self.crowd_out(executor))
                && self.uses[executor].in_memory < self.uses[executor].limits.look_ahead;
        }
        false
    }

    /// Has the event that waits longest for its next attempt give its place back.
    pub(super) fn give_back(&mut self, executor: usize, origin: Origin) -> bool {
        let stored = |id: &SlotId| {
            let slot = self.slots.get(*id);
            slot.is_some_and(|slot| self.pending.is_written(slot.needs_write) && slot.origin == origin)
        };
        let Some(&(due, id)) = self.uses[executor].waiting.iter().rev().find(|(_, id)| stored(id)) else {
            return false;
        };
        let Some(slot) = self.slots.get(id) else { return false };
        let (position, lane) = (slot.position(), slot.lane);
        match lane {
            Some(lane) => self.hold_lane(lane, due),
            None => {
                self.vacate(id);
                self.off_slot.insert(position, due);
                self.pass(position);
            }
        }
        true
    }

    /// Holds what waits behind an attempt that runs in the lane where most of it does: it may never return. The attempt
    /// can run under another executor than what waits.
    fn crowd_out(&mut self, executor: usize) -> bool {
        let is_here = |slot: &Slot| matches!(self.config.policies[slot.handler].run, Run::Executor { index, .. } if index == executor);
        let waits = |slot: &Slot| slot.stage == Stage::Queued && slot.origin == Origin::Stream && is_here(slot);
        let runs = |lane: &Lane| {
            let head = lane.head.and_then(|head| self.slots.get(head));
            let runs = |it: &Slot| {
                it.stage == Stage::Running
                    && matches!(it.origin, Origin::Stream | Origin::Again)
                    && self.keys.why(&it.event) != Some(WhyHeld::Dead)
            };
            head.is_some_and(runs) && lane.aside.as_ref().is_none_or(|aside| !aside.released)
        };
        let lanes = self.slots.iter().filter(|slot| waits(slot)).filter_map(|slot| slot.lane);
        let longest = lanes.filter_map(|id| Some((id, self.lanes.get(id)?))).filter(|(_, lane)| runs(lane));
        let Some((lane, _)) = longest.max_by_key(|(id, lane)| (lane.len, *id)) else { return false };
        self.hold_queued(lane);
        true
    }

    /// Takes what waits in a lane out of memory, until what runs has settled.
    fn hold_queued(&mut self, lane: LaneId) {
        let ids = self.slots_of(lane);
        let is_queued = |id: &SlotId| self.slots.get(*id).is_some_and(|slot| slot.stage == Stage::Queued);
        let Some(first) = ids.iter().position(is_queued) else { return };
        let before = first.checked_sub(1).map(|before| ids[before]);
        let Some(event) = self.slots.get(ids[first]).map(|slot| Arc::clone(&slot.event)) else { return };
        let held = self.keys.change(event.aggregate().to_owned(), event.position(), WhyHeld::Waiting);
        self.pending.hold(held);
        for &id in &ids[first..] {
            if let Some(slot) = self.slots.get(id) {
                let position = slot.position();
                self.keys.keep_back(&slot.event);
                self.vacate(id);
                self.pass(position);
            }
        }
        if let Some(before) = before.and_then(|before| self.slots.get_mut(before)) {
            before.next = None;
        }
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        of_lane.tail = before;
        of_lane.len = u32::try_from(first).unwrap_or(u32::MAX);
        if before.is_none() {
            of_lane.head = None;
        }
        let after = event.position().just_before();
        match &mut of_lane.aside {
            Some(aside) => {
                aside.after = after;
                aside.read = ReadState::Wanted;
                aside.changed = true;
                self.lanes.aside.push_back(lane);
            }
            None => self.set_aside_in(lane, Aside::new(event.aggregate().to_owned(), after)),
        }
    }
}
