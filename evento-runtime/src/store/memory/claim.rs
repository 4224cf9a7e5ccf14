use std::time::Duration;

use evento_core::{
    BoxFuture, Timestamp,
    store::{Claim, ClaimOutcome, ClaimRequest, ClaimStatus, ClaimStore, CommitError, Epoch, Owner, StoreError},
};

use super::{MemoryStore, State};
use crate::store::{decision, process};

#[derive(Default)]
pub(super) struct StoredClaim {
    pub(super) epoch: Epoch,
    pub(super) holder: Option<Holder>,
    /// The last holder let it go, but not as clean.
    left_unclean: bool,
    waiting: Vec<Waiting>,
}

pub(super) struct Holder {
    pub(super) owner: Owner,
    pub(super) until: Timestamp,
    /// What its taking was answered: asking again answers the same.
    clean: bool,
}

/// A process that asked and was not given the claim: remembered until its time to live runs out.
struct Waiting {
    owner: Owner,
    names: Vec<String>,
    until: Timestamp,
}

impl StoredClaim {
    /// Whether `claim` is the present taking. Its time does not matter: while nobody took it over, it is held.
    pub(super) fn is(&self, claim: &Claim) -> bool {
        self.epoch == claim.epoch && self.holder.as_ref().is_some_and(|holder| holder.owner.name == claim.owner.name)
    }

    fn take(&mut self, request: ClaimRequest, stored_names: &[String], now: Timestamp) -> ClaimOutcome {
        let until = after(now, request.time_to_live);
        self.waiting.retain(|waiting| {
            waiting.until > now && waiting.owner.name != request.owner.name && !is_dead(&waiting.owner)
        });
        let clean = match &self.holder {
            Some(holder) if holder.owner.name == request.owner.name => holder.clean,
            Some(holder) if holder.until > now && !is_dead(&holder.owner) => {
                let held = ClaimOutcome::Held { owner: holder.owner.clone(), until: holder.until };
                self.waiting.push(Waiting { owner: request.owner, names: request.names, until });
                return held;
            }
            free => {
                let waiting = self.waiting.iter().map(|waiting| (&waiting.owner, &waiting.names[..]));
                if let Some((owner, lacking)) = decision::stands_back(stored_names, &request.names, waiting) {
                    self.waiting.push(Waiting { owner: request.owner, names: request.names, until });
                    return ClaimOutcome::StandBack { owner, lacking };
                }
                free.is_none() && !self.left_unclean
            }
        };
        self.epoch = Epoch(self.epoch.0 + 1);
        self.holder = Some(Holder { owner: request.owner.clone(), until, clean });
        let claim =
            Claim { consumer: request.consumer, segment: request.segment, owner: request.owner, epoch: self.epoch };
        ClaimOutcome::Taken { claim, clean }
    }

    /// Ends the present epoch and begins another of the same holder.
    pub(super) fn renewed_epoch(&mut self, until: Timestamp) -> Epoch {
        self.epoch = Epoch(self.epoch.0 + 1);
        if let Some(holder) = &mut self.holder {
            holder.until = until;
        }
        self.epoch
    }
}

impl State {
    /// The segment of a claim that is held, or [`CommitError::Fenced`].
    pub(super) fn fenced(&mut self, claim: &Claim) -> Result<(), CommitError> {
        let segment = self.consumers.get(&claim.consumer).and_then(|consumer| consumer.segments.get(&claim.segment));
        match segment {
            Some(segment) if segment.claim.is(claim) => Ok(()),
            _ => Err(CommitError::Fenced),
        }
    }

    fn held(&mut self, claim: &Claim) -> Option<&mut StoredClaim> {
        let segment = self.consumers.get_mut(&claim.consumer)?.segments.get_mut(&claim.segment)?;
        segment.claim.is(claim).then_some(&mut segment.claim)
    }
}

pub(super) fn after(now: Timestamp, duration: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
}

fn is_dead(owner: &Owner) -> bool {
    owner.process.as_ref().is_some_and(process::is_dead)
}

impl ClaimStore for MemoryStore {
    fn claim(&self, request: ClaimRequest) -> BoxFuture<'_, Result<ClaimOutcome, StoreError>> {
        self.run(move |state, now| {
            let segment = state.known_segment(&request.consumer, request.segment)?;
            Ok(segment.claim.take(request, &segment.names, now))
        })
    }

    fn renew(&self, mut claims: Vec<Claim>, time_to_live: Duration) -> BoxFuture<'_, Result<Vec<Claim>, StoreError>> {
        self.run(move |state, now| {
            claims.retain(|claim| match state.held(claim).and_then(|held| held.holder.as_mut()) {
                Some(holder) => {
                    holder.until = after(now, time_to_live);
                    false
                }
                None => true,
            });
            Ok(claims)
        })
    }

    fn release(&self, claim: Claim, clean: bool) -> BoxFuture<'_, Result<(), StoreError>> {
        self.run(move |state, _| {
            if let Some(held) = state.held(&claim) {
                held.holder = None;
                held.left_unclean = !clean;
            }
            Ok(())
        })
    }

    fn claims(&self, bundle: String) -> BoxFuture<'_, Result<Vec<ClaimStatus>, StoreError>> {
        self.run(move |state, _| {
            let consumers = state.consumers.iter().filter(|(key, _)| key.bundle == bundle);
            let segments = consumers.flat_map(|(key, consumer)| consumer.segments.iter().map(move |it| (key, it)));
            let statuses = segments.map(|(key, (segment, stored))| ClaimStatus {
                consumer: key.clone(),
                segment: *segment,
                epoch: stored.claim.epoch,
                owner: stored.claim.holder.as_ref().map(|holder| (holder.owner.clone(), holder.until)),
            });
            Ok(statuses.collect())
        })
    }
}
