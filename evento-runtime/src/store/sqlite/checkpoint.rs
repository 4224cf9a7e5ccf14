use evento_core::{
    Aggregate, BoxFuture, ConsumerKey, Position, Segment, StartAt, Timestamp,
    store::{
        CheckpointStore, Claim, Commit, CommitError, ConsumerState, HeldKey, Registration, Replay, Reset, Revision,
        Started, StoreError, StoredConsumer, StoredRetry, WhyHeld,
    },
};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{
    OpenSqlite,
    claim::{Fenced, fenced, position, renew_epoch, texts, to_json, unknown},
    connection::{Failure, after, now},
    dead_event, log,
    number::{next, number},
    queue::Lane,
    request,
};
use crate::store::decision;

pub(super) fn consumer_id(conn: &Connection, consumer: &ConsumerKey) -> rusqlite::Result<Option<i64>> {
    let mut select = conn.prepare_cached(
        "SELECT id FROM evento_consumer WHERE bundle = ?1 AND kind = ?2 AND name = ?3 AND version = ?4 AND context = ?5",
    )?;
    let ConsumerKey { bundle, kind, name, version, context } = consumer;
    select.query_row(params![bundle, kind.as_str(), name, version, context], |row| row.get(0)).optional()
}

fn register(conn: &Connection, consumers: &[Registration]) -> Result<(), Failure<StoreError>> {
    let head = log::bound(conn)?;
    for Registration { consumer, start, names } in consumers {
        if consumer_id(conn, consumer)?.is_some() {
            continue;
        }
        let ConsumerKey { bundle, kind, name, version, context } = consumer;
        let frontier = match start {
            StartAt::Beginning => Position::BEGINNING,
            StartAt::Head => head,
        };
        conn.prepare_cached(
            "INSERT INTO evento_consumer (bundle, kind, name, version, context) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![bundle, kind.as_str(), name, version, context])?;
        let Segment { number, mask } = Segment::WHOLE;
        conn.prepare_cached(
            "INSERT INTO evento_checkpoint (consumer, number, mask, revision, generation, frontier, names) \
             VALUES (?1, ?2, ?3, 0, 0, ?4, ?5)",
        )?
        .execute(params![conn.last_insert_rowid(), number, mask, frontier.to_bytes(), to_json(names)])?;
        let segment = conn.last_insert_rowid();
        conn.prepare_cached("INSERT INTO evento_claim (segment, epoch, clean) VALUES (?1, 0, 1)")?
            .execute([segment])?;
        conn.prepare_cached("INSERT INTO evento_claim_time (segment, until) VALUES (?1, 0)")?.execute([segment])?;
    }
    Ok(())
}

fn load(conn: &Connection, claim: &Claim) -> Result<ConsumerState, Failure<CommitError>> {
    let found = fenced(conn, claim)?;
    let Fenced { consumer, segment, revision, generation, frontier } = found;
    let part = params![consumer, claim.segment.mask, claim.segment.number];
    let mut select = conn.prepare_cached("SELECT names FROM evento_checkpoint WHERE segment = ?1")?;
    let names = select.query_one([segment], |row| texts(row, 0))?;
    Ok(ConsumerState {
        revision,
        generation,
        frontier,
        open: open(conn, segment)?,
        held: held(conn, consumer, claim.segment)?,
        retries: rows(
            conn,
            "SELECT position, key_hash, attempts, spent, not_before, first_failed_at FROM evento_retry \
             WHERE consumer = ?1 AND key_hash & ?2 = ?3 ORDER BY position",
            part,
            |row| {
                let position = position(row, 0)?;
                let count = |column| number(row, column, "evento_retry", format_args!("position {position}"));
                Ok(StoredRetry {
                    position,
                    key_hash: row.get::<_, i64>(1)?.cast_unsigned(),
                    attempts: count(2)?,
                    spent: count(3)?,
                    not_before: Timestamp(row.get(4)?),
                    first_failed_at: Timestamp(row.get(5)?),
                })
            },
        )?,
        started: rows(
            conn,
            "SELECT position, key_hash, crashes FROM evento_started WHERE consumer = ?1 AND key_hash & ?2 = ?3 \
             ORDER BY position",
            part,
            |row| {
                let position = position(row, 0)?;
                let key_hash = row.get::<_, i64>(1)?.cast_unsigned();
                let crashes = number(row, 2, "evento_started", format_args!("position {position}"))?;
                Ok(Started { position, key_hash, crashes })
            },
        )?,
        letters: rows(
            conn,
            "SELECT position FROM evento_dead_event d WHERE consumer = ?1 AND key_hash & ?2 = ?3 AND (position > ?4 \
             OR EXISTS (SELECT 1 FROM evento_open o WHERE o.segment = ?5 AND o.position = d.position)) \
             ORDER BY position",
            params![consumer, claim.segment.mask, claim.segment.number, frontier.to_bytes(), segment],
            |row| position(row, 0),
        )?,
        names,
        replay: replay(conn, segment)?,
    })
}

fn rows<T>(
    conn: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    conn.prepare_cached(sql)?.query_map(parameters, read)?.collect()
}

fn open(conn: &Connection, segment: i64) -> rusqlite::Result<Vec<Position>> {
    let sql = "SELECT position FROM evento_open WHERE segment = ?1 ORDER BY position";
    rows(conn, sql, [segment], |row| position(row, 0))
}

fn held(conn: &Connection, consumer: i64, part: Segment) -> rusqlite::Result<Vec<HeldKey>> {
    let sql = "SELECT aggregate_type, aggregate_id, position, why FROM evento_held \
               WHERE consumer = ?1 AND key_hash & ?2 = ?3 ORDER BY aggregate_type, aggregate_id";
    rows(conn, sql, params![consumer, part.mask, part.number], |row| {
        let aggregate = Aggregate::new(row.get::<_, String>(0)?, row.get::<_, String>(1)?);
        let why = row.get_ref(3)?.as_str()?;
        let why = WHY.into_iter().find(|(_, word)| *word == why).ok_or_else(|| unknown(3, why))?.0;
        Ok(HeldKey { aggregate, from: position(row, 2)?, why })
    })
}

const WHY: [(WhyHeld, &str); 3] =
    [(WhyHeld::Waiting, "waiting"), (WhyHeld::Retrying, "retrying"), (WhyHeld::Dead, "dead")];

fn why(held: WhyHeld) -> &'static str {
    match held {
        WhyHeld::Waiting => WHY[0].1,
        WhyHeld::Retrying => WHY[1].1,
        WhyHeld::Dead => WHY[2].1,
    }
}

