use std::collections::{BTreeSet, HashMap};

use evento_core::{
    Aggregate, Position, RecordedEvent,
    store::{HeldKey, WhyHeld},
};

/// The aggregates whose events are not handed out by the stream.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    by_hash: HashMap<u64, Vec<Entry>>,
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

    /// Whether the event is kept back; notes that it was.
    pub(crate) fn parks(&mut self, event: &RecordedEvent) -> bool {
        if self.by_hash.is_empty() {
            return false;
        }
        let Some(entries) = self.by_hash.get_mut(&event.key_hash()) else { return false };
        let of_event = event.aggregate();
        let Some(entry) = entries.iter_mut().find(|entry| entry.held.aggregate.as_ref() == of_event) else {
            return false;
        };
        entry.newest = entry.newest.max(event.position());
        true
    }

    /// Holds the event's aggregate behind it, because it is dead.
    pub(crate) fn die(&mut self, event: &RecordedEvent) -> HeldKey {
        self.change(event.aggregate().to_owned(), event.position(), WhyHeld::Dead)
    }

    /// What was held of an aggregate waits, from `from` on, to be read again.
    pub(crate) fn wait(&mut self, aggregate: Aggregate, from: Position) -> HeldKey {
        self.change(aggregate, from, WhyHeld::Waiting)
    }

    /// The aggregate is held behind a dead event at `from`.
    pub(crate) fn dead_at(&mut self, aggregate: Aggregate, from: Position) -> HeldKey {
        self.change(aggregate, from, WhyHeld::Dead)
    }

    fn change(&mut self, aggregate: Aggregate, from: Position, why: WhyHeld) -> HeldKey {
        let held = HeldKey { aggregate, from, why };
        self.hold(held.clone());
        held
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
