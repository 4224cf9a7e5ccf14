use std::sync::Arc;

use evento_core::{ConsumerKey, Position, RecordedEvent, Timestamp};
use tokio::sync::watch;

use crate::{
    bundle::ConsumerSpec,
    engine::{Engine, Failing},
};

/// How a consumer stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ConsumerState {
    /// It has not got its claim: another process consumes, or the store does not answer.
    Waiting,
    /// It consumes.
    Running,
    /// It consumes, and an event of its keeps failing: it stays so until that event settles.
    Failing,
    /// It was told to pause.
    Paused,
    /// It has stopped.
    Stopped,
}

/// An event that keeps failing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FailingEvent {
    /// Where it is.
    pub position: Position,
    /// Its name.
    pub name: String,
    /// Its aggregate, as text.
    pub aggregate: String,
    /// Attempts made.
    pub attempts: u32,
    /// When it failed first.
    pub since: Timestamp,
    /// What it failed with last, outermost first.
    pub cause: Vec<String>,
}

/// A consumer, as this process sees it.
#[derive(Clone, Debug)]
pub struct ConsumerStatus {
    /// Which consumer.
    pub consumer: ConsumerKey,
    /// How it stands.
    pub state: ConsumerState,
    /// The process that holds the claim, where it is another.
    pub held_by: Option<String>,
    /// What keeps it from going on at all: the store's failure, told until it is over.
    pub trouble: Option<String>,
    /// The last position admitted. This and what follows is what this process has seen: nothing while it only waits.
    pub frontier: Position,
    /// Everything at or below this is settled; dead and parked events count as settled.
    pub settled_to: Position,
    /// The end of the log as last read.
    pub head: Position,
    /// Events handled since the claim was taken.
    pub handled: u64,
    /// Events skipped: their handler is gone, or they had been settled before.
    pub skipped: u64,
    /// Events given up since the claim was taken, whatever became of them later: a dead event queue's `depth` counts what
    /// is there now.
    pub dead: u64,
    /// Events parked behind a dead one since the claim was taken.
    pub parked: u64,
    /// Attempts that failed since the claim was taken.
    pub failed_attempts: u64,
    /// Of these, those for which a dependency was to blame.
    pub transient_failures: u64,
    /// Events that were taken out of memory because their aggregate was busy, to be read again in its turn.
    pub aside: u64,
    /// Events that waited longer than a second for a permit.
    pub submit_timeouts: u64,
    /// Aggregates held behind a dead event.
    pub held_aggregates: usize,
    /// The event that keeps failing.
    pub failing: Option<FailingEvent>,
    /// The events that the end of a shutdown cut off.
    pub left: Vec<Position>,
    /// Whether it stopped and holds no claim any more.
    pub(crate) released: bool,
}

/// Where a consumer's status is published.
#[derive(Debug)]
pub(crate) struct StatusCell(watch::Sender<ConsumerStatus>);

impl StatusCell {
    pub(crate) fn new(spec: &ConsumerSpec) -> Self {
        Self(watch::Sender::new(ConsumerStatus {
            consumer: (*spec.key).clone(),
            state: ConsumerState::Waiting,
            held_by: None,
            trouble: None,
            frontier: Position::BEGINNING,
            settled_to: Position::BEGINNING,
            head: Position::BEGINNING,
            handled: 0,
            skipped: 0,
            dead: 0,
            parked: 0,
            failed_attempts: 0,
            aside: 0,
            transient_failures: 0,
            submit_timeouts: 0,
            held_aggregates: 0,
            failing: None,
            left: Vec::new(),
            released: false,
        }))
    }

    pub(crate) fn snapshot(&self) -> ConsumerStatus {
        self.0.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<ConsumerStatus> {
        self.0.subscribe()
    }

    pub(crate) fn waiting(&self, held_by: Option<String>) {
        self.0.send_modify(|status| {
            status.state = ConsumerState::Waiting;
            status.held_by = held_by;
            status.trouble = None;
            status.failing = None;
        });
    }

    /// Answers whether the trouble is new.
    pub(crate) fn troubled(&self, trouble: String) -> bool {
        let mut is_new = false;
        self.0.send_modify(|status| {
            is_new = status.trouble.as_ref() != Some(&trouble);
            status.trouble = Some(trouble);
        });
        is_new
    }

    /// The consumer was reset: nothing after `to` counts as settled any more.
    pub(crate) fn rewound(&self, to: Position) {
        self.0.send_modify(|status| {
            status.state = ConsumerState::Waiting;
            status.frontier = to;
            status.settled_to = status.settled_to.min(to);
            status.failing = None;
        });
    }

    pub(crate) fn stopped(&self, left: Vec<Position>, released: bool) {
        self.0.send_modify(|status| {
            status.state = ConsumerState::Stopped;
            status.left = left;
            status.released = released;
        });
    }

    /// The consumer's task has ended without an order to: it panicked.
    fn fell(&self) {
        self.0.send_modify(|status| {
            status.state = ConsumerState::Stopped;
            status.trouble = Some("the consumer's task ended unexpectedly; restart the process".to_owned());
        });
    }

    /// Publishes how the engine stands. `trouble` is what keeps its reads or writes from being made.
    pub(crate) fn publish(&self, engine: &Engine, trouble: Option<&str>) {
        let failing = engine.failing();
        let counts = engine.counts();
        self.0.send_modify(|status| {
            status.state = match () {
                () if engine.is_paused() => ConsumerState::Paused,
                () if failing.is_some() => ConsumerState::Failing,
                () => ConsumerState::Running,
            };
            status.held_by = None;
            status.trouble = trouble.map(str::to_owned);
            status.frontier = engine.frontier();
            status.settled_to = engine.settled_to();
            status.head = engine.head();
            status.handled = counts.handled;
            status.skipped = counts.skipped;
            status.dead = counts.dead;
            status.parked = counts.parked;
            status.failed_attempts = counts.failed_attempts;
            status.aside = counts.aside;
            status.transient_failures = counts.transient_failures;
            status.submit_timeouts = counts.submit_timeouts;
            status.held_aggregates = engine.keys_dead();
            status.failing = failing.map(FailingEvent::from);
        });
    }
}

/// Tells of a consumer's task that ends without having stopped.
#[derive(Debug)]
pub(super) struct Fall(pub(super) Arc<StatusCell>);

impl Drop for Fall {
    fn drop(&mut self) {
        let status = self.0.snapshot();
        if status.state != ConsumerState::Stopped {
            tracing::error!(consumer = %status.consumer, "the consumer's task ended unexpectedly; restart the process");
            self.0.fell();
        }
    }
}

impl From<Failing> for FailingEvent {
    fn from(failing: Failing) -> Self {
        let event: &Arc<RecordedEvent> = &failing.event;
        Self {
            position: event.position(),
            name: event.name().to_owned(),
            aggregate: event.aggregate().to_string(),
            attempts: failing.attempts,
            since: failing.since,
            cause: failing.cause,
        }
    }
}
