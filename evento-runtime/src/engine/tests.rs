//! The engine under a seeded driver: a model log and store, failures of every class, crashes and lost answers.

mod mended;
mod open;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};

use evento_core::{
    Aggregate, CheckpointMode, Fault, OnDead, RecordedParts, Sequence, Timestamp,
    retry::Backoff,
    store::{Commit, DeadPosition, HeldKey, RequestState, Selection, Started, Target, WhyHeld},
};

use super::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a store keeps of the one consumer.
#[derive(Clone, Default)]
struct Stored {
    state: ConsumerState,
    held: BTreeMap<Aggregate, HeldKey>,
    retries: BTreeMap<Position, StoredRetry>,
    started: BTreeMap<Position, Started>,
    letters: BTreeMap<Position, DeadEvent>,
}

impl Stored {
    fn apply(&mut self, commit: Commit) -> Revision {
        assert_eq!(commit.replaces, self.state.revision, "a write replaces what is stored");
        assert!(commit.frontier >= self.state.frontier, "a checkpoint never goes back");
        self.state.revision = commit.replaces.next();
        self.state.frontier = commit.frontier;
        let closed = |at: &Position| commit.closed.contains(at);
        self.state.open.retain(|at| !closed(at));
        self.state.open.extend(&commit.opened);
        self.state.open.sort_unstable();
        self.held.retain(|aggregate, _| !commit.released.contains(aggregate));
        self.retries.retain(|at, _| !commit.retries_ended.contains(at));
        self.started.retain(|at, _| !commit.started_ended.contains(at));
        self.letters.retain(|at, _| !commit.dead_ended.contains(at));
        self.held.extend(commit.held.into_iter().map(|held| (held.aggregate.clone(), held)));
        self.retries.extend(commit.retries.into_iter().map(|retry| (retry.position, retry)));
        self.started.extend(commit.started.into_iter().map(|started| (started.position, started)));
        self.letters.extend(commit.dead.into_iter().map(|letter| (letter.position, letter)));
        self.state.names = commit.names.unwrap_or_else(|| std::mem::take(&mut self.state.names));
        self.state.revision
    }

    fn load(&self) -> ConsumerState {
        ConsumerState {
            held: self.held.values().cloned().collect(),
            retries: self.retries.values().cloned().collect(),
            started: self.started.values().copied().collect(),
            letters: self
                .letters
                .keys()
                .copied()
                .filter(|at| *at > self.state.frontier || self.state.open.contains(at))
                .collect(),
            ..self.state.clone()
        }
    }
}

struct World {
    random: Random,
    log: Vec<Arc<RecordedEvent>>,
    stored: Stored,
    now: Now,
    /// Successes by aggregate, in the order in which they happened, of the present generation of retries.
    handled: BTreeMap<Position, u32>,
    discarded: BTreeSet<Position>,
}

