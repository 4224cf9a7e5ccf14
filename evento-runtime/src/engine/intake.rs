use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use evento_core::{
    OnDead, Position, RecordedEvent,
    store::{Selection, WhyHeld},
};

use super::{
    Engine, Mutant, Now, Read, Run,
    lane::{Aside, Found},
    slot::{Origin, Slot},
};

/// What became of an event that was looked at.
enum Intake {
    /// It has a slot, or has settled, or is held: the next one's turn.
    Taken,
    /// Nothing more can be taken in until something ends.
    Full(Arc<RecordedEvent>),
}

impl Engine {
    /// Takes in what there is room for, and wakes what is due.
    pub(crate) fn admit(&mut self, now: Now) {
        self.advance_requests();
        self.settle_written(now);
        self.wake_due(now);
        self.forget_passed_starts();
        // Behind an inline event nothing is even looked at: what is open needs no name while the checkpoint is below it.
        while self.admits(now) && (self.barrier.is_none() || self.mutant(Mutant::OneSidedBarrier)) {
            if self.is_crowded() {
                break;
            }
            let Some((event, is_recovered)) = self.take_next() else { break };
            let position = event.position();
            match self.take_in(event, now) {
                Intake::Taken if is_recovered => {
                    self.unrecovered.remove(&position);
                }
                Intake::Taken => {
                    self.forget_retries_between(self.admitted, position.just_before());
                    self.admitted = position;
                }
                Intake::Full(event) => {
                    if is_recovered {
                        self.recovered.push_front(event);
                    } else {
                        self.next = Some(event);
                    }
                    break;
                }
            }
        }
    }

    pub(super) fn admits(&self, now: Now) -> bool {
        !self.paused && !self.stopping && !self.pending.holds_admission(now.since_start)
    }

    /// The stream's next event, and whether it was open: what was comes first, then the pages. None follows one that is out
    /// of order.
    fn take_next(&mut self) -> Option<(Arc<RecordedEvent>, bool)> {
        if let Some(event) = self.recovered.pop_front() {
            return Some((event, true));
        }
        if self.recovering || !self.to_recover.is_empty() || self.out_of_order.is_some() {
            return None;
        }
        if let Some(event) = self.next.take() {
            return Some((event, false));
        }
        while let Some(page) = self.pages.front_mut() {
            if let Some(event) = page.events.as_slice().first() {
                if let Err(out_of_order) = self.order.check(event, self.admitted) {
                    self.out_of_order = Some(out_of_order);
                    return None;
                }
                return Some((page.events.next()?, false));
            }
            let (from, to) = (self.admitted, page.scanned_to);
            self.forget_retries_between(from, to);
            self.admitted = self.admitted.max(to);
            self.pass(to);
            self.pages.pop_front();
        }
        None
    }

    /// Whether as many events are open as may be, until a hundredth of them has settled. What was open when the claim was
    /// taken is read again whatever there is of it.
    fn is_crowded(&mut self) -> bool {
        let most = self.config.max_open - if self.crowded { self.config.max_open / 100 } else { 0 };
        self.crowded = self.unrecovered.is_empty() && self.slots.len() + self.off_slot.len() >= most;
        self.crowded
    }

    fn take_in(&mut self, event: Arc<RecordedEvent>, now: Now) -> Intake {
        let position = event.position();
        let Some(handler) = self.config.routes.get(event.name()) else {
            if self.mutant(Mutant::SkippedIsBarrier) && self.slots.len() > 0 {
                return Intake::Full(event);
            }
            return self.skip(position);
        };
        if self.letters.remove(&position) {
            return self.skip(position);
        }
        match self.config.policies[handler].run {
            Run::Inline => self.take_in_inline(event, handler, now),
            Run::Executor { index, ordered } => self.take_in_parallel(event, handler, index, ordered, now),
        }
    }

    fn skip(&mut self, position: Position) -> Intake {
        self.counts.skipped += 1;
        self.pass(position);
        self.forget(position);
        if !self.unrecovered.is_empty() {
            // It was open, and is no more.
            self.pending.moved();
        }
        Intake::Taken
    }

