use std::time::Duration;

use evento_core::{
    BoxFuture, ConsumerKey, Kind, Position, Segment, Timestamp,
    store::{
        Claim, ClaimOutcome, ClaimRequest, ClaimStatus, ClaimStore, CommitError, Epoch, Generation, Owner,
        ProcessIdentity, Revision, StoreError,
    },
};
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, types::Type};

use super::{
    OpenSqlite,
    connection::{Failure, after, now},
    number::{next, number},
    queue::Lane,
};
use crate::store::{decision, process};

/// What a fenced operation works on: found only where the claim is the present taking.
pub(super) struct Fenced {
    pub(super) consumer: i64,
    pub(super) segment: i64,
    pub(super) revision: Revision,
    pub(super) generation: Generation,
    pub(super) frontier: Position,
}

/// Finds the segment of `claim` if that is still held, or answers [`CommitError::Fenced`]. Its time does not matter:
/// while nobody took it over, it is held.
pub(super) fn fenced(conn: &Connection, claim: &Claim) -> Result<Fenced, Failure<CommitError>> {
    let found = under(conn, claim, "c.id, s.segment, s.revision, s.generation, s.frontier", |row| {
        let segment = row.get(1)?;
        Ok(Fenced {
            consumer: row.get(0)?,
            segment,
            revision: Revision(number(row, 2, "evento_checkpoint", format_args!("segment {segment}"))?),
            generation: Generation(number(row, 3, "evento_checkpoint", format_args!("segment {segment}"))?),
            frontier: position(row, 4)?,
        })
    });
    found?.ok_or(Failure::Answer(CommitError::Fenced))
}

/// The segment of `claim` if that is still held, whatever else is stored of it.
fn held(conn: &Connection, claim: &Claim) -> rusqlite::Result<Option<i64>> {
    under(conn, claim, "s.segment", |row| row.get(0))
}

fn under<T>(
    conn: &Connection,
    claim: &Claim,
    columns: &str,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {columns} FROM evento_consumer c JOIN evento_checkpoint s ON s.consumer = c.id \
         JOIN evento_claim k ON k.segment = s.segment WHERE c.bundle = ?1 AND c.kind = ?2 AND c.name = ?3 \
         AND c.version = ?4 AND c.context = ?5 AND s.number = ?6 AND s.mask = ?7 AND k.owner = ?8 AND k.epoch = ?9"
    ))?;
    let ConsumerKey { bundle, kind, name, version, context } = &claim.consumer;
    let Segment { number, mask } = claim.segment;
    let epoch = claim.epoch.0.cast_signed();
    let parameters = params![bundle, kind.as_str(), name, version, context, number, mask, claim.owner.name, epoch];
    select.query_row(parameters, read).optional()
}

pub(super) fn position(row: &Row<'_>, column: usize) -> rusqlite::Result<Position> {
    row.get(column).map(Position::from_bytes)
}

/// A list of texts as stored.
pub(super) fn texts(row: &Row<'_>, column: usize) -> rusqlite::Result<Vec<String>> {
    let json = row.get_ref(column)?.as_str()?;
    serde_json::from_str(json)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error)))
}

pub(super) fn to_json(texts: &[String]) -> String {
    serde_json::Value::from(texts).to_string()
}

/// A word of a table that this version does not know.
pub(super) fn unknown(column: usize, word: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, format!("`{word}` is unknown").into())
}

/// The columns of a consumer's key, from `column` on.
pub(super) fn consumer_key(row: &Row<'_>, column: usize) -> rusqlite::Result<ConsumerKey> {
    let kind = row.get_ref(column + 1)?.as_str()?;
    let name: String = row.get(column + 2)?;
    Ok(ConsumerKey {
        bundle: row.get(column)?,
        kind: Kind::from_name(kind).ok_or_else(|| unknown(column + 1, kind))?,
        version: number(row, column + 3, "evento_consumer", format_args!("name {name}"))?,
        context: row.get(column + 4)?,
        name,
    })
}

/// The columns of a segment, from `column` on.
pub(super) fn segment(row: &Row<'_>, column: usize, of: &ConsumerKey) -> rusqlite::Result<Segment> {
    let [number, mask] = [column, column + 1].map(|column| number(row, column, "evento_checkpoint", of));
    Ok(Segment { number: number?, mask: mask? })
}

