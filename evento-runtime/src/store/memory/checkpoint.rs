use std::collections::{BTreeMap, BTreeSet};

use evento_core::{
    Aggregate, BoxFuture, Position, Segment, StartAt, Timestamp,
    store::{
        CheckpointStore, Claim, Commit, CommitError, ConsumerState, DeadEvent, Generation, HeldKey, Registration,
        Replay, Reset, Revision, Started, StoreError, StoredConsumer, StoredRetry, WhyHeld,
    },
};

use super::{
    MemoryStore, State,
    claim::{StoredClaim, after},
};
use crate::store::decision;

/// What belongs to the component, whichever segment wrote it.
#[derive(Default)]
pub(super) struct Consumer {
    pub(super) segments: BTreeMap<Segment, StoredSegment>,
    pub(super) letters: BTreeMap<Position, DeadEvent>,
    held: BTreeMap<Aggregate, HeldKey>,
    retries: BTreeMap<Position, StoredRetry>,
    started: BTreeMap<Position, Started>,
    archives: Vec<Archive>,
}

/// What a reset took away.
#[expect(dead_code, reason = "nothing reads archives yet; they are kept as the other stores keep them")]
struct Archive {
    generation: Generation,
    letters: BTreeMap<Position, DeadEvent>,
    held: BTreeMap<Aggregate, HeldKey>,
    retries: BTreeMap<Position, StoredRetry>,
    started: BTreeMap<Position, Started>,
}

#[derive(Default)]
pub(super) struct StoredSegment {
    pub(super) claim: StoredClaim,
    pub(super) names: Vec<String>,
    revision: Revision,
    generation: Generation,
    frontier: Position,
    open: BTreeSet<Position>,
    replay: Option<Replay>,
    written_at: Option<Timestamp>,
}

impl State {
    /// Consumer and segment of a claim that is held.
    fn under(&mut self, claim: &Claim) -> Result<(&mut Consumer, Segment), CommitError> {
        self.fenced(claim)?;
        let consumer = self.consumers.get_mut(&claim.consumer).ok_or(CommitError::Fenced)?;
        Ok((consumer, claim.segment))
    }

    fn register(&mut self, consumers: Vec<Registration>) {
        let head = self.log.head();
        for registration in consumers {
            let frontier = match registration.start {
                StartAt::Beginning => Position::BEGINNING,
                StartAt::Head => head,
            };
            self.consumers.entry(registration.consumer).or_insert_with(|| {
                let segment = StoredSegment { frontier, names: registration.names, ..StoredSegment::default() };
                Consumer { segments: BTreeMap::from([(Segment::WHOLE, segment)]), ..Consumer::default() }
            });
        }
    }

    fn commit(&mut self, claim: &Claim, commit: Commit, now: Timestamp) -> Result<Revision, CommitError> {
        let (consumer, segment) = self.under(claim)?;
        let segment = consumer.segments.get_mut(&segment).ok_or(CommitError::Fenced)?;
        // Everything is checked before anything is changed.
        decision::check_commit(&commit)?;
        if segment.revision != commit.replaces {
            return Err(CommitError::Superseded { stored: segment.revision, replaced: commit.replaces });
        }
        if commit.frontier < segment.frontier {
            return Err(CommitError::Backwards { stored: segment.frontier, written: commit.frontier });
        }
        segment.revision = segment.revision.next();
        segment.frontier = commit.frontier;
        segment.written_at = Some(now);
        segment.open.retain(|position| !commit.closed.contains(position));
        segment.open.extend(commit.opened);
        if let Some(names) = commit.names {
            segment.names = names;
        }
        let revision = segment.revision;
        for aggregate in &commit.released {
            consumer.held.remove(aggregate);
        }
        consumer.held.extend(commit.held.into_iter().map(|held| (held.aggregate.clone(), held)));
        remove(&mut consumer.retries, &commit.retries_ended);
        consumer.retries.extend(commit.retries.into_iter().map(|retry| (retry.position, retry)));
        remove(&mut consumer.started, &commit.started_ended);
        consumer.started.extend(commit.started.into_iter().map(|started| (started.position, started)));
        remove(&mut consumer.letters, &commit.dead_ended);
        for dead in commit.dead {
            consumer.put_letter(dead);
        }
        for progress in commit.requests {
            self.advance_request(&claim.consumer, progress);
        }
        Ok(revision)
    }

