use std::path::Path;

use evento_core::store::StoreError;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::connection::store_error;

/// The version of the tables that this crate writes. A change of them raises it, and brings the older ones along.
const VERSION: i64 = 1;

/// Creates the tables where they are missing, and refuses a file whose tables are not ours to write.
///
/// Two processes may do so at once: the first to begin creates, the second finds.
pub(super) fn create(conn: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(store_error)?;
    let tables: Vec<String> = {
        let select = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'evento\\_%' ESCAPE '\\'";
        let mut select = tx.prepare(select).map_err(store_error)?;
        let names = select.query_map([], |row| row.get(0)).map_err(store_error)?;
        names.collect::<Result<_, _>>().map_err(store_error)?
    };
    let path = path.display();
    if !tables.iter().any(|table| table == "evento_schema") {
        if let Some(table) = tables.first() {
            return Err(StoreError::Refused(format!(
                "`{path}` has a table `{table}` that this framework did not create: rename it, or name another file"
            )));
        }
        tx.execute_batch(TABLES).map_err(store_error)?;
        tx.execute("INSERT INTO evento_schema (version) VALUES (?1)", [VERSION]).map_err(store_error)?;
        return tx.commit().map_err(store_error);
    }
    let found = tx.query_row("SELECT max(version) FROM evento_schema", [], |row| row.get::<_, i64>(0)).optional();
    match found {
        Ok(Some(VERSION)) => Ok(()),
        Ok(Some(newer)) if newer > VERSION => Err(StoreError::Refused(format!(
            "`{path}` was written by a newer version (schema {newer}, this one knows {VERSION}): upgrade evento-runtime"
        ))),
        _ => Err(StoreError::Refused(format!(
            "`{path}` has a table `evento_schema` that says nothing this version understands: name another file, or \
             restore this one from a backup"
        ))),
    }
}

/// Positions of the log are numbers, its row ids; what consumers keep are sixteen bytes that sort as positions do, so
/// that positions of any source fit. Times are microseconds since the Unix epoch. Lists of texts are JSON.
///
/// Payloads stand last in their row: what filters read comes before them.
const TABLES: &str = "
CREATE TABLE evento_schema (version INTEGER NOT NULL) STRICT;

CREATE TABLE evento_event (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    key_hash INTEGER NOT NULL,
    context TEXT NOT NULL,
    name TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    metadata TEXT NOT NULL,
    payload BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX evento_event_id ON evento_event (event_id);
CREATE UNIQUE INDEX evento_event_aggregate ON evento_event (aggregate_type, aggregate_id, sequence);

CREATE TABLE evento_consumer (
    id INTEGER PRIMARY KEY,
    bundle TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    context TEXT NOT NULL,
    UNIQUE (bundle, kind, name, version, context)
) STRICT;

-- One row a segment; what hangs on the segment names it by this id.
CREATE TABLE evento_checkpoint (
    segment INTEGER PRIMARY KEY,
    consumer INTEGER NOT NULL,
    number INTEGER NOT NULL,
    mask INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    frontier BLOB NOT NULL,
    names TEXT NOT NULL,
    replay_until BLOB,
    written_at INTEGER,
    UNIQUE (consumer, number, mask)
) STRICT;
CREATE TABLE evento_open (
    segment INTEGER NOT NULL,
    position BLOB NOT NULL,
    PRIMARY KEY (segment, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE evento_replay_except (
    segment INTEGER NOT NULL,
    position BLOB NOT NULL,
    PRIMARY KEY (segment, position)
) STRICT, WITHOUT ROWID;

-- The epoch, which fenced writes look at, apart from the time to live, which renewals write. No owner: let go. Clean is
-- the present taking, or, without an owner, the next.
CREATE TABLE evento_claim (
    segment INTEGER PRIMARY KEY,
    epoch INTEGER NOT NULL,
    owner TEXT,
    process_scope TEXT,
    process_id INTEGER,
    process_started INTEGER,
    clean INTEGER NOT NULL
) STRICT;
CREATE TABLE evento_claim_time (segment INTEGER PRIMARY KEY, until INTEGER NOT NULL) STRICT;
CREATE TABLE evento_claim_waiting (
    segment INTEGER NOT NULL,
    owner TEXT NOT NULL,
    process_scope TEXT,
    process_id INTEGER,
    process_started INTEGER,
    names TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (segment, owner)
) STRICT, WITHOUT ROWID;

CREATE TABLE evento_held (
    consumer INTEGER NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    key_hash INTEGER NOT NULL,
    position BLOB NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (consumer, aggregate_type, aggregate_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE evento_retry (
    consumer INTEGER NOT NULL,
    position BLOB NOT NULL,
    key_hash INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    spent INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    PRIMARY KEY (consumer, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE evento_started (
    consumer INTEGER NOT NULL,
    position BLOB NOT NULL,
    key_hash INTEGER NOT NULL,
    crashes INTEGER NOT NULL,
    PRIMARY KEY (consumer, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE evento_dead_event (
    consumer INTEGER NOT NULL,
    position BLOB NOT NULL,
    key_hash INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    name TEXT NOT NULL,
    aggregate_type TEXT NOT NULL,
    aggregate_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    reason TEXT NOT NULL,
    cause TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    first_failed_at INTEGER NOT NULL,
    last_failed_at INTEGER NOT NULL,
    parks INTEGER NOT NULL,
    PRIMARY KEY (consumer, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX evento_dead_event_of_aggregate ON evento_dead_event (consumer, aggregate_type, aggregate_id, position);

-- What resets took away: the row as JSON, under the generation that the reset ended.
CREATE TABLE evento_archive (
    id INTEGER PRIMARY KEY,
    consumer INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    archived_at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    position BLOB NOT NULL,
    content TEXT NOT NULL
) STRICT;

CREATE TABLE evento_request (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer INTEGER NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    target_position BLOB,
    aggregate_type TEXT,
    aggregate_id TEXT,
    total INTEGER NOT NULL,
    done INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    position BLOB NOT NULL,
    state TEXT NOT NULL,
    made_at INTEGER NOT NULL
) STRICT;
CREATE INDEX evento_request_consumer ON evento_request (consumer, state);
";
