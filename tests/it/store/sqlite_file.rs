//! What is SQLite's own: the file, its processes, its threads.

use std::{path::Path, process::Command, sync::Arc, time::Duration};

use evento_core::{
    NewEvent, Position,
    store::{AppendError, OpenStore, Store, StoreError},
};
use evento_runtime::store::SqliteStore;
use evento_tests::conformance::{any, event, fill, filter, ids, order, orders, page, read_after, registration, take};
use rusqlite::Connection;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

async fn open(path: &Path) -> Arc<dyn Store> {
    SqliteStore::at(path).open().await.expect("opens")
}

async fn refusal(path: &Path) -> String {
    match SqliteStore::at(path).open().await {
        Err(StoreError::Refused(why)) => why,
        other => unreachable!("was to be refused, but: {other:?}"),
    }
}

async fn stored(store: &dyn Store) -> Vec<String> {
    let page = page(store, read_after(Position::BEGINNING, &filter(&["placed"]))).await;
    ids(&page.events).into_iter().map(str::to_owned).collect()
}

/// Begins a future's work without waiting for it; answers what it ended with, if it has already.
async fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut *future).poll(cx) {
        std::task::Poll::Ready(output) => std::task::Poll::Ready(Some(output)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

/// Holds the file's write lock until it is dropped.
fn lock(path: &Path) -> Connection {
    let other = Connection::open(path).expect("opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("locks");
    other
}

#[tokio::test]
async fn the_file_is_made_by_opening_and_not_before() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::at(&path);
    assert!(store.problems().is_empty());
    assert_eq!(store.describe(), format!("sqlite at {}", path.display()));
    assert!(!path.exists());
    store.open().await.expect("opens").close().await;
    assert!(path.exists());
}

#[tokio::test]
async fn a_description_that_cannot_be_opened_says_so_untouched() {
    let long = SqliteStore::at("shop.db").busy_timeout(Duration::from_secs(3_600));
    for (store, word) in [
        (SqliteStore::at(""), "empty"),
        (SqliteStore::at(":memory:"), "MemoryStore"),
        (SqliteStore::at("file:shop.db?mode=ro"), "URI"),
        (long, "60s"),
    ] {
        let problems = store.problems();
        assert!(problems.len() == 1 && problems[0].contains(word), "{problems:?}");
        assert!(matches!(store.open().await, Err(StoreError::Refused(why)) if why == problems[0]));
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    let text = "no database, but long enough to be looked at as one. ".repeat(40);
    std::fs::write(&path, &text).expect("writes");
    assert!(refusal(&path).await.contains("is not a sqlite database"));
    assert_eq!(std::fs::read_to_string(&path).expect("reads"), text);
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let folder = folder();
    assert!(refusal(&folder.path().join("missing/shop.db")).await.contains("its folder must exist"));
}

#[tokio::test]
async fn a_newer_schema_is_refused_with_the_cure() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    open(&path).await.close().await;
    Connection::open(&path).expect("opens").execute("UPDATE evento_schema SET version = 99", []).expect("updates");
    let why = refusal(&path).await;
    assert!(why.contains("schema 99") && why.contains("upgrade evento-runtime"), "{why}");
}

#[tokio::test]
async fn a_foreign_schema_is_refused_and_the_applications_own_tables_are_not() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let other = Connection::open(&path).expect("opens");
    other.execute_batch("CREATE TABLE order_view (id TEXT); CREATE TABLE evento_event (id TEXT);").expect("creates");
    let why = refusal(&path).await;
    assert!(why.contains("`evento_event`"), "{why}");
    other.execute_batch("DROP TABLE evento_event; INSERT INTO order_view VALUES ('1');").expect("drops");
    let store = open(&path).await;
    assert_eq!(fill(&*store, "a", 3, 1).await.appended, 3);
    let kept: i64 = other.query_one("SELECT count(*) FROM order_view", [], |row| row.get(0)).expect("counts");
    assert_eq!(kept, 1);
    other.execute_batch("DROP TABLE evento_schema; CREATE TABLE evento_schema (x TEXT);").expect("replaces");
    store.close().await;
    assert!(refusal(&path).await.contains("says nothing this version understands"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_create_one_file_at_once() {
    for _ in 0..5 {
        let folder = folder();
        let path = folder.path().join("shop.db");
        let opening = (0..4).map(|n| {
            let path = path.clone();
            async move {
                let store = open(&path).await;
                fill(&*store, &format!("{n}-"), 5, 1).await;
                store.close().await;
            }
        });
        let mut tasks: tokio::task::JoinSet<()> = opening.collect();
        while let Some(opened) = tasks.join_next().await {
            opened.expect("each of them opens");
        }
        assert_eq!(stored(&*open(&path).await).await.len(), 20);
    }
}

const CHILD_FILE: &str = "EVENTO_TEST_CHILD_FILE";

/// The other process of the test below; by itself it does nothing.
#[tokio::test]
async fn child_that_appends() {
    let Some(path) = std::env::var_os(CHILD_FILE) else { return };
    let store = open(Path::new(&path)).await;
    for n in 0..100 {
        store.append(any(vec![event(&format!("child-{n:03}"), "1", "placed")])).await.expect("appends");
    }
    store.close().await;
}

#[tokio::test]
async fn two_processes_write_one_log() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = open(&path).await;
    let mut child = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "store::sqlite_file::child_that_appends"])
        .env(CHILD_FILE, &path)
        .spawn()
        .expect("spawns");
    let mut own = 0;
    while child.try_wait().expect("waits").is_none() {
        store.append(any(vec![event(&format!("own-{own}"), "1", "placed")])).await.expect("appends");
        own += 1;
    }
    assert!(child.wait().expect("waited").success());
    let all = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await.events;
    assert!(all.iter().map(|event| event.sequence().0).eq(1..=own + 100), "one aggregate, numbered by both");
    let of_child = all.iter().filter(|event| event.id().starts_with("child-"));
    assert_eq!(of_child.count(), 100);
}

#[tokio::test]
async fn who_waits_too_long_for_another_process_finds_the_store_unavailable() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::at(&path).busy_timeout(Duration::from_millis(30)).open().await.expect("opens");
    fill(&*store, "a", 1, 1).await;
    let other = lock(&path);
    let refused = store.append(any(vec![event("b", "1", "placed")])).await.expect_err("is locked out");
    assert!(matches!(refused, AppendError::Store(StoreError::Unavailable { .. })), "{refused:?}");
    assert_eq!(stored(&*store).await, ["a1"], "readers go on");
    drop(other);
    fill(&*store, "b", 1, 1).await;
    assert_eq!(stored(&*store).await, ["a1", "b1"]);
}

