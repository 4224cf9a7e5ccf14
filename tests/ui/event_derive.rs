use evento_core::Event;
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
struct Nothing {
    id: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event(nam = "x", name = "", aggregate = 3)]
#[event]
struct Wrong {
    #[event(aggregate_id = 3)]
    id: String,
    #[event(aggregate_id)]
    other: String,
    #[event(aggregat_id, name = "x")]
    third: String,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "either", aggregate = "x", aggregate_id)]
enum Either {
    One,
    Other,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "tuple", aggregate = "x")]
struct Tuple(#[event(aggregate_id)] String);

#[derive(Event, Serialize, Deserialize)]
#[event(name = "unit", aggregate = "x")]
struct Unit;

#[derive(Event, Serialize, Deserialize)]
#[event(name = "generic", aggregate = "x")]
struct Generic<T> {
    #[event(aggregate_id)]
    id: T,
}

#[derive(Event, Serialize, Deserialize)]
#[event(name = "zero\0", aggregate = "x", name = "y")]
struct Zero {
    #[event(aggregate_id)]
    id: String,
}

fn main() {}
