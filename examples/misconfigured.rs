//! A misspelt executor: the start is refused, says what to write instead, and makes no file.

use evento_core::{Event, event_handler, projector};
use evento_runtime::{Bundle, ConsumerExecutor, StartError, store::SqliteStore};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(aggregate_id)]
    order_id: String,
}

#[projector]
struct OrderView;

#[projector]
impl OrderView {
    #[event_handler(executor = "read-modle")]
    async fn on_placed(&self, _: &OrderPlaced) -> anyhow::Result<()> {
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), StartError> {
    let running = Bundle::builder("shop")
        .store(SqliteStore::at("misconfigured.db"))
        .executor(ConsumerExecutor::partitioned("read-model", 32))
        .executor(ConsumerExecutor::tasks("mail", 8))
        .provide(OrderView)
        .start()
        .await?;
    // Never reached: `start` has checked everything before it opened anything.
    drop(running);
    Ok(())
}
