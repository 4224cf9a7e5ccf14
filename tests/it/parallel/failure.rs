//! Failures under executors: what they cost, and whom.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use evento_core::{
    CheckpointMode, FaultExt,
    store::{CheckpointStore, DeadReason},
};
use evento_runtime::{ConsumerState, store::MemoryStore, testing::TestBundle};
use evento_tests::faulty::{Fate, Faults, FaultyStore, Operation};
use tokio::{sync::Semaphore, time::Instant};

use super::support::{
    Call, Lanes, LanesSlowly, MODES, Noted, Script, Tasks, TasksRedelivering, TasksSlowly, harness, numbered, until,
};

/// A handler that fails where it is told to, and notes its successes.
pub(super) fn fails(noted: &Noted, fails: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Script {
    let (noted, fails) = (noted.clone(), Arc::new(fails));
    Script::new(move |call| {
        let (noted, fails) = (noted.clone(), Arc::clone(&fails));
        async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            anyhow::ensure!(!fails(&call), "told to fail");
            noted.note(&call);
            Ok(())
        }
    })
}

/// A dependency that can be down, and the attempts there were.
#[derive(Clone, Default)]
struct Dependency(Arc<(AtomicBool, AtomicUsize)>);

impl Dependency {
    fn down() -> Self {
        let dependency = Self::default();
        dependency.0.0.store(true, Ordering::Relaxed);
        dependency
    }

    fn mend(&self) {
        self.0.0.store(false, Ordering::Relaxed);
    }

    fn attempts(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }

    fn script(&self) -> Script {
        let Self(state) = self.clone();
        Script::new(move |_| {
            let state = Arc::clone(&state);
            async move {
                state.1.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                let answer = if state.0.load(Ordering::Relaxed) { Err(anyhow::anyhow!("it is down")) } else { Ok(()) };
                answer.transient()
            }
        })
    }
}

/// E6: an event that fails while its consumer is paused is tried again, and never counts as done.
#[tokio::test(start_paused = true)]
async fn e6_an_event_that_fails_while_its_consumer_is_paused_is_tried_again() {
    for mode in MODES {
        let (noted, gate, started) = (Noted::default(), Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
        let script = {
            let (noted, gate, started) = (noted.clone(), Arc::clone(&gate), Arc::clone(&started));
            Script::new(move |call| {
                let (noted, gate, started) = (noted.clone(), Arc::clone(&gate), Arc::clone(&started));
                async move {
                    started.fetch_add(1, Ordering::Relaxed);
                    if call.attempt == 1 {
                        gate.acquire().await?.forget();
                        anyhow::bail!("fails while paused");
                    }
                    noted.note(&call);
                    Ok(())
                }
            })
        };
        let test = harness(mode, 4).provide(Tasks(script)).start().await.unwrap();
        let position = test.given(numbered(1, |number| number)).await.unwrap();
        until("it runs", || started.load(Ordering::Relaxed) == 1).await;
        test.running().pause::<Tasks>().await.unwrap();
        gate.add_permits(1);
        tokio::time::sleep(Duration::from_secs(5)).await;
        let status = test.running().consumers().remove(0);
        assert_eq!((status.state, status.failed_attempts), (ConsumerState::Paused, 1), "{mode:?}");
        assert!(status.settled_to < position, "{mode:?}: it counts as settled: {status:?}");
        assert_eq!(started.load(Ordering::Relaxed), 1, "tried again while paused");
        test.running().resume::<Tasks>().await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.all().iter().map(|call| call.attempt).collect::<Vec<_>>(), [2], "{mode:?}");
        assert!(test.dead_events::<Tasks>().await.unwrap().is_empty());
    }
}

