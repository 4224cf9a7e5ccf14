//! Rules of checkpoints.

use evento_core::{
    Position, StartAt, Timestamp,
    store::{
        Claim, Commit, CommitError, Generation, HeldKey, Registration, Reset, Revision, Started, Store, StoreError,
        StoredRetry, WhyHeld,
    },
};
use tokio::time::sleep;

use super::{
    Fixture, LONG, SHORT, commit, consumer, dead_event::letter, fill, load, order, orders, positions, registration,
    take, take_for, texts,
};

/// A retry of an event of `order_id`.
#[must_use]
pub fn retry(position: u64, order_id: &str) -> StoredRetry {
    StoredRetry {
        position: Position::new(position),
        key_hash: order(order_id).key_hash(),
        attempts: 3,
        spent: 2,
        not_before: Timestamp(50),
        first_failed_at: Timestamp(-7),
    }
}

fn started(position: u64, order_id: &str, crashes: u32) -> Started {
    Started { position: Position::new(position), key_hash: order(order_id).key_hash(), crashes }
}

fn held(order_id: &str, from: u64, why: WhyHeld) -> HeldKey {
    HeldKey { aggregate: order(order_id), from: Position::new(from), why }
}

async fn reset(store: &dyn Store, claim: Claim, to: u64) -> Claim {
    store.reset(Reset { claim, to: Position::new(to), time_to_live: LONG }).await.expect("resets")
}

async fn frontier_of(store: &dyn Store, name: &str) -> Position {
    let stored = store.consumers("shop".to_owned()).await.expect("lists");
    stored.iter().find(|stored| stored.consumer == consumer(name)).expect("is known").frontier
}

/// Head and beginning are fixed when a consumer is first seen, for all of one call at one head.
pub async fn the_start_is_stored_at_first_sight_only(fixture: Fixture) {
    let store = fixture.open().await;
    let head = fill(&*store, "a", 4, 1).await.position;
    let at = |name: &str, start| Registration { consumer: consumer(name), start, names: texts(&["placed"]) };
    store.register(vec![at("old", StartAt::Beginning), at("new", StartAt::Head)]).await.expect("registers");
    let later = fill(&*store, "b", 2, 1).await.position;
    let again = vec![at("old", StartAt::Head), at("new", StartAt::Beginning), at("newest", StartAt::Head)];
    store.register(again).await.expect("registers");
    assert_eq!(frontier_of(&*store, "old").await, Position::BEGINNING);
    assert_eq!(frontier_of(&*store, "new").await, head);
    assert_eq!(frontier_of(&*store, "newest").await, later);
}

/// A first claim loads an empty state, with the names it was registered with.
pub async fn a_new_consumer_has_nothing_behind_it(fixture: Fixture) {
    let store = fixture.open().await;
    store.register(vec![registration(&["paid", "placed"])]).await.expect("registers");
    store.register(vec![registration(&["other"])]).await.expect("registers");
    let state = load(&*store, &take(&*store, "a").await).await;
    assert_eq!((state.revision, state.generation, state.frontier), Default::default());
    assert_eq!(state.names, texts(&["paid", "placed"]));
    assert!(state.open.is_empty() && state.held.is_empty() && state.retries.is_empty() && state.started.is_empty());
    assert!(state.letters.is_empty() && state.replay.is_none());
}

/// Within a generation a checkpoint goes forward or stays.
pub async fn e11_r35_a_frontier_never_falls(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    assert_eq!(store.commit(claim.clone(), commit(0, 50)).await.expect("commits"), Revision(1));
    let refused = store.commit(claim.clone(), commit(1, 49)).await.expect_err("goes back");
    let CommitError::Backwards { stored, written } = refused else { unreachable!("{refused:?}") };
    assert_eq!((stored, written), (Position::new(50), Position::new(49)));
    assert_eq!(store.commit(claim.clone(), commit(1, 50)).await.expect("may stay"), Revision(2));
    assert_eq!(load(&*store, &claim).await.frontier, Position::new(50));
}

