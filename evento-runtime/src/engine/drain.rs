use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use evento_core::{
    Aggregate, Position, RecordedEvent,
    store::{DeadEvent, HeldKey, Selection},
};

use super::{Active, Engine, Now, Output, Read, Slot, keys::Keys};

/// How many aggregates are read again side by side.
pub(crate) const SIDE_BY_SIDE: usize = 16;

/// Held aggregates whose events are handled apart from the stream, each in its own order.
#[derive(Debug, Default)]
pub(crate) struct Drains {
    queue: VecDeque<Aggregate>,
    drains: BTreeMap<u64, Drain>,
    last_id: u64,
    had_turn: u64,
}

#[derive(Debug)]
struct Drain {
    aggregate: Aggregate,
    events: VecDeque<Arc<RecordedEvent>>,
    /// Letters of the aggregate: positions at which it is dead again.
    letters: Vec<Position>,
    read: ReadState,
    /// Events up to here have been read.
    after: Position,
    redriven: Option<DeadEvent>,
    /// Its request was stopped while an attempt ran: there will be no other.
    abandoned: bool,
    active: Option<Active>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ReadState {
    Wanted,
    Asked { until: Position },
    Done,
}

/// What reading a held aggregate's events led to.
#[derive(Debug)]
pub(crate) enum Drained {
    GoesOn,
    /// Nothing of the aggregate is held any more.
    Live(Aggregate),
    /// The letter's event is not in the log any more, or no handler takes it any more.
    Missing(Position),
}

impl Drains {
    /// Has the aggregate's held events handled when there is room.
    pub(crate) fn queue(&mut self, aggregate: Aggregate) {
        self.queue.push_back(aggregate);
    }

    /// Has a dead event handled again, then what is parked behind it.
    pub(crate) fn redrive(&mut self, letter: DeadEvent) {
        let (aggregate, after) = (letter.aggregate.clone(), letter.position.just_before());
        self.add(aggregate, after, Some(letter));
    }

    fn add(&mut self, aggregate: Aggregate, after: Position, redriven: Option<DeadEvent>) {
        self.last_id += 1;
        let drain = Drain {
            aggregate,
            events: VecDeque::new(),
            letters: Vec::new(),
            read: ReadState::Wanted,
            after,
            redriven,
            abandoned: false,
            active: None,
        };
        self.drains.insert(self.last_id, drain);
    }

    pub(crate) fn ask(&mut self, keys: &Keys, frontier: Position, out: &mut Output) {
        while self.drains.len() < SIDE_BY_SIDE
            && let Some(aggregate) = self.queue.pop_front()
        {
            if let Some(held) = keys.get(&aggregate) {
                let after = held.from.just_before();
                self.add(aggregate, after, None);
            }
        }
        for (&id, drain) in &mut self.drains {
            if drain.read == ReadState::Wanted {
                // A dead event that parks nothing is read alone, wherever the frontier is.
                let until = match &drain.redriven {
                    Some(letter) if !letter.parks => letter.position,
                    Some(letter) => letter.position.max(frontier),
                    None => frontier,
                };
                drain.read = ReadState::Asked { until };
                out.reads.push(Read::Aggregate {
                    drain: id,
                    aggregate: drain.aggregate.clone(),
                    after: drain.after,
                    until,
                });
            }
        }
    }

    pub(crate) fn read_failed(&mut self, id: u64) {
        if let Some(drain) = self.drains.get_mut(&id) {
            drain.read = ReadState::Wanted;
        }
    }

    /// Takes up what was read.
    pub(crate) fn read(&mut self, id: u64, found: Selection, letters: Vec<Position>, keys: &mut Keys) -> Drained {
        let Some(drain) = self.drains.get_mut(&id) else { return Drained::GoesOn };
        let ReadState::Asked { until } = drain.read else { return Drained::GoesOn };
        let Selection { events, scanned_to } = found;
        drain.read = ReadState::Done;
        drain.letters = letters;
        if let Some(letter) = &drain.redriven
            && events.first().is_none_or(|event| event.position() != letter.position)
        {
            let position = letter.position;
            self.drains.remove(&id);
            return Drained::Missing(position);
        }
        if let Some(last) = events.last() {
            drain.after = last.position();
            drain.events.extend(events);
            return Drained::GoesOn;
        }
        drain.after = drain.after.max(scanned_to.min(until));
        if drain.after < until || keys.newest(&drain.aggregate).is_some_and(|newest| newest > until) {
            drain.read = ReadState::Wanted;
            return Drained::GoesOn;
        }
        let aggregate = drain.aggregate.clone();
        self.drains.remove(&id);
        keys.release(&aggregate);
        Drained::Live(aggregate)
    }

