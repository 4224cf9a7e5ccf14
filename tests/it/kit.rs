//! What these tests share.

use std::time::Duration;

use evento_core::{
    ConsumerKey, Position, Segment,
    store::{Claim, ClaimOutcome, ClaimRequest, ClaimStore, Owner, Target},
};
use evento_runtime::{
    Settings,
    store::MemoryStore,
    testing::{Harness, TestBundle},
};
use evento_tests::faulty::{Fate, Faults, FaultyStore, Operation};

/// A harness on this store, behind these faults.
pub(crate) fn behind(faults: &Faults, store: &MemoryStore) -> Harness {
    Harness::new().store(FaultyStore::describing(store.clone(), faults.clone()))
}

/// A harness on an empty store behind the faults that are answered too.
pub(crate) fn faulty() -> (Harness, Faults) {
    let faults = Faults::default();
    (behind(&faults, &MemoryStore::new()), faults)
}

/// The default settings, changed.
pub(crate) fn settings(change: impl FnOnce(&mut Settings)) -> Settings {
    let mut settings = Settings::default();
    change(&mut settings);
    settings
}

/// A harness with the default settings, changed.
pub(crate) fn set(harness: Harness, change: impl FnOnce(&mut Settings)) -> Harness {
    let settings = settings(change);
    harness.with(move |bundle| bundle.settings(settings.clone()))
}

/// Carries out a retry of `target` to its end; answers how many letters were handled and how many failed again.
pub(crate) async fn retry<T: evento_core::Component>(test: &TestBundle, target: Target) -> (u64, u64) {
    let request = test.running().dead_events::<T>().unwrap().retry(target).await.unwrap();
    let ended = request.wait().await.unwrap();
    (ended.done, ended.failed)
}

/// A position of the memory store.
pub(crate) fn at(position: u64) -> Position {
    Position::new(position)
}

/// Takes a consumer's claim for 10 s, past any bundle; answers whether the taking was clean.
pub(crate) async fn taken(store: &MemoryStore, consumer: &ConsumerKey) -> (Claim, bool) {
    let request = ClaimRequest {
        consumer: consumer.clone(),
        segment: Segment::WHOLE,
        owner: Owner { name: "another".to_owned(), process: None },
        time_to_live: Duration::from_secs(10),
        names: vec!["probe.followed".to_owned(), "probe.happened".to_owned()],
    };
    match store.claim(request).await.unwrap() {
        ClaimOutcome::Taken { claim, clean } => (claim, clean),
        other => panic!("not taken: {other:?}"),
    }
}

/// The positions of a component's letters.
pub(crate) async fn letters<T: evento_core::Component>(test: &TestBundle) -> Vec<u64> {
    test.dead_events::<T>().await.unwrap().iter().map(|letter| letter.position.minor()).collect()
}

/// Ends a bundle as a crash does: from now on nothing of it reaches the store, so its claim runs out by itself.
pub(crate) fn crash(test: TestBundle, faults: &Faults) {
    use Operation::{
        Append, Claim, Commit, DeadEvents, DeadPositions, Head, Load, OpenRequests, Read, ReadAggregate, ReadAt,
        Release, Renew, Revision,
    };
    for operation in [
        Append,
        Claim,
        Commit,
        DeadEvents,
        DeadPositions,
        Head,
        Load,
        OpenRequests,
        Read,
        ReadAggregate,
        ReadAt,
        Release,
        Renew,
        Revision,
    ] {
        faults.always(operation, Fate::Fail);
    }
    drop(test);
}
