//! Two components of orders; one of them stands in a nested module with nothing beside it.

use evento_core::{Event, ExecutorName, event_handler, projector};
use serde::{Deserialize, Serialize};

mod nested;

/// Where orders are audited.
pub const AUDIT: ExecutorName = ExecutorName::new("audit");

/// An order was placed.
#[derive(Debug, Event, Serialize, Deserialize)]
#[event(name = "order.placed", aggregate = "order")]
pub struct OrderPlaced {
    /// The order.
    #[event(aggregate_id)]
    pub order_id: String,
}

/// An order was cancelled.
#[derive(Debug, Event, Serialize, Deserialize)]
#[event(name = "order.cancelled", aggregate = "order")]
pub struct OrderCancelled {
    /// The order.
    #[event(aggregate_id)]
    pub order_id: String,
}

/// The orders there are.
#[derive(Debug, Default)]
#[projector(version = 1)]
pub struct OrderView;

#[projector]
impl OrderView {
    #[event_handler]
    async fn on_placed(&self, _: &OrderPlaced) -> anyhow::Result<()> {
        Ok(())
    }

    #[event_handler(executor = "read-model", retry = 3)]
    async fn on_cancelled(&self, _: &OrderCancelled) -> anyhow::Result<()> {
        Ok(())
    }
}

evento_core::components! {
    /// The components of this crate.
    pub ORDERS = [OrderView, nested::deeper::OrderAudit]
}
