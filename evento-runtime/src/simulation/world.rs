//! Drives production engines through what a seed decides, a step at a time.

mod answer;
mod attempt;
mod chance;
mod entry;
mod turn;

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fmt::Arguments,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use evento_core::{
    ConsumerKey, Fault, Position,
    store::{Commit, DeadPosition, Page, Revision, Selection, Target},
};

use self::entry::{Entry, Found, Returns, What};
use super::{
    Options,
    bits::Bits,
    history::{Check, History, Totals},
    random::Random,
    scenario::{self, Scenario},
    store::{Applied, ModelStore, wall},
};
use crate::{
    engine::{
        Engine, Failure, FailureKind, Job, Memory, Now, Outcome, Output, Read, Redelivery, SlotId, Start, Taking,
    },
    executor::{Grant, Permits},
};

/// Everything that runs under one seed.
pub(super) struct World<'s> {
    scenario: &'s Scenario,
    random: Random,
    /// In microseconds.
    now: u64,
    queue: BinaryHeap<Reverse<Entry>>,
    made: u64,
    consumers: Vec<Consumer<'s>>,
    permits: Vec<Arc<Permits>>,
    runs: Vec<Attempts>,
    /// How many handlers run, by executor.
    running: Vec<usize>,
    appended: usize,
    store_down_until: u64,
    left: Left,
    stopping: bool,
    ending: bool,
    /// A handler has killed the process.
    killed: bool,
    /// Timers in a row, with nothing else in between.
    idle: u32,
    pub(super) steps: u64,
    pub(super) crashes: u64,
    pub(super) trace: Option<Vec<String>>,
}

/// What may still go wrong.
struct Left {
    crashes: u32,
    stops: u32,
    pauses: u32,
    outages: u32,
    downs: u32,
    requests: u32,
    hangs: u32,
}

struct Consumer<'s> {
    store: ModelStore,
    history: History<'s>,
    process: Option<Process>,
    /// Whether the next process is to record starts before they run.
    guards: bool,
    /// What each handler depends on is down until then.
    down_until: Vec<u64>,
}

/// A consumer in a living process.
struct Process {
    engine: Engine,
    out: Output,
    grants: Vec<Grant>,
    granted: Arc<AtomicBool>,
    /// When the next turn is taken at the latest.
    wakes_at: Option<u64>,
    began: u64,
    ended: Vec<Ended>,
    /// The last write that was asked for, and what was known to be handled then.
    writing: Option<(Revision, Bits)>,
    paused: bool,
}

struct Ended {
    slot: SlotId,
    event: usize,
    outcome: Outcome,
    redelivery: Redelivery,
    last: bool,
}

/// The attempts of one permit.
struct Attempts {
    consumer: usize,
    executor: Option<usize>,
    jobs: Vec<(Job, Redelivery)>,
    next: usize,
    done: bool,
}

const MOST_STEPS: u64 = 4_000_000;
/// An hour.
const LONGEST: u64 = 3_600_000_000;

impl<'s> World<'s> {
    pub(super) fn new(scenario: &'s Scenario, random: Random, options: &Options) -> Self {
        let consumers = scenario.consumers.iter().map(|component| Consumer {
            store: ModelStore::default(),
            history: History::new(&scenario.log, component, &scenario.executors),
            process: None,
            guards: false,
            down_until: vec![0; component.handlers.len()],
        });
        Self {
            scenario,
            random,
            now: 0,
            queue: BinaryHeap::new(),
            made: 0,
            consumers: consumers.collect(),
            permits: scenario.executors.iter().map(|limits| Permits::new(limits.capacity)).collect(),
            runs: Vec::new(),
            running: vec![0; scenario.executors.len()],
            appended: scenario.first,
            store_down_until: 0,
            left: Left {
                crashes: scenario.crashes,
                stops: scenario.stops,
                pauses: scenario.pauses,
                outages: scenario.outages,
                downs: scenario.downs,
                requests: scenario.requests,
                hangs: scenario.hangs,
            },
            stopping: false,
            ending: false,
            killed: false,
            idle: 0,
            steps: 0,
            crashes: 0,
            trace: options.trace.then(Vec::new),
        }
    }

    pub(super) fn totals(&self) -> impl Iterator<Item = Totals> {
        self.consumers.iter().map(|consumer| consumer.history.totals)
    }

