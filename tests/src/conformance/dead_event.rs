//! Rules of the dead event queue.

use evento_core::{
    Position, Sequence, Timestamp,
    store::{ClaimOutcome, ClaimRequest, Commit, DeadEvent, DeadFilter, DeadReason, Registration},
};

use super::{Fixture, LONG, commit, consumer, load, order, orders, positions, request_by, take};

/// A letter of an event of `order_id`.
#[must_use]
pub fn letter(position: u64, order_id: &str) -> DeadEvent {
    DeadEvent {
        position: Position::new(position),
        event_id: format!("e-{position}"),
        name: "placed".to_owned(),
        aggregate: order(order_id),
        sequence: Sequence(4),
        reason: DeadReason::Failed,
        cause: super::texts(&["cannot write the row", "disk \"full\""]),
        attempts: 1,
        first_failed_at: Timestamp(10),
        last_failed_at: Timestamp(20),
        parks: true,
    }
}

fn all() -> DeadFilter {
    DeadFilter { limit: 100, ..DeadFilter::default() }
}

/// A second letter for a position brings its news to the first.
pub async fn b87_one_letter_a_position(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let first = letter(3, "a");
    store.commit(claim.clone(), Commit { dead: vec![first.clone()], ..commit(0, 5) }).await.expect("commits");
    let second = DeadEvent {
        attempts: 4,
        cause: vec!["worse".to_owned()],
        reason: DeadReason::KilledTheProcess,
        first_failed_at: Timestamp(30),
        last_failed_at: Timestamp(40),
        parks: false,
        event_id: "another".to_owned(),
        ..first.clone()
    };
    store.commit(claim, Commit { dead: vec![second.clone(), second.clone()], ..commit(1, 5) }).await.expect("commits");
    let page = store.dead_events(orders(), all()).await.expect("lists");
    assert_eq!(page.letters, [DeadEvent { parks: first.parks, event_id: first.event_id, ..second }]);
    assert_eq!(page.next, None);
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 1);
}

/// A position that has a letter and would be read again is told at the claim.
pub async fn letters_are_read_with_the_checkpoint(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let dead = [12, 3, 7, 15].map(|at| letter(at, "a")).to_vec();
    let write = Commit { opened: positions(&[3, 4]), dead, ..commit(0, 10) };
    store.commit(claim.clone(), write).await.expect("commits");
    assert_eq!(load(&*store, &claim).await.letters, positions(&[3, 12, 15]));
}

/// A list goes on where its last page ended.
pub async fn letters_are_listed_page_by_page(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let dead = [9, 2, 300, 5].map(|at| letter(at, "a")).to_vec();
    store.commit(claim, Commit { dead, ..commit(0, 300) }).await.expect("commits");
    let first = store.dead_events(orders(), DeadFilter { limit: 2, ..all() }).await.expect("lists");
    assert_eq!(first.letters, [letter(2, "a"), letter(5, "a")]);
    let after = first.next.expect("there is more");
    let second = store.dead_events(orders(), DeadFilter { limit: 2, after, ..all() }).await.expect("lists");
    assert_eq!(second.letters, [letter(9, "a"), letter(300, "a")]);
    assert_eq!(second.next, None);
}

/// Name, aggregate and reason each narrow a list, and so do all together.
pub async fn letters_are_filtered_by_every_part(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let dead = vec![
        letter(1, "a"),
        DeadEvent { name: "paid".to_owned(), ..letter(2, "a") },
        letter(3, "b"),
        DeadEvent { reason: DeadReason::TooLarge, ..letter(4, "a") },
    ];
    store.commit(claim, Commit { dead, ..commit(0, 9) }).await.expect("commits");
    let name = Some("placed".to_owned());
    let aggregate = Some(order("a"));
    let reason = Some(DeadReason::Failed);
    let cases = [
        (DeadFilter { name: name.clone(), ..all() }, &[1, 3, 4][..]),
        (DeadFilter { aggregate: aggregate.clone(), ..all() }, &[1, 2, 4]),
        (DeadFilter { reason, ..all() }, &[1, 2, 3]),
        (DeadFilter { name, aggregate, reason, ..all() }, &[1]),
        (all(), &[1, 2, 3, 4]),
    ];
    for (filter, expected) in cases {
        let page = store.dead_events(orders(), filter.clone()).await.expect("lists");
        let found: Vec<_> = page.letters.iter().map(|letter| letter.position).collect();
        assert_eq!(found, positions(expected), "{filter:?}");
    }
}

