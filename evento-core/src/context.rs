use std::{fmt, sync::Arc};

use crate::{
    Aggregate, ConsumerKey, DEFAULT_CONTEXT, Kind, Metadata, NewEvent, Position, RecordedEvent, RecordedParts,
    Sequence, Timestamp, event::SharedEvent, store::Epoch,
};

/// What a handler may know about the attempt it runs in.
#[derive(Clone)]
pub struct Context {
    event: SharedEvent,
    consumer: Arc<ConsumerKey>,
    attempt: u32,
    replay: bool,
    epoch: Epoch,
}

impl Context {
    /// The context of one attempt; the runtime makes it.
    #[must_use]
    pub fn new(
        event: Arc<RecordedEvent>,
        consumer: Arc<ConsumerKey>,
        attempt: u32,
        replay: bool,
        epoch: Epoch,
    ) -> Self {
        Self { event, consumer, attempt, replay, epoch }
    }

    /// Makes it the context of another attempt under the same claim, as the runtime does from one attempt to the next.
    pub fn renew(&mut self, event: Arc<RecordedEvent>, attempt: u32, replay: bool) {
        self.event = event;
        self.attempt = attempt;
        self.replay = replay;
    }

    /// A context to call a handler with in a test: event `1` of aggregate `fake/1`, first attempt, no replay.
    #[must_use]
    pub fn fake() -> Self {
        Self::fake_of(RecordedParts {
            position: Position::new(1),
            id: "fake-1",
            name: "fake",
            context: DEFAULT_CONTEXT,
            aggregate: Aggregate::new("fake", "1").as_ref(),
            sequence: Sequence(1),
            metadata: "",
            payload: b"null",
            oversize: None,
            recorded_at: Timestamp(0),
        })
    }

    /// The same around an envelope of the test's own.
    #[must_use]
    pub fn fake_of(parts: RecordedParts<'_>) -> Self {
        let consumer = ConsumerKey {
            bundle: "fake".to_owned(),
            kind: Kind::Projector,
            name: "fake".to_owned(),
            version: 1,
            context: parts.context.to_owned(),
        };
        Self::new(Arc::new(RecordedEvent::new(parts)), Arc::new(consumer), 1, false, Epoch(1))
    }

    /// The same context in a later attempt, from 1.
    #[must_use]
    pub fn with_attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The same context in a replay, or out of one.
    #[must_use]
    pub fn with_replay(mut self, replay: bool) -> Self {
        self.replay = replay;
        self
    }

    /// The envelope of the event being handled.
    #[must_use]
    pub fn event(&self) -> &RecordedEvent {
        &self.event
    }

    /// The event's place in its source. An effect that stores it can tell a redelivery.
    #[must_use]
    pub fn position(&self) -> Position {
        self.event.position()
    }

    /// The consumer on whose behalf the handler runs.
    #[must_use]
    pub fn consumer(&self) -> &ConsumerKey {
        &self.consumer
    }

    /// Which attempt this is: 1 for the first. It goes on counting over a crash.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the event had been passed before the consumer was reset: true exactly for what was at or below the
    /// frontier and not open.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.replay
    }

    /// The epoch of the claim the attempt runs under. A write that checks it cannot come from a process that has lost
    /// its claim.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The id that is the same along the whole chain of events this one belongs to: its own where it began the chain.
    #[must_use]
    pub fn correlation_id(&self) -> String {
        let stored = self.event.metadata().get(Metadata::CORRELATION_ID).map(str::to_owned);
        stored.unwrap_or_else(|| self.event.id().to_owned())
    }

    /// Marks `event` as caused by the one being handled: its correlation id is carried on, its causation id is this
    /// event's.
    #[must_use]
    pub fn caused(&self, event: NewEvent) -> NewEvent {
        event
            .with_metadata(Metadata::CORRELATION_ID, self.correlation_id())
            .with_metadata(Metadata::CAUSATION_ID, self.event.id())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("event", &self.event)
            .field("consumer", &format_args!("{}", self.consumer))
            .field("attempt", &self.attempt)
            .field("replay", &self.replay)
            .field("epoch", &self.epoch)
            .finish()
    }
}
