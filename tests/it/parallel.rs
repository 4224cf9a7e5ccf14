mod checkpoint;
mod dead_event;
mod failure;
mod held_back;
mod limit;
mod order;
mod shutdown;
mod support;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use evento_core::{Context, Event, event_handler, projector, store::Expected};
use evento_runtime::{Bundle, ConsumerExecutor, store::MemoryStore};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "parallel.tasked", aggregate = "parallel")]
struct Tasked {
    #[event(aggregate_id)]
    id: String,
    number: i64,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "parallel.ordered", aggregate = "parallel")]
struct Ordered {
    #[event(aggregate_id)]
    id: String,
    number: i64,
}

#[projector(checkpoint = "watermark")]
struct Parallel {
    seen: Mutex<HashMap<String, Vec<i64>>>,
}

#[projector]
impl Parallel {
    #[event_handler(executor = "tasks", retry = 3)]
    async fn on_tasked(&self, event: &Tasked, _ctx: &Context) -> anyhow::Result<()> {
        self.seen.lock().unwrap().entry("tasked".into()).or_default().push(event.number);
        Ok(())
    }

    #[event_handler(executor = "lanes", retry = 3)]
    async fn on_ordered(&self, event: &Ordered) -> anyhow::Result<()> {
        if event.number % 3 == 0 {
            tokio::task::yield_now().await;
        }
        self.seen.lock().unwrap().entry(event.id.clone()).or_default().push(event.number);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smoke() {
    let parallel = Arc::new(Parallel { seen: Mutex::default() });
    let running = Bundle::builder("smoke")
        .store(MemoryStore::new())
        .executor(ConsumerExecutor::tasks("tasks", 8))
        .executor(ConsumerExecutor::partitioned("lanes", 8))
        .only_provided()
        .provide(parallel.clone())
        .start()
        .await
        .unwrap();
    let tasked = (0..10_000).map(|number| Tasked { id: format!("{}", number % 7), number });
    running.log().append(Expected::Any, tasked).await.unwrap();
    let ordered =
        (0..10_000).map(|number| Ordered { id: format!("{}", if number % 2 == 0 { 0 } else { number % 100 }), number });
    let appended = running.log().append(Expected::Any, ordered).await.unwrap();
    running.wait_until_caught_up(Duration::from_secs(5)).await.unwrap();
    running.wait_for::<Parallel>(appended).await.unwrap();
    println!("{:#?} {:?}", running.consumers(), running.executors());
    let seen = parallel.seen.lock().unwrap().clone();
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 20_000);
    for (id, numbers) in seen.iter().filter(|(id, _)| *id != "tasked") {
        assert!(numbers.is_sorted(), "{id}: {numbers:?}");
    }
    println!("{}", running.shutdown().await.unwrap());
}
