use std::{collections::VecDeque, time::Duration};

use evento_core::{Aggregate, AggregateRef, Position, store::DeadEvent};

use super::{
    hash::ByHash,
    slot::{LaneId, SlotId, Slots},
};

/// The events of one aggregate that are in memory, in their order; one of them runs at a time.
#[derive(Debug)]
pub(super) struct Lane {
    hash: u64,
    pub(super) head: Option<SlotId>,
    pub(super) tail: Option<SlotId>,
    /// How many are in memory, the one that runs included.
    pub(super) len: u32,
    /// Its head waits for another attempt, or dies.
    pub(super) blocked: bool,
    /// What of the aggregate is held outside memory.
    pub(super) aside: Option<Box<Aside>>,
}

impl Lane {
    /// The aggregate, which its head names or what is held of it; one of the two is there.
    pub(super) fn aggregate<'a>(&'a self, slots: &'a Slots) -> Option<AggregateRef<'a>> {
        match &self.aside {
            Some(aside) => Some(aside.aggregate.as_ref()),
            None => self.head.and_then(|head| slots.get(head)).map(|slot| slot.event.aggregate()),
        }
    }
}

/// The part of an aggregate that is held: read again, through its index, when its turn comes.
#[derive(Debug)]
pub(super) struct Aside {
    pub(super) aggregate: Aggregate,
    /// Everything up to here is in memory, or has settled.
    pub(super) after: Position,
    pub(super) read: ReadState,
    /// Not to be read before.
    pub(super) due: Duration,
    /// It was parked behind a dead event: the stream's inline events do not wait for it.
    pub(super) released: bool,
    /// The dead event at its beginning that is to be handled again.
    pub(super) redriven: Option<DeadEvent>,
    /// What is stored of the held key is not what is so by now.
    pub(super) changed: bool,
}

/// Whether the held part is being read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ReadState {
    Wanted,
    /// `whole` where nothing that is held lies above `until` at that time.
    Asked {
        until: Position,
        whole: bool,
    },
}

impl Aside {
    pub(super) fn new(aggregate: Aggregate, after: Position) -> Self {
        Self {
            aggregate,
            after,
            read: ReadState::Wanted,
            due: Duration::ZERO,
            released: false,
            redriven: None,
            changed: true,
        }
    }
}

/// The lanes, found by the hash of their aggregate.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Option<Lane>>,
    free: Vec<u32>,
    by_hash: ByHash<LaneId>,
    /// Those that have a held part, in the order in which they are to be read.
    pub(super) aside: VecDeque<LaneId>,
}

/// What the lanes know of an event's aggregate.
pub(super) enum Found {
    Lane(LaneId),
    /// Another aggregate of the same hash has the lane.
    Collision,
    None,
}

impl Lanes {
    pub(super) fn find(&self, hash: u64, aggregate: AggregateRef<'_>, slots: &Slots) -> Found {
        let Some(&id) = self.by_hash.get(&hash) else { return Found::None };
        match self.get(id).and_then(|lane| lane.aggregate(slots)) {
            Some(of_lane) if of_lane == aggregate => Found::Lane(id),
            _ => Found::Collision,
        }
    }

    /// Opens a lane for the aggregate of this hash, of which something is put into it at once.
    pub(super) fn open(&mut self, hash: u64) -> LaneId {
        let lane = Lane { hash, head: None, tail: None, len: 0, blocked: false, aside: None };
        let id = match self.free.pop() {
            Some(place) => {
                self.lanes[place as usize] = Some(lane);
                LaneId(place)
            }
            None => {
                self.lanes.push(Some(lane));
                LaneId(u32::try_from(self.lanes.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.by_hash.insert(hash, id);
        id
    }

    /// Ends a lane of which nothing is in memory and nothing is held.
    pub(super) fn close_if_empty(&mut self, id: LaneId) {
        let Some(lane) = self.get(id) else { return };
        if lane.head.is_none() && lane.aside.is_none() {
            let hash = lane.hash;
            self.by_hash.remove(&hash);
            self.lanes[id.0 as usize] = None;
            self.free.push(id.0);
        }
    }

    pub(super) fn get(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: LaneId) -> Option<&mut Lane> {
        self.lanes.get_mut(id.0 as usize)?.as_mut()
    }

    /// The lane whose dead event at `letter` is to be handled again.
    pub(super) fn redriving(&self, letter: Position) -> Option<LaneId> {
        let redriving = |id: &LaneId| {
            let aside = self.get(*id).and_then(|lane| lane.aside.as_ref());
            aside.and_then(|aside| aside.redriven.as_ref()).is_some_and(|redriven| redriven.position == letter)
        };
        self.by_hash.values().copied().find(redriving)
    }

    /// Whether something of the aggregate, or of another one of its hash, is in memory or held by a lane.
    pub(super) fn contains(&self, aggregate: &Aggregate) -> bool {
        self.by_hash.contains_key(&aggregate.key_hash())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Lane> {
        self.lanes.iter_mut().flatten()
    }
}
