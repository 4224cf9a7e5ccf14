//! Section 2: sequential dispatch.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use evento_runtime::testing::Harness;
use evento_tests::probe::{Another, Forever, Probe, happened};
use tokio::{sync::Notify, time::Instant};

/// Rule 2.1: the next starts when the one before has settled.
#[tokio::test(start_paused = true)]
async fn rule_2_1_one_event_runs_at_a_time_in_order() {
    let running = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&running);
    let probe = Probe::doing(move |_| {
        let running = Arc::clone(&counted);
        async move {
            assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            tokio::time::sleep(Duration::from_millis(3)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    let began = Instant::now();
    test.given((0..300).map(|number| happened(&format!("k{number}"), number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (0..300).collect::<Vec<_>>());
    assert!(began.elapsed() >= Duration::from_millis(900));
}

/// Rule 2.1: one consumer's slow handler holds up no other consumer.
#[tokio::test(start_paused = true)]
async fn rule_2_1_consumers_run_side_by_side() {
    let stuck = Probe::doing(|_| std::future::pending());
    let free = Probe::new();
    let test = Harness::new().provide(Forever(stuck.clone())).provide(Another(free.clone())).start().await.unwrap();
    let last = test.given((0..100).map(|number| happened("a", number))).await.unwrap();
    test.running().wait_for::<Another>(last).await.unwrap();
    assert_eq!((stuck.calls().len(), free.calls().len()), (1, 100));
}

/// Rule 2.2, as far as a process can see it of itself: the checkpoint stays below what runs.
#[tokio::test(start_paused = true)]
async fn rule_2_2_no_checkpoint_passes_an_unsettled_event() {
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    let probe = Probe::doing(move |call| {
        let held = Arc::clone(&held);
        async move {
            if call.number == 4 {
                held.notified().await;
            }
            Ok(())
        }
    });
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    let last = test.given((1..=9).map(|number| happened("a", number))).await.unwrap();
    probe.began(4).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), crate::kit::at(3));
    gate.notify_one();
    test.run_until_idle().await.unwrap();
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), last);
}

/// A busy backlog of one consumer starves neither the other consumers nor the test's own task.
#[tokio::test(start_paused = true)]
async fn e12_a_backlog_is_worked_off_without_a_pause_and_without_starving_others() {
    let (busy, other) = (Probe::new(), Probe::new());
    let test = Harness::new().provide(Forever(busy.clone())).provide(Another(other.clone())).start().await.unwrap();
    let began = Instant::now();
    test.given((0..20_000).map(|number| happened("a", number))).await.unwrap();
    other.began(1).await;
    test.running().wait_until_caught_up(Duration::from_secs(5)).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(500), "it slept over a backlog: {:?}", began.elapsed());
    assert_eq!((busy.calls().len(), other.calls().len()), (20_000, 20_000));
}

/// With consumers on several threads, pauses that come in the middle of a burst never stall it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_and_a_resume_in_the_middle_of_a_burst_do_not_stall_it() {
    let probe = Probe::new();
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    for round in 0..20_u64 {
        let last = test.given((0..500).map(|number| happened("a", round * 500 + number))).await.unwrap();
        for _ in 0..20 {
            test.running().pause::<Forever>().await.unwrap();
            test.running().resume::<Forever>().await.unwrap();
        }
        let reached = test.running().wait_for::<Forever>(last);
        tokio::time::timeout(Duration::from_secs(10), reached).await.expect("a stall").unwrap();
    }
    assert_eq!(probe.numbers(), (0..10_000).collect::<Vec<_>>());
    test.shutdown().await.unwrap();
}
