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
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use evento_core::{
    Aggregate, OnDead, Position, RecordedEvent, Timestamp,
    retry::Backoff,
    store::{
        Commit, ConsumerState, DeadEvent, DeadReason, Page, Replay, RequestId, Revision, StoredRequest, StoredRetry,
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
    order::OutOfOrder,
    pending::Cadence,
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
    pub(crate) routes: HashMap<String, usize>,
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
                crashes.insert(started.position, started.crashes + 1);
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

    /// The events that `Read::At` asked for; `asked` are settled where the log holds none.
    pub(crate) fn recovered(&mut self, asked: &[Position], events: Vec<Arc<RecordedEvent>>) {
        self.recovering = false;
        let found: BTreeSet<_> = events.iter().map(|event| event.position()).collect();
        for &position in asked.iter().filter(|position| !found.contains(position)) {
            self.counts.skipped += 1;
            self.settle_open(position);
        }
        self.recovered.extend(events);
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

    /// The events and letters that `Read::Aggregate` asked for.
    pub(crate) fn drained(&mut self, drain: u64, events: Vec<Arc<RecordedEvent>>, letters: Vec<Position>) {
        match self.drains.read(drain, events, letters, &mut self.keys) {
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

    /// The attempt was cut off before it returned, by a shutdown: its event stays unsettled.
    pub(crate) fn cut_off(&mut self, slot: Slot) -> Option<Arc<RecordedEvent>> {
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

    /// Goes on with the stream's event, or admits its next.
    fn step_stream(&mut self, now: Now, out: &mut Output) -> Result<(), OutOfOrder> {
        if let Some(active) = self.active.take()
            && !self.go_on(Slot::Stream, active, now, out)
        {
            return Ok(());
        }
        if !self.admits(now) {
            return Ok(());
        }
        while self.active.is_none() && out.start.is_none() {
            let Some(event) = self.next_event()? else { break };
            if let Some(handler) = self.admit(&event) {
                let stored = self.retries.get(&event.position());
                let active = Active::new(event, handler, stored, now);
                self.begin(Slot::Stream, active, now, out);
            }
        }
        Ok(())
    }

    /// The stream's next event: what was open first, then the pages.
    fn next_event(&mut self) -> Result<Option<Arc<RecordedEvent>>, OutOfOrder> {
        if let Some(event) = self.recovered.pop_front() {
            return Ok(Some(event));
        }
        if self.recovering || !self.to_recover.is_empty() {
            return Ok(None);
        }
        while let Some(page) = self.pages.front() {
            if let Some(event) = page.events.get(self.cursor) {
                let event = Arc::clone(event);
                self.cursor += 1;
                self.order.check(&event)?;
                return Ok(Some(event));
            }
            let (from, to) = (self.pending.frontier(), page.scanned_to);
            self.pending.scanned(to);
            self.forget_retries_between(from, to);
            self.pages.pop_front();
            self.cursor = 0;
        }
        Ok(None)
    }

    /// Which handler takes the event now; `None` where it is settled instead.
    fn admit(&mut self, event: &RecordedEvent) -> Option<usize> {
        let position = event.position();
        let route = self.config.routes.get(event.name()).copied();
        if self.letters.remove(&position) || route.is_none() {
            self.counts.skipped += 1;
            self.settle_position(position, false);
            return None;
        }
        if self.keys.parks(event) {
            self.counts.parked += 1;
            self.settle_position(position, true);
            return None;
        }
        route
    }

    /// Goes on with an event that has a place already. Answers whether the place is free again.
    fn go_on(&mut self, slot: Slot, active: Active, now: Now, out: &mut Output) -> bool {
        match active.stage {
            Stage::Dying if self.pending.is_written(active.needs_write) => {
                self.settle_dead(slot, &active);
                return true;
            }
            Stage::Recording if self.pending.is_written(active.needs_write) && self.admits(now) => {
                self.start(slot, active, out);
                return false;
            }
            Stage::Waiting { due }
                if due <= now.since_start && self.pending.is_written(active.needs_write) && self.admits(now) =>
            {
                self.begin(slot, active, now, out);
                return false;
            }
            Stage::Running | Stage::Dying | Stage::Recording | Stage::Waiting { .. } => {}
        }
        self.put_active(slot, active);
        false
    }

    /// Gives an event a place: it starts at once, or after its retry is due, or after its start is recorded.
    fn begin(&mut self, slot: Slot, mut active: Active, now: Now, out: &mut Output) {
        let position = active.event.position();
        if let Stage::Waiting { due } = active.stage
            && due > now.since_start
        {
            self.put_active(slot, active);
            return;
        }
        let crashes = self.crashes.get(&position).copied().unwrap_or(0);
        if crashes >= self.config.max_crashes {
            active.cause = vec![format!("the process died {crashes} times while this event was being handled")];
            self.die(slot, &mut active, DeadReason::KilledTheProcess, now);
            self.put_active(slot, active);
        } else if position <= self.guard_until {
            active.stage = Stage::Recording;
            active.needs_write = self.pending.start(position, active.event.key_hash(), crashes);
            self.put_active(slot, active);
        } else {
            self.start(slot, active, out);
        }
    }

    fn start(&mut self, slot: Slot, mut active: Active, out: &mut Output) {
        active.stage = Stage::Running;
        let position = active.event.position();
        out.start = Some(Start {
            slot,
            event: Arc::clone(&active.event),
            handler: active.handler,
            attempt: active.attempts + 1,
            replay: self.replay.as_ref().is_some_and(|replay| replay.contains(position)),
        });
        self.running = Some(slot);
        self.put_active(slot, active);
    }

    fn take_active(&mut self, slot: Slot) -> Option<Active> {
        match slot {
            Slot::Stream => self.active.take(),
            Slot::Drain(id) => self.drains.take_active(id),
        }
    }

    fn put_active(&mut self, slot: Slot, active: Active) {
        match slot {
            Slot::Stream => self.active = Some(active),
            Slot::Drain(id) => self.drains.put_active(id, active),
        }
    }

    // ---- settling

    fn settle(&mut self, slot: Slot, event: &RecordedEvent) {
        match slot {
            Slot::Stream => self.settle_position(event.position(), true),
            Slot::Drain(id) => self.settle_drained(id, event.position()),
        }
    }

    fn settle_position(&mut self, position: Position, counts: bool) {
        if position <= self.pending.frontier() {
            self.settle_open(position);
        } else {
            self.forget_retries_between(self.pending.frontier(), position.just_before());
            self.pending.settled(position, counts);
        }
        self.forget(position);
    }

    fn settle_open(&mut self, position: Position) {
        if self.open.remove(&position) {
            self.pending.close(position);
        }
        self.forget(position);
    }

    /// Drops what was stored of the event's attempts.
    fn forget(&mut self, position: Position) {
        if !self.retries.is_empty() && self.retries.remove(&position).is_some() {
            self.pending.retry_ended(position);
        }
        if !self.crashes.is_empty() {
            self.crashes.remove(&position);
        }
        self.pending.start_ended(position);
    }

    /// Retries of events that the source no longer hands over: their handler is gone.
    fn forget_retries_between(&mut self, from: Position, to: Position) {
        if self.retries.is_empty() || from >= to {
            return;
        }
        let gone: Vec<_> =
            self.retries.range((Bound::Excluded(from), Bound::Included(to))).map(|(at, _)| *at).collect();
        for position in gone {
            self.counts.skipped += 1;
            self.forget(position);
        }
    }

    /// Gives the event up: its place is free once letter and held key are stored.
    fn die(&mut self, slot: Slot, active: &mut Active, reason: DeadReason, now: Now) {
        let parks = match slot {
            Slot::Stream => self.config.on_dead == OnDead::Park,
            Slot::Drain(id) => self.drains.parks(id),
        };
        if parks {
            self.pending.hold(self.keys.die(&active.event));
        }
        let letter = active.letter(reason, parks, now.wall);
        active.stage = Stage::Dying;
        active.needs_write = self.pending.dead(letter);
    }

    fn settle_dead(&mut self, slot: Slot, active: &Active) {
        let position = active.event.position();
        match slot {
            Slot::Stream => {
                self.counts.dead += 1;
                self.settle_position(position, true);
            }
            Slot::Drain(id) => self.drain_died(id, position),
        }
    }

    // ---- what people and tests ask

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The last position admitted and settled.
    pub(crate) fn frontier(&self) -> Position {
        self.pending.frontier()
    }

    /// Everything at or below this position is settled, dead or parked.
    pub(crate) fn settled_to(&self) -> Position {
        let lowest = self.open.first().copied().into_iter().chain(self.keys.lowest_waiting()).min();
        lowest.map_or(self.pending.frontier(), |open| open.just_before().min(self.pending.frontier()))
    }

    /// The last head a page told of.
    pub(crate) fn head(&self) -> Position {
        self.head
    }

    /// The event being handled or waiting for its next attempt, and how it stands.
    pub(crate) fn failing(&self) -> Option<Failing> {
        self.active.iter().chain(self.drains.actives()).find_map(Active::failing)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// How many aggregates have events parked behind a dead one.
    pub(crate) fn keys_dead(&self) -> usize {
        self.keys.dead()
    }

    /// Whether nothing runs and nothing is left to write.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopping && self.running.is_none() && self.pending.is_clean()
    }

    /// The revision that the write under way replaces.
    pub(crate) fn replaces(&self) -> Option<Revision> {
        self.pending.replaces()
    }

    /// How many pages are in memory.
    pub(crate) fn pages_held(&self) -> usize {
        self.pages.len()
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

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("frontier", &self.pending.frontier())
            .field("running", &self.running)
            .field("active", &self.active)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