const NAMES: [&str; 3] = ["taken", "taken-too", "ignored"];

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let (mut position, mut sequences, mut log) = (0, BTreeMap::<u64, u64>::new(), Vec::new());
        for number in 0..120 {
            // Sparse positions, and a hot aggregate.
            position += 1 + random.below(3);
            let key = if random.one_in(3) { 0 } else { random.below(12) };
            let sequence = sequences.entry(key).or_default();
            *sequence += 1;
            log.push(Arc::new(RecordedEvent::new(RecordedParts {
                position: Position::new(position),
                id: &format!("e-{number}"),
                name: NAMES[usize::try_from(random.below(3)).unwrap()],
                context: "default",
                aggregate: Aggregate::new("a", key.to_string()).as_ref(),
                sequence: Sequence(*sequence),
                metadata: "",
                payload: b"{}",
                oversize: None,
                recorded_at: Timestamp(0),
            })));
        }
        Self {
            random,
            log,
            stored: Stored::default(),
            now: Now::default(),
            handled: BTreeMap::new(),
            discarded: BTreeSet::new(),
        }
    }

    fn config() -> Config {
        let policy = |budget| Policy { run: Run::Inline, budget, backoff: Backoff::default(), redeliver: false };
        Config {
            mode: CheckpointMode::Watermark,
            executors: Vec::new(),
            start_ahead: 0,
            max_open: MOST_OPEN,
            max_bytes: usize::MAX,
            #[cfg(feature = "simulation")]
            mutant: None,
            routes: [("taken".to_owned(), 0), ("taken-too".to_owned(), 1)].into_iter().collect(),
            policies: vec![policy(Budget::Times(2)), policy(Budget::Forever)],
            on_dead: OnDead::Park,
            cadence: Cadence {
                every: Duration::from_millis(100),
                events: 7,
                every_event: false,
                skipped_every: Duration::from_secs(5),
                max_unwritten: 20,
                overdue: Duration::from_secs(2),
            },
            max_crashes: 3,
            names: vec!["taken".into(), "taken-too".into()],
        }
    }

    fn page(&mut self, after: Position) -> Page {
        let most = usize::try_from(1 + self.random.below(9)).unwrap();
        let mut page = Page { scanned_to: after, ..Page::default() };
        let head = self.log.last().unwrap().position();
        for event in self.log.iter().filter(|event| event.position() > after).take(most) {
            page.scanned_to = event.position();
            if event.name() != "ignored" {
                page.events.push(Arc::clone(event));
            }
        }
        Page { head, ..page }
    }

    fn answer(&mut self, engine: &mut Engine, read: Read) {
        match read.clone() {
            Read::At(asked) => {
                let events = self.log.iter().filter(|event| asked.contains(&event.position()));
                let events = events.map(Arc::clone).collect();
                let scanned_to = asked.last().copied().unwrap_or_default();
                engine.recovered(&asked, Selection { events, scanned_to }, self.now);
            }
            Read::Aggregate { ref aggregate, after, until, .. } => {
                let of = |event: &&Arc<RecordedEvent>| {
                    event.aggregate() == aggregate.as_ref()
                        && event.name() != "ignored"
                        && event.position() > after
                        && event.position() <= until
                };
                let mut events: Vec<_> = self.log.iter().filter(of).take(3).map(Arc::clone).collect();
                let mut scanned_to = events.get(2).map_or(until, |third| third.position());
                // Cut short by a bound on bytes, or on letters, which may leave no event at all.
                match self.random.below(6) {
                    0 if events.len() > 1 => scanned_to = events[0].position(),
                    1 => scanned_to = after.just_after().min(scanned_to),
                    _ => {}
                }
                events.retain(|event| event.position() <= scanned_to);
                let letters = self.stored.letters.values().filter(|letter| letter.aggregate == *aggregate);
                let dead = letters.map(|it| DeadPosition { position: it.position, parks: it.parks });
                let dead: Vec<_> = dead.filter(|it| it.position <= scanned_to).collect();
                engine.drained(&read, Selection { events, scanned_to }, &dead, self.now);
            }
            Read::Letter(position) => {
                let event = self.log.iter().find(|event| event.position() == position);
                engine.redriven(position, event.map(Arc::clone), self.now);
            }
            Read::Letters { request, after, .. } => {
                let letters = self.stored.letters.range(after.just_after()..).map(|(_, letter)| letter.clone());
                engine.letters(request, letters.collect(), true);
            }
        }
    }

    /// Every success of an aggregate comes after those of its earlier events, but for events that are dead.
    fn succeeded(&mut self, event: &RecordedEvent) {
        let earlier = self.log.iter().filter(|it| {
            it.aggregate() == event.aggregate() && it.position() < event.position() && it.name() != "ignored"
        });
        for it in earlier.map(|it| it.position()) {
            assert!(
                self.handled.contains_key(&it) || self.discarded.contains(&it),
                "{} was handled before {it} of its aggregate",
                event.position()
            );
        }
        *self.handled.entry(event.position()).or_default() += 1;
    }

    fn outcome(&mut self, healthy: bool) -> Result<(), Box<Failure>> {
        let failure = |kind| Err(Box::new(Failure { kind, cause: vec!["because".to_owned()] }));
        match if healthy { 99 } else { self.random.below(20) } {
            0 => failure(FailureKind::Handler(Fault::Permanent)),
            1..=3 => failure(FailureKind::Handler(Fault::Ordinary)),
            4 | 5 => failure(FailureKind::Handler(Fault::Transient)),
            6 => failure(FailureKind::Undecodable),
            _ => Ok(()),
        }
    }

    /// Runs one life of a process. Answers whether it came to the end of the log with everything settled.
    fn live(&mut self, clean: bool, steps: u32, healthy: bool, requests: &[StoredRequest]) -> bool {
        let head = self.log.last().unwrap().position();
        let taking = Taking { guard_until: (!clean).then_some(head), died: !clean, memory: Memory::default() };
        let mut engine = Engine::new(Self::config(), self.stored.load(), taking, self.now);
        engine.requests(requests);
        let (mut running, mut writing, mut out) = (None::<Job>, None::<Commit>, Output::default());
        for _ in 0..steps {
            engine.admit(self.now);
            engine.dispatch(self.now, &mut out);
            if let Some(commit) = out.commit.take() {
                assert!(writing.replace(commit).is_none(), "one write at a time");
            }
            if let Some(after) = out.fetch.take() {
                if !healthy && self.random.one_in(6) {
                    engine.fetch_failed();
                } else {
                    let page = self.page(after);
                    engine.page(page);
                }
            }
            for read in std::mem::take(&mut out.reads) {
                if !healthy && self.random.one_in(6) {
                    engine.read_failed(read);
                } else {
                    self.answer(&mut engine, read);
                }
            }
            if let Some(start) = out.inline.take().map(|start| start.job) {
                assert!(running.is_none(), "one attempt at a time");
                assert!(!self.stored.letters.contains_key(&start.event.position()) || !requests.is_empty());
                // 5.10: what has failed is stored before it is tried again.
                if !self.stored.letters.contains_key(&start.event.position()) {
                    let stored = self.stored.retries.get(&start.event.position());
                    assert_eq!(start.attempt, stored.map_or(0, |retry| retry.attempts) + 1);
                }
                running = Some(start);
            }
            match self.random.below(3) {
                0 => {
                    if let Some(start) = running.take() {
                        let outcome = self.outcome(healthy);
                        if outcome.is_ok() {
                            self.succeeded(&start.event);
                        }
                        let outcome = outcome.map_or_else(Outcome::Failed, |()| Outcome::Handled);
                        engine.ended(start.slot, outcome, true, self.random.next(), self.now);
                    }
                }
                1 => {
                    if let Some(commit) = writing.take() {
                        match if healthy { 9 } else { self.random.below(8) } {
                            0 => {
                                engine.commit_failed(self.now);
                            }
                            // The answer is lost: the revision is read back.
                            1 => {
                                let revision = self.stored.apply(commit);
                                assert_eq!(engine.replaces().map(Revision::next), Some(revision));
                                engine.committed(revision, self.now);
                            }
                            _ => {
                                let revision = self.stored.apply(commit);
                                engine.committed(revision, self.now);
                            }
                        }
                    }
                }
                _ => {
                    let wait = out.wake_at.map_or(1, |at| at.saturating_sub(self.now.since_start).as_millis());
                    let wait = u64::try_from(wait).unwrap().max(1);
                    self.now.since_start += Duration::from_millis(wait);
                    self.now.wall.0 += i64::try_from(wait).unwrap() * 1000;
                }
            }
            let written = running.is_none() && writing.is_none() && self.stored.state.frontier >= head;
            if written && engine.settled_to() >= head && engine.is_idle() {
                return true;
            }
        }
        // The process dies: a write under way may or may not have been made.
        if let Some(commit) = writing
            && self.random.one_in(2)
        {
            self.stored.apply(commit);
        }
        false
    }

    /// Every event is handled, or dead, or parked behind a dead one.
    fn check(&self) {
        for event in self.log.iter().filter(|event| event.name() != "ignored") {
            let held = self.stored.held.get(&event.aggregate().to_owned());
            let parked = held.is_some_and(|held| held.why == WhyHeld::Dead && event.position() >= held.from);
            let settled = self.handled.contains_key(&event.position())
                || self.stored.letters.contains_key(&event.position())
                || self.discarded.contains(&event.position());
            assert!(settled || parked, "event at {} is lost", event.position());
        }
        assert!(self.stored.retries.is_empty(), "no retry outlives its event: {:?}", self.stored.retries);
    }
}

