//! The decisions of one consumer, without I/O.
//!
//! The engine is told what happened (a page came, an attempt ended, a write was made) and answers what to do next
//! (read, start, write, wake up at). It has no clock, no randomness and no store of its own, so the same code runs in
//! production and under a seeded simulation. It never waits.
//!
//! Dispatch is sequential: at most one attempt runs at a time. Two sorts of work compete for it, turn by turn: the
//! *stream* (the events of the source, in order) and *drains* (the events of one held aggregate, in order, read again
//! through the aggregate's index).

mod active;
mod drain;
mod keys;
mod order;
mod pending;
mod request;
mod route;
mod settle;
mod stream;
#[cfg(test)]
mod tests;
mod view;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use evento_core::{
    Aggregate, OnDead, Position, RecordedEvent, Timestamp,
    retry::Backoff,
    store::{
        Commit, ConsumerState, DeadEvent, Page, Replay, RequestId, Revision, Selection, StoredRequest, StoredRetry,
        Target, WhyHeld,
    },
};

use self::{
    active::{Active, Stage, Verdict},
    drain::{Drained, Drains},
    keys::Keys,
    order::SequenceCheck,
    pending::Pending,
    request::Requests,
};
pub(crate) use self::{
    active::{Failing, Failure, FailureKind},
    drain::SIDE_BY_SIDE,
    order::OutOfOrder,
    pending::Cadence,
    route::Routes,
};

/// The time, as both clocks read it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Now {
    /// Since the bundle began; everything is decided by it.
    pub(crate) since_start: Duration,
    /// For what is stored and read by people.
    pub(crate) wall: Timestamp,
}

/// How often a handler is tried.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Budget {
    /// For ever.
    Forever,
    /// This many times after the first.
    Times(u32),
}

/// What the engine knows of a handler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) budget: Budget,
    pub(crate) backoff: Backoff,
}

/// What the engine is set up with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// Handlers by event name.
    pub(crate) routes: Routes,
    pub(crate) policies: Vec<Policy>,
    pub(crate) on_dead: OnDead,
    pub(crate) cadence: Cadence,
    /// An event that was under way when this many processes died is dead.
    pub(crate) max_crashes: u32,
    /// The event names the component takes; sorted.
    pub(crate) names: Vec<String>,
}

/// Which attempt an input or output is about.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Slot {
    /// The stream's.
    Stream,
    /// That of a drain.
    Drain(u64),
}

/// An attempt to start.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) slot: Slot,
    pub(crate) event: Arc<RecordedEvent>,
    pub(crate) handler: usize,
    /// From 1.
    pub(crate) attempt: u32,
    pub(crate) replay: bool,
}

/// Something to read beside the stream's pages.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Read {
    /// The events at these positions: answered by [`Engine::recovered`].
    At(Vec<Position>),
    /// The events of a held aggregate, and its letters: answered by [`Engine::drained`].
    Aggregate { drain: u64, aggregate: Aggregate, after: Position, until: Position },
    /// Letters of a request: answered by [`Engine::letters`].
    Letters { request: RequestId, target: Target, after: Position },
}

/// What the engine wants done. One is reused from step to step.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Read a page after this position.
    pub(crate) fetch: Option<Position>,
    pub(crate) reads: Vec<Read>,
    pub(crate) start: Option<Start>,
    /// Write this, and answer with `committed` or `commit_failed`.
    pub(crate) commit: Option<Commit>,
    /// Call `poll` again at this time at the latest.
    pub(crate) wake_at: Option<Duration>,
}

/// Counts since the engine was made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) handled: u64,
    /// Handed over by the source although no handler takes them, or settled before.
    pub(crate) skipped: u64,
    pub(crate) dead: u64,
    pub(crate) parked: u64,
    pub(crate) failed_attempts: u64,
}

pub(crate) struct Engine {
    config: Config,
    pending: Pending,
    keys: Keys,
    drains: Drains,
    requests: Requests,
    order: SequenceCheck,

    pages: VecDeque<Page>,
    /// The next event of the first page.
    cursor: usize,
    /// Up to where pages have been asked for.
    scanned_to: Position,
    head: Position,
    fetching: bool,
    /// The last page ended at the head.
    at_head: bool,
    /// The log grew while a page was under way, which may have been read before.
    grew_meanwhile: bool,

    /// Open positions that have not been asked for again.
    to_recover: VecDeque<Position>,
    /// Some of them are being read.
    recovering: bool,
    recovered: VecDeque<Arc<RecordedEvent>>,
    /// Open at or below the frontier.
    open: BTreeSet<Position>,
    /// Above the frontier or open, and settled by a letter.
    letters: BTreeSet<Position>,
    retries: BTreeMap<Position, StoredRetry>,
    /// How many processes died at an event.
    crashes: BTreeMap<Position, u32>,
    /// Starts at or before this are recorded before they run.
    guard_until: Position,
    replay: Option<Replay>,

