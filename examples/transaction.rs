//! One database transaction per attempt, opened around the handler by an interceptor.
//!
//! What an attempt writes is kept if it returns `Ok`, and only then: one that fails, panics or is cut off leaves
//! nothing behind. The transaction also notes the event, so one that is delivered again changes nothing.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use evento_core::{BoxFuture, Context, Event, ExecutorName, event_handler, projector, store::Expected};
use evento_runtime::{Bundle, ConsumerExecutor, Delivery, Interceptor, Next, store::SqliteStore};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

const DATABASE: ExecutorName = ExecutorName::new("database");

#[derive(Event, Serialize, Deserialize)]
#[event(name = "order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(aggregate_id)]
    order_id: String,
    customer: String,
    total_cents: i64,
}

tokio::task_local! {
    /// The transaction of the attempt that runs.
    static TRANSACTION: Mutex<Connection>;
}

/// Runs statements in the attempt's own transaction.
fn in_transaction<T>(work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> anyhow::Result<T> {
    TRANSACTION.with(|connection| Ok(work(&connection.lock().unwrap_or_else(PoisonError::into_inner))?))
}

/// Opens a transaction around each attempt.
struct Transactions {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Transactions {
    fn at(path: &Path) -> anyhow::Result<Self> {
        let transactions = Self { path: path.to_owned(), idle: Mutex::default() };
        let connection = transactions.take()?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE IF NOT EXISTS handled (event TEXT PRIMARY KEY) STRICT;
             CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL) STRICT;
             CREATE TABLE IF NOT EXISTS spending (customer TEXT PRIMARY KEY, cents INTEGER NOT NULL) STRICT;",
        )?;
        transactions.put_back(connection);
        Ok(transactions)
    }

    fn take(&self) -> rusqlite::Result<Connection> {
        if let Some(idle) = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Ok(idle);
        }
        let connection = Connection::open(&self.path)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    }

    fn put_back(&self, connection: Connection) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
    }
}

impl Interceptor for Transactions {
    fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let connection = self.take()?;
            connection.execute_batch("BEGIN IMMEDIATE")?;
            let event = delivery.event().id();
            let is_new = connection.execute("INSERT OR IGNORE INTO handled VALUES (?1)", [event])? == 1;
            // An attempt that never returns drops the connection, which takes its transaction back.
            let (outcome, connection) = if is_new { within(connection, next).await } else { (Ok(()), connection) };
            connection.execute_batch(if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" })?;
            self.put_back(connection);
            outcome
        })
    }
}

/// Runs the rest of the attempt with the connection at its handler's hand.
async fn within(connection: Connection, next: Next<'_>) -> (anyhow::Result<()>, Connection) {
    let mut scope = Box::pin(TRANSACTION.scope(Mutex::new(connection), next.run()));
    let outcome = scope.as_mut().await;
    let connection = scope.as_mut().take_value().expect("the scope holds its value until it is dropped");
    (outcome, connection.into_inner().unwrap_or_else(PoisonError::into_inner))
}

#[projector(version = 1)]
struct Spending;

#[projector]
impl Spending {
    #[event_handler(executor = "database", retry = 3, retry_delay = "50ms")]
    async fn on_placed(&self, event: &OrderPlaced, ctx: &Context) -> anyhow::Result<()> {
        in_transaction(|database| {
            database.execute("INSERT INTO orders VALUES (?1, ?2)", [&event.order_id, &event.customer])
        })?;
        // Between two writes that belong together: the first is taken back.
        anyhow::ensure!(event.order_id != "o-2" || ctx.attempt() > 1, "the connection broke");
        in_transaction(|database| {
            database.execute(
                "INSERT INTO spending VALUES (?1, ?2) ON CONFLICT DO UPDATE SET cents = cents + ?2",
                (&event.customer, event.total_cents),
            )
        })?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let read_model = folder.path().join("spending.db");
    let running = Bundle::builder("shop")
        .store(SqliteStore::at(folder.path().join("shop.db")))
        // A transaction blocks its thread, so it has threads of its own.
        .executor(ConsumerExecutor::pooled(DATABASE, 2))
        .interceptor(Transactions::at(&read_model)?)
        .provide(Arc::new(Spending))
        .start()
        .await?;

    let placed =
        [("o-1", "ada", 1200), ("o-2", "bob", 700), ("o-3", "ada", 350)].map(|(order, customer, total_cents)| {
            OrderPlaced { order_id: order.into(), customer: customer.into(), total_cents }
        });
    let appended = running.log().append(Expected::Any, placed).await?;
    running.wait_for::<Spending>(appended).await?;
    writeln!(std::io::stdout(), "{}", running.shutdown().await?)?;

    let database = Connection::open(&read_model)?;
    let orders: i64 = database.query_row("SELECT count(*) FROM orders", [], |row| row.get(0))?;
    let mut spending = database.prepare("SELECT customer, cents FROM spending ORDER BY customer")?;
    let spending = spending.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    writeln!(std::io::stdout(), "{orders} orders, spent: {:?}", spending.collect::<Result<Vec<_>, _>>()?)?;
    Ok(())
}