    fn take_in_inline(&mut self, event: Arc<RecordedEvent>, handler: usize, now: Now) -> Intake {
        let position = event.position();
        let is_recovered = self.unrecovered.contains(&position);
        if let Some(why) = self.keys.why(&event)
            && (why == WhyHeld::Dead || is_recovered || self.asides == 0)
            && !self.keys.begins_after(&event)
        {
            return self.park(&event);
        }
        // What was open can have held events behind it, that wait for it.
        let holds_before = if is_recovered { self.holds_before(position) } else { self.asides > 0 };
        let one_sided = self.mutant(Mutant::OneSidedBarrier);
        if self.barrier.is_some()
            || self.is_handled_again(&event)
            || (!one_sided && (self.slots.len() > self.exempt || holds_before || !self.off_slot.is_empty()))
        {
            return Intake::Full(event);
        }
        let id = self.occupy(Slot::new(event, handler, Origin::Stream));
        self.barrier = Some(id);
        self.recall(id, position, now);
        Intake::Taken
    }

    /// Whether a dead event of the aggregate is being handled again beside the stream.
    fn is_handled_again(&self, event: &RecordedEvent) -> bool {
        let same =
            |slot: &Slot| slot.event.key_hash() == event.key_hash() && slot.event.aggregate() == event.aggregate();
        self.requests.reads_of(event) || self.exempt > 0 && self.slots.iter().any(same)
    }

    fn take_in_parallel(
        &mut self,
        event: Arc<RecordedEvent>,
        handler: usize,
        executor: usize,
        ordered: bool,
        now: Now,
    ) -> Intake {
        let position = event.position();
        if self.barrier.is_some() && !self.mutant(Mutant::OneSidedBarrier) {
            return Intake::Full(event);
        }
        if !ordered {
            if !self.has_room(executor) {
                return Intake::Full(event);
            }
            let id = self.occupy(Slot::new(event, handler, Origin::Stream));
            self.recall(id, position, now);
            return Intake::Taken;
        }
        let is_recovered = self.unrecovered.contains(&position);
        if let Some(why) = self.keys.why(&event) {
            if why == WhyHeld::Dead {
                return self.park(&event);
            }
            if !(is_recovered && self.keys.begins_after(&event)) {
                return self.keep_back(&event);
            }
        }
        let lane = match self.lanes.find(event.key_hash(), event.aggregate(), &self.slots) {
            Found::Lane(lane) => Some(lane),
            // Never two aggregates in one lane: the other one's turn comes when this one's events have settled.
            Found::Collision => return Intake::Full(event),
            Found::None => None,
        };
        let share = self.uses[executor].limits.look_ahead / self.uses[executor].limits.capacity.max(1);
        let is_busy = lane
            .and_then(|lane| self.lanes.get(lane))
            .is_some_and(|lane| lane.blocked || lane.len as usize >= share.max(1));
        if is_busy && !is_recovered {
            return self.put_aside(&event);
        }
        if !self.has_room(executor) {
            return Intake::Full(event);
        }
        // It may be this aggregate that has made room.
        if lane.is_some() && self.keys.why(&event).is_some() && !(is_recovered && self.keys.begins_after(&event)) {
            return self.keep_back(&event);
        }
        let lane = lane.unwrap_or_else(|| self.lanes.open(event.key_hash()));
        let id = self.occupy(Slot::new(event, handler, Origin::Stream));
        if self.enqueue(lane, id) {
            self.recall(id, position, now);
        }
        Intake::Taken
    }

    /// Leaves the event to its held key, which begins before it.
    fn keep_back(&mut self, event: &RecordedEvent) -> Intake {
        self.keys.keep_back(event);
        self.counts.aside += 1;
        self.pass(event.position());
        Intake::Taken
    }

    /// Counts the event as parked behind a dead one of its aggregate.
    fn park(&mut self, event: &RecordedEvent) -> Intake {
        if !self.mutant(Mutant::NoParking) {
            self.keys.keep_back(event);
        }
        self.counts.parked += 1;
        self.pending.count();
        self.pass(event.position());
        self.forget(event.position());
        Intake::Taken
    }

    /// Holds the event's aggregate from it on, because its lane is busy.
    fn put_aside(&mut self, event: &RecordedEvent) -> Intake {
        let position = event.position();
        let held = self.keys.wait(event.aggregate().to_owned(), position);
        self.keys.keep_back(event);
        self.pending.hold(held);
        self.set_aside(Aside::new(event.aggregate().to_owned(), position.just_before()));
        self.counts.aside += 1;
        self.pass(position);
        Intake::Taken
    }

