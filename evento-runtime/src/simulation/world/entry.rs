use std::{cmp::Ordering, sync::Arc};

use evento_core::{
    Position, RecordedEvent,
    store::{Commit, DeadEvent, Page, Revision},
};

use super::super::{bits::Bits, store::Applied};
use crate::engine::{FailureKind, Read};

pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) order: u64,
    pub(super) consumer: usize,
    pub(super) what: What,
}

pub(super) enum What {
    ReadPage(Position),
    Page(Page),
    PageFailed,
    Read(Read),
    Found(Read, Vec<Arc<RecordedEvent>>, Vec<DeadEvent>, bool),
    ReadFailed(Read),
    /// A write reaches the store; nobody waits for the answer of a `late` one.
    Write {
        commit: Box<Commit>,
        handled: Bits,
        late: bool,
    },
    Written(Applied),
    /// The write's outcome is unknown: its revision is read back.
    Resolve,
    Resolved(Revision),
    Returns {
        run: usize,
        returns: Returns,
    },
    /// What has ended reaches the engine.
    Flush,
    Wake,
    HeadMoved,
    Requests,
    CutOff,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Returns {
    Handled,
    Failed(FailureKind),
    Kills,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}
