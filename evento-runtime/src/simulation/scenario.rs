//! What a seed decides before anything runs: the log, the components, and what may go wrong.

use std::{sync::Arc, time::Duration};

use evento_core::{
    Aggregate, CheckpointMode, OnDead, Position, RecordedEvent, RecordedParts, Sequence, Timestamp, retry::Backoff,
};

use super::{Options, Without, random::Random};
use crate::engine::{Budget, Cadence, Config, Limits, MOST_OPEN, Policy, Run};

/// A log, who consumes it, and what goes wrong.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) log: Log,
    pub(super) executors: Vec<Limits>,
    pub(super) consumers: Vec<Component>,
    pub(super) page_size: usize,
    pub(super) letters_page: usize,
    /// The store's usual latency, in microseconds.
    pub(super) latency: u64,
    /// Of a thousand calls of the store, how many fail.
    pub(super) store_fails: u64,
    pub(super) crashes: u32,
    pub(super) stops: u32,
    pub(super) pauses: u32,
    pub(super) outages: u32,
    /// How often something a handler depends on goes down.
    pub(super) downs: u32,
    pub(super) requests: u32,
    /// Handlers that never return.
    pub(super) hangs: u32,
    /// An event whose handler kills the process.
    pub(super) killer: Option<usize>,
    /// How many events are there at the beginning.
    pub(super) first: usize,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) events: Vec<Logged>,
    /// The event at or after each number.
    at: Vec<usize>,
    pub(super) aggregates: Vec<Aggregate>,
}

#[derive(Debug)]
pub(super) struct Logged {
    pub(super) event: Arc<RecordedEvent>,
    pub(super) position: Position,
    pub(super) name: usize,
    pub(super) aggregate: usize,
}

#[derive(Debug)]
pub(super) struct Component {
    pub(super) config: Config,
    pub(super) handlers: Vec<Behaviour>,
    /// By event name; `None` where it takes no such event.
    pub(super) routes: Vec<Option<usize>>,
    /// The source hands over what it does not take, too.
    pub(super) unfiltered: bool,
}

/// How a handler behaves: of a thousand attempts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Behaviour {
    pub(super) ordinary: u64,
    pub(super) transient: u64,
    pub(super) permanent: u64,
    pub(super) overrun: u64,
    /// Of a thousand events, not attempts.
    pub(super) undecodable: u64,
    /// How long it takes at most, in microseconds.
    pub(super) takes: u64,
}

const NAMES: usize = 5;

impl Log {
    pub(super) fn index(&self, position: Position) -> usize {
        let number = position.minor() as usize;
        let index = self.at.get(number).copied().unwrap_or(self.events.len());
        // `just_before` of a position, and of none.
        if position.major() > 0 { self.events.len() } else { index }
    }

    /// How many events are at or below the position.
    pub(super) fn up_to(&self, position: Position) -> usize {
        let index = self.index(position);
        index + usize::from(self.events.get(index).is_some_and(|logged| logged.position == position))
    }

    fn new(events: usize, random: &mut Random) -> Self {
        let most = random.pick(&[1, 4, 30, 30, 200]);
        let aggregates = random.between(1, most) as usize;
        let hot = random.pick(&[0, 0, 100, 250, 500]);
        let step = random.pick(&[1, 1, 3, 7]);
        let unhandled = random.pick(&[0, 0, 200, 500]);
        let mut log = Self {
            aggregates: (0..aggregates).map(|id| Aggregate::new("thing", id.to_string())).collect(),
            ..Self::default()
        };
        let mut sequences = vec![0; aggregates];
        let mut number = 0;
        for id in 0..events {
            number += random.between(1, step);
            let aggregate = if random.chance(hot) { 0 } else { random.index(aggregates) };
            sequences[aggregate] += 1;
            let name = if random.chance(unhandled) { NAMES } else { random.index(NAMES) };
            let position = Position::new(number);
            let of = &log.aggregates[aggregate];
            let event = RecordedEvent::new(RecordedParts {
                position,
                id: &id.to_string(),
                name: NAME[name],
                context: "default",
                aggregate: of.as_ref(),
                sequence: Sequence(sequences[aggregate]),
                metadata: "{}",
                payload: b"{}",
                oversize: None,
                recorded_at: Timestamp(0),
            });
            log.events.push(Logged { event: Arc::new(event), position, name, aggregate });
        }
        for (index, logged) in log.events.iter().enumerate() {
            log.at.resize(logged.position.minor() as usize + 1, index);
        }
        log
    }
}

pub(super) const NAME: [&str; NAMES + 1] = ["e0", "e1", "e2", "e3", "e4", "unhandled"];