fn request(id: u64, action: evento_core::store::Action, total: usize) -> StoredRequest {
    StoredRequest {
        id: RequestId(id),
        consumer: evento_core::Context::fake().consumer().clone(),
        action,
        target: Target::Consumer,
        total: total as u64,
        done: 0,
        failed: 0,
        at: Position::BEGINNING,
        state: RequestState::Pending,
        made_at: Timestamp(0),
    }
}

/// Sections 2, 4, 5 and 6: through failures of every class, lost answers and crashes, nothing is lost, no aggregate is
/// out of order, no checkpoint goes back; and a retry of everything dead then handles the rest.
#[test]
fn nothing_is_lost_or_out_of_order_whatever_fails_and_however_often_the_process_dies() {
    for seed in 0..400 {
        let ran = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            let mut lives = 0;
            loop {
                let (steps, clean) = (u32::try_from(30 + world.random.below(400)).unwrap(), lives == 0);
                lives += 1;
                let last = lives > 12;
                if world.live(clean, if last { 100_000 } else { steps }, last, &[]) {
                    break;
                }
                assert!(!last, "it does not come to an end");
            }
            world.check();
            let dead = world.stored.letters.len();
            let again = request(1, evento_core::store::Action::Retry, dead);
            assert!(world.live(true, 100_000, true, std::slice::from_ref(&again)), "the retry does not come to an end");
            world.check();
            assert!(world.stored.letters.is_empty() && world.stored.held.is_empty(), "something stayed dead");
            let taken = world.log.iter().filter(|event| event.name() != "ignored");
            assert_eq!(world.handled.len(), taken.count());
        });
        assert!(ran.is_ok(), "seed {seed}");
    }
}

#[test]
fn discarding_everything_dead_releases_what_is_parked_in_order() {
    for seed in 1000..1200 {
        let ran = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            while !world.live(true, 100_000, false, &[]) {}
            let dead: BTreeSet<_> = world.stored.letters.keys().copied().collect();
            world.discarded = dead.clone();
            let discard = request(1, evento_core::store::Action::Discard, dead.len());
            assert!(world.live(true, 100_000, true, std::slice::from_ref(&discard)));
            assert!(world.stored.letters.is_empty() && world.stored.held.is_empty());
            assert!(world.handled.keys().all(|at| !dead.contains(at)), "a discarded event was handled");
            world.check();
        });
        assert!(ran.is_ok(), "seed {seed}");
    }
}
