//! Drives production engines through what a seed decides, a step at a time.

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
    ConsumerKey, Fault, Position, RecordedEvent,
    store::{Action, Commit, DeadEvent, Page, RequestId, RequestState, Revision, StoredRequest, Target},
};

use super::{
    Options,
    bits::Bits,
    history::{Check, History, Totals},
    random::Random,
    scenario::{self, Scenario},
    store::{Applied, ModelStore, wall},
};
use crate::{
    engine::{Engine, Failure, FailureKind, Job, Now, Outcome, Output, Read, Redelivery, SlotId, Start},
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

struct Entry {
    at: u64,
    order: u64,
    consumer: usize,
    what: What,
}

enum What {
    ReadPage(Position),
    Page(Page),
    PageFailed,
    Read(Read),
    Found(Read, Vec<Arc<RecordedEvent>>, Vec<DeadEvent>, bool),
    ReadFailed(Read),
    /// A write reaches the store; nobody waits for the answer of a `late` one.
    Write {
        commit: Box<Commit>,
        handled: Bits,
        late: bool,
    },
    Written(Applied),
    /// The write's outcome is unknown: its revision is read back.
    Resolve,
    Resolved(Revision),
    Returns {
        run: usize,
        returns: Returns,
    },
    /// What has ended reaches the engine.
    Flush,
    Wake,
    HeadMoved,
    Requests,
    CutOff,
}

#[derive(Clone, Copy, Debug)]
enum Returns {
    Handled,
    Failed(FailureKind),
    Kills,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

const MOST_STEPS: u64 = 400_000;
/// An hour.
const LONGEST: u64 = 3_600_000_000;

impl<'s> World<'s> {
    pub(super) fn new(scenario: &'s Scenario, random: Random, options: &Options) -> Self {
        let consumers = scenario.consumers.iter().map(|component| Consumer {
            store: ModelStore::default(),
            history: History::new(&scenario.log, component, &scenario.executors),
            process: None,
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
            let guard = (!clean).then_some(head);
            let mut engine = Engine::new(component.config.clone(), consumer.store.load(), guard, now);
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
            consumer.process = None;
            consumer.history.restart(&consumer.store, clean, head)?;
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

    // ---- what happens by itself

    /// Nothing is under way and no timer is set. Answers whether everything has come to its end.
    fn nothing_happens(&mut self) -> Check<bool> {
        let hangs = self.consumers.iter().any(|consumer| consumer.history.is_running());
        if self.stopping {
            if hangs {
                self.cut_off()?;
                return self.after_quiet();
            }
            return Err("stopping never ends".to_owned());
        }
        let paused = |consumer: &Consumer<'_>| consumer.process.as_ref().is_some_and(|process| process.paused);
        if let Some(consumer) = self.consumers.iter().position(paused) {
            self.resume(consumer)?;
            return Ok(false);
        }
        if hangs {
            for consumer in &self.consumers {
                if self.consumers.len() == 1
                    && let Some(waits) = consumer.history.is_kept_waiting(self.appended)
                {
                    let engine = consumer.process.as_ref().map(|process| &process.engine);
                    return Err(format!("{waits} does not go on beside attempts that never return: {engine:?}"));
                }
            }
            self.crash()?;
            return Ok(false);
        }
        if self.appended < self.scenario.log.events.len() {
            self.append();
            return Ok(false);
        }
        let head = self.head();
        for (index, consumer) in self.consumers.iter().enumerate() {
            if let Some(process) = &consumer.process
                && process.engine.settled_to() < head
            {
                return Err(format!(
                    "consumer {index} stands still: settled to {} of {head}, {:?}",
                    process.engine.settled_to(),
                    process.engine
                ));
            }
        }
        self.left = Left { crashes: 0, stops: 0, pauses: 0, outages: 0, downs: 0, requests: 0, hangs: 0 };
        self.ending = true;
        self.stop()?;
        self.after_quiet()
    }

    /// A stop may be done with at once.
    fn after_quiet(&mut self) -> Check<bool> {
        if !self.are_stopped() || !self.queue.is_empty() {
            return Ok(false);
        }
        if self.ending {
            self.end()?;
            return Ok(true);
        }
        self.restart()?;
        Ok(false)
    }

    fn something_goes_wrong(&mut self) -> Check {
        if self.appended < self.scenario.log.events.len() && self.random.chance(60) {
            self.append();
        }
        if !self.random.chance(20) {
            return Ok(());
        }
        let consumer = self.random.index(self.consumers.len());
        match self.random.below(12) {
            0 | 1 if self.left.crashes > 0 => {
                self.left.crashes -= 1;
                return self.crash();
            }
            2 if self.left.stops > 0 && !self.stopping => {
                self.left.stops -= 1;
                return self.stop();
            }
            3 if self.left.pauses > 0 => {
                self.left.pauses -= 1;
                self.say(format_args!("pause"));
                if let Some(process) = &mut self.consumers[consumer].process {
                    process.engine.pause();
                    process.paused = true;
                }
            }
            4 => return self.resume(consumer),
            5 if self.left.outages > 0 => {
                self.left.outages -= 1;
                self.store_down_until = self.now + self.random.below(3_000_000);
                self.say(format_args!("the store is down"));
            }
            6 if self.left.downs > 0 => {
                self.left.downs -= 1;
                let until = self.now + self.random.between(500_000, 10_000_000);
                let handler = self.random.index(self.consumers[consumer].down_until.len());
                self.consumers[consumer].down_until[handler] = until;
                self.say(format_args!("what handler {handler} of {consumer} depends on is down"));
            }
            7 | 8 if self.left.requests > 0 => self.request(consumer),
            9 => {
                let store = &mut self.consumers[consumer].store;
                if let Some(request) = store.requests.iter_mut().rev().find(|it| super::store::is_open(it)) {
                    request.state = RequestState::Stopped;
                    self.at(10, consumer, What::Requests);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn append(&mut self) {
        let more = self.random.between(1, 40) as usize;
        self.appended = (self.appended + more).min(self.scenario.log.events.len());
        for consumer in 0..self.consumers.len() {
            let delay = self.random.below(2_000);
            self.at(delay, consumer, What::HeadMoved);
        }
    }

    fn resume(&mut self, consumer: usize) -> Check {
        if let Some(process) = &mut self.consumers[consumer].process
            && process.paused
        {
            process.engine.resume();
            process.paused = false;
            return self.turn(consumer);
        }
        Ok(())
    }

    fn request(&mut self, consumer: usize) {
        let letters: Vec<_> = self.consumers[consumer].store.letters.values().cloned().collect();
        if letters.is_empty() {
            return;
        }
        self.left.requests -= 1;
        let letter = &letters[self.random.index(letters.len())];
        let target = match self.random.below(3) {
            0 => Target::Event(letter.position),
            1 => Target::Aggregate(letter.aggregate.clone()),
            _ => Target::Consumer,
        };
        let action = if self.random.chance(650) { Action::Retry } else { Action::Discard };
        self.say(format_args!("request: {action:?} {target:?}"));
        self.consumers[consumer].store.make_request(StoredRequest {
            id: RequestId(0),
            consumer: ConsumerKey {
                bundle: String::new(),
                kind: evento_core::Kind::Projector,
                name: String::new(),
                version: 1,
                context: String::new(),
            },
            action,
            target,
            total: 0,
            done: 0,
            failed: 0,
            at: Position::BEGINNING,
            state: RequestState::Pending,
            made_at: wall(self.now),
        });
        let delay = self.random.below(5_000);
        self.at(delay, consumer, What::Requests);
    }

    // ---- inputs

    fn handle(&mut self, consumer: usize, what: What) -> Check {
        self.idle = if matches!(what, What::Wake) { self.idle + 1 } else { 0 };
        if self.idle > 10_000 {
            return Err("timers go off and nothing happens".to_owned());
        }
        let is_down = self.now < self.store_down_until;
        let fails = is_down || self.random.chance(self.scenario.store_fails);
        // As production does, a call that failed is not repeated at once.
        let answers_in = self.latency() + if fails { 50_000 } else { 0 };
        match what {
            What::ReadPage(after) => {
                let page = self.page(consumer, after);
                let what = if fails { What::PageFailed } else { What::Page(page) };
                self.at(answers_in, consumer, what);
                return Ok(());
            }
            What::Read(read) => {
                let what = if fails { What::ReadFailed(read) } else { self.find(consumer, read) };
                self.at(answers_in, consumer, what);
                return Ok(());
            }
            What::Write { commit, handled, late } => return self.write(consumer, commit, handled, late, fails),
            What::Resolve => {
                let what = if fails { What::Resolve } else { What::Resolved(self.consumers[consumer].store.revision) };
                self.at(answers_in, consumer, what);
                return Ok(());
            }
            What::Returns { run, returns } => return self.returns(run, returns),
            What::CutOff => return self.cut_off(),
            _ => {}
        }
        if let (What::Found(_, events, letters, _), true) = (&what, self.trace.is_some()) {
            let found: Vec<_> = events.iter().map(|event| event.position().minor()).collect();
            let letters: Vec<_> = letters.iter().map(|letter| letter.position.minor()).collect();
            self.say(format_args!("{consumer}: found {found:?}, letters {letters:?}"));
        }
        let now = self.time(consumer);
        let open = if matches!(what, What::Requests) { self.consumers[consumer].store.open_requests() } else { vec![] };
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        let engine = &mut process.engine;
        match what {
            What::Page(page) => engine.page(page),
            What::PageFailed => engine.fetch_failed(),
            What::Found(read, events, letters, last) => match read {
                Read::At(asked) => engine.recovered(&asked, events, now),
                Read::Aggregate { .. } => engine.drained(&read, events, &letters, now),
                Read::Letters { request, .. } => engine.letters(request, letters, last),
                Read::Letter(position) => engine.redriven(position, events.into_iter().next(), now),
            },
            What::ReadFailed(read) => engine.read_failed(read),
            What::Written(Applied::Made(revision)) => engine.committed(revision, now),
            What::Written(Applied::Superseded { stored, replaced }) => {
                if stored != replaced.next() {
                    return Err(format!("a write that replaces {replaced} meets {stored}"));
                }
                engine.committed(stored, now);
            }
            What::Resolved(stored) => match engine.replaces() {
                Some(replaced) if stored == replaced.next() => engine.committed(stored, now),
                Some(replaced) if stored == replaced => engine.commit_failed(now),
                replaced => return Err(format!("the revision {stored} is stored, {replaced:?} is being replaced")),
            },
            What::Wake => process.wakes_at = None,
            What::HeadMoved => engine.head_moved(),
            What::Requests => engine.requests(&open),
            _ => {}
        }
        self.turn(consumer)
    }

    fn time(&self, consumer: usize) -> Now {
        let began = self.consumers[consumer].process.as_ref().map_or(0, |process| process.began);
        Now { since_start: Duration::from_micros(self.now - began), wall: wall(self.now) }
    }

    /// One turn with an engine, as the consumer's task and the workers take it.
    fn turn(&mut self, consumer: usize) -> Check {
        let now = self.time(consumer);
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        process.granted.store(false, Ordering::Relaxed);
        for Ended { slot, event, outcome, redelivery, last } in std::mem::take(&mut process.ended) {
            let random = self.random.next();
            self.consumers[consumer].history.report(event, &outcome, redelivery, random, self.now);
            let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
            process.engine.ended(slot, outcome, last, random, now);
        }
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        process.engine.admit(now).map_err(|problem| problem.to_string())?;
        for (index, grant) in process.grants.iter_mut().enumerate() {
            let (returned, wanted) = (process.engine.take_returned(index), process.engine.wants(index, now));
            if returned > grant.held() {
                return Err(format!("{returned} permits go back of {}", grant.held()));
            }
            process.engine.grant(index, grant.exchange(returned, wanted));
        }
        process.engine.dispatch(now, &mut process.out);
        for (index, grant) in process.grants.iter_mut().enumerate() {
            let unused = process.engine.take_returned(index);
            if unused > 0 {
                process.engine.grant(index, grant.exchange(unused, 0));
            }
            let counted = process.engine.executor_counts(index).in_flight;
            if grant.held() != counted {
                return Err(format!("{} permits are held and {counted} count as in flight", grant.held()));
            }
        }
        self.carry_out(consumer)?;
        // Others have been given permits that this one gave back.
        for other in 0..self.consumers.len() {
            let process = self.consumers[other].process.as_ref();
            if other != consumer && process.is_some_and(|process| process.granted.load(Ordering::Relaxed)) {
                self.turn(other)?;
            }
        }
        Ok(())
    }

    // ---- outputs

    fn carry_out(&mut self, consumer: usize) -> Check {
        let now = self.time(consumer);
        let Some(process) = &mut self.consumers[consumer].process else { return Ok(()) };
        let out = &mut process.out;
        let (commit, fetch, inline) = (out.commit.take(), out.fetch.take(), out.inline.take());
        let (reads, starts) = (std::mem::take(&mut out.reads), std::mem::take(&mut out.starts));
        let (wake_at, stopped) = (out.wake_at, process.engine.is_stopped());
        if let Some(wake_at) = wake_at
            && !stopped
        {
            if wake_at <= now.since_start {
                return Err(format!("consumer {consumer} spins: it wants to wake up at once, and has just been up"));
            }
            let at = process.began + wake_at.as_micros() as u64;
            if process.wakes_at.is_none_or(|set| at < set || set <= self.now) {
                process.wakes_at = Some(at);
                // Rounded up: before its time nothing is due.
                self.at(at + 1 - self.now, consumer, What::Wake);
            }
        }
        if let Some(commit) = commit {
            let Consumer { history, store, process: Some(process), .. } = &mut self.consumers[consumer] else {
                return Ok(());
            };
            let handled = match &process.writing {
                Some((replaces, handled)) if *replaces == commit.replaces => handled.clone(),
                _ => history.made(&commit, store)?,
            };
            process.writing = Some((commit.replaces, handled.clone()));
            let delay = self.latency();
            self.at(delay, consumer, What::Write { commit: Box::new(commit), handled, late: false });
        }
        if let Some(after) = fetch {
            self.ask(consumer, What::ReadPage(after));
        }
        for read in reads {
            self.say(format_args!("{consumer}: {read:?}"));
            self.ask(consumer, What::Read(read));
        }
        for start in inline.into_iter().chain(starts) {
            self.begin(consumer, start)?;
        }
        if self.steps.is_multiple_of(16)
            && let Consumer { process: Some(process), history, .. } = &self.consumers[consumer]
        {
            history.settled_to(process.engine.settled_to())?;
        }
        Ok(())
    }

    fn latency(&mut self) -> u64 {
        self.random.below(self.scenario.latency) + 1
    }

    /// Has something read, now or when the answer is there.
    fn ask(&mut self, consumer: usize, what: What) {
        let delay = if self.random.chance(500) { 0 } else { self.latency() };
        self.at(delay, consumer, what);
    }

    fn begin(&mut self, consumer: usize, start: Start) -> Check {
        let Consumer { process: Some(process), history, .. } = &mut self.consumers[consumer] else { return Ok(()) };
        if let Some(executor) = start.executor {
            history.decided(start.job.handler, executor, self.now)?;
        }
        let jobs = std::iter::once(start.job).chain(start.more);
        let jobs = jobs.map(|job| {
            let redelivery = process.engine.redelivery(job.slot);
            (job, redelivery)
        });
        let run = Attempts { consumer, executor: start.executor, jobs: jobs.collect(), next: 0, done: false };
        self.runs.push(run);
        if let Some(executor) = start.executor {
            self.running[executor] += 1;
            let capacity = self.scenario.executors[executor].capacity;
            if self.running[executor] > capacity {
                return Err(format!("executor {executor} runs {} of {capacity}", self.running[executor]));
            }
        }
        self.attempt(self.runs.len() - 1)
    }

    /// A handler begins: the next of its run.
    fn attempt(&mut self, run: usize) -> Check {
        let Attempts { consumer, executor, ref jobs, next, .. } = self.runs[run];
        let (job, redelivery) = &jobs[next];
        let (redelivery, handler, attempt) = (*redelivery, job.handler, job.attempt);
        let (position, event) = (job.event.position(), self.scenario.log.index(job.event.position()));
        self.say(format_args!(
            "{consumer}: start {position} of {} attempt {attempt} under {executor:?}{}",
            self.scenario.log.events[event].aggregate,
            if redelivery == Redelivery::No { "" } else { ", again" }
        ));
        let Consumer { history, store, down_until, .. } = &mut self.consumers[consumer];
        history.begin(event, attempt, redelivery, store, self.now)?;
        let behaviour = self.scenario.consumers[consumer].handlers[handler];
        let slow = if self.random.chance(30) { 20 } else { 1 };
        let takes = self.random.below(behaviour.takes * slow);
        if self.scenario.killer == Some(event) && redelivery != Redelivery::Dead {
            self.at(takes, consumer, What::Returns { run, returns: Returns::Kills });
            return Ok(());
        }
        if self.left.hangs > 0 && self.random.chance(5) {
            self.left.hangs -= 1;
            self.say(format_args!("{consumer}: {position} will never return"));
            return Ok(());
        }
        let roll = self.random.below(1000);
        let is_undecodable = (event as u64 * 7919) % 1000 < behaviour.undecodable;
        let mut upper = 0;
        let mut falls_in = |per_mille: u64| {
            upper += per_mille;
            roll < upper
        };
        let returns = if is_undecodable {
            Returns::Failed(FailureKind::Undecodable)
        } else if self.now < down_until[handler] {
            Returns::Failed(FailureKind::Handler(Fault::Transient))
        } else if falls_in(behaviour.ordinary) {
            Returns::Failed(FailureKind::Handler(Fault::Ordinary))
        } else if falls_in(behaviour.transient) {
            Returns::Failed(FailureKind::Handler(Fault::Transient))
        } else if falls_in(behaviour.permanent) {
            Returns::Failed(FailureKind::Handler(Fault::Permanent))
        } else if falls_in(behaviour.overrun) {
            Returns::Failed(FailureKind::Overrun)
        } else {
            Returns::Handled
        };
        self.at(takes, consumer, What::Returns { run, returns });
        Ok(())
    }

    /// A handler returns.
    fn returns(&mut self, run: usize, returns: Returns) -> Check {
        if self.runs[run].done {
            return Ok(());
        }
        let outcome = match returns {
            Returns::Handled => Outcome::Handled,
            Returns::Failed(kind) => Outcome::Failed(Failure { kind, cause: vec![] }),
            Returns::Kills => {
                self.killed = true;
                return Ok(());
            }
        };
        let handled = matches!(outcome, Outcome::Handled);
        self.ended(run, outcome);
        let Attempts { consumer, ref jobs, ref mut next, .. } = self.runs[run];
        if handled && *next + 1 < jobs.len() {
            *next += 1;
            self.attempt(run)?;
        } else {
            self.runs[run].done = true;
        }
        match self.random.below(4) {
            // A worker keeps a few to itself.
            0 => {
                let delay = self.random.below(3_000);
                self.at(delay, consumer, What::Flush);
                Ok(())
            }
            _ => self.turn(consumer),
        }
    }

    fn ended(&mut self, run: usize, outcome: Outcome) {
        let Attempts { consumer, executor, ref jobs, next, .. } = self.runs[run];
        let last = next + 1 == jobs.len() || !matches!(outcome, Outcome::Handled);
        let (job, redelivery) = &jobs[next];
        let (position, redelivery, slot) = (job.event.position(), *redelivery, job.slot);
        let event = self.scenario.log.index(position);
        let kind = match &outcome {
            Outcome::Failed(failure) => Some(failure.kind),
            _ => None,
        };
        self.say(format_args!(
            "{consumer}: end {position} {}",
            match kind {
                Some(kind) => format!("{kind:?}"),
                None => format!("{outcome:?}"),
            }
        ));
        let of = &mut self.consumers[consumer];
        of.history.returned(event, &outcome);
        if let Some(process) = &mut of.process {
            process.ended.push(Ended { slot, event, outcome, redelivery, last });
        }
        if let Some(executor) = executor.filter(|_| last) {
            self.running[executor] -= 1;
        }
    }

    // ---- the store

    fn page(&self, consumer: usize, after: Position) -> Page {
        let component = &self.scenario.consumers[consumer];
        let log = &self.scenario.log;
        let mut page = Page { head: self.head(), ..Page::default() };
        let from = log.up_to(after).min(self.appended);
        for logged in &log.events[from..self.appended] {
            if component.routes[logged.name].is_none() && !component.unfiltered {
                continue;
            }
            if page.events.len() == self.scenario.page_size {
                break;
            }
            page.events.push(Arc::clone(&logged.event));
        }
        let last = page.events.last().map(|event| event.position());
        page.scanned_to = match last {
            Some(last) if page.events.len() == self.scenario.page_size => last,
            _ => page.head.max(after),
        };
        page
    }

    fn find(&self, consumer: usize, read: Read) -> What {
        let log = &self.scenario.log;
        let routes = &self.scenario.consumers[consumer].routes;
        let store = &self.consumers[consumer].store;
        let event = |position: &Position| Some(Arc::clone(&log.events.get(log.index(*position))?.event));
        let (mut events, mut letters, mut last) = (vec![], vec![], false);
        match &read {
            Read::At(positions) => events.extend(positions.iter().filter_map(event)),
            Read::Letter(position) => events.extend(event(position)),
            Read::Aggregate { aggregate, after, until, max, .. } => {
                let of: usize = aggregate.id().parse().unwrap_or_default();
                let between =
                    log.events[..log.up_to(*until).min(self.appended)].get(log.up_to(*after)..).unwrap_or_default();
                let matching = between.iter().filter(|it| it.aggregate == of && routes[it.name].is_some());
                events.extend(matching.take(*max).map(|it| Arc::clone(&it.event)));
                letters = store.letters_of(&Target::Aggregate(aggregate.clone()), *after, usize::MAX).0;
            }
            Read::Letters { target, after, .. } => {
                (letters, last) = store.letters_of(target, *after, self.scenario.letters_page);
            }
        }
        What::Found(read, events, letters, last)
    }

    fn write(&mut self, consumer: usize, commit: Box<Commit>, handled: Bits, late: bool, fails: bool) -> Check {
        if late {
            self.apply(consumer, *commit, &handled)?;
            return Ok(());
        }
        let answers_in = self.latency();
        if !fails {
            let applied = self.apply(consumer, *commit, &handled)?;
            self.at(answers_in, consumer, What::Written(applied));
            return Ok(());
        }
        match self.random.below(3) {
            0 => {}
            // Made, and the answer is lost.
            1 => {
                self.apply(consumer, *commit, &handled)?;
            }
            // Still on its way when the connection is given up.
            _ => {
                let delay = self.random.below(400_000);
                self.at(delay, consumer, What::Write { commit, handled, late: true });
            }
        }
        self.at(answers_in, consumer, What::Resolve);
        Ok(())
    }

    fn apply(&mut self, consumer: usize, commit: Commit, handled: &Bits) -> Check<Applied> {
        let said = self.trace.is_some().then(|| shown(&commit));
        let dead: Vec<_> = commit.dead.iter().map(|letter| letter.position).collect();
        let Consumer { store, history, .. } = &mut self.consumers[consumer];
        let applied = store.apply(commit)?;
        if let Applied::Made(_) = applied {
            let checked = history.stored(&dead, handled, store);
            if let Some(said) = said {
                self.say(format_args!("{consumer}: stored {said}"));
            }
            checked?;
        }
        Ok(applied)
    }
}

/// A write, without what is empty.
fn shown(commit: &Commit) -> String {
    use std::fmt::Write;
    let mut said = format!("{} frontier {}", commit.replaces.next(), commit.frontier);
    let mut say = |name: &str, positions: Vec<String>| {
        if !positions.is_empty() {
            write!(said, ", {name} {}", positions.join(" ")).unwrap_or_default();
        }
    };
    say("opened", commit.opened.iter().map(ToString::to_string).collect());
    say("closed", commit.closed.iter().map(ToString::to_string).collect());
    say("held", commit.held.iter().map(|it| format!("{}:{}:{:?}", it.aggregate.id(), it.from, it.why)).collect());
    say("released", commit.released.iter().map(|it| it.id().to_owned()).collect());
    say("retries", commit.retries.iter().map(|it| it.position.to_string()).collect());
    say("retries ended", commit.retries_ended.iter().map(ToString::to_string).collect());
    say("started", commit.started.iter().map(|it| format!("{}:{}", it.position, it.crashes)).collect());
    say("started ended", commit.started_ended.iter().map(ToString::to_string).collect());
    say("dead", commit.dead.iter().map(|it| it.position.to_string()).collect());
    say("dead ended", commit.dead_ended.iter().map(ToString::to_string).collect());
    said
}
