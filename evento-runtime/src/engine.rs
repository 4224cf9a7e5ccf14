//! The decisions of one consumer, without I/O.
//!
//! The engine is told what happened (a page came, an attempt ended, a write was made) and answers what to do next
//! (read, start, write, wake up at). It has no clock, no randomness and no store of its own, so the same code runs in
//! production and under a seeded simulation. It never waits.
//!
//! An event that is taken in has a *slot* until it has settled. Events whose handlers keep an aggregate's order stand in
//! the aggregate's *lane*, of which one runs at a time; what is too much for a lane, or stands behind a dead event, is
//! *held*: out of memory, and read again through the aggregate's index. Two steps make a turn: [`Engine::admit`] takes
//! events in and says how many permits it can use, [`Engine::dispatch`] spends them.

mod breaker;
mod config;
mod dispatch;
mod exchange;
mod hash;
mod held;
mod intake;
mod keys;
mod lane;
mod order;
mod pending;
mod place;
mod redrive;
mod request;
mod room;
mod route;
mod settle;
mod slot;
mod straight;
mod suspect;
#[cfg(test)]
mod tests;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
    vec,
};

use evento_core::{
    Position, RecordedEvent,
    store::{
        ConsumerState, DeadEvent, HeldKey, Page, Replay, RequestId, Revision, Started, StoredRequest, StoredRetry,
        WhyHeld,
    },
};

#[cfg_attr(not(feature = "simulation"), allow(unreachable_pub, reason = "public where the simulation is"))]
pub use self::config::Mutant;
#[cfg(feature = "simulation")]
pub(crate) use self::exchange::Redelivery;
pub(crate) use self::{
    breaker::Breaker,
    config::{Budget, Config, Limits, MOST_OPEN, Policy, Run},
    exchange::{Failing, Failure, FailureKind, Job, Now, Outcome, Output, Read, Start},
    order::OutOfOrder,
    pending::Cadence,
    route::Routes,
    slot::{LaneId, SlotId},
};
use self::{
    keys::Keys,
    lane::{Aside, Lanes},
    order::SequenceCheck,
    pending::Pending,
    request::Requests,
    slot::Slots,
};

/// How a claim was taken.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    /// The head as of an unclean taking: starts up to it are recorded before they run.
    pub(crate) guard_until: Option<Position>,
    /// Whether whoever held the claim before may have died in a handler.
    pub(crate) died: bool,
    pub(crate) memory: Memory,
}

/// What a process knows from its takings of a claim before, and the store does not.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    order: SequenceCheck,
    /// How many processes died at an event, as counted when the claim came to this process.
    crashes: BTreeMap<Position, Started>,
}

/// What is left of a page.
#[derive(Debug)]
struct Unread {
    events: vec::IntoIter<Arc<RecordedEvent>>,
    scanned_to: Position,
}

/// Counts since the engine was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) handled: u64,
    /// Handed over by the source although no handler takes them, or settled before.
    pub(crate) skipped: u64,
    pub(crate) dead: u64,
    pub(crate) parked: u64,
    /// Held because their aggregate was busy.
    pub(crate) aside: u64,
    pub(crate) failed_attempts: u64,
    pub(crate) transient_failures: u64,
    /// Waited longer than a second for a permit.
    pub(crate) submit_timeouts: u64,
}

/// What an executor has to do with this consumer.
#[derive(Clone, Debug)]
struct Use {
    limits: Limits,
    /// The handlers it runs.
    handlers: Vec<usize>,
    /// Slots of the stream's events.
    in_memory: usize,
    /// Permits at hand.
    granted: usize,
    /// Permits of attempts that run, or whose start is being recorded.
    running: usize,
    /// Permits to give back.
    returned: usize,
    /// Under `OnStart`: failed, and not yet stored.
    unstored: usize,
    /// Became ready since the last turn, for the count of those that found no permit.
    fresh: usize,
    rejected: u64,
    /// Events that wait for their next attempt, by when it is due.
    waiting: BTreeSet<(Duration, SlotId)>,
}

pub(crate) struct Engine {
    config: Config,
    pending: Pending,
    slots: Slots,
    lanes: Lanes,
    keys: Keys,
    requests: Requests,
    order: SequenceCheck,
    /// The stream does not go on behind it.
    out_of_order: Option<OutOfOrder>,
    uses: Vec<Use>,
    /// Ready events by handler, in the order in which they are to start.
    ready: Vec<VecDeque<SlotId>>,
    breakers: Vec<Breaker>,

    pages: VecDeque<Unread>,
    /// The next event of the first page, that there was no room for yet.
    next: Option<Arc<RecordedEvent>>,
    /// Up to where pages have been asked for.
    scanned_to: Position,
    head: Position,
    fetching: bool,
    /// The last page ended at the head.
    at_head: bool,
    /// The log may have grown since the page that is being read was asked for: it need not say so.
    moved_since_asked: bool,