    active: Option<Active>,
    running: Option<Slot>,
    drain_had_turn: bool,
    paused: bool,
    stopping: bool,
    counts: Counts,
}

impl Engine {
    /// Takes up a consumer where its stored state says. `guard_until` is the head as of an unclean taking.
    pub(crate) fn new(config: Config, state: ConsumerState, guard_until: Option<Position>, now: Now) -> Self {
        let mut pending = Pending::new(config.cadence, state.revision, state.frontier, now.since_start);
        if state.names != config.names {
            pending.set_names(config.names.clone());
        }
        let mut crashes = BTreeMap::new();
        for started in state.started {
            pending.recorded_before(started.position);
            if guard_until.is_some() {
                crashes.insert(started.position, started.crashes.saturating_add(1));
            } else {
                pending.start_ended(started.position);
            }
        }
        let mut keys = Keys::default();
        let mut drains = Drains::default();
        for held in state.held {
            if held.why != WhyHeld::Dead {
                drains.queue(held.aggregate.clone());
            }
            keys.hold(held);
        }
        Self {
            pending,
            keys,
            drains,
            requests: Requests::default(),
            order: SequenceCheck::default(),
            pages: VecDeque::new(),
            cursor: 0,
            scanned_to: state.frontier,
            head: Position::BEGINNING,
            fetching: false,
            at_head: false,
            grew_meanwhile: false,
            recovering: false,
            to_recover: state.open.iter().copied().collect(),
            recovered: VecDeque::new(),
            open: state.open.into_iter().collect(),
            letters: state.letters.into_iter().collect(),
            retries: state.retries.into_iter().map(|retry| (retry.position, retry)).collect(),
            crashes,
            guard_until: guard_until.unwrap_or_default(),
            replay: state.replay,
            active: None,
            running: None,
            drain_had_turn: false,
            paused: false,
            stopping: false,
            counts: Counts::default(),
            config,
        }
    }

    // ---- inputs

    /// The page that `Output::fetch` asked for.
    pub(crate) fn page(&mut self, page: Page) {
        debug_assert!(self.fetching, "a page nobody asked for");
        self.fetching = false;
        self.scanned_to = self.scanned_to.max(page.scanned_to);
        self.head = self.head.max(page.head);
        self.at_head = page.scanned_to >= page.head && !std::mem::take(&mut self.grew_meanwhile);
        self.pages.push_back(page);
    }

    /// The page could not be read: it is asked for again at the next step.
    pub(crate) fn fetch_failed(&mut self) {
        self.fetching = false;
        self.grew_meanwhile = false;
    }

    /// The log may have grown.
    pub(crate) fn head_moved(&mut self) {
        self.at_head = false;
        self.grew_meanwhile = self.fetching;
    }

    /// The events that `Read::At` asked for. Those of `asked` that were looked at are settled where the log holds none,
    /// the others are asked for again.
    pub(crate) fn recovered(&mut self, asked: &[Position], found: Selection) {
        self.recovering = false;
        let at: BTreeSet<_> = found.events.iter().map(|event| event.position()).collect();
        for &position in asked.iter().rev().filter(|position| !at.contains(position)) {
            if position > found.scanned_to {
                self.to_recover.push_front(position);
            } else {
                self.counts.skipped += 1;
                self.settle_open(position);
            }
        }
        self.recovered.extend(found.events);
    }

    /// A read beside the stream failed: it is asked for again at the next step.
    pub(crate) fn read_failed(&mut self, read: Read) {
        match read {
            Read::At(positions) => {
                for position in positions.into_iter().rev() {
                    self.to_recover.push_front(position);
                }
                self.recovering = false;
            }
            Read::Aggregate { drain, .. } => self.drains.read_failed(drain),
            Read::Letters { request, .. } => self.requests.read_failed(request),
        }
    }

    /// The events that `Read::Aggregate` asked for, and where the aggregate's letters are, as far as was looked.
    pub(crate) fn drained(&mut self, drain: u64, found: Selection, letters: Vec<Position>) {
        match self.drains.read(drain, found, letters, &mut self.keys) {
            Drained::GoesOn => {}
            Drained::Live(aggregate) => self.pending.release(aggregate),
            Drained::Missing(letter) => self.letter_failed(letter),
        }
    }

    /// The letters that `Read::Letters` asked for; `last` where no more follow.
    pub(crate) fn letters(&mut self, request: RequestId, letters: Vec<DeadEvent>, last: bool) {
        self.requests.letters(request, letters, last);
    }

