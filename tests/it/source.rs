//! Section 1: which events a consumer is handed.

use std::{sync::Arc, time::Duration};

use evento_core::{
    AggregateRef, NewEvent, RecordedEvent, RecordedParts, Sequence,
    store::{EventLog, Expected, Page},
};
use evento_runtime::{store::MemoryStore, testing::Harness};
use evento_tests::{
    faulty::{Fate, Operation},
    probe::{Another, Forever, Happened, Probe, happened, ignored},
};
use tokio::time::Instant;

use crate::kit::{at, faulty, set};

#[tokio::test(start_paused = true)]
async fn rule_1_1_every_event_is_handled_once_and_in_order_over_many_pages() {
    let probe = Probe::new();
    let harness = set(Harness::new().provide(Forever(probe.clone())), |settings| settings.page.events = 7);
    let test = harness.start().await.unwrap();
    test.given((0..1_000).map(|number| happened(&format!("k{}", number % 13), number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (0..1_000).collect::<Vec<_>>());
    test.assert_handled::<Happened>(1_000);
}

#[tokio::test(start_paused = true)]
async fn rule_1_5_holes_between_positions_are_nothing() {
    let probe = Probe::new();
    let harness = Harness::new().store(MemoryStore::with_holes(17)).provide(Forever(probe.clone()));
    let harness = set(harness, |settings| settings.page.scanned = 3);
    let test = harness.start().await.unwrap();
    let last = test.given((0..50).map(|number| happened("a", number))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), (0..50).collect::<Vec<_>>());
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), last);
}

/// Rule 1.2.
#[tokio::test(start_paused = true)]
async fn b47_r18_b74_what_nobody_takes_moves_the_checkpoint_and_is_not_scanned_again() {
    let (harness, faults) = faulty();
    let probe = Probe::new();
    let harness = set(harness.provide(Forever(probe.clone())), |settings| settings.page.scanned = 100);
    let test = harness.start().await.unwrap();
    let last = test.given((0..5_000).map(|_| ignored("a"))).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), last);
    assert!(faults.count(Operation::Read) >= 50);

    faults.reset_counts();
    let test = test.restart().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1]);
    assert!(faults.count(Operation::Read) < 10, "{:?}", faults.counts());
}

/// Rule 1.2: the frontier is written every 5 s if nothing else is.
#[tokio::test(start_paused = true)]
async fn rule_1_2_skipped_events_are_written_every_five_seconds_and_no_oftener() {
    let (harness, faults) = faulty();
    let test = harness.provide(Forever(Probe::new())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.reset_counts();
    for _ in 0..100 {
        test.given([ignored("a")]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let writes = faults.count(Operation::Commit);
    assert!((9..=11).contains(&writes), "{writes} writes in 50 s");
}

/// E8: 500 events among 500 that nobody takes take what 500 take.
#[tokio::test(start_paused = true)]
async fn e8_events_that_nobody_takes_are_no_barrier_and_cost_no_time() {
    let took = async |mixed: bool| {
        let probe = Probe::doing(|_| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        });
        let test = Harness::new().provide(Forever(probe)).start().await.unwrap();
        let began = Instant::now();
        for number in 0..500 {
            if mixed {
                test.given([ignored("a")]).await.unwrap();
            }
            test.given([happened("a", number)]).await.unwrap();
        }
        test.running().wait_until_caught_up(Duration::from_secs(60)).await.unwrap();
        began.elapsed()
    };
    let (alone, mixed) = (took(false).await, took(true).await);
    assert!(mixed <= alone.mul_f64(1.1), "{mixed:?} mixed, {alone:?} alone");
}

/// Rule 1.3.
#[tokio::test(start_paused = true)]
async fn b22_an_empty_page_is_not_the_end_of_the_log() {
    let probe = Probe::new();
    let harness = set(Harness::new().provide(Forever(probe.clone())), |settings| settings.page.scanned = 10);
    let test = harness.start().await.unwrap();
    test.given((0..1_000).map(|_| ignored("a"))).await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1]);
}

/// Rule 1.4.
#[tokio::test(start_paused = true)]
async fn r75_an_append_in_the_same_process_wakes_at_once() {
    let probe = Probe::new();
    let harness = set(Harness::new().provide(Forever(probe.clone())), |it| it.poll = Duration::from_secs(60));
    let test = harness.start().await.unwrap();
    test.run_until_idle().await.unwrap();
    for number in 1..20 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        let began = Instant::now();
        test.given([happened("a", number)]).await.unwrap();
        probe.began(usize::try_from(number).unwrap()).await;
        assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    }
}

