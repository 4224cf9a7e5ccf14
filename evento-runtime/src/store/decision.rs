//! What every store decides alike, apart from how it keeps it.

use std::collections::HashSet;

use evento_core::{
    Aggregate, ConsumerKey, InvalidEvent, NewEvent, Position, Segment, Sequence,
    store::{Append, AppendError, Commit, Expected, Owner, Replay, RequestId, StoreError},
};

/// An event that is in the log under an id that an append brings again.
pub(crate) struct Known {
    pub(crate) position: Position,
    /// Whether aggregate, name, context and payload are the same.
    pub(crate) same: bool,
}

/// What an append's ids make of it.
#[derive(Debug, PartialEq)]
pub(crate) enum Repeat {
    /// No id is known.
    No,
    /// All are: the position of the last.
    Whole(Position),
}

/// Checks what can be told without the log, and answers the one aggregate that the append expects something of.
pub(crate) fn check(append: &Append) -> Result<Option<(&Aggregate, Sequence)>, AppendError> {
    for (index, event) in append.events.iter().enumerate() {
        event.validate().map_err(|source| AppendError::Invalid { index, source })?;
        if event.id.is_none() {
            return Err(AppendError::Invalid { index, source: InvalidEvent::Id { len: 0 } });
        }
    }
    let expected = match append.expected {
        Expected::Any => return Ok(None),
        Expected::NoEvents => Sequence(0),
        Expected::At(sequence) => sequence,
    };
    let Some(first) = append.events.first() else { return Ok(None) };
    if append.events.iter().any(|event| event.aggregate != first.aggregate) {
        return Err(AppendError::SeveralAggregates);
    }
    Ok(Some((&first.aggregate, expected)))
}

/// Decides whether an append is a repeat: of all its events, of none, or of something the log refuses.
pub(crate) fn repeat(
    events: &[NewEvent],
    mut known: impl FnMut(&NewEvent) -> Result<Option<Known>, StoreError>,
) -> Result<Repeat, AppendError> {
    let altered = |event: &NewEvent| AppendError::Altered {
        id: event.id.as_ref().map(|id| id.as_str().to_owned()).unwrap_or_default(),
    };
    let mut seen = HashSet::with_capacity(events.len());
    let mut places = Vec::new();
    let mut last = Position::BEGINNING;
    for (place, event) in events.iter().enumerate() {
        if !seen.insert(&event.id) {
            return Err(altered(event));
        }
        if let Some(known) = known(event)? {
            if !known.same {
                return Err(altered(event));
            }
            places.push(place);
            last = last.max(known.position);
        }
    }
    match places.len() {
        0 => Ok(Repeat::No),
        known if known == events.len() => Ok(Repeat::Whole(last)),
        _ => Err(AppendError::PartlyKnown { known: places }),
    }
}

/// The names of `stored` that `has` lacks.
pub(crate) fn lacking(stored: &[String], has: &[String]) -> Vec<String> {
    stored.iter().filter(|name| !has.contains(name)).cloned().collect()
}

/// Whether an asker stands back: it lacks stored names, and somebody who waits has every one of them.
///
/// One that has them all never stands back itself, so two that each lack something cannot wait for each other.
pub(crate) fn stands_back<'a>(
    stored: &[String],
    asker: &[String],
    waiting: impl IntoIterator<Item = (&'a Owner, &'a [String])>,
) -> Option<(Owner, Vec<String>)> {
    let lacking_here = lacking(stored, asker);
    if lacking_here.is_empty() {
        return None;
    }
    let (owner, _) = waiting.into_iter().find(|(_, names)| lacking(stored, names).is_empty())?;
    Some((owner.clone(), lacking_here))
}

/// Refuses a write that says something no checkpoint can mean.
pub(crate) fn check_commit(commit: &Commit) -> Result<(), StoreError> {
    match commit.opened.iter().find(|position| **position > commit.frontier) {
        Some(position) => Err(StoreError::Refused(format!(
            "position {position} cannot be open above the frontier {}: what is above it has not been admitted",
            commit.frontier
        ))),
        None => Ok(()),
    }
}

/// Why a reset to a place beyond the frontier is refused: what lies between would count as passed unhandled.
pub(crate) fn forwards(to: Position, frontier: Position) -> String {
    format!("a reset goes back, and {to} is beyond the frontier {frontier}; name a position up to that")
}

pub(crate) fn unknown_consumer(consumer: &ConsumerKey) -> String {
    format!("consumer {consumer} is unknown here: register it first")
}

pub(crate) fn unknown_segment(consumer: &ConsumerKey, segment: Segment) -> String {
    format!("consumer {consumer} with segment {segment} is unknown here: register it first")
}

pub(crate) fn no_request(id: RequestId) -> String {
    format!("there is no request {id}; list the consumer's requests")
}

/// What counts as replayed after a reset at `frontier`, where `unpassed` had been admitted and not passed.
///
/// If a replay was under way, what it had not reached again still counts, and what it has passed since does too: the
/// set is the union of what had been passed before it and since.
pub(crate) fn replay(before: Option<&Replay>, frontier: Position, unpassed: impl Iterator<Item = Position>) -> Replay {
    let passed_before = |position| before.is_some_and(|replay| replay.contains(position));
    let mut until = frontier;
    let mut except: Vec<_> = unpassed.filter(|position| *position <= frontier && !passed_before(*position)).collect();
    if let Some(before) = before.filter(|replay| replay.until > frontier) {
        until = before.until;
        except.extend(before.except.iter().filter(|position| **position > frontier));
    }
    except.sort_unstable();
    except.dedup();
    Replay { until, except }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each round of a replay: how far it got, what of that it left open.
    fn rounds() -> impl Strategy<Value = Vec<(u64, Vec<u64>)>> {
        prop::collection::vec((0_u64..12, prop::collection::vec(1_u64..12, 0..4)), 1..6)
    }

    proptest! {
        #[test]
        fn an_event_is_a_replay_exactly_if_some_generation_had_passed_it(rounds in rounds()) {
            let mut passed = HashSet::new();
            let mut stored = None;
            for (frontier, open) in rounds {
                let open: Vec<_> = open.into_iter().filter(|position| *position <= frontier).collect();
                passed.extend((1..=frontier).filter(|position| !open.contains(position)));
                stored = Some(replay(stored.as_ref(), Position::new(frontier), open.into_iter().map(Position::new)));
            }
            let stored = stored.expect("at least one round");
            for position in 1..14 {
                prop_assert_eq!(stored.contains(Position::new(position)), passed.contains(&position), "at {}", position);
            }
        }
    }

    #[test]
    fn two_that_each_lack_a_stored_name_do_not_wait_for_each_other() {
        let stored = ["a".to_owned(), "b".to_owned()];
        let owner = Owner { name: "other".to_owned(), process: None };
        let half = ["b".to_owned()];
        assert_eq!(stands_back(&stored, &stored[..1], [(&owner, &half[..])]), None);
        assert!(stands_back(&stored, &stored[..1], [(&owner, &stored[..])]).is_some());
    }
}
