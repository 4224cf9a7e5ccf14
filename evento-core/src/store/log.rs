use std::sync::Arc;

use super::{AppendError, StoreError};
use crate::{Aggregate, BoxFuture, NewEvent, Position, RecordedEvent, Segment, Sequence};

/// What an append demands of the aggregate it appends to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expected {
    /// Nothing.
    Any,
    /// That it has no event yet.
    NoEvents,
    /// That its last event has this sequence.
    At(Sequence),
}

/// One append: all of it happens, or nothing.
#[derive(Clone, Debug)]
pub struct Append {
    /// What is demanded of the aggregate. Anything but [`Expected::Any`] goes with events of one aggregate.
    pub expected: Expected,
    /// The events, in their order; each has an id by now.
    pub events: Vec<NewEvent>,
}

/// What an append did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Appended {
    /// The position of the last event of the append. Where it had been appended before, its position then. An append
    /// of nothing answers [`Position::BEGINNING`].
    pub position: Position,
    /// How many events were appended now: all of them, or 0 where all were known.
    pub appended: usize,
}

impl From<Appended> for Position {
    fn from(appended: Appended) -> Self {
        appended.position
    }
}

/// Which events a consumer takes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Filter {
    /// The event names; sorted.
    pub names: Vec<String>,
    /// The context.
    pub context: String,
    /// The segment.
    pub segment: Segment,
}

impl Filter {
    /// Whether the event is one of them.
    #[must_use]
    pub fn takes(&self, name: &str, context: &str, key_hash: u64) -> bool {
        self.segment.contains(key_hash)
            && self.context == context
            && self.names.binary_search_by(|known| known.as_str().cmp(name)).is_ok()
    }
}

/// One page to read: what matches `filter` after `after`, in order.
#[derive(Clone, Debug)]
pub struct ReadLog {
    /// Where the page before ended.
    pub after: Position,
    /// What to hand over.
    pub filter: Arc<Filter>,
    /// The most events on the page; at least 1.
    pub max_events: usize,
    /// About how many payload bytes end the page. One event is handed over whatever its size.
    pub max_bytes: usize,
    /// The most positions to look at.
    pub max_scanned: u64,
    /// Payloads above this many bytes are left in the log, see [`RecordedEvent::oversize`].
    pub max_payload: usize,
}

/// A page of matching events.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// The events, in order.
    pub events: Vec<Arc<RecordedEvent>>,
    /// Up to where everything was looked at: where the next page begins. An empty page is progress too.
    pub scanned_to: Position,
    /// The bound of what could be read when the page was: the end of the log is reached when `scanned_to` is there,
    /// never because a page is short.
    pub head: Position,
    /// Whether committed rows lie above the bound, held back by an open transaction: read again soon.
    pub more_above: bool,
}

/// The matching events of one aggregate, through its index.
#[derive(Clone, Debug)]
pub struct ReadAggregate {
    /// The aggregate.
    pub aggregate: Aggregate,
    /// Events after this position.
    pub after: Position,
    /// Events at or before this position.
    pub until: Position,
    /// What to hand over.
    pub filter: Arc<Filter>,
    /// The most events to hand over; at least 1.
    pub max_events: usize,
    /// As in [`ReadLog`].
    pub max_bytes: usize,
    /// As in [`ReadLog`].
    pub max_payload: usize,
}

/// The events at some positions.
#[derive(Clone, Debug)]
pub struct ReadAt {
    /// Where, in any order.
    pub positions: Vec<Position>,
    /// As in [`ReadLog`].
    pub max_bytes: usize,
    /// As in [`ReadLog`].
    pub max_payload: usize,
}

/// What was asked for by aggregate or position, as far as the bounds let it be read.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// The events, in order.
    pub events: Vec<Arc<RecordedEvent>>,
    /// Up to where everything asked for was looked at: what is not among the events there is not in the log. What was
    /// asked for above this was not looked at, and is to be asked for again.
    pub scanned_to: Position,
}

/// The end of a log.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Head {
    /// No reader passes this: below it, nothing can still appear.
    pub bound: Position,
    /// The greatest committed position; above `bound` while an open transaction holds it back.
    pub committed: Position,
}

/// Called after each append of this process has committed; must not block.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// An event log: appended to, and read in order.
pub trait EventLog: Send + Sync + 'static {
    /// Appends all of `append`, or nothing.
    ///
    /// Events of one aggregate get rising positions in the order given, and sequences without holes. A repeat is
    /// recognised before what it expects is looked at: an append whose answer was lost can be made again as it was.
    ///
    /// # Errors
    /// [`AppendError`] says why nothing was appended; after [`StoreError::Unavailable`] that is unknown, and the same
    /// append again is safe as long as it carries the same ids.
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, AppendError>>;

    /// Reads one page.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read(&self, read: ReadLog) -> BoxFuture<'_, Result<Page, StoreError>>;

    /// Reads the events at these positions, by rising position; positions that hold none are left out. At least one
    /// position is looked at.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read_at(&self, read: ReadAt) -> BoxFuture<'_, Result<Selection, StoreError>>;

    /// Reads one aggregate's matching events, in order; where everything was, `scanned_to` is `until`.
    ///
    /// # Errors
    /// [`StoreError`].
    fn read_aggregate(&self, read: ReadAggregate) -> BoxFuture<'_, Result<Selection, StoreError>>;

    /// The end of the log.
    ///
    /// # Errors
    /// [`StoreError`].
    fn head(&self) -> BoxFuture<'_, Result<Head, StoreError>>;

    /// Has `wake` called after each append that this process makes through this store, and whenever the back end
    /// tells of another's.
    fn on_append(&self, wake: Wake);
}
