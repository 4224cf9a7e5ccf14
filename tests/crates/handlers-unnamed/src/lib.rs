//! A component in a crate that its dependent never names.

use evento_core::{Event, event_handler, projector};
use serde::{Deserialize, Serialize};

/// Nobody will hear of it.
#[derive(Debug, Event, Serialize, Deserialize)]
#[event(name = "tree.fell", aggregate = "forest")]
pub struct TreeFell {
    /// The forest.
    #[event(aggregate_id)]
    pub forest: String,
}

/// Never linked.
#[derive(Debug, Default)]
#[projector]
pub struct Forest;

#[projector]
impl Forest {
    #[event_handler]
    async fn on_fall(&self, _: &TreeFell) -> anyhow::Result<()> {
        Ok(())
    }
}

evento_core::components! {
    /// The components of this crate.
    pub FOREST = [Forest]
}
