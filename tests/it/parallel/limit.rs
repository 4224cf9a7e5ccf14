//! How much runs at once, how soon, and what it costs to keep account of it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use evento_core::{CheckpointMode, store::CheckpointStore};
use evento_runtime::store::MemoryStore;
use evento_tests::faulty::{Fate, Faults, FaultyStore, Operation};
use tokio::{sync::Semaphore, time::Instant};

use super::support::{
    Gauge, Lanes, Marked, Noted, Numbered, OtherTasks, Pool, Script, Tasks, harness, harness_of, numbered,
    pseudo_random, until,
};

/// A handler that waits so long.
fn waits(time: Duration, noted: &Noted) -> Script {
    let noted = noted.clone();
    Script::new(move |call| {
        let noted = noted.clone();
        async move {
            tokio::time::sleep(time).await;
            noted.note(&call);
            Ok(())
        }
    })
}

/// 3.2: never more than the capacity, and all of it where there is work. Counted by the handlers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn never_more_than_the_capacity_runs_at_once_and_all_of_it_is_used() {
    for mode in super::support::MODES {
        let gauges: [Gauge; 3] = Default::default();
        let script = |gauge: &Gauge, blocks: bool| {
            let gauge = gauge.clone();
            Script::new(move |_| {
                let gauge = gauge.clone();
                async move {
                    let _counted = gauge.enter();
                    if blocks {
                        std::thread::park_timeout(Duration::from_millis(1));
                    } else {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    Ok(())
                }
            })
        };
        let test = harness(mode, 6)
            .provide(Tasks(script(&gauges[0], false)))
            .provide(Lanes(script(&gauges[1], false)))
            .provide(Pool(script(&gauges[2], true)))
            .start()
            .await
            .unwrap();
        test.given(numbered(500, |number| number)).await.unwrap();
        test.run_until_idle().await.unwrap();
        for gauge in &gauges {
            assert_eq!(gauge.most(), 6, "{mode:?} {gauges:?}");
        }
        assert!(test.running().executors().iter().all(|executor| executor.in_flight == 0));
        test.shutdown().await.unwrap();
    }
}

/// 3.1: two consumers of one executor start equally many, however long theirs take.
#[tokio::test(start_paused = true)]
async fn two_consumers_of_one_executor_start_equally_many() {
    let started: Arc<[AtomicUsize; 2]> = Arc::default();
    let others = Arc::new(AtomicUsize::new(0));
    let script = |of: usize, time: u64| {
        let (started, others) = (Arc::clone(&started), Arc::clone(&others));
        Script::new(move |_| {
            if started[of].fetch_add(1, Ordering::Relaxed) + 1 == 10_000 {
                others.fetch_max(started[1 - of].load(Ordering::Relaxed), Ordering::Relaxed);
            }
            async move {
                tokio::time::sleep(Duration::from_millis(time)).await;
                Ok(())
            }
        })
    };
    let test = harness(CheckpointMode::Watermark, 8)
        .provide(Tasks(script(0, 1)))
        .provide(OtherTasks(script(1, 4)))
        .start()
        .await
        .unwrap();
    test.given(numbered(10_000, |number| number)).await.unwrap();
    test.run_until_idle().await.unwrap();
    let others = others.load(Ordering::Relaxed);
    assert!(others >= 9_000, "one has started 10,000, the other {others}");
}

/// 3.6: what blocks in a pool delays neither the renewal of claims nor another executor.
#[tokio::test]
async fn blocked_threads_of_a_pool_delay_no_claim_and_no_other_executor() {
    let settings = evento_runtime::Settings {
        claim: evento_runtime::ClaimSettings {
            time_to_live: Duration::from_secs(2),
            renew_every: Duration::from_millis(200),
        },
        ..Default::default()
    };
    let (pooled, other) = (Noted::default(), Noted::default());
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Arc::new(std::sync::Mutex::new(released));
    let blocked = {
        let pooled = pooled.clone();
        Script::new(move |call| {
            let (pooled, released) = (pooled.clone(), Arc::clone(&released));
            async move {
                pooled.note(&call);
                if call.number < 2 {
                    released.lock().unwrap().recv().ok();
                }
                Ok(())
            }
        })
    };
    let test = harness_of(CheckpointMode::Watermark, 2, settings)
        .provide(Pool(blocked))
        .provide(Tasks(waits(Duration::from_millis(1), &other)))
        .start()
        .await
        .unwrap();
    test.given(numbered(100, |number| number)).await.unwrap();
    until("the other executor is done", || other.len() == 100).await;
    // Longer than the claims last without renewal.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    drop(release);
    test.run_until_idle().await.unwrap();
    assert_eq!((pooled.len(), other.len()), (100, 100), "a claim was lost: events were handled again");
    test.shutdown().await.unwrap();
}

