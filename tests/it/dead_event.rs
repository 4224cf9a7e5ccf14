//! Section 6: the dead event queue.

use std::{sync::Arc, time::Duration};

use evento_core::{
    Aggregate,
    store::{RequestState, Target},
};
use evento_runtime::{ConsumerState, testing::Harness};
use evento_tests::{
    faulty::{Fate, Operation},
    probe::{Forever, Going, Once, Probe, Thrice, happened},
};
use tokio::sync::Notify;

use crate::kit::{at, faulty, letters, retry, set};

/// Three aggregates, three events each: 1 to 3 first, then 4 to 6, then 7 to 9.
fn three_by_three() -> impl Iterator<Item = evento_tests::probe::Happened> {
    (1..=9).map(|number| happened(["c", "a", "b"][usize::try_from(number % 3).unwrap()], number))
}

/// Rule 6.3.
#[tokio::test(start_paused = true)]
async fn rule_6_3_later_events_of_a_dead_events_aggregate_are_parked_and_others_go_on() {
    let probe = Probe::failing(|call| call.number == 1);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given(three_by_three()).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 3, 5, 6, 8, 9]);
    let status = &test.running().consumers()[0];
    assert_eq!((status.dead, status.parked, status.held_aggregates), (1, 2, 1));
    // Also after a restart, and for what comes then.
    probe.recovers();
    let test = test.restart().await.unwrap();
    test.given([happened("a", 10), happened("b", 11)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 3, 5, 6, 8, 9, 11]);
}

#[tokio::test(start_paused = true)]
async fn rule_6_3_on_dead_continue_lets_later_events_go_on() {
    let probe = Probe::failing(|call| call.number == 1);
    let test = Harness::new().provide(Going(probe.clone())).start().await.unwrap();
    test.given(three_by_three()).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (1..=9).collect::<Vec<_>>());
    assert_eq!(letters::<Going>(&test).await, [1]);
    // Handled again, it runs alone: what came after it has been handled.
    probe.forget();
    probe.recovers();
    assert_eq!(retry::<Going>(&test, Target::Consumer).await, (1, 0));
    assert_eq!(probe.numbers(), [1]);
    assert!(letters::<Going>(&test).await.is_empty());
}

/// Rule 6.4: the letter goes after success, then its parked events follow in order, then the key is live again.
#[tokio::test(start_paused = true)]
async fn rule_6_4_after_a_retry_parked_events_follow_in_order_before_the_key_is_live() {
    let probe = Probe::failing(|call| call.number == 1);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given(three_by_three()).await.unwrap();
    test.run_until_idle().await.unwrap();
    // While the parked ones follow, another event of the aggregate comes: it waits for its turn.
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    probe.forget();
    probe.does(move |call| {
        let held = Arc::clone(&held);
        async move {
            if call.number == 4 {
                held.notified().await;
            }
            Ok(())
        }
    });
    let queue = test.running().dead_events::<Once>().unwrap();
    let request = queue.retry(Target::Event(at(1))).await.unwrap();
    assert_eq!(request.total(), 1);
    probe.began(2).await;
    test.given([happened("a", 10), happened("b", 11)]).await.unwrap();
    gate.notify_one();
    let ended = request.wait().await.unwrap();
    assert_eq!((ended.done, ended.failed, ended.state), (1, 0, RequestState::Finished));
    test.run_until_idle().await.unwrap();
    let of_a: Vec<_> = probe.calls().iter().filter(|call| call.key == "a").map(|call| call.number).collect();
    assert_eq!(of_a, [1, 4, 7, 10]);
    test.given([happened("a", 12)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers().last(), Some(&12));
    assert_eq!(test.running().consumers()[0].held_aggregates, 0);
    let test = test.restart().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.calls().len(), 6, "nothing twice: {:?}", probe.numbers());
}

/// What is read again is bounded by its bytes, and cut short it goes on where it ended.
#[tokio::test(start_paused = true)]
async fn rule_1_1_what_is_parked_is_read_again_in_parts_of_bounded_size() {
    let (harness, faults) = faulty();
    let probe = Probe::failing(|call| call.number == 0);
    // Two events.
    let harness = set(harness.provide(Once(probe.clone())), |settings| settings.page.bytes = 30);
    let test = harness.start().await.unwrap();
    test.given((0..20).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(letters::<Once>(&test).await, [1]);
    probe.forget();
    probe.recovers();
    faults.reset_counts();
    assert_eq!(retry::<Once>(&test, Target::Consumer).await, (1, 0));
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (0..20).collect::<Vec<_>>());
    let reads = faults.count(Operation::ReadAggregate);
    assert!((10..=12).contains(&reads), "{reads} reads of 20 events");
}

