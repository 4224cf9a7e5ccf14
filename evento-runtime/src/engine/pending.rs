use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use evento_core::{
    Aggregate, Position,
    store::{Commit, DeadEvent, HeldKey, RequestId, RequestProgress, Revision, Started, StoredRetry},
};

/// When checkpoints are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    /// This long after an event settled, at the latest.
    pub(crate) every: Duration,
    /// After this many settled events.
    pub(crate) events: usize,
    /// After each settled event, before the next is admitted.
    pub(crate) every_event: bool,
    /// This long after the last write, where events were only skipped.
    pub(crate) skipped_every: Duration,
    /// So many settled and unwritten events stop admission.
    pub(crate) max_unwritten: usize,
    /// A write this much later than it should be stops admission.
    pub(crate) overdue: Duration,
}

/// What has changed and is not yet stored.
///
/// Each change goes into the next write; a write that is under way is never touched again. `is_written` tells of a
/// write by the number it was announced under.
#[derive(Debug)]
pub(crate) struct Pending {
    cadence: Cadence,
    revision: Revision,
    moved: bool,
    /// What is stored as open, or will be by the write under way; sorted.
    open: Vec<Position>,
    frontier: Position,
    keys: HashMap<Aggregate, Option<HeldKey>>,
    retries: BTreeMap<Position, Option<StoredRetry>>,
    starts: BTreeMap<Position, Option<Started>>,
    /// Starts that are stored, or will be by the next write.
    recorded: BTreeSet<Position>,
    letters: BTreeMap<Position, Option<DeadEvent>>,
    requests: BTreeMap<RequestId, RequestProgress>,
    names: Option<Vec<String>>,
    settled: usize,
    /// When the first of the settled events did.
    settled_since: Option<Duration>,
    urgent: bool,
    now: Duration,

    writing: Option<Writing>,
    /// The number of the last write that was made.
    written: u64,
    last_write: Duration,
}

#[derive(Debug)]
struct Writing {
    commit: Commit,
    settled: usize,
    settled_since: Option<Duration>,
    /// Set while the store has not got it: when to try again.
    again_at: Option<Duration>,
    failures: u32,
}

impl Pending {
    pub(crate) fn new(
        cadence: Cadence,
        revision: Revision,
        frontier: Position,
        open: &[Position],
        now: Duration,
    ) -> Self {
        Self {
            cadence,
            revision,
            frontier,
            moved: false,
            open: open.to_vec(),
            keys: HashMap::new(),
            retries: BTreeMap::new(),
            starts: BTreeMap::new(),
            recorded: BTreeSet::new(),
            letters: BTreeMap::new(),
            requests: BTreeMap::new(),
            names: None,
            settled: 0,
            settled_since: None,
            urgent: false,
            now,
            writing: None,
            written: 0,
            last_write: now,
        }
    }

    // ---- changes

    /// The frontier, or what is open below it, has changed.
    pub(crate) fn moved(&mut self) {
        self.moved = true;
    }

    /// One more event has settled.
    pub(crate) fn count(&mut self) {
        self.settled += 1;
        if self.settled_since.is_none() {
            self.settled_since = Some(self.now);
        }
    }

    pub(crate) fn hold(&mut self, held: HeldKey) {
        self.keys.insert(held.aggregate.clone(), Some(held));
    }

    pub(crate) fn release(&mut self, aggregate: Aggregate) {
        self.keys.insert(aggregate, None);
        self.urgent = true;
    }

    /// Answers the write that stores it.
    pub(crate) fn retry(&mut self, retry: StoredRetry) -> u64 {
        self.retries.insert(retry.position, Some(retry));
        self.soon()
    }

    pub(crate) fn retry_ended(&mut self, position: Position) {
        self.retries.insert(position, None);
    }

    /// Answers the write that records the start.
    pub(crate) fn start(&mut self, position: Position, key_hash: u64, crashes: u32) -> u64 {
        self.starts.insert(position, Some(Started { position, key_hash, crashes }));
        self.recorded.insert(position);
        self.soon()
    }

    /// A recorded start that is not one any more, of an event at which processes died before.
    pub(crate) fn start_put_back(&mut self, position: Position, key_hash: u64, crashes: u32) {
        if self.recorded.contains(&position) {
            self.starts.insert(position, Some(Started { position, key_hash, crashes }));
        }
    }

    pub(crate) fn start_ended(&mut self, position: Position) {
        if self.recorded.remove(&position) {
            self.starts.insert(position, None);
        }
    }

    /// A start that an earlier process recorded: it is stored, and to be ended like one of ours.
    pub(crate) fn recorded_before(&mut self, position: Position) {
        self.recorded.insert(position);
    }

    /// Answers the write that stores the letter.
    pub(crate) fn dead(&mut self, letter: DeadEvent) -> u64 {
        self.letters.insert(letter.position, Some(letter));
        self.soon()
    }

    pub(crate) fn dead_ended(&mut self, position: Position) {
        self.letters.insert(position, None);
        self.urgent = true;
    }

    /// Whether the store may still hold letters that have gone.
    pub(crate) fn ends_letters(&self) -> bool {
        let writes = self.writing.as_ref().is_some_and(|writing| !writing.commit.dead_ended.is_empty());
        writes || self.letters.values().any(Option::is_none)
    }

    pub(crate) fn progress(&mut self, progress: RequestProgress) {
        self.requests.insert(progress.id, progress);
        self.urgent = true;
    }

    pub(crate) fn set_names(&mut self, names: Vec<String>) {
        self.names = Some(names);
    }

    /// Has the next write made at once, and answers which it is.
    pub(crate) fn soon(&mut self) -> u64 {
        self.urgent = true;
        self.written + u64::from(self.writing.is_some()) + 1
    }

