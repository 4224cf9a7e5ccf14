use evento_core::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(name = "a", aggregate = "x")]
struct A {
    #[event(aggregate_id)]
    id: Vec<u8>,
}

fn main() {}
