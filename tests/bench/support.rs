//! Rounds, medians, and the event that every case handles.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use evento_core::{Event, NewEvent};
use serde::{Deserialize, Serialize};

/// One case: the raw work, and the same work through the framework. Both answer how long their events took.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// How many events one round handles.
    pub(crate) events: usize,
    pub(crate) rounds: usize,
    pub(crate) make: fn(usize) -> Pair,
}

/// Both sides, set up once.
pub(crate) struct Pair {
    pub(crate) raw: Box<dyn FnMut() -> Duration>,
    pub(crate) ours: Box<dyn FnMut() -> Duration>,
}

/// Runs the rounds, the one that goes first changing each time, after one round to warm up.
pub(crate) fn run(case: &Case) {
    let mut pair = (case.make)(case.events);
    (pair.raw)();
    (pair.ours)();
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for round in 0..case.rounds {
        if round % 2 == 0 {
            raw.push((pair.raw)());
            ours.push((pair.ours)());
        } else {
            ours.push((pair.ours)());
            raw.push((pair.raw)());
        }
    }
    let (raw, ours) = (per_second(case.events, median(raw)), per_second(case.events, median(ours)));
    println!("case={} ours={ours:.0} raw={raw:.0} ratio={:.2}", case.name, ours / raw);
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn per_second(events: usize, took: Duration) -> f64 {
    events as f64 / took.as_secs_f64()
}

/// An event of about 200 bytes of JSON.
#[derive(Debug, Deserialize, Event, Serialize)]
#[event(name = "bench.measured", aggregate = "bench")]
pub(crate) struct Measured {
    #[event(aggregate_id)]
    pub(crate) key: String,
    pub(crate) number: u64,
    pub(crate) carrier: String,
    pub(crate) origin: String,
    pub(crate) destination: String,
    pub(crate) delay_min: i32,
    pub(crate) scheduled: String,
    pub(crate) remark: String,
}

impl Measured {
    pub(crate) fn new(number: usize, keys: usize) -> Self {
        Self {
            key: format!("key-{}", number % keys),
            number: number as u64,
            carrier: "UA".to_owned(),
            origin: "EWR".to_owned(),
            destination: "IAH".to_owned(),
            delay_min: i32::try_from(number % 120).unwrap(),
            scheduled: "2013-01-01T05:15".to_owned(),
            remark: "departed from gate C71 after a short wait for connecting passengers".to_owned(),
        }
    }

    pub(crate) fn stored(number: usize, keys: usize) -> NewEvent {
        let event = NewEvent::of(&Self::new(number, keys)).unwrap();
        event.with_id(evento_core::EventId::new(format!("measured-{number}")).unwrap())
    }
}

/// Two workers, as many as the machine that the figures are given for has cores.
pub(crate) fn runtime() -> Arc<tokio::runtime::Runtime> {
    Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap())
}

/// How long a future takes on a runtime.
pub(crate) fn timed(runtime: &tokio::runtime::Runtime, future: impl Future<Output = ()>) -> Duration {
    runtime.block_on(async {
        let began = Instant::now();
        future.await;
        began.elapsed()
    })
}
