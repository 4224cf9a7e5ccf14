//! Shutdowns with parallel work, and interceptors around parallel attempts.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use evento_core::{BoxFuture, CheckpointMode, store::DeadReason};
use evento_runtime::{Delivery, Interceptor, Next, Settings, testing::Harness};
use tokio::time::Instant;

use super::support::{Lanes, LanesOnce, MODES, Noted, Pool, Script, Tasks, harness, harness_of, numbered, until};

/// A handler that takes so long and notes that it is done.
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

fn of_budget(mode: CheckpointMode, capacity: usize, shutdown_budget: Duration) -> Harness {
    harness_of(mode, capacity, Settings { shutdown_budget, ..Settings::default() })
}

/// B98, 10.3: a shutdown lets what runs finish and starts nothing more; the next start loses and repeats nothing.
#[tokio::test(start_paused = true)]
async fn b98_a_shutdown_finishes_what_runs_and_starts_nothing_more() {
    for mode in MODES {
        let (started, noted) = (Arc::new(AtomicUsize::new(0)), Noted::default());
        let script = takes(Duration::from_millis(500), &started, &noted);
        let test = harness(mode, 8).provide(Tasks(script.clone())).provide(Lanes(script)).start().await.unwrap();
        test.given(numbered(100, |number| number % 20)).await.unwrap();
        until("all permits are used", || started.load(Ordering::Relaxed) == 16).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Handlers of one run follow each other under one permit; a start after the stop would be a ninth.
        let test = test.restart().await.unwrap();
        let at_restart = noted.len();
        assert_eq!(at_restart, started.load(Ordering::Relaxed), "{mode:?}: something was cut off");
        assert!(at_restart < 100, "{mode:?}: the backlog was worked off: {at_restart}");
        test.run_until_idle().await.unwrap();
        assert_eq!((noted.len(), started.load(Ordering::Relaxed)), (200, 200), "{mode:?}");
        let drained = test.shutdown().await.unwrap();
        assert!(drained.is_clean());
    }
}

/// E15, B99: one budget for everything, after which what never returns is cut off and listed.
#[tokio::test(start_paused = true)]
async fn e15_b99_one_budget_covers_every_consumer_and_what_is_left_is_listed() {
    for mode in MODES {
        let (started, noted) = (Arc::new(AtomicUsize::new(0)), Noted::default());
        let script = takes(Duration::from_secs(1_000_000), &started, &noted);
        let test = of_budget(mode, 4, Duration::from_secs(5))
            .provide(Tasks(script.clone()))
            .provide(Lanes(script))
            .start()
            .await
            .unwrap();
        test.given(numbered(100, |number| number)).await.unwrap();
        until("all permits are used", || started.load(Ordering::Relaxed) == 8).await;
        let began = Instant::now();
        let error = test.shutdown().await.expect_err("handlers never return");
        assert!(began.elapsed() <= Duration::from_millis(5_200), "{mode:?}: took {:?}", began.elapsed());
        for consumer in &error.drained.consumers {
            assert_eq!((consumer.left.len(), consumer.released), (4, true), "{mode:?}: {consumer:?}");
        }
        assert_eq!(started.load(Ordering::Relaxed), 8, "{mode:?}");
    }
}

/// 10.2: cut off, an event is dead where its checkpoint has passed it, and delivered again where not.
#[tokio::test(start_paused = true)]
async fn what_a_shutdown_cuts_off_is_dead_on_start_and_delivered_again_under_watermark() {
    for mode in MODES {
        let store = evento_runtime::store::MemoryStore::new();
        let (started, noted) = (Arc::new(AtomicUsize::new(0)), Noted::default());
        let script = takes(Duration::from_secs(1_000_000), &started, &noted);
        let test = of_budget(mode, 4, Duration::from_secs(2))
            .store(store.clone())
            .provide(LanesOnce(script))
            .start()
            .await
            .unwrap();
        test.given(numbered(20, |number| number % 10)).await.unwrap();
        until("all permits are used", || started.load(Ordering::Relaxed) == 4).await;
        test.shutdown().await.expect_err("handlers never return");

        let again = Noted::default();
        let script = takes(Duration::from_millis(1), &started, &again);
        let test = harness(mode, 4).store(store).provide(LanesOnce(script)).start().await.unwrap();
        test.run_until_idle().await.unwrap();
        let dead = test.dead_events::<LanesOnce>().await.unwrap();
        if mode == CheckpointMode::OnStart {
            assert_eq!(dead.len(), 4);
            assert!(dead.iter().all(|it| it.reason == DeadReason::AbandonedAtShutdown && !it.parks), "{dead:?}");
            assert_eq!(again.len(), 16, "what is behind them goes on");
        } else {
            assert!(dead.is_empty(), "{dead:?}");
            assert_eq!(again.len(), 20);
        }
    }
}

