use evento_core::{Event, event_handler, projector};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "a", aggregate = "x")]
pub struct A {
    #[event(aggregate_id)]
    id: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "b", aggregate = "x")]
pub struct B {
    #[event(aggregate_id)]
    id: String,
}

#[projector(version = 1)]
pub struct View;

#[projector]
impl View {
    #[event_handler(executor = "read-modle")]
    async fn on_a(&self, _: &A) -> anyhow::Result<()> { Ok(()) }
    #[event_handler(executor = "mail")]
    async fn on_b(&self, _: &B) -> anyhow::Result<()> { Ok(()) }
}

evento_core::components! { pub VIEWS = [View] }

evento_core::plan! {
    pub SHOP = { executors: [], components: [VIEWS] }
}

fn main() {}
