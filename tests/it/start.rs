//! Section 9: start, versions, replay.

use std::{sync::Arc, time::Duration};

use evento_core::{Position, store::ClaimStore};
use evento_runtime::{
    WaitError,
    store::MemoryStore,
    testing::{Harness, TestBundle},
};
use evento_tests::{
    faulty::{Fate, Operation},
    probe::{Another, First, Forever, FromHead, Once, Probe, Second, happened, ignored},
    told::Told,
};
use tokio::sync::Notify;

use crate::kit::{at, faulty, letters, taken};

/// Rule 9.1.
#[tokio::test(start_paused = true)]
async fn rule_9_1_a_start_at_the_head_is_stored_at_first_sight() {
    let store = MemoryStore::new();
    let all = Harness::new().store(store.clone()).provide(Forever(Probe::new())).start().await.unwrap();
    all.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    let probe = Probe::new();
    let harness = Harness::new().store(store).provide(FromHead(probe.clone()));
    harness.clone().start().await.unwrap().shutdown().await.unwrap();
    // Appended between its first start and its second, and not missed.
    all.given([happened("a", 4)]).await.unwrap();
    let test = harness.start().await.unwrap();
    test.given([happened("a", 5)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [4, 5]);
    assert!(probe.calls().iter().all(|call| !call.replay));
}

/// Rule 9.2.
#[tokio::test(start_paused = true)]
async fn rule_9_2_a_new_version_begins_at_the_beginning_beside_the_old_ones_state() {
    let told = Told::listen();
    let store = MemoryStore::new();
    let (first, second) = (Probe::new(), Probe::new());
    let old = Harness::new().store(store.clone()).provide(First(first.clone()));
    let test = old.clone().start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    test.shutdown().await.unwrap();
    let test = Harness::new().store(store).provide(Second(second.clone())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(second.numbers(), [1, 2, 3]);
    assert!(
        told.said(&["WARN", "no component of this bundle claims", "test/projector/versioned/v1/default"]).len() > 1
    );
    test.given([happened("a", 4)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    test.shutdown().await.unwrap();
    // Back to the old version: it goes on where it was.
    let test = old.start().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(first.numbers(), [1, 2, 3, 4]);
}

async fn handled(probe: &Probe, numbers: std::ops::RangeInclusive<u64>) -> TestBundle {
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given(numbers.map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    test
}

fn replays(probe: &Probe) -> Vec<(u64, bool)> {
    probe.calls().iter().map(|call| (call.number, call.replay)).collect()
}

/// Rule 9.3, the border between replay and live with 0, 1 and n events passed.
#[tokio::test(start_paused = true)]
async fn rule_9_3_a_replay_is_exactly_what_had_been_passed() {
    for passed in [0_u64, 1, 7] {
        let probe = Probe::new();
        let test = handled(&probe, 1..=passed).await;
        probe.forget();
        test.running().reset::<Forever>(Position::BEGINNING).await.unwrap();
        test.given((passed + 1..=passed + 2).map(|number| happened("a", number))).await.unwrap();
        test.run_until_idle().await.unwrap();
        let expected: Vec<_> = (1..=passed + 2).map(|number| (number, number <= passed)).collect();
        assert_eq!(replays(&probe), expected);
        // It stays so over a restart in the middle of nothing.
        let test = test.restart().await.unwrap();
        test.given([happened("a", passed + 3)]).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(replays(&probe).last(), Some(&(passed + 3, false)));
    }
}

#[tokio::test(start_paused = true)]
async fn rule_9_3_a_reset_to_a_position_replays_what_is_after_it_and_raises_the_epoch() {
    let probe = Probe::new();
    let test = handled(&probe, 1..=9).await;
    let epoch = probe.calls()[0].epoch;
    probe.forget();
    test.running().reset::<Forever>(at(6)).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(replays(&probe), [(7, true), (8, true), (9, true)]);
    assert!(probe.calls()[0].epoch > epoch);
    // Beyond the frontier nothing could be replayed.
    let refused = test.running().reset::<Forever>(at(50)).await.unwrap_err();
    let text = format!("{:#}", anyhow::Error::new(refused));
    assert!(text.contains("beyond the frontier 9"), "{text}");
    test.given([happened("a", 10)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(replays(&probe).last(), Some(&(10, false)));
}

/// Rule 9.3: in the middle of work; what runs settles first, and a replay within a replay is still one.
#[tokio::test(start_paused = true)]
async fn rule_9_3_a_consumer_can_be_reset_while_it_runs_and_again_within_the_replay() {
    let probe = Probe::doing(|_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    });
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given((1..=6).map(|number| happened("a", number))).await.unwrap();
    probe.began(4).await;
    test.running().reset::<Forever>(Position::BEGINNING).await.unwrap();
    assert_eq!(probe.returned(), 4);
    probe.began(6).await;
    test.running().reset::<Forever>(Position::BEGINNING).await.unwrap();
    test.run_until_idle().await.unwrap();
    let expected = [(1, true), (2, true), (3, true), (4, true), (5, false), (6, false)];
    assert_eq!(replays(&probe)[4..6], expected[..2]);
    assert_eq!(replays(&probe)[6..], expected);
}

/// Rule 9.3: what had not been passed is no replay, though a lower frontier had been left behind it.
#[tokio::test(start_paused = true)]
async fn rule_9_3_what_failed_or_was_parked_is_no_replay_and_what_died_is() {
    let probe = Probe::failing(|call| call.number == 1 || call.number == 5);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    // 1 dies and 3 is parked behind it.
    let events = [("a", 1), ("b", 2), ("a", 3), ("b", 4)].map(|(key, number)| happened(key, number));
    test.given(events).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(letters::<Once>(&test).await, [1]);
    probe.forget();
    probe.recovers();
    test.running().reset::<Once>(Position::BEGINNING).await.unwrap();
    assert_eq!(letters::<Once>(&test).await, [0_u64; 0], "letters are archived");
    test.run_until_idle().await.unwrap();
    assert_eq!(replays(&probe), [(1, true), (2, true), (3, false), (4, true)]);
    assert_eq!(test.running().consumers()[0].held_aggregates, 0);
}

#[tokio::test(start_paused = true)]
async fn rule_9_3_an_event_that_waits_for_its_retry_is_no_replay_after_a_reset() {
    let probe = Probe::failing(|call| call.number == 3);
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given((1..=4).map(|number| happened("a", number))).await.unwrap();
    probe.began(4).await;
    probe.forget();
    probe.recovers();
    test.running().reset::<Forever>(Position::BEGINNING).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(replays(&probe), [(1, true), (2, true), (3, false), (4, false)]);
    assert_eq!(probe.calls()[2].attempt, 1, "its retry is archived");
}

/// Rule 9.3: a paused consumer can be reset, and stays paused: its read model can be emptied meanwhile.
#[tokio::test(start_paused = true)]
async fn rule_9_3_a_paused_consumer_can_be_reset_and_stays_paused() {
    let probe = Probe::new();
    let test = handled(&probe, 1..=3).await;
    test.running().pause::<Forever>().await.unwrap();
    test.running().reset::<Forever>(Position::BEGINNING).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(probe.calls().len(), 3);
    test.running().resume::<Forever>().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.calls().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn rule_9_3_who_does_not_hold_the_claim_is_refused_a_reset_and_told_who_does() {
    let store = MemoryStore::new();
    let holder = Harness::new().store(store.clone()).provide(Forever(Probe::new())).start().await.unwrap();
    holder.run_until_idle().await.unwrap();
    let waiter = Harness::new().store(store).provide(Forever(Probe::new())).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let owner = waiter.running().consumers()[0].held_by.clone().unwrap();
    let refused = waiter.running().reset::<Forever>(Position::BEGINNING).await.unwrap_err();
    let text = format!("{:#}", anyhow::Error::new(refused));
    assert!(text.contains(&owner), "{text}");
    let missing = waiter.running().pause::<Another>().await.unwrap_err();
    assert!(matches!(missing, WaitError::NoConsumer { component: "Another" }), "{missing}");
}

/// Rule 9.4: on time-out it says what holds which consumer.
#[tokio::test(start_paused = true)]
async fn rule_9_4_a_wait_that_times_out_says_what_holds_it() {
    let probe = Probe::failing(|call| call.number == 2);
    let harness = Harness::new().provide(Forever(probe)).provide(Another(Probe::new()));
    let test = harness.patience(Duration::from_secs(5)).start().await.unwrap();
    test.given([happened("a", 1), happened("b", 2), happened("c", 3)]).await.unwrap();
    let held = test.run_until_idle().await.unwrap_err().to_string();
    for part in ["position 3", "Forever", "is at 1", "`probe.happened` at 2", "times: told to fail"] {
        assert!(held.contains(part), "{part}: {held}");
    }
    assert!(!held.contains("Another"), "{held}");
    test.running().pause::<Another>().await.unwrap();
    test.given([happened("d", 4)]).await.unwrap();
    let held = test.running().wait_until_caught_up(Duration::from_secs(1)).await.unwrap_err().to_string();
    assert!(held.contains("Another") && held.contains("is paused"), "{held}");
}

/// B17: what waits behind the frontier is not settled: parked events that are being worked off count.
#[tokio::test(start_paused = true)]
async fn b17_caught_up_counts_what_is_unsettled_below_the_frontier() {
    let probe = Probe::failing(|call| call.number == 1);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("b", 2), happened("a", 3), happened("b", 4)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    probe.does(move |call| {
        let held = Arc::clone(&held);
        async move {
            if call.number == 3 {
                held.notified().await;
            }
            Ok(())
        }
    });
    crate::kit::retry::<Once>(&test, evento_core::store::Target::Consumer).await;
    probe.began(5).await;
    let status = &test.running().consumers()[0];
    assert_eq!(status.frontier, at(4));
    assert!(status.settled_to < at(3), "{status:?}");
    let behind = test.running().wait_until_caught_up(Duration::from_secs(1)).await.unwrap_err();
    assert!(matches!(behind, WaitError::Behind { .. }), "{behind}");
    gate.notify_one();
    test.run_until_idle().await.unwrap();
    assert_eq!(test.running().consumers()[0].settled_to, at(4));
}

/// E12: with nothing but skipped events, caught up means the head.
#[tokio::test(start_paused = true)]
async fn e12_caught_up_means_settled_up_to_the_head_with_skipped_events_too() {
    let test = Harness::new().provide(Forever(Probe::new())).start().await.unwrap();
    let last = test.given((0..10).map(|_| ignored("a"))).await.unwrap();
    test.running().wait_for::<Forever>(last).await.unwrap();
    assert_eq!(test.running().consumers()[0].settled_to, last);
}

/// Rule 9.3: a stopped consumer is reset without a handler being called; one that runs is refused by who runs it.
#[tokio::test(start_paused = true)]
async fn rule_9_3_a_component_of_a_bundle_that_runs_nowhere_is_reset_before_its_next_start() {
    let store = MemoryStore::new();
    let probe = Probe::new();
    let bundle = || {
        let bundle = evento_runtime::Bundle::builder("stopped").store(store.clone()).only_provided();
        bundle.provide(Forever(probe.clone()))
    };
    let running = bundle().start().await.unwrap();
    let events = (1..=3).map(|number| happened("a", number));
    let last = running.log().append(evento_core::store::Expected::Any, events).await.unwrap();
    running.wait_for::<Forever>(last).await.unwrap();
    let refused = bundle().reset::<Forever>(Position::BEGINNING).await.unwrap_err();
    assert!(matches!(&refused, evento_runtime::ResetError::Runs { .. }), "{refused}");
    running.shutdown().await.unwrap();
    probe.forget();

    bundle().reset::<Forever>(Position::new(1)).await.unwrap();
    assert!(probe.calls().is_empty());
    let running = bundle().start().await.unwrap();
    running.wait_until_caught_up(Duration::from_secs(5)).await.unwrap();
    assert_eq!(probe.numbers(), [2, 3]);
    running.shutdown().await.unwrap();
    let error = bundle().reset::<Forever>(Position::new(99)).await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("frontier"), "{error:?}");
}

/// Rule 5.11: a reset of a stopped consumer does not hide that its last holder may have died in a handler, unless it has
/// everything handled anew.
#[tokio::test(start_paused = true)]
async fn rule_5_11_a_reset_of_a_stopped_consumer_leaves_an_unclean_claim_unclean() {
    let store = MemoryStore::new();
    let bundle = || {
        let bundle = evento_runtime::Bundle::builder("stopped").store(store.clone()).only_provided();
        bundle.provide(Forever(Probe::new()))
    };
    let running = bundle().start().await.unwrap();
    let consumer = running.dead_events::<Forever>().unwrap().consumer().clone();
    let events = (1..=3).map(|number| happened("a", number));
    let last = running.log().append(evento_core::store::Expected::Any, events).await.unwrap();
    running.wait_for::<Forever>(last).await.unwrap();
    running.shutdown().await.unwrap();
    for (to, is_made, clean_after) in [(at(99), false, false), (at(2), true, false), (Position::BEGINNING, true, true)]
    {
        // Its holder dies: the claim runs out.
        taken(&store, &consumer).await;
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(bundle().reset::<Forever>(to).await.is_ok(), is_made);
        let (claim, clean) = taken(&store, &consumer).await;
        assert_eq!(clean, clean_after, "after a reset to {to}");
        store.release(claim, true).await.unwrap();
    }
}

/// Rule 9.3: once a reset has been answered, nothing it takes back counts as settled.
#[tokio::test(start_paused = true)]
async fn rule_9_3_a_wait_after_a_reset_waits_for_the_replay() {
    let probe = Probe::new();
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    let last = test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    probe.does(|_| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Ok(())
    });
    test.running().reset::<Forever>(Position::BEGINNING).await.unwrap();
    test.running().wait_for::<Forever>(last).await.unwrap();
    assert_eq!(probe.returned(), 6);
}

/// Rule 9.3: resets that come together, or while the store does not answer, are made one after the other.
#[tokio::test(start_paused = true)]
async fn rule_9_3_resets_wait_for_each_other_and_for_the_store() {
    let (harness, faults) = faulty();
    let probe = Probe::new();
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    let last = test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    let running = test.running();
    let (one, two) = tokio::join!(running.reset::<Forever>(at(1)), running.reset::<Forever>(Position::BEGINNING));
    one.unwrap();
    two.unwrap();
    running.wait_for::<Forever>(last).await.unwrap();
    assert_eq!(probe.numbers()[probe.numbers().len() - 3..], [1, 2, 3]);

    // The claim is lost, and what is stored cannot be loaded for a while.
    faults.always(Operation::Renew, Fate::Fail);
    faults.always(Operation::Load, Fate::Fail);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let mending = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        faults.mend();
    };
    let (reset, ()) = tokio::join!(running.reset::<Forever>(Position::BEGINNING), mending);
    reset.unwrap();
    running.wait_for::<Forever>(last).await.unwrap();
    assert_eq!(probe.numbers()[probe.numbers().len() - 3..], [1, 2, 3]);
}