tokio::task_local! {
    static AROUND: String;
}

/// Says so before and after, and sets a task-local in between.
struct Nested(&'static str, Arc<Mutex<Vec<String>>>);

impl Interceptor for Nested {
    fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let attempt = delivery.context().attempt();
            self.1.lock().unwrap().push(format!("{} before {attempt}", self.0));
            let around = AROUND.try_with(|outer| format!("{outer} {}", self.0)).unwrap_or_else(|_| self.0.to_owned());
            let outcome = AROUND.scope(around, next.run()).await;
            let word = if outcome.is_ok() { "ok" } else { "failed" };
            self.1.lock().unwrap().push(format!("{} after {attempt} {word}", self.0));
            outcome
        })
    }
}

/// 7.1: interceptors nest around each parallel attempt, in its own task, on every executor.
#[tokio::test]
async fn interceptors_nest_around_each_parallel_attempt_in_its_own_task() {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let script = |said: &Arc<Mutex<Vec<String>>>| {
        let said = Arc::clone(said);
        Script::new(move |call| {
            let said = Arc::clone(&said);
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                said.lock().unwrap().push(format!("handler {} in {}", call.attempt, AROUND.with(String::clone)));
                anyhow::ensure!(call.attempt > 1, "fails the first time");
                Ok(())
            }
        })
    };
    let around = [
        "outer before 1",
        "inner before 1",
        "handler 1 in outer inner",
        "inner after 1 failed",
        "outer after 1 failed",
        "outer before 2",
        "inner before 2",
        "handler 2 in outer inner",
        "inner after 2 ok",
        "outer after 2 ok",
    ];
    for executor in 0..3 {
        said.lock().unwrap().clear();
        let nested = Arc::clone(&said);
        let harness = harness(CheckpointMode::Watermark, 2).with(move |bundle| {
            bundle.interceptor(Nested("outer", Arc::clone(&nested))).interceptor(Nested("inner", Arc::clone(&nested)))
        });
        let harness = match executor {
            0 => harness.provide(Tasks(script(&said))),
            1 => harness.provide(Lanes(script(&said))),
            _ => harness.provide(Pool(script(&said))),
        };
        let test = harness.start().await.unwrap();
        test.given(numbered(1, |number| number)).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(*said.lock().unwrap(), around);
        test.shutdown().await.unwrap();
    }
}

/// Section 7: a dead event is written after its interceptors have returned.
#[tokio::test(start_paused = true)]
async fn a_letter_is_written_after_the_interceptors_have_returned() {
    struct Slow(Arc<AtomicBool>);

    impl Interceptor for Slow {
        fn intercept<'a>(&'a self, _: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
            Box::pin(async move {
                let outcome = next.run().await;
                tokio::time::sleep(Duration::from_secs(5)).await;
                self.0.store(true, Ordering::Relaxed);
                outcome
            })
        }
    }

    let returned = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&returned);
    let test = harness(CheckpointMode::OnStart, 2)
        .with(move |bundle| bundle.interceptor(Slow(Arc::clone(&slow))))
        .provide(LanesOnce(Script::new(|_| async { anyhow::bail!("always") })))
        .start()
        .await
        .unwrap();
    test.given(numbered(1, |number| number)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(test.dead_events::<LanesOnce>().await.unwrap().is_empty());
    assert!(!returned.load(Ordering::Relaxed));
    test.run_until_idle().await.unwrap();
    assert_eq!(test.dead_events::<LanesOnce>().await.unwrap().len(), 1);
}
