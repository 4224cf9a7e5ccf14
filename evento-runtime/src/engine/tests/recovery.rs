//! Reading again what was open at a claim.

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
    let mut engine = Engine::new(World::config(), state, None, world.now);
    let (mut out, mut asked, mut started) = (Output::default(), Vec::new(), Vec::new());
    for _ in 0..100 {
        engine.poll(world.now, &mut out).unwrap();
        for read in std::mem::take(&mut out.reads) {
            let Read::At(positions) = read else { unreachable!("nothing is held") };
            // Two positions at a time.
            let looked_at = &positions[..positions.len().min(2)];
            let found = open.iter().filter(|it| it.position() != missing && looked_at.contains(&it.position()));
            let events = found.map(Arc::clone).collect();
            engine.recovered(&positions, Selection { events, scanned_to: *looked_at.last().unwrap() });
            asked.push(positions);
        }
        if let Some(start) = out.start.take() {
            started.push(start.event.position());
            engine.ended(start.slot, Ok(()), 0, world.now);
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
    let mut engine = Engine::new(World::config(), state, Some(dies.position()), world.now);
    let mut out = Output::default();
    let (mut dead, mut attempt) = (Vec::new(), None);
    for _ in 0..10 {
        engine.poll(world.now, &mut out).unwrap();
        if let Some(commit) = out.commit.take() {
            engine.committed(commit.replaces.next(), world.now);
            dead.extend(commit.dead);
        }
        if out.fetch.take().is_some() {
            let head = fails.position();
            engine.page(Page { events: taken[..2].to_vec(), scanned_to: head, head, more_above: false });
        }
        if let Some(start) = out.start.take() {
            attempt = Some(start.attempt);
            let kind = FailureKind::Handler(Fault::Ordinary);
            engine.ended(start.slot, Err(Failure { kind, cause: Vec::new() }), u64::MAX, world.now);
        }
    }
    assert_eq!((dead[0].position, dead[0].reason), (dies.position(), DeadReason::KilledTheProcess));
    assert_eq!(attempt, Some(u32::MAX));
    assert_eq!(Revision(u64::MAX).next(), Revision(u64::MAX));
}
