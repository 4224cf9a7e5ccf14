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
struct View;

#[projector]
impl View {
    #[event_handler(retry = 1, executor = "x", retry = 2)]
    async fn on_a(&self, _: &A) -> anyhow::Result<()> { Ok(()) }
}

fn main() {}
