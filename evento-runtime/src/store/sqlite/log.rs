use std::sync::Arc;

use evento_core::{
    AggregateRef, BoxFuture, NewEvent, Position, RecordedEvent, RecordedParts, Segment, Sequence, Timestamp,
    store::{
        Append, AppendError, Appended, EventLog, Filter, Head, HeldKey, Page, ReadAggregate, ReadAt, ReadLog,
        Selection, StoreError, Wake,
    },
};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Statement, params, types::ValueRef};

use super::{
    OpenSqlite,
    connection::Failure,
    number::{next, number},
    queue::Lane,
};
use crate::{
    clock::Clock,
    store::decision::{self, Known, Repeat},
};

/// What makes an event; the last column is the payload or, where that is over the limit `?1`, its length alone.
const EVENT: &str = "position, event_id, name, context, aggregate_type, aggregate_id, sequence, metadata, recorded_at, \
                     CASE WHEN length(payload) > ?1 THEN length(payload) ELSE payload END";

/// Where the names of a filter begin among the parameters.
const NAMES: usize = 10;

/// A position as this log numbers its rows; whatever lies beyond is beyond every row.
fn row_id(position: Position) -> i64 {
    if position.major() > 0 { i64::MAX } else { i64::try_from(position.minor()).unwrap_or(i64::MAX) }
}

fn position(row: &Row<'_>, column: usize) -> rusqlite::Result<Position> {
    number(row, column, "evento_event", format_args!("row {}", row.get::<_, i64>(column)?)).map(Position::new)
}

fn limit(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

pub(super) fn bound(conn: &Connection) -> rusqlite::Result<Position> {
    let mut last = conn.prepare_cached("SELECT coalesce(max(position), 0) AS position FROM evento_event")?;
    last.query_one([], |row| position(row, 0))
}

fn append(conn: &Connection, append: &Append) -> Result<Appended, Failure<AppendError>> {
    let expects = decision::check(append)?;
    if append.events.is_empty() {
        return Ok(Appended { position: Position::BEGINNING, appended: 0 });
    }
    if let Some((aggregate, expected)) = expects {
        let actual = sequence(conn, aggregate.as_ref())?;
        if actual != expected {
            return repeated(conn, append, i64::MAX, || AppendError::Conflict { expected, actual }.into());
        }
    }
    match insert(conn, &append.events)? {
        Inserted::All(last) => Ok(Appended { position: last, appended: append.events.len() }),
        // Of a whole repeat the first id is known already, so nothing of it has been inserted; any other outcome is an
        // error, which undoes what has.
        Inserted::Known { before, error } => repeated(conn, append, before, || error),
    }
}

enum Inserted {
    All(Position),
    /// An id is taken; rows from `before` on are this append's own.
    Known {
        before: i64,
        /// What it is if none of the ids is known after all.
        error: Failure<AppendError>,
    },
}

/// Inserts on the assumption that no id is known, which the index checks.
fn insert(conn: &Connection, events: &[NewEvent]) -> Result<Inserted, Failure<AppendError>> {
    // The next sequence is found where the row's own index entry goes: one statement an event.
    let mut statement = conn.prepare_cached(
        "INSERT INTO evento_event (key_hash, context, name, aggregate_type, aggregate_id, sequence, recorded_at, \
         event_id, metadata, payload) VALUES (?1, ?2, ?3, ?4, ?5, (SELECT coalesce(max(sequence), 0) + 1 \
         FROM evento_event WHERE aggregate_type = ?4 AND aggregate_id = ?5), ?6, ?7, ?8, ?9)",
    )?;
    let recorded_at = Clock::wall().0;
    let mut first = None;
    for event in events {
        let inserted = statement.execute(params![
            event.aggregate.key_hash().cast_signed(),
            event.context,
            event.name,
            event.aggregate.kind(),
            event.aggregate.id(),
            recorded_at,
            event.id.as_ref().map(|id| id.as_str()),
            event.metadata.to_json(),
            event.payload,
        ]);
        match inserted {
            Ok(_) => first = first.or_else(|| Some(conn.last_insert_rowid())),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                let aggregate = event.aggregate.as_ref();
                // A sequence beyond the range is no integer any more.
                let after = next(sequence(conn, aggregate)?.0, "sequence", "evento_event", aggregate);
                let error = after.map_or_else(Failure::from, |_| error.into());
                return Ok(Inserted::Known { before: first.unwrap_or(i64::MAX), error });
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Inserted::All(Position::new(conn.last_insert_rowid().cast_unsigned())))
}

/// Decides an append some of whose ids are known, perhaps; `otherwise` says what it is if none is.
fn repeated(
    conn: &Connection,
    append: &Append,
    before: i64,
    otherwise: impl FnOnce() -> Failure<AppendError>,
) -> Result<Appended, Failure<AppendError>> {
    let mut select = conn.prepare_cached(
        "SELECT position, aggregate_type = ?3 AND aggregate_id = ?4 AND name = ?5 AND context = ?6 AND payload = ?7 \
         FROM evento_event WHERE event_id = ?1 AND position < ?2",
    )?;
    let known = |event: &NewEvent| {
        let parameters = params![
            event.id.as_ref().map(|id| id.as_str()),
            before,
            event.aggregate.kind(),
            event.aggregate.id(),
            event.name,
            event.context,
            event.payload,
        ];
        let known = select.query_row(parameters, |row| Ok(Known { position: position(row, 0)?, same: row.get(1)? }));
        known.optional().map_err(super::connection::store_error)
    };
    match decision::repeat(&append.events, known)? {
        Repeat::Whole(position) => Ok(Appended { position, appended: 0 }),
        Repeat::No => Err(otherwise()),
    }
}

fn sequence(conn: &Connection, aggregate: AggregateRef<'_>) -> rusqlite::Result<Sequence> {
    let mut last = conn.prepare_cached(
        "SELECT coalesce(max(sequence), 0) AS sequence FROM evento_event WHERE aggregate_type = ?1 AND aggregate_id = ?2",
    )?;
    let which = format_args!("aggregate {aggregate}");
    last.query_one([aggregate.kind, aggregate.id], |row| number(row, 0, "evento_event", which).map(Sequence))
}

/// A statement for the events that `filter` takes, its part of the parameters bound.
fn filtered<'a>(
    conn: &'a Connection,
    filter: &Filter,
    place: &str,
    order: &str,
) -> rusqlite::Result<rusqlite::CachedStatement<'a>> {
    // Most consumers have one segment, and need not look at the hash of each row.
    let segment = if filter.segment == Segment::WHOLE { "" } else { "AND key_hash & ?8 = ?9" };
    let mut sql = format!("SELECT {EVENT} FROM evento_event WHERE {place} AND context = ?7 {segment} AND name IN (");
    for number in 0..filter.names.len() {
        let comma = if number == 0 { "" } else { ", " };
        sql.push_str(&format!("{comma}?{}", NAMES + number));
    }
    sql.push_str(") ORDER BY ");
    sql.push_str(order);
    sql.push_str(" LIMIT ?2");
    let mut statement = conn.prepare_cached(&sql)?;
    statement.raw_bind_parameter(7, &*filter.context)?;
    if filter.segment != Segment::WHOLE {
        statement.raw_bind_parameter(8, filter.segment.mask)?;
        statement.raw_bind_parameter(9, filter.segment.number)?;
    }
    for (number, name) in filter.names.iter().enumerate() {
        statement.raw_bind_parameter(NAMES + number, &**name)?;
    }
    Ok(statement)
}

