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

#[projector(version = 0, nam = "x")]
struct View;

#[projector]
impl View {
    #[event_handler(exectuor = "read-model", retry = 3000)]
    fn on_a(&mut self, _: A) -> anyhow::Result<()> { Ok(()) }
    #[event_handler(retry = "3", retry = 4, timeout = "soon")]
    async fn on_b<T>(&self, _: &B, _: &evento_core::Context, _: T) -> anyhow::Result<()> { Ok(()) }
}

fn main() {}
