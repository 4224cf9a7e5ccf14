//! Numbers in a SQLite file that this version does not write, or that nothing can come after: refused by where they
//! stand, and left as they are.

use std::sync::Arc;

use evento_core::{
    BoxFuture, Position,
    store::{
        Action, Claim, Commit, CommitError, DeadFilter, Expected, OpenStore, ReadAggregate, ReadAt, Reset, Started,
        Store, StoreError, Target,
    },
};
use evento_runtime::store::SqliteStore;
use evento_tests::conformance::{
    LONG, any, checkpoint::retry, commit, dead_event::letter, event, fill, filter, order, orders, page, positions,
    read_after, registration, request_by, take,
};
use rusqlite::Connection;

struct File {
    folder: tempfile::TempDir,
    claim: Claim,
}

impl File {
    /// With a row of every sort, under a claim.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::at(folder.path().join("shop.db")).open().await.unwrap();
        store.register(vec![registration(&["placed"])]).await.unwrap();
        fill(&*store, "a", 3, 1).await;
        let claim = take(&*store, "a").await;
        let started = Started { position: Position::new(2), key_hash: order("0").key_hash(), crashes: 1 };
        let rows = Commit {
            opened: positions(&[2]),
            dead: vec![letter(1, "0")],
            retries: vec![retry(2, "0")],
            started: vec![started],
            ..commit(0, 2)
        };
        store.commit(claim.clone(), rows).await.unwrap();
        store.make_request(orders(), Action::Retry, Target::Consumer).await.unwrap();
        store.close().await;
        Self { folder, claim }
    }

    fn sql(&self) -> Connection {
        Connection::open(self.folder.path().join("shop.db")).unwrap()
    }

    /// Sets a column, then answers what each of `calls` is refused with.
    async fn refusals(&self, table: &str, column: &str, value: i64, calls: &[Call]) -> Vec<String> {
        let before: i64 = self.sql().query_one(&format!("SELECT {column} FROM {table}"), [], |row| row.get(0)).unwrap();
        let set = |value: i64| {
            self.sql().execute(&format!("UPDATE {table} SET {column} = ?1"), [value]).unwrap();
        };
        set(value);
        let store = SqliteStore::at(self.folder.path().join("shop.db")).open().await.unwrap();
        let mut refusals = Vec::new();
        for call in calls {
            match call(Arc::clone(&store), self.claim.clone()).await {
                Err(error @ StoreError::Corrupt { .. }) => refusals.push(error.to_string()),
                other => panic!("{table}.{column} = {value}: {other:?}"),
            }
        }
        store.close().await;
        let after: i64 = self.sql().query_one(&format!("SELECT {column} FROM {table}"), [], |row| row.get(0)).unwrap();
        assert_eq!(after, value, "{table}.{column} is left as it is");
        set(before);
        refusals
    }
}

type Call = fn(Arc<dyn Store>, Claim) -> BoxFuture<'static, Result<(), StoreError>>;

