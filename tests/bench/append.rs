//! Appending, in batches of 100.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use evento_core::{
    NewEvent,
    store::{Append, EventLog, Expected},
};
use rusqlite::{Connection, params};

use crate::{
    sqlite,
    support::{Case, Measured, Pair, runtime},
};

const BATCH: usize = 100;
const KEYS: usize = 10_000;

pub(crate) fn cases() -> Vec<Case> {
    vec![Case { name: "append_sqlite", events: 100_000, rounds: 9, make: sqlite }]
}

/// Batches whose events are encoded already and have their ids: what is measured begins with them.
fn batches(events: usize) -> Vec<Vec<NewEvent>> {
    let batch =
        |first| (first..events.min(first + BATCH)).map(|number| Measured::stored(number, KEYS)).collect::<Vec<_>>();
    (0..events).step_by(BATCH).map(batch).collect()
}

/// Raw: a transaction for each batch, a prepared insert for each event, of rows whose every value is known. A new file
/// for each round, on either side.
fn sqlite(events: usize) -> Pair {
    let runtime = runtime();
    let (raw_runtime, batches) = (Arc::clone(&runtime), batches(events));
    let raw_batches = batches.clone();
    Pair {
        raw: Box::new(move || {
            let (_directory, store) = sqlite::stored(&raw_runtime, async |_| ());
            let mut conn = sqlite::raw(store.path());
            let began = Instant::now();
            for (number, batch) in raw_batches.iter().enumerate() {
                insert(&mut conn, batch, number * BATCH);
            }
            began.elapsed()
        }),
        ours: Box::new(move || {
            let (_directory, store) = sqlite::stored(&runtime, async |_| ());
            let batches = batches.clone();
            runtime.block_on(async {
                let open = sqlite::open(&store).await;
                let took = append(&*open, batches).await;
                open.close().await;
                took
            })
        }),
    }
}

fn insert(conn: &mut Connection, batch: &[NewEvent], first: usize) {
    let transaction = conn.transaction().unwrap();
    let mut insert = transaction
        .prepare_cached(
            "INSERT INTO evento_event (key_hash, context, name, aggregate_type, aggregate_id, sequence, recorded_at, \
             event_id, metadata, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )
        .unwrap();
    for (number, event) in (first..).zip(batch) {
        let parameters = params![
            event.aggregate.key_hash().cast_signed(),
            event.context,
            event.name,
            event.aggregate.kind(),
            event.aggregate.id(),
            (number / KEYS + 1) as i64,
            1_700_000_000_000_000_i64,
            event.id.as_ref().unwrap().as_str(),
            "",
            event.payload,
        ];
        insert.execute(parameters).unwrap();
    }
    drop(insert);
    transaction.commit().unwrap();
}

async fn append(log: &(impl EventLog + ?Sized), batches: Vec<Vec<NewEvent>>) -> Duration {
    let began = Instant::now();
    for events in batches {
        let batch = events.len();
        let appended = log.append(Append { expected: Expected::Any, events }).await.unwrap();
        assert_eq!(appended.appended, batch);
    }
    began.elapsed()
}