    pub(super) fn forget_retries_between(&mut self, from: Position, to: Position) {
        if self.retries.is_empty() || from >= to {
            return;
        }
        let between = (Bound::Excluded(from), Bound::Included(to));
        let gone: Vec<_> = self.retries.range(between).map(|(at, _)| *at).collect();
        let in_memory: Vec<_> = self.slots.iter().map(Slot::position).collect();
        for position in gone.into_iter().filter(|position| !in_memory.contains(position)) {
            if !self.off_slot.contains_key(&position) && !self.keys.any_waiting() {
                self.counts.skipped += 1;
                self.forget(position);
            }
        }
    }

    /// Drops what is stored of attempts at an aggregate of which nothing is held any more, where its event is neither in
    /// memory nor open.
    pub(super) fn forget_attempts_of(&mut self, hash: u64, until: Position) {
        let of_aggregate = self.retries.range(..=until).filter(|(_, retry)| retry.key_hash == hash);
        let died_at = self.crashes.range(..=until).filter(|(_, started)| started.key_hash == hash);
        let of_aggregate: Vec<_> = of_aggregate.map(|(at, _)| *at).chain(died_at.map(|(at, _)| *at)).collect();
        for position in of_aggregate {
            let is_open = self.off_slot.contains_key(&position) || self.unrecovered.contains(&position);
            if !is_open && self.slots.iter().all(|slot| slot.position() != position) {
                self.forget(position);
            }
        }
    }

    /// The checkpoint may name this position.
    pub(super) fn pass(&mut self, position: Position) {
        if position > self.passed {
            self.passed = position;
            self.pending.moved();
        }
    }

    pub(super) fn parks(&self, slot: &Slot) -> bool {
        let ordered = !matches!(self.config.policies[slot.handler].run, Run::Executor { ordered: false, .. });
        ordered && self.config.on_dead == OnDead::Park && !self.mutant(Mutant::NoParking)
    }

    // ---- reads

    pub(super) fn ask(&mut self, now: Now, out: &mut super::Output) {
        if !self.recovering && self.recovered.is_empty() && !self.to_recover.is_empty() {
            self.recovering = true;
            let some = self.to_recover.len().min(1000);
            out.reads.push(Read::At(self.to_recover.drain(..some).collect()));
        }
        if !self.paused && !self.fetching && !self.at_head && self.pages.len() < 2 {
            self.fetching = true;
            out.fetch = Some(self.scanned_to);
        }
        self.ask_for_held(now, out);
        self.requests.ask(out);
    }

    /// The events that `Read::At` asked for. Those of `asked` that were looked at are settled where the log holds none,
    /// the others are asked for again.
    pub(crate) fn recovered(&mut self, asked: &[Position], found: Selection, now: Now) {
        let Selection { events, scanned_to } = found;
        let returning = asked.first().is_some_and(|position| self.returning.contains(position));
        let (looked_at, not_yet): (Vec<_>, Vec<_>) = asked.iter().partition(|position| **position <= scanned_to);
        for position in not_yet.into_iter().rev() {
            if returning {
                self.returning.remove(&position);
            } else {
                self.to_recover.push_front(position);
            }
        }
        let at: BTreeSet<_> = events.iter().map(|event| event.position()).collect();
        for position in looked_at.into_iter().filter(|position| !at.contains(position)) {
            self.counts.skipped += 1;
            self.unrecovered.remove(&position);
            self.off_slot.remove(&position);
            self.returning.remove(&position);
            self.forget(position);
            self.pending.count();
        }
        if !returning {
            self.recovering = false;
            self.recovered.extend(events);
            return;
        }
        for event in events {
            let position = event.position();
            self.returning.remove(&position);
            self.off_slot.remove(&position);
            if let Some(handler) = self.config.routes.get(event.name()) {
                let id = self.occupy(Slot::new(event, handler, Origin::Again));
                self.recall(id, position, now);
            }
        }
    }

    /// A read beside the stream failed: it is asked for again at the next step.
    pub(crate) fn read_failed(&mut self, read: Read) {
        match read {
            Read::At(positions) => {
                if positions.first().is_some_and(|position| self.returning.contains(position)) {
                    for position in positions {
                        self.returning.remove(&position);
                    }
                    return;
                }
                for position in positions.into_iter().rev() {
                    self.to_recover.push_front(position);
                }
                self.recovering = false;
            }
            Read::Aggregate { .. } => self.held_read_failed(&read),
            Read::Letters { request, .. } => self.requests.read_failed(request),
            Read::Letter(position) => self.requests.redrive_failed(position),
        }
    }
}
