use std::time::Duration;

use evento_core::{
    Position,
    store::{DeadEvent, DeadPosition, Selection, WhyHeld},
};

use super::{
    Engine, Now, Output, Read, Run,
    lane::{Aside, Found, ReadState},
    slot::{LaneId, Origin, Slot, SlotId, Stage},
};

/// The most events of one aggregate that are read again at once.
const AT_ONCE: usize = 32;

impl Engine {
    /// Notes that part of an aggregate is held, and to be read again.
    pub(super) fn set_aside(&mut self, aside: Aside) {
        let hash = aside.aggregate.key_hash();
        let lane = match self.lanes.find(hash, aside.aggregate.as_ref(), &self.slots) {
            Found::Lane(lane) => lane,
            // Two aggregates of one hash: the second has no lane until the first is done with it.
            Found::Collision => return,
            Found::None => self.lanes.open(hash),
        };
        self.set_aside_in(lane, aside);
    }

    /// The same for an aggregate whose lane this is.
    pub(super) fn set_aside_in(&mut self, lane: LaneId, aside: Aside) {
        if !aside.released {
            self.asides += 1;
        }
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.aside = Some(Box::new(aside));
        }
        self.lanes.aside.push_back(lane);
    }

    /// Takes a lane's events out of memory until its first one is due again.
    pub(super) fn hold_lane(&mut self, lane: LaneId, due: Duration) {
        let ids = self.slots_of(lane);
        let Some(first) = ids.first().and_then(|id| self.slots.get(*id)) else { return };
        let aggregate = first.event.aggregate().to_owned();
        let (position, released) = (first.position(), first.origin == Origin::Released);
        for id in ids {
            if let Some(position) = self.slots.get(id).map(Slot::position) {
                self.vacate(id);
                // The key names it from now on.
                self.pass(position);
            }
        }
        let held = self.keys.change(aggregate.clone(), position, WhyHeld::Retrying);
        self.pending.hold(held);
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        (of_lane.head, of_lane.tail, of_lane.len, of_lane.blocked) = (None, None, 0, false);
        match &mut of_lane.aside {
            Some(aside) => {
                aside.after = position.just_before();
                aside.due = due;
                aside.read = ReadState::Wanted;
                aside.changed = true;
                self.lanes.aside.push_back(lane);
            }
            None => {
                let aside = Aside { due, released, ..Aside::new(aggregate, position.just_before()) };
                self.set_aside_in(lane, aside);
            }
        }
    }

    /// The inline event under way, or the one that was open and is to be taken in next: what is held before it goes
    /// first, the rest waits.
    fn open_barrier(&self) -> Option<Position> {
        if let Some(slot) = self.barrier.and_then(|id| self.slots.get(id)) {
            return (self.asides > 0).then(|| slot.position());
        }
        let event = self.recovered.front()?;
        let handler = self.config.routes.get(event.name())?;
        (self.config.policies[handler].run == Run::Inline).then(|| event.position())
    }

    /// Whether something that an inline event waits for is held before it.
    pub(super) fn holds_before(&self, position: Position) -> bool {
        let before = |aside: &Aside| !aside.released && aside.after.just_after() < position;
        self.asides > 0 && self.lanes.iter().any(|lane| lane.aside.as_deref().is_some_and(before))
    }

    pub(super) fn slots_of(&self, lane: LaneId) -> Vec<SlotId> {
        let mut ids = Vec::new();
        let mut next = self.lanes.get(lane).and_then(|lane| lane.head);
        while let Some(id) = next {
            ids.push(id);
            next = self.slots.get(id).and_then(|slot| slot.next);
        }
        ids
    }

    /// How many more events that were read again may be in memory: with an attempt that never returns under every permit
    /// there is still room for another aggregate's.
    fn room_again(&self) -> usize {
        ((self.capacity() + 1) * AT_ONCE).saturating_sub(self.again)
    }

    fn capacity(&self) -> usize {
        self.uses.iter().map(|used| used.limits.capacity).sum()
    }

    /// Asks for the held events whose turn it is.
    pub(super) fn ask_for_held(&mut self, now: Now, out: &mut Output) {
        if self.paused {
            return;
        }
        // What was open comes before what is held behind it, and an inline event that was open between the two.
        let barrier = self.open_barrier();
        if barrier.is_none() && !self.unrecovered.is_empty() {
            return;
        }
        let mut room = self.room_again();
        // Those that wait for another attempt make room for those that could run.
        while room < AT_ONCE
            && !self.lanes.aside.is_empty()
            && (0..self.uses.len())
                .any(|executor| self.give_back(executor, Origin::Again) || self.give_back(executor, Origin::Released))
        {
            room = self.room_again();
        }
        // So many are read side by side at the most.
        let max_bytes = self.config.max_bytes / (self.capacity() + 1);
        for _ in 0..self.lanes.aside.len() {
            if room == 0 {
                return;
            }
            let Some(id) = self.lanes.aside.pop_front() else { return };
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            let Some(aside) = &mut lane.aside else { continue };
            if aside.read != ReadState::Wanted {
                continue;
            }
            // What is parked follows only once the dead event before it has been handled.
            let redriven =
                lane.head.and_then(|head| self.slots.get(head)).is_some_and(|it| it.origin == Origin::Redriven);
            let behind = barrier.is_some_and(|barrier| aside.after.just_after() >= barrier);
            let most = u32::from(!aside.released);
            if redriven || behind || lane.blocked || lane.len > most || aside.due > now.since_start {
                self.lanes.aside.push_back(id);
                continue;
            }
            let until = self.admitted.max(aside.redriven.as_ref().map_or(self.admitted, |letter| letter.position));
            let whole = barrier.is_none();
            let until = barrier.map_or(until, |barrier| until.min(barrier.just_before()));
            aside.read = ReadState::Asked { until, whole };
            let max = room.min(AT_ONCE);
            out.reads.push(Read::Aggregate {
                lane: id,
                aggregate: aside.aggregate.clone(),
                after: aside.after,
                until,
                max,
                max_bytes,
            });
            room -= max;
        }
        self.ask_for_returning(now, room, out);
    }

    /// Asks for the events that gave their slot back and are due again.
    fn ask_for_returning(&mut self, now: Now, room: usize, out: &mut Output) {
        let due = self
            .off_slot
            .iter()
            .filter(|(position, due)| **due <= now.since_start && !self.returning.contains(position));
        let due: Vec<_> = due.map(|(position, _)| *position).take(room).collect();
        if !due.is_empty() {
            self.returning.extend(due.iter().copied());
            out.reads.push(Read::At(due));
        }
    }

    pub(super) fn held_read_failed(&mut self, read: &Read) {
        let Some((lane, ..)) = self.asked(read) else { return };
        if let Some(aside) = self.lanes.get_mut(lane).and_then(|lane| lane.aside.as_mut()) {
            aside.read = ReadState::Wanted;
            self.lanes.aside.push_back(lane);
        }
    }

    /// The lane that waits for this read, up to where, and whether that is everything. Since it was asked for, what is
    /// held may have changed, and its lane may even be another aggregate's: then nothing waits for it.
    fn asked(&self, read: &Read) -> Option<(LaneId, Position, bool)> {
        let Read::Aggregate { lane, aggregate, after, until, .. } = read else { return None };
        let aside = self.lanes.get(*lane)?.aside.as_ref();
        let aside = aside.filter(|aside| aside.aggregate == *aggregate && aside.after == *after)?;
        match aside.read {
            ReadState::Asked { until: asked, whole } if asked == *until => Some((*lane, asked, whole)),
            ReadState::Asked { .. } | ReadState::Wanted => None,
        }
    }

    /// The events and letters that `Read::Aggregate` asked for, as far as was looked.
    pub(crate) fn drained(&mut self, read: &Read, found: Selection, letters: &[DeadPosition], now: Now) {
        let Some((lane, asked_until, whole)) = self.asked(read) else { return };
        let Selection { events, scanned_to } = found;
        let until = asked_until.min(scanned_to);
        let whole = whole && until == asked_until;
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        let Some(aside) = &mut of_lane.aside else { return };
        aside.read = ReadState::Wanted;
        let dies = of_lane.head.and_then(|head| self.slots.get(head)).is_some_and(|slot| slot.stage == Stage::Dying);
        if dies {
            // What is behind it is parked, or read again once it has settled.
            self.lanes.aside.push_back(lane);
            return;
        }
        if let Some(letter) = aside.redriven.as_ref().map(|letter| letter.position)
            && letter <= until
            && events.first().is_none_or(|event| event.position() != letter)
        {
            // The log holds the event no more, or no handler takes it any more.
            self.drop_lane(lane);
            self.letter_failed(letter);
            return;
        }
        let Some(last) = events.last().map(|event| event.position()) else {
            self.nothing_held(lane, until, whole);
            return;
        };
        aside.after = last;
        aside.changed = true;
        let released = aside.released;
        self.lanes.aside.push_back(lane);
        for event in events {
            let position = event.position();
            let Some(handler) = self.config.routes.get(event.name()) else { continue };
            if matches!(self.config.policies[handler].run, Run::Executor { ordered: false, .. }) {
                // The stream has handed it out: it neither parks nor is parked.
                continue;
            }
            let redriven = self.take_redriven(lane, position);
            if redriven.is_none()
                && let Some(letter) = letters.iter().find(|letter| letter.position == position)
            {
                if letter.parks {
                    self.dead_again(lane, position);
                    return;
                }
                // It has settled, and nothing is parked behind it.
                self.forget(position);
                continue;
            }
            let origin = match (&redriven, released) {
                (Some(_), _) => Origin::Redriven,
                (None, true) => Origin::Released,
                (None, false) => Origin::Again,
            };
            let mut slot = Slot::new(event, handler, origin);
            if let Some(letter) = redriven {
                slot.redrive(&letter);
            }
            let id = self.occupy(slot);
            if self.enqueue(lane, id) {
                self.recall(id, position, now);
            }
        }
    }

    fn take_redriven(&mut self, lane: LaneId, position: Position) -> Option<DeadEvent> {
        let aside = self.lanes.get_mut(lane)?.aside.as_mut()?;
        aside.redriven.take_if(|letter| letter.position == position)
    }

    /// Nothing of the lane is held below `until`: the aggregate is live again, unless something was kept back since.
    fn nothing_held(&mut self, lane: LaneId, until: Position, whole: bool) {
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        let Some(aside) = &mut of_lane.aside else { return };
        if !whole || self.keys.newest(&aside.aggregate).is_some_and(|newest| newest > until) {
            aside.after = aside.after.max(until);
            self.lanes.aside.push_back(lane);
            return;
        }
        let Some(aside) = of_lane.aside.take() else { return };
        if !aside.released {
            self.asides -= 1;
        }
        let aggregate = aside.aggregate;
        self.keys.release(&aggregate);
        let hash = aggregate.key_hash();
        self.pending.release(aggregate);
        self.forget_attempts_of(hash, until);
        self.lanes.close_if_empty(lane);
    }

    /// The lane has come to a letter: what is behind it is parked again.
    fn dead_again(&mut self, lane: LaneId, position: Position) {
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        let Some(aside) = of_lane.aside.take() else { return };
        if !aside.released {
            self.asides -= 1;
        }
        let held = self.keys.change(aside.aggregate, position, WhyHeld::Dead);
        self.pending.hold(held);
        self.lanes.close_if_empty(lane);
    }

    /// Takes everything of a lane out of memory and forgets what is held of it: its key says what becomes of it.
    pub(super) fn drop_lane(&mut self, lane: LaneId) {
        for id in self.slots_of(lane) {
            self.vacate(id);
        }
        let Some(of_lane) = self.lanes.get_mut(lane) else { return };
        (of_lane.head, of_lane.tail, of_lane.len, of_lane.blocked) = (None, None, 0, false);
        if of_lane.aside.take().is_some_and(|aside| !aside.released) {
            self.asides -= 1;
        }
        self.lanes.close_if_empty(lane);
    }

    /// What is stored of the held key of the event's lane is to be looked at again.
    pub(super) fn held_part_changed(&mut self, id: SlotId) {
        let lane = self.slots.get(id).and_then(|slot| slot.lane);
        if let Some(aside) = lane.and_then(|lane| self.lanes.get_mut(lane)?.aside.as_mut()) {
            aside.changed = true;
        }
    }

    /// Where what is held of a lane begins: at its first event that was read again and has not settled.
    pub(super) fn held_changes(&mut self) {
        let mut changes = Vec::new();
        for lane in self.lanes.iter_mut() {
            if let Some(aside) = lane.aside.as_mut().filter(|aside| aside.changed && aside.redriven.is_none()) {
                aside.changed = false;
                changes.push((aside.aggregate.clone(), lane.head, aside.after.just_after()));
            }
        }
        for (aggregate, head, after) in changes {
            let mut from = after;
            let mut next = head;
            while let Some(slot) = next.and_then(|id| self.slots.get(id)) {
                if matches!(slot.origin, Origin::Again | Origin::Released) && !self.is_passed(slot) {
                    from = slot.position();
                    break;
                }
                next = slot.next;
            }
            // A dead event that is handled again keeps its key as it is until it has been.
            if self.keys.get(&aggregate).is_some_and(|held| held.why != WhyHeld::Dead && held.from != from) {
                let held = self.keys.change(aggregate, from, WhyHeld::Waiting);
                self.pending.hold(held);
            }
        }
    }
}
