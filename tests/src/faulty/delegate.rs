use std::time::Duration;

use evento_core::{
    BoxFuture, ConsumerKey,
    store::{
        Action, Append, AppendError, Appended, CheckpointStore, Claim, ClaimOutcome, ClaimRequest, ClaimStatus,
        ClaimStore, Commit, CommitError, ConsumerState, DeadEventStore, DeadFilter, DeadPage, DeadPosition, EventLog,
        Head, Page, ReadAggregate, ReadAt, ReadLog, Registration, RequestId, RequestStore, Reset, Revision, Selection,
        Store, StoreError, StoredConsumer, StoredRequest, Target, Wake,
    },
};

use super::{FaultyStore, Operation};

/// Passes each operation on, by way of its fate.
macro_rules! delegate {
    ($($operation:ident: fn $name:ident($($argument:ident: $type:ty),*) -> Result<$ok:ty, $error:ty>;)+) => {
        $(fn $name(&self $(, $argument: $type)*) -> BoxFuture<'_, Result<$ok, $error>> {
            Box::pin(self.faults.call(Operation::$operation, self.inner.$name($($argument),*)))
        })+
    };
}

impl Store for FaultyStore<dyn Store> {
    fn close(&self) -> BoxFuture<'_, ()> {
        self.inner.close()
    }
}

impl EventLog for FaultyStore<dyn Store> {
    delegate! {
        Append: fn append(append: Append) -> Result<Appended, AppendError>;
        ReadAt: fn read_at(read: ReadAt) -> Result<Selection, StoreError>;
        ReadAggregate: fn read_aggregate(read: ReadAggregate) -> Result<Selection, StoreError>;
    }

    fn read(&self, read: ReadLog) -> BoxFuture<'_, Result<Page, StoreError>> {
        Box::pin(async move {
            let page = self.faults.call(Operation::Read, self.inner.read(read)).await?;
            Ok(self.faults.altered(page))
        })
    }

    fn head(&self) -> BoxFuture<'_, Result<Head, StoreError>> {
        Box::pin(async move {
            let head = self.faults.call(Operation::Head, self.inner.head()).await?;
            Ok(self.faults.held_back(head))
        })
    }

    fn on_append(&self, wake: Wake) {
        self.inner.on_append(wake);
    }
}

impl ClaimStore for FaultyStore<dyn Store> {
    delegate! {
        Claim: fn claim(request: ClaimRequest) -> Result<ClaimOutcome, StoreError>;
        Renew: fn renew(claims: Vec<Claim>, time_to_live: Duration) -> Result<Vec<Claim>, StoreError>;
        Release: fn release(claim: Claim, clean: bool) -> Result<(), StoreError>;
        Claims: fn claims(bundle: String) -> Result<Vec<ClaimStatus>, StoreError>;
    }
}

impl CheckpointStore for FaultyStore<dyn Store> {
    delegate! {
        Register: fn register(consumers: Vec<Registration>) -> Result<(), StoreError>;
        Load: fn load(claim: Claim) -> Result<ConsumerState, CommitError>;
        Commit: fn commit(claim: Claim, commit: Commit) -> Result<Revision, CommitError>;
        Revision: fn revision(claim: Claim) -> Result<Revision, CommitError>;
        Reset: fn reset(reset: Reset) -> Result<Claim, CommitError>;
        Consumers: fn consumers(bundle: String) -> Result<Vec<StoredConsumer>, StoreError>;
    }
}

impl DeadEventStore for FaultyStore<dyn Store> {
    delegate! {
        DeadEvents: fn dead_events(consumer: ConsumerKey, filter: DeadFilter) -> Result<DeadPage, StoreError>;
        DeadPositions: fn dead_positions(consumer: ConsumerKey, filter: DeadFilter)
            -> Result<Vec<DeadPosition>, StoreError>;
        DeadDepth: fn dead_depth(consumer: ConsumerKey) -> Result<u64, StoreError>;
    }
}

impl RequestStore for FaultyStore<dyn Store> {
    delegate! {
        MakeRequest: fn make_request(consumer: ConsumerKey, action: Action, target: Target)
            -> Result<StoredRequest, StoreError>;
        Request: fn request(id: RequestId) -> Result<StoredRequest, StoreError>;
        OpenRequests: fn open_requests(bundle: String) -> Result<Vec<StoredRequest>, StoreError>;
        StopRequest: fn stop_request(id: RequestId) -> Result<(), StoreError>;
    }
}
