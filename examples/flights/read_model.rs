//! The read model: tables of the application's own, in the file that holds the log, on connections of its own.

mod writer;

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use evento_core::Position;
use rusqlite::Connection;

use self::writer::Writer;
use crate::{
    event::Leg,
    report::{Aircraft, Carrier, Summary},
};

/// `position` is that of the last event an aircraft's row stands for; a flight has at most one row for its arrival and one
/// for its cancellation; a checksum has its event's position.
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
    CREATE TABLE IF NOT EXISTS flight_v1 (
        flight TEXT NOT NULL,
        scheduled TEXT NOT NULL,
        cancelled INTEGER NOT NULL,
        delay_min INTEGER NOT NULL,
        PRIMARY KEY (scheduled, flight, cancelled)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS checksum_v1 (
        position BLOB PRIMARY KEY,
        sum INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;";

/// What one event changes. Made twice it changes nothing more.
pub(crate) enum Change {
    Aircraft(AircraftChange),
    /// A flight that arrived, with its delay, or was cancelled.
    Flight {
        flight: String,
        scheduled: String,
        delay_min: Option<i64>,
    },
    Checksum {
        position: Position,
        sum: u32,
    },
}

/// A step in the life of an aircraft.
pub(crate) struct AircraftChange {
    pub(crate) position: Position,
    pub(crate) aircraft: String,
    /// What the trail goes on with.
    pub(crate) step: i64,
    pub(crate) departures: i64,
    pub(crate) arrivals: i64,
    pub(crate) air_min: i64,
    pub(crate) miles: i64,
    pub(crate) last_seen: Option<String>,
}

impl AircraftChange {
    /// A step on the aircraft's trail, and nothing else yet.
    pub(crate) fn new(position: Position, aircraft: &str, leg: &Leg, kind: i64) -> Self {
        Self {
            position,
            aircraft: aircraft.to_owned(),
            step: kind + leg.flight.bytes().map(i64::from).sum::<i64>(),
            departures: 0,
            arrivals: 0,
            air_min: 0,
            miles: 0,
            last_seen: None,
        }
    }
}

#[derive(Clone)]
pub(crate) struct ReadModel {
    writer: Writer,
    reads: Arc<Mutex<Connection>>,
}

impl ReadModel {
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || {
            let connection = connect(path)?;
            connection.execute_batch(TABLES)?;
            Ok::<_, rusqlite::Error>((connection, connect(path)?))
        };
        let (writes, reads) = open().with_context(|| {
            format!("`{}` cannot be opened; name a SQLite file, or one that can be made, with `--db`", path.display())
        })?;
        Ok(Self { writer: Writer::start(writes)?, reads: Arc::new(Mutex::new(reads)) })
    }

    /// Makes the change durable, unless it has been made before.
    pub(crate) async fn write(&self, change: Change) -> anyhow::Result<()> {
        self.writer.write(change).await
    }

    /// Everything, as of one moment.
    pub(crate) fn summary(&self) -> anyhow::Result<Summary> {
        let mut connection = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = connection.transaction()?;
        let (aircraft, events, departed, arrived, trail_sum): (i64, i64, i64, i64, i64) = snapshot.query_row(
            "SELECT count(*), ifnull(sum(events), 0), ifnull(sum(departures), 0), ifnull(sum(arrivals), 0),
                 ifnull(sum(trail), 0)
             FROM aircraft_v1",
            [],
            |row| row.try_into(),
        )?;
        // A flight's code begins with its carrier.
        let carriers = snapshot
            .prepare(
                "SELECT substr(flight, 1, 2), sum(1 - cancelled), sum(delay_min), sum(cancelled) FROM flight_v1
                 GROUP BY 1",
            )?
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
        let checksum = snapshot.query_row("SELECT ifnull(sum(sum), 0) FROM checksum_v1", [], |row| row.get(0))?;
        Ok(Summary { events: events.into(), aircraft, carriers, busiest, trail_sum, checksum })
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    // The store writes the same file, and so may another process.
    connection.busy_timeout(Duration::from_secs(30))?;
    // The store keeps the file in write-ahead mode. There this loses nothing when the process dies, and after a power
    // failure at most the end of log, checkpoints and read model alike.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}
