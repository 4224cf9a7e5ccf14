//! One test a fault that the simulation has found.

use evento_core::store::{Action, DeadPosition, DeadReason, HeldKey, Started, StoredRetry, WhyHeld};

use super::*;

const SOON: Duration = Duration::from_millis(1);
const TODAY: Timestamp = Timestamp(1_700_000_000_000_000);

/// One engine, whose writes are made at once, and which is given every permit it wants.
pub(super) struct Script {
    pub(super) engine: Engine,
    pub(super) out: Output,
    pub(super) now: Now,
    /// Attempts that have begun and not ended, by the event's position.
    pub(super) running: BTreeMap<Position, Start>,
    pub(super) commits: Vec<Commit>,
    /// Writes are made when `written` is called.
    waits_for_writes: bool,
}

/// Handler 0 takes `inline`; handler 1 `parallel`, and handler 2 `narrow`, keep the aggregates' order.
pub(super) fn config(budget: Budget) -> Config {
    let policy = |run| Policy { run, budget, backoff: Backoff::default(), redeliver: false };
    Config {
        routes: [("inline".to_owned(), 0), ("parallel".to_owned(), 1), ("narrow".to_owned(), 2)].into_iter().collect(),
        policies: vec![
            policy(Run::Inline),
            policy(Run::Executor { index: 0, ordered: true }),
            policy(Run::Executor { index: 1, ordered: true }),
        ],
        executors: vec![Limits { capacity: 2, look_ahead: 8 }, Limits { capacity: 1, look_ahead: 4 }],
        ..World::config()
    }
}

pub(super) fn event(position: u64, name: &str, aggregate: &str) -> Arc<RecordedEvent> {
    Arc::new(RecordedEvent::new(RecordedParts {
        position: Position::new(position),
        id: &format!("e-{position}"),
        name,
        context: "default",
        aggregate: Aggregate::new("a", aggregate).as_ref(),
        sequence: Sequence(position),
        metadata: "",
        payload: b"{}",
        oversize: None,
        recorded_at: Timestamp(0),
    }))
}

fn letter(of: &RecordedEvent, parks: bool) -> DeadEvent {
    DeadEvent {
        position: of.position(),
        event_id: of.id().to_owned(),
        name: of.name().to_owned(),
        aggregate: of.aggregate().to_owned(),
        sequence: of.sequence(),
        reason: DeadReason::Failed,
        cause: vec![],
        attempts: 1,
        first_failed_at: Timestamp(0),
        last_failed_at: Timestamp(0),
        parks,
    }
}

fn held(aggregate: &str, from: u64, why: WhyHeld) -> HeldKey {
    HeldKey { aggregate: Aggregate::new("a", aggregate), from: Position::new(from), why }
}

/// The checkpoint stands at 2, and one aggregate is held.
fn holds(key: HeldKey) -> ConsumerState {
    ConsumerState { frontier: Position::new(2), held: vec![key], ..ConsumerState::default() }
}

impl Script {
    pub(super) fn new(config: Config, state: ConsumerState, guard_until: Option<u64>) -> Self {
        let now = Now { since_start: Duration::ZERO, wall: TODAY };
        let guard_until = guard_until.map(Position::new);
        let taking = Taking { guard_until, died: guard_until.is_some(), memory: Memory::default() };
        let engine = Engine::new(config, state, taking, now);
        let mut script = Self {
            engine,
            out: Output::default(),
            now,
            running: BTreeMap::new(),
            commits: Vec::new(),
            waits_for_writes: false,
        };
        script.turn();
        script
    }

    /// Takes turns until nothing more is to be written.
    pub(super) fn turn(&mut self) {
        loop {
            self.engine.admit(self.now);
            for executor in 0..self.engine.uses.len() {
                self.engine.take_returned(executor);
                let wanted = self.engine.wants(executor, self.now);
                self.engine.grant(executor, wanted);
            }
            self.engine.dispatch(self.now, &mut self.out);
            for start in self.out.starts.drain(..).chain(self.out.inline.take()) {
                self.running.insert(start.job.event.position(), start);
            }
            let Some(commit) = self.out.commit.take() else { return };
            self.commits.push(commit);
            if self.waits_for_writes {
                return;
            }
            self.made();
        }
    }

