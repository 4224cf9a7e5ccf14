use std::time::Duration;

use evento_core::{
    Position,
    store::{AppendError, CommitError, OpenStore, Revision, StoreError},
};
use evento_runtime::store::MemoryStore;
use evento_tests::{
    conformance::{Fixture, any, commit, event, take},
    faulty::{Fate, Faults, FaultyStore, Operation},
};

evento_tests::conformance!(
    Fixture::new(FaultyStore::describing(MemoryStore::new(), Faults::default()), ()),
    tokio::test(start_paused = true)
);

fn faulty() -> (Fixture, Faults) {
    let faults = Faults::default();
    (Fixture::new(FaultyStore::describing(MemoryStore::new(), faults.clone()), ()), faults)
}

#[tokio::test]
async fn a_failed_call_is_not_made_and_a_lost_answer_is() {
    let (fixture, faults) = faulty();
    let store = fixture.open_registered().await;
    let claim = take(&*store, "a").await;
    faults.next(Operation::Commit, 1, Fate::Fail);
    faults.next(Operation::Commit, 1, Fate::LoseAnswer);
    for revision in [Revision(0), Revision(1)] {
        let lost = store.commit(claim.clone(), commit(0, 5)).await.expect_err("was planned");
        assert!(matches!(lost, CommitError::Store(StoreError::Unavailable { .. })), "{lost:?}");
        assert_eq!(store.revision(claim.clone()).await.expect("answers"), revision);
    }
    assert_eq!(store.commit(claim, commit(1, 6)).await.expect("the plan is used up"), Revision(2));
    assert_eq!(faults.count(Operation::Commit), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_or_hangs_until_it_is_mended() {
    let (fixture, faults) = faulty();
    let store = fixture.open().await;
    faults.next(Operation::Head, 1, Fate::Delay(Duration::from_secs(5)));
    let began = tokio::time::Instant::now();
    assert_eq!(store.head().await.expect("answers").bound, Position::BEGINNING);
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    faults.always(Operation::Head, Fate::Hang);
    tokio::time::timeout(Duration::from_secs(60), store.head()).await.expect_err("hangs");
    faults.mend();
    store.head().await.expect("answers");
    assert_eq!(faults.counts().into_iter().collect::<Vec<_>>(), [(Operation::Head, 3)]);
    faults.reset_counts();
    assert_eq!(faults.count(Operation::Head), 0);
}

#[tokio::test]
async fn the_plan_outlives_reopening() {
    let (fixture, faults) = faulty();
    faults.next(Operation::Append, 1, Fate::Fail);
    fixture.open().await.close().await;
    let store = fixture.open().await;
    let failed = store.append(any(vec![event("1", "a", "placed")])).await.expect_err("was planned");
    assert!(matches!(failed, AppendError::Store(StoreError::Unavailable { .. })), "{failed:?}");
    let described = FaultyStore::describing(MemoryStore::new(), faults);
    assert_eq!(described.describe(), "memory");
}
