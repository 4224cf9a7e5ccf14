use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use evento_core::store::{Claim, Store};
use tokio::sync::Notify;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::Attention;
use crate::{clock::Clock, config::ClaimSettings};

/// Renews every claim of the process, on a thread of its own that no handler can delay.
///
/// A claim counts as lost one second before its time would be up, measured on the boot clock from the *sending* of the
/// last renewal that succeeded.
#[derive(Clone)]
pub(crate) struct Keeper {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn Store>,
    settings: ClaimSettings,
    clock: Clock,
    claims: Mutex<HashMap<u64, Entry>>,
    next_id: AtomicU64,
    changed: Notify,
    /// Where it runs on the bundle's runtime: apart from the consumers, which it outlives.
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Entry {
    claim: Claim,
    lease: Arc<Lease>,
}

/// How long a claim is good for.
#[derive(Debug)]
struct Lease {
    /// On the boot clock, in microseconds.
    valid_until: AtomicU64,
    lost: CancellationToken,
    attention: Attention,
}

/// A claim that is being renewed, until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    keeper: Keeper,
    id: u64,
    lease: Arc<Lease>,
}

/// The part of a claim's time that is left to wind up when it counts as lost.
const MARGIN: Duration = Duration::from_secs(1);

impl Keeper {
    pub(crate) fn new(store: Arc<dyn Store>, settings: ClaimSettings, clock: Clock) -> Self {
        let inner = Inner {
            store,
            settings,
            clock,
            claims: Mutex::new(HashMap::new()),
            next_id: AtomicU64::new(0),
            changed: Notify::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The moment from which a claim that is asked for now counts.
    pub(crate) fn asked_at(&self) -> Duration {
        self.inner.clock.boot()
    }

    /// Renews the claim, which was asked for at `asked_at`, until what this answers is dropped.
    pub(crate) fn keep(&self, claim: Claim, asked_at: Duration, attention: Attention) -> Kept {
        let lease = Arc::new(Lease { valid_until: AtomicU64::new(0), lost: CancellationToken::new(), attention });
        lease.prolong(asked_at + self.inner.term());
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        self.claims().insert(id, Entry { claim, lease: Arc::clone(&lease) });
        self.inner.changed.notify_one();
        Kept { keeper: self.clone(), id, lease }
    }

    /// Begins renewing, until [`Keeper::stop`]: on a thread of its own, or, where a test's clock has to be followed, on
    /// a task of the test's runtime.
    pub(crate) fn start(&self) -> Option<JoinHandle<()>> {
        self.inner.tasks.close();
        if self.inner.clock.leases_follow_tokio() {
            self.inner.tasks.spawn(self.clone().run());
            return None;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let thread = runtime.and_then(|runtime| {
            let renewing = self.clone();
            thread::Builder::new().name("evento-keeper".to_owned()).spawn(move || runtime.block_on(renewing.run()))
        });
        match thread {
            Ok(thread) => Some(thread),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "no thread for renewing claims: they share the bundle's, and a blocked handler delays them"
                );
                self.inner.tasks.spawn(self.clone().run());
                None
            }
        }
    }

    async fn run(self) {
        tokio::select! {
            () = self.inner.stop.cancelled() => {}
            () = self.renew() => {}
            () = self.expire() => {}
        }
    }

    pub(crate) fn stop(&self) {
        self.inner.stop.cancel();
    }

    /// Waits until its task, if it runs as one, has ended: soon after [`Keeper::stop`].
    pub(crate) async fn ended(&self) {
        self.inner.tasks.wait().await;
    }

    async fn renew(&self) {
        let Inner { store, settings, clock, .. } = &*self.inner;
        loop {
            tokio::time::sleep(settings.renew_every).await;
            let claims: Vec<_> = self.claims().iter().map(|(id, entry)| (*id, entry.claim.clone())).collect();
            if claims.is_empty() {
                continue;
            }
            let sent = clock.boot();
            let asked = claims.iter().map(|(_, claim)| claim.clone()).collect();
            let renewed = tokio::time::timeout(settings.time_to_live, store.renew(asked, settings.time_to_live)).await;
            match renewed {
                Ok(Ok(lost)) => {
                    for (id, claim) in claims {
                        let Some(lease) = self.claims().get(&id).map(|entry| Arc::clone(&entry.lease)) else {
                            continue;
                        };
                        if lost.contains(&claim) {
                            lease.lose();
                        } else {
                            lease.prolong(sent + self.inner.term());
                        }
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "claims could not be renewed; trying again"
                    );
                }
                Err(_elapsed) => tracing::warn!("the store did not answer a renewal of claims; trying again"),
            }
        }
    }

    async fn expire(&self) {
        loop {
            let now = self.inner.clock.boot();
            let next = self.claims().values().map(|entry| entry.lease.valid_until()).min();
            let wait = next.map_or(Duration::from_secs(60), |at| at.saturating_sub(now));
            tokio::select! {
                () = tokio::time::sleep(wait.max(Duration::from_millis(10))) => {}
                () = self.inner.changed.notified() => {}
            }
            let now = self.inner.clock.boot();
            for entry in self.claims().values().filter(|entry| entry.lease.valid_until() <= now) {
                if !entry.lease.lost.is_cancelled() {
                    tracing::warn!(consumer = %entry.claim.consumer, "no renewal succeeded in time: the claim counts as lost");
                    entry.lease.lose();
                }
            }
            self.claims().retain(|_, entry| !entry.lease.lost.is_cancelled());
        }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.inner.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn term(&self) -> Duration {
        self.settings.time_to_live.saturating_sub(MARGIN)
    }
}

impl Lease {
    fn prolong(&self, until: Duration) {
        self.valid_until.fetch_max(u64::try_from(until.as_micros()).unwrap_or(u64::MAX), Ordering::Release);
    }

    fn valid_until(&self) -> Duration {
        Duration::from_micros(self.valid_until.load(Ordering::Acquire))
    }

    fn lose(&self) {
        self.lost.cancel();
        self.attention.ask();
    }
}

impl Kept {
    /// Ends when the claim counts as lost.
    pub(crate) async fn lost(&self) {
        self.lease.lost.cancelled().await;
    }

    /// Whether the claim counts as lost by now, whoever may have noticed.
    pub(crate) fn is_lost(&self, clock: Clock) -> bool {
        if clock.boot() >= self.lease.valid_until() {
            self.lease.lose();
        }
        self.lease.lost.is_cancelled()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.keeper.claims().remove(&self.id);
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("claims", &self.claims().len()).finish_non_exhaustive()
    }
}
