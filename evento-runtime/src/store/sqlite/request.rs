use evento_core::{
    Aggregate, BoxFuture, ConsumerKey, Position, Timestamp,
    store::{Action, RequestId, RequestProgress, RequestState, RequestStore, StoreError, StoredRequest, Target},
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{
    OpenSqlite,
    checkpoint::consumer_id,
    claim::{consumer_key, position, unknown},
    connection::{Failure, now},
    dead_event,
    number::{self, number},
    queue::Lane,
};
use crate::store::decision;

const REQUEST: &str = "SELECT c.bundle, c.kind, c.name, c.version, c.context, r.id, r.action, r.target, \
                       r.target_position, r.aggregate_type, r.aggregate_id, r.total, r.done, r.failed, r.position, \
                       r.state, r.made_at FROM evento_request r JOIN evento_consumer c ON c.id = r.consumer";

fn stored(row: &Row<'_>) -> rusqlite::Result<StoredRequest> {
    let (action, target, state) = (row.get_ref(6)?.as_str()?, row.get_ref(7)?.as_str()?, row.get_ref(15)?.as_str()?);
    let id: i64 = row.get(5)?;
    let count = |column| number(row, column, "evento_request", format_args!("request {id}"));
    Ok(StoredRequest {
        consumer: consumer_key(row, 0)?,
        id: RequestId(count(5)?),
        action: Action::from_name(action).ok_or_else(|| unknown(6, action))?,
        target: match target {
            "event" => Target::Event(position(row, 8)?),
            "aggregate" => Target::Aggregate(Aggregate::new(row.get::<_, String>(9)?, row.get::<_, String>(10)?)),
            "consumer" => Target::Consumer,
            other => return Err(unknown(7, other)),
        },
        total: count(11)?,
        done: count(12)?,
        failed: count(13)?,
        at: position(row, 14)?,
        state: RequestState::from_name(state).ok_or_else(|| unknown(15, state))?,
        made_at: Timestamp(row.get(16)?),
    })
}

fn make(
    conn: &Connection,
    consumer: ConsumerKey,
    action: Action,
    target: Target,
) -> Result<StoredRequest, Failure<StoreError>> {
    let Some(known) = consumer_id(conn, &consumer)? else {
        return Err(StoreError::Refused(decision::unknown_consumer(&consumer)).into());
    };
    let total = dead_event::count(conn, known, &target)?;
    let made_at = now(conn)?;
    let (word, position, aggregate) = match &target {
        Target::Event(position) => ("event", Some(position.to_bytes()), None),
        Target::Aggregate(aggregate) => ("aggregate", None, Some(aggregate)),
        Target::Consumer => ("consumer", None, None),
    };
    conn.prepare_cached(
        "INSERT INTO evento_request (consumer, action, target, target_position, aggregate_type, aggregate_id, total, \
         done, failed, position, state, made_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, 0, ?8, ?9, ?10)",
    )?
    .execute(params![
        known,
        action.as_str(),
        word,
        position,
        aggregate.map(Aggregate::kind),
        aggregate.map(Aggregate::id),
        total.cast_signed(),
        Position::BEGINNING.to_bytes(),
        RequestState::Pending.as_str(),
        made_at.0,
    ])?;
    Ok(StoredRequest {
        id: RequestId(conn.last_insert_rowid().cast_unsigned()),
        consumer,
        action,
        target,
        total,
        done: 0,
        failed: 0,
        at: Position::BEGINNING,
        state: RequestState::Pending,
        made_at,
    })
}

fn find(conn: &Connection, id: RequestId) -> Result<StoredRequest, Failure<StoreError>> {
    let mut select = conn.prepare_cached(&format!("{REQUEST} WHERE r.id = ?1"))?;
    let found = select.query_row([id.0.cast_signed()], stored).optional()?;
    found.ok_or_else(|| StoreError::Refused(decision::no_request(id)).into())
}

/// Writes how far requests have got, as part of the commit that got them there.
pub(super) fn advance(conn: &Connection, consumer: i64, progress: &[RequestProgress]) -> rusqlite::Result<()> {
    for RequestProgress { id, done, failed, at, finished } in progress {
        conn.prepare_cached(
            "UPDATE evento_request SET done = ?3, failed = ?4, position = ?5, state = CASE WHEN ?6 THEN 'finished' \
             WHEN state = 'pending' THEN 'running' ELSE state END \
             WHERE id = ?1 AND consumer = ?2 AND state <> 'finished'",
        )?
        .execute(params![
            id.0.cast_signed(),
            consumer,
            number::stored(*done),
            number::stored(*failed),
            at.to_bytes(),
            finished,
        ])?;
    }
    Ok(())
}

fn stop(conn: &Connection, id: RequestId) -> Result<(), Failure<StoreError>> {
    let stopped = conn
        .prepare_cached(
            "UPDATE evento_request SET state = CASE state WHEN 'finished' THEN state ELSE 'stopped' END WHERE id = ?1",
        )?
        .execute([id.0.cast_signed()])?;
    match stopped {
        0 => Err(StoreError::Refused(decision::no_request(id)).into()),
        _ => Ok(()),
    }
}

impl RequestStore for OpenSqlite {
    fn make_request(
        &self,
        consumer: ConsumerKey,
        action: Action,
        target: Target,
    ) -> BoxFuture<'_, Result<StoredRequest, StoreError>> {
        self.threads.write(Lane::Other, move |conn| make(conn, consumer, action, target))
    }

    fn request(&self, id: RequestId) -> BoxFuture<'_, Result<StoredRequest, StoreError>> {
        self.threads.read(move |conn| find(conn, id))
    }

    fn open_requests(&self, bundle: String) -> BoxFuture<'_, Result<Vec<StoredRequest>, StoreError>> {
        self.threads.read(move |conn| {
            let open = "WHERE c.bundle = ?1 AND r.state IN ('pending', 'running') ORDER BY r.id";
            let mut select = conn.prepare_cached(&format!("{REQUEST} {open}"))?;
            Ok(select.query_map([bundle], stored)?.collect::<Result<_, _>>()?)
        })
    }

    fn stop_request(&self, id: RequestId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.threads.write(Lane::Other, move |conn| stop(conn, id))
    }
}
