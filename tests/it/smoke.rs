use std::{sync::Mutex, time::Duration};

use evento_core::{Context, Event, event_handler, projector, store::Expected};
use evento_runtime::{Bundle, store::MemoryStore};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "smoke.placed", aggregate = "smoke")]
struct Placed {
    #[event(aggregate_id)]
    id: String,
    cents: i64,
}

#[projector]
struct Totals {
    seen: Mutex<Vec<(String, i64)>>,
}

#[projector]
impl Totals {
    #[event_handler]
    async fn on_placed(&self, event: &Placed, _ctx: &Context) -> anyhow::Result<()> {
        self.seen.lock().unwrap().push((event.id.clone(), event.cents));
        Ok(())
    }
}

#[tokio::test]
async fn smoke() {
    let totals = std::sync::Arc::new(Totals { seen: Mutex::default() });
    let store = MemoryStore::new();
    let running =
        Bundle::builder("smoke").store(store.clone()).only_provided().provide(totals.clone()).start().await.unwrap();
    let events = (0..10_000).map(|n| Placed { id: format!("{}", n % 7), cents: n });
    let appended = running.log().append(Expected::Any, events).await.unwrap();
    running.wait_for::<Totals>(appended).await.unwrap();
    running.wait_until_caught_up(Duration::from_secs(5)).await.unwrap();
    let seen = totals.seen.lock().unwrap().len();
    assert_eq!(seen, 10_000);
    println!("{:?}", running.consumers());
    let drained = running.shutdown().await.unwrap();
    println!("{drained}");
    let running = Bundle::builder("smoke").store(store).only_provided().provide(totals.clone()).start().await.unwrap();
    running.wait_until_caught_up(Duration::from_secs(5)).await.unwrap();
    running.shutdown().await.unwrap();
    assert_eq!(totals.seen.lock().unwrap().len(), 10_000);
}