/// Where letters are: as listed, so many at most.
pub async fn positions_of_letters_are_read_without_what_is_in_them(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let dead = [(9, "a"), (2, "a"), (4, "b"), (300, "a"), (5, "a")]
        .map(|(at, id)| DeadEvent { parks: at != 5, ..letter(at, id) });
    let dead = dead.to_vec();
    store.commit(claim, Commit { dead, ..commit(0, 300) }).await.expect("commits");
    let aggregate = Some(order("a"));
    let after = Position::new(2);
    let cases = [
        (all(), &[2, 4, 5, 9, 300][..]),
        (DeadFilter { aggregate: aggregate.clone(), ..all() }, &[2, 5, 9, 300]),
        (DeadFilter { aggregate: aggregate.clone(), after, limit: 2, ..all() }, &[5, 9]),
        (DeadFilter { aggregate: Some(order("c")), ..all() }, &[]),
    ];
    for (filter, expected) in cases {
        let found = store.dead_positions(orders(), filter.clone()).await.expect("reads");
        let listed = store.dead_events(orders(), filter.clone()).await.expect("lists").letters;
        assert!(listed.iter().map(|it| (it.position, it.parks)).eq(found.iter().map(|it| (it.position, it.parks))));
        let at: Vec<_> = found.iter().map(|it| it.position).collect();
        assert_eq!(at, positions(expected), "{filter:?}");
    }
    assert!(store.dead_positions(consumer("nobody"), all()).await.expect("reads").is_empty());
}

/// A letter stays until a commit ends it.
pub async fn e3_a_letter_goes_when_the_commit_says_so(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let dead = vec![letter(1, "a"), letter(2, "a")];
    store.commit(claim.clone(), Commit { dead, ..commit(0, 9) }).await.expect("commits");
    store.commit(claim.clone(), commit(1, 10)).await.expect("commits");
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 2);
    let refused = Commit { dead_ended: positions(&[1]), ..commit(0, 10) };
    store.commit(claim.clone(), refused).await.expect_err("is superseded");
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 2);
    store.commit(claim, Commit { dead_ended: positions(&[1]), ..commit(2, 10) }).await.expect("commits");
    let page = store.dead_events(orders(), all()).await.expect("lists");
    assert_eq!(page.letters, [letter(2, "a")]);
}

/// Letters are per consumer.
pub async fn consumers_do_not_see_each_others_letters(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let other = Registration { consumer: consumer("other"), ..super::registration(&["placed"]) };
    store.register(vec![other]).await.expect("registers");
    let claim = take(&*store, "a").await;
    store.commit(claim, Commit { dead: vec![letter(1, "a")], ..commit(0, 9) }).await.expect("commits");
    let request = ClaimRequest { consumer: consumer("other"), ..request_by("a", LONG) };
    let ClaimOutcome::Taken { claim, .. } = store.claim(request).await.expect("answers") else {
        unreachable!("nobody holds it")
    };
    store.commit(claim, Commit { dead: vec![letter(1, "b")], ..commit(0, 9) }).await.expect("commits");
    for (name, order_id) in [("orders", "a"), ("other", "b")] {
        let page = store.dead_events(consumer(name), all()).await.expect("lists");
        assert_eq!(page.letters, [letter(1, order_id)]);
    }
    assert!(store.dead_events(consumer("nobody"), all()).await.expect("lists").letters.is_empty());
    assert_eq!(store.dead_depth(consumer("nobody")).await.expect("counts"), 0);
}
