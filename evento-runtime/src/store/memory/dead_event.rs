use std::ops::Bound;

use evento_core::{
    BoxFuture, ConsumerKey,
    store::{DeadEvent, DeadEventStore, DeadFilter, DeadPage, DeadPosition, StoreError, Target},
};

use super::{MemoryStore, checkpoint::Consumer};

impl Consumer {
    /// One letter a position: a second one brings its news to the first.
    pub(super) fn put_letter(&mut self, letter: DeadEvent) {
        let news = letter.clone();
        let stored = self.letters.entry(letter.position).or_insert(letter);
        stored.reason = news.reason;
        stored.cause = news.cause;
        stored.attempts = news.attempts;
        stored.first_failed_at = news.first_failed_at;
        stored.last_failed_at = news.last_failed_at;
    }

    pub(super) fn count_letters(&self, target: &Target) -> u64 {
        let of_target = |letter: &&DeadEvent| match target {
            Target::Event(position) => letter.position == *position,
            Target::Aggregate(aggregate) => letter.aggregate == *aggregate,
            Target::Consumer => true,
        };
        self.letters.values().filter(of_target).count() as u64
    }

    fn matching(&self, filter: &DeadFilter) -> impl Iterator<Item = &DeadEvent> {
        let after = (Bound::Excluded(filter.after), Bound::Unbounded);
        self.letters.range(after).map(|(_, letter)| letter).filter(|letter| {
            filter.name.as_ref().is_none_or(|name| letter.name == *name)
                && filter.aggregate.as_ref().is_none_or(|aggregate| letter.aggregate == *aggregate)
                && filter.reason.is_none_or(|reason| letter.reason == reason)
        })
    }

    fn page(&self, filter: &DeadFilter) -> DeadPage {
        let limit = filter.limit.max(1);
        let mut matching = self.matching(filter);
        let letters: Vec<_> = matching.by_ref().take(limit).cloned().collect();
        let next = matching.next().and_then(|_| letters.last()).map(|letter| letter.position);
        DeadPage { letters, next }
    }
}

impl DeadEventStore for MemoryStore {
    fn dead_events(&self, consumer: ConsumerKey, filter: DeadFilter) -> BoxFuture<'_, Result<DeadPage, StoreError>> {
        self.run(move |state, _| {
            Ok(state.consumers.get(&consumer).map(|stored| stored.page(&filter)).unwrap_or_default())
        })
    }

    fn dead_positions(
        &self,
        consumer: ConsumerKey,
        filter: DeadFilter,
    ) -> BoxFuture<'_, Result<Vec<DeadPosition>, StoreError>> {
        self.run(move |state, _| {
            let Some(stored) = state.consumers.get(&consumer) else { return Ok(Vec::new()) };
            let letters = stored.matching(&filter).take(filter.limit.max(1));
            Ok(letters.map(|letter| DeadPosition { position: letter.position, parks: letter.parks }).collect())
        })
    }

    fn dead_depth(&self, consumer: ConsumerKey) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.run(move |state, _| Ok(state.consumers.get(&consumer).map_or(0, |stored| stored.letters.len() as u64)))
    }
}
