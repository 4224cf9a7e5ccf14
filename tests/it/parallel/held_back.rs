//! Rule 1.6, as far as the reader keeps it: what an open transaction may still fill is never passed.

use std::time::Duration;

use evento_core::{
    Position,
    store::{CheckpointStore, Expected},
};
use evento_runtime::{Bundle, WaitError, store::MemoryStore};
use evento_tests::{
    faulty::{Faults, FaultyStore},
    probe::{Forever, Probe, happened},
};

use super::support::{Lanes, MODES, Noted, Script, Tasks, harness, numbered};
use crate::kit::{at, behind};

/// Longer than any poll, look-again or time-out that the runtime has.
const LONG: Duration = Duration::from_secs(300);

async fn frontiers(store: &MemoryStore) -> Vec<Position> {
    store.consumers("test".to_owned()).await.unwrap().iter().map(|stored| stored.frontier).collect()
}

/// E7: a row that is committed minutes after later ones is handled when it appears, and before them, however often later
/// appends wake the reader meanwhile. Until then the consumer is not caught up, and its checkpoint does not pass the bound.
#[tokio::test(start_paused = true)]
async fn e7_a_commit_that_takes_minutes_is_never_passed() {
    let (store, faults, probe) = (MemoryStore::new(), Faults::default(), Probe::new());
    let harness = behind(&faults, &store).provide(Forever(probe.clone()));
    let test = harness.start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    // The fourth is being written by a transaction that stays open; the others, of that aggregate or not, are committed.
    faults.hold_back(Some(at(3)));
    test.given((4..=6).map(|number| happened(if number == 5 { "b" } else { "a" }, number))).await.unwrap();
    for number in 7..=66 {
        test.given([happened("c", number)]).await.unwrap();
        tokio::time::sleep(LONG / 60).await;
    }
    assert_eq!((probe.numbers(), frontiers(&store).await), (vec![1, 2, 3], vec![at(3)]));
    let waited = test.running().wait_until_caught_up(Duration::from_secs(60)).await;
    assert!(matches!(waited, Err(WaitError::Behind { .. })), "{waited:?}");

    faults.hold_back(None);
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (1..=66).collect::<Vec<_>>());
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), at(66));
}

/// E7: nor is it passed by a consumer that takes its claim meanwhile, for the first time or again.
#[tokio::test(start_paused = true)]
async fn e7_a_commit_that_takes_long_is_not_passed_by_a_restart() {
    let (store, faults, probe) = (MemoryStore::new(), Faults::default(), Probe::new());
    let harness = behind(&faults, &store).provide(Forever(probe.clone()));
    faults.hold_back(Some(at(2)));
    let other = Bundle::builder("other").store(store.clone()).only_provided().provide(Forever(Probe::new()));
    let other = other.start().await.unwrap();
    other.log().append(Expected::Any, (1..=5).map(|number| happened("a", number))).await.unwrap();
    let test = harness.start().await.unwrap();
    tokio::time::sleep(LONG).await;
    let test = test.restart().await.unwrap();
    tokio::time::sleep(LONG).await;
    assert_eq!(probe.numbers(), [1, 2]);
    faults.hold_back(None);
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 3, 4, 5]);
    other.shutdown().await.unwrap();
}

/// E7: so it is under executors, in either mode: nothing above the bound starts, and no checkpoint passes it.
#[tokio::test(start_paused = true)]
async fn e7_executors_start_nothing_above_a_commit_that_takes_minutes() {
    for mode in MODES {
        let (store, faults) = (MemoryStore::new(), Faults::default());
        let (in_tasks, in_lanes) = (Noted::default(), Noted::default());
        let noting = |noted: &Noted| {
            let noted = noted.clone();
            Script::new(move |call| {
                noted.note(&call);
                async { Ok(()) }
            })
        };
        let harness = harness(mode, 4).store(FaultyStore::describing(store.clone(), faults.clone()));
        let test = harness.provide(Tasks(noting(&in_tasks))).provide(Lanes(noting(&in_lanes))).start().await.unwrap();
        faults.hold_back(Some(at(50)));
        test.given(numbered(200, |number| number % 7)).await.unwrap();
        for _ in 0..60 {
            tokio::time::sleep(LONG / 60).await;
            let passed: Vec<_> = frontiers(&store).await.into_iter().filter(|frontier| *frontier > at(50)).collect();
            assert_eq!(passed, [], "{mode:?}");
        }
        let highest = |noted: &Noted| noted.numbers().into_iter().max();
        assert_eq!((in_tasks.len(), in_lanes.len()), (50, 50), "{mode:?}");
        assert_eq!((highest(&in_tasks), highest(&in_lanes)), (Some(49), Some(49)), "{mode:?}");
        faults.hold_back(None);
        test.run_until_idle().await.unwrap();
        assert_eq!((in_tasks.len(), in_lanes.len()), (200, 200), "{mode:?}");
        assert!(in_lanes.by_key().values().all(|numbers| numbers.is_sorted()), "{mode:?}");
    }
}
