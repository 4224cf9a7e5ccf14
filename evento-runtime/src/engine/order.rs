use std::fmt;

use evento_core::{Aggregate, Position, RecordedEvent, Sequence};

/// The source handed over an aggregate's events out of order: nothing read from it can be trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OutOfOrder {
    pub(crate) aggregate: Aggregate,
    pub(crate) position: Position,
    pub(crate) sequence: Sequence,
    pub(crate) after: Sequence,
}

impl fmt::Display for OutOfOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aggregate, position, sequence, after } = self;
        write!(
            f,
            "the source handed over {aggregate} at sequence {sequence} (position {position}) after sequence {after}; \
             its log was altered or restored from a backup: compare it with its copy, then reset the consumer"
        )
    }
}

impl std::error::Error for OutOfOrder {}

/// Asserts at intake that the sequences of one aggregate rise.
///
/// Memory is bounded: it remembers one aggregate per place of a table, so it sees every inversion between events that
/// follow closely, and may miss one between events that are far apart.
#[derive(Debug)]
pub(crate) struct SequenceCheck {
    seen: Box<[(u64, u64)]>,
}

const PLACES: usize = 4096;

impl Default for SequenceCheck {
    fn default() -> Self {
        Self { seen: vec![(0, 0); PLACES].into_boxed_slice() }
    }
}

impl SequenceCheck {
    pub(crate) fn check(&mut self, event: &RecordedEvent) -> Result<(), OutOfOrder> {
        let hash = event.key_hash();
        let sequence = event.sequence();
        // Any bits of the hash do.
        let place = &mut self.seen[(hash >> 20) as usize % PLACES];
        if place.0 == hash && sequence.0 <= place.1 {
            return Err(OutOfOrder {
                aggregate: event.aggregate().to_owned(),
                position: event.position(),
                sequence,
                after: Sequence(place.1),
            });
        }
        *place = (hash, sequence.0);
        Ok(())
    }
}