    /// The stored requests that are open now. One that was under way and is no longer among them has been stopped.
    pub(crate) fn requests(&mut self, open: &[StoredRequest]) {
        if let Some(letter) = self.requests.update(open) {
            self.drains.abandon(letter, self.running);
        }
    }

    /// An attempt returned; `random` is any number.
    pub(crate) fn ended(&mut self, slot: Slot, outcome: Result<(), Failure>, random: u64, now: Now) {
        debug_assert_eq!(self.running, Some(slot), "an attempt ended that was not running");
        self.running = None;
        let Some(mut active) = self.take_active(slot) else { return };
        match outcome {
            Ok(()) => {
                self.counts.handled += 1;
                self.settle(slot, &active.event);
            }
            Err(failure) => {
                self.counts.failed_attempts += 1;
                self.pending.start_ended(active.event.position());
                let policy = self.config.policies[active.handler];
                match active.failed(failure, policy, random, now) {
                    // A letter that is tried again stays a letter until it succeeds: there is no retry to store.
                    Verdict::Again(retry) if !self.drains.is_redriven(slot, retry.position) => {
                        self.retries.insert(retry.position, retry.clone());
                        active.needs_write = self.pending.retry(retry);
                    }
                    Verdict::Again(_) => self.drains.end_abandoned(slot),
                    Verdict::Dead(reason) => self.die(slot, &mut active, reason, now),
                }
                self.put_active(slot, active);
            }
        }
    }

    /// The attempt was cut off before it returned, by a shutdown: its event stays unsettled, and nothing is admitted in
    /// its place any more, or the frontier would pass it.
    pub(crate) fn cut_off(&mut self, slot: Slot) -> Option<Arc<RecordedEvent>> {
        self.stop();
        self.running = None;
        let active = self.take_active(slot)?;
        self.pending.start_ended(active.event.position());
        Some(active.event)
    }

    /// The write was made.
    pub(crate) fn committed(&mut self, revision: Revision, now: Now) {
        self.pending.written(revision, now.since_start);
    }

    /// The write was surely not made, and is wanted again later.
    pub(crate) fn commit_failed(&mut self, now: Now) {
        self.pending.not_written(now.since_start);
    }

    /// Stops admission; what runs settles normally.
    pub(crate) fn pause(&mut self) {
        self.paused = true;
    }

    pub(crate) fn resume(&mut self) {
        self.paused = false;
    }

    /// Stops admission for good: what runs may end, what has settled is written.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
        // A start that was recorded and has not begun is taken back.
        for active in self.active.iter().chain(self.drains.actives()) {
            if active.stage == Stage::Recording {
                self.pending.start_ended(active.event.position());
            }
        }
    }

    // ---- the one step

    /// Decides what to do next. At most one attempt is started a step.
    pub(crate) fn poll(&mut self, now: Now, out: &mut Output) -> Result<(), OutOfOrder> {
        self.advance_requests();
        if self.running.is_none() {
            let stream_first = self.drain_had_turn;
            self.drain_had_turn = false;
            if stream_first {
                self.step_stream(now, out)?;
            }
            if out.start.is_none() && self.step_drains(now, out) {
                self.drain_had_turn = true;
            }
            if out.start.is_none() && !stream_first {
                self.step_stream(now, out)?;
            }
        }
        if !self.stopping {
            self.ask(out);
        }
        let idle = self.running.is_none() && self.pages.is_empty() && self.recovered.is_empty();
        out.commit = self.pending.commit(idle, self.stopping, now.since_start);
        out.wake_at = [self.pending.wake_at(), self.next_retry(now)].into_iter().flatten().min();
        Ok(())
    }

    fn admits(&self, now: Now) -> bool {
        !self.paused && !self.stopping && !self.pending.holds_admission(now.since_start)
    }

    fn ask(&mut self, out: &mut Output) {
        if !self.recovering && self.recovered.is_empty() && !self.to_recover.is_empty() {
            self.recovering = true;
            let some = self.to_recover.len().min(1000);
            out.reads.push(Read::At(self.to_recover.drain(..some).collect()));
        }
        if !self.paused && !self.fetching && !self.at_head && self.pages.len() < 2 {
            self.fetching = true;
            out.fetch = Some(self.scanned_to);
        }
        self.drains.ask(&self.keys, self.pending.frontier(), out);
        self.requests.ask(out);
    }

    fn next_retry(&self, now: Now) -> Option<Duration> {
        // What waits for a write goes on when that is made, which wakes by itself.
        if self.running.is_some() || !self.admits(now) {
            return None;
        }
        let stored = |active: &&Active| self.pending.is_written(active.needs_write);
        self.active.iter().chain(self.drains.actives()).filter(stored).filter_map(Active::due).min()
    }
}
