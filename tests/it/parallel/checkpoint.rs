//! Sections 2.3, 2.4, 3.3, 3.5 and 4 under executors: what waits for what, and what is written of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use evento_core::{CheckpointMode, FaultExt, store::CheckpointStore};
use evento_runtime::{Settings, store::MemoryStore, testing::TestBundle};
use evento_tests::faulty::{Fate, Faults, FaultyStore, Operation};
use tokio::{sync::Semaphore, time::Instant};

use super::{
    failure::fails,
    support::{
        Lanes, LanesSlowly, MODES, Marked, Mixed, Noted, Numbered, Script, Tasks, TasksSlowly, harness, harness_of,
        numbered, until,
    },
};

/// A handler that takes so long, counts its starts and notes its ends.
fn takes(time: Duration, started: &Arc<AtomicUsize>, noted: &Noted) -> Script {
    let (started, noted) = (Arc::clone(started), noted.clone());
    Script::new(move |call| {
        let (started, noted) = (Arc::clone(&started), noted.clone());
        async move {
            started.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(time).await;
            noted.note(&call);
            Ok(())
        }
    })
}

/// A handler that waits for the gate where it is told to.
fn waits_for(gate: &Arc<Semaphore>, noted: &Noted, waits: impl Fn(usize) -> bool + Send + Sync + 'static) -> Script {
    let (gate, noted, waits) = (Arc::clone(gate), noted.clone(), Arc::new(waits));
    Script::new(move |call| {
        let (gate, noted, waits) = (Arc::clone(&gate), noted.clone(), Arc::clone(&waits));
        async move {
            if waits(call.number) {
                gate.acquire().await?.forget();
            }
            noted.note(&call);
            Ok(())
        }
    })
}

/// 2.3: the store's latency is part of each start, `start_ahead` buys it back, and never more are passed by the checkpoint
/// and not handled than the permits and what may be ahead.
#[tokio::test(start_paused = true)]
async fn rule_2_3_start_ahead_hides_the_stores_latency_for_a_bound_that_it_says() {
    let took = async |start_ahead: usize| {
        let (store, faults) = (MemoryStore::new(), Faults::default());
        let (started, noted) = (Arc::new(AtomicUsize::new(0)), Noted::default());
        let settings = Settings { start_ahead, ..Settings::default() };
        let test = harness_of(CheckpointMode::OnStart, 4, settings)
            .store(FaultyStore::describing(store.clone(), faults.clone()))
            .provide(Tasks(takes(Duration::from_millis(20), &started, &noted)))
            .start()
            .await
            .unwrap();
        faults.always(Operation::Commit, Fate::Delay(Duration::from_millis(20)));
        let began = Instant::now();
        test.given(numbered(200, |number| number)).await.unwrap();
        while noted.len() < 200 {
            let (handled, started) = (noted.len(), started.load(Ordering::Relaxed));
            assert!(started <= handled + 4, "{} run at once", started - handled);
            let stored = store.consumers("test".to_owned()).await.unwrap().remove(0);
            let passed = usize::try_from(stored.frontier.minor() - stored.open).unwrap();
            assert!(passed <= handled + 4 + start_ahead, "{passed} passed, {handled} handled, {start_ahead} ahead");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        began.elapsed()
    };
    let (alone, ahead) = (took(0).await, took(8).await);
    // 50 rounds of 20 ms for the handlers, and as much again for the writes.
    assert!(alone >= Duration::from_millis(1_900), "{alone:?} without");
    assert!(ahead <= Duration::from_millis(1_250), "{ahead:?} with");
}

/// 2.4: what is dead or parked is no barrier to an inline event; what waits for its retry is.
#[tokio::test(start_paused = true)]
async fn rule_2_4_dead_and_parked_events_are_no_barrier_and_a_retry_is() {
    for mode in MODES {
        let noted = Noted::default();
        let script = {
            let noted = noted.clone();
            Script::new(move |call| {
                let noted = noted.clone();
                async move {
                    if call.number == 0 {
                        Err(anyhow::anyhow!("for good")).permanent()?;
                    }
                    anyhow::ensure!(call.number != 3 || call.attempt > 1, "once");
                    noted.note(&call);
                    Ok(())
                }
            })
        };
        let test = harness(mode, 4).provide(Mixed(script)).start().await.unwrap();
        let of = |key: &str, number| Numbered { key: key.into(), number };
        test.given([of("a", 0), of("a", 1)]).await.unwrap();
        test.given([Marked { key: "b".into(), number: 2 }]).await.unwrap();
        test.given([of("c", 3), of("d", 4)]).await.unwrap();
        test.given([Marked { key: "b".into(), number: 5 }]).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.numbers(), [2, 4, 3, 5], "{mode:?}");
        assert_eq!(test.running().consumers()[0].parked, 1, "{mode:?}");
    }
}

/// 3.3: a key whose handler never returns holds up its own events and nobody else's; these follow in order.
#[tokio::test(start_paused = true)]
async fn rule_3_3_a_stuck_key_holds_up_only_itself() {
    for mode in MODES {
        let (gate, noted) = (Arc::new(Semaphore::new(0)), Noted::default());
        let test =
            harness(mode, 4).provide(Lanes(waits_for(&gate, &noted, |number| number == 0))).start().await.unwrap();
        let key = |number: usize| if number.is_multiple_of(10) { 0 } else { 1 + number % 500 };
        test.given(numbered(10_000, key)).await.unwrap();
        until("all others are handled", || noted.len() == 9_000).await;
        let status = test.running().consumers().remove(0);
        assert!(status.aside > 0, "{mode:?}: nothing was put aside");
        gate.add_permits(1);
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.len(), 10_000, "{mode:?}");
        assert_eq!(noted.by_key()["key-0"], (0..10_000).step_by(10).collect::<Vec<_>>(), "{mode:?}");
    }
}