/// Once a claim was taken over, nothing can be written, read or reset under the old one.
pub async fn e11_a_stale_epoch_never_writes(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let (stale, _) = take_for(&*store, "a", SHORT).await;
    store.commit(stale.clone(), commit(0, 3)).await.expect("commits");
    sleep(SHORT * 2).await;
    let current = take(&*store, "b").await;
    store.commit(current.clone(), commit(1, 50)).await.expect("commits");
    let of_other_owner = Claim { owner: super::owner("a"), ..current.clone() };
    for claim in [stale, of_other_owner] {
        let write = Commit { opened: positions(&[9]), dead: vec![letter(9, "a")], ..commit(2, 60) };
        let reset = Reset { claim: claim.clone(), to: Position::BEGINNING, time_to_live: LONG };
        assert!(matches!(store.commit(claim.clone(), write).await, Err(CommitError::Fenced)));
        assert!(matches!(store.revision(claim.clone()).await, Err(CommitError::Fenced)));
        assert!(matches!(store.load(claim).await.map(drop), Err(CommitError::Fenced)));
        assert!(matches!(store.reset(reset).await, Err(CommitError::Fenced)));
    }
    let state = load(&*store, &current).await;
    assert_eq!((state.revision, state.frontier), (Revision(2), Position::new(50)));
    assert!(state.open.is_empty());
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 0);
    store.release(current.clone(), true).await.expect("releases");
    let refused = store.commit(current, commit(2, 51)).await.expect_err("was let go");
    assert!(matches!(refused, CommitError::Fenced), "{refused:?}");
}

/// Two writes cannot both replace one revision.
pub async fn a_write_names_the_revision_it_replaces(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), commit(0, 1)).await.expect("commits");
    for replaces in [0, 2] {
        let refused = store.commit(claim.clone(), commit(replaces, 5)).await.expect_err("replaces another");
        let CommitError::Superseded { stored, replaced } = refused else { unreachable!("{refused:?}") };
        assert_eq!((stored, replaced), (Revision(1), Revision(replaces)));
    }
    assert_eq!(load(&*store, &claim).await.frontier, Position::new(1));
}

/// A writer that lost its answer reads whether the write was made, and goes on either way.
pub async fn b42_b52_an_unknown_outcome_is_resolved_by_reading_the_revision(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    // Polled once and dropped: the write may have been made, or not.
    let mut lost = store.commit(claim.clone(), Commit { opened: positions(&[2]), ..commit(0, 7) });
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(lost.as_mut().poll(cx))).await;
    drop(polled);
    drop(lost);
    let replaces = store.revision(claim.clone()).await.expect("answers");
    let state = load(&*store, &claim).await;
    match replaces {
        Revision(0) => assert_eq!((state.frontier, state.open), (Position::BEGINNING, Vec::new())),
        Revision(1) => assert_eq!((state.frontier, state.open), (Position::new(7), positions(&[2]))),
        other => unreachable!("one write cannot make it {other}"),
    }
    // Nothing of the lost write comes later.
    let next = store.commit(claim, Commit { replaces, ..commit(0, 8) }).await.expect("goes on");
    assert_eq!(next, replaces.next());
}

/// Who regains a claim goes on from what was stored in between, not from what it remembers.
pub async fn b46_a_new_claim_reads_what_the_last_one_wrote(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let first = take(&*store, "a").await;
    store.commit(first.clone(), commit(0, 10)).await.expect("commits");
    store.release(first, true).await.expect("releases");
    let second = take(&*store, "b").await;
    assert_eq!(load(&*store, &second).await.frontier, Position::new(10));
    store.commit(second.clone(), Commit { opened: positions(&[15]), ..commit(1, 20) }).await.expect("commits");
    store.release(second, true).await.expect("releases");
    let third = take(&*store, "a").await;
    let state = load(&*store, &third).await;
    assert_eq!((state.revision, state.frontier, state.open), (Revision(2), Position::new(20), positions(&[15])));
    let refused = store.commit(third, commit(1, 11)).await.expect_err("is from its own past");
    assert!(matches!(refused, CommitError::Superseded { .. }), "{refused:?}");
}

fn everything() -> Commit {
    Commit {
        opened: positions(&[5, 3, 9]),
        held: vec![held("b", 6, WhyHeld::Dead), held("a", 3, WhyHeld::Retrying), held("c", 9, WhyHeld::Waiting)],
        retries: vec![retry(5, "a"), retry(3, "b")],
        started: vec![started(9, "a", 0), started(3, "b", 2)],
        dead: vec![letter(5, "b"), letter(12, "c"), letter(4, "d")],
        names: Some(texts(&["paid", "placed"])),
        ..commit(0, 10)
    }
}