/// An owner, from `column` on: name, scope, process id, start. `None` where there is no name.
fn owner(row: &Row<'_>, column: usize, table: &str) -> rusqlite::Result<Option<Owner>> {
    let Some(name) = row.get::<_, Option<String>>(column)? else { return Ok(None) };
    let process = match row.get(column + 1)? {
        Some(scope) => {
            let which = format_args!("owner {name}");
            let pid = number(row, column + 2, table, which)?;
            Some(ProcessIdentity { scope, pid, started: number(row, column + 3, table, which)? })
        }
        None => None,
    };
    Ok(Some(Owner { name, process }))
}

fn is_dead(owner: &Owner) -> bool {
    owner.process.as_ref().is_some_and(process::is_dead)
}

struct Stored {
    segment: i64,
    epoch: Epoch,
    holder: Option<Owner>,
    /// What the holder's taking was answered, or, where there is none, what the next one's is.
    clean: bool,
    until: Timestamp,
    names: Vec<String>,
}

fn stored(conn: &Connection, consumer: &ConsumerKey, segment: Segment) -> Result<Stored, Failure<StoreError>> {
    let mut select = conn.prepare_cached(
        "SELECT s.segment, k.epoch, k.clean, t.until, s.names, k.owner, k.process_scope, k.process_id, \
         k.process_started FROM evento_consumer c JOIN evento_checkpoint s ON s.consumer = c.id \
         JOIN evento_claim k ON k.segment = s.segment JOIN evento_claim_time t ON t.segment = s.segment \
         WHERE c.bundle = ?1 AND c.kind = ?2 AND c.name = ?3 AND c.version = ?4 AND c.context = ?5 \
         AND s.number = ?6 AND s.mask = ?7",
    )?;
    let ConsumerKey { bundle, kind, name, version, context } = consumer;
    let parameters = params![bundle, kind.as_str(), name, version, context, segment.number, segment.mask];
    let found = select.query_row(parameters, |row| {
        let segment = row.get(0)?;
        Ok(Stored {
            segment,
            epoch: Epoch(number(row, 1, "evento_claim", format_args!("segment {segment}"))?),
            clean: row.get(2)?,
            until: Timestamp(row.get(3)?),
            names: texts(row, 4)?,
            holder: owner(row, 5, "evento_claim")?,
        })
    });
    found.optional()?.ok_or_else(|| StoreError::Refused(decision::unknown_segment(consumer, segment)).into())
}

fn claim(conn: &Connection, request: ClaimRequest) -> Result<ClaimOutcome, Failure<StoreError>> {
    let now = now(conn)?;
    let stored = stored(conn, &request.consumer, request.segment)?;
    conn.prepare_cached("DELETE FROM evento_claim_waiting WHERE segment = ?1 AND (owner = ?2 OR until <= ?3)")?
        .execute(params![stored.segment, request.owner.name, now.0])?;
    let clean = match &stored.holder {
        Some(holder) if holder.name == request.owner.name => stored.clean,
        Some(holder) if stored.until > now && !is_dead(holder) => {
            wait(conn, stored.segment, &request, now)?;
            return Ok(ClaimOutcome::Held { owner: holder.clone(), until: stored.until });
        }
        free => {
            let waiting = waiting(conn, stored.segment)?;
            let waiting = waiting.iter().map(|(owner, names)| (owner, &names[..]));
            if let Some((owner, lacking)) = decision::stands_back(&stored.names, &request.names, waiting) {
                wait(conn, stored.segment, &request, now)?;
                return Ok(ClaimOutcome::StandBack { owner, lacking });
            }
            free.is_none() && stored.clean
        }
    };
    let ClaimRequest { consumer, segment, owner, time_to_live, .. } = request;
    let epoch = next_epoch(stored.segment, stored.epoch)?;
    let process = process_columns(&owner);
    conn.prepare_cached(
        "UPDATE evento_claim SET epoch = ?2, owner = ?3, process_scope = ?4, process_id = ?5, process_started = ?6, \
         clean = ?7 WHERE segment = ?1",
    )?
    .execute(params![
        stored.segment,
        epoch.0.cast_signed(),
        owner.name,
        process.0,
        process.1,
        process.2,
        clean
    ])?;
    set_time(conn, stored.segment, after(now, time_to_live))?;
    Ok(ClaimOutcome::Taken { claim: Claim { consumer, segment, owner, epoch }, clean })
}

fn process_columns(owner: &Owner) -> (Option<&str>, Option<u32>, Option<i64>) {
    match &owner.process {
        Some(process) => (Some(&process.scope), Some(process.pid), Some(process.started.cast_signed())),
        None => (None, None, None),
    }
}

