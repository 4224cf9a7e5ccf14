use std::sync::Arc;

use evento_core::{
    Aggregate, Position, RecordedEvent,
    store::{DeadEvent, WhyHeld},
};

use super::{
    Engine, Now, Run,
    lane::{Aside, Found},
    slot::{LaneId, Origin, Slot, Stage},
};

/// Dead events that are handled again.
impl Engine {
    /// Has a dead event handled again, then what is parked behind it.
    pub(super) fn redrive(&mut self, letter: DeadEvent) {
        let aside = Aside::new(letter.aggregate.clone(), letter.position.just_before());
        self.set_aside(Aside { released: true, changed: false, redriven: Some(letter), ..aside });
    }

    /// The event of a letter that parks nothing.
    pub(crate) fn redriven(&mut self, position: Position, event: Option<Arc<RecordedEvent>>, now: Now) {
        let Some(letter) = self.requests.alone(position) else { return };
        let handler = event.as_ref().and_then(|event| self.config.routes.get(event.name()));
        let (Some(event), Some(handler)) = (event, handler) else {
            self.letter_failed(position);
            return;
        };
        let ordered = !matches!(self.config.policies[handler].run, Run::Executor { ordered: false, .. });
        let (hash, mut slot) = (event.key_hash(), Slot::new(Arc::clone(&event), handler, Origin::Redriven));
        slot.redrive(&letter);
        let lane = match self.lanes.find(hash, event.aggregate(), &self.slots) {
            _ if !ordered => None,
            Found::Lane(lane) => Some(lane),
            Found::None => Some(self.lanes.open(hash)),
            Found::Collision => {
                self.letter_failed(position);
                return;
            }
        };
        let id = self.occupy(slot);
        if lane.is_none_or(|lane| self.enqueue(lane, id)) {
            self.make_ready(id, now, false);
        }
    }

    /// Gives up a dead event's being handled again; an attempt that runs ends as it ends.
    pub(super) fn abandon(&mut self, letter: Position) {
        let found = self.slots.iter().find(|slot| slot.origin == Origin::Redriven && slot.position() == letter);
        if found.is_some_and(|slot| matches!(slot.stage, Stage::Running | Stage::Recording | Stage::Dying)) {
            return;
        }
        let lane = found.and_then(|slot| slot.lane).or_else(|| self.lanes.redriving(letter));
        // One that parks nothing may stand among live events: it is handled all the same.
        if let Some(lane) = lane.filter(|lane| self.has_held_dead(*lane, letter)) {
            self.drop_lane(lane);
        }
    }

    /// The event of the lane's head is handled: its key waits from the next event on.
    pub(super) fn released(&mut self, lane: LaneId, aggregate: Aggregate, position: Position) {
        if let Some(aside) = self.lanes.get_mut(lane).and_then(|lane| lane.aside.as_mut()) {
            aside.changed = true;
        }
        let held = self.keys.change(aggregate, position.just_after(), WhyHeld::Waiting);
        self.pending.hold(held);
    }
}
