//! Section 7: interceptors.

use std::sync::{Arc, Mutex};

use evento_core::BoxFuture;
use evento_runtime::{Delivery, Interceptor, Next, testing::Harness};
use evento_tests::probe::{Forever, Probe, Thrice, happened};

tokio::task_local! {
    static REQUEST: u64;
}

type Notes = Arc<Mutex<Vec<String>>>;

/// Notes when it is passed, in and out.
struct Noting(&'static str, Notes);

impl Interceptor for Noting {
    fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let Self(name, notes) = self;
            notes.lock().unwrap().push(format!("{name}+{}", delivery.context().attempt()));
            let outcome = next.run().await;
            notes.lock().unwrap().push(format!("{name}-{}", if outcome.is_ok() { "ok" } else { "failed" }));
            outcome
        })
    }
}

fn noting(harness: Harness, name: &'static str, notes: &Notes) -> Harness {
    let notes = Arc::clone(notes);
    harness.with(move |bundle| bundle.interceptor(Noting(name, Arc::clone(&notes))))
}

#[tokio::test(start_paused = true)]
async fn rule_7_1_interceptors_nest_in_order_and_each_attempt_passes_through_again() {
    let notes = Notes::default();
    let probe = Probe::failing(|call| call.attempt == 1);
    let harness = Harness::new().provide(Thrice(probe));
    let test = noting(noting(harness, "outer", &notes), "inner", &notes).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let expected = ["outer+1", "inner+1", "inner-failed", "outer-failed", "outer+2", "inner+2", "inner-ok", "outer-ok"];
    assert_eq!(*notes.lock().unwrap(), expected);
}

/// The dead-letter write comes after the interceptors have returned.
#[tokio::test(start_paused = true)]
async fn rule_7_1_a_letter_is_written_after_the_interceptors_have_returned() {
    struct Slow;
    impl Interceptor for Slow {
        fn intercept<'a>(&'a self, _: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
            Box::pin(async move {
                let outcome = next.run().await;
                tokio::time::sleep(std::time::Duration::from_secs(10)).await;
                outcome
            })
        }
    }
    let probe = Probe::failing(|_| true);
    let harness = Harness::new().provide(evento_tests::probe::Once(probe.clone()));
    let test = harness.with(|bundle| bundle.interceptor(Slow)).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    tokio::time::sleep(std::time::Duration::from_secs(9)).await;
    assert!(crate::kit::letters::<evento_tests::probe::Once>(&test).await.is_empty());
    test.run_until_idle().await.unwrap();
    assert_eq!(crate::kit::letters::<evento_tests::probe::Once>(&test).await, [1]);
}

#[tokio::test(start_paused = true)]
async fn rule_7_1_a_task_local_set_by_an_interceptor_carries_over_an_await_into_the_handler() {
    struct Scoped;
    impl Interceptor for Scoped {
        fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
            Box::pin(REQUEST.scope(delivery.context().position().minor(), next.run()))
        }
    }
    let probe = Probe::doing(|call| async move {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let request = REQUEST.try_with(|request| *request)?;
        anyhow::ensure!(request == call.position.minor(), "{request}");
        Ok(())
    });
    let harness = Harness::new().provide(Thrice(probe));
    let test = harness.with(|bundle| bundle.interceptor(Scoped)).start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    test.assert_handled::<evento_tests::probe::Happened>(3);
    assert_eq!(test.attempts().len(), 3);
}

/// What an interceptor returns is what the attempt ends with; its panic is its event's failure.
#[tokio::test(start_paused = true)]
async fn rule_7_1_an_interceptor_may_settle_an_event_without_the_handler_and_its_panic_fails_the_event() {
    struct Picky;
    impl Interceptor for Picky {
        fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
            match (delivery.context().position().minor(), delivery.context().attempt()) {
                (1, _) => Box::pin(std::future::ready(Ok(()))),
                (2, 1) => unreachable!("told to panic"),
                _ => next.run(),
            }
        }
    }
    let probe = Probe::new();
    let harness = Harness::new().provide(Forever(probe.clone()));
    let test = harness.with(|bundle| bundle.interceptor(Picky)).start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [2, 3]);
    assert_eq!(probe.calls()[0].attempt, 2);
}