impl Scenario {
    pub(super) fn new(seed: u64, options: &Options) -> (Self, Random) {
        let mut random = Random::new(seed);
        let mut decide = |without: Without, count: u64| {
            let count = random.below(count + 1) as u32;
            if options.without.contains(&without) { 0 } else { count }
        };
        let (crashes, stops, pauses) =
            (decide(Without::Crashes, 5), decide(Without::Stops, 3), decide(Without::Pauses, 2));
        let (outages, downs) = (decide(Without::StoreFaults, 2), decide(Without::Downs, 2));
        let (requests, hangs) = (decide(Without::Requests, 6), decide(Without::Hangs, 3));
        let killer = decide(Without::Crashes, 9) == 9;
        let two = decide(Without::SecondConsumer, 5) == 5;
        let events = options.events.unwrap_or(500);
        let log = Log::new(events, &mut random);
        let executors: Vec<_> = (0..random.between(1, 2))
            .map(|_| {
                let capacity = random.between(1, 8) as usize;
                Limits { capacity, look_ahead: capacity * random.pick(&[1, 2, 4, 4, 4]) }
            })
            .collect();
        let orders: Vec<_> = executors.iter().map(|_| random.chance(650)).collect();
        let flaky = !options.without.contains(&Without::Failures);
        let consumers = (0..if two { 2 } else { 1 })
            .map(|_| Component::new(&executors, &orders, flaky, options, &mut random))
            .collect();
        let scenario = Self {
            executors,
            consumers,
            page_size: random.between(1, 60) as usize,
            letters_page: random.pick(&[1, 3, 100]),
            latency: random.pick(&[50, 200, 1_000, 10_000, 60_000]),
            store_fails: if options.without.contains(&Without::StoreFaults) {
                0
            } else {
                random.pick(&[0, 0, 10, 100])
            },
            crashes,
            stops,
            pauses,
            outages,
            downs,
            requests,
            hangs,
            killer: killer.then(|| random.index(events)),
            first: if random.chance(500) { events } else { random.index(events + 1) },
            log,
        };
        (scenario, random)
    }
}

impl Component {
    fn new(executors: &[Limits], orders: &[bool], flaky: bool, options: &Options, random: &mut Random) -> Self {
        let mode = random.pick(&[CheckpointMode::Watermark, CheckpointMode::OnStart]);
        // Inline only, parallel only, or mixed.
        let inline = random.pick(&[1000, 0, 0, 0, 150, 400]);
        let handlers = random.between(1, NAMES as u64) as usize;
        let flakiness = if flaky { random.pick(&[0, 5, 30, 150]) } else { 0 };
        let undecodable = if flaky { random.pick(&[0, 0, 0, 20]) } else { 0 };
        let takes = random.pick(&[1, 500, 20_000]);
        let mut policies = Vec::new();
        let mut behaviours = Vec::new();
        for _ in 0..handlers {
            let index = random.index(executors.len());
            let run = if random.chance(inline) { Run::Inline } else { Run::Executor { index, ordered: orders[index] } };
            let budget = match random.below(4) {
                0 if run == Run::Inline => Budget::Forever,
                0 => Budget::Times(0),
                times => Budget::Times(times as u32),
            };
            let first = Duration::from_millis(random.pick(&[1, 20, 300]));
            policies.push(Policy {
                run,
                budget,
                backoff: Backoff { first, cap: first * random.pick(&[1, 4, 30]) },
                redeliver: random.chance(200),
            });
            behaviours.push(Behaviour {
                ordinary: random.below(flakiness + 1),
                transient: random.below(flakiness + 1),
                permanent: random.below(flakiness / 4 + 1),
                overrun: random.below(flakiness / 4 + 1),
                undecodable,
                takes,
            });
        }
        let routes: Vec<_> =
            (0..=NAMES).map(|name| (name < NAMES && random.chance(900)).then(|| random.index(handlers))).collect();
        let names = (0..NAMES).filter(|name| routes[*name].is_some());
        let config = Config {
            mode,
            routes: names.clone().filter_map(|name| Some((NAME[name].to_owned(), routes[name]?))).collect(),
            policies,
            executors: executors.to_vec(),
            start_ahead: if random.chance(150) { random.between(1, 3) as usize } else { 0 },
            max_open: MOST_OPEN,
            max_bytes: if random.chance(100) { 1000 } else { 8 << 20 },
            on_dead: if random.chance(250) { OnDead::Continue } else { OnDead::Park },
            cadence: Cadence {
                every: Duration::from_millis(random.pick(&[1, 100, 100])),
                events: random.pick(&[3, 50, 1000]),
                every_event: random.chance(100),
                skipped_every: Duration::from_secs(random.pick(&[1, 5])),
                max_unwritten: random.pick(&[5, 10_000]),
                overdue: Duration::from_secs(2),
            },
            max_crashes: MAX_CRASHES,
            names: names.map(|name| NAME[name].to_owned()).collect(),
            mutant: options.mutant,
        };
        Self { config, handlers: behaviours, routes, unfiltered: random.chance(200) }
    }
}

pub(super) const MAX_CRASHES: u32 = 3;