    fn say(&mut self, what: Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            let (seconds, micros) = (self.now / 1_000_000, self.now % 1_000_000);
            trace.push(format!("{seconds:>4}.{micros:06} {what}"));
        }
    }

    /// Runs to the end.
    pub(super) fn run(&mut self) -> Check {
        let scenario = self.scenario;
        self.say(format_args!("executors: {:?}", scenario.executors));
        for (index, component) in scenario.consumers.iter().enumerate() {
            let config = &component.config;
            self.say(format_args!("{index}: {:?} {:?} {:?}", config.mode, config.on_dead, config.cadence));
            for (handler, policy) in config.policies.iter().enumerate() {
                let names = scenario::NAME.iter().zip(&component.routes).filter(|(_, to)| **to == Some(handler));
                let names: Vec<_> = names.map(|(name, _)| name).collect();
                self.say(format_args!("{index}: handler {handler} takes {names:?}: {policy:?}"));
            }
        }
        self.start(true)?;
        loop {
            if self.steps > MOST_STEPS || self.now > LONGEST {
                return Err(format!("no end after {} steps and {} s", self.steps, self.now / 1_000_000));
            }
            let Some(Reverse(entry)) = self.queue.pop() else {
                if self.nothing_happens()? {
                    return Ok(());
                }
                continue;
            };
            self.steps += 1;
            self.now = self.now.max(entry.at);
            self.handle(entry.consumer, entry.what)?;
            if self.killed {
                self.crash()?;
            }
            self.something_goes_wrong()?;
            if self.stopping && self.are_stopped() {
                if self.ending {
                    return self.end();
                }
                self.restart()?;
            }
        }
    }

    fn at(&mut self, delay: u64, consumer: usize, what: What) {
        self.made += 1;
        self.queue.push(Reverse(Entry { at: self.now + delay, order: self.made, consumer, what }));
    }

    // ---- processes

    fn start(&mut self, clean: bool) -> Check {
        let head = self.head();
        for (index, consumer) in self.consumers.iter_mut().enumerate() {
            let component = &self.scenario.consumers[index];
            let granted = Arc::new(AtomicBool::new(false));
            let grants = self.permits.iter().map(|permits| {
                let granted = Arc::clone(&granted);
                permits.join(Box::new(move || granted.store(true, Ordering::Relaxed)))
            });
            let grants = grants.collect();
            let now = Now { since_start: Duration::ZERO, wall: wall(self.now) };
            let guards = consumer.guards;
            let taking = Taking { guard_until: guards.then_some(head), died: guards, memory: Memory::default() };
            let mut engine = Engine::new(component.config.clone(), consumer.store.load(), taking, now);
            engine.requests(&consumer.store.open_requests());
            consumer.process = Some(Process {
                engine,
                out: Output::default(),
                grants,
                granted,
                wakes_at: None,
                began: self.now,
                ended: Vec::new(),
                writing: None,
                paused: false,
            });
        }
        self.stopping = false;
        self.say(format_args!("a process starts, {}", if clean { "clean" } else { "after a crash" }));
        for consumer in 0..self.consumers.len() {
            self.turn(consumer)?;
        }
        Ok(())
    }

    fn head(&self) -> Position {
        self.appended.checked_sub(1).map_or(Position::BEGINNING, |last| self.scenario.log.events[last].position)
    }

    /// `kill -9`: writes under way are made or are not.
    fn crash(&mut self) -> Check {
        self.killed = false;
        self.crashes += 1;
        self.say(format_args!("kill -9"));
        while let Some(Reverse(entry)) = self.queue.pop() {
            if let What::Write { commit, handled, .. } = entry.what
                && self.random.chance(500)
            {
                self.apply(entry.consumer, *commit, &handled)?;
            }
        }
        self.replace(false)
    }

    fn restart(&mut self) -> Check {
        self.say(format_args!("stopped"));
        self.queue.clear();
        self.replace(true)
    }

    fn replace(&mut self, clean: bool) -> Check {
        self.bury(clean)?;
        self.now += self.random.below(2_000_000);
        self.start(clean)
    }

    /// Ends the process. Every permit is back then.
    fn bury(&mut self, clean: bool) -> Check {
        self.runs.clear();
        self.running.fill(0);
        let head = self.head();
        for consumer in &mut self.consumers {
            if let Some(process) = &consumer.process
                && clean
                && process.grants.iter().any(|grant| grant.held() > 0)
            {
                return Err("a consumer that has stopped still holds permits".to_owned());
            }
            let process = consumer.process.take();
            consumer.guards = !clean || process.is_some_and(|process| process.engine.guards());
            consumer.history.restart(&consumer.store, clean, consumer.guards.then_some(head))?;
        }
        match self.permits.iter().find(|permits| permits.in_use() > 0) {
            Some(permits) => Err(format!("permits are gone: {permits:?}")),
            None => Ok(()),
        }
    }

    fn are_stopped(&self) -> bool {
        self.consumers.iter().all(|consumer| consumer.process.as_ref().is_some_and(|it| it.engine.is_stopped()))
    }

    fn stop(&mut self) -> Check {
        self.say(format_args!("stop"));
        self.stopping = true;
        for consumer in 0..self.consumers.len() {
            if let Some(process) = &mut self.consumers[consumer].process {
                process.engine.stop();
            }
            self.turn(consumer)?;
        }
        if self.random.chance(500) {
            let budget = self.random.below(100_000);
            self.at(budget, 0, What::CutOff);
        }
        Ok(())
    }

    /// The shutdown's budget is spent: every attempt is cut off.
    fn cut_off(&mut self) -> Check {
        if !self.stopping {
            return Ok(());
        }
        self.say(format_args!("cut off"));
        for run in 0..self.runs.len() {
            if !self.runs[run].done {
                self.runs[run].done = true;
                self.ended(run, Outcome::CutOff);
            }
        }
        for consumer in 0..self.consumers.len() {
            self.turn(consumer)?;
        }
        Ok(())
    }

    fn end(&mut self) -> Check {
        self.bury(true)?;
        self.consumers.iter().try_for_each(|consumer| consumer.history.end(&consumer.store))
    }

    // ---- inputs

    // ---- the store
}
