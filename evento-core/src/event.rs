use std::{borrow::Cow, collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use crate::key_hash;

mod recorded;

pub use recorded::{RecordedEvent, RecordedParts};

/// The context of an event that names none.
pub const DEFAULT_CONTEXT: &str = "default";

/// A typed event: a fact with a stable name, about one aggregate.
///
/// Derive it: `#[derive(Event, Serialize, Deserialize)]` with `#[event(name = "order.placed", aggregate = "order")]`
/// on the struct and `#[event(aggregate_id)]` on the field that identifies the aggregate. The payload is JSON.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "this type does not implement `Event`",
    note = "add `#[derive(Event, Serialize, Deserialize)]` and `#[event(name = \"..\", aggregate = \"..\")]` to `{Self}`",
    note = "a handler takes `(&self, event: &YourEvent)` or `(&self, event: &YourEvent, ctx: &Context)`"
)]
pub trait Event: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static {
    /// The stable name under which the event is stored; one name belongs to one Rust type.
    const NAME: &'static str;
    /// The type of the aggregate whose events keep their order.
    const AGGREGATE: &'static str;
    /// Which aggregate of that type.
    fn aggregate_id(&self) -> Cow<'_, str>;
}

/// A place in a source, ordered as the source is read.
///
/// Positions have holes: the next event is the next one read, never `position + 1`. Text form: `minor`, or
/// `major.minor` where the source needs two parts.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Position {
    major: u64,
    minor: u64,
}

impl Position {
    /// Before every event.
    pub const BEGINNING: Self = Self { major: 0, minor: 0 };

    /// A position of a source that numbers its events with one number.
    #[must_use]
    pub const fn new(minor: u64) -> Self {
        Self { major: 0, minor }
    }

    /// A position of a source that orders its events by `major`, then `minor`.
    #[must_use]
    pub const fn with_major(major: u64, minor: u64) -> Self {
        Self { major, minor }
    }

    /// The part that orders first; 0 where the source has one part.
    #[must_use]
    pub const fn major(self) -> u64 {
        self.major
    }

    /// The part that orders second.
    #[must_use]
    pub const fn minor(self) -> u64 {
        self.minor
    }

    /// A bound just above this position and below every later one; no event's position.
    #[must_use]
    pub const fn just_after(self) -> Self {
        match self.minor.checked_add(1) {
            Some(minor) => Self { minor, ..self },
            None => Self { major: self.major.saturating_add(1), minor: 0 },
        }
    }

    /// A bound just below this position and above every earlier one; [`Position::BEGINNING`] has none below it.
    #[must_use]
    pub const fn just_before(self) -> Self {
        match (self.minor.checked_sub(1), self.major.checked_sub(1)) {
            (Some(minor), _) => Self { minor, ..self },
            (None, Some(major)) => Self { major, minor: u64::MAX },
            (None, None) => self,
        }
    }

    /// Sixteen bytes, big-endian, so that bytes sort as positions do.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 16] {
        (((self.major as u128) << 64) | self.minor as u128).to_be_bytes()
    }

    /// The inverse of [`Position::to_bytes`].
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_be_bytes(bytes);
        let [major, minor] = [both >> 64, both & u64::MAX as u128];
        #[expect(clippy::cast_possible_truncation, reason = "each half was cut to 64 bits above")]
        Self { major: major as u64, minor: minor as u64 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.major != 0 {
            write!(f, "{}.", self.major)?;
        }
        write!(f, "{}", self.minor)
    }
}

/// A text that is no position.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not a position: write a number such as `1200`, or two with a dot such as `7.1200`")]
pub struct ParsePositionError(String);

impl FromStr for Position {
    type Err = ParsePositionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (major, minor) = text.split_once('.').unwrap_or(("0", text));
        match (major.parse(), minor.parse()) {
            (Ok(major), Ok(minor)) => Ok(Self { major, minor }),
            _ => Err(ParsePositionError(text.to_owned())),
        }
    }
}

/// An event's place in its aggregate: 1 for the first.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Sequence(pub u64);

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Identifies an event: appending the same id again appends nothing.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EventId(Box<str>);

impl EventId {
    /// The most bytes an id may have.
    pub const MAX_LEN: usize = 255;

    /// An id of 1 to 255 bytes.
    ///
    /// # Errors
    /// [`InvalidEvent::Id`] where the text is empty or longer.
    pub fn new(id: impl Into<Box<str>>) -> Result<Self, InvalidEvent> {
        let id = id.into();
        if id.is_empty() || id.len() > Self::MAX_LEN {
            return Err(InvalidEvent::Id { len: id.len() });
        }
        Ok(Self(id))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Microseconds since the Unix epoch, in UTC.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Timestamp(pub i64);

/// Which aggregate: the things whose events keep their order.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Aggregate {
    kind: Box<str>,
    id: Box<str>,
}

impl Aggregate {
    /// The aggregate `id` of type `kind`.
    #[must_use]
    pub fn new(kind: impl Into<Box<str>>, id: impl Into<Box<str>>) -> Self {
        Self { kind: kind.into(), id: id.into() }
    }

    /// The aggregate's type.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The aggregate's id within its type.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The hash that segments are cut by.
    #[must_use]
    pub fn key_hash(&self) -> u64 {
        key_hash(&self.kind, &self.id)
    }