/// Everything a commit lists is loaded again, sorted.
pub async fn a_commit_writes_all_its_rows(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), everything()).await.expect("commits");
    let mut state = load(&*store, &claim).await;
    assert_eq!((state.revision, state.frontier), (Revision(1), Position::new(10)));
    assert_eq!(state.open, positions(&[3, 5, 9]));
    state.held.sort_by(|one, other| one.aggregate.cmp(&other.aggregate));
    let keys = [held("a", 3, WhyHeld::Retrying), held("b", 6, WhyHeld::Dead), held("c", 9, WhyHeld::Waiting)];
    assert_eq!(state.held, keys);
    assert_eq!(state.retries, [retry(3, "b"), retry(5, "a")]);
    assert_eq!(state.started, [started(3, "b", 2), started(9, "a", 0)]);
    assert_eq!(state.names, texts(&["paid", "placed"]));
    // Each replaces what was stored of it; what a commit does not list stays.
    let second = Commit {
        opened: positions(&[3]),
        held: vec![held("c", 8, WhyHeld::Dead)],
        retries: vec![StoredRetry { attempts: 9, ..retry(5, "a") }],
        started: vec![started(9, "a", 1)],
        ..commit(1, 10)
    };
    store.commit(claim.clone(), second).await.expect("commits");
    let state = load(&*store, &claim).await;
    assert_eq!(state.open, positions(&[3, 5, 9]));
    assert!(state.held.contains(&held("c", 8, WhyHeld::Dead)) && state.held.len() == 3);
    assert_eq!(state.retries, [retry(3, "b"), StoredRetry { attempts: 9, ..retry(5, "a") }]);
    assert_eq!(state.started, [started(3, "b", 2), started(9, "a", 1)]);
    assert_eq!(state.names, texts(&["paid", "placed"]));
}

/// A row that a commit both ends and puts is there afterwards.
pub async fn what_goes_in_a_commit_goes_before_what_comes(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), everything()).await.expect("commits");
    let both = Commit {
        opened: positions(&[3]),
        closed: positions(&[3, 5]),
        held: vec![held("a", 4, WhyHeld::Dead)],
        released: vec![order("a"), order("b")],
        retries: vec![retry(3, "b")],
        retries_ended: positions(&[3, 5]),
        started: vec![started(3, "b", 3)],
        started_ended: positions(&[3, 9]),
        dead: vec![letter(5, "b")],
        dead_ended: positions(&[5, 12]),
        ..commit(1, 10)
    };
    store.commit(claim.clone(), both).await.expect("commits");
    let mut state = load(&*store, &claim).await;
    state.held.sort_by(|one, other| one.aggregate.cmp(&other.aggregate));
    assert_eq!(state.open, positions(&[3, 9]));
    assert_eq!(state.held, [held("a", 4, WhyHeld::Dead), held("c", 9, WhyHeld::Waiting)]);
    assert_eq!(state.retries, [retry(3, "b")]);
    assert_eq!(state.started, [started(3, "b", 3)]);
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 2, "4 and 5");
}

/// An event that settles says nothing of those below it.
pub async fn b45_closing_a_position_closes_no_other(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), Commit { opened: positions(&[2, 4, 6]), ..commit(0, 6) }).await.expect("commits");
    store.commit(claim.clone(), Commit { closed: positions(&[6, 5]), ..commit(1, 9) }).await.expect("commits");
    assert_eq!(load(&*store, &claim).await.open, positions(&[2, 4]));
}

/// A commit that only moves the frontier over skipped events is kept.
pub async fn b74_a_skip_is_a_completion(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), commit(0, 500_000)).await.expect("commits");
    store.release(claim, true).await.expect("releases");
    let claim = take(&*store, "b").await;
    assert_eq!(load(&*store, &claim).await.frontier, Position::new(500_000));
}

/// All of a commit, or nothing.
pub async fn a_refused_commit_writes_nothing(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), commit(0, 20)).await.expect("commits");
    store.commit(claim.clone(), Commit { replaces: Revision(1), ..everything() }).await.expect_err("goes back");
    store
        .commit(claim.clone(), Commit { frontier: Position::new(30), ..everything() })
        .await
        .expect_err("is superseded");
    let state = load(&*store, &claim).await;
    assert_eq!((state.revision, state.frontier), (Revision(1), Position::new(20)));
    assert!(state.open.is_empty() && state.held.is_empty() && state.retries.is_empty() && state.started.is_empty());
    assert_eq!(state.names, texts(&["placed"]));
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 0);
}

