//! Rules of stored requests.

use evento_core::{
    Position,
    store::{Action, Commit, RequestId, RequestProgress, RequestState, StoreError, Target},
};

use super::{Fixture, commit, consumer, dead_event::letter, order, orders, take};

fn progress(id: RequestId, done: u64, finished: bool) -> RequestProgress {
    RequestProgress { id, done, failed: 1, at: Position::new(done), finished }
}

/// The total is what the target had when the request was made.
pub async fn a_request_counts_the_letters_of_its_target(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let dead = vec![letter(1, "a"), letter(2, "b"), letter(3, "a")];
    store.commit(claim, Commit { dead, ..commit(0, 9) }).await.expect("commits");
    let targets = [
        (Target::Event(Position::new(2)), 1),
        (Target::Event(Position::new(9)), 0),
        (Target::Aggregate(order("a")), 2),
        (Target::Consumer, 3),
    ];
    let mut last = RequestId(0);
    for (target, total) in targets {
        let made = store.make_request(orders(), Action::Discard, target.clone()).await.expect("makes");
        assert_eq!((made.total, made.done, made.failed), (total, 0, 0), "{target:?}");
        assert_eq!((made.action, &made.target, &made.consumer), (Action::Discard, &target, &orders()));
        assert_eq!((made.at, &made.state), (Position::BEGINNING, &RequestState::Pending));
        assert!(made.id > last && made.made_at.0 > 1_500_000_000_000_000);
        assert_eq!(store.request(made.id).await.expect("is there"), made);
        last = made.id;
    }
    assert_eq!(store.open_requests(orders().bundle).await.expect("lists").len(), 4);
    assert!(store.open_requests("another".to_owned()).await.expect("lists").is_empty());
}

/// A request's progress is kept exactly if the commit is.
pub async fn progress_is_part_of_the_commit(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let made = store.make_request(orders(), Action::Retry, Target::Consumer).await.expect("makes");
    let refused = Commit { requests: vec![progress(made.id, 2, false)], ..commit(7, 9) };
    store.commit(claim.clone(), refused).await.expect_err("is superseded");
    assert_eq!(store.request(made.id).await.expect("is there"), made);
    let write = Commit { requests: vec![progress(made.id, 2, false)], ..commit(0, 9) };
    store.commit(claim.clone(), write).await.expect("commits");
    let running = store.request(made.id).await.expect("is there");
    assert_eq!((running.done, running.failed, running.at), (2, 1, Position::new(2)));
    assert_eq!(running.state, RequestState::Running);
    assert_eq!(store.open_requests(orders().bundle).await.expect("lists"), [running]);
    let write = Commit { requests: vec![progress(made.id, 3, true)], ..commit(1, 9) };
    store.commit(claim.clone(), write).await.expect("commits");
    let finished = store.request(made.id).await.expect("is there");
    assert_eq!((finished.done, &finished.state), (3, &RequestState::Finished));
    // What is finished stays so, whoever goes on with it by mistake.
    let write = Commit { requests: vec![progress(made.id, 1, false)], ..commit(2, 9) };
    store.commit(claim, write).await.expect("commits");
    assert_eq!(store.request(made.id).await.expect("is there"), finished);
    assert!(store.open_requests(orders().bundle).await.expect("lists").is_empty());
}

/// Who carries a request out sees that it was stopped; what comes after does not start it again.
pub async fn a_stopped_request_is_no_longer_open(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let made = store.make_request(orders(), Action::Retry, Target::Consumer).await.expect("makes");
    store.stop_request(made.id).await.expect("stops");
    assert!(store.open_requests(orders().bundle).await.expect("lists").is_empty());
    let write = Commit { requests: vec![progress(made.id, 1, false)], ..commit(0, 9) };
    store.commit(claim, write).await.expect("commits");
    let stopped = store.request(made.id).await.expect("is there");
    assert_eq!((stopped.state, stopped.done), (RequestState::Stopped, 1));
}

/// What has ended stays as it is.
pub async fn a_finished_request_cannot_be_stopped(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    let made = store.make_request(orders(), Action::Discard, Target::Consumer).await.expect("makes");
    let write = Commit { requests: vec![progress(made.id, 0, true)], ..commit(0, 9) };
    store.commit(claim, write).await.expect("commits");
    store.stop_request(made.id).await.expect("is no error");
    assert_eq!(store.request(made.id).await.expect("is there").state, RequestState::Finished);
}

/// What is not there is refused with what to do instead.
pub async fn a_request_to_an_unknown_consumer_is_refused(fixture: Fixture) {
    let store = fixture.open_registered().await;
    let refused = [
        store.make_request(consumer("nobody"), Action::Retry, Target::Consumer).await.map(drop),
        store.request(RequestId(99)).await.map(drop),
        store.stop_request(RequestId(99)).await,
    ];
    for refused in refused {
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    }
}
