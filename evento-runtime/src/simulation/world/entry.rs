use std::cmp::Ordering;

use evento_core::{
    Position,
    store::{Commit, DeadEvent, DeadPosition, Page, Revision, Selection},
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
    Found(Read, Found),
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

/// What a read beside the stream found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) selection: Selection,
    pub(super) dead: Vec<DeadPosition>,
    pub(super) letters: Vec<DeadEvent>,
    pub(super) last: bool,
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