/// A wake-up that comes while a page is under way must not be lost with that page.
#[tokio::test(start_paused = true)]
async fn r75_an_append_during_a_read_that_no_longer_sees_it_wakes_all_the_same() {
    let (harness, faults) = faulty();
    let probe = Probe::new();
    let harness = set(harness.provide(Forever(probe.clone())), |it| it.poll = Duration::from_secs(60));
    let test = harness.start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    // The page is read before the second event is there, and handed over after.
    faults.next(Operation::Read, 1, Fate::DelayAnswer(Duration::from_millis(200)));
    test.given([ignored("a")]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    test.given([happened("a", 2)]).await.unwrap();
    probe.began(2).await;
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

/// What another process appends is found by the poll: here, another handle on the same store, which wakes nobody.
#[tokio::test(start_paused = true)]
async fn rule_1_4_an_append_that_wakes_nobody_is_found_by_the_poll() {
    let (harness, faults) = faulty();
    let probe = Probe::new();
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    // The read that the append wakes for fails once, as if nobody had been woken.
    faults.always(Operation::Read, Fate::Fail);
    test.given([happened("a", 1)]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    faults.mend();
    let began = Instant::now();
    probe.began(1).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn r75_an_idle_bundle_asks_a_bounded_number_of_statements() {
    let (harness, faults) = faulty();
    let test = harness.provide(Forever(Probe::new())).provide(Another(Probe::new())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    faults.reset_counts();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let counts = faults.counts();
    let all: usize = counts.values().sum();
    assert!((100..=200).contains(&all), "{all} in 100 s: {counts:?}");
    assert_eq!(counts.get(&Operation::Read), None, "{counts:?}");
    assert_eq!(counts.get(&Operation::Commit), None, "{counts:?}");
}

/// Rule 1.1: all consumers share one bound, and one that is stuck keeps only its own share of it.
#[tokio::test(start_paused = true)]
async fn rule_1_1_a_stuck_consumer_keeps_its_own_share_of_the_memory_and_nobody_elses() {
    let stuck = Probe::doing(|_| std::future::pending());
    let fast = Probe::new();
    let harness = Harness::new().provide(Another(stuck.clone())).provide(Forever(fast.clone()));
    let harness = set(harness, |settings| {
        settings.payload_limit = 900_000;
        settings.page.bytes = 1_000_000;
        settings.buffer_bytes = 1_000_000;
    });
    let test = harness.start().await.unwrap();
    let big = |number| happened(&"x".repeat(400), number);
    test.given((0..2_000).map(big)).await.unwrap();
    stuck.began(0).await;
    fast.began(1_999).await;
    assert_eq!(stuck.numbers().len(), 1);
}

/// A bound that is no whole number of KiB still holds one page.
#[tokio::test(start_paused = true)]
async fn a_buffer_of_exactly_one_odd_page_does_not_stall() {
    let probe = Probe::new();
    let harness = set(Harness::new().provide(Forever(probe.clone())), |settings| {
        settings.payload_limit = 1_500;
        settings.page.bytes = 1_500;
        settings.buffer_bytes = 1_500;
    });
    let test = harness.start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1]);
}

/// Rule 1.7: ids that are known already make an append a success that appends nothing; a mixed repeat is refused.
#[tokio::test(start_paused = true)]
async fn rule_1_7_an_append_made_again_is_handled_once_and_a_mixed_one_is_refused() {
    let probe = Probe::new();
    let test = Harness::new().provide(Forever(probe.clone())).start().await.unwrap();
    let with_id = |number: u64| {
        let id = evento_core::EventId::new(format!("id-{number}")).unwrap();
        NewEvent::of(&happened("a", number)).unwrap().with_id(id)
    };
    let log = test.running().log();
    let first = log.append(Expected::NoEvents, [with_id(1), with_id(2)]).await.unwrap();
    let again = log.append(Expected::NoEvents, [with_id(1), with_id(2)]).await.unwrap();
    assert_eq!((first.position, again.position, again.appended), (at(2), at(2), 0));
    log.append(Expected::Any, [with_id(2), with_id(3)]).await.unwrap_err();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2]);
}

/// A source that hands over, at positions 1, 2 and so on, events of these aggregates with these sequences and numbers.
fn handing_over(events: &'static [(&str, u64)]) -> impl Fn(&mut Page) + Send + Sync + 'static {
    move |page| {
        for event in &mut page.events {
            let (id, number) = events[usize::try_from(event.position().minor() - 1).unwrap()];
            *event = Arc::new(RecordedEvent::new(RecordedParts {
                position: event.position(),
                id: event.id(),
                name: event.name(),
                context: event.context(),
                aggregate: AggregateRef { kind: "probe", id },
                sequence: Sequence(number),
                metadata: "",
                payload: &serde_json::to_vec(&happened(id, number)).unwrap(),
                oversize: None,
                recorded_at: event.recorded_at(),
            }));
        }
    }
}

/// Rule 1.7: a log whose sequences fall is not gone on with, and the status says so. What came before is handled once and
/// stays handled: not again every second, and not again after the claim was taken anew.
#[tokio::test(start_paused = true)]
async fn rule_1_7_a_source_that_hands_over_an_aggregate_out_of_order_is_refused() {
    let (harness, faults) = faulty();
    let probe = Probe::new();
    let test = harness.provide(Forever(probe.clone())).patience(Duration::from_secs(5)).start().await.unwrap();
    faults.alter_pages(handing_over(&[("a", 2), ("a", 1)]));
    test.given([happened("a", 1), happened("a", 2)]).await.unwrap();
    let held = test.run_until_idle().await.unwrap_err().to_string();
    assert!(held.contains("probe/a at sequence 1") && held.contains("reset the consumer"), "{held}");
    assert_eq!(test.running().consumers()[0].settled_to, at(1));

    faults.always(Operation::Renew, Fate::Fail);
    tokio::time::sleep(Duration::from_secs(30)).await;
    faults.always(Operation::Renew, Fate::Pass);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let reads = faults.count(Operation::Read);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(faults.count(Operation::Read) <= reads + 1, "it reads what it will not take again and again");
    assert_eq!(probe.numbers(), [2]);

    // As it is told: to where it stands, where its events are to be taken as they are.
    test.running().reset::<Forever>(at(1)).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [2, 1]);
}

/// Rule 1.7: an event that is out of order is not handled however busy the consumer was when it came.
#[tokio::test(start_paused = true)]
async fn rule_1_7_an_event_out_of_order_behind_a_slow_one_is_refused_too() {
    let (harness, faults) = faulty();
    let probe = Probe::doing(|call| async move {
        tokio::time::sleep(Duration::from_secs(if call.key == "b" { 30 } else { 0 })).await;
        Ok(())
    });
    let test = harness.provide(Forever(probe.clone())).patience(Duration::from_secs(60)).start().await.unwrap();
    faults.alter_pages(handing_over(&[("a", 3), ("b", 2), ("a", 1)]));
    test.given([happened("a", 1), happened("b", 2), happened("a", 3)]).await.unwrap();
    test.run_until_idle().await.unwrap_err();
    assert_eq!(probe.numbers(), [3, 2]);
    test.running().wait_for::<Forever>(at(2)).await.unwrap();
}

/// Rule 1.5: positions that fall are as little to be trusted.
#[tokio::test(start_paused = true)]
async fn rule_1_5_a_source_whose_positions_fall_is_refused() {
    let (harness, faults) = faulty();
    let probe = Probe::new();
    let test = harness.provide(Forever(probe.clone())).patience(Duration::from_secs(5)).start().await.unwrap();
    faults.alter_pages(|page| page.events[..2].reverse());
    test.given([happened("a", 1), happened("b", 2), happened("c", 3)]).await.unwrap();
    let held = test.run_until_idle().await.unwrap_err().to_string();
    assert!(held.contains("probe/a at sequence 1 (position 1) after position 2"), "{held}");
    assert_eq!(probe.numbers(), [2]);
}

/// Rule 1.4: while committed rows lie above the bound, the read is repeated at 2 to 100 ms, and not in a busy loop.
#[tokio::test(start_paused = true)]
async fn rule_1_4_a_head_that_is_held_back_is_looked_at_again_soon() {
    let (harness, faults) = faulty();
    let test = harness.provide(Forever(Probe::new())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    faults.alter_pages(|page| page.more_above = true);
    faults.reset_counts();
    test.given([happened("a", 1)]).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let reads = faults.count(Operation::Read);
    assert!((90..=130).contains(&reads), "{reads} reads in 10 s");
    faults.mend();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(faults.count(Operation::Read) <= reads + 2, "it stops when nothing is held back");
}

/// Rules 1.1 and 1.2: each context has a consumer of its own.
#[tokio::test(start_paused = true)]
async fn rule_1_2_a_consumer_takes_the_events_of_its_context() {
    let probe = Probe::new();
    let harness = Harness::new().provide(Forever(probe.clone())).with(|bundle| bundle.contexts(["eu", "us"]));
    let test = harness.start().await.unwrap();
    let of = |number: u64, context: &'static str| NewEvent::of(&happened("a", number)).unwrap().in_context(context);
    test.given([of(1, "eu"), of(2, "us"), of(3, "asia"), of(4, "eu")]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let mut numbers = probe.numbers();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 4]);
    let frontiers: Vec<_> = test.running().consumers().iter().map(|status| status.frontier).collect();
    assert_eq!(frontiers, [at(4), at(4)]);
}

/// An event that handlers append is handled too.
#[tokio::test(start_paused = true)]
async fn an_event_that_a_handler_appends_is_handled_and_idle_waits_for_it() {
    let probe = Probe::new();
    let store = MemoryStore::new();
    let log = store.clone();
    probe.does(move |call| {
        let log = log.clone();
        async move {
            if call.number < 5 {
                let next = NewEvent::of(&happened("a", call.number + 1))?;
                let id = evento_core::EventId::new(format!("next-{}", call.number))?;
                let append = evento_core::store::Append { expected: Expected::Any, events: vec![next.with_id(id)] };
                log.append(append).await?;
            }
            Ok(())
        }
    });
    let test = Harness::new().store(store).provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 2, 3, 4, 5]);
}
