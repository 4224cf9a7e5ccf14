//! What has happened, and whether it may have.

mod attempt;
mod write;

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

    // ---- writes

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