/// E9: with a dependency down hardly anything is tried; once it is up all is handled, and nothing is dead.
#[tokio::test(start_paused = true)]
async fn e9_a_dependency_that_is_down_meets_few_attempts_and_costs_no_event() {
    async fn meets_few(test: TestBundle, dependency: Dependency) {
        test.given(numbered(1_000, |number| number)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let attempts = dependency.attempts();
        assert!((5..=72).contains(&attempts), "{attempts} attempts in the first second");
        tokio::time::sleep(Duration::from_secs(60)).await;
        dependency.mend();
        test.run_until_idle().await.unwrap();
        assert_eq!(test.running().consumers()[0].handled, 1_000);
        assert_eq!(test.running().consumers()[0].dead, 0);
    }
    let mode = CheckpointMode::Watermark;
    let dependency = Dependency::down();
    meets_few(harness(mode, 64).provide(Tasks(dependency.script())).start().await.unwrap(), dependency).await;
    let dependency = Dependency::down();
    meets_few(harness(mode, 64).provide(Lanes(dependency.script())).start().await.unwrap(), dependency).await;
}

/// E10: a transient failure costs no budget under watermark, its budget on-start, and none there either where the
/// component says `transient = "redeliver"`.
#[tokio::test(start_paused = true)]
async fn e10_what_is_marked_transient_is_dead_on_start_alone_and_only_after_its_budget() {
    for mode in MODES {
        let (spending, redelivering) = (Dependency::down(), Dependency::down());
        let test = harness(mode, 4)
            .provide(Tasks(spending.script()))
            .provide(TasksRedelivering(redelivering.script()))
            .start()
            .await
            .unwrap();
        test.given(numbered(1, |number| number)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(300)).await;
        if mode == CheckpointMode::OnStart {
            let dead = test.dead_events::<Tasks>().await.unwrap();
            assert_eq!((dead.len(), dead[0].attempts, dead[0].reason), (1, 4, DeadReason::Failed));
            assert_eq!(spending.attempts(), 4);
        } else {
            assert!(spending.attempts() > 4, "{} attempts", spending.attempts());
        }
        assert!(redelivering.attempts() > 4, "{mode:?}: {} attempts", redelivering.attempts());
        spending.mend();
        redelivering.mend();
        test.run_until_idle().await.unwrap();
        let dead = test.dead_events::<Tasks>().await.unwrap().len();
        assert_eq!(dead, usize::from(mode == CheckpointMode::OnStart));
        assert!(test.dead_events::<TasksRedelivering>().await.unwrap().is_empty(), "{mode:?}");
    }
}

/// B24: what ran under a claim that was lost is handled again under the next, and everything completes.
#[tokio::test(start_paused = true)]
async fn b24_what_a_lost_claim_left_is_handled_under_the_next_one() {
    let (store, faults, noted) = (MemoryStore::new(), Faults::default(), Noted::default());
    let started = Arc::new(AtomicUsize::new(0));
    let script = {
        let (noted, started) = (noted.clone(), Arc::clone(&started));
        Script::new(move |call| {
            let (noted, started) = (noted.clone(), Arc::clone(&started));
            async move {
                // The first ones outlive their claim.
                if started.fetch_add(1, Ordering::Relaxed) < 4 {
                    tokio::time::sleep(Duration::from_secs(3_600)).await;
                }
                noted.note(&call);
                Ok(())
            }
        })
    };
    let test = harness(CheckpointMode::Watermark, 4)
        .store(FaultyStore::describing(store.clone(), faults.clone()))
        .provide(Lanes(script))
        .start()
        .await
        .unwrap();
    let last = test.given(numbered(40, |number| number % 10)).await.unwrap();
    until("they run", || started.load(Ordering::Relaxed) == 4).await;
    faults.always(Operation::Renew, Fate::Fail);
    tokio::time::sleep(Duration::from_secs(15)).await;
    faults.mend();
    test.run_until_idle().await.unwrap();
    let mut numbers = noted.numbers();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..40).collect::<Vec<_>>());
    assert_eq!(test.checkpoint::<Lanes>().await.unwrap(), last);
}

