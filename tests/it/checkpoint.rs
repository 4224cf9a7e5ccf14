//! Sections 2.3 and 4: checkpoints.

use std::time::Duration;

use evento_core::{
    Position,
    store::{CheckpointStore, Commit, CommitError},
};
use evento_runtime::{ConsumerState, store::MemoryStore, testing::Harness};
use evento_tests::{
    faulty::{Fate, Faults, Operation},
    probe::{Forever, Narrow, Probe, Wide, followed, happened},
    told::Told,
};

use crate::kit::{at, behind, faulty, set, taken};

/// Rule 2.3: one write for many events, and at once when nothing else is ready.
#[tokio::test(start_paused = true)]
async fn rule_2_3_checkpoints_are_group_committed() {
    let (harness, faults) = faulty();
    let test = harness.provide(Forever(Probe::new())).start().await.unwrap();
    test.given((0..10_000).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    let writes = faults.count(Operation::Commit);
    assert!((2..=40).contains(&writes), "{writes} writes for 10,000 events");
}

/// Rule 2.3.
#[tokio::test(start_paused = true)]
async fn rule_2_3_a_slow_consumer_writes_every_100_ms() {
    let (harness, faults) = faulty();
    let probe = Probe::doing(|_| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(())
    });
    let test = harness.provide(Forever(probe)).start().await.unwrap();
    test.given((0..1_000).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    let writes = faults.count(Operation::Commit);
    assert!((80..=110).contains(&writes), "{writes} writes in 10 s");
}

#[tokio::test(start_paused = true)]
async fn rule_2_3_every_event_writes_after_each_before_the_next_begins() {
    let (harness, faults) = faulty();
    let store_writes = faults.clone();
    let probe = Probe::doing(move |call| {
        let writes = store_writes.count(Operation::Commit);
        async move {
            anyhow::ensure!(writes as u64 >= call.number, "{writes} writes before number {}", call.number);
            Ok(())
        }
    });
    let harness = set(harness.provide(Forever(probe.clone())), |settings| settings.checkpoint.every_event = true);
    let test = harness.start().await.unwrap();
    test.given((0..100).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (0..100).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn rule_2_3_a_write_that_is_overdue_stops_admission_and_says_so() {
    let (harness, faults) = faulty();
    let probe = Probe::doing(|_| async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(())
    });
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.always(Operation::Commit, Fate::Fail);
    test.given((0..2_000).map(|number| happened("a", number))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = probe.calls().len();
    assert!((100..=250).contains(&calls), "{calls} events with no write");
    assert!(test.running().consumers()[0].trouble.as_ref().unwrap().contains("writing the checkpoint"));
    faults.mend();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (0..2_000).collect::<Vec<_>>());
}

/// Rule 4.5: the write was made, or was not; either way it goes on, and nothing is handled twice.
#[tokio::test(start_paused = true)]
async fn b42_a_write_of_unknown_outcome_is_resolved_and_writes_go_on() {
    for fate in [Fate::LoseAnswer, Fate::Fail] {
        let (harness, faults) = faulty();
        let probe = Probe::new();
        let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
        for number in 1..=20 {
            faults.next(Operation::Commit, 2, fate);
            faults.next(Operation::Revision, 1, Fate::Fail);
            let last = test.given([happened("a", number)]).await.unwrap();
            test.run_until_idle().await.unwrap();
            assert_eq!(test.checkpoint::<Forever>().await.unwrap(), last, "{fate:?}");
        }
        assert_eq!(probe.numbers(), (1..=20).collect::<Vec<_>>());
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(test.running().consumers()[0].trouble, None);
        let test = test.restart().await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(probe.calls().len(), 20, "{fate:?}");
    }
}

/// Rule 4.4: what a stale owner writes is refused, and the checkpoint does not fall.
#[tokio::test(start_paused = true)]
async fn e11_r35_a_stale_writer_cannot_move_a_checkpoint_back() {
    let store = MemoryStore::new();
    let probe = Probe::new();
    let harness = Harness::new().store(store.clone()).provide(Forever(probe.clone()));
    let test = harness.clone().start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    let consumer = test.running().dead_events::<Forever>().unwrap().consumer().clone();
    test.shutdown().await.unwrap();

    let (stale, _) = taken(&store, &consumer).await;
    let replaces = store.load(stale.clone()).await.unwrap().revision;
    tokio::time::sleep(Duration::from_secs(11)).await;

    let test = harness.start().await.unwrap();
    test.given((4..=50).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    let refused = store.commit(stale, Commit { replaces, frontier: at(3), ..Commit::default() }).await.unwrap_err();
    assert!(matches!(refused, CommitError::Fenced), "{refused}");
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), at(50));
    assert_eq!(probe.numbers(), (1..=50).collect::<Vec<_>>());
}

/// R35: the stored frontier never falls, watched over failures, lost answers and restarts.
#[tokio::test(start_paused = true)]
async fn r35_b45_the_stored_frontier_only_rises_and_only_over_what_has_settled() {
    let faults = Faults::default();
    let store = MemoryStore::new();
    let probe = Probe::failing(|call| call.number.is_multiple_of(7) && call.attempt == 1);
    let mut test = behind(&faults, &store).provide(Forever(probe.clone())).start().await.unwrap();
    let mut last = Position::BEGINNING;
    for round in 0..30_u64 {
        faults.next(Operation::Commit, 1, if round % 2 == 0 { Fate::LoseAnswer } else { Fate::Fail });
        test.given((1..=5).map(|number| happened("a", round * 5 + number))).await.unwrap();
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_millis(37)).await;
            let stored = test.checkpoint::<Forever>().await.unwrap();
            assert!(stored >= last, "fell from {last} to {stored}");
            let returned = probe.calls().iter().filter(|call| call.attempt > 1 || call.number % 7 != 0).count();
            assert!(stored.minor() <= returned as u64, "at {stored} with {returned} handled");
            last = stored;
        }
        if round % 10 == 9 {
            test = test.restart().await.unwrap();
        }
    }
    test.run_until_idle().await.unwrap();
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), at(150));
}

