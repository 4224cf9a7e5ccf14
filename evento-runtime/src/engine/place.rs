use evento_core::Position;

use super::{
    Engine, Mutant, Now, Run,
    slot::{LaneId, Origin, Slot, SlotId, Stage},
};

/// The places of events in memory.
impl Engine {
    /// Gives an event a slot.
    #[inline]
    pub(super) fn occupy(&mut self, slot: Slot) -> SlotId {
        self.bytes += slot.event.size();
        match slot.origin {
            Origin::Stream => {
                if let Run::Executor { index, .. } = self.config.policies[slot.handler].run {
                    self.uses[index].in_memory += 1;
                }
            }
            Origin::Again => self.again += 1,
            Origin::Released | Origin::Redriven => {
                self.again += 1;
                self.exempt += 1;
            }
        }
        self.slots.insert(slot)
    }

    /// Takes the slot from an event, which stands nowhere any more.
    pub(super) fn vacate(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get(id) else { return };
        let (handler, stage) = (slot.handler, slot.stage);
        self.bytes -= slot.event.size();
        match slot.origin {
            Origin::Stream => {
                if let Run::Executor { index, .. } = self.config.policies[slot.handler].run {
                    self.uses[index].in_memory -= 1;
                }
            }
            Origin::Again => self.again -= 1,
            Origin::Released | Origin::Redriven => {
                self.again -= 1;
                self.exempt -= 1;
            }
        }
        self.slots.remove(id);
        match stage {
            Stage::Waiting { due } => {
                self.waiting_of(handler).remove(&(due, id));
            }
            Stage::Ready => self.ready[handler].retain(|ready| *ready != id),
            _ => {}
        }
        if self.barrier == Some(id) {
            self.barrier = None;
        }
        if self.inline_busy == Some(id) {
            self.inline_busy = None;
        }
    }

    /// Puts the event at the end of a lane. Answers whether it is the first there.
    pub(super) fn enqueue(&mut self, lane: LaneId, id: SlotId) -> bool {
        let Some(of_lane) = self.lanes.get_mut(lane) else { return true };
        of_lane.len += 1;
        let before = of_lane.tail.replace(id);
        if of_lane.head.is_none() {
            of_lane.head = Some(id);
        }
        if let Some(slot) = self.slots.get_mut(id) {
            slot.lane = Some(lane);
        }
        if let Some(before) = before.and_then(|before| self.slots.get_mut(before)) {
            before.next = Some(id);
            return self.mutant(Mutant::LaneRunsTwo);
        }
        true
    }

    /// Makes the event ready, or has it wait for the retry that is stored of it.
    pub(super) fn recall(&mut self, id: SlotId, position: Position, now: Now) {
        let stored = if self.retries.is_empty() { None } else { self.retries.get(&position).cloned() };
        if let (Some(stored), Some(slot)) = (stored, self.slots.get_mut(id))
            && slot.tried.is_none()
        {
            let due = slot.recall(&stored, &self.config.policies[slot.handler], now);
            if due > now.since_start {
                self.wait_until(id, due);
                return;
            }
        }
        self.make_ready(id, now, false);
    }
}