/// Table, column, the row as it is named, values, and what reads them.
type Case = (&'static str, &'static str, &'static str, &'static [i64], &'static [Call]);

fn of_commit<T>(outcome: Result<T, CommitError>) -> Result<(), StoreError> {
    match outcome {
        Ok(_) => Ok(()),
        Err(CommitError::Store(error)) => Err(error),
        Err(other) => panic!("{other}"),
    }
}

const LOAD: Call = |store, claim| Box::pin(async move { of_commit(store.load(claim).await) });
const WRITE: Call = |store, claim| {
    Box::pin(async move {
        // Whatever it says that it replaces.
        match store.commit(claim.clone(), commit(u64::MAX >> 1, 2)).await {
            Err(CommitError::Superseded { .. }) => of_commit(store.commit(claim, commit(1, 2)).await),
            outcome => of_commit(outcome),
        }
    })
};
const REVISION: Call = |store, claim| Box::pin(async move { of_commit(store.revision(claim).await) });
const RESET: Call = |store, claim| {
    Box::pin(async move { of_commit(store.reset(Reset { claim, to: Position::BEGINNING, time_to_live: LONG }).await) })
};
const CLAIM: Call = |store, _| Box::pin(async move { store.claim(request_by("a", LONG)).await.map(drop) });
const CLAIMS: Call = |store, _| Box::pin(async move { store.claims("shop".to_owned()).await.map(drop) });
const CONSUMERS: Call = |store, _| Box::pin(async move { store.consumers("shop".to_owned()).await.map(drop) });
const LETTERS: Call =
    |store, _| Box::pin(async move { store.dead_events(orders(), DeadFilter::default()).await.map(drop) });
const REQUESTS: Call = |store, _| Box::pin(async move { store.open_requests("shop".to_owned()).await.map(drop) });

#[tokio::test]
async fn a_number_out_of_its_range_is_refused_by_table_column_and_row() {
    let file = File::new().await;
    let cases: &[Case] = &[
        ("evento_checkpoint", "revision", "segment 1", &[-1, i64::MIN], &[LOAD, WRITE, REVISION, RESET]),
        ("evento_checkpoint", "generation", "segment 1", &[-1, i64::MIN], &[LOAD, WRITE, RESET]),
        ("evento_checkpoint", "generation", "shop/projector/orders", &[-1], &[CONSUMERS]),
        ("evento_checkpoint", "number", "shop/projector/orders", &[-1, 1 << 32], &[CONSUMERS, CLAIMS]),
        ("evento_checkpoint", "mask", "shop/projector/orders", &[-1, 1 << 32], &[CONSUMERS, CLAIMS]),
        ("evento_claim", "epoch", "segment 1", &[-1, i64::MIN], &[CLAIM]),
        ("evento_claim", "epoch", "shop/projector/orders", &[-1], &[CLAIMS]),
        ("evento_consumer", "version", "name orders", &[-1, i64::MAX], &[CLAIMS, CONSUMERS, REQUESTS]),
        ("evento_started", "crashes", "position 2", &[-1, i64::MAX], &[LOAD]),
        ("evento_retry", "attempts", "position 2", &[-1, i64::MAX], &[LOAD]),
        ("evento_retry", "spent", "position 2", &[-1, i64::MAX], &[LOAD]),
        ("evento_dead_event", "attempts", "position 1", &[-1, i64::MAX], &[LETTERS]),
        ("evento_dead_event", "sequence", "position 1", &[-1], &[LETTERS]),
        ("evento_request", "total", "request 1", &[-1], &[REQUESTS]),
        ("evento_request", "done", "request 1", &[-1], &[REQUESTS]),
        ("evento_request", "failed", "request 1", &[i64::MIN], &[REQUESTS]),
    ];
    for (table, column, row, values, calls) in cases {
        for value in *values {
            for text in file.refusals(table, column, *value, calls).await {
                let expected = format!("`{column}` of {table}, {row}");
                assert!(text.contains(&expected) && text.contains(&format!("is {value}, ")), "{expected}: {text}");
                assert!(text.contains("out of its range; restore it from a backup"), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn what_nothing_can_come_after_is_refused_and_does_not_begin_again() {
    let file = File::new().await;
    let cases: &[(&str, &str, &[Call])] = &[
        ("evento_checkpoint", "revision", &[WRITE, RESET]),
        ("evento_checkpoint", "generation", &[RESET]),
        ("evento_claim", "epoch", &[CLAIM]),
    ];
    for (table, column, calls) in cases {
        for text in file.refusals(table, column, i64::MAX, calls).await {
            let expected = format!("`{column}` of {table}, segment 1, is {}, the end of its range; restore", i64::MAX);
            assert!(text.contains(&expected), "{text}");
        }
    }
    // Back in its range, the claim and what is under it are as they were.
    let store = SqliteStore::at(file.folder.path().join("shop.db")).open().await.unwrap();
    store.commit(file.claim.clone(), commit(1, 3)).await.unwrap();
}

#[tokio::test]
async fn a_count_that_fits_is_read_whatever_its_size() {
    let file = File::new().await;
    for (table, column) in [("evento_started", "crashes"), ("evento_retry", "attempts"), ("evento_retry", "spent")] {
        file.sql().execute(&format!("UPDATE {table} SET {column} = {}", u32::MAX), []).unwrap();
    }
    file.sql().execute("UPDATE evento_request SET done = ?1", [i64::MAX]).unwrap();
    let store = SqliteStore::at(file.folder.path().join("shop.db")).open().await.unwrap();
    let state = store.load(file.claim.clone()).await.unwrap();
    assert_eq!(
        (state.started[0].crashes, state.retries[0].attempts, state.retries[0].spent),
        (u32::MAX, u32::MAX, u32::MAX)
    );
    // One more than fits stays at the end of the range.
    let mut request = store.open_requests("shop".to_owned()).await.unwrap().remove(0);
    request.done += 1;
    let progress = evento_core::store::RequestProgress {
        id: request.id,
        done: request.done,
        failed: u64::MAX,
        at: Position::new(1),
        finished: false,
    };
    store.commit(file.claim.clone(), Commit { requests: vec![progress], ..commit(1, 2) }).await.unwrap();
    let request = store.request(request.id).await.unwrap();
    assert_eq!((request.done, request.failed), (i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs()));
}

#[tokio::test]
async fn an_event_out_of_its_range_is_refused_and_an_aggregate_at_its_end_takes_no_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let sql = |sql: &str| Connection::open(&path).unwrap().execute(sql, []).unwrap();
    let store = SqliteStore::at(&path).open().await.unwrap();
    store.append(any(vec![event("1", "a", "placed")])).await.unwrap();
    sql("UPDATE evento_event SET sequence = -4");
    let read = read_after(Position::BEGINNING, &filter(&["placed"]));
    let aggregate = ReadAggregate {
        aggregate: order("a"),
        after: Position::BEGINNING,
        until: Position::new(9),
        filter: filter(&["placed"]),
        max_events: 9,
        max_bytes: 9,
        max_payload: 99,
    };
    let at = ReadAt { positions: positions(&[1]), max_bytes: 9, max_payload: 99 };
    for refused in [store.read(read.clone()).await.map(drop), store.read_at(at).await.map(drop)] {
        let text = refused.unwrap_err().to_string();
        assert!(text.contains("`sequence` of evento_event, position 1, is -4, which is out of its range"), "{text}");
    }
    sql(&format!("UPDATE evento_event SET sequence = {}", i64::MAX));
    assert_eq!(store.read_aggregate(aggregate).await.unwrap().events[0].sequence().0, i64::MAX.unsigned_abs());
    for expected in [Expected::Any, Expected::At(evento_core::Sequence(i64::MAX.unsigned_abs()))] {
        let append = evento_core::store::Append { expected, events: vec![event("2", "a", "placed")] };
        let text = store.append(append).await.unwrap_err().to_string();
        let expected = format!("`sequence` of evento_event, {}, is {}, the end of its range", order("a"), i64::MAX);
        assert!(text.contains(&expected), "{text}");
    }
    // What is known already is a repeat all the same, and other aggregates take what comes.
    assert_eq!(store.append(any(vec![event("1", "a", "placed")])).await.unwrap().appended, 0);
    store.append(any(vec![event("3", "b", "placed")])).await.unwrap();
    assert_eq!(page(&*store, read).await.events.len(), 2);
    sql("DELETE FROM evento_event");
    sql("INSERT INTO evento_event VALUES (-7, 0, 'default', 'placed', 'order', 'a', 1, 0, '4', '', x'')");
    let text = store.head().await.unwrap_err().to_string();
    assert!(text.contains("`position` of evento_event, row -7, is -7"), "{text}");
}
