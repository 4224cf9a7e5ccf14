//! Section 5: failure, retry, backoff.

use std::{io, time::Duration};

use evento_core::{Aggregate, FaultExt, NewEvent, store::DeadReason};
use evento_runtime::{ConsumerState, store::MemoryStore, testing::Harness};
use evento_tests::{
    faulty::{Fate, Faults, Operation},
    probe::{Forever, Happened, Once, Probe, Thrice, Timed, happened, ignored},
};
use tokio::time::Instant;

use crate::kit::{at, behind, crash, faulty, letters, set};

/// Rule 5.1: `retry = 3` is four attempts, and the number is told.
#[tokio::test(start_paused = true)]
async fn r39_retry_3_is_exactly_four_attempts_told_to_the_handler_and_in_the_letter() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Thrice(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let attempts: Vec<_> = probe.calls().iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    let dead = test.dead_events::<Thrice>().await.unwrap();
    assert_eq!((dead.len(), dead[0].attempts, dead[0].reason), (1, 4, DeadReason::Failed));
    assert_eq!(dead[0].cause, ["told to fail"]);
    assert!(dead[0].last_failed_at.0 - dead[0].first_failed_at.0 >= 5_000_000, "{dead:?}");
}

/// Rule 5.1: the delay grows × 2 with ± 20 % jitter.
#[tokio::test(start_paused = true)]
async fn r40_b84_retry_0_is_one_attempt_and_delays_between_attempts_grow() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1]);

    let times = Probe::failing(|_| true);
    let test = Harness::new().provide(Thrice(times.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    let mut began = Vec::new();
    for calls in 1..=4 {
        times.began(calls).await;
        began.push(Instant::now());
    }
    for (gap, bare) in began.windows(2).zip([1.0, 2.0, 4.0]) {
        let gap = (gap[1] - gap[0]).as_secs_f64();
        assert!(gap >= bare * 0.79 && gap <= bare * 1.21, "{gap} s where {bare} s was due");
    }
}

/// Rule 5.2.
#[tokio::test(start_paused = true)]
async fn e13_b84_inline_without_retry_is_for_ever_with_a_capped_delay_and_no_busy_loop() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("b", 2)]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    let calls = probe.calls().len();
    assert!((100..=150).contains(&calls), "{calls} attempts in an hour");
    assert!(probe.numbers().iter().all(|number| *number == 1), "nothing passes it");
    assert!(letters::<Forever>(&test).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn e16_a_consumer_is_failing_until_the_failing_event_settles_whatever_is_written_meanwhile() {
    let (harness, faults) = faulty();
    let probe = Probe::failing(|call| call.number == 3);
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("b", 2), happened("c", 3)]).await.unwrap();
    probe.began(3).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let status = &test.running().consumers()[0];
        assert_eq!(status.state, ConsumerState::Failing);
        let failing = status.failing.as_ref().unwrap();
        assert_eq!((failing.position, &*failing.aggregate), (at(3), "probe/c"));
        assert!(failing.attempts > 0 && failing.cause == ["told to fail"]);
    }
    assert!(faults.count(Operation::Commit) > 3);
    let held = test.running().wait_until_caught_up(Duration::from_secs(1)).await.unwrap_err().to_string();
    assert!(held.contains("`probe.happened` at 3") && held.contains("told to fail"), "{held}");
    probe.recovers();
    test.run_until_idle().await.unwrap();
    assert_eq!(test.running().consumers()[0].state, ConsumerState::Running);
}

