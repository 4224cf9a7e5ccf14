//! From a checked description to running consumers.

use std::sync::Arc;

use evento_core::store::{Registration, Store};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    BundleBuilder, ConsumerSpec, Prepared, StartError, census,
    running::{Member, Running},
    watcher::Watcher,
};
use crate::{
    Settings,
    consumer::{Consumer, Executor, Keeper, OpenRequests, Shared},
    store::process,
};

impl BundleBuilder {
    /// Checks everything, then opens the store and starts every consumer.
    ///
    /// # Errors
    /// [`StartError::Refused`] with every problem there is, before anything is opened; else what the store said.
    pub async fn start(self) -> Result<Running, StartError> {
        let prepared = self.prepare()?;
        census::log(&prepared);
        let store = prepared.open().await?;
        if let Err(error) = register(&prepared, &*store).await {
            store.close().await;
            return Err(error);
        }
        Ok(run(prepared, store))
    }
}

impl Prepared {
    /// Opens the store: the first thing that is touched.
    pub(super) async fn open(&self) -> Result<Arc<dyn Store>, StartError> {
        self.store.open().await.map_err(|source| StartError::Open {
            bundle: self.name.clone(),
            store: self.store.describe(),
            source,
        })
    }
}

pub(super) async fn register(prepared: &Prepared, store: &dyn Store) -> Result<(), StartError> {
    let failed = |doing| {
        let bundle = prepared.name.clone();
        move |source| StartError::Store { bundle, doing, source }
    };
    let registrations = prepared.consumers.iter().map(|spec| Registration {
        consumer: (*spec.key).clone(),
        start: spec.component.start,
        names: spec.names.clone(),
    });
    store.register(registrations.collect()).await.map_err(failed("registering its consumers"))?;
    let stored = store.consumers(prepared.name.clone()).await.map_err(failed("listing its consumers"))?;
    for orphan in stored.iter().filter(|stored| prepared.consumers.iter().all(|spec| *spec.key != stored.consumer)) {
        tracing::warn!(
            bundle = prepared.name, consumer = %orphan.consumer, frontier = %orphan.frontier,
            "the store keeps a consumer that no component of this bundle claims: an old version, or a renamed component"
        );
    }
    Ok(())
}

/// How many bytes of events a page holds. Each consumer has its own share of the bound, which one that is stuck does not
/// take from the others.
fn page_bytes(settings: &Settings, pages: usize) -> usize {
    settings.page.bytes.min(settings.buffer_bytes / pages.max(1)).max(1)
}

/// How many times as much a consumer may have in memory: the page it handles and the next, what it reads again after a
/// restart, and what it reads again of held aggregates; as much again waits for executors.
fn pages_of(spec: &ConsumerSpec) -> usize {
    if spec.component.handlers.iter().any(|handler| handler.executor.is_some()) { 5 } else { 4 }
}

fn run(prepared: Prepared, store: Arc<dyn Store>) -> Running {
    let Prepared { name, settings, consumers, executors, interceptors, classifiers, clock, .. } = prepared;
    let wake = watch::Sender::new(0_u64);
    let requests = watch::Sender::new(OpenRequests::default());
    let stop = CancellationToken::new();
    let keeper = Keeper::new(Arc::clone(&store), settings.claim.clone(), clock);
    let tasks = TaskTracker::new();
    let shared = Arc::new(Shared {
        executors: executors.iter().map(|it| Executor::new(it, settings.start_ahead, tasks.clone())).collect(),
        store: Arc::clone(&store),
        page_bytes: page_bytes(&settings, consumers.iter().map(pages_of).sum()),
        clock,
        classifiers,
        interceptors,
        owner: process::this_process(),
        keeper: keeper.clone(),
        wake: wake.subscribe(),
        requests: requests.subscribe(),
        stop: stop.clone(),
        cut: CancellationToken::new(),
        settings,
    });

    let appended = wake.clone();
    store.on_append(Arc::new(move || appended.send_modify(|count| *count = count.wrapping_add(1))));
    let kick = Arc::new(Notify::new());
    let watcher = Watcher {
        store,
        bundle: name.clone(),
        poll: shared.settings.poll,
        clock,
        wake,
        requests,
        kick: Arc::clone(&kick),
        stop: stop.clone(),
    };
    tasks.spawn(watcher.run());
    let keeper_thread = keeper.start();
    let members = consumers
        .into_iter()
        .map(|spec| {
            let type_id = (spec.component.type_id)();
            let (consumer, control) = Consumer::new(Arc::clone(&shared), spec);
            tasks.spawn(consumer.run());
            Member { type_id, control }
        })
        .collect();
    tasks.close();
    tracing::info!(bundle = name, owner = %shared.owner, "bundle started");
    Running::new(name, shared, members, tasks, kick, keeper_thread)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_of_every_consumer_fit_into_the_bound_however_many_there_are() {
        let settings = Settings::default();
        for pages in 0..3_000 {
            let page = page_bytes(&settings, pages);
            assert!(page <= settings.page.bytes && page * pages <= settings.buffer_bytes && page > 0);
        }
        assert_eq!(page_bytes(&settings, 32), settings.page.bytes);
    }
}
