use evento_core::{
    Aggregate, BoxFuture, ConsumerKey, Sequence, Timestamp,
    store::{Commit, DeadEvent, DeadEventStore, DeadFilter, DeadPage, DeadPosition, DeadReason, StoreError, Target},
};
use rusqlite::{Connection, Row, params};

use super::{
    OpenSqlite,
    checkpoint::{consumer_id, each},
    claim::{position, texts, to_json, unknown},
    connection::Failure,
    number::number,
};

/// Writes the letters of a commit. One letter a position: a second one brings its news to the first.
pub(super) fn write(conn: &Connection, consumer: i64, commit: &Commit) -> rusqlite::Result<()> {
    each(conn, "DELETE FROM evento_dead_event WHERE consumer = ?1 AND position = ?2", consumer, &commit.dead_ended)?;
    for dead in &commit.dead {
        conn.prepare_cached(
            "INSERT INTO evento_dead_event (consumer, position, key_hash, event_id, name, aggregate_type, \
             aggregate_id, sequence, reason, cause, attempts, first_failed_at, last_failed_at, parks) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
             ON CONFLICT DO UPDATE SET reason = excluded.reason, cause = excluded.cause, \
             attempts = excluded.attempts, first_failed_at = excluded.first_failed_at, \
             last_failed_at = excluded.last_failed_at",
        )?
        .execute(params![
            consumer,
            dead.position.to_bytes(),
            dead.aggregate.key_hash().cast_signed(),
            dead.event_id,
            dead.name,
            dead.aggregate.kind(),
            dead.aggregate.id(),
            dead.sequence.0.cast_signed(),
            dead.reason.as_str(),
            to_json(&dead.cause),
            dead.attempts,
            dead.first_failed_at.0,
            dead.last_failed_at.0,
            dead.parks,
        ])?;
    }
    Ok(())
}

pub(super) fn count(conn: &Connection, consumer: i64, target: &Target) -> rusqlite::Result<u64> {
    const COUNT: &str = "SELECT count(*) FROM evento_dead_event WHERE consumer = ?1";
    let count: i64 = match target {
        Target::Event(position) => conn
            .prepare_cached(&format!("{COUNT} AND position = ?2"))?
            .query_one(params![consumer, position.to_bytes()], |row| row.get(0))?,
        Target::Aggregate(aggregate) => conn
            .prepare_cached(&format!("{COUNT} AND aggregate_type = ?2 AND aggregate_id = ?3"))?
            .query_one(params![consumer, aggregate.kind(), aggregate.id()], |row| row.get(0))?,
        Target::Consumer => conn.prepare_cached(COUNT)?.query_one([consumer], |row| row.get(0))?,
    };
    Ok(count.cast_unsigned())
}

fn page(conn: &Connection, consumer: &ConsumerKey, filter: &DeadFilter) -> Result<DeadPage, Failure<StoreError>> {
    let limit = filter.limit.max(1);
    const LETTER: &str = "position, event_id, name, aggregate_type, aggregate_id, sequence, reason, cause, attempts, \
                          first_failed_at, last_failed_at, parks";
    // One more than asked for tells whether there is another page.
    let mut letters = matching(conn, consumer, filter, LETTER, limit.saturating_add(1), letter)?;
    let more = letters.len() > limit;
    letters.truncate(limit);
    let next = letters.last().filter(|_| more).map(|letter| letter.position);
    Ok(DeadPage { letters, next })
}

/// The first letters that `filter` lets through, by these columns.
fn matching<T>(
    conn: &Connection,
    consumer: &ConsumerKey,
    filter: &DeadFilter,
    columns: &str,
    limit: usize,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Failure<StoreError>> {
    let Some(consumer) = consumer_id(conn, consumer)? else { return Ok(Vec::new()) };
    // Told apart here, so that those of one aggregate are found by their index.
    let of_aggregate = match &filter.aggregate {
        Some(_) => "aggregate_type = ?4 AND aggregate_id = ?5",
        None => "?4 IS NULL AND ?5 IS NULL",
    };
    let mut select = conn.prepare_cached(&format!(
        "SELECT {columns} FROM evento_dead_event WHERE consumer = ?1 AND position > ?2 \
         AND (?3 IS NULL OR name = ?3) AND {of_aggregate} \
         AND (?6 IS NULL OR reason = ?6) ORDER BY position LIMIT ?7"
    ))?;
    let parameters = params![
        consumer,
        filter.after.to_bytes(),
        filter.name,
        filter.aggregate.as_ref().map(Aggregate::kind),
        filter.aggregate.as_ref().map(Aggregate::id),
        filter.reason.map(DeadReason::as_str),
        i64::try_from(limit).unwrap_or(i64::MAX),
    ];
    Ok(select.query_map(parameters, read)?.collect::<Result<_, _>>()?)
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadEvent> {
    let reason = row.get_ref(6)?.as_str()?;
    let position = position(row, 0)?;
    let which = format_args!("position {position}");
    Ok(DeadEvent {
        position,
        event_id: row.get(1)?,
        name: row.get(2)?,
        aggregate: Aggregate::new(row.get::<_, String>(3)?, row.get::<_, String>(4)?),
        sequence: Sequence(number(row, 5, "evento_dead_event", which)?),
        reason: DeadReason::from_name(reason).ok_or_else(|| unknown(6, reason))?,
        cause: texts(row, 7)?,
        attempts: number(row, 8, "evento_dead_event", which)?,
        first_failed_at: Timestamp(row.get(9)?),
        last_failed_at: Timestamp(row.get(10)?),
        parks: row.get(11)?,
    })
}

impl DeadEventStore for OpenSqlite {
    fn dead_events(&self, consumer: ConsumerKey, filter: DeadFilter) -> BoxFuture<'_, Result<DeadPage, StoreError>> {
        self.threads.read(move |conn| page(conn, &consumer, &filter))
    }

    fn dead_positions(
        &self,
        consumer: ConsumerKey,
        filter: DeadFilter,
    ) -> BoxFuture<'_, Result<Vec<DeadPosition>, StoreError>> {
        let limit = filter.limit.max(1);
        self.threads.read(move |conn| {
            matching(conn, &consumer, &filter, "position, parks", limit, |row| {
                Ok(DeadPosition { position: position(row, 0)?, parks: row.get(1)? })
            })
        })
    }

    fn dead_depth(&self, consumer: ConsumerKey) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.threads.read(move |conn| match consumer_id(conn, &consumer)? {
            Some(consumer) => Ok(count(conn, consumer, &Target::Consumer)?),
            None => Ok(0),
        })
    }
}