/// Remembers who asked and was not given the claim.
fn wait(conn: &Connection, segment: i64, request: &ClaimRequest, now: Timestamp) -> rusqlite::Result<()> {
    let process = process_columns(&request.owner);
    let until = after(now, request.time_to_live).0;
    let names = to_json(&request.names);
    conn.prepare_cached(
        "INSERT OR REPLACE INTO evento_claim_waiting (segment, owner, process_scope, process_id, process_started, \
         names, until) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?
    .execute(params![segment, request.owner.name, process.0, process.1, process.2, names, until])?;
    Ok(())
}

fn waiting(conn: &Connection, segment: i64) -> rusqlite::Result<Vec<(Owner, Vec<String>)>> {
    let mut select = conn.prepare_cached(
        "SELECT owner, process_scope, process_id, process_started, names FROM evento_claim_waiting \
         WHERE segment = ?1 ORDER BY owner",
    )?;
    let rows = select.query_map([segment], |row| Ok((owner(row, 0, "evento_claim_waiting")?, texts(row, 4)?)))?;
    let mut waiting = Vec::new();
    for row in rows {
        if let (Some(owner), names) = row?
            && !is_dead(&owner)
        {
            waiting.push((owner, names));
        }
    }
    Ok(waiting)
}

fn set_time(conn: &Connection, segment: i64, until: Timestamp) -> rusqlite::Result<()> {
    conn.prepare_cached("UPDATE evento_claim_time SET until = ?2 WHERE segment = ?1")?
        .execute(params![segment, until.0])?;
    Ok(())
}

fn next_epoch(segment: i64, last: Epoch) -> Result<Epoch, StoreError> {
    next(last.0, "epoch", "evento_claim", format_args!("segment {segment}")).map(Epoch)
}

/// Ends this epoch and begins another of the same holder.
pub(super) fn renew_epoch(
    conn: &Connection,
    segment: i64,
    last: Epoch,
    until: Timestamp,
) -> Result<Epoch, Failure<CommitError>> {
    let epoch = next_epoch(segment, last)?;
    conn.prepare_cached("UPDATE evento_claim SET epoch = ?2 WHERE segment = ?1")?
        .execute(params![segment, epoch.0.cast_signed()])?;
    set_time(conn, segment, until)?;
    Ok(epoch)
}

fn statuses(conn: &Connection, bundle: &dyn ToSql) -> Result<Vec<ClaimStatus>, Failure<StoreError>> {
    let mut select = conn.prepare_cached(
        "SELECT c.bundle, c.kind, c.name, c.version, c.context, s.number, s.mask, k.epoch, t.until, k.owner, \
         k.process_scope, k.process_id, k.process_started FROM evento_consumer c \
         JOIN evento_checkpoint s ON s.consumer = c.id JOIN evento_claim k ON k.segment = s.segment \
         JOIN evento_claim_time t ON t.segment = s.segment WHERE c.bundle = ?1 \
         ORDER BY c.kind, c.name, c.version, c.context, s.number, s.mask",
    )?;
    let rows = select.query_map([bundle], |row| {
        let until = Timestamp(row.get(8)?);
        let consumer = consumer_key(row, 0)?;
        let epoch = Epoch(number(row, 7, "evento_claim", &consumer)?);
        Ok(ClaimStatus {
            segment: segment(row, 5, &consumer)?,
            consumer,
            epoch,
            owner: owner(row, 9, "evento_claim")?.map(|owner| (owner, until)),
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl ClaimStore for OpenSqlite {
    fn claim(&self, request: ClaimRequest) -> BoxFuture<'_, Result<ClaimOutcome, StoreError>> {
        self.threads.write(Lane::Claim, move |conn| self::claim(conn, request))
    }

    fn renew(&self, claims: Vec<Claim>, time_to_live: Duration) -> BoxFuture<'_, Result<Vec<Claim>, StoreError>> {
        self.threads.write(Lane::Claim, move |conn| {
            let until = after(now(conn)?, time_to_live);
            let mut lost = Vec::new();
            for claim in claims {
                match held(conn, &claim)? {
                    Some(segment) => set_time(conn, segment, until)?,
                    None => lost.push(claim),
                }
            }
            Ok(lost)
        })
    }

    fn release(&self, claim: Claim, clean: bool) -> BoxFuture<'_, Result<(), StoreError>> {
        self.threads.write(Lane::Claim, move |conn| {
            if let Some(segment) = held(conn, &claim)? {
                conn.prepare_cached("UPDATE evento_claim SET owner = NULL, clean = ?2 WHERE segment = ?1")?
                    .execute(params![segment, clean])?;
            }
            Ok(())
        })
    }

    fn claims(&self, bundle: String) -> BoxFuture<'_, Result<Vec<ClaimStatus>, StoreError>> {
        self.threads.read(move |conn| statuses(conn, &bundle))
    }
}