/// What has not been admitted cannot be open.
pub async fn a_position_above_the_frontier_cannot_be_open(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let write = Commit { opened: positions(&[10, 11]), ..commit(0, 10) };
    let refused = store.commit(claim.clone(), write).await.expect_err("is above");
    assert!(matches!(refused, CommitError::Store(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(store.revision(claim).await.expect("answers"), Revision(0));
}

/// A checkpoint keeps positions of any source.
pub async fn positions_of_two_parts_are_kept(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let (low, high) = (Position::with_major(7, u64::MAX), Position::with_major(u64::MAX, 3));
    let write = Commit { opened: vec![high, low], ..Commit { frontier: high, ..commit(0, 0) } };
    store.commit(claim.clone(), write).await.expect("commits");
    let state = load(&*store, &claim).await;
    assert_eq!((state.frontier, state.open), (high, vec![low, high]));
    let back = Commit { frontier: low, ..commit(1, 0) };
    assert!(matches!(store.commit(claim, back).await, Err(CommitError::Backwards { .. })));
}

/// After a reset the old claim is fenced, and the frontier is where the reset put it.
pub async fn a_reset_opens_a_generation_and_an_epoch(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let old = take(&*store, "a").await;
    store.commit(old.clone(), commit(0, 10)).await.expect("commits");
    let new = reset(&*store, old.clone(), 4).await;
    assert!(new.epoch > old.epoch);
    assert_eq!((&new.owner, &new.consumer), (&old.owner, &old.consumer));
    assert!(matches!(store.commit(old.clone(), commit(1, 11)).await, Err(CommitError::Fenced)));
    assert_eq!(store.renew(vec![old.clone(), new.clone()], LONG).await.expect("answers"), [old]);
    let state = load(&*store, &new).await;
    assert_eq!((state.generation, state.frontier), (Generation(1), Position::new(4)));
    let replay = state.replay.expect("there was a reset");
    let replayed: Vec<_> = (1..=12).filter(|at| replay.contains(Position::new(*at))).collect();
    assert_eq!(replayed, (1..=10).collect::<Vec<_>>(), "b108: up to the old frontier exactly");
    let next = Commit { replaces: state.revision, ..commit(0, 5) };
    store.commit(new, next).await.expect("goes on from the new frontier");
}

/// What was open had never been passed: handling it is no replay.
pub async fn b109_what_was_open_is_no_replay(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), Commit { opened: positions(&[3, 7]), ..commit(0, 8) }).await.expect("commits");
    let claim = reset(&*store, claim, 0).await;
    let state = load(&*store, &claim).await;
    assert!(state.open.is_empty(), "they are read again after the frontier");
    let replay = state.replay.expect("there was a reset");
    let replayed: Vec<_> = (1..=9).filter(|at| replay.contains(Position::new(*at))).collect();
    assert_eq!(replayed, [1, 2, 4, 5, 6, 8]);
}

/// A replay that is reset half way: what had ever been passed counts, what never was does not.
pub async fn b109_a_second_reset_keeps_what_the_first_replay_had_not_reached(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), Commit { opened: positions(&[2, 7, 9]), ..commit(0, 10) }).await.expect("commits");
    let claim = reset(&*store, claim, 0).await;
    let replaces = load(&*store, &claim).await.revision;
    // It passes 2, which had been open, opens 4, which had been passed, and gets to 7, which stays open.
    let write = Commit { replaces, opened: positions(&[4, 7]), ..commit(0, 7) };
    store.commit(claim.clone(), write).await.expect("commits");
    let claim = reset(&*store, claim, 1).await;
    let state = load(&*store, &claim).await;
    assert_eq!((state.generation, state.frontier), (Generation(2), Position::new(1)));
    let replay = state.replay.expect("there was a reset");
    let replayed: Vec<_> = (1..=11).filter(|at| replay.contains(Position::new(*at))).collect();
    assert_eq!(replayed, [1, 2, 3, 4, 5, 6, 8, 10]);
}

