use std::{sync::Arc, time::Duration};

use evento_core::{
    Fault, RecordedEvent, Timestamp,
    store::{DeadEvent, DeadReason, StoredRetry},
};

use super::{Budget, Now, Policy};

/// An event that has a place: it runs, or stands before or after an attempt.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) event: Arc<RecordedEvent>,
    pub(crate) handler: usize,
    /// Attempts made.
    pub(crate) attempts: u32,
    /// How many of them used up budget.
    pub(crate) spent: u32,
    first_failed_at: Option<Timestamp>,
    /// What the last attempt failed with, outermost first.
    pub(crate) cause: Vec<String>,
    pub(crate) stage: Stage,
    /// It goes on only when this write has been made.
    pub(crate) needs_write: u64,
}

/// Where an event with a place stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Its start is being recorded.
    Recording,
    /// Its handler runs.
    Running,
    /// It waits for its next attempt.
    Waiting { due: Duration },
    /// Its letter is being written.
    Dying,
}

/// A failed attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    /// The error and what led to it, outermost first.
    pub(crate) cause: Vec<String>,
}

/// What sort of failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FailureKind {
    /// The handler's, or what stands around it.
    Handler(Fault),
    /// The payload does not decode.
    Undecodable,
    /// The payload is over the limit.
    TooLarge,
}

/// What becomes of a failed event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It is tried again; to be stored before it is.
    Again(StoredRetry),
    /// It is given up.
    Dead(DeadReason),
}

/// An event that fails, for people.
#[derive(Clone, Debug)]
pub(crate) struct Failing {
    pub(crate) event: Arc<RecordedEvent>,
    pub(crate) attempts: u32,
    pub(crate) since: Timestamp,
    pub(crate) cause: Vec<String>,
}

impl Active {
    /// Takes up an event, with the attempts that are stored of it.
    pub(crate) fn new(
        event: Arc<RecordedEvent>,
        handler: usize,
        stored: Option<&StoredRetry>,
        policy: Policy,
        now: Now,
    ) -> Self {
        let due = stored.map_or(Duration::ZERO, |retry| {
            let wait = retry.not_before.0.saturating_sub(now.wall.0).max(0);
            // Longer than any delay only where the wall clock was set back since, or the row was altered.
            now.since_start + Duration::from_micros(wait.unsigned_abs()).min(policy.backoff.longest())
        });
        Self {
            event,
            handler,
            attempts: stored.map_or(0, |retry| retry.attempts),
            spent: stored.map_or(0, |retry| retry.spent),
            first_failed_at: stored.map(|retry| retry.first_failed_at),
            cause: Vec::new(),
            stage: Stage::Waiting { due },
            needs_write: 0,
        }
    }

    /// Takes up a dead event with a fresh budget.
    pub(crate) fn again(event: Arc<RecordedEvent>, handler: usize, letter: &DeadEvent) -> Self {
        Self {
            event,
            handler,
            attempts: letter.attempts,
            spent: 0,
            first_failed_at: Some(letter.first_failed_at),
            cause: letter.cause.clone(),
            stage: Stage::Waiting { due: Duration::ZERO },
            needs_write: 0,
        }
    }

    /// Counts a failed attempt and decides.
    pub(crate) fn failed(&mut self, failure: Failure, policy: Policy, random: u64, now: Now) -> Verdict {
        self.attempts = self.attempts.saturating_add(1);
        self.cause = failure.cause;
        let first_failed_at = *self.first_failed_at.get_or_insert(now.wall);
        let fault = match failure.kind {
            FailureKind::Undecodable => return Verdict::Dead(DeadReason::Undecodable),
            FailureKind::TooLarge => return Verdict::Dead(DeadReason::TooLarge),
            FailureKind::Handler(Fault::Permanent) => return Verdict::Dead(DeadReason::Failed),
            FailureKind::Handler(fault) => fault,
        };
        if fault == Fault::Ordinary {
            self.spent = self.spent.saturating_add(1);
            if matches!(policy.budget, Budget::Times(more) if self.spent > more) {
                return Verdict::Dead(DeadReason::Failed);
            }
        }
        let delay = policy.backoff.delay(self.attempts, random);
        self.stage = Stage::Waiting { due: now.since_start + delay };
        let micros = i64::try_from(delay.as_micros()).unwrap_or(i64::MAX);
        Verdict::Again(StoredRetry {
            position: self.event.position(),
            key_hash: self.event.key_hash(),
            attempts: self.attempts,
            spent: self.spent,
            not_before: Timestamp(now.wall.0.saturating_add(micros)),
            first_failed_at,
        })
    }

    pub(crate) fn letter(&self, reason: DeadReason, parks: bool, wall: Timestamp) -> DeadEvent {
        DeadEvent {
            position: self.event.position(),
            event_id: self.event.id().to_owned(),
            name: self.event.name().to_owned(),
            aggregate: self.event.aggregate().to_owned(),
            sequence: self.event.sequence(),
            reason,
            cause: self.cause.clone(),
            attempts: self.attempts,
            first_failed_at: self.first_failed_at.unwrap_or(wall),
            last_failed_at: wall,
            parks,
        }
    }

    pub(crate) fn due(&self) -> Option<Duration> {
        match self.stage {
            Stage::Waiting { due } => Some(due),
            Stage::Recording | Stage::Running | Stage::Dying => None,
        }
    }

    pub(crate) fn failing(&self) -> Option<Failing> {
        let since = self.first_failed_at?;
        (self.attempts > 0).then(|| Failing {
            event: Arc::clone(&self.event),
            attempts: self.attempts,
            since,
            cause: self.cause.clone(),
        })
    }
}
