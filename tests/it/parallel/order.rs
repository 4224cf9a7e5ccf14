//! The order of an aggregate: behind a dead event, while others run, and after a panic.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use evento_core::{
    CheckpointMode,
    store::{RequestState, Target},
};

use super::{
    failure::fails,
    support::{Lanes, LanesOnce, MODES, Noted, Script, harness, numbered},
};

/// B90, R44: behind a dead event its aggregate's later ones are parked, others go on; handled again on request they
/// come in order, and the aggregate is live again.
#[tokio::test(start_paused = true)]
async fn b90_r44_what_is_behind_a_dead_event_is_parked_and_follows_it_in_order() {
    for mode in MODES {
        let (noted, mended) = (Noted::default(), Arc::new(AtomicBool::new(false)));
        let script = {
            let mended = Arc::clone(&mended);
            fails(&noted, move |call| call.number == 10 && !mended.load(Ordering::Relaxed))
        };
        let test = harness(mode, 4).provide(LanesOnce(script)).start().await.unwrap();
        test.given(numbered(100, |number| number % 5)).await.unwrap();
        test.run_until_idle().await.unwrap();
        let by_key = noted.by_key();
        assert_eq!(by_key["key-0"], [0, 5], "{mode:?}");
        for key in 1..5 {
            assert_eq!(by_key[&format!("key-{key}")].len(), 20, "{mode:?}");
        }
        let letters = test.dead_events::<LanesOnce>().await.unwrap();
        assert_eq!((letters.len(), letters[0].attempts, letters[0].parks), (1, 1, true));

        // The aggregate stays parked over a restart, and so does what comes new.
        let test = test.restart().await.unwrap();
        test.given([super::support::Numbered { key: "key-0".into(), number: 100 }]).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.by_key()["key-0"], [0, 5], "{mode:?}");

        mended.store(true, Ordering::Relaxed);
        let queue = test.running().dead_events::<LanesOnce>().unwrap();
        let request = queue.retry(Target::Consumer).await.unwrap();
        assert_eq!(request.wait().await.unwrap().state, RequestState::Finished);
        test.run_until_idle().await.unwrap();
        let expected: Vec<_> = (0..=100).step_by(5).collect();
        assert_eq!(noted.by_key()["key-0"], expected, "{mode:?}");
        assert_eq!(queue.depth().await.unwrap(), 0);

        test.given([super::support::Numbered { key: "key-0".into(), number: 105 }]).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.by_key()["key-0"].last(), Some(&105), "{mode:?}: the key is live again");
    }
}

/// R31: two events of one aggregate are never in flight at once, and come in order, however hot it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r31_two_events_of_one_aggregate_are_never_in_flight_at_once() {
    for mode in MODES {
        let (noted, in_flight) = (Noted::default(), Arc::new(in_flight::Keys::default()));
        let script = {
            let (noted, in_flight) = (noted.clone(), Arc::clone(&in_flight));
            Script::new(move |call| {
                let (noted, in_flight) = (noted.clone(), Arc::clone(&in_flight));
                async move {
                    let entered = in_flight.enter(&call.key);
                    for _ in 0..call.number % 4 {
                        tokio::task::yield_now().await;
                    }
                    noted.note(&call);
                    drop(entered);
                    Ok(())
                }
            })
        };
        let test = harness(mode, 16).provide(Lanes(script)).start().await.unwrap();
        let events = if mode == CheckpointMode::OnStart { 3_000 } else { 20_000 };
        test.given(numbered(events, |number| if number % 4 == 0 { 0 } else { number % 97 })).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!((noted.len(), in_flight.overlaps()), (events, 0), "{mode:?}");
        for (key, numbers) in noted.by_key() {
            assert!(numbers.is_sorted(), "{mode:?}: {key}");
        }
        test.shutdown().await.unwrap();
    }
}

/// R32: after a panic the key's backlog goes on where it was.
#[tokio::test(start_paused = true)]
async fn r32_after_a_panic_the_backlog_of_the_key_goes_on_in_order() {
    for mode in MODES {
        let (noted, attempts) = (Noted::default(), Noted::default());
        let script = {
            let (noted, attempts) = (noted.clone(), attempts.clone());
            Script::new(move |call| {
                let (noted, attempts) = (noted.clone(), attempts.clone());
                async move {
                    attempts.note(&call);
                    assert!(call.number != 30 || call.attempt > 2, "panics twice");
                    noted.note(&call);
                    Ok(())
                }
            })
        };
        let test = harness(mode, 4).provide(Lanes(script)).start().await.unwrap();
        test.given(numbered(300, |number| number % 10)).await.unwrap();
        test.run_until_idle().await.unwrap();
        assert_eq!(noted.by_key()["key-0"], (0..300).step_by(10).collect::<Vec<_>>(), "{mode:?}");
        let of_key: Vec<_> = attempts.all().into_iter().filter(|call| call.key == "key-0").take(7).collect();
        let made: Vec<_> = of_key.iter().map(|call| (call.number, call.attempt)).collect();
        assert_eq!(made, [(0, 1), (10, 1), (20, 1), (30, 1), (30, 2), (30, 3), (40, 1)], "{mode:?}");
    }
}

mod in_flight {
    use std::{collections::HashSet, sync::Mutex};

    /// Keys whose handlers run.
    #[derive(Debug, Default)]
    pub(super) struct Keys(Mutex<(HashSet<String>, usize)>);

    pub(super) struct Entered<'a>(&'a Keys, String);

    impl Keys {
        pub(super) fn enter(&self, key: &str) -> Entered<'_> {
            let mut state = self.0.lock().unwrap();
            if !state.0.insert(key.to_owned()) {
                state.1 += 1;
            }
            Entered(self, key.to_owned())
        }

        pub(super) fn overlaps(&self) -> usize {
            self.0.lock().unwrap().1
        }
    }

    impl Drop for Entered<'_> {
        fn drop(&mut self) {
            self.0.0.lock().unwrap().0.remove(&self.1);
        }
    }
}