#[tokio::test(start_paused = true)]
async fn e3_a_letter_is_removed_only_after_its_event_was_handled() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("a", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let gate = Arc::new(Notify::new());
    let held = Arc::clone(&gate);
    probe.does(move |_| {
        let held = Arc::clone(&held);
        async move {
            held.notified().await;
            Ok(())
        }
    });
    let request = test.running().dead_events::<Once>().unwrap().retry(Target::Consumer).await.unwrap();
    probe.began(2).await;
    assert_eq!(letters::<Once>(&test).await, [1], "while it runs it is still a letter");
    gate.notify_one();
    request.wait().await.unwrap();
    assert!(letters::<Once>(&test).await.is_empty());
    gate.notify_one();
    test.run_until_idle().await.unwrap();
    probe.began(3).await;
}

#[tokio::test(start_paused = true)]
async fn e3_a_redriven_event_that_fails_again_stays_a_letter_with_a_fresh_budget_spent() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Thrice(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("a", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.calls().len(), 4);
    assert_eq!(retry::<Thrice>(&test, Target::Consumer).await, (0, 1));
    assert_eq!(probe.numbers(), [1; 8]);
    let dead = test.dead_events::<Thrice>().await.unwrap();
    assert_eq!((dead.len(), dead[0].attempts), (1, 8));
    // And what is parked behind it still is.
    probe.recovers();
    assert_eq!(retry::<Thrice>(&test, Target::Consumer).await, (1, 0));
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers()[8..], [1, 2]);
}

/// Rule 6.4: what is parked behind may die in its turn, with the rest parked behind it.
#[tokio::test(start_paused = true)]
async fn rule_6_4_a_parked_event_that_fails_in_its_turn_is_dead_and_holds_what_follows() {
    let probe = Probe::failing(|call| call.number == 1 || call.number == 4);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given(three_by_three()).await.unwrap();
    test.run_until_idle().await.unwrap();
    probe.forget();
    probe.does(|call| async move { if call.number == 4 { anyhow::bail!("told to fail") } else { Ok(()) } });
    assert_eq!(retry::<Once>(&test, Target::Aggregate(Aggregate::new("probe", "a"))).await.0, 1);
    test.run_until_idle().await.unwrap();
    assert_eq!((probe.numbers(), letters::<Once>(&test).await), (vec![1, 4], vec![4]));
    probe.recovers();
    let test = test.restart().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 4], "parked over a restart");
    assert_eq!(retry::<Once>(&test, Target::Consumer).await, (1, 0));
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 4, 4, 7]);
}

#[tokio::test(start_paused = true)]
async fn rule_6_4_discarding_releases_what_is_parked() {
    let probe = Probe::failing(|call| call.number == 1);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given(three_by_three()).await.unwrap();
    test.run_until_idle().await.unwrap();
    probe.forget();
    let queue = test.running().dead_events::<Once>().unwrap();
    assert_eq!(queue.depth().await.unwrap(), 1);
    let ended = queue.discard(Target::Event(at(1))).await.unwrap().wait().await.unwrap();
    assert_eq!((ended.done, ended.failed), (1, 0));
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [4, 7]);
    assert_eq!(queue.depth().await.unwrap(), 0);
}

/// Rule 6.4: for an aggregate, and for a whole consumer with more letters than a page.
#[tokio::test(start_paused = true)]
async fn rule_6_4_a_retry_of_one_aggregate_leaves_others_and_one_of_a_consumer_takes_all() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given((1..=250).map(|number| happened(&format!("k{number}"), number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(letters::<Once>(&test).await.len(), 250);
    probe.recovers();
    probe.forget();
    assert_eq!(retry::<Once>(&test, Target::Aggregate(Aggregate::new("probe", "k7"))).await, (1, 0));
    assert_eq!(probe.numbers(), [7]);
    assert_eq!(retry::<Once>(&test, Target::Consumer).await, (249, 0));
    assert_eq!(probe.calls().len(), 250);
    assert!(letters::<Once>(&test).await.is_empty());
}

/// Rule 6.4: stoppable; what it has done stays done. Resumable over a restart.
#[tokio::test(start_paused = true)]
async fn rule_6_4_a_request_can_be_stopped_and_goes_on_over_a_restart() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Once(probe.clone())).start().await.unwrap();
    test.given((1..=20).map(|number| happened(&format!("k{number}"), number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    let slow = |_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    };
    probe.does(slow);
    probe.forget();
    let request = test.running().dead_events::<Once>().unwrap().retry(Target::Consumer).await.unwrap();
    probe.began(3).await;
    request.stop().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(probe.calls().len(), 3, "it stops after the event in hand");
    assert_eq!(request.progress().await.unwrap().state, RequestState::Stopped);
    assert_eq!(letters::<Once>(&test).await.len(), 17);

    let again = test.running().dead_events::<Once>().unwrap().retry(Target::Consumer).await.unwrap();
    probe.began(8).await;
    let test = test.restart().await.unwrap();
    let ended = again.id();
    let handled = async {
        while !letters::<Once>(&test).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), handled).await.unwrap();
    assert_eq!(probe.calls().len(), 20, "request {ended} goes on where it was: {:?}", probe.numbers());
}

/// A redriven event that keeps failing is given up when its request is stopped while it runs.
#[tokio::test(start_paused = true)]
async fn rule_6_4_stopping_a_request_ends_the_retries_of_an_attempt_under_way() {
    let probe = Probe::doing(|_| async { Err(anyhow::anyhow!("once")).permanent_failure() });
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(letters::<Forever>(&test).await, [1]);
    probe.forget();
    probe.does(|_| async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        anyhow::bail!("for ever")
    });
    let request = test.running().dead_events::<Forever>().unwrap().retry(Target::Consumer).await.unwrap();
    probe.began(1).await;
    request.stop().await.unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(probe.calls().len(), 1);
    assert_eq!(letters::<Forever>(&test).await, [1]);
    // It can be asked for again.
    probe.recovers();
    assert_eq!(retry::<Forever>(&test, Target::Consumer).await, (1, 0));
}

