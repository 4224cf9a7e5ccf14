use evento_core::{
    Timestamp,
    store::{Generation, StoreError, StoredConsumer},
};
use rusqlite::Connection;

use super::{
    claim::{consumer_key, position, segment},
    connection::Failure,
    number::number,
};

pub(super) fn stored_consumers(conn: &Connection, bundle: &str) -> Result<Vec<StoredConsumer>, Failure<StoreError>> {
    let mut select = conn.prepare_cached(
        "SELECT c.bundle, c.kind, c.name, c.version, c.context, s.number, s.mask, s.frontier, s.generation, \
         s.written_at, (SELECT count(*) FROM evento_open o WHERE o.segment = s.segment), (SELECT count(*) \
         FROM evento_held h WHERE h.consumer = c.id AND h.why <> 'dead' AND h.key_hash & s.mask = s.number) \
         FROM evento_consumer c JOIN evento_checkpoint s ON s.consumer = c.id WHERE c.bundle = ?1 ORDER BY c.kind, c.name, c.version, c.context, s.number, s.mask",
    )?;
    let rows = select.query_map([bundle], |row| {
        let consumer = consumer_key(row, 0)?;
        Ok(StoredConsumer {
            segment: segment(row, 5, &consumer)?,
            frontier: position(row, 7)?,
            generation: Generation(number(row, 8, "evento_checkpoint", &consumer)?),
            written_at: row.get::<_, Option<i64>>(9)?.map(Timestamp),
            open: row.get::<_, i64>(10)?.cast_unsigned(),
            waiting: row.get::<_, i64>(11)?.cast_unsigned(),
            consumer,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}
