use std::sync::Arc;

use evento_core::{
    Position, RecordedEvent,
    store::{DeadEvent, WhyHeld},
};

use super::{
    Engine, Now, Run,
    lane::{Aside, Found, Identity},
    slot::{LaneId, Origin, Slot, Stage},
};

/// Dead events that are handled again.
impl Engine {
    /// Has a dead event handled again, then what is parked behind it.
    pub(super) fn redrive(&mut self, letter: DeadEvent) {
        let hash = letter.aggregate.key_hash();
        let identity = Identity::Aggregate(Box::new(letter.aggregate.clone()));
        let after = letter.position.just_before();
        let aside = Aside { released: true, changed: false, redriven: Some(letter), ..Aside::new(after) };
        self.set_aside(identity, hash, aside);
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
        let lane = match self.lanes.find(hash, event.aggregate()) {
            _ if !ordered => None,
            Found::Lane(lane) => Some(lane),
            Found::None => Some(self.lanes.open(Identity::Event(event), hash)),
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
    pub(super) fn released(&mut self, lane: LaneId, position: Position) {
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        let aggregate = of_lane.identity.aggregate().to_owned();
        if let Some(aside) = &mut of_lane.aside {
            aside.changed = true;
        }
        let held = self.keys.change(aggregate, position.just_after(), WhyHeld::Waiting);
        self.pending.hold(held);
    }
}
