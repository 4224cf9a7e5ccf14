use std::{sync::Arc, time::Duration};

use evento_core::{
    Position,
    store::{
        Claim, Commit, CommitError, DeadEvent, DeadFilter, DeadPosition, Filter, Page, ReadAggregate, ReadAt, ReadLog,
        Revision, Selection, StoreError, Target,
    },
};

use super::Shared;
use crate::engine::Read;

/// A read or a write that has ended.
#[derive(Debug)]
pub(super) enum Done {
    Page(Result<Page, StoreError>),
    Read(Read, Result<Found, StoreError>),
    Commit(Result<Revision, CommitError>),
    /// A write whose outcome was unknown: what the store holds.
    Resolved(Result<Revision, CommitError>),
}

/// What a read beside the stream found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) selection: Selection,
    /// Where letters of the aggregate are, up to where its events were looked at.
    pub(super) dead: Vec<DeadPosition>,
    pub(super) letters: Vec<DeadEvent>,
    pub(super) last: bool,
}

/// How many letters, or events of an aggregate, are read at once.
const LETTERS: usize = 100;

/// How many positions of letters are read at once.
const DEAD_POSITIONS: usize = 1_000;

/// The store as one consumer uses it.
#[derive(Clone, Debug)]
pub(super) struct Io {
    pub(super) shared: Arc<Shared>,
    pub(super) claim: Claim,
    pub(super) filter: Arc<Filter>,
}

impl Io {
    pub(super) async fn page(self, after: Position, delay: Duration) -> Done {
        wait(delay).await;
        let settings = &self.shared.settings;
        let read = ReadLog {
            after,
            filter: Arc::clone(&self.filter),
            max_events: settings.page.events,
            max_bytes: self.shared.page_bytes,
            max_scanned: settings.page.scanned,
            max_payload: settings.payload_limit,
        };
        Done::Page(self.shared.store.read(read).await)
    }

    pub(super) async fn read(self, read: Read, delay: Duration) -> Done {
        wait(delay).await;
        let found = match &read {
            Read::At(positions) => self.at(positions.clone()).await,
            Read::Letter(position) => self.at(vec![*position]).await,
            Read::Aggregate { aggregate, after, until, max, max_bytes, .. } => {
                self.aggregate(ReadAggregate {
                    aggregate: aggregate.clone(),
                    after: *after,
                    until: *until,
                    filter: Arc::clone(&self.filter),
                    max_events: *max,
                    max_bytes: *max_bytes,
                    max_payload: self.shared.settings.payload_limit,
                })
                .await
            }
            Read::Letters { target, after, .. } => self.letters(target, *after).await,
        };
        Done::Read(read, found)
    }

    async fn at(&self, positions: Vec<Position>) -> Result<Found, StoreError> {
        let (max_bytes, max_payload) = (self.shared.page_bytes, self.shared.settings.payload_limit);
        let selection = self.shared.store.read_at(ReadAt { positions, max_bytes, max_payload }).await?;
        Ok(Found { selection, ..Found::default() })
    }

    /// Letters are read first: one that is written in between belongs to an event that is read after it.
    async fn aggregate(&self, mut read: ReadAggregate) -> Result<Found, StoreError> {
        let filter = DeadFilter {
            aggregate: Some(read.aggregate.clone()),
            after: read.after,
            limit: DEAD_POSITIONS,
            ..DeadFilter::default()
        };
        let dead = self.shared.store.dead_positions(self.claim.consumer.clone(), filter).await?;
        // Beyond the last of them there may be more.
        if dead.len() >= DEAD_POSITIONS
            && let Some(last) = dead.last()
        {
            read.until = read.until.min(last.position);
        }
        let selection = self.shared.store.read_aggregate(read).await?;
        Ok(Found { selection, dead, ..Found::default() })
    }

    async fn letters(&self, target: &Target, after: Position) -> Result<Found, StoreError> {
        let mut filter = DeadFilter { after, limit: LETTERS, ..DeadFilter::default() };
        match target {
            Target::Event(position) => {
                filter.after = after.max(position.just_before());
                filter.limit = 1;
            }
            Target::Aggregate(aggregate) => filter.aggregate = Some(aggregate.clone()),
            Target::Consumer => {}
        }
        let mut page = self.shared.store.dead_events(self.claim.consumer.clone(), filter).await?;
        let mut last = page.next.is_none();
        if let Target::Event(position) = target {
            page.letters.retain(|letter| letter.position == *position);
            last = true;
        }
        Ok(Found { letters: page.letters, last, ..Found::default() })
    }

    pub(super) async fn commit(self, commit: Commit) -> Done {
        Done::Commit(self.shared.store.commit(self.claim, commit).await)
    }

    /// After an unknown outcome: reads back what is stored.
    pub(super) async fn resolve(self, delay: Duration) -> Done {
        wait(delay).await;
        Done::Resolved(self.shared.store.revision(self.claim).await)
    }
}

/// The delay before the store is asked again after so many failures in a row.
pub(super) fn backoff(failures: u32) -> Duration {
    if failures == 0 { Duration::ZERO } else { Duration::from_millis(50 << failures.min(6)) }
}

async fn wait(delay: Duration) {
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
}
