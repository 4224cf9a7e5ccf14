//! What the SQLite cases have in common: a file that the store has made, and raw connections to it with the store's
//! pragmas.

use std::{path::Path, sync::Arc};

use evento_core::store::{OpenStore, Store};
use evento_runtime::store::SqliteStore;
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A store of its own in a temporary directory, with its tables and indexes, and as many events as `fill` puts there.
pub(crate) fn stored(runtime: &Runtime, fill: impl AsyncFnOnce(&dyn Store)) -> (TempDir, SqliteStore) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteStore::at(directory.path().join("bench.db"));
    runtime.block_on(async {
        let open = open(&store).await;
        fill(&*open).await;
        open.close().await;
    });
    (directory, store)
}

pub(crate) async fn open(store: &SqliteStore) -> Arc<dyn Store> {
    store.open().await.unwrap()
}

/// What a hand-written loop opens: one connection, with the pragmas of the store.
pub(crate) fn raw(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.query_one("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0)).unwrap();
    conn.pragma_update(None, "synchronous", "NORMAL").unwrap();
    conn.pragma_update(None, "cache_size", -16_384).unwrap();
    conn
}
