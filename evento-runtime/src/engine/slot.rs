use std::{sync::Arc, time::Duration};

use evento_core::{
    Fault, Position, RecordedEvent, Timestamp,
    store::{DeadEvent, DeadReason, StoredRetry},
};

use super::{Budget, Failing, Failure, FailureKind, Job, Now, Policy, Replay};

/// Which slot.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct SlotId(pub(super) u32);

/// Which lane.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct LaneId(pub(super) u32);

/// An event in memory: it runs, or stands before or after an attempt.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) event: Arc<RecordedEvent>,
    pub(super) handler: usize,
    pub(super) stage: Stage,
    /// The lane of its aggregate, where its handler keeps their order.
    pub(super) lane: Option<LaneId>,
    /// The one behind it in its lane.
    pub(super) next: Option<SlotId>,
    /// It goes on only when this write has been made.
    pub(super) needs_write: u64,
    pub(super) ready_since: Duration,
    pub(super) origin: Origin,
    /// What is known of attempts that failed.
    pub(super) tried: Option<Box<Tried>>,
}

/// Where an event came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Origin {
    /// The source, in order.
    Stream,
    /// It was kept back, and has been read again.
    Again,
    /// It was parked behind a dead event, and has been read again.
    Released,
    /// It is dead, and is handled again on request.
    Redriven,
}

/// Where an event in memory stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Behind another of its lane.
    Queued,
    /// It waits for a permit, or for its turn.
    Ready,
    /// It has a permit, and its start is being recorded.
    Recording,
    /// Its handler runs.
    Running,
    /// Its handler runs as soon as those before it in its run have returned.
    InRun,
    /// It waits for its next attempt.
    Waiting { due: Duration },
    /// Its letter is being written.
    Dying,
}

/// What is known of attempts that failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// Attempts made.
    pub(super) attempts: u32,
    /// How many of them used up budget.
    pub(super) spent: u32,
    pub(super) first_failed_at: Option<Timestamp>,
    /// What the last one failed with, outermost first.
    pub(super) cause: Vec<String>,
}

/// What becomes of a failed event.
#[derive(Debug)]
pub(super) enum Verdict {
    /// It is tried again at this time; to be stored before it is.
    Again(StoredRetry, Duration),
    /// It is given up.
    Dead(DeadReason),
}

impl Slot {
    #[inline]
    pub(super) fn new(event: Arc<RecordedEvent>, handler: usize, origin: Origin) -> Self {
        Self {
            event,
            handler,
            stage: Stage::Queued,
            lane: None,
            next: None,
            needs_write: 0,
            ready_since: Duration::ZERO,
            origin,
            tried: None,
        }
    }

    pub(super) fn position(&self) -> Position {
        self.event.position()
    }

    /// Its next attempt; `id` is its own.
    #[inline]
    pub(super) fn job(&self, id: SlotId, replay: Option<&Replay>) -> Job {
        Job {
            slot: id,
            event: Arc::clone(&self.event),
            handler: self.handler,
            attempt: self.attempts().saturating_add(1),
            replay: replay.is_some_and(|replay| replay.contains(self.position())),
        }
    }

    pub(super) fn attempts(&self) -> u32 {
        self.tried.as_ref().map_or(0, |tried| tried.attempts)
    }

    /// Takes over what is stored of its attempts. Answers when the next is due.
    pub(super) fn recall(&mut self, stored: &StoredRetry, policy: &Policy, now: Now) -> Duration {
        self.tried = Some(Box::new(Tried {
            attempts: stored.attempts,
            spent: stored.spent,
            first_failed_at: Some(stored.first_failed_at),
            cause: Vec::new(),
        }));
        let wait = stored.not_before.0.saturating_sub(now.wall.0).max(0);
        // Longer than any delay only where the wall clock was set back since, or the row was altered.
        now.since_start + Duration::from_micros(wait.unsigned_abs()).min(policy.backoff.longest())
    }

    /// Takes up a dead event with a fresh budget.
    pub(super) fn redrive(&mut self, letter: &DeadEvent) {
        self.tried = Some(Box::new(Tried {
            attempts: letter.attempts,
            spent: 0,
            first_failed_at: Some(letter.first_failed_at),
            cause: letter.cause.clone(),
        }));
    }

    /// Counts a failed attempt and decides. `spends` says whether a transient failure uses up budget.
    pub(super) fn failed(&mut self, failure: Failure, policy: &Policy, spends: bool, random: u64, now: Now) -> Verdict {
        let tried = self.tried.get_or_insert_default();
        tried.attempts = tried.attempts.saturating_add(1);
        tried.cause = failure.cause;
        let first_failed_at = *tried.first_failed_at.get_or_insert(now.wall);
        let fault = match failure.kind {
            FailureKind::Undecodable => return Verdict::Dead(DeadReason::Undecodable),
            FailureKind::TooLarge => return Verdict::Dead(DeadReason::TooLarge),
            FailureKind::Handler(Fault::Permanent) => return Verdict::Dead(DeadReason::Failed),
            FailureKind::Handler(fault) => fault,
            FailureKind::Overrun => Fault::Ordinary,
        };
        if fault == Fault::Ordinary || spends {
            tried.spent = tried.spent.saturating_add(1);
            if matches!(policy.budget, Budget::Times(more) if tried.spent > more) {
                return Verdict::Dead(DeadReason::Failed);
            }
        }
        let (attempts, spent) = (tried.attempts, tried.spent);
        let delay = policy.backoff.delay(attempts, random);
        let micros = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
        let stored = StoredRetry {
            position: self.position(),
            key_hash: self.event.key_hash(),
            attempts,
            spent,
            not_before: Timestamp(now.wall.0.saturating_add(micros)),
            first_failed_at,
        };
        Verdict::Again(stored, now.since_start + delay)
    }

    pub(super) fn letter(&self, reason: DeadReason, parks: bool, wall: Timestamp) -> DeadEvent {
        let tried = self.tried.as_deref().cloned().unwrap_or_default();
        DeadEvent {
            position: self.position(),
            event_id: self.event.id().to_owned(),
            name: self.event.name().to_owned(),
            aggregate: self.event.aggregate().to_owned(),
            sequence: self.event.sequence(),
            reason,
            cause: tried.cause,
            attempts: tried.attempts,
            first_failed_at: tried.first_failed_at.unwrap_or(wall),
            last_failed_at: wall,
            parks,
        }
    }

    pub(super) fn failing(&self) -> Option<Failing> {
        let tried = self.tried.as_ref().filter(|tried| tried.attempts > 0)?;
        Some(Failing {
            event: Arc::clone(&self.event),
            attempts: tried.attempts,
            since: tried.first_failed_at?,
            cause: tried.cause.clone(),
        })
    }
}

/// The events in memory, in places that are used again.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
}

impl Slots {
    #[inline]
    pub(super) fn insert(&mut self, slot: Slot) -> SlotId {
        if let Some(place) = self.free.pop() {
            self.slots[place as usize] = Some(slot);
            return SlotId(place);
        }
        self.slots.push(Some(slot));
        SlotId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
    }

    pub(super) fn remove(&mut self, id: SlotId) {
        if let Some(place @ Some(_)) = self.slots.get_mut(id.0 as usize) {
            *place = None;
            self.free.push(id.0);
        }
    }

    pub(super) fn get(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