fn read(conn: &Connection, read: &ReadLog) -> Result<Page, Failure<StoreError>> {
    let head = bound(conn)?;
    let after = row_id(read.after);
    let reach = after.saturating_add(i64::try_from(read.max_scanned).unwrap_or(i64::MAX));
    let until = Position::new(reach.cast_unsigned()).min(head).max(read.after);
    let mut page = Page { scanned_to: until, head, ..Page::default() };
    if until == read.after {
        return Ok(page);
    }
    let mut select = filtered(conn, &read.filter, "position > ?3 AND position <= ?4", "position")?;
    select.raw_bind_parameter(1, limit(read.max_payload))?;
    select.raw_bind_parameter(2, limit(read.max_events))?;
    select.raw_bind_parameter(3, after)?;
    select.raw_bind_parameter(4, row_id(until))?;
    let span = usize::try_from(row_id(until) - after).unwrap_or(usize::MAX);
    page.events.reserve(read.max_events.min(span).min(4_096));
    if let Some(full_at) = collect(&mut select, &mut page.events, read.max_events, read.max_bytes)? {
        page.scanned_to = full_at;
    }
    Ok(page)
}

/// Takes rows until one of the bounds is met, and answers where that was.
fn collect(
    select: &mut Statement<'_>,
    events: &mut Vec<Arc<RecordedEvent>>,
    max_events: usize,
    max_bytes: usize,
) -> rusqlite::Result<Option<Position>> {
    let mut bytes = 0_usize;
    let mut rows = select.raw_query();
    while let Some(row) = rows.next()? {
        let event = recorded(row)?;
        bytes = bytes.saturating_add(event.payload().len());
        let position = event.position();
        events.push(Arc::new(event));
        if events.len() >= max_events || bytes >= max_bytes {
            return Ok(Some(position));
        }
    }
    Ok(None)
}

