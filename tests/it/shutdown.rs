//! Section 10: shutdown.

use std::time::Duration;

use evento_runtime::{store::MemoryStore, testing::Harness};
use evento_tests::{
    faulty::{Fate, Operation},
    probe::{Another, Forever, Probe, happened},
};
use tokio::time::Instant;

use crate::kit::{at, faulty, set};

fn slow(seconds: u64) -> Probe {
    Probe::doing(move |_| async move {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        Ok(())
    })
}

/// Rule 10.1, in the process; with a signal it is in `process.rs`.
#[tokio::test(start_paused = true)]
async fn r65_a_handler_under_way_completes_and_its_checkpoint_is_saved() {
    let probe = slow(5);
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    probe.began(1).await;
    let began = Instant::now();
    let test = test.restart().await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(5_500), "{:?}", began.elapsed());
    assert_eq!((probe.returned(), test.checkpoint::<Forever>().await.unwrap()), (1, at(1)));
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 3]);
}

/// Rules 10.1 and 10.2.
#[tokio::test(start_paused = true)]
async fn r66_a_handler_that_never_returns_is_cut_off_within_the_budget_and_its_event_comes_again() {
    let store = MemoryStore::new();
    let (stuck, free) = (Probe::doing(|_| std::future::pending()), Probe::new());
    let harness = |first: &Probe| {
        let harness = Harness::new().store(store.clone()).provide(Forever(first.clone()));
        set(harness.provide(Another(free.clone())), |settings| settings.shutdown_budget = Duration::from_secs(4))
    };
    let test = harness(&stuck).start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    stuck.began(1).await;
    free.began(3).await;
    let began = Instant::now();
    let error = test.shutdown().await.unwrap_err();
    assert!(began.elapsed() <= Duration::from_millis(4_200), "{:?}", began.elapsed());
    assert!(!error.drained.is_clean());
    let text = error.to_string();
    assert!(text.contains("left the event at 1") && text.contains("`shutdown_budget`"), "{text}");
    let again = Probe::new();
    let test = harness(&again).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!((again.numbers(), free.numbers()), (vec![1, 2, 3], vec![1, 2, 3]));
}

/// Rule 10.3.
#[tokio::test(start_paused = true)]
async fn r68_a_clean_stop_and_start_handles_nothing_twice_and_loses_nothing() {
    let probe = Probe::doing(|call| async move {
        tokio::time::sleep(Duration::from_millis(call.number % 5)).await;
        Ok(())
    });
    let mut test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given((0..1_000).map(|number| happened(&format!("k{}", number % 7), number))).await.unwrap();
    for stop in 1..=40_u64 {
        tokio::time::sleep(Duration::from_millis(stop)).await;
        test = test.restart().await.unwrap();
    }
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (0..1_000).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn r71_a_stop_over_a_backlog_of_100_000_reacts_within_one_event() {
    let probe = slow(1);
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given((0..100_000).map(|number| happened("a", number))).await.unwrap();
    probe.began(3).await;
    let began = Instant::now();
    let drained = test.shutdown().await.unwrap();
    assert!(began.elapsed() <= Duration::from_millis(1_100), "{:?}", began.elapsed());
    assert_eq!((probe.numbers(), drained.consumers[0].settled_to), (vec![0, 1, 2], at(3)));
}

/// R71, for handlers that never wait: the consumer looks up from a burst.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r71_a_stop_in_the_middle_of_a_burst_reacts_within_one_event() {
    let probe = Probe::doing(|_| async {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        Ok(())
    });
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given((0..20_000).map(|number| happened("a", number))).await.unwrap();
    probe.began(100).await;
    let before = probe.calls().len();
    let drained = test.shutdown().await.unwrap();
    let handled = probe.calls().len();
    assert!(handled <= before + 60, "{} events after the stop", handled - before);
    assert_eq!(drained.consumers[0].settled_to, at(handled as u64));
}

