use std::sync::mpsc;

use super::*;

struct File {
    threads: Threads,
    _folder: tempfile::TempDir,
}

impl File {
    async fn open() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::at(folder.path().join("shop.db"));
        let file = Self { threads: Threads::start(&store).await.expect("opens"), _folder: folder };
        file.write(|conn| conn.execute_batch("CREATE TABLE note (number INTEGER)")).await.expect("creates");
        file
    }

    fn write(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<()> + Send + 'static,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.threads.write(Lane::Other, move |conn| Ok(work(conn)?))
    }

    fn note(&self, number: u32, panics: bool) -> BoxFuture<'_, Result<(), StoreError>> {
        self.write(move |conn| {
            conn.prepare_cached("INSERT INTO note VALUES (?1)")?.execute([number])?;
            assert!(!panics, "note {number}");
            Ok(())
        })
    }

    async fn notes(&self) -> Vec<u32> {
        let notes = self.threads.read::<_, StoreError>(|conn| {
            let mut select = conn.prepare_cached("SELECT number FROM note ORDER BY number")?;
            Ok(select.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        });
        notes.await.expect("reads")
    }
}

fn text(outcome: Result<(), StoreError>) -> String {
    let error = outcome.expect_err("it panics");
    std::error::Error::source(&error).expect("says why").to_string()
}

#[tokio::test]
async fn a_job_that_panics_is_undone_and_told_of_and_the_next_ones_go_on() {
    let file = File::open().await;
    assert_eq!(text(file.note(1, true).await), "the store's job panicked: note 1");
    file.note(2, false).await.expect("goes on");
    assert_eq!(file.notes().await, [2]);
    let read = file.threads.read::<(), StoreError>(|_| std::panic::panic_any(7)).await;
    assert_eq!(text(read), "the store's job panicked: with no message");
    // More than there are readers.
    for _ in 0..3 {
        assert_eq!(file.notes().await, [2]);
    }
    file.threads.close().await;
}

#[tokio::test]
async fn a_job_that_panics_takes_none_of_its_transaction_with_it() {
    let file = File::open().await;
    let (go_on, wait) = mpsc::channel::<()>();
    // Holds the writer until the others are queued, to share its transaction or the next.
    let first = file.write(move |_| {
        wait.recv().expect("is let go");
        Ok(())
    });
    let release = async move {
        tokio::task::yield_now().await;
        go_on.send(()).expect("waits");
    };
    let rest = async { tokio::join!(file.note(1, false), file.note(2, true), file.note(3, false), release) };
    let (first, (one, two, three, ())) = tokio::join!(first, rest);
    assert!(first.is_ok() && one.is_ok() && three.is_ok());
    assert_eq!(text(two), "the store's job panicked: note 2");
    assert_eq!(file.notes().await, [1, 3]);
}

#[tokio::test]
async fn a_wake_that_panics_does_not_end_the_writer() {
    let file = File::open().await;
    file.threads.on_append(Arc::new(|| std::panic::panic_any("a wake")));
    for _ in 0..2 {
        file.threads.write::<(), StoreError>(Lane::Append, |_| Ok(())).await.expect("the writer lives");
    }
    file.threads.close().await;
}