fn replay(conn: &Connection, segment: i64) -> rusqlite::Result<Option<Replay>> {
    let mut select = conn.prepare_cached("SELECT replay_until FROM evento_checkpoint WHERE segment = ?1")?;
    let until: Option<[u8; 16]> = select.query_one([segment], |row| row.get(0))?;
    let Some(until) = until.map(Position::from_bytes) else { return Ok(None) };
    let sql = "SELECT position FROM evento_replay_except WHERE segment = ?1 ORDER BY position";
    Ok(Some(Replay { until, except: rows(conn, sql, [segment], |row| position(row, 0))? }))
}

fn commit(conn: &Connection, claim: &Claim, commit: &Commit) -> Result<Revision, Failure<CommitError>> {
    let found = fenced(conn, claim)?;
    decision::check_commit(commit)?;
    if found.revision != commit.replaces {
        return Err(CommitError::Superseded { stored: found.revision, replaced: commit.replaces }.into());
    }
    if commit.frontier < found.frontier {
        return Err(CommitError::Backwards { stored: found.frontier, written: commit.frontier }.into());
    }
    let revision = next_revision(&found)?;
    conn.prepare_cached(
        "UPDATE evento_checkpoint SET revision = ?2, frontier = ?3, names = coalesce(?4, names), written_at = ?5 \
         WHERE segment = ?1",
    )?
    .execute(params![
        found.segment,
        revision.0.cast_signed(),
        commit.frontier.to_bytes(),
        commit.names.as_deref().map(to_json),
        now(conn)?.0,
    ])?;
    write_open(conn, found.segment, commit)?;
    write_held(conn, found.consumer, commit)?;
    write_retries(conn, found.consumer, commit)?;
    dead_event::write(conn, found.consumer, commit)?;
    request::advance(conn, found.consumer, &commit.requests)?;
    Ok(revision)
}

fn next_revision(found: &Fenced) -> Result<Revision, StoreError> {
    next(found.revision.0, "revision", "evento_checkpoint", format_args!("segment {}", found.segment)).map(Revision)
}