/// B39: a handler that panics for good never lets the checkpoint pass its event; after a restart it is there.
#[tokio::test(start_paused = true)]
async fn b39_what_always_panics_is_never_passed() {
    let (store, noted, mended) = (MemoryStore::new(), Noted::default(), Arc::new(AtomicBool::new(false)));
    let script = {
        let (noted, mended) = (noted.clone(), Arc::clone(&mended));
        Script::new(move |call| {
            let (noted, mended) = (noted.clone(), Arc::clone(&mended));
            async move {
                assert!(call.number != 40 || mended.load(Ordering::Relaxed), "panics for good");
                noted.note(&call);
                Ok(())
            }
        })
    };
    let test =
        harness(CheckpointMode::Watermark, 5).store(store.clone()).provide(TasksSlowly(script)).start().await.unwrap();
    let last = test.given(numbered(150, |number| number)).await.unwrap();
    until("all others are handled", || noted.len() == 149).await;
    tokio::time::sleep(Duration::from_secs(100)).await;
    let status = test.running().consumers().remove(0);
    let failing = status.failing.expect("it is shown");
    assert!(status.settled_to < failing.position && failing.attempts > 1, "{failing:?}");
    let test = test.restart().await.unwrap();
    let stored = store.consumers("test".to_owned()).await.unwrap();
    assert_eq!((stored[0].frontier, stored[0].open), (last, 1));
    mended.store(true, Ordering::Relaxed);
    test.run_until_idle().await.unwrap();
    assert_eq!(noted.numbers().iter().filter(|number| **number == 40).count(), 1);
    assert_eq!(noted.len(), 150);
}

/// B67: after panics every permit is there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b67_panics_leave_every_permit_behind() {
    for mode in MODES {
        let noted = Noted::default();
        let script = {
            let noted = noted.clone();
            Script::new(move |call| {
                let noted = noted.clone();
                async move {
                    assert!(call.attempt > 1, "panics the first time");
                    noted.note(&call);
                    Ok(())
                }
            })
        };
        let test = harness(mode, 3).provide(Tasks(script.clone())).provide(Lanes(script)).start().await.unwrap();
        test.given(numbered(12, |number| number % 4)).await.unwrap();
        test.run_until_idle().await.unwrap();
        for executor in test.running().executors().iter().filter(|executor| executor.admitted > 0) {
            assert_eq!((executor.in_flight, executor.completed, executor.failed), (0, 12, 12), "{executor:?}");
        }
        assert_eq!(noted.len(), 24);
        test.shutdown().await.unwrap();
    }
}

/// B69, B81: a fifth of the events always fail; the others are all handled, long before those are tried again.
#[tokio::test(start_paused = true)]
async fn b69_b81_events_that_always_fail_do_not_stop_the_others() {
    for mode in MODES {
        for in_lanes in [false, true] {
            let noted = Noted::default();
            let script = fails(&noted, |call| call.number.is_multiple_of(5));
            let harness = harness(mode, 8);
            let harness =
                if in_lanes { harness.provide(LanesSlowly(script)) } else { harness.provide(TasksSlowly(script)) };
            let test = harness.start().await.unwrap();
            let began = Instant::now();
            test.given(numbered(10_000, |number| number % 5_000)).await.unwrap();
            until("all others are handled", || noted.len() >= 8_000).await;
            let took = began.elapsed();
            assert!(took < Duration::from_secs(20), "{mode:?}, lanes {in_lanes}: the others took {took:?}");
            let status = test.running().consumers().remove(0);
            assert_eq!((status.handled, status.dead), (8_000, 0));
            assert_eq!(status.state, ConsumerState::Failing);
        }
    }
}

/// B82: a failure costs its own key the declared delay, and nobody else anything.
#[tokio::test(start_paused = true)]
async fn b82_a_failure_costs_its_own_key_its_delay_and_no_more() {
    let noted = Noted::default();
    let script = fails(&noted, |call| call.attempt == 1 && call.number.is_multiple_of(20));
    let test = harness(CheckpointMode::Watermark, 8).provide(Lanes(script)).start().await.unwrap();
    let began = Instant::now();
    test.given(numbered(2_000, |number| number % 100)).await.unwrap();
    until("all are handled", || noted.len() == 2_000).await;
    // 2,000 attempts and 100 more of 1 ms; 20 events of each key, all of which fail once where their number says so.
    let ideal = Duration::from_millis(2_100 / 8);
    let longest_key = Duration::from_millis(20 + 20 * 13);
    let took = began.elapsed();
    assert!(took <= ideal + longest_key, "took {took:?}");
}
