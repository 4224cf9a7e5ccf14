//! What has happened, and whether it may have.

use evento_core::{
    CheckpointMode, Fault, OnDead, Position,
    store::{Action, Commit, DeadReason, StoredRequest, Target},
};

use super::{
    bits::{Bits, below},
    scenario::{Component, Log, MAX_CRASHES},
    store::ModelStore,
};
use crate::engine::{Budget, FailureKind, Limits, Outcome, Policy, Redelivery, Run};

pub(super) type Check<T = ()> = Result<T, String>;

/// What happened to the events of one consumer.
#[derive(Debug)]
pub(super) struct History<'s> {
    log: &'s Log,
    component: &'s Component,
    limits: &'s [Limits],
    events: Vec<Happened>,
    /// Events that a handler takes.
    taken: Bits,
    inline: Bits,
    /// Inline or partitioned: in the order of their aggregate.
    sequenced: Bits,
    under: Vec<Bits>,
    of: Vec<Bits>,
    /// Of those taken: neither handled, nor a durable letter, nor lost, nor discarded.
    unsettled: Bits,
    /// The engine knows that they are handled.
    reported: Bits,
    /// Lost to a crash, as `OnStart` allows.
    lost: Bits,
    /// Settled for good when this life began.
    finals: Bits,
    /// By aggregate: the dead event that its later ones are parked behind.
    parked_behind: Vec<Option<usize>>,
    /// By aggregate: the first dead event. What was parked behind it is beside the stream for ever.
    was_parked: Vec<usize>,
    running: Vec<(usize, Redelivery)>,
    breakers: Vec<Breaker>,
    life: u32,
    guard: Position,
    pub(super) totals: Totals,
}

