use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
};

use evento_core::{
    Aggregate, BoxFuture, EventId, NewEvent, Position, RecordedEvent, RecordedParts, Sequence, Timestamp,
    store::{
        Append, AppendError, Appended, EventLog, Head, Page, ReadAggregate, ReadAt, ReadLog, Selection, StoreError,
        Wake,
    },
};

use super::MemoryStore;
use crate::store::decision::{self, Known, Repeat};

pub(super) struct Log {
    step: u64,
    events: Vec<Arc<RecordedEvent>>,
    ids: HashMap<EventId, usize>,
    aggregates: HashMap<Aggregate, Vec<usize>>,
}

impl Log {
    pub(super) fn new(step: u32) -> Self {
        let step = u64::from(step.max(1));
        Self { step, events: Vec::new(), ids: HashMap::new(), aggregates: HashMap::new() }
    }

    pub(super) fn head(&self) -> Position {
        self.events.last().map_or(Position::BEGINNING, |event| event.position())
    }

    /// The events of `aggregate` after `after`, up to `until`.
    pub(super) fn of_aggregate(
        &self,
        aggregate: &Aggregate,
        after: Position,
        until: Position,
    ) -> impl Iterator<Item = &Arc<RecordedEvent>> {
        let places = self.aggregates.get(aggregate).map_or(&[][..], Vec::as_slice);
        let up_to = |position| places.partition_point(|place| self.events[*place].position() <= position);
        let (first, last) = (up_to(after), up_to(until));
        places.get(first..last).unwrap_or_default().iter().map(|place| &self.events[*place])
    }

    fn append(&mut self, append: Append, now: Timestamp) -> Result<Appended, AppendError> {
        let expects = decision::check(&append)?;
        if append.events.is_empty() {
            return Ok(Appended { position: Position::BEGINNING, appended: 0 });
        }
        if let Repeat::Whole(position) = decision::repeat(&append.events, |event| Ok(self.known(event)))? {
            return Ok(Appended { position, appended: 0 });
        }
        if let Some((aggregate, expected)) = expects {
            let actual = self.sequence(aggregate);
            if actual != expected {
                return Err(AppendError::Conflict { expected, actual });
            }
        }
        for event in &append.events {
            self.push(event, now);
        }
        Ok(Appended { position: self.head(), appended: append.events.len() })
    }

    fn sequence(&self, aggregate: &Aggregate) -> Sequence {
        Sequence(self.aggregates.get(aggregate).map_or(0, |places| places.len() as u64))
    }

    fn known(&self, event: &NewEvent) -> Option<Known> {
        let stored = &self.events[*self.ids.get(event.id.as_ref()?)?];
        let same = stored.aggregate() == event.aggregate.as_ref()
            && stored.name() == event.name
            && stored.context() == event.context
            && stored.payload() == event.payload;
        Some(Known { position: stored.position(), same })
    }

    fn push(&mut self, event: &NewEvent, recorded_at: Timestamp) {
        let place = self.events.len();
        let Some(id) = &event.id else { return };
        self.events.push(Arc::new(RecordedEvent::new(RecordedParts {
            position: Position::new((place as u64 + 1) * self.step),
            id: id.as_str(),
            name: &event.name,
            context: &event.context,
            aggregate: event.aggregate.as_ref(),
            sequence: Sequence(self.sequence(&event.aggregate).0 + 1),
            metadata: &event.metadata.to_json(),
            payload: &event.payload,
            oversize: None,
            recorded_at,
        })));
        self.ids.insert(id.clone(), place);
        self.aggregates.entry(event.aggregate.clone()).or_default().push(place);
    }

    fn read(&self, read: &ReadLog) -> Page {
        let head = self.head();
        let reach = Position::with_major(read.after.major(), read.after.minor().saturating_add(read.max_scanned));
        let until = reach.min(head).max(read.after);
        let begin = self.events.partition_point(|event| event.position() <= read.after);
        let matching = self.events[begin..]
            .iter()
            .take_while(|event| event.position() <= until)
            .filter(|event| read.filter.takes(event.name(), event.context(), event.key_hash()))
            .map(|event| limited(event, read.max_payload));
        let Selection { events, scanned_to } = select(matching, read.max_events, read.max_bytes, until);
        Page { events, scanned_to, head, ..Page::default() }
    }

    fn read_at(&self, read: ReadAt) -> Selection {
        let ReadAt { mut positions, max_bytes, max_payload } = read;
        positions.sort_unstable();
        let until = positions.last().copied().unwrap_or_default();
        positions.dedup();
        let place = |position: &Position| self.events.binary_search_by_key(position, |event| event.position()).ok();
        let found = positions.iter().filter_map(place).map(|place| limited(&self.events[place], max_payload));
        select(found, usize::MAX, max_bytes, until)
    }

    fn read_aggregate(&self, read: &ReadAggregate) -> Selection {
        let matching = self
            .of_aggregate(&read.aggregate, read.after, read.until)
            .filter(|event| read.filter.takes(event.name(), event.context(), event.key_hash()))
            .map(|event| limited(event, read.max_payload));
        select(matching, read.max_events, read.max_bytes, read.until)
    }
}

/// Takes events until one of the bounds is met; all of them where none is, which brings the reader to `until`.
fn select(
    events: impl Iterator<Item = Arc<RecordedEvent>>,
    max_events: usize,
    max_bytes: usize,
    until: Position,
) -> Selection {
    let mut selection = Selection { scanned_to: until, ..Selection::default() };
    let mut bytes = 0_usize;
    for event in events {
        bytes = bytes.saturating_add(event.payload().len());
        let position = event.position();
        selection.events.push(event);
        if selection.events.len() >= max_events || bytes >= max_bytes {
            selection.scanned_to = position;
            break;
        }
    }
    selection
}

/// The event as a reader with this limit sees it.
fn limited(event: &Arc<RecordedEvent>, max_payload: usize) -> Arc<RecordedEvent> {
    if event.payload().len() <= max_payload {
        return Arc::clone(event);
    }
    Arc::new(RecordedEvent::new(RecordedParts {
        position: event.position(),
        id: event.id(),
        name: event.name(),
        context: event.context(),
        aggregate: event.aggregate(),
        sequence: event.sequence(),
        metadata: event.metadata_json(),
        payload: &[],
        oversize: Some(event.payload().len() as u64),
        recorded_at: event.recorded_at(),
    }))
}

impl EventLog for MemoryStore {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, AppendError>> {
        Box::pin(async move {
            let appended = self.run(|state, now| state.log.append(append, now)).await?;
            if appended.appended > 0 {
                self.wake();
            }
            Ok(appended)
        })
    }

    fn read(&self, read: ReadLog) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.run(move |state, _| Ok(state.log.read(&read)))
    }

    fn read_at(&self, read: ReadAt) -> BoxFuture<'_, Result<Selection, StoreError>> {
        self.run(move |state, _| Ok(state.log.read_at(read)))
    }

    fn read_aggregate(&self, read: ReadAggregate) -> BoxFuture<'_, Result<Selection, StoreError>> {
        self.run(move |state, _| Ok(state.log.read_aggregate(&read)))
    }

    fn head(&self) -> BoxFuture<'_, Result<Head, StoreError>> {
        self.run(|state, _| Ok(Head { bound: state.log.head(), committed: state.log.head() }))
    }

    fn on_append(&self, wake: Wake) {
        let mut wakes = self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        wakes.push((Arc::clone(&self.closed), wake));
    }
}