    fn made(&mut self) {
        self.engine.committed(self.commits.last().unwrap().replaces.next(), self.now);
    }

    /// The store answers the last write.
    fn written(&mut self) {
        self.made();
        self.turn();
    }

    pub(super) fn page(&mut self, events: Vec<Arc<RecordedEvent>>) {
        assert!(self.out.fetch.take().is_some(), "a page is asked for");
        let last = events.last().map_or(Position::BEGINNING, |event| event.position());
        self.engine.page(Page { events, scanned_to: last, head: last, ..Page::default() });
        self.turn();
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now.since_start += time;
        self.now.wall.0 += i64::try_from(time.as_micros()).unwrap();
        self.turn();
    }

    pub(super) fn end(&mut self, position: u64, outcome: Outcome) {
        let start = self.running.remove(&Position::new(position)).unwrap();
        self.engine.ended(start.job.slot, outcome, true, 0, self.now);
        self.pass(SOON);
    }

    fn read(&mut self) -> Read {
        assert_eq!(self.out.reads.len(), 1, "{:?}", self.out.reads);
        self.out.reads.remove(0)
    }

    /// A request has the dead event handled again.
    fn retry(&mut self, letter: DeadEvent) {
        self.engine.requests(&[request(1, Action::Retry, 1)]);
        self.turn();
        let Read::Letters { request, .. } = self.read() else { panic!("letters are read") };
        self.engine.letters(request, vec![letter], true);
        self.turn();
    }

    fn assert_runs(&self, positions: &[u64]) {
        let runs: Vec<_> = self.running.keys().copied().collect();
        let expected: Vec<_> = positions.iter().map(|position| Position::new(*position)).collect();
        assert_eq!(runs, expected);
    }
}

/// Everything that was asked for.
pub(super) fn found(events: Vec<Arc<RecordedEvent>>) -> Selection {
    Selection { events, scanned_to: Position::new(u64::MAX) }
}

fn marks(letters: &[DeadEvent]) -> Vec<DeadPosition> {
    letters.iter().map(|letter| DeadPosition { position: letter.position, parks: letter.parks }).collect()
}

pub(super) fn failed() -> Outcome {
    Outcome::Failed(Box::new(Failure { kind: FailureKind::Handler(Fault::Ordinary), cause: vec![] }))
}

fn dead() -> Outcome {
    Outcome::Failed(Box::new(Failure { kind: FailureKind::Handler(Fault::Permanent), cause: vec![] }))
}

#[test]
fn an_append_during_the_read_of_a_page_is_not_missed() {
    let mut script = Script::new(config(Budget::Times(0)), ConsumerState::default(), None);
    script.engine.head_moved();
    script.page(vec![event(1, "parallel", "x")]);
    assert_eq!(script.out.fetch, Some(Position::new(1)), "the page may have been read before the append");
}

#[test]
fn behind_an_inline_event_that_runs_nothing_is_taken_in_and_so_nothing_is_open() {
    let mut script = Script::new(config(Budget::Times(0)), ConsumerState::default(), None);
    script.page(vec![event(1, "inline", "x"), event(2, "ignored", "y"), event(3, "parallel", "z")]);
    script.pass(Duration::from_secs(10));
    script.assert_runs(&[1]);
    assert!(script.commits.iter().all(|commit| commit.opened.is_empty()), "{:?}", script.commits);
}

#[test]
fn what_waits_behind_an_attempt_that_never_returns_does_not_fill_the_memory_for_others() {
    let config = Config { max_bytes: 1, ..config(Budget::Times(0)) };
    let mut script = Script::new(config, ConsumerState::default(), None);
    script.page(vec![event(1, "parallel", "x"), event(2, "parallel", "x"), event(3, "parallel", "y")]);
    script.pass(SOON);
    script.assert_runs(&[1, 3]);
}