    /// Open positions to be read again, the oldest first.
    to_recover: VecDeque<Position>,
    /// Some of them are being read.
    recovering: bool,
    recovered: VecDeque<Arc<RecordedEvent>>,
    /// Open positions of an earlier process that have no slot yet.
    unrecovered: BTreeSet<Position>,
    /// Open positions that gave their slot back while they wait, by when they are due.
    off_slot: BTreeMap<Position, Duration>,
    /// Of these, those that are being read.
    returning: BTreeSet<Position>,
    /// Above the frontier or open, and settled by a letter.
    letters: BTreeSet<Position>,
    retries: BTreeMap<Position, StoredRetry>,
    /// How many processes died at an event.
    crashes: BTreeMap<Position, Started>,
    /// Starts are recorded before they run, up to here.
    guard_until: Position,
    replay: Option<Replay>,

    /// Up to where the stream has been taken in.
    admitted: Position,
    /// The greatest position that the checkpoint may name: what is open below it is named apart.
    passed: Position,
    /// The stream's inline event: a barrier both ways.
    barrier: Option<SlotId>,
    /// The inline event whose handler runs, or whose start is being recorded.
    inline_busy: Option<SlotId>,
    /// Inline events that wait for their next attempt.
    inline_waiting: BTreeSet<(Duration, SlotId)>,
    /// Starts that are being recorded.
    recording: Vec<SlotId>,
    /// Events whose letter is being written.
    dying: Vec<SlotId>,
    /// Failed under `OnStart`, and not stored before this write.
    unstored: Vec<(u64, usize)>,
    /// Slots of events that were read again.
    again: usize,
    /// Slots that no inline event waits for: dead or parked ones that are handled again.
    exempt: usize,
    /// Lanes with a held part that inline events wait for.
    asides: usize,
    /// As many events are open as may be.
    crowded: bool,
    bytes: usize,
    /// Slots whose handler runs.
    busy: usize,
    turn: bool,
    paused: bool,
    stopping: bool,
    counts: Counts,
}

impl Engine {
    /// Takes up a consumer where its stored state says.
    pub(crate) fn new(config: Config, state: ConsumerState, taking: Taking, now: Now) -> Self {
        let Taking { guard_until, died, memory } = taking;
        let mut pending = Pending::new(config.cadence, state.revision, state.frontier, &state.open, now.since_start);
        if state.names != config.names {
            pending.set_names(config.names.clone());
        }
        let mut crashes = BTreeMap::new();
        for started in state.started {
            pending.recorded_before(started.position);
            let known = memory.crashes.get(&started.position).map_or(started.crashes, |known| known.crashes);
            let deaths = if died { started.crashes.saturating_add(1) } else { known };
            if guard_until.is_some() && deaths > 0 {
                crashes.insert(started.position, Started { crashes: deaths, ..started });
            } else {
                pending.start_ended(started.position);
            }
        }
        // The process died in an attempt that the checkpoint had passed: there will be no other.
        let is_passed = |retry: &StoredRetry| {
            let is_held = |held: &HeldKey| held.aggregate.key_hash() == retry.key_hash && held.from <= retry.position;
            retry.position <= state.frontier
                && state.open.binary_search(&retry.position).is_err()
                && !state.held.iter().any(is_held)
        };
        let (passed, retries): (Vec<_>, Vec<_>) = state.retries.into_iter().partition(is_passed);
        for retry in passed {
            pending.retry_ended(retry.position);
        }
        let uses = (0..config.executors.len()).map(|index| Use::new(&config, index)).collect();
        let mut engine = Self {
            pending,
            uses,
            slots: Slots::default(),
            lanes: Lanes::default(),
            keys: Keys::default(),
            requests: Requests::default(),
            order: memory.order,
            out_of_order: None,
            ready: vec![VecDeque::new(); config.policies.len()],
            breakers: vec![Breaker::default(); config.policies.len()],
            pages: VecDeque::new(),
            next: None,
            scanned_to: state.frontier,
            head: Position::BEGINNING,
            fetching: false,
            at_head: false,
            moved_since_asked: false,
            recovering: false,
            to_recover: state.open.iter().copied().collect(),
            recovered: VecDeque::new(),
            unrecovered: state.open.into_iter().collect(),
            off_slot: BTreeMap::new(),
            returning: BTreeSet::new(),
            letters: state.letters.into_iter().collect(),
            retries: retries.into_iter().map(|retry| (retry.position, retry)).collect(),
            crashes,
            guard_until: guard_until.unwrap_or_default(),
            replay: state.replay,
            admitted: state.frontier,
            passed: state.frontier,
            barrier: None,
            inline_busy: None,
            inline_waiting: BTreeSet::new(),
            recording: Vec::new(),
            dying: Vec::new(),
            unstored: Vec::new(),
            again: 0,
            exempt: 0,
            asides: 0,
            crowded: false,
            bytes: 0,
            busy: 0,
            turn: false,
            paused: false,
            stopping: false,
            counts: Counts::default(),
            config,
        };
        for held in state.held {
            let aside = (held.why != WhyHeld::Dead)
                .then(|| Aside { changed: false, ..Aside::new(held.aggregate.clone(), held.from.just_before()) });
            engine.keys.hold(held);
            if let Some(aside) = aside {
                engine.set_aside(aside);
            }
        }
        engine
    }