#[tokio::test]
async fn a_file_whose_tables_went_away_is_corrupt() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = open(&path).await;
    Connection::open(&path).expect("opens").execute_batch("DROP TABLE evento_event").expect("drops");
    let broken = store.head().await.expect_err("has no table");
    assert!(matches!(broken, StoreError::Corrupt { .. }), "{broken:?}");
    let broken = store.append(any(vec![event("b", "1", "placed")])).await.expect_err("has no table");
    assert!(matches!(broken, AppendError::Store(StoreError::Corrupt { .. })), "{broken:?}");
}

#[tokio::test]
async fn commands_that_share_a_transaction_fail_alone() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = open(&path).await;
    fill(&*store, "known", 1, 1).await;
    let other = lock(&path);
    // The writer waits for the lock with the first; the rest queue up behind it and share a transaction.
    let mut appends = Vec::new();
    for events in [
        vec![event("1", "a", "placed")],
        vec![event("2", "a", "placed"), event("known1", "0", "placed")],
        vec![event("3", "a", "placed"), NewEvent { payload: vec![1], ..event("1", "a", "placed") }],
        vec![event("4", "a", "placed")],
    ] {
        let mut append = store.append(any(events));
        assert!(poll_once(&mut append).await.is_none());
        appends.push(append);
    }
    drop(other);
    let mut outcomes = Vec::new();
    for append in appends {
        outcomes.push(append.await);
    }
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok(), "{outcomes:?}");
    assert!(matches!(&outcomes[1], Err(AppendError::PartlyKnown { known }) if known == &[1]), "{outcomes:?}");
    assert!(matches!(&outcomes[2], Err(AppendError::Altered { id }) if id == "1"), "{outcomes:?}");
    assert_eq!(stored(&*store).await, ["known1", "1", "4"]);
    let events = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await.events;
    let of_order = events.iter().filter(|event| event.aggregate() == order("a").as_ref());
    assert!(of_order.map(|event| event.sequence().0).eq([1, 2]));
}