/// Counts of what happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) starts: u64,
    pub(super) handled: u64,
    pub(super) lost: u64,
    pub(super) repeated: u64,
    pub(super) dead: u64,
    pub(super) redelivered: u64,
    pub(super) killed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Happened {
    /// The process in which a handler returned success last; from 1.
    handled_in: u32,
    attempts: u32,
    spent: u32,
    /// The next attempt is not to start before.
    due: u64,
    /// The greatest attempt that was begun.
    begun: u32,
    dead: Option<DeadReason>,
    kills: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Breaker {
    failures: u32,
    opened_at: Option<u64>,
    starts: usize,
}

impl<'s> History<'s> {
    pub(super) fn new(log: &'s Log, component: &'s Component, limits: &'s [Limits]) -> Self {
        let events = log.events.len();
        let mut history = Self {
            log,
            component,
            limits,
            events: vec![Happened::default(); events],
            taken: Bits::new(events),
            inline: Bits::new(events),
            sequenced: Bits::new(events),
            under: vec![Bits::new(events); limits.len()],
            of: vec![Bits::new(events); log.aggregates.len()],
            unsettled: Bits::new(events),
            reported: Bits::new(events),
            lost: Bits::new(events),
            finals: Bits::new(events),
            parked_behind: vec![None; log.aggregates.len()],
            was_parked: vec![usize::MAX; log.aggregates.len()],
            running: Vec::new(),
            breakers: vec![Breaker::default(); component.handlers.len()],
            life: 1,
            guard: Position::BEGINNING,
            totals: Totals::default(),
        };
        for event in 0..events {
            history.of[log.events[event].aggregate].insert(event);
            let Some(policy) = history.policy(event) else { continue };
            history.taken.insert(event);
            history.unsettled.insert(event);
            match policy.run {
                Run::Inline => {
                    history.inline.insert(event);
                    history.sequenced.insert(event);
                }
                Run::Executor { index, ordered } => {
                    history.under[index].insert(event);
                    history.sequenced.put(event, ordered);
                }
            }
        }
        history
    }

    fn policy(&self, event: usize) -> Option<&'s Policy> {
        let handler = self.component.routes[self.log.events[event].name]?;
        Some(&self.component.config.policies[handler])
    }

    fn at(&self, event: usize) -> Position {
        self.log.events[event].position
    }

    /// The event and its aggregate.
    fn named(&self, event: usize) -> String {
        format!("{} of {}", self.at(event), self.log.events[event].aggregate)
    }

    fn on_start(&self) -> bool {
        self.component.config.mode == CheckpointMode::OnStart
    }

    /// Whether the checkpoint counts the event as passed once it starts.
    fn passes_at_start(&self, event: usize) -> bool {
        self.on_start() && !self.inline.contains(event)
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    // ---- attempts

    /// A start under an executor has come out of the engine.
    pub(super) fn decided(&mut self, handler: usize, executor: usize, now: u64) -> Check {
        let breaker = &mut self.breakers[handler];
        let Some(opened_at) = breaker.opened_at else { return Ok(()) };
        breaker.starts += 1;
        let mut allowed =
            if self.on_start() || self.guard > Position::BEGINNING { self.limits[executor].capacity } else { 0 };
        let (mut probe, mut delay) = (opened_at + 500_000, 1_000_000);
        while probe <= now {
            allowed += 1;
            probe += delay;
            delay = (delay * 2).min(30_000_000);
        }
        if self.breakers[handler].starts > allowed {
            return Err(format!(
                "{} attempts of handler {handler} although its breaker opened at {opened_at}",
                self.breakers[handler].starts
            ));
        }
        Ok(())
    }

    /// A handler begins.
    pub(super) fn begin(
        &mut self,
        event: usize,
        attempt: u32,
        redelivery: Redelivery,
        store: &ModelStore,
        now: u64,
    ) -> Check {
        let at = self.at(event);
        let aggregate = self.log.events[event].aggregate;
        self.totals.starts += 1;
        if !self.taken.contains(event) {
            return Err(format!("{at} is started although no handler takes it"));
        }
        if self.running.iter().any(|(it, _)| *it == event) {
            return Err(format!("{at} runs twice at once"));
        }
        match redelivery {
            Redelivery::Dead => {
                self.totals.redelivered += 1;
                if !store.letters.contains_key(&at) {
                    return Err(format!("{at} is handled again as a dead event and has no letter"));
                }
            }
            Redelivery::Parked if self.was_parked[aggregate] >= event => {
                return Err(format!("{at} counts as released and was never parked"));
            }
            Redelivery::Parked | Redelivery::No => self.may_begin(event, attempt, redelivery, store, now)?,
        }
        if self.sequenced.contains(event) {
            let beside = self
                .running
                .iter()
                .find(|(it, _)| self.sequenced.contains(*it) && self.log.events[*it].aggregate == aggregate);
            if let Some((beside, _)) = beside {
                return Err(format!("{at} runs beside {} of its aggregate", self.at(*beside)));
            }
        }
        if redelivery == Redelivery::Dead {
            // Its crashes are counted anew for each request.
            self.events[event].kills = 0;
        }
        let happened = self.events[event];
        let alone = self.running.iter().find(|(it, _)| self.events[*it].kills >= 2 || happened.kills >= 2);
        if let Some((beside, _)) = alone {
            return Err(format!("{at} runs beside {}, and one of them killed two processes", self.at(*beside)));
        }
        if happened.kills >= MAX_CRASHES {
            return Err(format!("{at} is started although {} processes died at it", happened.kills));
        }
        if at <= self.guard && (!self.on_start() || self.inline.contains(event)) {
            match store.started.get(&at) {
                None => return Err(format!("{at} is started and that is not recorded, after a crash")),
                Some(started) if started.crashes != happened.kills && redelivery != Redelivery::Dead => {
                    return Err(format!(
                        "{at} has {} crashes on record and {} happened",
                        started.crashes, happened.kills
                    ));
                }
                Some(_) => {}
            }
        }
        self.totals.repeated += u64::from(happened.handled_in > 0 && redelivery == Redelivery::No);
        self.events[event].begun = happened.begun.max(attempt);
        self.running.push((event, redelivery));
        Ok(())
    }

    fn may_begin(&mut self, event: usize, attempt: u32, redelivery: Redelivery, store: &ModelStore, now: u64) -> Check {
        let (at, happened) = (self.at(event), self.events[event]);
        let aggregate = self.log.events[event].aggregate;
        if self.finals.contains(event) {
            return Err(format!("{at} is handled again although the checkpoint had passed it"));
        }
        if happened.handled_in == self.life {
            return Err(format!("{at} is handled twice by one process"));
        }
        if let Some(reason) = happened.dead {
            return Err(format!("{at} is started although it is dead: {reason}"));
        }
        if attempt != happened.attempts + 1 {
            return Err(format!("{at} has attempt {attempt} after {} that ended", happened.attempts));
        }
        if self.passes_at_start(event) {
            if attempt <= happened.begun {
                return Err(format!("attempt {attempt} of {at} is made again under OnStart"));
            }
            if !self.passed(store).contains(event) {
                return Err(format!("{at} is started before that is recorded"));
            }
        }
        if attempt > 1 {
            let stored = store.retries.get(&at).map(|retry| retry.attempts);
            if stored != Some(attempt - 1) {
                return Err(format!("attempt {attempt} of {at} starts and {stored:?} attempts are stored"));
            }
            if now < happened.due {
                return Err(format!("attempt {attempt} of {at} starts before it is due, at {}", happened.due));
            }
        }
        if self.sequenced.contains(event) {
            let mut earlier = below(event, |word| {
                self.unsettled.word(word) & self.of[aggregate].word(word) & self.sequenced.word(word)
            });
            if let Some(earlier) = earlier.next() {
                return Err(format!("{at} is started before {} of its aggregate has settled", self.at(earlier)));
            }
            let dead = self.parked_behind[aggregate].filter(|dead| *dead < event);
            if let Some(dead) = dead
                && !self.is_being_discarded(dead, store)
            {
                return Err(format!("{at} is started although {} of its aggregate is dead", self.at(dead)));
            }
        }
        if redelivery == Redelivery::No && !self.is_beside_the_stream(event) {
            self.stands_no_barrier(event)?;
        }
        Ok(())
    }

    fn is_beside_the_stream(&self, event: usize) -> bool {
        self.sequenced.contains(event) && self.was_parked[self.log.events[event].aggregate] < event
    }

    fn stands_no_barrier(&self, event: usize) -> Check {
        let is_inline = self.inline.contains(event);
        let before =
            below(event, |word| self.unsettled.word(word) & if is_inline { u64::MAX } else { self.inline.word(word) });
        for earlier in before {
            if !self.is_beside_the_stream(earlier) {
                let what = if is_inline { "inline" } else { "past an inline event" };
                return Err(format!("{} runs {what} before {} has settled", self.at(event), self.at(earlier)));
            }
        }
        let beside = self.running.iter().find(|(it, redelivery)| {
            *redelivery == Redelivery::No && !self.is_beside_the_stream(*it) && (is_inline || self.inline.contains(*it))
        });
        match beside {
            Some((beside, _)) => Err(format!("{} runs beside {}, and one is inline", self.at(event), self.at(*beside))),
            None => Ok(()),
        }
    }

    /// A handler has returned, or was cut off.
    pub(super) fn returned(&mut self, event: usize, outcome: &Outcome) {
        self.running.retain(|(it, _)| *it != event);
        if matches!(outcome, Outcome::Handled) {
            self.totals.handled += 1;
            self.events[event].handled_in = self.life;
            self.unsettled.remove(event);
            let parked_behind = &mut self.parked_behind[self.log.events[event].aggregate];
            if *parked_behind == Some(event) {
                *parked_behind = None;
            }
        }
    }

    /// The engine learns how an attempt ended.
    pub(super) fn report(&mut self, event: usize, outcome: &Outcome, redelivery: Redelivery, random: u64, now: u64) {
        let Some(handler) = self.component.routes[self.log.events[event].name] else { return };
        let policy = &self.component.config.policies[handler];
        match outcome {
            Outcome::Handled => {
                self.breakers[handler] = Breaker::default();
                if redelivery != Redelivery::Dead {
                    self.reported.insert(event);
                }
            }
            Outcome::CutOff => {
                if redelivery != Redelivery::Dead && self.passes_at_start(event) {
                    self.events[event].dead = Some(DeadReason::AbandonedAtShutdown);
                }
            }
            Outcome::Failed(failure) => {
                let transient = matches!(failure.kind, FailureKind::Handler(Fault::Transient) | FailureKind::Overrun);
                let breaker = &mut self.breakers[handler];
                // Only a transient failure has the next probe wait longer.
                breaker.starts = breaker.starts.saturating_sub(usize::from(!transient));
                if transient {
                    breaker.failures += 1;
                    if breaker.failures == 5 {
                        breaker.opened_at = Some(now);
                    }
                }
                if redelivery != Redelivery::Dead {
                    self.failed(event, failure.kind, policy, random, now);
                }
            }
        }
    }

    fn failed(&mut self, event: usize, kind: FailureKind, policy: &Policy, random: u64, now: u64) {
        let spends = self.passes_at_start(event) && !policy.redeliver;
        let happened = &mut self.events[event];
        happened.attempts += 1;
        let (reason, spent) = match kind {
            FailureKind::Undecodable => (Some(DeadReason::Undecodable), 0),
            FailureKind::TooLarge => (Some(DeadReason::TooLarge), 0),
            FailureKind::Handler(Fault::Permanent) => (Some(DeadReason::Failed), 0),
            FailureKind::Handler(Fault::Transient) => (None, u32::from(spends)),
            FailureKind::Handler(Fault::Ordinary) | FailureKind::Overrun => (None, 1),
        };
        happened.spent += spent;
        let is_spent = spent > 0 && matches!(policy.budget, Budget::Times(more) if happened.spent > more);
        let reason = reason.or(is_spent.then_some(DeadReason::Failed));
        let delay = policy.backoff.delay(happened.attempts, random);
        happened.due = now + delay.as_micros() as u64;
        if let Some(reason) = reason {
            self.dies(event, reason);
        }
    }

    fn dies(&mut self, event: usize, reason: DeadReason) {
        self.events[event].dead = Some(reason);
        if self.sequenced.contains(event)
            && self.component.config.on_dead == OnDead::Park
            && reason != DeadReason::AbandonedAtShutdown
        {
            let aggregate = self.log.events[event].aggregate;
            let first = self.parked_behind[aggregate].map_or(event, |dead| dead.min(event));
            self.parked_behind[aggregate] = Some(first);
            self.was_parked[aggregate] = self.was_parked[aggregate].min(event);
        }
    }

    // ---- writes

    /// The engine wants a write; answers what it knows to be handled.
    pub(super) fn made(&mut self, commit: &Commit, store: &ModelStore) -> Check<Bits> {
        for letter in &commit.dead {
            let event = self.log.index(letter.position);
            let happened = self.events[event];
            if store.letters.contains_key(&letter.position) {
                continue;
            }
            if letter.reason == DeadReason::KilledTheProcess {
                if happened.kills < MAX_CRASHES {
                    return Err(format!("{} is given up after {} crashes", letter.position, happened.kills));
                }
                self.totals.killed += 1;
                self.dies(event, letter.reason);
            } else if happened.dead != Some(letter.reason) {
                return Err(format!(
                    "{} is given up as {} and is {:?}: {} attempts, {} spent",
                    letter.position, letter.reason, happened.dead, happened.attempts, happened.spent
                ));
            } else if letter.attempts != happened.attempts {
                return Err(format!(
                    "{} is given up after {} attempts, not {}",
                    letter.position, letter.attempts, happened.attempts
                ));
            }
        }
        for retry in &commit.retries {
            let event = self.log.index(retry.position);
            let happened = self.events[event];
            let policy = self.policy(event);
            let due = super::store::wall(happened.due).0;
            let early = policy.is_none_or(|_| (retry.not_before.0 - due).abs() > 1);
            if (retry.attempts, retry.spent) != (happened.attempts, happened.spent) || early {
                return Err(format!("{retry:?} is stored, and {happened:?} is so"));
            }
        }
        for position in &commit.dead_ended {
            let event = self.log.index(*position);
            if self.events[event].handled_in == 0 && !self.is_being_discarded(event, store) {
                return Err(format!("the letter of {position} goes, and it was neither handled nor discarded"));
            }
            let aggregate = self.log.events[event].aggregate;
            if self.parked_behind[aggregate] == Some(event) {
                self.parked_behind[aggregate] = None;
            }
        }
        // A parked event begins anew once it is released.
        for position in commit.started_ended.iter().chain(&commit.retries_ended) {
            let event = self.log.index(*position);
            if self.is_parked(event) {
                self.events[event] = Happened { handled_in: self.events[event].handled_in, ..Happened::default() };
            }
        }
        Ok(self.reported.clone())
    }

    /// A write has been applied: would a crash now lose or repeat what it must not?
    pub(super) fn stored(&mut self, dead: &[Position], reported: &Bits, store: &ModelStore) -> Check {
        for position in dead {
            let event = self.log.index(*position);
            self.unsettled.remove(event);
            self.events[event].kills = 0;
            self.totals.dead += 1;
        }
        let passed = self.passed(store);
        let end = self.events.len();
        let inline_only = self.on_start();
        let unhandled = |word: usize| passed.word(word) & self.unsettled.word(word);
        let mut lost = below(end, |word| unhandled(word) & if inline_only { self.inline.word(word) } else { u64::MAX });
        if let Some(lost) = lost.next() {
            return Err(format!("the checkpoint has passed {}, which has not settled", self.named(lost)));
        }
        if inline_only {
            for (index, under) in self.under.iter().enumerate() {
                let exposed = || below(end, |word| unhandled(word) & under.word(word));
                let bound = self.limits[index].capacity + self.component.config.start_ahead;
                if exposed().count() > bound {
                    let exposed: Vec<_> = exposed().map(|event| self.named(event)).collect();
                    return Err(format!("a crash now would lose {exposed:?} of executor {index}, not {bound} events"));
                }
            }
        }
        let mut again = below(end, |word| reported.word(word) & !passed.word(word));
        if let Some(again) = again.next() {
            return Err(format!("{} had settled before the write, which does not say so", self.at(again)));
        }
        Ok(())
    }

    /// What the stored checkpoint counts as passed.
    fn passed(&self, store: &ModelStore) -> Bits {
        let mut passed = self.taken.clone();
        passed.remove_from(self.log.up_to(store.frontier), |_| u64::MAX);
        for open in &store.open {
            passed.remove(self.log.index(*open));
        }
        for held in store.held.values() {
            let aggregate: usize = held.aggregate.id().parse().unwrap_or_default();
            passed.remove_from(self.log.index(held.from), |word| {
                self.of[aggregate].word(word) & self.sequenced.word(word)
            });
        }
        passed
    }

    fn is_being_discarded(&self, event: usize, store: &ModelStore) -> bool {
        let logged = &self.log.events[event];
        store.requests.iter().any(|request| {
            request.action == Action::Discard
                && targets(request, logged.position, &self.log.aggregates[logged.aggregate])
        })
    }

    // ---- processes

    /// Another process takes over.
    pub(super) fn restart(&mut self, store: &ModelStore, clean: bool, guard: Position) -> Check {
        let passed = self.passed(store);
        self.life += 1;
        self.guard = if clean { Position::BEGINNING } else { guard };
        self.running.clear();
        self.breakers.fill(Breaker::default());
        self.parked_behind.fill(None);
        for held in store.held.values().filter(|held| held.why == evento_core::store::WhyHeld::Dead) {
            let aggregate: usize = held.aggregate.id().parse().unwrap_or_default();
            let event = self.log.index(held.from);
            self.parked_behind[aggregate] = Some(event);
            self.was_parked[aggregate] = self.was_parked[aggregate].min(event);
        }
        for event in below(self.events.len(), |word| self.taken.word(word)) {
            let at = self.log.events[event].position;
            let letter = store.letters.get(&at);
            let is_passed = passed.contains(event);
            let is_unsettled = self.unsettled.contains(event);
            let happened = &mut self.events[event];
            self.finals.put(event, is_passed);
            if is_passed && is_unsettled {
                if clean {
                    return Err(format!("{at} is lost by a clean stop"));
                }
                self.lost.insert(event);
                self.unsettled.remove(event);
                self.totals.lost += 1;
            }
            if !is_passed {
                if clean && happened.handled_in > 0 && letter.is_none() && self.reported.contains(event) {
                    return Err(format!("{at} was handled, and is to be handled again after a clean stop"));
                }
                self.unsettled.put(event, letter.is_none());
                self.reported.remove(event);
            }
            let retry = store.retries.get(&at);
            happened.attempts = retry.map_or(0, |retry| retry.attempts);
            happened.spent = retry.map_or(0, |retry| retry.spent);
            happened.due = retry.map_or(0, |retry| (retry.not_before.0 - super::store::wall(0).0).max(0) as u64);
            happened.dead = letter.map(|letter| letter.reason);
            happened.kills = store.started.get(&at).map_or(0, |started| if clean { 0 } else { started.crashes + 1 });
        }
        Ok(())
    }

    /// Whether the event can go on: it is not behind one that never returns, in an order that is promised.
    pub(super) fn is_behind_running(&self, event: usize) -> bool {
        let aggregate = self.log.events[event].aggregate;
        self.running.iter().any(|(it, _)| {
            *it == event
                || self.sequenced.contains(event)
                    && self.sequenced.contains(*it)
                    && *it < event
                    && self.log.events[*it].aggregate == aggregate
        })
    }

    /// With nothing left to happen but attempts that never return: the first event that could go on and does not.
    pub(super) fn is_kept_waiting(&self, appended: usize) -> Option<Position> {
        let is_full = |index: usize| {
            let of = self.running.iter().filter(|(it, _)| self.under[index].contains(*it));
            of.count() >= self.limits[index].capacity
        };
        let mut unsettled = below(appended, |word| self.unsettled.word(word));
        let first = unsettled.find(|event| !self.is_behind_running(*event) && !self.is_parked(*event));
        let first = first?;
        // What waits behind a full executor stops everything, as an inline event does.
        let stops = below(first + 1, |word| self.unsettled.word(word)).any(|event| {
            self.inline.contains(event)
                || (0..self.limits.len()).any(|it| is_full(it) && self.under[it].contains(event))
        });
        let alone = self.running.iter().any(|(it, _)| self.events[*it].kills >= 2) || self.events[first].kills >= 2;
        let asks = self.breakers.iter().any(|breaker| breaker.opened_at.is_some());
        (!stops && !alone && !asks).then(|| self.at(first))
    }

    fn is_parked(&self, event: usize) -> bool {
        let dead = self.parked_behind[self.log.events[event].aggregate];
        self.sequenced.contains(event) && dead.is_some_and(|dead| dead < event)
    }

    /// Everything up to here is said to have settled.
    pub(super) fn settled_to(&self, to: Position) -> Check {
        let mut unsettled = below(self.log.up_to(to), |word| self.unsettled.word(word));
        match unsettled.find(|event| !self.is_parked(*event) && self.events[*event].dead.is_none()) {
            Some(event) if !self.is_beside_the_stream(event) => {
                Err(format!("everything up to {to} is said to have settled, and {} has not", self.at(event)))
            }
            _ => Ok(()),
        }
    }

    /// After the last clean stop: nothing is left.
    pub(super) fn end(&self, store: &ModelStore) -> Check {
        let mut unsettled = below(self.events.len(), |word| self.unsettled.word(word));
        if let Some(event) = unsettled.find(|event| !self.is_parked(*event)) {
            return Err(format!("{} was never handled", self.at(event)));
        }
        let dead_only = store.held.values().all(|held| held.why == evento_core::store::WhyHeld::Dead);
        let letters_of_held = store.held.values().all(|held| store.letters.contains_key(&held.from));
        // What is stored of an aggregate behind a dead event goes when that is released.
        let left = |position: &Position| {
            let aggregate = self.log.events[self.log.index(*position)].aggregate;
            self.parked_behind[aggregate].is_none()
        };
        if !store.open.is_empty() || store.started.keys().any(left) || store.retries.keys().any(left) || !dead_only {
            return Err(format!(
                "left behind at the end: open {:?}, started {:?}, retries {:?}, held {:?}",
                store.open, store.started, store.retries, store.held
            ));
        }
        if !letters_of_held {
            return Err(format!("held behind no letter: {:?}", store.held));
        }
        if let Some(request) = store.requests.iter().find(|request| super::store::is_open(request)) {
            return Err(format!("a request was never carried out: {request:?}"));
        }
        if self.log.up_to(store.frontier) < self.events.len() {
            return Err(format!("the checkpoint ends at {}", store.frontier));
        }
        Ok(())
    }
}

fn targets(request: &StoredRequest, position: Position, aggregate: &evento_core::Aggregate) -> bool {
    match &request.target {
        Target::Event(at) => *at == position,
        Target::Aggregate(of) => of == aggregate,
        Target::Consumer => true,
    }
}