fn read_at(conn: &Connection, read: ReadAt) -> Result<Selection, Failure<StoreError>> {
    let ReadAt { mut positions, max_bytes, max_payload } = read;
    positions.sort_unstable();
    positions.dedup();
    let mut select = conn.prepare_cached(&format!("SELECT {EVENT} FROM evento_event WHERE position = ?2"))?;
    let mut selection = Selection::default();
    let mut bytes = 0_usize;
    for position in positions {
        selection.scanned_to = position;
        if let Some(row) = select.query(params![limit(max_payload), row_id(position)])?.next()? {
            let event = recorded(row)?;
            bytes = bytes.saturating_add(event.payload().len());
            selection.events.push(Arc::new(event));
            if bytes >= max_bytes {
                break;
            }
        }
    }
    Ok(selection)
}

fn read_aggregate(conn: &Connection, read: &ReadAggregate) -> Result<Selection, Failure<StoreError>> {
    // Within an aggregate positions rise with sequences. Where the page before ended at one of its events, the index
    // is entered right behind that.
    let mut select = filtered(
        conn,
        &read.filter,
        "aggregate_type = ?5 AND aggregate_id = ?6 AND position > ?3 AND position <= ?4 AND sequence > coalesce((SELECT \
         last.sequence FROM evento_event last WHERE last.position = ?3 AND last.aggregate_type = ?5 AND \
         last.aggregate_id = ?6), 0)",
        "sequence",
    )?;
    select.raw_bind_parameter(1, limit(read.max_payload))?;
    select.raw_bind_parameter(2, limit(read.max_events))?;
    select.raw_bind_parameter(3, row_id(read.after))?;
    select.raw_bind_parameter(4, row_id(read.until))?;
    select.raw_bind_parameter(5, read.aggregate.kind())?;
    select.raw_bind_parameter(6, read.aggregate.id())?;
    let mut events = Vec::new();
    let full_at = collect(&mut select, &mut events, read.max_events, read.max_bytes)?;
    Ok(Selection { events, scanned_to: full_at.unwrap_or(read.until) })
}

/// Where the events of a held key are that a consumer with these names has not passed.
pub(super) fn behind(
    conn: &Connection,
    held: &HeldKey,
    context: &str,
    names: &str,
    frontier: Position,
) -> rusqlite::Result<Vec<Position>> {
    let mut select = conn.prepare_cached(
        "SELECT position FROM evento_event WHERE aggregate_type = ?1 AND aggregate_id = ?2 AND position >= ?3 \
         AND position <= ?4 AND context = ?5 AND name IN (SELECT value FROM json_each(?6)) ORDER BY sequence",
    )?;
    let (kind, id) = (held.aggregate.kind(), held.aggregate.id());
    let parameters = params![kind, id, row_id(held.from), row_id(frontier), context, names];
    select.query_map(parameters, |row| position(row, 0))?.collect()
}

/// Copies a row of [`EVENT`] into one piece.
fn recorded(row: &Row<'_>) -> rusqlite::Result<RecordedEvent> {
    let text = |column| -> rusqlite::Result<&str> { Ok(row.get_ref(column)?.as_str()?) };
    let (payload, oversize) = match row.get_ref(9)? {
        ValueRef::Integer(length) => (&[][..], Some(length.cast_unsigned())),
        payload => (payload.as_blob()?, None),
    };
    let position = position(row, 0)?;
    Ok(RecordedEvent::new(RecordedParts {
        position,
        id: text(1)?,
        name: text(2)?,
        context: text(3)?,
        aggregate: AggregateRef { kind: text(4)?, id: text(5)? },
        sequence: Sequence(number(row, 6, "evento_event", format_args!("position {position}"))?),
        metadata: text(7)?,
        payload,
        oversize,
        recorded_at: Timestamp(row.get(8)?),
    }))
}

impl EventLog for OpenSqlite {
    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, AppendError>> {
        self.threads.write(Lane::Append, move |conn| self::append(conn, &append))
    }

    fn read(&self, read: ReadLog) -> BoxFuture<'_, Result<Page, StoreError>> {
        self.threads.read(move |conn| self::read(conn, &read))
    }

    fn read_at(&self, read: ReadAt) -> BoxFuture<'_, Result<Selection, StoreError>> {
        self.threads.read(move |conn| self::read_at(conn, read))
    }

    fn read_aggregate(&self, read: ReadAggregate) -> BoxFuture<'_, Result<Selection, StoreError>> {
        self.threads.read(move |conn| self::read_aggregate(conn, &read))
    }

    fn head(&self) -> BoxFuture<'_, Result<Head, StoreError>> {
        self.threads.read(|conn| {
            let bound = bound(conn)?;
            Ok(Head { bound, committed: bound })
        })
    }

    fn on_append(&self, wake: Wake) {
        self.threads.on_append(wake);
    }
}
