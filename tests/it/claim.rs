//! Section 8: claims.

use std::{sync::Arc, time::Duration};

use evento_core::store::{CheckpointStore, ClaimStore, Target};
use evento_runtime::{ConsumerState, store::MemoryStore, testing::Harness};
use evento_tests::{
    faulty::{Fate, Faults, Operation},
    probe::{Forever, Once, Probe, happened},
    told::Told,
};
use tokio::{sync::Notify, time::Instant};

use crate::kit::{at, behind, crash, faulty, letters, taken};

/// Rule 8.2: two bundles on one store: one consumes, the other says for whom it waits, and goes on after it.
#[tokio::test(start_paused = true)]
async fn rule_8_2_who_waits_for_a_claim_says_for_whom_and_goes_on_when_it_is_let_go() {
    let told = Told::listen();
    let store = MemoryStore::new();
    let (first, second) = (Probe::new(), Probe::new());
    let holder = Harness::new().store(store.clone()).provide(Forever(first.clone())).start().await.unwrap();
    holder.given([happened("a", 1)]).await.unwrap();
    holder.run_until_idle().await.unwrap();
    let waiter = Harness::new().store(store).provide(Forever(second.clone())).start().await.unwrap();
    let position = waiter.given([happened("a", 2)]).await.unwrap();
    // Read your own write works on the process that does not consume.
    waiter.running().wait_for::<Forever>(position).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((first.numbers(), second.numbers()), (vec![1, 2], vec![]));
    let status = &waiter.running().consumers()[0];
    assert_eq!(status.state, ConsumerState::Waiting);
    let owner = status.held_by.clone().unwrap();
    assert!(told.said(&["waiting for the claim", "until="]).contains(&owner));

    holder.shutdown().await.unwrap();
    let began = Instant::now();
    waiter.given([happened("a", 3)]).await.unwrap();
    waiter.run_until_idle().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(second.numbers(), [3]);
}

