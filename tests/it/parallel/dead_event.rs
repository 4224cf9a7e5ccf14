//! Sections 5.8 to 5.11 and 6 under executors: overruns, what cannot be handled, crashes, letters, and what is parked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use evento_core::{
    CheckpointMode, FaultExt, NewEvent,
    store::{DeadReason, Target},
};
use evento_runtime::{Settings, store::MemoryStore};
use evento_tests::faulty::{Fate, Faults, FaultyStore, Operation};

use super::{
    failure::fails,
    support::{
        Lanes, LanesOnce, LanesSlowly, LanesTimed, MODES, Marked, Mixed, Noted, Numbered, Script, Tasks, TasksOnce,
        TasksSlowly, TasksTimed, harness, harness_of, numbered, until,
    },
};
use crate::kit::{at, crash, letters, retry};

/// 5.8: an attempt over its timeout is cancelled, uses up budget, and gives its permit back; its key goes on with it.
#[tokio::test(start_paused = true)]
async fn rule_5_8_an_overrun_is_cancelled_and_uses_up_budget() {
    for mode in MODES {
        let (began, noted) = (Noted::default(), Noted::default());
        let script = {
            let (began, noted) = (began.clone(), noted.clone());
            Script::new(move |call| {
                let (began, noted) = (began.clone(), noted.clone());
                async move {
                    began.note(&call);
                    if call.number == 0 {
                        std::future::pending::<()>().await;
                    }
                    noted.note(&call);
                    Ok(())
                }
            })
        };
        let test =
            harness(mode, 2).provide(TasksTimed(script.clone())).provide(LanesTimed(script)).start().await.unwrap();
        test.given(numbered(20, |number| number % 2)).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(began.numbers().iter().filter(|number| **number == 0).count(), 4, "{mode:?}: twice each");
        for dead in [test.dead_events::<TasksTimed>().await.unwrap(), test.dead_events::<LanesTimed>().await.unwrap()] {
            assert_eq!((dead.len(), dead[0].attempts, dead[0].reason), (1, 2, DeadReason::Failed), "{mode:?}");
            assert!(dead[0].cause[0].contains("2s"), "{dead:?}");
        }
        // Unordered, the others of its key are handled; in lanes they are parked.
        assert_eq!(noted.len(), 19 + 10, "{mode:?}");
        assert!(test.running().executors().iter().all(|executor| executor.in_flight == 0));
    }
}

/// 5.8: to the breaker an overrun is a dependency that is down.
#[tokio::test(start_paused = true)]
async fn rule_5_8_overruns_open_the_breaker() {
    let began = Noted::default();
    let script = {
        let began = began.clone();
        Script::new(move |call| {
            began.note(&call);
            std::future::pending()
        })
    };
    let test = harness(CheckpointMode::Watermark, 5).provide(TasksTimed(script)).start().await.unwrap();
    test.given(numbered(200, |number| number)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    assert!(
        (6..=11).contains(&began.len()),
        "{} attempts: five, those that took a place before the fifth ended, probes",
        began.len()
    );
}

/// 5.8: a blocking handler cannot be cancelled: permit and key stay held until it has really returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rule_5_8_permit_and_key_stay_held_until_the_handler_has_returned() {
    let (noted, returned) = (Noted::default(), Arc::new(AtomicBool::new(false)));
    let script = {
        let (noted, returned) = (noted.clone(), Arc::clone(&returned));
        Script::new(move |call| {
            let (noted, returned) = (noted.clone(), Arc::clone(&returned));
            async move {
                if call.number == 0 {
                    let until = std::time::Instant::now() + Duration::from_millis(2_300);
                    while std::time::Instant::now() < until {
                        std::thread::park_timeout(Duration::from_millis(50));
                    }
                    returned.store(true, Ordering::SeqCst);
                } else {
                    assert!(returned.load(Ordering::SeqCst), "its permit was given away");
                }
                noted.note(&call);
                Ok(())
            }
        })
    };
    let test = harness(CheckpointMode::Watermark, 1).provide(LanesTimed(script)).start().await.unwrap();
    test.given(numbered(5, |number| number)).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(noted.numbers(), [0, 1, 2, 3, 4]);
    test.shutdown().await.unwrap();
}

