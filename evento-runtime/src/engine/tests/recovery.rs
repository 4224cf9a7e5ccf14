//! Going on from what is stored at a claim.

use evento_core::store::DeadReason;

use super::*;

/// Positions that a bound kept a read from are neither settled nor forgotten: they are asked for until they were looked at.
#[test]
fn an_open_position_that_was_not_looked_at_is_asked_for_again_in_its_order() {
    let mut world = World::new(7);
    let taken: Vec<_> = world.log.iter().filter(|event| event.name() != "ignored").map(Arc::clone).collect();
    let (open, frontier) = (&taken[..6], taken[9].position());
    // One of them is not in the log.
    let missing = open[2].position();
    let at: Vec<_> = open.iter().map(|event| event.position()).collect();
    let state = ConsumerState { frontier, open: at.clone(), ..ConsumerState::default() };
    let mut engine = Engine::new(World::config(), state, Taking::default(), world.now);
    let (mut out, mut asked, mut started) = (Output::default(), Vec::new(), Vec::new());
    for _ in 0..100 {
        engine.admit(world.now);
        engine.dispatch(world.now, &mut out);
        for read in std::mem::take(&mut out.reads) {
            let Read::At(positions) = read else { unreachable!("nothing is held") };
            // Two positions at a time.
            let looked_at = &positions[..positions.len().min(2)];
            let found = open.iter().filter(|it| it.position() != missing && looked_at.contains(&it.position()));
            let events = found.map(Arc::clone).collect();
            let scanned_to = *looked_at.last().unwrap();
            engine.recovered(&positions, Selection { events, scanned_to }, world.now);
            asked.push(positions);
        }
        if let Some(start) = out.inline.take().map(|start| start.job) {
            started.push(start.event.position());
            engine.ended(start.slot, Outcome::Handled, true, 0, world.now);
        }
        if let Some(commit) = out.commit.take() {
            engine.committed(commit.replaces.next(), world.now);
        }
        world.now.since_start += Duration::from_secs(1);
    }
    assert_eq!(asked, [&at[..], &at[2..], &at[4..]]);
    assert_eq!(started, [at[0], at[1], at[3], at[4], at[5]]);
    assert_eq!((engine.counts().handled, engine.counts().skipped), (5, 1));
}

fn event(position: u64, key: &str, sequence: u64) -> Arc<RecordedEvent> {
    Arc::new(RecordedEvent::new(RecordedParts {
        position: Position::new(position),
        id: &format!("e-{position}"),
        name: "taken",
        context: "default",
        aggregate: Aggregate::new("a", key).as_ref(),
        sequence: Sequence(sequence),
        metadata: "",
        payload: b"{}",
        oversize: None,
        recorded_at: Timestamp(0),
    }))
}

/// A key that is stored as waiting from behind the last event, after a redrive that a stop cut short, has nothing left:
/// one read shows it, and it is live.
#[test]
fn a_held_key_behind_the_end_of_the_log_is_released_after_one_read() {
    let held = HeldKey { aggregate: Aggregate::new("a", "1"), from: Position::new(6), why: WhyHeld::Waiting };
    let frontier = Position::new(5);
    let state = ConsumerState { frontier, held: vec![held.clone()], ..ConsumerState::default() };
    let mut engine = Engine::new(World::config(), state, Taking::default(), Now::default());
    let (mut out, mut reads, mut released) = (Output::default(), 0, false);
    for _ in 0..20 {
        engine.admit(Now::default());
        engine.dispatch(Now::default(), &mut out);
        if out.fetch.take().is_some() {
            engine.page(Page { scanned_to: frontier, head: frontier, ..Page::default() });
        }
        for read in std::mem::take(&mut out.reads) {
            reads += 1;
            engine.drained(&read, Selection { scanned_to: frontier, ..Selection::default() }, &[], Now::default());
        }
        if let Some(commit) = out.commit.take() {
            released |= commit.released == [held.aggregate.clone()];
            engine.committed(commit.replaces.next(), Now::default());
        }
    }
    assert!(released && reads == 1, "{reads} reads, released: {released}");
}

/// A retry that is stored for a time far ahead, because the wall clock was set back since or the row was altered, waits no
/// longer than a retry may.
#[test]
fn a_stored_retry_waits_no_longer_than_the_longest_delay() {
    let retry = StoredRetry {
        position: Position::new(1),
        key_hash: 0,
        attempts: 1,
        spent: 1,
        not_before: Timestamp(i64::MAX),
        first_failed_at: Timestamp(0),
    };
    let state = ConsumerState { retries: vec![retry], ..ConsumerState::default() };
    let mut engine = Engine::new(World::config(), state, Taking::default(), Now::default());
    let (mut out, head) = (Output::default(), Position::new(1));
    let started = (0..120).find(|second| {
        engine.admit(Now { since_start: Duration::from_secs(*second), wall: Timestamp(0) });
        engine.dispatch(Now { since_start: Duration::from_secs(*second), wall: Timestamp(0) }, &mut out);
        if out.fetch.take().is_some() {
            engine.page(Page { events: vec![event(1, "1", 1)], scanned_to: head, head, more_above: false });
        }
        if let Some(commit) = out.commit.take() {
            engine.committed(commit.replaces.next(), Now::default());
        }
        out.inline.take().map(|start| start.job).is_some_and(|start| start.attempt == 2)
    });
    assert_eq!(started, Some(1 + 36), "taken up after a second; 30 s and a fifth of jitter");
}

/// A database may hold anything: a count at the end of its range stays there.
#[test]
fn counts_at_the_end_of_their_range_neither_wrap_nor_panic() {
    let world = World::new(7);
    let taken: Vec<_> = world.log.iter().filter(|event| event.name() != "ignored").map(Arc::clone).collect();
    let (dies, fails) = (&taken[0], &taken[1]);
    let state = ConsumerState {
        started: vec![Started { position: dies.position(), key_hash: dies.key_hash(), crashes: u32::MAX }],
        retries: vec![StoredRetry {
            position: fails.position(),
            key_hash: fails.key_hash(),
            attempts: u32::MAX,
            spent: u32::MAX,
            not_before: Timestamp(i64::MIN),
            first_failed_at: Timestamp(i64::MAX),
        }],
        ..ConsumerState::default()
    };
    let taking = Taking { guard_until: Some(dies.position()), died: true, memory: Memory::default() };
    let mut engine = Engine::new(World::config(), state, taking, world.now);
    let mut out = Output::default();
    let (mut dead, mut attempt) = (Vec::new(), None);
    for _ in 0..10 {
        engine.admit(world.now);
        engine.dispatch(world.now, &mut out);
        if let Some(commit) = out.commit.take() {
            engine.committed(commit.replaces.next(), world.now);
            dead.extend(commit.dead);
        }
        if out.fetch.take().is_some() {
            let head = fails.position();
            engine.page(Page { events: taken[..2].to_vec(), scanned_to: head, head, more_above: false });
        }
        if let Some(start) = out.inline.take().map(|start| start.job) {
            attempt = Some(start.attempt);
            let kind = FailureKind::Handler(Fault::Ordinary);
            let failure = Failure { kind, cause: Vec::new() };
            engine.ended(start.slot, Outcome::Failed(Box::new(failure)), true, u64::MAX, world.now);
        }
    }
    assert_eq!((dead[0].position, dead[0].reason), (dies.position(), DeadReason::KilledTheProcess));
    assert_eq!(attempt, Some(u32::MAX));
    assert_eq!(Revision(u64::MAX).next(), Revision(u64::MAX));
}
