use std::collections::BTreeSet;

use evento_core::{
    Aggregate, Position, RecordedEvent,
    store::{HeldKey, WhyHeld},
};

use super::hash::ByHash;

/// The aggregates whose events are not handed out by the stream.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    by_hash: ByHash<Vec<Entry>>,
    /// Those that are not behind a dead event, by where they begin.
    waiting: BTreeSet<(Position, Aggregate)>,
    dead: usize,
}

#[derive(Debug)]
struct Entry {
    held: HeldKey,
    /// The newest event that this process kept back; what was kept back before is at or below the frontier.
    newest: Position,
}

impl Keys {
    /// Holds a key, in place of what was known of it.
    pub(crate) fn hold(&mut self, held: HeldKey) {
        let newest = self.release(&held.aggregate).unwrap_or(Position::BEGINNING);
        match held.why {
            WhyHeld::Dead => self.dead += 1,
            WhyHeld::Waiting | WhyHeld::Retrying => {
                self.waiting.insert((held.from, held.aggregate.clone()));
            }
        }
        self.by_hash.entry(held.aggregate.key_hash()).or_default().push(Entry { held, newest });
    }

    /// Lets a key go; answers its newest event that was kept back.
    pub(crate) fn release(&mut self, aggregate: &Aggregate) -> Option<Position> {
        let entries = self.by_hash.get_mut(&aggregate.key_hash())?;
        let index = entries.iter().position(|entry| entry.held.aggregate == *aggregate)?;
        let entry = entries.swap_remove(index);
        if entries.is_empty() {
            self.by_hash.remove(&aggregate.key_hash());
        }
        match entry.held.why {
            WhyHeld::Dead => self.dead -= 1,
            WhyHeld::Waiting | WhyHeld::Retrying => {
                self.waiting.remove(&(entry.held.from, entry.held.aggregate));
            }
        }
        Some(entry.newest)
    }

    /// Why the event's aggregate is held, if it is.
    pub(crate) fn why(&self, event: &RecordedEvent) -> Option<WhyHeld> {
        self.of_event(event).map(|entry| entry.held.why)
    }

    /// Whether what is held of the event's aggregate comes after it.
    pub(crate) fn begins_after(&self, event: &RecordedEvent) -> bool {
        self.of_event(event).is_some_and(|entry| entry.held.from > event.position())
    }

    /// Whether it is the dead event that its aggregate is held behind.
    pub(crate) fn holds_behind(&self, event: &RecordedEvent) -> bool {
        self.of_event(event).is_some_and(|it| it.held.why == WhyHeld::Dead && it.held.from == event.position())
    }

    /// Notes that the event of a held aggregate is kept back.
    pub(crate) fn keep_back(&mut self, event: &RecordedEvent) {
        let of_event = event.aggregate();
        let entries = self.by_hash.get_mut(&event.key_hash()).into_iter().flatten();
        for entry in entries.filter(|entry| entry.held.aggregate.as_ref() == of_event) {
            entry.newest = entry.newest.max(event.position());
        }
    }

    fn of_event(&self, event: &RecordedEvent) -> Option<&Entry> {
        if self.by_hash.is_empty() {
            return None;
        }
        let of_event = event.aggregate();
        self.by_hash.get(&event.key_hash())?.iter().find(|entry| entry.held.aggregate.as_ref() == of_event)
    }

    /// What was held of an aggregate waits, from `from` on, to be read again.
    pub(crate) fn wait(&mut self, aggregate: Aggregate, from: Position) -> HeldKey {
        self.change(aggregate, from, WhyHeld::Waiting)
    }

    /// Holds an aggregate from `from` on, in place of what was known of it.
    pub(crate) fn change(&mut self, aggregate: Aggregate, from: Position, why: WhyHeld) -> HeldKey {
        let held = HeldKey { aggregate, from, why };
        self.hold(held.clone());
        held
    }

    /// Whether an aggregate of this hash is held.
    pub(crate) fn holds(&self, hash: u64) -> bool {
        self.by_hash.contains_key(&hash)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_hash.is_empty()
    }

    pub(crate) fn any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn get(&self, aggregate: &Aggregate) -> Option<&HeldKey> {
        self.entry(aggregate).map(|entry| &entry.held)
    }

    /// The newest event of the aggregate that this process kept back.
    pub(crate) fn newest(&self, aggregate: &Aggregate) -> Option<Position> {
        self.entry(aggregate).map(|entry| entry.newest)
    }

    fn entry(&self, aggregate: &Aggregate) -> Option<&Entry> {
        self.by_hash.get(&aggregate.key_hash())?.iter().find(|entry| entry.held.aggregate == *aggregate)
    }

    /// Where the unsettled events of held keys begin.
    pub(crate) fn lowest_waiting(&self) -> Option<Position> {
        self.waiting.first().map(|(from, _)| *from)
    }

    /// How many are held behind a dead event.
    pub(crate) fn dead(&self) -> usize {
        self.dead
    }
}