/// 5.9: what does not decode and what is too large is dead once, and holds up nobody.
#[tokio::test(start_paused = true)]
async fn rule_5_9_what_cannot_be_decoded_or_is_too_large_is_dead_once_under_executors() {
    for mode in MODES {
        let noted = Noted::default();
        let settings = Settings { payload_limit: 100, ..Settings::default() };
        let test = harness_of(mode, 2, settings)
            .provide(Tasks(fails(&noted, |_| false)))
            .provide(Lanes(fails(&noted, |_| false)))
            .start()
            .await
            .unwrap();
        let of = |number: usize, payload: &str| {
            let event = NewEvent::of(&Numbered { key: format!("{number}"), number }).unwrap();
            NewEvent { payload: payload.as_bytes().to_vec(), ..event }
        };
        test.given([of(1, r#"{"key": 1}"#), of(2, &" ".repeat(200))]).await.unwrap();
        test.given(numbered(10, |number| number)).await.unwrap();
        test.run_until_idle().await.unwrap();
        let test = test.restart().await.unwrap();
        test.run_until_idle().await.unwrap();
        for dead in [test.dead_events::<Tasks>().await.unwrap(), test.dead_events::<Lanes>().await.unwrap()] {
            let reasons: Vec<_> = dead.iter().map(|it| (it.position, it.reason, it.attempts)).collect();
            let expected = [(at(1), DeadReason::Undecodable, 1), (at(2), DeadReason::TooLarge, 1)];
            assert_eq!(reasons, expected, "{mode:?}");
        }
        assert_eq!(noted.len(), 20, "{mode:?}");
    }
}

/// 5.10: an attempt that failed and will be made again is known after a crash, in either mode.
#[tokio::test(start_paused = true)]
async fn rule_5_10_a_failed_attempt_is_counted_and_made_again_after_a_crash() {
    for mode in MODES {
        for in_lanes in [false, true] {
            let (store, faults, noted) = (MemoryStore::new(), Faults::default(), Noted::default());
            let start = async |script: Script| {
                let harness = harness(mode, 2).store(FaultyStore::describing(store.clone(), faults.clone()));
                let harness =
                    if in_lanes { harness.provide(LanesSlowly(script)) } else { harness.provide(TasksSlowly(script)) };
                harness.start().await.unwrap()
            };
            let test = start(fails(&noted, |call| call.number == 1)).await;
            test.given(numbered(3, |number| number)).await.unwrap();
            until("the others are handled", || noted.len() == 2).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            crash(test, &faults);
            faults.mend();
            let test = start(fails(&noted, |_| false)).await;
            test.run_until_idle().await.unwrap();
            let last = noted.all().pop().unwrap();
            assert_eq!((last.number, last.attempt, noted.len()), (1, 2, 3), "{mode:?}, lanes {in_lanes}");
        }
    }
}

/// 5.11: an event that kills its process is handed over alone from the second crash on and dead at the third; the others
/// are handled, and under on-start no attempt is made twice but by crashes that are counted.
#[tokio::test(start_paused = true)]
async fn rule_5_11_an_event_that_kills_the_process_runs_alone_and_is_dead_at_the_third_crash() {
    let (store, noted, began) = (MemoryStore::new(), Noted::default(), Noted::default());
    let script = {
        let (noted, began) = (noted.clone(), began.clone());
        Script::new(move |call| {
            let (noted, began) = (noted.clone(), began.clone());
            async move {
                began.note(&call);
                if call.number == 2 {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
                noted.note(&call);
                Ok(())
            }
        })
    };
    let killing = |began: &Noted| began.numbers().iter().filter(|number| **number == 2).count();
    for life in 0..10 {
        let faults = Faults::default();
        let test = harness(CheckpointMode::Watermark, 4)
            .store(FaultyStore::describing(store.clone(), faults.clone()))
            .provide(Tasks(script.clone()))
            .start()
            .await
            .unwrap();
        if life == 0 {
            test.given(numbered(8, |number| number)).await.unwrap();
        }
        let (deaths, before) = (killing(&began), began.len());
        if life == 4 {
            test.run_until_idle().await.unwrap();
            let dead = test.dead_events::<Tasks>().await.unwrap();
            assert_eq!((dead.len(), dead[0].reason, dead[0].position), (1, DeadReason::KilledTheProcess, at(3)));
            let mut handled = noted.numbers();
            handled.sort_unstable();
            handled.dedup();
            assert_eq!(handled, [0, 1, 3, 4, 5, 6, 7]);
            return;
        }
        until("it is handed over", || killing(&began) > deaths).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        if life == 3 {
            let beside = began.len() - before - 1;
            let after = began.numbers()[before..].iter().position(|number| *number == 2).unwrap();
            assert_eq!(beside, after, "something ran beside it: {:?}", &began.numbers()[before..]);
        }
        crash(test, &faults);
    }
    unreachable!("it is handed over for ever");
}

/// 6.2: while the letter cannot be written the event is unsettled, and what is parked behind it stays behind it.
#[tokio::test(start_paused = true)]
async fn rule_6_2_e4_a_letter_that_cannot_be_written_is_not_dropped_under_executors() {
    for mode in MODES {
        let (faults, noted) = (Faults::default(), Noted::default());
        let script = {
            let (noted, faults) = (noted.clone(), faults.clone());
            Script::new(move |call| {
                let (noted, faults) = (noted.clone(), faults.clone());
                async move {
                    if call.number == 0 {
                        faults.always(Operation::Commit, Fate::Fail);
                        anyhow::bail!("told to fail");
                    }
                    noted.note(&call);
                    Ok(())
                }
            })
        };
        let test = harness(mode, 2)
            .store(FaultyStore::describing(MemoryStore::new(), faults.clone()))
            .provide(LanesOnce(script))
            .start()
            .await
            .unwrap();
        test.given(numbered(6, |number| number % 2)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        let status = test.running().consumers().remove(0);
        assert!(status.settled_to < at(1) && status.trouble.is_some(), "{mode:?}: {status:?}");
        assert!(!noted.by_key().contains_key("key-0"), "{mode:?}: something passed it");
        faults.mend();
        test.run_until_idle().await.unwrap();
        assert_eq!(letters::<LanesOnce>(&test).await, [1], "{mode:?}");
        assert_eq!(noted.numbers(), [1, 3, 5], "{mode:?}");
    }
}

/// 6.3: across a component's inline and partitioned handlers, whichever dies.
#[tokio::test(start_paused = true)]
async fn rule_6_3_parking_goes_across_inline_and_partitioned_handlers() {
    for mode in MODES {
        for inline_dies in [false, true] {
            let (noted, mended) = (Noted::default(), Arc::new(AtomicBool::new(false)));
            let script = {
                let (noted, mended) = (noted.clone(), Arc::clone(&mended));
                Script::new(move |call| {
                    let (noted, mended) = (noted.clone(), Arc::clone(&mended));
                    async move {
                        if call.number == 0 && !mended.load(Ordering::Relaxed) {
                            Err(anyhow::anyhow!("for good")).permanent()?;
                        }
                        noted.note(&call);
                        Ok(())
                    }
                })
            };
            let test = harness(mode, 4).provide(Mixed(script)).start().await.unwrap();
            for (number, key) in ["a", "a", "b", "a", "b", "a"].into_iter().enumerate() {
                if (number % 2 == 0) == inline_dies {
                    test.given([Marked { key: key.into(), number }]).await.unwrap();
                } else {
                    test.given([Numbered { key: key.into(), number }]).await.unwrap();
                }
            }
            test.run_until_idle().await.unwrap();
            assert_eq!(noted.numbers(), [2, 4], "{mode:?}, inline {inline_dies}");
            mended.store(true, Ordering::Relaxed);
            assert_eq!(retry::<Mixed>(&test, Target::Consumer).await, (1, 0));
            test.run_until_idle().await.unwrap();
            assert_eq!(noted.by_key()["a"], [0, 1, 3, 5], "{mode:?}, inline {inline_dies}");
        }
    }
}

/// 6.3, 6.4: an unordered executor parks nothing; what is dead is handled again under the executor, in an attempt that
/// interceptors see, with a fresh budget; discarded it is gone.
#[tokio::test(start_paused = true)]
async fn rule_6_4_unordered_dead_events_are_retried_with_a_fresh_budget_and_discarded_alone() {
    for mode in MODES {
        let (noted, mended) = (Noted::default(), Arc::new(AtomicBool::new(false)));
        let script = {
            let mended = Arc::clone(&mended);
            fails(&noted, move |call| call.number < 2 && !mended.load(Ordering::Relaxed))
        };
        let test = harness(mode, 2).provide(Tasks(script)).start().await.unwrap();
        test.given(numbered(10, |_| 0)).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.len(), 8, "{mode:?}: something was parked");
        let dead = test.dead_events::<Tasks>().await.unwrap();
        assert!(dead.iter().all(|it| it.attempts == 4 && !it.parks), "{mode:?}: {dead:?}");

        let (seen, admitted) = (test.attempts().len(), test.running().executors()[0].admitted);
        assert_eq!(retry::<Tasks>(&test, Target::Event(at(1))).await, (0, 1), "{mode:?}");
        assert_eq!(test.attempts().len() - seen, 4, "{mode:?}: a fresh budget, through the interceptors");
        let tasks = test.running().executors().into_iter().find(|executor| executor.name == "tasks").unwrap();
        assert!(tasks.admitted >= admitted + 4, "{mode:?}: not under its executor: {tasks:?}");
        mended.store(true, Ordering::Relaxed);
        assert_eq!(retry::<Tasks>(&test, Target::Event(at(1))).await, (1, 0), "{mode:?}");
        let queue = test.running().dead_events::<Tasks>().unwrap();
        queue.discard(Target::Consumer).await.unwrap().wait().await.unwrap();
        assert_eq!((queue.depth().await.unwrap(), noted.len()), (0, 9), "{mode:?}");
    }
}

/// 6.4: discarding what is dead releases what is parked behind it in a lane, in order.
#[tokio::test(start_paused = true)]
async fn rule_6_4_discarding_releases_what_is_parked_in_a_lane() {
    for mode in MODES {
        let noted = Noted::default();
        let test = harness(mode, 2).provide(LanesOnce(fails(&noted, |call| call.number == 0))).start().await.unwrap();
        test.given(numbered(20, |number| number % 2)).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.len(), 10, "{mode:?}");
        let queue = test.running().dead_events::<LanesOnce>().unwrap();
        queue.discard(Target::Event(at(1))).await.unwrap().wait().await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.by_key()["key-0"], (2..20).step_by(2).collect::<Vec<_>>(), "{mode:?}");
    }
}

/// 5.3: no `retry` is one attempt, then the dead event queue; the others of its aggregate go on where no order is promised.
#[tokio::test(start_paused = true)]
async fn rule_5_3_without_retry_there_is_one_attempt_under_an_executor() {
    for mode in MODES {
        let noted = Noted::default();
        let test = harness(mode, 2).provide(TasksOnce(fails(&noted, |call| call.number == 3))).start().await.unwrap();
        test.given(numbered(10, |_| 0)).await.unwrap();
        test.run_until_idle().await.unwrap();
        let dead = test.dead_events::<TasksOnce>().await.unwrap();
        assert_eq!((dead.len(), dead[0].attempts, noted.len()), (1, 1, 9), "{mode:?}");
    }
}
