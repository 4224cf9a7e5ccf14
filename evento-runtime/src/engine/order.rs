use std::{fmt, hash::BuildHasher};

use evento_core::{Aggregate, Position, RecordedEvent, Sequence};
use foldhash::fast::RandomState;

/// The source handed events over out of order: nothing read from it can be trusted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct OutOfOrder {
    pub(crate) aggregate: Aggregate,
    pub(crate) position: Position,
    pub(crate) sequence: Sequence,
    pub(crate) after: After,
}

/// What came before, and should not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum After {
    /// An event of any aggregate, at this position.
    Position(Position),
    /// An event of the same aggregate.
    Sequence(Sequence),
}

impl fmt::Display for After {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(position) => write!(f, "position {position}"),
            Self::Sequence(sequence) => write!(f, "sequence {sequence}"),
        }
    }
}

impl fmt::Display for OutOfOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { aggregate, position, sequence, after } = self;
        write!(
            f,
            "the source handed over {aggregate} at sequence {sequence} (position {position}) after {after}; \
             its log was altered or restored from a backup; compare it with its copy, then reset the consumer: to the \
             beginning, or to where it stands now if it is to take the events as they are"
        )
    }
}

/// Asserts at intake that the sequences of one aggregate rise.
///
/// Memory is bounded: it remembers one aggregate per place of a table, so it sees every inversion between events that
/// follow closely, and may miss one between events that are far apart, or between two processes.
#[derive(Debug)]
pub(crate) struct SequenceCheck {
    seen: Box<[Seen]>,
    /// Keyed by chance: no aggregate can be named so that it is taken for another.
    hashes: RandomState,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    aggregate: u64,
    sequence: Sequence,
    position: Position,
}

const PLACE_BITS: u32 = 12;

impl Default for SequenceCheck {
    fn default() -> Self {
        Self { seen: vec![Seen::default(); 1 << PLACE_BITS].into_boxed_slice(), hashes: RandomState::default() }
    }
}

impl SequenceCheck {
    /// Checks the event that follows on `frontier`. One that an earlier taking of the claim had handed over already is in
    /// order.
    pub(crate) fn check(&mut self, event: &RecordedEvent, frontier: Position) -> Result<(), OutOfOrder> {
        let (sequence, position) = (event.sequence(), event.position());
        let refused = |after| Err(OutOfOrder { aggregate: event.aggregate().to_owned(), position, sequence, after });
        if position <= frontier {
            return refused(After::Position(frontier));
        }
        let aggregate = self.hashes.hash_one(event.aggregate());
        let place = &mut self.seen[(aggregate >> (u64::BITS - PLACE_BITS)) as usize];
        if place.aggregate == aggregate {
            if position <= place.position {
                return Ok(());
            }
            if sequence <= place.sequence {
                return refused(After::Sequence(place.sequence));
            }
        }
        *place = Seen { aggregate, sequence, position };
        Ok(())
    }
}
