//! A store of one consumer, as the contract has it.

use std::collections::{BTreeMap, BTreeSet};

use evento_core::{
    Aggregate, Position, Timestamp,
    store::{
        Commit, ConsumerState, DeadEvent, HeldKey, RequestId, RequestState, Revision, Started, StoredRequest,
        StoredRetry, Target,
    },
};

use crate::store::decision;

#[derive(Debug, Default)]
pub(super) struct ModelStore {
    pub(super) revision: Revision,
    pub(super) frontier: Position,
    pub(super) open: BTreeSet<Position>,
    pub(super) held: BTreeMap<Aggregate, HeldKey>,
    pub(super) retries: BTreeMap<Position, StoredRetry>,
    pub(super) started: BTreeMap<Position, Started>,
    pub(super) letters: BTreeMap<Position, DeadEvent>,
    pub(super) names: Vec<String>,
    pub(super) requests: Vec<StoredRequest>,
}

/// What a write came to.
#[derive(Debug)]
pub(super) enum Applied {
    Made(Revision),
    Superseded { stored: Revision, replaced: Revision },
}

impl ModelStore {
    pub(super) fn load(&self) -> ConsumerState {
        let unsettled = |position: &Position| *position > self.frontier || self.open.contains(position);
        ConsumerState {
            revision: self.revision,
            frontier: self.frontier,
            open: self.open.iter().copied().collect(),
            held: self.held.values().cloned().collect(),
            retries: self.retries.values().cloned().collect(),
            started: self.started.values().copied().collect(),
            letters: self.letters.keys().copied().filter(unsettled).collect(),
            names: self.names.clone(),
            ..ConsumerState::default()
        }
    }

    pub(super) fn apply(&mut self, commit: Commit) -> Result<Applied, String> {
        if self.revision != commit.replaces {
            return Ok(Applied::Superseded { stored: self.revision, replaced: commit.replaces });
        }
        decision::check_commit(&commit).map_err(|error| error.to_string())?;
        if commit.frontier < self.frontier {
            return Err(format!("the frontier falls from {} to {}", self.frontier, commit.frontier));
        }
        self.revision = self.revision.next();
        self.frontier = commit.frontier;
        for position in &commit.closed {
            if !self.open.remove(position) {
                return Err(format!("{position} is closed and was not open"));
            }
        }
        for position in commit.opened {
            if !self.open.insert(position) {
                return Err(format!("{position} is opened and was open"));
            }
        }
        if let Some(names) = commit.names {
            self.names = names;
        }
        for aggregate in &commit.released {
            self.held.remove(aggregate);
        }
        self.held.extend(commit.held.into_iter().map(|held| (held.aggregate.clone(), held)));
        for position in &commit.retries_ended {
            self.retries.remove(position);
        }
        self.retries.extend(commit.retries.into_iter().map(|retry| (retry.position, retry)));
        for position in &commit.started_ended {
            self.started.remove(position);
        }
        self.started.extend(commit.started.into_iter().map(|started| (started.position, started)));
        for position in &commit.dead_ended {
            self.letters.remove(position);
        }
        for dead in commit.dead {
            match self.letters.get_mut(&dead.position) {
                Some(letter) => {
                    letter.attempts = dead.attempts;
                    letter.last_failed_at = dead.last_failed_at;
                    letter.cause = dead.cause;
                    letter.reason = dead.reason;
                }
                None => {
                    self.letters.insert(dead.position, dead);
                }
            }
        }
        for progress in commit.requests {
            let Some(request) = self.requests.iter_mut().find(|request| request.id == progress.id) else { continue };
            request.done = progress.done;
            request.failed = progress.failed;
            request.at = progress.at;
            match request.state {
                RequestState::Pending | RequestState::Running if progress.finished => {
                    request.state = RequestState::Finished;
                }
                RequestState::Pending => request.state = RequestState::Running,
                _ => {}
            }
        }
        Ok(Applied::Made(self.revision))
    }

    // ---- requests

    pub(super) fn open_requests(&self) -> Vec<StoredRequest> {
        self.requests.iter().filter(|it| is_open(it)).cloned().collect()
    }

    pub(super) fn make_request(&mut self, request: StoredRequest) {
        let id = RequestId(self.requests.len() as u64 + 1);
        self.requests.push(StoredRequest { id, ..request });
    }

    /// A page of the letters of a request, and whether it is the last.
    pub(super) fn letters_of(&self, target: &Target, after: Position, limit: usize) -> (Vec<DeadEvent>, bool) {
        let is_of = |letter: &&DeadEvent| match target {
            Target::Event(position) => letter.position == *position,
            Target::Aggregate(aggregate) => letter.aggregate == *aggregate,
            Target::Consumer => true,
        };
        let mut letters: Vec<_> = self.letters.range(after.just_after()..).map(|(_, it)| it).filter(is_of).collect();
        let last = letters.len() <= limit;
        letters.truncate(limit);
        (letters.into_iter().cloned().collect(), last)
    }
}

pub(super) fn is_open(request: &StoredRequest) -> bool {
    matches!(request.state, RequestState::Pending | RequestState::Running)
}

pub(super) fn wall(now: u64) -> Timestamp {
    Timestamp(1_700_000_000_000_000 + now as i64)
}
