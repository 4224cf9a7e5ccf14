use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use evento_core::{
    Timestamp,
    store::{AppendError, CommitError, StoreError},
};
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};

use super::{SqliteStore, Synchronous, number::Unreadable, schema};

/// Why an operation on a connection failed: SQLite did, or the operation has an answer that is an error.
pub(super) enum Failure<E> {
    Sql(rusqlite::Error),
    Answer(E),
}

impl<E: From<StoreError>> Failure<E> {
    pub(super) fn into_error(self) -> E {
        match self {
            Self::Sql(error) => store_error(error).into(),
            Self::Answer(error) => error,
        }
    }
}

impl<E> From<rusqlite::Error> for Failure<E> {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl<E: From<StoreError>> From<StoreError> for Failure<E> {
    fn from(error: StoreError) -> Self {
        Self::Answer(error.into())
    }
}

impl From<CommitError> for Failure<CommitError> {
    fn from(error: CommitError) -> Self {
        Self::Answer(error)
    }
}

impl From<AppendError> for Failure<AppendError> {
    fn from(error: AppendError) -> Self {
        Self::Answer(error)
    }
}

/// What SQLite said, in the words of a store.
pub(super) fn store_error(error: rusqlite::Error) -> StoreError {
    use rusqlite::Error as E;
    match &error {
        E::FromSqlConversionFailure(.., source) if source.is::<Unreadable>() => {
            StoreError::Corrupt { what: source.to_string() }
        }
        E::SqliteFailure(code, _) => match code.code {
            // `Unknown` is SQL that the file's schema does not answer to: a table or a column is missing.
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::TypeMismatch | ErrorCode::Unknown => {
                StoreError::Corrupt { what: error.to_string() }
            }
            _ => StoreError::unavailable(error),
        },
        E::SqlInputError { .. }
        | E::FromSqlConversionFailure(..)
        | E::IntegralValueOutOfRange(..)
        | E::Utf8Error(..)
        | E::InvalidColumnType(..)
        | E::QueryReturnedNoRows => StoreError::Corrupt { what: error.to_string() },
        _ => StoreError::unavailable(error),
    }
}

/// Now, by the database's clock, which every process that shares the file reads.
pub(super) fn now(conn: &Connection) -> rusqlite::Result<Timestamp> {
    conn.prepare_cached("SELECT CAST(unixepoch('subsec') * 1000000 AS INTEGER)")?
        .query_one([], |row| row.get(0).map(Timestamp))
}

pub(super) fn after(now: Timestamp, duration: Duration) -> Timestamp {
    Timestamp(now.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
}

/// Opens the writer's connection: creates file and tables where they are missing.
pub(super) fn open_writer(store: &SqliteStore) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(&store.path, flags).map_err(|error| opening(&store.path, error))?;
    let set_up = |conn: &mut Connection| {
        conn.busy_timeout(store.busy_timeout)?;
        keep_plans(conn)?;
        // Reads the header, and so finds out whether this is a database at all, before anything is written.
        conn.query_one("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
        write_ahead(conn, store.busy_timeout)?;
        conn.pragma_update(
            None,
            "synchronous",
            match store.synchronous {
                Synchronous::Normal => "NORMAL",
                Synchronous::Full => "FULL",
            },
        )?;
        conn.pragma_update(None, "cache_size", -16_384)?;
        conn.pragma_update(None, "journal_size_limit", LONGEST_LOG)?;
        conn.set_prepared_statement_cache_capacity(128);
        Ok(())
    };
    set_up(&mut conn).map_err(|error| opening(&store.path, error))?;
    schema::create(&mut conn, &store.path)?;
    Ok(conn)
}

/// The write-ahead file is emptied when it has grown to so many bytes.
const LONGEST_LOG: u32 = 64 * 1024 * 1024;

/// Empties the write-ahead file if it has grown long.
///
/// SQLite's own checkpoints never get to its end while another writer of the file, the application's for example, leaves
/// no moment without readers: this one waits for such a moment, shortly.
pub(super) fn shorten_log(conn: &Connection) -> rusqlite::Result<()> {
    let Some(path) = conn.path() else { return Ok(()) };
    if std::fs::metadata(format!("{path}-wal")).is_ok_and(|log| log.len() <= u64::from(LONGEST_LOG)) {
        return Ok(());
    }
    let patience: u32 = conn.query_one("PRAGMA busy_timeout", [], |row| row.get(0))?;
    conn.busy_timeout(Duration::from_millis(100))?;
    let shortened = conn.query_one("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()));
    conn.busy_timeout(Duration::from_millis(patience.into()))?;
    shortened
}

/// Opens a reader's connection, on which nothing can be written.
pub(super) fn open_reader(store: &SqliteStore) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(&store.path, flags).map_err(|error| opening(&store.path, error))?;
    let set_up = || {
        conn.busy_timeout(store.busy_timeout)?;
        keep_plans(&conn)?;
        conn.pragma_update(None, "query_only", true)?;
        conn.set_prepared_statement_cache_capacity(64);
        Ok(())
    };
    set_up().map_err(|error| opening(&store.path, error))?;
    Ok(conn)
}

/// Has a prepared statement keep its plan: otherwise each new value of a parameter has SQLite parse and plan it again.
fn keep_plans(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(drop)
}

/// Turns write-ahead mode on. SQLite does not wait for others here, whatever the busy timeout says.
fn write_ahead(conn: &Connection, patience: Duration) -> rusqlite::Result<()> {
    let until = Instant::now() + patience;
    loop {
        match conn.query_one("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < until => {
                thread::park_timeout(Duration::from_millis(5));
            }
            outcome => return outcome.map(drop),
        }
    }
}

fn opening(file: &Path, error: rusqlite::Error) -> StoreError {
    let path = file.display();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            StoreError::Refused(format!("`{path}` is not a sqlite database: name another file, or move this one away"))
        }
        Some(ErrorCode::CannotOpen) if file.is_dir() => {
            StoreError::Refused(format!("`{path}` is a folder: name a file in it"))
        }
        Some(ErrorCode::CannotOpen) => StoreError::Refused(format!(
            "`{path}` cannot be opened or created: its folder must exist, and this user must be allowed to write there"
        )),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            StoreError::Refused(format!("`{path}` cannot be written: let this user write the file and its folder"))
        }
        _ => store_error(error),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    #[test]
    fn the_description_decides_how_much_a_write_waits_for_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        for (setting, stored) in [(Synchronous::Normal, 1), (Synchronous::Full, 2)] {
            let store = SqliteStore::at(folder.path().join("shop.db")).synchronous(setting);
            let conn = open_writer(&store).expect("opens");
            let found: i64 = conn.query_one("PRAGMA synchronous", [], |row| row.get(0)).expect("answers");
            assert_eq!(found, stored);
            let mode: String = conn.query_one("PRAGMA journal_mode", [], |row| row.get(0)).expect("answers");
            assert_eq!(mode, "wal");
        }
    }

    #[test]
    fn a_reader_cannot_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::at(folder.path().join("shop.db"));
        let _writer = open_writer(&store).expect("opens");
        let reader = open_reader(&store).expect("opens");
        reader.execute("DELETE FROM evento_event", []).expect_err("only reads");
    }

    #[test]
    fn a_new_value_of_a_parameter_does_not_plan_its_statement_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::at(folder.path().join("shop.db"));
        let writer = open_writer(&store).expect("opens");
        for conn in [&writer, &open_reader(&store).expect("opens")] {
            let sql = "SELECT position FROM evento_event WHERE position > ?1 LIMIT ?2";
            let mut select = conn.prepare(sql).expect("a statement");
            for after in 0..3 {
                assert!(!select.exists((after, 1000)).expect("answers"));
            }
            assert_eq!(select.get_status(StatementStatus::RePrepare), 0);
        }
    }

    /// A user of one file for log and read model saw it grow to gigabytes.
    #[test]
    fn a_long_write_ahead_file_is_used_from_its_beginning_again_although_readers_come_and_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::at(folder.path().join("long.db"));
        let conn = open_writer(&store).unwrap();
        conn.execute_batch("CREATE TABLE long (bytes BLOB); PRAGMA wal_autocheckpoint = 0").unwrap();
        let length = || std::fs::metadata(folder.path().join("long.db-wal")).unwrap().len();
        let fill = || {
            for _ in 0..80 {
                conn.execute("INSERT INTO long VALUES (zeroblob(1048576))", []).unwrap();
            }
        };
        fill();
        assert!(length() > u64::from(LONGEST_LOG));
        shorten_log(&conn).unwrap();
        conn.execute("DELETE FROM long", []).unwrap();
        assert!(length() <= u64::from(LONGEST_LOG), "{}", length());
    }
}