trait Permanent {
    fn permanent_failure(self) -> anyhow::Result<()>;
}

impl Permanent for anyhow::Result<()> {
    fn permanent_failure(self) -> anyhow::Result<()> {
        evento_core::FaultExt::permanent(self)
    }
}

/// Rule 6.2.
#[tokio::test(start_paused = true)]
async fn e4_b93_an_event_whose_letter_cannot_be_written_stays_unsettled_until_it_can() {
    let (harness, faults) = faulty();
    let probe = Probe::failing(|call| call.number == 2);
    let test = harness.provide(Once(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.always(Operation::Commit, Fate::Fail);
    test.given([happened("a", 2), happened("a", 3), happened("b", 4)]).await.unwrap();
    probe.began(2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(probe.numbers(), [1, 2], "nothing passes it");
    let status = &test.running().consumers()[0];
    assert_eq!((status.state, status.settled_to), (ConsumerState::Failing, at(1)));
    assert!(status.trouble.as_ref().is_some_and(|trouble| trouble.contains("planned failure")), "{status:?}");
    faults.mend();
    test.run_until_idle().await.unwrap();
    assert_eq!((probe.numbers(), letters::<Once>(&test).await), (vec![1, 2, 4], vec![2]));
}

/// Rule 6.1: also where the answer of the write is lost, and where the process ends between letter and checkpoint.
#[tokio::test(start_paused = true)]
async fn b87_one_event_is_one_letter_whatever_becomes_of_the_writes_answer() {
    let (harness, faults) = faulty();
    let probe = Probe::failing(|call| call.number == 1);
    let test = harness.provide(Once(probe.clone())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.next(Operation::Commit, 1, Fate::LoseAnswer);
    test.given([happened("a", 1), happened("b", 2)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!((probe.numbers(), letters::<Once>(&test).await), (vec![1, 2], vec![1]));
}

/// E6, as far as inline handlers go.
#[tokio::test(start_paused = true)]
async fn e6_an_event_that_fails_while_its_consumer_is_paused_is_tried_again_when_it_goes_on() {
    let probe = Probe::doing(|call| async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if call.attempt == 1 { anyhow::bail!("told to fail") } else { Ok(()) }
    });
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("a", 2)]).await.unwrap();
    probe.began(1).await;
    test.running().pause::<Forever>().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(probe.numbers(), [1], "a pause stops admission");
    assert_eq!(test.running().consumers()[0].state, ConsumerState::Paused);
    let held = test.running().wait_until_caught_up(Duration::from_secs(1)).await.unwrap_err().to_string();
    assert!(held.contains("failed 1 times") || held.contains("paused"), "{held}");
    test.running().resume::<Forever>().await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 1, 2, 2]);
}

/// E6: what ends well while paused settles, and is stored.
#[tokio::test(start_paused = true)]
async fn e6_what_runs_when_its_consumer_is_paused_settles_normally() {
    let probe = Probe::doing(|_| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    });
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1), happened("a", 2)]).await.unwrap();
    probe.began(1).await;
    test.running().pause::<Forever>().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((probe.returned(), test.checkpoint::<Forever>().await.unwrap()), (1, at(1)));
}

/// Where letters of one aggregate park nothing, one that fails again keeps none of the others from being tried.
#[tokio::test(start_paused = true)]
async fn rule_6_4_under_on_dead_continue_each_letter_is_tried_for_itself_in_order() {
    let probe = Probe::failing(|_| true);
    let test = Harness::new().provide(Going(probe.clone())).start().await.unwrap();
    test.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(letters::<Going>(&test).await, [1, 2, 3]);
    probe.forget();
    probe.does(|call| async move { if call.number == 1 { anyhow::bail!("told to fail") } else { Ok(()) } });
    assert_eq!(retry::<Going>(&test, Target::Aggregate(Aggregate::new("probe", "a"))).await, (2, 1));
    assert_eq!((probe.numbers(), letters::<Going>(&test).await), (vec![1, 2, 3], vec![1]));
}