    // ---- writes

    pub(crate) fn is_written(&self, write: u64) -> bool {
        self.written >= write
    }

    /// Whether it is time for a write. `idle` where nothing else is ready.
    pub(crate) fn is_due(&mut self, idle: bool, stopping: bool, now: Duration) -> bool {
        self.now = now;
        if self.writing.is_some() {
            return false;
        }
        let settled = self.settled > 0
            && (idle
                || self.cadence.every_event
                || self.settled >= self.cadence.events
                || self.settled_since.is_some_and(|since| now >= since + self.cadence.every));
        self.urgent || settled || (self.is_dirty() && (stopping || now >= self.last_write + self.cadence.skipped_every))
    }

    /// Whether no write is wanted, nor would be with one more settled event.
    pub(crate) fn leaves_alone(&self, now: Duration) -> bool {
        let is_full = self.settled + 1 >= self.cadence.events
            || self.settled_since.is_some_and(|since| now >= since + self.cadence.every);
        !(self.urgent || self.cadence.every_event || is_full && self.writing.is_none()) && self.recorded.is_empty()
    }

    /// The write that the store has not got, if it is time to make it again.
    pub(crate) fn again(&mut self, stopping: bool, now: Duration) -> Option<Commit> {
        let writing = self.writing.as_mut()?;
        writing.again_at.take_if(|at| *at <= now || stopping)?;
        Some(writing.commit.clone())
    }

    /// Makes a write of everything that has changed; `open` is what is unsettled at or below `frontier`, sorted.
    pub(crate) fn write(&mut self, frontier: Position, open: Vec<Position>) -> Commit {
        self.frontier = self.frontier.max(frontier);
        let (opened, closed) = difference(&self.open, &open);
        self.open = open;
        let mut commit = Commit {
            replaces: self.revision,
            frontier: self.frontier,
            opened,
            closed,
            names: self.names.take(),
            requests: std::mem::take(&mut self.requests).into_values().collect(),
            ..Commit::default()
        };
        for (aggregate, held) in self.keys.drain() {
            match held {
                Some(held) => commit.held.push(held),
                None => commit.released.push(aggregate),
            }
        }
        split(&mut self.retries, &mut commit.retries, &mut commit.retries_ended);
        split(&mut self.starts, &mut commit.started, &mut commit.started_ended);
        split(&mut self.letters, &mut commit.dead, &mut commit.dead_ended);
        self.writing = Some(Writing {
            commit: commit.clone(),
            settled: std::mem::take(&mut self.settled),
            settled_since: self.settled_since.take(),
            again_at: None,
            failures: 0,
        });
        self.moved = false;
        self.urgent = false;
        commit
    }

    pub(crate) fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    /// The number of the last write that was made.
    pub(crate) fn last_written(&self) -> u64 {
        self.written
    }

    pub(crate) fn written(&mut self, revision: Revision, now: Duration) {
        debug_assert!(self.writing.is_some(), "a write was made that nobody asked for");
        self.writing = None;
        self.written += 1;
        self.revision = revision;
        self.last_write = now;
    }

    pub(crate) fn not_written(&mut self, now: Duration) {
        if let Some(writing) = &mut self.writing {
            let delay = Duration::from_millis(100 << writing.failures.min(4));
            writing.again_at = Some(now + delay);
            writing.failures += 1;
        }
    }

    fn is_dirty(&self) -> bool {
        self.moved
            || self.settled > 0
            || self.names.is_some()
            || !(self.keys.is_empty()
                && self.retries.is_empty()
                && self.starts.is_empty()
                && self.letters.is_empty()
                && self.requests.is_empty())
    }

    /// The revision that the write under way replaces.
    pub(crate) fn replaces(&self) -> Option<Revision> {
        self.writing.as_ref().map(|writing| writing.commit.replaces)
    }

    /// Whether everything is stored.
    pub(crate) fn is_clean(&self) -> bool {
        self.writing.is_none() && !self.is_dirty()
    }

    /// Whether too much is unwritten, or for too long, to take more work in.
    pub(crate) fn holds_admission(&self, now: Duration) -> bool {
        if self.cadence.every_event && (self.settled > 0 || self.writing.as_ref().is_some_and(|it| it.settled > 0)) {
            return true;
        }
        let Some(writing) = &self.writing else { return false };
        let since = writing.settled_since.or(self.settled_since);
        writing.settled + self.settled >= self.cadence.max_unwritten
            || since.is_some_and(|since| now >= since + self.cadence.every + self.cadence.overdue)
    }

    /// When `commit` has to be asked again at the latest.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        if let Some(writing) = &self.writing {
            return writing.again_at;
        }
        match self.settled_since {
            Some(since) => Some(since + self.cadence.every),
            None => self.is_dirty().then_some(self.last_write + self.cadence.skipped_every),
        }
    }
}

fn split<T>(changes: &mut BTreeMap<Position, Option<T>>, made: &mut Vec<T>, ended: &mut Vec<Position>) {
    for (position, change) in std::mem::take(changes) {
        match change {
            Some(change) => made.push(change),
            None => ended.push(position),
        }
    }
}

/// What is in `new` alone, and what is in `old` alone; both are sorted.
fn difference(old: &[Position], new: &[Position]) -> (Vec<Position>, Vec<Position>) {
    let (mut opened, mut closed) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (old.iter().copied().peekable(), new.iter().copied().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return (opened, closed),
            (Some(before), Some(now)) if before == now => {
                old.next();
                new.next();
            }
            (Some(before), now) if now.is_none_or(|now| before < now) => closed.extend(old.next()),
            _ => opened.extend(new.next()),
        }
    }
}