    /// Gives up a dead event's being handled again; an attempt that runs ends as it ends.
    pub(crate) fn abandon(&mut self, letter: Position, running: Option<Slot>) {
        self.drains.retain(|id, drain| {
            let given_up = drain.redriven.as_ref().is_some_and(|redriven| redriven.position == letter);
            drain.abandoned |= given_up;
            !given_up || running == Some(Slot::Drain(*id))
        });
    }

    /// Ends the drain if it was given up while its attempt, which has failed now, ran.
    pub(crate) fn end_abandoned(&mut self, slot: Slot) {
        if let Slot::Drain(id) = slot
            && self.drains.get(&id).is_some_and(|drain| drain.abandoned && drain.redriven.is_some())
        {
            self.drains.remove(&id);
        }
    }

    pub(crate) fn take_active(&mut self, id: u64) -> Option<Active> {
        self.drains.get_mut(&id)?.active.take()
    }

    pub(crate) fn put_active(&mut self, id: u64, active: Active) {
        if let Some(drain) = self.drains.get_mut(&id) {
            drain.active = Some(active);
        }
    }

    pub(crate) fn actives(&self) -> impl Iterator<Item = &Active> {
        self.drains.values().filter_map(|drain| drain.active.as_ref())
    }

    /// Whether the attempt in `slot` is that of a dead event.
    pub(crate) fn is_redriven(&self, slot: Slot, position: Position) -> bool {
        let Slot::Drain(id) = slot else { return false };
        self.drains.get(&id).and_then(|drain| drain.redriven.as_ref()).is_some_and(|letter| letter.position == position)
    }

    /// Whether later events of the drain's aggregate wait behind its present one.
    pub(crate) fn parks(&self, id: u64) -> bool {
        self.drains.get(&id).is_some_and(|drain| drain.redriven.as_ref().is_none_or(|letter| letter.parks))
    }

    /// Whether the aggregate is being drained, or is about to be.
    pub(crate) fn contains(&self, aggregate: &Aggregate) -> bool {
        self.queue.contains(aggregate) || self.drains.values().any(|drain| drain.aggregate == *aggregate)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.drains.is_empty()
    }

    /// The drains, beginning after the one that had the last turn.
    fn turns(&self) -> Vec<u64> {
        let later = self.drains.range(self.had_turn + 1..).map(|(id, _)| *id);
        later.chain(self.drains.range(..=self.had_turn).map(|(id, _)| *id)).collect()
    }
}

impl Engine {
    /// Gives each drain a turn until one starts an attempt. Answers whether one did.
    pub(super) fn step_drains(&mut self, now: Now, out: &mut Output) -> bool {
        if self.drains.drains.is_empty() {
            return false;
        }
        for id in self.drains.turns() {
            self.step_drain(id, now, out);
            if out.start.is_some() {
                self.drains.had_turn = id;
                return true;
            }
        }
        false
    }

    fn step_drain(&mut self, id: u64, now: Now, out: &mut Output) {
        let slot = Slot::Drain(id);
        if let Some(active) = self.drains.take_active(id)
            && !self.go_on(slot, active, now, out)
        {
            return;
        }
        while self.admits(now) && out.start.is_none() {
            let Some(drain) = self.drains.drains.get_mut(&id) else { return };
            if drain.active.is_some() {
                return;
            }
            let Some(event) = drain.events.pop_front() else {
                if drain.read == ReadState::Done {
                    drain.read = ReadState::Wanted;
                }
                return;
            };
            let position = event.position();
            let redriven = drain.redriven.as_ref().filter(|letter| letter.position == position);
            if redriven.is_none() && drain.letters.contains(&position) {
                let held = self.keys.dead_at(drain.aggregate.clone(), position);
                self.pending.hold(held);
                self.drains.drains.remove(&id);
                return;
            }
            let Some(handler) = self.config.routes.get(event.name()) else {
                self.counts.skipped += 1;
                self.settle_drained(id, position);
                continue;
            };
            let active = match redriven {
                Some(letter) => Active::again(event, handler, letter),
                None => self.take_up(event, handler, now),
            };
            self.begin(slot, active, now, out);
        }
    }

    /// The drain's present event is handled.
    pub(super) fn settle_drained(&mut self, id: u64, position: Position) {
        self.forget(position);
        self.pending.count();
        let Some(drain) = self.drains.drains.get_mut(&id) else { return };
        let aggregate = drain.aggregate.clone();
        if let Some(letter) = drain.redriven.take_if(|letter| letter.position == position) {
            self.letter_ended(position, true);
            if !letter.parks {
                self.drains.drains.remove(&id);
                return;
            }
        }
        let held: HeldKey = self.keys.wait(aggregate, position.just_after());
        self.pending.hold(held);
    }

    /// The letter of the drain's present event is stored.
    pub(super) fn drain_died(&mut self, id: u64, position: Position) {
        self.forget(position);
        if self.drains.drains.remove(&id).is_some_and(|drain| drain.redriven.is_some()) {
            self.letter_failed(position);
        } else {
            self.counts.dead += 1;
        }
    }
}