/// E1, B09, B72: positions a thousand apart are as good as any: the checkpoint reaches the end, with nothing open.
#[tokio::test(start_paused = true)]
async fn e1_b09_b72_sparse_positions_are_checkpointed_to_the_last() {
    let (store, noted) = (MemoryStore::with_holes(1_000), Noted::default());
    let test = harness(CheckpointMode::Watermark, 16)
        .store(store.clone())
        .provide(Tasks(waits(Duration::from_millis(1), &noted)))
        .provide(Lanes(waits(Duration::from_millis(1), &noted)))
        .start()
        .await
        .unwrap();
    let last = test.given(numbered(3_000, |number| number % 50)).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(test.checkpoint::<Tasks>().await.unwrap(), last);
    assert_eq!(test.checkpoint::<Lanes>().await.unwrap(), last);
    let stored = store.consumers("test".to_owned()).await.unwrap();
    assert!(stored.iter().all(|consumer| consumer.open == 0), "{stored:?}");
    let test = test.restart().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(noted.len(), 6_000);
}

/// E5: 64 lanes and 10,000 random keys take hardly longer than 64 handlers that are never idle.
#[tokio::test(start_paused = true)]
async fn e5_random_keys_keep_all_lanes_busy() {
    let noted = Noted::default();
    let test = harness(CheckpointMode::Watermark, 64)
        .provide(Lanes(waits(Duration::from_millis(5), &noted)))
        .start()
        .await
        .unwrap();
    let began = Instant::now();
    test.given(numbered(12_800, |number| pseudo_random(number) % 10_000)).await.unwrap();
    until("all are handled", || noted.len() == 12_800).await;
    let ideal = Duration::from_millis(5) * (12_800 / 64);
    let took = began.elapsed();
    assert!(took <= ideal.mul_f64(1.0 / 0.95), "took {took:?}, ideal is {ideal:?}");
}

/// E8, B74: events that nobody handles are no barrier for those that somebody does.
#[tokio::test(start_paused = true)]
async fn e8_b74_events_without_a_handler_hold_nothing_up() {
    for capacity in [64, 8] {
        let noted = Noted::default();
        let test = harness(CheckpointMode::Watermark, capacity)
            .provide(Tasks(waits(Duration::from_millis(20), &noted)))
            .start()
            .await
            .unwrap();
        let began = Instant::now();
        for number in 0..128 {
            test.given([Numbered { key: "a".into(), number }]).await.unwrap();
            test.given([Marked { key: "a".into(), number }]).await.unwrap();
        }
        until("all are handled", || noted.len() == 128).await;
        let ideal = Duration::from_millis(20) * u32::try_from(128 / capacity).unwrap();
        let took = began.elapsed();
        assert!(took <= ideal.mul_f64(1.1), "took {took:?}, unmixed it is {ideal:?}");
        test.run_until_idle().await.unwrap();
    }
}

/// E12: a backlog is worked off without a timer: handlers that take no time leave no time to pass.
#[tokio::test(start_paused = true)]
async fn e12_nothing_sleeps_with_work_at_hand() {
    for mode in super::support::MODES {
        let noted = Noted::default();
        let test = harness(mode, 4)
            .provide(Tasks(waits(Duration::ZERO, &noted)))
            .provide(Lanes(waits(Duration::ZERO, &noted)))
            .start()
            .await
            .unwrap();
        let began = Instant::now();
        test.given(numbered(20_000, |number| number % 100)).await.unwrap();
        until("all are handled", || noted.len() == 40_000).await;
        let took = began.elapsed();
        assert!(took <= Duration::from_millis(20), "{mode:?}: {took:?} passed over a backlog");
    }
}

/// E14: one write for many events.
#[tokio::test(start_paused = true)]
async fn e14_commits_are_grouped() {
    for (mode, most) in [(CheckpointMode::Watermark, 10), (CheckpointMode::OnStart, 2 * 2_000 / 64 + 10)] {
        let (store, faults, noted) = (MemoryStore::new(), Faults::default(), Noted::default());
        let test = harness(mode, 64)
            .store(FaultyStore::describing(store.clone(), faults.clone()))
            .provide(Tasks(waits(Duration::from_millis(1), &noted)))
            .start()
            .await
            .unwrap();
        test.given(numbered(2_000, |number| number)).await.unwrap();
        until("all are handled", || noted.len() == 2_000).await;
        let writes = faults.count(Operation::Commit);
        assert!(writes <= most, "{mode:?}: {writes} writes for 2,000 events, {most} are enough");
        test.shutdown().await.unwrap();
    }
}