/// Rule 4.6.
#[tokio::test(start_paused = true)]
async fn rule_4_6_a_name_newly_taken_is_seen_from_the_frontier_on_and_warned_of() {
    let told = Told::listen();
    let store = MemoryStore::new();
    let probe = Probe::new();
    let test = Harness::new().store(store.clone()).provide(Narrow(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.given([followed("a", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    test.shutdown().await.unwrap();
    let test = Harness::new().store(store).provide(Wide(probe.clone())).start().await.unwrap();
    test.given([followed("a", 3)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 3]);
    assert!(told.said(&["probe.followed", "raise its version"]).contains("WARN"));
}

/// Rule 4.6: a process that lacks a stored name stands back for one that has it, and takes over when that is gone.
#[tokio::test(start_paused = true)]
async fn rule_4_6_a_process_that_lacks_a_stored_name_stands_back_while_one_that_has_it_lives() {
    let told = Told::listen();
    let store = MemoryStore::new();
    let (wide, narrow) = (Probe::new(), Probe::new());
    let of_wide = Harness::new().store(store.clone()).provide(Wide(wide.clone()));
    let of_narrow = Harness::new().store(store.clone()).provide(Narrow(narrow.clone()));
    // First the one with both names, so that they are stored; a third process holds the claim meanwhile.
    let first = of_wide.clone().start().await.unwrap();
    first.given([happened("a", 1)]).await.unwrap();
    first.run_until_idle().await.unwrap();
    let lacking = of_narrow.start().await.unwrap();
    let having = of_wide.start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    first.shutdown().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(having.running().consumers()[0].state, ConsumerState::Running);
    assert_eq!(lacking.running().consumers()[0].state, ConsumerState::Waiting);
    having.shutdown().await.unwrap();
    lacking.given([happened("a", 2)]).await.unwrap();
    lacking.run_until_idle().await.unwrap();
    assert_eq!((wide.numbers(), narrow.numbers()), (vec![1], vec![2]));
    drop(told);
}

/// Rule 4.6: what waits for a retry, and has no handler any more, settles as skipped.
#[tokio::test(start_paused = true)]
async fn rule_4_6_a_retrying_event_whose_handler_is_gone_settles_as_skipped() {
    let store = MemoryStore::new();
    let wide = Probe::failing(|call| call.number == 2);
    let test = Harness::new().store(store.clone()).provide(Wide(wide.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.given([followed("a", 2)]).await.unwrap();
    test.given([happened("a", 3)]).await.unwrap();
    wide.began(3).await;
    test.shutdown().await.unwrap();
    let narrow = Probe::new();
    let test = Harness::new().store(store).provide(Narrow(narrow.clone())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(narrow.numbers(), [3]);
    assert_eq!(test.running().consumers()[0].skipped, 1);
}