    fn reset(&mut self, reset: Reset, now: Timestamp) -> Result<Claim, CommitError> {
        let Reset { mut claim, to, time_to_live } = reset;
        self.fenced(&claim)?;
        let Self { log, consumers, .. } = self;
        let consumer = consumers.get_mut(&claim.consumer).ok_or(CommitError::Fenced)?;
        let segment = consumer.segments.get_mut(&claim.segment).ok_or(CommitError::Fenced)?;
        if to > segment.frontier {
            return Err(StoreError::Refused(decision::forwards(to, segment.frontier)).into());
        }
        // What is behind a held key has not been passed, though no single position of it is open.
        let held = consumer.held.values().filter(|held| claim.segment.contains(held.aggregate.key_hash()));
        let waiting = held.flat_map(|held| {
            log.of_aggregate(&held.aggregate, Position::BEGINNING, segment.frontier)
                .map(|event| (event.position(), event.name(), event.context()))
                .filter(|(position, name, context)| {
                    *position >= held.from
                        && *context == claim.consumer.context
                        && segment.names.iter().any(|known| known == name)
                        && !consumer.letters.contains_key(position)
                })
                .map(|(position, ..)| position)
        });
        let unpassed: BTreeSet<_> = segment.open.iter().copied().chain(waiting).collect();
        let ended = segment.generation;
        segment.replay = Some(decision::replay(segment.replay.as_ref(), segment.frontier, unpassed.into_iter()));
        segment.open.retain(|position| *position <= to);
        segment.frontier = to;
        segment.revision = segment.revision.next();
        segment.generation = Generation(segment.generation.0 + 1);
        segment.written_at = Some(now);
        claim.epoch = segment.claim.renewed_epoch(after(now, time_to_live));
        let part = claim.segment;
        consumer.archives.push(Archive {
            generation: ended,
            letters: split(&mut consumer.letters, |it| it.position > to && part.contains(it.aggregate.key_hash())),
            held: split(&mut consumer.held, |it| it.from > to && part.contains(it.aggregate.key_hash())),
            retries: split(&mut consumer.retries, |it| it.position > to && part.contains(it.key_hash)),
            started: split(&mut consumer.started, |it| it.position > to && part.contains(it.key_hash)),
        });
        Ok(claim)
    }
}

impl Consumer {
    fn state(&self, part: Segment) -> Option<ConsumerState> {
        let segment = self.segments.get(&part)?;
        let unsettled = |position: &Position| *position > segment.frontier || segment.open.contains(position);
        let letters = self.letters.values().filter(|letter| part.contains(letter.aggregate.key_hash()));
        Some(ConsumerState {
            revision: segment.revision,
            generation: segment.generation,
            frontier: segment.frontier,
            open: segment.open.iter().copied().collect(),
            held: self.held.values().filter(|held| part.contains(held.aggregate.key_hash())).cloned().collect(),
            retries: self.retries.values().filter(|retry| part.contains(retry.key_hash)).cloned().collect(),
            started: self.started.values().filter(|started| part.contains(started.key_hash)).copied().collect(),
            letters: letters.map(|letter| letter.position).filter(unsettled).collect(),
            names: segment.names.clone(),
            replay: segment.replay.clone(),
        })
    }
}

fn remove<T>(rows: &mut BTreeMap<Position, T>, positions: &[Position]) {
    for position in positions {
        rows.remove(position);
    }
}

fn split<K: Ord, V>(rows: &mut BTreeMap<K, V>, mut away: impl FnMut(&V) -> bool) -> BTreeMap<K, V> {
    rows.extract_if(.., |_, row| away(row)).collect()
}

impl CheckpointStore for MemoryStore {
    fn register(&self, consumers: Vec<Registration>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.run(move |state, _| {
            state.register(consumers);
            Ok(())
        })
    }

    fn load(&self, claim: Claim) -> BoxFuture<'_, Result<ConsumerState, CommitError>> {
        self.run(move |state, _| {
            let (consumer, segment) = state.under(&claim)?;
            consumer.state(segment).ok_or(CommitError::Fenced)
        })
    }

    fn commit(&self, claim: Claim, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>> {
        self.run(move |state, now| state.commit(&claim, commit, now))
    }

    fn revision(&self, claim: Claim) -> BoxFuture<'_, Result<Revision, CommitError>> {
        self.run(move |state, _| {
            let (consumer, segment) = state.under(&claim)?;
            consumer.segments.get(&segment).map(|segment| segment.revision).ok_or(CommitError::Fenced)
        })
    }

    fn reset(&self, reset: Reset) -> BoxFuture<'_, Result<Claim, CommitError>> {
        self.run(move |state, now| state.reset(reset, now))
    }

    fn consumers(&self, bundle: String) -> BoxFuture<'_, Result<Vec<StoredConsumer>, StoreError>> {
        self.run(move |state, _| {
            let consumers = state.consumers.iter().filter(|(key, _)| key.bundle == bundle);
            let segments =
                consumers.flat_map(|(key, consumer)| consumer.segments.iter().map(move |it| (key, consumer, it)));
            let stored = segments.map(|(key, consumer, (segment, stored))| StoredConsumer {
                consumer: key.clone(),
                segment: *segment,
                frontier: stored.frontier,
                open: stored.open.len() as u64,
                waiting: consumer
                    .held
                    .values()
                    .filter(|held| held.why != WhyHeld::Dead && segment.contains(held.aggregate.key_hash()))
                    .count() as u64,
                generation: stored.generation,
                written_at: stored.written_at,
            });
            Ok(stored.collect())
        })
    }
}
