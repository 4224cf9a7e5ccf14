use evento_core::{
    BoxFuture, ConsumerKey, Position,
    store::{Action, RequestId, RequestProgress, RequestState, RequestStore, StoreError, StoredRequest, Target},
};

use super::{MemoryStore, State};
use crate::store::decision;

impl State {
    fn stored_request(&mut self, id: RequestId) -> Result<&mut StoredRequest, StoreError> {
        self.requests
            .iter_mut()
            .find(|request| request.id == id)
            .ok_or_else(|| StoreError::Refused(decision::no_request(id)))
    }

    pub(super) fn advance_request(&mut self, consumer: &ConsumerKey, progress: RequestProgress) {
        let mut requests = self.requests.iter_mut();
        let found = requests.find(|it| it.id == progress.id && it.consumer == *consumer);
        let Some(request) = found.filter(|it| it.state != RequestState::Finished) else { return };
        request.done = progress.done;
        request.failed = progress.failed;
        request.at = progress.at;
        request.state = match request.state {
            _ if progress.finished => RequestState::Finished,
            RequestState::Pending => RequestState::Running,
            ref other => other.clone(),
        };
    }
}

impl RequestStore for MemoryStore {
    fn make_request(
        &self,
        consumer: ConsumerKey,
        action: Action,
        target: Target,
    ) -> BoxFuture<'_, Result<StoredRequest, StoreError>> {
        self.run(move |state, now| {
            let total = state.known(&consumer)?.count_letters(&target);
            let request = StoredRequest {
                id: RequestId(state.requests.len() as u64 + 1),
                consumer,
                action,
                target,
                total,
                done: 0,
                failed: 0,
                at: Position::BEGINNING,
                state: RequestState::Pending,
                made_at: now,
            };
            state.requests.push(request.clone());
            Ok(request)
        })
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<StoredRequest, StoreError>> {
        self.run(move |state, _| state.stored_request(id).cloned())
    }

    fn open_requests(&self, bundle: String) -> BoxFuture<'_, Result<Vec<StoredRequest>, StoreError>> {
        self.run(move |state, _| {
            let open = |request: &&StoredRequest| {
                request.consumer.bundle == bundle
                    && matches!(request.state, RequestState::Pending | RequestState::Running)
            };
            Ok(state.requests.iter().filter(open).cloned().collect())
        })
    }

    fn stop_request(&self, id: RequestId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.run(move |state, _| {
            let request = state.stored_request(id)?;
            if request.state != RequestState::Finished {
                request.state = RequestState::Stopped;
            }
            Ok(())
        })
    }
}