    /// The same, borrowed.
    #[must_use]
    pub fn as_ref(&self) -> AggregateRef<'_> {
        AggregateRef { kind: &self.kind, id: &self.id }
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// A borrowed [`Aggregate`].
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AggregateRef<'a> {
    /// The aggregate's type.
    pub kind: &'a str,
    /// The aggregate's id within its type.
    pub id: &'a str,
}

impl AggregateRef<'_> {
    /// The same, owned.
    #[must_use]
    pub fn to_owned(self) -> Aggregate {
        Aggregate::new(self.kind, self.id)
    }
}

impl fmt::Display for AggregateRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.id)
    }
}

/// What travels beside the payload: short texts by name.
///
/// Two names are the framework's: `correlation-id` (the same along a whole chain of events) and `causation-id` (the
/// event that led to this one).
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Metadata(BTreeMap<String, String>);

impl Metadata {
    /// The name under which the correlation id travels.
    pub const CORRELATION_ID: &'static str = "correlation-id";
    /// The name under which the causation id travels.
    pub const CAUSATION_ID: &'static str = "causation-id";

    /// The text under `name`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Puts `value` under `name`, over what was there.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The stored form: a JSON object, or nothing at all where there is nothing.
    #[must_use]
    pub fn to_json(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    /// Reads the stored form; what is no JSON object of texts reads as nothing.
    #[must_use]
    pub fn from_json(json: &str) -> Self {
        if json.is_empty() {
            return Self::default();
        }
        Self(serde_json::from_str(json).unwrap_or_default())
    }
}

/// An event that could not be turned into its stored form.
#[derive(Debug, thiserror::Error)]
#[error("event `{name}` could not be encoded as JSON")]
pub struct EncodeError {
    /// The event's name.
    pub name: &'static str,
    /// What serde said.
    #[source]
    pub source: serde_json::Error,
}

/// A part of an event that no store takes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidEvent {
    /// The id is empty or too long.
    #[error("an event id has 1 to {max} bytes, this one has {len}", max = EventId::MAX_LEN)]
    Id {
        /// Its bytes.
        len: usize,
    },
    /// A name, aggregate type, aggregate id or context is empty, too long or holds a zero byte.
    #[error("the {part} of an event has 1 to {max} bytes and no zero byte, this one has {len}", max = NewEvent::MAX_PART)]
    Part {
        /// Which part.
        part: &'static str,
        /// Its bytes.
        len: usize,
    },
}

/// An event on its way into a log.
#[derive(Clone, Debug)]
pub struct NewEvent {
    /// The caller's id; without one the log gives a fresh one.
    pub id: Option<EventId>,
    /// The aggregate it belongs to.
    pub aggregate: Aggregate,
    /// Its stable name.
    pub name: Cow<'static, str>,
    /// The context it is published in.
    pub context: Cow<'static, str>,
    /// JSON.
    pub payload: Vec<u8>,
    /// What travels beside the payload.
    pub metadata: Metadata,
}

impl NewEvent {
    /// The most bytes a name, aggregate type, aggregate id or context may have.
    pub const MAX_PART: usize = 512;

    /// Encodes a typed event, in the default context, with no id of its own.
    ///
    /// # Errors
    /// [`EncodeError`] where serde refuses the value.
    pub fn of<E: Event>(event: &E) -> Result<Self, EncodeError> {
        let payload = serde_json::to_vec(event).map_err(|source| EncodeError { name: E::NAME, source })?;
        Ok(Self {
            id: None,
            aggregate: Aggregate::new(E::AGGREGATE, event.aggregate_id()),
            name: Cow::Borrowed(E::NAME),
            context: Cow::Borrowed(DEFAULT_CONTEXT),
            payload,
            metadata: Metadata::default(),
        })
    }

    /// Gives the event an id of the caller's: appending it a second time then appends nothing.
    #[must_use]
    pub fn with_id(mut self, id: EventId) -> Self {
        self.id = Some(id);
        self
    }

    /// Publishes the event in a context other than the default.
    #[must_use]
    pub fn in_context(mut self, context: impl Into<Cow<'static, str>>) -> Self {
        self.context = context.into();
        self
    }

    /// Adds a text to the metadata.
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name, value);
        self
    }

    /// Checks what every store relies on.
    ///
    /// # Errors
    /// [`InvalidEvent`] names the part at fault.
    pub fn validate(&self) -> Result<(), InvalidEvent> {
        for (part, text) in [
            ("name", &*self.name),
            ("context", &*self.context),
            ("aggregate type", self.aggregate.kind()),
            ("aggregate id", self.aggregate.id()),
        ] {
            if text.is_empty() || text.len() > Self::MAX_PART || text.contains('\0') {
                return Err(InvalidEvent::Part { part, len: text.len() });
            }
        }
        Ok(())
    }
}

/// What can be appended: a typed event, or a [`NewEvent`] with an id, a context or metadata of its own.
pub trait IntoNewEvent {
    /// The event's form on its way into a log.
    ///
    /// # Errors
    /// [`EncodeError`] where serde refuses the value.
    fn into_new_event(self) -> Result<NewEvent, EncodeError>;
}

impl<E: Event> IntoNewEvent for E {
    fn into_new_event(self) -> Result<NewEvent, EncodeError> {
        NewEvent::of(&self)
    }
}

impl IntoNewEvent for NewEvent {
    fn into_new_event(self) -> Result<NewEvent, EncodeError> {
        Ok(self)
    }
}

/// Shared ownership of one recorded event, independent of the page it came in.
pub(crate) type SharedEvent = Arc<RecordedEvent>;