/// Rules 5.4 and 5.5: a transient failure uses up no budget; a permanent one goes straight to the queue.
#[tokio::test(start_paused = true)]
async fn rule_5_5_transient_failures_use_up_no_budget_and_permanent_ones_all_of_it() {
    let probe = Probe::doing(|call| async move {
        match (call.number, call.attempt) {
            (1, 1..=10) => Err(io::Error::from(io::ErrorKind::ConnectionRefused)).transient()?,
            (2, 1..=10) => Err(io::Error::from(io::ErrorKind::TimedOut))?,
            (3, _) => Err(anyhow::anyhow!("no such order")).permanent()?,
            _ => {}
        }
        Ok(())
    });
    let test = Harness::new().provide(Once(probe.clone())).patience(Duration::from_secs(3_600)).start().await.unwrap();
    test.given([happened("a", 1), happened("b", 2), happened("c", 3)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let of = |number| probe.calls().iter().filter(|call| call.number == number).count();
    assert_eq!([of(1), of(2), of(3)], [11, 11, 1]);
    assert_eq!(letters::<Once>(&test).await, [3]);
}

/// Rule 5.4: budget is used up by ordinary failures alone, in whatever order they come.
#[tokio::test(start_paused = true)]
async fn rule_5_4_ordinary_failures_among_transient_ones_are_counted_apart() {
    let probe = Probe::doing(|call| async move {
        let failed: anyhow::Result<()> = Err(anyhow::anyhow!("failed"));
        if call.attempt % 2 == 0 { failed.transient() } else { failed }
    });
    let test = Harness::new().provide(Thrice(probe.clone())).patience(Duration::from_secs(600)).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.calls().len(), 7, "four ordinary, three transient");
    assert_eq!(test.dead_events::<Thrice>().await.unwrap()[0].attempts, 7);
}

/// Rule 5.7.
#[tokio::test(start_paused = true)]
async fn rule_5_7_a_panic_is_an_ordinary_failure_of_its_event() {
    let probe = Probe::doing(|call| async move {
        assert!(call.number != 2, "number {} is unlucky", call.number);
        Ok(())
    });
    let test = Harness::new().provide(Thrice(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("b", 2), happened("c", 3)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 2, 2, 2, 3]);
    let dead = test.dead_events::<Thrice>().await.unwrap();
    assert_eq!(dead[0].cause, ["the handler panicked", "number 2 is unlucky"]);
}

/// Rule 5.8.
#[tokio::test(start_paused = true)]
async fn rule_5_8_a_handler_over_its_timeout_is_cancelled_and_uses_up_budget() {
    let probe = Probe::doing(|call| async move {
        if call.number == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let test = Harness::new().provide(Timed(probe.clone())).start().await.unwrap();
    let began = Instant::now();
    test.given([happened("a", 1), happened("b", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 1, 2]);
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    let dead = test.dead_events::<Timed>().await.unwrap();
    assert_eq!((dead.len(), dead[0].reason), (1, DeadReason::Failed));
    assert!(dead[0].cause[0].contains("2s"), "{dead:?}");
}

fn broken(payload: &[u8]) -> NewEvent {
    let event = NewEvent::of(&happened("a", 1)).unwrap();
    NewEvent { payload: payload.to_vec(), ..event }
}

/// Rule 5.9.
#[tokio::test(start_paused = true)]
async fn b86_r45_an_undecodable_event_is_dead_lettered_once_and_its_bytes_are_shown() {
    let probe = Probe::new();
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given([broken(b"{\"number\": \"x\"}")]).await.unwrap();
    test.given([happened("b", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [2]);
    let queue = test.running().dead_events::<Forever>().unwrap();
    let (letter, event) = queue.show(at(1)).await.unwrap().unwrap();
    assert_eq!((letter.reason, letter.attempts), (DeadReason::Undecodable, 1));
    assert!(letter.cause.len() > 1, "{letter:?}");
    assert_eq!(event.unwrap().payload(), b"{\"number\": \"x\"}");
    let test = test.restart().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(letters::<Forever>(&test).await, [1]);
}

/// Rule 5.9: the letter is a reference, so a payload over the limit fits into the queue.
#[tokio::test(start_paused = true)]
async fn b92_b93_a_payload_over_the_limit_is_a_letter_and_handled_again_once_the_limit_is_raised() {
    let probe = Probe::new();
    let store = MemoryStore::new();
    let limited = |limit| {
        let harness = Harness::new().store(store.clone()).provide(Forever(probe.clone()));
        set(harness, |settings| settings.payload_limit = limit)
    };
    let test = limited(100).start().await.unwrap();
    let key = "k".repeat(200);
    test.given([happened(&key, 1), happened("b", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [2]);
    let dead = test.dead_events::<Forever>().await.unwrap();
    assert_eq!((dead.len(), dead[0].reason), (1, DeadReason::TooLarge));
    assert!(dead[0].cause[0].contains("`payload_limit`"), "{dead:?}");
    test.shutdown().await.unwrap();

    let test = limited(1_000).start().await.unwrap();
    let aggregate = evento_core::store::Target::Aggregate(Aggregate::new("probe", key));
    assert_eq!(crate::kit::retry::<Forever>(&test, aggregate).await, (1, 0));
    assert_eq!(probe.numbers(), [2, 1]);
}

/// Rule 5.10: what failed is stored before it is tried again.
#[tokio::test(start_paused = true)]
async fn rule_5_10_attempts_and_the_delay_survive_a_restart() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Thrice(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(3).await;
    let failed = Instant::now();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let test = test.restart().await.unwrap();
    probe.began(4).await;
    assert!(failed.elapsed() >= Duration::from_millis(3_100), "the delay goes on: {:?}", failed.elapsed());
    test.run_until_idle().await.unwrap();
    let attempts: Vec<_> = probe.calls().iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4]);
    assert_eq!(test.dead_events::<Thrice>().await.unwrap()[0].attempts, 4);
}

/// Rule 5.10: and before that write is made, nothing is tried and nothing spins.
#[tokio::test(start_paused = true)]
async fn rule_5_10_a_retry_waits_for_its_write_without_a_busy_loop() {
    let (harness, faults) = faulty();
    let probe = Probe::failing(|call| call.attempt == 1);
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.next(Operation::Commit, 1, Fate::Delay(Duration::from_secs(20)));
    test.given([happened("a", 1)]).await.unwrap();
    let began = Instant::now();
    // Time only goes on, with the clock paused, when nothing spins. Whatever else wakes the consumer makes no difference.
    for _ in 0..9 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        test.given([ignored("b")]).await.unwrap();
        assert_eq!(probe.calls().len(), 1);
    }
    probe.began(2).await;
    assert!(began.elapsed() >= Duration::from_secs(20), "{:?}", began.elapsed());
    test.run_until_idle().await.unwrap();
    test.assert_handled::<Happened>(1);
}

/// R20: the event after the failing one is not passed, and it comes again after a restart.
#[tokio::test(start_paused = true)]
async fn r20_an_event_that_failed_is_delivered_again_after_a_restart() {
    let store = MemoryStore::new();
    let probe = Probe::failing(|call| call.number == 6);
    let test = behind(&Faults::default(), &store).provide(Forever(probe.clone())).start().await.unwrap();
    test.given((1..=10).map(|number| happened("a", number))).await.unwrap();
    probe.began(7).await;
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), at(5));
    let test = test.restart().await.unwrap();
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), at(5));
    probe.forget();
    probe.recovers();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [6, 7, 8, 9, 10]);
}