    /// Whether the engine is broken in this way: never, outside the simulation's own test.
    fn mutant(&self, mutant: Mutant) -> bool {
        #[cfg(feature = "simulation")]
        return self.config.mutant == Some(mutant);
        #[cfg(not(feature = "simulation"))]
        {
            let _none = mutant;
            false
        }
    }

    // ---- inputs: what was read

    /// The page that `Output::fetch` asked for.
    pub(crate) fn page(&mut self, page: Page) {
        debug_assert!(self.fetching, "a page nobody asked for");
        self.fetching = false;
        self.scanned_to = self.scanned_to.max(page.scanned_to);
        self.head = self.head.max(page.head);
        self.at_head = page.scanned_to >= page.head && !std::mem::take(&mut self.moved_since_asked);
        self.pages.push_back(Unread { events: page.events.into_iter(), scanned_to: page.scanned_to });
    }

    /// The page could not be read: it is asked for again at the next step.
    pub(crate) fn fetch_failed(&mut self) {
        self.fetching = false;
        self.moved_since_asked = false;
    }

    /// The log may have grown.
    pub(crate) fn head_moved(&mut self) {
        self.at_head = false;
        self.moved_since_asked = self.fetching;
    }

    /// The letters that `Read::Letters` asked for; `last` where no more follow.
    pub(crate) fn letters(&mut self, request: RequestId, letters: Vec<DeadEvent>, last: bool) {
        self.requests.letters(request, letters, last);
    }

    /// The stored requests that are open now. One that was under way and is no longer among them has been stopped.
    pub(crate) fn requests(&mut self, open: &[StoredRequest]) {
        if let Some(letter) = self.requests.update(open) {
            self.abandon(letter);
        }
    }

    // ---- inputs: what was written

    /// The write was made.
    pub(crate) fn committed(&mut self, revision: Revision, now: Now) {
        self.pending.written(revision, now.since_start);
        let written = self.pending.last_written();
        let mut stored = Vec::new();
        self.unstored.retain(|&(write, executor)| {
            let is_stored = write <= written;
            if is_stored {
                stored.push(executor);
            }
            !is_stored
        });
        for executor in stored {
            self.uses[executor].unstored -= 1;
        }
    }

    /// The write was surely not made, and is wanted again later.
    pub(crate) fn commit_failed(&mut self, now: Now) {
        self.pending.not_written(now.since_start);
    }

    // ---- inputs: what people say

    /// Stops admission; what runs settles normally.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    pub(crate) fn resume(&mut self) {
        self.paused = false;
    }

    /// Stops admission for good: what runs may end, what has settled is written. Starts that were recorded and have not
    /// begun are put back.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        for id in std::mem::take(&mut self.recording) {
            self.put_back(id);
        }
    }

    /// The consumer's work under its claim has ended: takes what the next taking by this process is to know.
    pub(crate) fn take_memory(&mut self) -> Memory {
        Memory { order: std::mem::take(&mut self.order), crashes: std::mem::take(&mut self.crashes) }
    }

    /// Gives permits for an executor, by its place.
    pub(crate) fn grant(&mut self, executor: usize, permits: usize) {
        self.uses[executor].granted += permits;
    }

    /// Takes back the permits of attempts that have ended, and those at hand that nothing is ready for.
    pub(crate) fn take_returned(&mut self, executor: usize) -> usize {
        std::mem::take(&mut self.uses[executor].returned)
    }
}

impl Use {
    fn new(config: &Config, index: usize) -> Self {
        let runs_here = |policy: &Policy| matches!(policy.run, Run::Executor { index: at, .. } if at == index);
        let handlers = config.policies.iter().enumerate().filter(|(_, policy)| runs_here(policy));
        Self {
            limits: config.executors[index],
            handlers: handlers.map(|(handler, _)| handler).collect(),
            in_memory: 0,
            granted: 0,
            running: 0,
            returned: 0,
            unstored: 0,
            fresh: 0,
            rejected: 0,
            waiting: BTreeSet::new(),
        }
    }
}