/// Rule 10.1: one budget, whatever keeps it.
#[tokio::test(start_paused = true)]
async fn e15_a_store_that_does_not_answer_does_not_keep_a_shutdown_beyond_its_budget() {
    let (harness, faults) = faulty();
    let probe = Probe::new();
    let harness = harness.provide(Forever(probe.clone())).provide(Another(Probe::new()));
    let test = set(harness, |settings| settings.shutdown_budget = Duration::from_secs(3)).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.always(Operation::Commit, Fate::Hang);
    faults.always(Operation::Release, Fate::Hang);
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    let began = Instant::now();
    test.shutdown().await.unwrap_err();
    assert!(began.elapsed() <= Duration::from_millis(3_200), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_clean_shutdown_under_a_paused_clock_takes_no_time() {
    let test = Harness::new().provide(Forever(Probe::new())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let began = Instant::now();
    test.shutdown().await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
}

/// Rule 10.3, in either mode: inline handlers are so in both.
#[tokio::test(start_paused = true)]
async fn rule_10_3_inline_handlers_lose_and_repeat_nothing_under_on_start_too() {
    let probe = slow(1);
    let harness = Harness::new().provide(Forever(probe.clone()));
    let mut test =
        harness.with(|bundle| bundle.checkpoint_mode(evento_core::CheckpointMode::OnStart)).start().await.unwrap();
    test.given((1..=20).map(|number| happened("a", number))).await.unwrap();
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        test = test.restart().await.unwrap();
    }
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (1..=20).collect::<Vec<_>>());
}

/// A handler that is cut off leaves its event unsettled: nothing behind it may be admitted in its place, whatever comes
/// first, the stop or the cut.
#[tokio::test(start_paused = true)]
async fn a_budget_of_nothing_cuts_off_what_runs_and_loses_no_event() {
    let probe = Probe::doing(|call| async move {
        if call.number == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let store = MemoryStore::new();
    let harness = Harness::new().store(store).provide(Forever(probe.clone()));
    let test = set(harness.clone(), |settings| settings.shutdown_budget = Duration::ZERO).start().await.unwrap();
    test.given((1..=3).map(|number| happened(&format!("k{number}"), number))).await.unwrap();
    probe.began(1).await;
    test.shutdown().await.unwrap_err();
    assert_eq!(probe.numbers(), [1], "nothing passes what was cut off");
    probe.forget();
    probe.recovers();
    let test = harness.start().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 3]);
}

/// The same where the bundle is only dropped.
#[tokio::test(start_paused = true)]
async fn a_bundle_that_is_dropped_loses_no_event() {
    let probe = Probe::doing(|call| async move {
        if call.number == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let harness = Harness::new().store(MemoryStore::new()).provide(Forever(probe.clone()));
    let test = harness.clone().start().await.unwrap();
    test.given((1..=3).map(|number| happened(&format!("k{number}"), number))).await.unwrap();
    probe.began(1).await;
    drop(test);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(probe.numbers(), [1]);
    probe.forget();
    probe.recovers();
    let test = harness.start().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 3]);
}

/// A shutdown that nobody waits for any more ends the bundle all the same: its consumers, and what they hold.
#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_dropped_half_way_still_ends_every_consumer() {
    let probe = Probe::doing(|_| std::future::pending());
    let store = MemoryStore::new();
    let harness = Harness::new().store(store.clone()).provide(Forever(probe.clone()));
    let test = harness.start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    tokio::time::timeout(Duration::from_secs(5), test.shutdown()).await.unwrap_err();
    // Long before its time to live is over another has the claim, for it was let go.
    let again = Probe::new();
    let next = Harness::new().store(store).provide(Forever(again.clone())).start().await.unwrap();
    tokio::time::timeout(Duration::from_secs(3), next.run_until_idle()).await.unwrap().unwrap();
    assert_eq!(again.numbers(), [1]);
}

/// The report of a shutdown does not say that all is well where a claim could not be let go.
#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_let_go_is_told_by_the_shutdown() {
    let (harness, faults) = faulty();
    let test = harness.provide(Forever(Probe::new())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.always(Operation::Release, Fate::Fail);
    let error = test.shutdown().await.unwrap_err().to_string();
    assert!(error.contains("claim runs out by itself"), "{error}");
}

/// Nor where a handler was cut off because the claim was lost while it was waited for.
#[tokio::test(start_paused = true)]
async fn a_handler_that_a_lost_claim_cuts_off_during_a_shutdown_is_told_by_it() {
    let (harness, faults) = faulty();
    let probe = Probe::doing(|_| std::future::pending());
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    faults.always(Operation::Renew, Fate::Fail);
    let error = test.shutdown().await.unwrap_err().to_string();
    assert!(error.contains("left the event at 1"), "{error}");
}
