//! The events of one log.

use std::path::Path;

use evento_core::{
    Event, EventId, IntoNewEvent,
    store::{Append, Expected, OpenStore},
};
use evento_runtime::store::SqliteStore;
use serde::{Deserialize, Serialize};

use crate::random::Random;

/// An event that is handled.
#[derive(Debug, Deserialize, Event, Serialize)]
#[event(name = "chaos.happened", aggregate = "chaos")]
pub(crate) struct Happened {
    #[event(aggregate_id)]
    pub(crate) key: String,
    /// Which of the log's events, from 0.
    pub(crate) number: usize,
}

/// An event that no handler takes.
#[derive(Debug, Deserialize, Event, Serialize)]
#[event(name = "chaos.ignored", aggregate = "chaos")]
struct Ignored {
    #[event(aggregate_id)]
    key: String,
}

/// Writes a log of 2,000 to 5,000 events to be handled, a quarter of them of one aggregate; answers how many.
pub(crate) async fn write(path: &Path, seed: u64) -> anyhow::Result<usize> {
    let mut random = Random::new(seed);
    let events = usize::try_from(random.between(2_000, 5_000))?;
    let keys = random.between(20, 400);
    let mut new = Vec::new();
    for number in 0..events {
        let key = if random.between(0, 4) == 0 { 0 } else { random.between(0, keys) };
        let mut event = Happened { key: format!("key-{key}"), number }.into_new_event()?;
        event.id = Some(EventId::new(format!("happened-{number}"))?);
        new.push(event);
        if random.between(0, 5) == 0 {
            let mut event = Ignored { key: format!("key-{key}") }.into_new_event()?;
            event.id = Some(EventId::new(format!("ignored-{number}"))?);
            new.push(event);
        }
    }
    let store = SqliteStore::at(path).open().await?;
    while !new.is_empty() {
        let events = new.drain(..new.len().min(1_000)).collect();
        store.append(Append { expected: Expected::Any, events }).await?;
    }
    store.close().await;
    Ok(events)
}