/// B85, rule 5.11: the store failing while a claim is taken up does not make an unclean taking look clean.
#[tokio::test(start_paused = true)]
async fn b85_crashes_are_counted_though_the_store_fails_while_the_claim_is_taken_up() {
    let store = MemoryStore::new();
    let probe = Probe::doing(|call| async move {
        if call.number == 2 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    for crashes in 0..10 {
        let faults = Faults::default();
        faults.next(Operation::Load, 2, Fate::Fail);
        let test = behind(&faults, &store).provide(Forever(probe.clone())).start().await.unwrap();
        if crashes == 0 {
            test.given((1..=3).map(|number| happened(&format!("k{number}"), number))).await.unwrap();
        }
        let begun = probe.numbers().iter().filter(|number| **number == 2).count();
        if crashes == 4 {
            test.run_until_idle().await.unwrap();
            let dead = test.dead_events::<Forever>().await.unwrap();
            assert_eq!((dead[0].reason, dead[0].position, begun), (DeadReason::KilledTheProcess, at(2), 4));
            assert!(dead[0].cause[0].contains("died 3 times"), "{dead:?}");
            return;
        }
        let again = async {
            while probe.numbers().iter().filter(|number| **number == 2).count() == begun {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), again).await.unwrap();
        crash(test, &faults);
    }
    unreachable!("it is handed over for ever");
}

/// B85, for an event that is handled again on request: its starts are recorded too, and its request ends.
#[tokio::test(start_paused = true)]
async fn b85_a_redriven_event_that_kills_the_process_ends_its_request() {
    let store = MemoryStore::new();
    let probe = Probe::failing(|_| true);
    let test = Harness::new().store(store.clone()).provide(Once(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("a", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    probe.does(|_| std::future::pending());
    test.shutdown().await.unwrap();
    let mut asked = false;
    for calls in 2..10 {
        let faults = Faults::default();
        let test = behind(&faults, &store).provide(Once(probe.clone())).start().await.unwrap();
        if !asked {
            let target = evento_core::store::Target::Consumer;
            test.running().dead_events::<Once>().unwrap().retry(target).await.unwrap();
            asked = true;
        }
        if calls == 6 {
            tokio::time::sleep(Duration::from_secs(30)).await;
            let dead = test.dead_events::<Once>().await.unwrap();
            assert_eq!((dead.len(), dead[0].reason, dead[0].position), (1, DeadReason::KilledTheProcess, at(1)));
            assert_eq!(probe.numbers(), [1; 5]);
            return;
        }
        probe.began(calls).await;
        crash(test, &faults);
    }
    unreachable!("it is handed over for ever");
}

/// Rule 5.4: the application's classifier is asked first.
#[tokio::test(start_paused = true)]
async fn rule_5_4_the_application_can_add_a_classifier() {
    let probe = Probe::failing(|call| call.attempt <= 5);
    let harness = Harness::new().provide(Once(probe.clone())).patience(Duration::from_secs(300));
    let patient =
        |error: &anyhow::Error| (error.to_string() == "told to fail").then_some(evento_core::Fault::Transient);
    let test = harness.with(move |bundle| bundle.classifier(patient)).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.calls().len(), 6);
    test.assert_handled::<Happened>(1);
}