#[tokio::test]
async fn b49_a_renewal_does_not_wait_behind_queued_appends() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = open(&path).await;
    store.register(vec![registration(&["placed"])]).await.expect("registers");
    let claim = take(&*store, "a").await;
    let other = lock(&path);
    let mut appends = Vec::new();
    for n in 0..300 {
        let events = (0..100).map(|part| event(&format!("{n}-{part}"), "a", "placed")).collect();
        let mut append = store.append(any(events));
        assert!(poll_once(&mut append).await.is_none());
        appends.push(append);
    }
    let mut renewal = store.renew(vec![claim], Duration::from_secs(10));
    assert!(poll_once(&mut renewal).await.is_none());
    drop(other);
    assert!(renewal.await.expect("answers").is_empty());
    let done = store.head().await.expect("answers").bound.minor();
    assert!(done < 15_000, "{done} of 30,000 events went first");
}

#[tokio::test]
async fn closing_does_what_is_queued_and_dropping_a_future_breaks_nothing() {
    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = open(&path).await;
    let mut waiting = Vec::new();
    for n in 0..50 {
        let mut append = store.append(any(vec![event(&format!("{n:02}"), "a", "placed")]));
        // The writer may be done with it before we look.
        match poll_once(&mut append).await {
            Some(appended) => drop(appended.expect("is appended")),
            None if n % 2 == 0 => waiting.push(append),
            None => {}
        }
    }
    store.close().await;
    for append in waiting {
        append.await.expect("was queued before");
    }
    let store = open(&path).await;
    let found = stored(&*store).await;
    assert!((0..50).step_by(2).all(|n| found.contains(&format!("{n:02}"))), "{found:?}");
    // The log goes on without a hole in the aggregate, whichever of the dropped ones were made.
    let events = page(&*store, read_after(Position::BEGINNING, &filter(&["placed"]))).await.events;
    assert!(events.iter().map(|event| event.sequence().0).eq(1..=events.len() as u64));
    let integrity: String = Connection::open(&path)
        .expect("opens")
        .query_one("PRAGMA integrity_check", [], |row| row.get(0))
        .expect("checks");
    assert_eq!(integrity, "ok");
}

#[tokio::test]
async fn what_a_reset_takes_away_is_kept_in_the_archive() {
    use evento_core::store::{Commit, Reset};
    use evento_tests::conformance::{checkpoint::retry, commit, dead_event::letter};

    let folder = folder();
    let path = folder.path().join("shop.db");
    let store = open(&path).await;
    store.register(vec![registration(&["placed"])]).await.expect("registers");
    let claim = take(&*store, "a").await;
    let write = Commit { dead: vec![letter(5, "a")], retries: vec![retry(6, "a")], ..commit(0, 9) };
    store.commit(claim.clone(), write).await.expect("commits");
    let reset = Reset { claim, to: Position::new(4), time_to_live: Duration::from_secs(10) };
    store.reset(reset).await.expect("resets");
    assert_eq!(store.dead_depth(orders()).await.expect("counts"), 0);
    let other = Connection::open(&path).expect("opens");
    let mut select = other
        .prepare("SELECT kind, position, generation, content ->> 'attempts', content ->> '$.cause[0]' FROM evento_archive ORDER BY id")
        .expect("prepares");
    type Row = (String, [u8; 16], i64, i64, Option<String>);
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)));
    let rows: Vec<Row> = rows.expect("selects").collect::<Result<_, _>>().expect("reads");
    let cause = Some("cannot write the row".to_owned());
    let expected = [
        ("dead event".to_owned(), Position::new(5).to_bytes(), 0, 1, cause),
        ("retry".to_owned(), Position::new(6).to_bytes(), 0, 3, None),
    ];
    assert_eq!(rows, expected);
}