/// B70: while every permit is blocked reading stops, however long the log is.
#[tokio::test(start_paused = true)]
async fn b70_what_is_in_memory_is_bounded_while_handlers_block() {
    let (store, faults) = (MemoryStore::new(), Faults::default());
    let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let script = {
        let (gate, started) = (Arc::clone(&gate), Arc::clone(&started));
        Script::new(move |_| {
            let (gate, started) = (Arc::clone(&gate), Arc::clone(&started));
            async move {
                started.fetch_add(1, Ordering::Relaxed);
                let _passed = gate.acquire().await?;
                Ok(())
            }
        })
    };
    let test = harness(CheckpointMode::Watermark, 8)
        .store(FaultyStore::describing(store.clone(), faults.clone()))
        .provide(Lanes(script))
        .start()
        .await
        .unwrap();
    test.given(numbered(30_000, |number| number)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(started.load(Ordering::Relaxed), 8);
    let pages = faults.count(Operation::Read);
    assert!(pages <= 4, "{pages} pages were read with every permit blocked");
    gate.add_permits(8);
    test.run_until_idle().await.unwrap();
    assert_eq!(started.load(Ordering::Relaxed), 30_000);
}

/// 3.4: what is ready and finds no permit is counted, and what then waits long is counted apart.
#[tokio::test(start_paused = true)]
async fn events_that_find_no_permit_are_counted() {
    let noted = Noted::default();
    let test = harness(CheckpointMode::Watermark, 1)
        .provide(Tasks(waits(Duration::from_millis(600), &noted)))
        .start()
        .await
        .unwrap();
    test.given(numbered(10, |number| number)).await.unwrap();
    test.run_until_idle().await.unwrap();
    let executor = test.running().executors().into_iter().find(|executor| executor.name == "tasks").unwrap();
    assert!((1..10).contains(&executor.rejected), "{executor:?}");
    let timeouts = test.running().consumers()[0].submit_timeouts;
    assert!((6..10).contains(&timeouts), "{timeouts} waited over a second");
    assert_eq!((executor.admitted, executor.completed, executor.failed), (10, 10, 0));
}

/// B77: work at hand of which nothing comes is an error that says how the consumer stands; once.
#[tokio::test(start_paused = true)]
async fn b77_work_of_which_nothing_comes_is_told_with_how_the_consumer_stands() {
    let told = evento_tests::told::Told::listen();
    let gate = Arc::new(Semaphore::new(0));
    let script = {
        let gate = Arc::clone(&gate);
        Script::new(move |_| {
            let gate = Arc::clone(&gate);
            async move {
                gate.acquire().await?.forget();
                Ok(())
            }
        })
    };
    let test = harness(CheckpointMode::Watermark, 1).provide(Tasks(script)).start().await.unwrap();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(told.lines(&["there is work"]).len(), 0, "nothing to do is no reason");
    test.given(numbered(2, |number| number)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(told.lines(&["there is work"]).len(), 0);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let said = told.said(&["ERROR", "there is work, and nothing has started or ended"]);
    for part in ["running=\"1\"", "Engine {", "ready: 1", "busy: 1"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    gate.add_permits(2);
    test.run_until_idle().await.unwrap();
}

/// B77: a store that does not answer is told too.
#[tokio::test(start_paused = true)]
async fn b77_a_store_that_does_not_answer_is_told() {
    let told = evento_tests::told::Told::listen();
    let (store, faults) = (MemoryStore::new(), Faults::default());
    let noted = Noted::default();
    let test = harness(CheckpointMode::Watermark, 1)
        .store(FaultyStore::describing(store, faults.clone()))
        .provide(Tasks(waits(Duration::from_millis(1), &noted)))
        .start()
        .await
        .unwrap();
    test.run_until_idle().await.unwrap();
    faults.next(Operation::Read, 1, Fate::Hang);
    test.given(numbered(2, |number| number)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(90)).await;
    let said = told.said(&["ERROR", "there is work, and nothing has started or ended"]);
    assert!(said.contains("unanswered=1"), "{said}");
    drop(test);
}

/// 2.4: an inline event waits for everything before it, and everything behind it for it.
#[tokio::test(start_paused = true)]
async fn an_inline_event_is_a_barrier_both_ways() {
    for mode in super::support::MODES {
        let (noted, gauge) = (Noted::default(), Gauge::default());
        let inline_ran = Arc::new(AtomicBool::new(false));
        let script = {
            let (noted, gauge, inline_ran) = (noted.clone(), gauge.clone(), Arc::clone(&inline_ran));
            Script::new(move |call| {
                let (noted, gauge, inline_ran) = (noted.clone(), gauge.clone(), Arc::clone(&inline_ran));
                async move {
                    let _counted = gauge.enter();
                    tokio::time::sleep(Duration::from_millis(1 + (call.number as u64 * 7) % 5)).await;
                    if call.number == 12 && call.attempt < 3 {
                        anyhow::bail!("the inline event waits for retries too");
                    }
                    if call.number % 10 == 9 {
                        inline_ran.store(true, Ordering::Relaxed);
                    }
                    noted.note(&call);
                    Ok(())
                }
            })
        };
        let test = harness(mode, 8).provide(super::support::Mixed(script)).start().await.unwrap();
        for number in 0..40 {
            let key = format!("{}", number % 3);
            if number % 10 == 9 {
                test.given([Marked { key, number }]).await.unwrap();
            } else {
                test.given([Numbered { key, number }]).await.unwrap();
            }
        }
        test.run_until_idle().await.unwrap();
        let numbers = noted.numbers();
        assert_eq!(numbers.len(), 40, "{mode:?}");
        for (at, number) in numbers.iter().enumerate() {
            assert_eq!(at / 10, number / 10, "{mode:?}: {number} passed an inline event: {numbers:?}");
            assert!(number % 10 != 9 || at % 10 == 9, "{mode:?}: an inline event did not wait: {numbers:?}");
        }
        assert!(gauge.most() > 1 && inline_ran.load(Ordering::Relaxed));
    }
}