/// Rule 8.3: at time to live - 1 s after sending the last renewal that succeeded, its handlers are cancelled and nothing
/// more starts; what it handled after is refused.
#[tokio::test(start_paused = true)]
async fn rule_8_3_a_claim_that_cannot_be_renewed_counts_as_lost_before_another_can_have_it() {
    let faults = Faults::default();
    let store = MemoryStore::new();
    let cut = Arc::new(Notify::new());
    let noted = Arc::clone(&cut);
    struct OnDrop(Arc<Notify>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let probe = Probe::doing(move |_| {
        let guard = OnDrop(Arc::clone(&noted));
        async move {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            drop(guard);
            Ok(())
        }
    });
    let test = behind(&faults, &store).provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    faults.always(Operation::Renew, Fate::Fail);
    faults.always(Operation::Claim, Fate::Fail);
    let began = Instant::now();
    cut.notified().await;
    // The last renewal was sent up to 3 s before.
    let after = began.elapsed();
    assert!(after >= Duration::from_secs(6) && after <= Duration::from_millis(9_050), "{after:?}");
    let other = Probe::new();
    let next = Harness::new().store(store).provide(Forever(other.clone())).start().await.unwrap();
    next.run_until_idle().await.unwrap();
    assert_eq!(other.numbers(), [1]);
    assert!(began.elapsed() <= Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(probe.returned(), 0);
}

/// A claim whose answer took long has that much less time: it counts from when it was asked for.
#[tokio::test(start_paused = true)]
async fn rule_8_3_a_claim_counts_from_its_asking_not_from_its_answer() {
    let (harness, faults) = faulty();
    let probe = Probe::doing(|_| std::future::pending());
    faults.next(Operation::Claim, 1, Fate::DelayAnswer(Duration::from_secs(8)));
    faults.always(Operation::Renew, Fate::Hang);
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    let began = Instant::now();
    probe.began(1).await;
    faults.always(Operation::Claim, Fate::Fail);
    let mut lost = None;
    while lost.is_none() && began.elapsed() < Duration::from_secs(30) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        lost = (test.running().consumers()[0].state == ConsumerState::Waiting).then(|| began.elapsed());
    }
    let lost = lost.unwrap();
    assert!(lost <= Duration::from_millis(9_200), "{lost:?} after it was asked for");
}

/// Rule 8.5: who has a claim again goes on where the store is, not where it was.
#[tokio::test(start_paused = true)]
async fn b46_a_bundle_that_regains_its_claim_goes_on_from_the_stored_checkpoint() {
    let faults = Faults::default();
    let store = MemoryStore::new();
    let (first, second) = (Probe::new(), Probe::new());
    let one = behind(&faults, &store).provide(Forever(first.clone())).start().await.unwrap();
    one.given((1..=3).map(|number| happened("a", number))).await.unwrap();
    one.run_until_idle().await.unwrap();
    // It is cut off from the store; another takes over, handles more, and stops.
    for operation in [Operation::Renew, Operation::Claim, Operation::Read, Operation::Commit] {
        faults.always(operation, Fate::Fail);
    }
    let two = Harness::new().store(store).provide(Forever(second.clone())).start().await.unwrap();
    two.given((4..=9).map(|number| happened("a", number))).await.unwrap();
    two.run_until_idle().await.unwrap();
    two.shutdown().await.unwrap();
    faults.mend();
    let last = one.given([happened("a", 10)]).await.unwrap();
    one.run_until_idle().await.unwrap();
    assert_eq!((first.numbers(), second.numbers()), (vec![1, 2, 3, 10], (4..=9).collect()));
    assert_eq!(one.checkpoint::<Forever>().await.unwrap(), last);
    assert!(first.calls()[3].epoch > second.calls()[0].epoch, "epochs rise");
}

/// Rule 8.3: a claim is released only when what runs has returned.
#[tokio::test(start_paused = true)]
async fn rule_8_3_a_claim_covers_what_is_in_flight() {
    let store = MemoryStore::new();
    let slow = Probe::doing(|_| async {
        tokio::time::sleep(Duration::from_secs(15)).await;
        Ok(())
    });
    let one = Harness::new().store(store.clone()).provide(Forever(slow.clone())).start().await.unwrap();
    one.given([happened("a", 1), happened("a", 2)]).await.unwrap();
    slow.began(1).await;
    let other = Probe::new();
    let two = Harness::new().store(store).provide(Forever(other.clone())).start().await.unwrap();
    let stopping = async {
        one.shutdown().await.unwrap();
        assert_eq!(slow.returned(), 1);
    };
    let watching = async {
        other.began(1).await;
        assert_eq!(slow.returned(), 1, "it began before the other had returned");
    };
    tokio::join!(stopping, watching);
    two.run_until_idle().await.unwrap();
    assert_eq!((slow.numbers(), other.numbers()), (vec![1], vec![2]));
}

/// The store fails at every step of coming up, and the consumer comes up all the same.
#[tokio::test(start_paused = true)]
async fn a_store_that_fails_while_a_claim_is_taken_up_delays_the_consumer_and_no_more() {
    let (harness, faults) = faulty();
    for operation in [Operation::Claim, Operation::Load, Operation::Read, Operation::Head, Operation::OpenRequests] {
        faults.next(operation, 3, Fate::Fail);
    }
    let probe = Probe::new();
    let test = harness.provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    test.run_until_idle().await.unwrap();
    assert_eq!(test.checkpoint::<Forever>().await.unwrap(), at(1));
    test.shutdown().await.unwrap();
}

/// Rule 5.11: who took a claim uncleanly, and never got to consume under it, leaves it as unclean as it was.
#[tokio::test(start_paused = true)]
async fn rule_5_11_a_claim_that_was_taken_and_never_consumed_under_stays_unclean() {
    let store = MemoryStore::new();
    let faults = Faults::default();
    let probe = Probe::doing(|_| std::future::pending());
    let test = behind(&faults, &store).provide(Forever(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    let consumer = test.running().dead_events::<Forever>().unwrap().consumer().clone();
    crash(test, &faults);
    let faults = Faults::default();
    faults.always(Operation::Load, Fate::Fail);
    let test = behind(&faults, &store).provide(Forever(Probe::new())).start().await.unwrap();
    while faults.count(Operation::Load) < 2 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    test.shutdown().await.unwrap();
    let (claim, clean) = taken(&store, &consumer).await;
    assert!(!clean);
    // One that consumes to an orderly end leaves it clean.
    store.release(claim, false).await.unwrap();
    let test = Harness::new().store(store.clone()).provide(Forever(Probe::new())).start().await.unwrap();
    test.run_until_idle().await.unwrap();
    test.shutdown().await.unwrap();
    assert!(taken(&store, &consumer).await.1);
}

/// B49 and rule 8.2: claims are renewed on a thread of their own, which a handler that blocks cannot delay.
#[test]
fn b49_a_handler_that_blocks_the_only_thread_of_its_runtime_delays_no_renewal() {
    let store = MemoryStore::new();
    let (blocks, blocked) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let probe = Probe::doing(move |_| {
        blocks.send(()).unwrap();
        released.lock().unwrap().recv().unwrap();
        async { Ok(()) }
    });
    let bundle = evento_runtime::Bundle::builder("blocked").store(store.clone()).only_provided();
    let short = crate::kit::settings(|settings| {
        settings.claim.time_to_live = Duration::from_secs(2);
        settings.claim.renew_every = Duration::from_millis(200);
    });
    let bundle = bundle.settings(short).provide(Forever(probe));
    let consuming = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let running = bundle.start().await.unwrap();
            let appended = running.log().append(evento_core::store::Expected::Any, [happened("a", 1)]).await.unwrap();
            running.wait_for::<Forever>(appended).await.unwrap();
            running.shutdown().await.unwrap();
        });
    });
    blocked.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use evento_core::store::Store;
        let store: Arc<dyn Store> = evento_core::store::OpenStore::open(&store).await.unwrap();
        let until = || async {
            let claims = store.claims("blocked".to_owned()).await.unwrap();
            claims[0].owner.clone().unwrap().1
        };
        let first = until().await;
        // Twice its time to live: without renewals it would have run out long before.
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(until().await.0 >= first.0 + 3_000_000, "it was not renewed");
    });
    release.send(()).unwrap();
    consuming.join().unwrap();
}

