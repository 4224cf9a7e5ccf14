use std::{fmt, str};

use super::{AggregateRef, Metadata, Position, Sequence, Timestamp};
use crate::key_hash;

/// An event as its source stores it: the envelope, with the payload still encoded.
///
/// It owns its bytes in one piece, so an event that waits keeps nothing else alive.
#[derive(Clone)]
pub struct RecordedEvent {
    position: Position,
    sequence: Sequence,
    recorded_at: Timestamp,
    key_hash: u64,
    oversize: Option<u64>,
    /// id, name, context, aggregate type, aggregate id, metadata; then the payload.
    content: Content,
    ends: [u32; 6],
}

/// What is text is checked once, so that neither its parts nor the decoder look at it again.
#[derive(Clone)]
enum Content {
    Text(Box<str>),
    /// The payload is none.
    Bytes(Box<[u8]>),
}

impl Content {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The parts of a [`RecordedEvent`], borrowed: what a store fills in.
#[derive(Clone, Copy, Debug)]
pub struct RecordedParts<'a> {
    /// Its place in the source.
    pub position: Position,
    /// The event's id.
    pub id: &'a str,
    /// Its stable name.
    pub name: &'a str,
    /// The context it was published in.
    pub context: &'a str,
    /// The aggregate it belongs to.
    pub aggregate: AggregateRef<'a>,
    /// Its place in the aggregate.
    pub sequence: Sequence,
    /// The metadata as stored, see [`Metadata::to_json`].
    pub metadata: &'a str,
    /// The payload; empty where `oversize` is set.
    pub payload: &'a [u8],
    /// The payload's size in bytes where it was over the reader's limit and so was not read.
    pub oversize: Option<u64>,
    /// When it was appended, by the store's clock.
    pub recorded_at: Timestamp,
}

impl RecordedEvent {
    /// Copies the parts into one piece.
    #[must_use]
    pub fn new(parts: RecordedParts<'_>) -> Self {
        let texts = [parts.id, parts.name, parts.context, parts.aggregate.kind, parts.aggregate.id, parts.metadata];
        let size = texts.iter().map(|text| text.len()).sum::<usize>() + parts.payload.len();
        let mut bytes = Vec::with_capacity(size);
        let mut ends = [0; 6];
        for (end, text) in ends.iter_mut().zip(texts) {
            bytes.extend_from_slice(text.as_bytes());
            // Names and ids are bounded by `NewEvent::MAX_PART`; metadata of 4 GiB is no event.
            *end = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        }
        bytes.extend_from_slice(parts.payload);
        Self {
            position: parts.position,
            sequence: parts.sequence,
            recorded_at: parts.recorded_at,
            key_hash: key_hash(parts.aggregate.kind, parts.aggregate.id),
            oversize: parts.oversize,
            content: match String::from_utf8(bytes) {
                Ok(text) => Content::Text(text.into_boxed_str()),
                Err(no_text) => Content::Bytes(no_text.into_bytes().into_boxed_slice()),
            },
            ends,
        }
    }

    fn text(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        // Cut along the borders of the `&str`s it was built from.
        let part = start..self.ends[index] as usize;
        match &self.content {
            Content::Text(text) => &text[part],
            Content::Bytes(bytes) => str::from_utf8(&bytes[part]).unwrap_or_default(),
        }
    }

    /// Its place in the source.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// The event's id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.text(0)
    }

    /// Its stable name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text(1)
    }

    /// The context it was published in.
    #[must_use]
    pub fn context(&self) -> &str {
        self.text(2)
    }

    /// The aggregate it belongs to.
    #[must_use]
    pub fn aggregate(&self) -> AggregateRef<'_> {
        AggregateRef { kind: self.text(3), id: self.text(4) }
    }

    /// The hash of that aggregate, see [`key_hash`](crate::key_hash()).
    #[must_use]
    pub fn key_hash(&self) -> u64 {
        self.key_hash
    }

    /// Its place in the aggregate.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// When it was appended, by the store's clock.
    #[must_use]
    pub fn recorded_at(&self) -> Timestamp {
        self.recorded_at
    }

    /// The payload, as it was appended. Empty where [`oversize`](Self::oversize) says so.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.content.as_bytes()[self.ends[5] as usize..]
    }

    /// The payload as text, which JSON is; `None` where it is no UTF-8.
    #[must_use]
    pub fn payload_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(&text[self.ends[5] as usize..]),
            Content::Bytes(_) => None,
        }
    }

    /// The payload's size in bytes, where it was over the reader's limit and was left in the log.
    #[must_use]
    pub fn oversize(&self) -> Option<u64> {
        self.oversize
    }

    /// What travels beside the payload, parsed anew at each call.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata::from_json(self.metadata_json())
    }

    /// The metadata as stored.
    #[must_use]
    pub fn metadata_json(&self) -> &str {
        self.text(5)
    }

    /// How much memory the event's bytes take: what buffers are bounded by.
    #[must_use]
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.content.as_bytes().len()
    }
}

impl fmt::Debug for RecordedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordedEvent")
            .field("position", &self.position)
            .field("id", &self.id())
            .field("name", &self.name())
            .field("context", &self.context())
            .field("aggregate", &format_args!("{}", self.aggregate()))
            .field("sequence", &self.sequence)
            .field("payload", &String::from_utf8_lossy(self.payload()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_payload(payload: &[u8]) -> RecordedEvent {
        RecordedEvent::new(RecordedParts {
            position: Position::new(1),
            id: "é-1",
            name: "order.placed",
            context: "default",
            aggregate: AggregateRef { kind: "order", id: "ü" },
            sequence: Sequence(1),
            metadata: "",
            payload,
            oversize: None,
            recorded_at: Timestamp(0),
        })
    }

    #[test]
    fn the_parts_come_back_whether_the_payload_is_text_or_not() {
        for (payload, text) in [(&b"{}"[..], Some("{}")), (b"", Some("")), (b"{\xff}", None), (b"\x80", None)] {
            let event = with_payload(payload);
            assert_eq!((event.payload(), event.payload_text()), (payload, text));
            assert_eq!((event.id(), event.name(), event.context()), ("é-1", "order.placed", "default"));
            assert_eq!((event.aggregate(), event.metadata_json()), (AggregateRef { kind: "order", id: "ü" }, ""));
        }
    }
}