fn in_flight(test: &TestBundle) -> usize {
    test.running().executors().iter().map(|executor| executor.in_flight).sum()
}

/// 3.5: with one permit, an event that waits for its next attempt leaves it to the others.
#[tokio::test(start_paused = true)]
async fn rule_3_5_a_retrys_delay_holds_no_permit() {
    for mode in MODES {
        for in_lanes in [false, true] {
            let noted = Noted::default();
            let script = fails(&noted, |call| call.number == 0 && call.attempt == 1);
            let harness = harness(mode, 1);
            let harness =
                if in_lanes { harness.provide(LanesSlowly(script)) } else { harness.provide(TasksSlowly(script)) };
            let test = harness.start().await.unwrap();
            let began = Instant::now();
            test.given(numbered(50, |number| number)).await.unwrap();
            until("all others are handled", || noted.len() == 49).await;
            assert!(began.elapsed() < Duration::from_secs(5), "{mode:?}: they took {:?}", began.elapsed());
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(in_flight(&test), 0, "{mode:?}");
            test.run_until_idle().await.unwrap();
            assert_eq!(noted.len(), 50, "{mode:?}");
        }
    }
}

/// 3.5: under watermark a write that takes long holds no permit either.
#[tokio::test(start_paused = true)]
async fn rule_3_5_a_write_under_watermark_holds_no_permit() {
    let (faults, noted) = (Faults::default(), Noted::default());
    let test = harness(CheckpointMode::Watermark, 2)
        .store(FaultyStore::describing(MemoryStore::new(), faults.clone()))
        .provide(Lanes(fails(&noted, |_| false)))
        .start()
        .await
        .unwrap();
    test.run_until_idle().await.unwrap();
    faults.always(Operation::Commit, Fate::Delay(Duration::from_millis(1_500)));
    let began = Instant::now();
    test.given(numbered(1_000, |number| number)).await.unwrap();
    until("all are handled", || noted.len() == 1_000).await;
    assert!(began.elapsed() < Duration::from_millis(700), "they took {:?}", began.elapsed());
    assert!(faults.count(Operation::Commit) > 0);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(in_flight(&test), 0);
}

/// 4.1: what was open is read first and in its order; then it goes on after the frontier.
#[tokio::test(start_paused = true)]
async fn rule_4_1_a_restart_begins_with_what_was_open_in_order_and_goes_on_after_the_frontier() {
    let (store, gate, noted) = (MemoryStore::new(), Arc::new(Semaphore::new(0)), Noted::default());
    let settings = Settings { shutdown_budget: Duration::from_secs(1), ..Settings::default() };
    let open = [7, 23, 58];
    let test = harness_of(CheckpointMode::Watermark, 4, settings)
        .store(store.clone())
        .provide(Tasks(waits_for(&gate, &noted, move |number| open.contains(&number))))
        .start()
        .await
        .unwrap();
    test.given(numbered(100, |number| number)).await.unwrap();
    until("all others are handled", || noted.len() == 97).await;
    test.shutdown().await.expect_err("three never return");
    let stored = store.consumers("test".to_owned()).await.unwrap().remove(0);
    assert_eq!((stored.frontier.minor(), stored.open), (100, 3), "{stored:?}");

    let again = Noted::default();
    let test = harness(CheckpointMode::Watermark, 1)
        .store(store.clone())
        .provide(Tasks(fails(&again, |_| false)))
        .start()
        .await
        .unwrap();
    test.given([Numbered { key: "new".into(), number: 100 }]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(again.numbers(), [7, 23, 58, 100]);
}

/// 4.4, 4.5: with every other write failed or its answer lost, the frontier never falls, nothing is handled twice and
/// nothing is lost.
#[tokio::test(start_paused = true)]
async fn rule_4_5_writes_of_unknown_outcome_cost_nothing_and_the_frontier_never_falls() {
    for mode in MODES {
        let (store, faults, noted) = (MemoryStore::new(), Faults::default(), Noted::default());
        let script = fails(&noted, |call| call.number.is_multiple_of(9) && call.attempt == 1);
        let test = harness(mode, 4)
            .store(FaultyStore::describing(store.clone(), faults.clone()))
            .provide(Tasks(script.clone()))
            .provide(Lanes(script))
            .start()
            .await
            .unwrap();
        let mut last = [0, 0];
        for round in 0..20 {
            faults.next(Operation::Commit, 1, if round % 2 == 0 { Fate::LoseAnswer } else { Fate::Fail });
            test.given(numbered(20, |number| number % 5)).await.unwrap();
            for _ in 0..40 {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let stored = store.consumers("test".to_owned()).await.unwrap();
                for (last, stored) in last.iter_mut().zip(&stored) {
                    assert!(stored.frontier.minor() >= *last, "{mode:?}: fell from {last} to {stored:?}");
                    *last = stored.frontier.minor();
                }
            }
        }
        test.run_until_idle().await.unwrap();
        assert_eq!((noted.len(), faults.count(Operation::Revision) >= 20), (800, true), "{mode:?}");
        assert_eq!(last, [400, 400], "{mode:?}");
        assert_eq!(test.running().consumers().iter().map(|it| it.dead).sum::<u64>(), 0, "{mode:?}");
    }
}
