//! The read model: two tables of the application's own, in the file that holds the log, on a connection of its own.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use evento_core::Position;
use rusqlite::{Connection, TransactionBehavior::Immediate, named_params};

use crate::{
    event::Leg,
    report::{Aircraft, Carrier, Summary},
};

/// `position` is that of the last event an aircraft's row stands for.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS aircraft_v1 (
        aircraft TEXT PRIMARY KEY,
        position BLOB NOT NULL,
        events INTEGER NOT NULL,
        departures INTEGER NOT NULL,
        arrivals INTEGER NOT NULL,
        air_min INTEGER NOT NULL,
        miles INTEGER NOT NULL,
        last_seen TEXT,
        trail INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS carrier_v1 (
        carrier TEXT PRIMARY KEY,
        arrivals INTEGER NOT NULL,
        delay_min INTEGER NOT NULL,
        cancelled INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;";

/// The last line makes a redelivery change nothing: an aircraft's events come in order, also where some had to wait
/// behind a dead one, so what is not later than the row is in it already. A carrier's do not, which is why the carrier
/// has no position: its row changes only where the aircraft's did.
const AIRCRAFT: &str = "
    INSERT INTO aircraft_v1
    VALUES (:aircraft, :position, 1, :departures, :arrivals, :air_min, :miles, :last_seen, :step)
    ON CONFLICT DO UPDATE SET
        position = excluded.position,
        events = events + 1,
        departures = departures + excluded.departures,
        arrivals = arrivals + excluded.arrivals,
        air_min = air_min + excluded.air_min,
        miles = miles + excluded.miles,
        last_seen = coalesce(excluded.last_seen, last_seen),
        trail = (trail * 31 + excluded.trail) % 1000000007
    WHERE excluded.position > position";

const CARRIER: &str = "
    INSERT INTO carrier_v1 VALUES (:carrier, :arrivals, :delay_min, :cancelled)
    ON CONFLICT DO UPDATE SET
        arrivals = arrivals + excluded.arrivals,
        delay_min = delay_min + excluded.delay_min,
        cancelled = cancelled + excluded.cancelled";

/// What one event changes.
pub(crate) struct Change {
    pub(crate) aircraft: String,
    pub(crate) carrier: String,
    /// What the trail goes on with.
    pub(crate) step: i64,
    pub(crate) departures: i64,
    pub(crate) arrivals: i64,
    pub(crate) cancelled: i64,
    pub(crate) delay_min: i64,
    pub(crate) air_min: i64,
    pub(crate) miles: i64,
    pub(crate) last_seen: Option<String>,
}

impl Change {
    /// A step on the aircraft's trail, and nothing else yet.
    pub(crate) fn new(aircraft: &str, leg: &Leg, kind: i64) -> Self {
        Self {
            aircraft: aircraft.to_owned(),
            carrier: leg.carrier(),
            step: kind + leg.flight.bytes().map(i64::from).sum::<i64>(),
            departures: 0,
            arrivals: 0,
            cancelled: 0,
            delay_min: 0,
            air_min: 0,
            miles: 0,
            last_seen: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct ReadModel {
    connection: Arc<Mutex<Connection>>,
}

impl ReadModel {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || {
            let connection = Connection::open(path)?;
            // The store writes the same file, and so may another process.
            connection.busy_timeout(Duration::from_secs(30))?;
            // The store keeps the file in write-ahead mode. There this loses nothing when the process dies, and after a
            // power failure at most the end of log, checkpoints and read model alike.
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.execute_batch(TABLES)?;
            Ok::<_, rusqlite::Error>(connection)
        };
        let connection = open().with_context(|| {
            format!("`{}` cannot be opened; name a SQLite file, or one that can be made, with `--db`", path.display())
        })?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    /// Makes the change and notes the position it stands for, in one transaction, unless it has been made before.
    pub(crate) async fn apply(&self, position: Position, change: Change) -> anyhow::Result<()> {
        let this = self.clone();
        // SQLite blocks, and waits for other writers: not on a thread that drives futures.
        tokio::task::spawn_blocking(move || this.apply_blocking(position, &change)).await?
    }

    fn apply_blocking(&self, position: Position, change: &Change) -> anyhow::Result<()> {
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(Immediate)?;
        let changed = transaction.prepare_cached(AIRCRAFT)?.execute(named_params! {
            ":aircraft": change.aircraft,
            ":position": position.to_bytes(),
            ":departures": change.departures,
            ":arrivals": change.arrivals,
            ":air_min": change.air_min,
            ":miles": change.miles,
            ":last_seen": change.last_seen,
            ":step": change.step,
        })?;
        if changed > 0 && change.arrivals + change.cancelled > 0 {
            transaction.prepare_cached(CARRIER)?.execute(named_params! {
                ":carrier": change.carrier,
                ":arrivals": change.arrivals,
                ":delay_min": change.delay_min,
                ":cancelled": change.cancelled,
            })?;
        }
        Ok(transaction.commit()?)
    }

    /// Everything, as of one moment.
    pub(crate) fn summary(&self) -> anyhow::Result<Summary> {
        let mut connection = self.lock();
        let snapshot = connection.transaction()?;
        let (aircraft, events, departed, arrived, trail_sum): (i64, i64, i64, i64, i64) = snapshot.query_row(
            "SELECT count(*), ifnull(sum(events), 0), ifnull(sum(departures), 0), ifnull(sum(arrivals), 0),
                 ifnull(sum(trail), 0)
             FROM aircraft_v1",
            [],
            |row| row.try_into(),
        )?;
        let carriers = snapshot
            .prepare("SELECT carrier, arrivals, delay_min, cancelled FROM carrier_v1")?
            .query_map([], |row| {
                let carrier =
                    Carrier { arrivals: row.get(1)?, total_arrival_delay_min: row.get(2)?, cancelled: row.get(3)? };
                Ok((row.get(0)?, carrier))
            })?
            .collect::<Result<_, _>>()?;
        let busiest = snapshot
            .prepare(
                "SELECT aircraft, events, departures, arrivals, air_min, miles, last_seen, trail FROM aircraft_v1
                 ORDER BY events DESC, aircraft LIMIT 10",
            )?
            .query_map([], |row| {
                let aircraft = Aircraft {
                    events: row.get(1)?,
                    departures: row.get(2)?,
                    arrivals: row.get(3)?,
                    air_min: row.get(4)?,
                    miles: row.get(5)?,
                    last_seen: row.get(6)?,
                    trail: row.get(7)?,
                };
                Ok((row.get(0)?, aircraft))
            })?
            .collect::<Result<_, _>>()?;
        let events = [
            ("flight.arrived", arrived),
            ("flight.cancelled", events - departed - arrived),
            ("flight.departed", departed),
        ];
        Ok(Summary { events: events.into(), aircraft, carriers, busiest, trail_sum })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // What a panic left half done was rolled back.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