/// Rule 5.11: a process that lost its claim and has it again, with nobody in between, has not died: an event whose handler
/// was cut off each time is never dead for it.
#[tokio::test(start_paused = true)]
async fn rule_5_11_a_claim_that_comes_back_to_the_same_process_is_no_crash() {
    let store = MemoryStore::new();
    let faults = Faults::default();
    let probe = Probe::doing(|_| std::future::pending());
    let first = behind(&faults, &store).provide(Forever(probe.clone())).start().await.unwrap();
    first.given([happened("a", 1)]).await.unwrap();
    probe.began(1).await;
    crash(first, &faults);

    // Its start is recorded from now on.
    let faults = Faults::default();
    let test = behind(&faults, &store).provide(Forever(probe.clone())).start().await.unwrap();
    let consumer = test.running().dead_events::<Forever>().unwrap().consumer().clone();
    for taking in 2..8 {
        probe.began(taking).await;
        faults.always(Operation::Renew, Fate::Fail);
        tokio::time::sleep(Duration::from_secs(15)).await;
        faults.mend();
    }
    assert!(letters::<Forever>(&test).await.is_empty());
    crash(test, &faults);
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (claim, clean) = taken(&store, &consumer).await;
    let started = store.load(claim).await.unwrap().started;
    assert!(!clean && started.len() == 1 && started[0].crashes == 0, "{started:?}");
}

/// Rule 5.11: what is known of crashes outlives a clean stop before the event has run again.
#[tokio::test(start_paused = true)]
async fn rule_5_11_crashes_are_remembered_over_a_clean_stop_until_the_event_has_settled() {
    let store = MemoryStore::new();
    let probe = Probe::doing(|_| std::future::pending());
    let harness = |faults: &Faults| behind(faults, &store).provide(Forever(probe.clone()));
    let mut consumer = None;
    for crashes in 1..=4 {
        let faults = Faults::default();
        let test = harness(&faults).start().await.unwrap();
        if crashes == 1 {
            test.given([happened("a", 1), happened("b", 2)]).await.unwrap();
        }
        probe.began(crashes).await;
        consumer = Some(test.running().dead_events::<Forever>().unwrap().consumer().clone());
        crash(test, &faults);
        tokio::time::sleep(Duration::from_secs(15)).await;
        if crashes < 4 {
            // A process that does not come to the event, for its store reads nothing, and stops in order.
            let faults = Faults::default();
            faults.always(Operation::Read, Fate::Fail);
            let idle = harness(&faults).start().await.unwrap();
            tokio::time::sleep(Duration::from_secs(15)).await;
            idle.shutdown().await.unwrap();
        }
    }
    // The first crash leaves no record, for the claim was taken cleanly; the last is counted by who finds it.
    let (claim, _) = taken(&store, &consumer.unwrap()).await;
    let started = store.load(claim).await.unwrap().started;
    assert!(started.len() == 1 && started[0].crashes == 2, "{started:?}");
}

/// Rule 6.4: a request that has been carried out is not carried out again because of an older look at the open ones.
#[tokio::test(start_paused = true)]
async fn rule_6_4_a_request_that_is_finished_is_not_carried_out_again_after_a_new_claim() {
    let (harness, faults) = faulty();
    let probe = Probe::failing(|_| true);
    let test = harness.provide(Once(probe.clone())).start().await.unwrap();
    test.given([happened("a", 1)]).await.unwrap();
    test.run_until_idle().await.unwrap();
    let lose_the_claim = async || {
        faults.always(Operation::Renew, Fate::Fail);
        tokio::time::sleep(Duration::from_secs(12)).await;
        faults.always(Operation::Renew, Fate::Pass);
        tokio::time::sleep(Duration::from_secs(3)).await;
    };
    // The watcher hears of the request, but late.
    faults.next(Operation::OpenRequests, 1, Fate::DelayAnswer(Duration::from_secs(60)));
    let request = test.running().dead_events::<Once>().unwrap().retry(Target::Consumer).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    lose_the_claim().await;
    assert_eq!(request.wait().await.unwrap().failed, 1);
    assert_eq!(probe.numbers(), [1, 1]);
    lose_the_claim().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    test.run_until_idle().await.unwrap();
    assert_eq!(probe.numbers(), [1, 1], "an old look at the open requests began it again");
}