/// Nothing behind a held key was handed on, though no row says so of each event.
pub async fn what_waited_behind_a_held_key_is_no_replay(fixture: Fixture) {
    let store = fixture.open_registered().await;
    fill(&*store, "a", 12, 3).await;
    let all = super::page(&*store, super::read_after(Position::BEGINNING, &super::filter(&["placed"]))).await.events;
    let claim = take(&*store, "a").await;
    let at = |place: usize| all[place - 1].position();
    let write = Commit {
        frontier: at(10),
        // Order 1 is dead from its second event on, which is place 4; the third, place 7, is parked behind it.
        held: vec![HeldKey { aggregate: order("1"), from: at(4), why: WhyHeld::Dead }],
        dead: vec![evento_core::store::DeadEvent { position: at(4), ..letter(4, "1") }],
        ..commit(0, 0)
    };
    store.commit(claim.clone(), write).await.expect("commits");
    let reset = Reset { claim, to: Position::BEGINNING, time_to_live: LONG };
    let claim = store.reset(reset).await.expect("resets");
    let replay = load(&*store, &claim).await.replay.expect("there was a reset");
    let replayed: Vec<_> = (1..=12).filter(|place| replay.contains(at(*place))).collect();
    assert_eq!(replayed, [1, 2, 3, 4, 5, 6, 8, 9], "all but what was parked, and what is above");
}

/// What is open below a reset has never settled: it stays open, and is tried again.
pub async fn b45_a_reset_leaves_what_is_open_below_it(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let write = Commit { opened: positions(&[3, 5, 9]), retries: vec![retry(3, "a"), retry(9, "a")], ..commit(0, 10) };
    store.commit(claim.clone(), write).await.expect("commits");
    let claim = reset(&*store, claim, 5).await;
    let state = load(&*store, &claim).await;
    assert_eq!(state.open, positions(&[3, 5]));
    assert_eq!(state.retries, [retry(3, "a")]);
}

/// Letters, retries, starts and held keys above the reset go, and no others.
pub async fn a_reset_archives_what_is_above_it_and_nothing_else(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), everything()).await.expect("commits");
    let claim = reset(&*store, claim, 4).await;
    let state = load(&*store, &claim).await;
    assert_eq!(state.open, positions(&[3]));
    assert_eq!(state.held, [held("a", 3, WhyHeld::Retrying)]);
    assert_eq!(state.retries, [retry(3, "b")]);
    assert_eq!(state.started, [started(3, "b", 2)]);
    assert!(state.letters.is_empty(), "5 and 12 will be handled again");
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 1, "4 is left");
    assert_eq!(state.names, texts(&["paid", "placed"]));
}

/// A reset goes back: forward, it would pass what nobody has handled.
pub async fn a_reset_beyond_the_frontier_is_refused(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), commit(0, 10)).await.expect("commits");
    let beyond = Reset { claim: claim.clone(), to: Position::new(11), time_to_live: LONG };
    let refused = store.reset(beyond).await.expect_err("is beyond");
    assert!(matches!(refused, CommitError::Store(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(load(&*store, &claim).await.generation, Generation(0));
    reset(&*store, claim, 10).await;
}

/// People see every consumer of a bundle.
pub async fn consumers_are_listed_with_what_is_open(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let before = store.consumers("shop".to_owned()).await.expect("lists");
    assert_eq!((before.len(), before[0].written_at), (1, None));
    let keys = [held("a", 3, WhyHeld::Waiting), held("b", 4, WhyHeld::Retrying), held("c", 5, WhyHeld::Dead)];
    let written = Commit { opened: positions(&[2, 4]), held: keys.to_vec(), ..commit(0, 9) };
    store.commit(claim, written).await.expect("commits");
    let after = store.consumers("shop".to_owned()).await.expect("lists");
    assert_eq!((&after[0].consumer, after[0].frontier), (&orders(), Position::new(9)));
    assert_eq!((after[0].open, after[0].waiting), (2, 2));
    assert!(after[0].written_at.is_some_and(|at| at.0 > 1_500_000_000_000_000));
    assert!(store.consumers("another".to_owned()).await.expect("lists").is_empty());
}

/// Closing and opening changes nothing of a consumer, nor who holds it.
pub async fn state_survives_reopening(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    store.commit(claim.clone(), everything()).await.expect("commits");
    let claim = reset(&*store, claim, 9).await;
    let before = load(&*store, &claim).await;
    store.close().await;
    let store = fixture.open_registered().await;
    let after = load(&*store, &claim).await;
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 2);
    assert!(after.replay.is_some_and(|replay| replay.contains(Position::new(10))));
}