/// Runs `sql` for each position, with the owner of its row as `?1`.
pub(super) fn each(conn: &Connection, sql: &str, owner: i64, positions: &[Position]) -> rusqlite::Result<()> {
    if positions.is_empty() {
        return Ok(());
    }
    let mut statement = conn.prepare_cached(sql)?;
    for position in positions {
        statement.execute(params![owner, position.to_bytes()])?;
    }
    Ok(())
}

fn write_open(conn: &Connection, segment: i64, commit: &Commit) -> rusqlite::Result<()> {
    each(conn, "DELETE FROM evento_open WHERE segment = ?1 AND position = ?2", segment, &commit.closed)?;
    each(conn, "INSERT OR IGNORE INTO evento_open (segment, position) VALUES (?1, ?2)", segment, &commit.opened)
}

fn write_held(conn: &Connection, consumer: i64, commit: &Commit) -> rusqlite::Result<()> {
    for aggregate in &commit.released {
        conn.prepare_cached(
            "DELETE FROM evento_held WHERE consumer = ?1 AND aggregate_type = ?2 AND aggregate_id = ?3",
        )?
        .execute(params![consumer, aggregate.kind(), aggregate.id()])?;
    }
    for HeldKey { aggregate, from, why } in &commit.held {
        let hash = aggregate.key_hash().cast_signed();
        conn.prepare_cached(
            "INSERT OR REPLACE INTO evento_held (consumer, aggregate_type, aggregate_id, key_hash, position, why) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            consumer,
            aggregate.kind(),
            aggregate.id(),
            hash,
            from.to_bytes(),
            self::why(*why)
        ])?;
    }
    Ok(())
}

fn write_retries(conn: &Connection, consumer: i64, commit: &Commit) -> rusqlite::Result<()> {
    each(conn, "DELETE FROM evento_retry WHERE consumer = ?1 AND position = ?2", consumer, &commit.retries_ended)?;
    for retry in &commit.retries {
        conn.prepare_cached(
            "INSERT OR REPLACE INTO evento_retry (consumer, position, key_hash, attempts, spent, not_before, \
             first_failed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            consumer,
            retry.position.to_bytes(),
            retry.key_hash.cast_signed(),
            retry.attempts,
            retry.spent,
            retry.not_before.0,
            retry.first_failed_at.0,
        ])?;
    }
    each(conn, "DELETE FROM evento_started WHERE consumer = ?1 AND position = ?2", consumer, &commit.started_ended)?;
    for started in &commit.started {
        conn.prepare_cached(
            "INSERT OR REPLACE INTO evento_started (consumer, position, key_hash, crashes) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![
            consumer,
            started.position.to_bytes(),
            started.key_hash.cast_signed(),
            started.crashes
        ])?;
    }
    Ok(())
}

fn reset(conn: &Connection, reset: Reset) -> Result<Claim, Failure<CommitError>> {
    let Reset { mut claim, to, time_to_live } = reset;
    let found = fenced(conn, &claim)?;
    if to > found.frontier {
        return Err(StoreError::Refused(decision::forwards(to, found.frontier)).into());
    }
    let generation = format_args!("segment {}", found.segment);
    let generation = next(found.generation.0, "generation", "evento_checkpoint", generation)?;
    let now = now(conn)?;
    let unpassed = open(conn, found.segment)?.into_iter().chain(behind_held(conn, &claim, &found)?);
    let replay = decision::replay(replay(conn, found.segment)?.as_ref(), found.frontier, unpassed);
    conn.prepare_cached("DELETE FROM evento_replay_except WHERE segment = ?1")?.execute([found.segment])?;
    let except = "INSERT INTO evento_replay_except (segment, position) VALUES (?1, ?2)";
    each(conn, except, found.segment, &replay.except)?;
    conn.prepare_cached("DELETE FROM evento_open WHERE segment = ?1 AND position > ?2")?
        .execute(params![found.segment, to.to_bytes()])?;
    conn.prepare_cached(
        "UPDATE evento_checkpoint SET revision = ?2, generation = ?3, frontier = ?4, replay_until = ?5, \
         written_at = ?6 WHERE segment = ?1",
    )?
    .execute(params![
        found.segment,
        next_revision(&found)?.0.cast_signed(),
        generation.cast_signed(),
        to.to_bytes(),
        replay.until.to_bytes(),
        now.0,
    ])?;
    archive(conn, claim.segment, &found, to, now)?;
    claim.epoch = renew_epoch(conn, found.segment, claim.epoch, after(now, time_to_live))?;
    Ok(claim)
}

