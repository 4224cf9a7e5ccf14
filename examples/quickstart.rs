//! Append events, and read your own write.

use std::{collections::BTreeMap, io::Write, sync::Arc};

use evento_core::{Event, event_handler, projector, store::Expected};
use evento_runtime::{Bundle, store::SqliteStore};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

#[derive(Event, Serialize, Deserialize)]
#[event(name = "order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(aggregate_id)]
    order_id: String,
    customer: String,
    total_cents: i64,
}

/// What each customer spends, as long as the process lives: `examples/flights` keeps its read model in a database.
#[projector(version = 1)]
#[derive(Default)]
struct Spending {
    cents: Mutex<BTreeMap<String, i64>>,
}

#[projector]
impl Spending {
    #[event_handler]
    async fn on_placed(&self, event: &OrderPlaced) -> anyhow::Result<()> {
        *self.cents.lock().await.entry(event.customer.clone()).or_default() += event.total_cents;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let spending = Arc::new(Spending::default());
    let running = Bundle::builder("shop")
        .store(SqliteStore::at(folder.path().join("shop.db")))
        .provide(spending.clone())
        .start()
        .await?;

    let placed =
        [("o-1", "ada", 1200), ("o-2", "bob", 700), ("o-3", "ada", 350)].map(|(order, customer, total_cents)| {
            OrderPlaced { order_id: order.into(), customer: customer.into(), total_cents }
        });
    let appended = running.log().append(Expected::Any, placed).await?;
    running.wait_for::<Spending>(appended).await?;

    writeln!(std::io::stdout(), "{:?}", spending.cents.lock().await)?;
    writeln!(std::io::stdout(), "{}", running.shutdown().await?)?;
    Ok(())
}
