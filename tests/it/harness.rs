//! The kit for users' own tests: what it says when something is otherwise than expected.

use std::{panic::AssertUnwindSafe, time::Duration};

use evento_runtime::testing::{Harness, TestError};
use evento_tests::probe::{Another, Followed, Forever, Happened, Probe, Thrice, happened};

fn panics(call: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(AssertUnwindSafe(call)).unwrap_err();
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "with no text".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_count_that_differs_is_reported_with_the_attempts_and_how_consumers_stand() {
    let probe = Probe::failing(|call| call.number == 1 && call.attempt == 1);
    let test = Harness::new().provide(Thrice(probe)).provide(Another(Probe::new())).start().await.unwrap();
    let text = panics(|| test.assert_handled::<Happened>(1));
    assert!(text.contains("no attempt was made; was `run_until_idle` awaited?"), "{text}");
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    test.assert_handled::<Happened>(2);
    test.assert_handled_by::<Thrice, Happened>(1);
    test.assert_handled::<Followed>(0);
    assert_eq!(test.handled_by::<Another, Happened>(), 1);
    let text = panics(|| test.assert_handled_by::<Thrice, Happened>(3));
    for part in [
        "`probe.happened` by `Thrice` was to be handled 3 times and was handled 1 times",
        "Thrice::on_happened `probe.happened` at 1 of probe/a, attempt 1: failed: told to fail",
        "Thrice::on_happened `probe.happened` at 1 of probe/a, attempt 2: handled",
        "test/projector/Another/v1/default is Running, settled to 1 of 1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_panics_or_is_cut_off_is_an_attempt_too() {
    let probe = Probe::doing(|call| async move {
        assert!(call.attempt > 1, "told to panic");
        std::future::pending().await
    });
    let harness = Harness::new().provide(Forever(probe.clone())).with(|bundle| {
        bundle.settings(evento_runtime::Settings {
            shutdown_budget: Duration::from_secs(1),
            ..evento_runtime::Settings::default()
        })
    });
    let test = harness.start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(2).await;
    assert_eq!(test.attempts()[0].error.as_deref(), Some("it panicked"));
    let error = test.restart().await.unwrap_err();
    assert!(matches!(error, TestError::Shutdown(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn idle_says_what_holds_it() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Forever(probe)).patience(Duration::from_secs(3)).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    let held = test.run_until_idle().await.unwrap_err().to_string();
    assert!(held.contains("held by event `probe.happened` at 1") && held.contains("told to fail"), "{held}");
    let missing = test.checkpoint::<Another>().await.unwrap_err().to_string();
    assert!(missing.contains("`Another`") && missing.contains(".provide("), "{missing}");
}

/// With a clock that is not paused it works just as well.
#[tokio::test]
async fn the_harness_runs_on_a_real_clock_too() {
    let probe = Probe::new();
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    test.assert_handled::<Happened>(1);
    test.shutdown().await.unwrap();
}