/// Two processes have died at the second event: it is to run alone.
fn suspect() -> Script {
    let second = event(2, "parallel", "y");
    let started = Started { position: Position::new(2), key_hash: second.key_hash(), crashes: 1 };
    let state = ConsumerState { started: vec![started], ..ConsumerState::default() };
    let mut script = Script::new(config(Budget::Times(0)), state, Some(3));
    script.page(vec![event(1, "parallel", "x"), second, event(3, "parallel", "z")]);
    script.assert_runs(&[1]);
    script
}

#[test]
fn an_event_that_is_to_run_alone_does_not_hold_back_the_others_behind_an_attempt_that_never_returns() {
    let mut script = suspect();
    let passed_at = script.out.wake_at.unwrap();
    script.pass(passed_at - SOON);
    script.assert_runs(&[1]);
    script.pass(SOON);
    script.assert_runs(&[1, 3]);
    script.end(3, Outcome::Handled);
    // Beside another it never runs.
    script.assert_runs(&[1]);
    script.end(1, Outcome::Handled);
    script.assert_runs(&[2]);
}

#[test]
fn an_event_that_is_to_run_alone_runs_before_later_ones_once_what_ran_has_ended() {
    let mut script = suspect();
    script.end(1, Outcome::Handled);
    script.assert_runs(&[2]);
    script.end(2, Outcome::Handled);
    script.assert_runs(&[3]);
}

#[test]
fn an_answer_to_a_read_that_nobody_waits_for_any_more_is_dropped() {
    let state = holds(held("x", 1, WhyHeld::Waiting));
    let mut script = Script::new(config(Budget::Times(0)), state, None);
    let read = script.read();
    let Read::Aggregate { lane, ref aggregate, after, max, max_bytes, .. } = read else { panic!("{read:?}") };
    let stale = Read::Aggregate { lane, aggregate: aggregate.clone(), after, until: Position::new(1), max, max_bytes };
    script.engine.drained(&stale, found(vec![event(1, "parallel", "x")]), &[], script.now);
    script.turn();
    assert!(script.running.is_empty());
    script.engine.drained(&read, found(vec![event(1, "parallel", "x")]), &[], script.now);
    script.turn();
    script.assert_runs(&[1]);
}

#[test]
fn a_letter_that_parks_nothing_is_passed_when_its_aggregate_is_read_again() {
    let state = holds(held("x", 1, WhyHeld::Waiting));
    let mut script = Script::new(config(Budget::Times(0)), state, None);
    let (read, first) = (script.read(), event(1, "parallel", "x"));
    let letters = [letter(&first, false)];
    script.engine.drained(&read, found(vec![first, event(2, "parallel", "x")]), &marks(&letters), script.now);
    script.turn();
    script.assert_runs(&[2]);
}

#[test]
fn a_dead_event_whose_retry_was_stopped_while_it_ran_stays_dead_when_it_fails() {
    let first = event(1, "parallel", "x");
    let state = holds(held("x", 1, WhyHeld::Dead));
    let mut script = Script::new(config(Budget::Times(5)), state, None);
    script.retry(letter(&first, true));
    let read = script.read();
    script.engine.drained(&read, found(vec![first.clone()]), &marks(&[letter(&first, true)]), script.now);
    script.turn();
    script.assert_runs(&[1]);

    script.engine.requests(&[]);
    script.end(1, failed());
    script.pass(Duration::from_secs(60));
    assert!(script.running.is_empty(), "nobody asks for it any more");
    assert_eq!(script.engine.keys.why(&first), Some(WhyHeld::Dead));
    let went = script.commits.iter().any(|commit| !commit.dead_ended.is_empty() || !commit.retries.is_empty());
    assert!(!went, "{:?}", script.commits);
}

