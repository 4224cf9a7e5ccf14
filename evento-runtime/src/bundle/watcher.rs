use std::{sync::Arc, time::Duration};

use evento_core::store::Store;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{clock::Clock, consumer::OpenRequests};

/// Looks for what nothing announces: events that other processes appended, and requests that people made.
///
/// One per bundle, whatever the number of consumers: an idle bundle asks the store for its head once a poll, and for
/// open requests every second one.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) store: Arc<dyn Store>,
    pub(super) bundle: String,
    pub(super) poll: Duration,
    pub(super) clock: Clock,
    pub(super) wake: watch::Sender<u64>,
    pub(super) requests: watch::Sender<OpenRequests>,
    /// A request was made in this process.
    pub(super) kick: Arc<Notify>,
    pub(super) stop: CancellationToken,
}

impl Watcher {
    pub(super) async fn run(self) {
        let mut head = None;
        let mut failing = false;
        for tick in 0_u64.. {
            let kicked = tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(if tick == 0 { Duration::ZERO } else { self.poll }) => false,
                () = self.kick.notified() => true,
            };
            let looked = async {
                if !kicked {
                    let now = self.store.head().await?.committed;
                    if head.replace(now) != Some(now) {
                        self.wake.send_modify(|count| *count = count.wrapping_add(1));
                    }
                }
                if kicked || tick.is_multiple_of(2) {
                    let asked_at = self.clock.now();
                    let open = self.store.open_requests(self.bundle.clone()).await?;
                    self.requests.send_if_modified(|known| {
                        let changed = *known.requests != *open;
                        if changed {
                            known.requests = open.into();
                        }
                        known.asked_at = asked_at;
                        changed
                    });
                }
                Ok::<_, evento_core::store::StoreError>(())
            };
            let outcome = tokio::select! {
                () = self.stop.cancelled() => return,
                outcome = looked => outcome,
            };
            if let Err(error) = &outcome
                && !failing
            {
                let error = error as &dyn std::error::Error;
                tracing::warn!(bundle = self.bundle, error, "the store cannot be asked for its head; trying again");
            }
            failing = outcome.is_err();
        }
    }
}
