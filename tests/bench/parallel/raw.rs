//! What one would write by hand.

use std::sync::Arc;

use evento_core::RecordedEvent;
use futures_util::StreamExt;
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

use super::{Handled, PERMITS};
use crate::support::Measured;

fn decode(event: &RecordedEvent) -> Measured {
    serde_json::from_slice(event.payload()).unwrap()
}

/// `tokio::spawn` for each event, behind a semaphore.
pub(super) async fn spawned(events: Vec<Arc<RecordedEvent>>, handled: Arc<Handled>) {
    let permits = Arc::new(Semaphore::new(PERMITS));
    let mut tasks = JoinSet::new();
    for event in events {
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        let handled = Arc::clone(&handled);
        tasks.spawn(async move {
            handled.handle(&decode(&event)).await;
            drop(permit);
        });
        while tasks.try_join_next().is_some() {}
    }
    while tasks.join_next().await.is_some() {}
}

/// 64 tasks with a channel each; the key decides which; one event at a time.
pub(super) async fn lanes(events: Vec<Arc<RecordedEvent>>, handled: Arc<Handled>) {
    let mut tasks = JoinSet::new();
    let lanes: Vec<_> = (0..PERMITS)
        .map(|_| {
            let (sender, mut events) = mpsc::channel::<Arc<RecordedEvent>>(64);
            let handled = Arc::clone(&handled);
            tasks.spawn(async move {
                while let Some(event) = events.recv().await {
                    handled.handle(&decode(&event)).await;
                }
            });
            sender
        })
        .collect();
    for event in events {
        let lane = usize::try_from(event.key_hash() % PERMITS as u64).unwrap();
        lanes[lane].send(event).await.unwrap();
    }
    drop(lanes);
    while tasks.join_next().await.is_some() {}
}

/// `buffer_unordered`, with no order at all.
pub(super) async fn unordered(events: Vec<Arc<RecordedEvent>>, handled: Arc<Handled>) {
    let handling = futures_util::stream::iter(events).map(|event| {
        let handled = Arc::clone(&handled);
        async move { handled.handle(&decode(&event)).await }
    });
    handling.buffer_unordered(PERMITS).collect::<Vec<_>>().await;
}