/// What is behind held keys: not passed, though no single position of it is open.
fn behind_held(conn: &Connection, claim: &Claim, found: &Fenced) -> Result<Vec<Position>, Failure<CommitError>> {
    let mut select = conn.prepare_cached("SELECT names FROM evento_checkpoint WHERE segment = ?1")?;
    let names: String = select.query_one([found.segment], |row| row.get(0))?;
    let mut behind = Vec::new();
    for held in held(conn, found.consumer, claim.segment)? {
        behind.extend(log::behind(conn, &held, &claim.consumer.context, &names, found.frontier)?);
    }
    let mut letter = conn.prepare_cached("SELECT 1 FROM evento_dead_event WHERE consumer = ?1 AND position = ?2")?;
    let mut unpassed = Vec::with_capacity(behind.len());
    for position in behind {
        if !letter.exists(params![found.consumer, position.to_bytes()])? {
            unpassed.push(position);
        }
    }
    Ok(unpassed)
}

/// Each table that a reset takes rows from, the word for one of them, and what of it is kept beside its position.
const ARCHIVED: [(&str, &str, &str); 4] = [
    (
        "evento_dead_event",
        "dead event",
        "'event_id', event_id, 'name', name, 'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id, \
         'sequence', sequence, 'reason', reason, 'cause', json(cause), 'attempts', attempts, 'first_failed_at', \
         first_failed_at, 'last_failed_at', last_failed_at, 'parks', parks",
    ),
    (
        "evento_retry",
        "retry",
        "'key_hash', key_hash, 'attempts', attempts, 'spent', spent, 'not_before', not_before, 'first_failed_at', \
         first_failed_at",
    ),
    ("evento_started", "started", "'key_hash', key_hash, 'crashes', crashes"),
    ("evento_held", "held", "'aggregate_type', aggregate_type, 'aggregate_id', aggregate_id, 'why', why"),
];

fn archive(
    conn: &Connection,
    part: Segment,
    found: &Fenced,
    to: Position,
    now: Timestamp,
) -> Result<(), Failure<CommitError>> {
    for (table, kind, content) in ARCHIVED {
        let rows = format!("FROM {table} WHERE consumer = ?1 AND key_hash & ?2 = ?3 AND position > ?4");
        conn.prepare_cached(&format!(
            "INSERT INTO evento_archive (consumer, generation, archived_at, kind, position, content) \
             SELECT consumer, ?5, ?6, '{kind}', position, json_object({content}) {rows}"
        ))?
        .execute(params![
            found.consumer,
            part.mask,
            part.number,
            to.to_bytes(),
            found.generation.0.cast_signed(),
            now.0,
        ])?;
        conn.prepare_cached(&format!("DELETE {rows}"))?.execute(params![
            found.consumer,
            part.mask,
            part.number,
            to.to_bytes(),
        ])?;
    }
    Ok(())
}

impl CheckpointStore for OpenSqlite {
    fn register(&self, consumers: Vec<Registration>) -> BoxFuture<'_, Result<(), StoreError>> {
        self.threads.write(Lane::Other, move |conn| self::register(conn, &consumers))
    }

    fn load(&self, claim: Claim) -> BoxFuture<'_, Result<ConsumerState, CommitError>> {
        self.threads.read(move |conn| self::load(conn, &claim))
    }

    fn commit(&self, claim: Claim, commit: Commit) -> BoxFuture<'_, Result<Revision, CommitError>> {
        self.threads.write(Lane::Other, move |conn| self::commit(conn, &claim, &commit))
    }

    fn revision(&self, claim: Claim) -> BoxFuture<'_, Result<Revision, CommitError>> {
        // In the writer's queue, behind a commit whose answer was given up on: what it reads is final.
        self.threads.write(Lane::Other, move |conn| Ok(fenced(conn, &claim)?.revision))
    }

    fn reset(&self, reset: Reset) -> BoxFuture<'_, Result<Claim, CommitError>> {
        self.threads.write(Lane::Other, move |conn| self::reset(conn, reset))
    }

    fn consumers(&self, bundle: String) -> BoxFuture<'_, Result<Vec<StoredConsumer>, StoreError>> {
        self.threads.read(move |conn| super::consumer::stored_consumers(conn, &bundle))
    }
}