#[test]
fn a_dead_event_that_is_handled_again_does_not_run_beside_an_inline_one_of_its_aggregate() {
    let first = event(1, "parallel", "x");
    let state = ConsumerState { frontier: Position::new(1), ..ConsumerState::default() };
    let mut script = Script::new(config(Budget::Times(0)), state, None);
    script.retry(letter(&first, false));
    assert_eq!(script.read(), Read::Letter(Position::new(1)));
    script.page(vec![event(2, "inline", "x")]);
    assert!(script.running.is_empty(), "the letter's event is on its way");
    script.engine.redriven(Position::new(1), Some(first), script.now);
    script.turn();
    script.assert_runs(&[1]);
    script.end(1, Outcome::Handled);
    script.assert_runs(&[2]);
}

#[test]
fn what_waits_behind_attempts_under_another_executor_makes_room_for_what_could_run() {
    let mut script = Script::new(config(Budget::Times(0)), ConsumerState::default(), None);
    script.page(vec![
        event(1, "parallel", "x"),
        event(2, "parallel", "y"),
        event(3, "narrow", "x"),
        event(4, "narrow", "x"),
        event(5, "narrow", "x"),
        event(6, "narrow", "y"),
        event(7, "narrow", "z"),
    ]);
    script.pass(SOON);
    script.assert_runs(&[1, 2, 7]);
    script.pass(Duration::from_secs(1));
    let read = script.read();
    let behind = vec![event(3, "narrow", "x"), event(4, "narrow", "x"), event(5, "narrow", "x")];
    script.engine.drained(&read, found(behind), &[], script.now);
    script.end(7, Outcome::Handled);
    script.end(1, Outcome::Handled);
    script.assert_runs(&[2, 3]);
}

#[test]
fn a_stored_retry_behind_a_dead_event_is_made_when_it_is_due() {
    let second = event(2, "parallel", "x");
    let retry = StoredRetry {
        position: second.position(),
        key_hash: second.key_hash(),
        attempts: 1,
        spent: 1,
        not_before: TODAY,
        first_failed_at: TODAY,
    };
    let state = ConsumerState { retries: vec![retry], ..ConsumerState::default() };
    let config = Config { on_dead: OnDead::Continue, ..config(Budget::Times(1)) };
    let mut script = Script::new(config, state, None);
    script.page(vec![event(1, "parallel", "x"), second]);
    script.end(1, dead());
    script.assert_runs(&[2]);
}

#[test]
fn a_held_key_goes_on_behind_an_event_that_has_died_without_parking() {
    let state = holds(held("x", 1, WhyHeld::Waiting));
    let config = Config { on_dead: OnDead::Continue, ..config(Budget::Times(0)) };
    let mut script = Script::new(config, state, None);
    let read = script.read();
    script.engine.drained(&read, found(vec![event(1, "parallel", "x")]), &[], script.now);
    script.turn();
    script.end(1, dead());
    script.pass(Duration::from_secs(1));
    let from: Vec<_> = script.commits.iter().flat_map(|commit| &commit.held).map(|held| held.from).collect();
    assert_eq!(from.last(), Some(&Position::new(2)), "{:?}", script.commits);
}

#[test]
fn the_start_of_a_dead_event_stays_recorded_when_it_is_retried_before_its_letter_is_known_to_be_written() {
    let first = event(1, "parallel", "x");
    let mut config = Config { on_dead: OnDead::Continue, ..config(Budget::Times(0)) };
    config.policies[1].run = Run::Executor { index: 0, ordered: false };
    let mut script = Script::new(config, ConsumerState::default(), Some(1));
    script.page(vec![first.clone()]);
    script.waits_for_writes = true;
    script.end(1, dead());
    assert!(script.commits.last().is_some_and(|commit| commit.dead.len() == 1), "the letter is being written");

    script.retry(letter(&first, false));
    assert_eq!(script.read(), Read::Letter(Position::new(1)));
    script.engine.redriven(Position::new(1), Some(first), script.now);
    script.turn();
    assert!(script.running.is_empty(), "its start is not recorded yet");
    script.written();
    script.written();
    script.assert_runs(&[1]);
    let last = script.commits.last().unwrap();
    assert_eq!((last.started.len(), last.started_ended.len()), (1, 0), "{last:?}");
}
