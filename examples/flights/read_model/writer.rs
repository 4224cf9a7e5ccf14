//! The one who writes. SQLite takes one writer at a time, and a transaction costs more than what it holds: so what comes
//! from many handlers at once goes into one, and each hears when it is durable.

use std::thread;

use rusqlite::{Connection, TransactionBehavior::Immediate, named_params, params};
use tokio::sync::{mpsc, oneshot};

use super::{AircraftChange, Change};

/// The last line makes a redelivery change nothing: an aircraft's events come in order, also where some had to wait behind
/// a dead one, so what is not later than the row is in it already.
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

const FLIGHT: &str =
    "INSERT OR REPLACE INTO flight_v1 (flight, scheduled, cancelled, delay_min) VALUES (?1, ?2, ?3, ?4)";

const CHECKSUM: &str = "INSERT OR REPLACE INTO checksum_v1 (position, sum) VALUES (?1, ?2)";

/// How many changes one transaction holds at the most.
const MOST: usize = 256;

type Asked = (Change, oneshot::Sender<Result<(), String>>);

#[derive(Clone)]
pub(super) struct Writer {
    changes: mpsc::Sender<Asked>,
}

impl Writer {
    /// Writes on a thread of its own until nobody can ask any more.
    pub(super) fn start(connection: Connection) -> std::io::Result<Self> {
        let (changes, received) = mpsc::channel(MOST);
        thread::Builder::new().name("read-model".to_owned()).spawn(move || run(connection, received))?;
        Ok(Self { changes })
    }

    pub(super) async fn write(&self, change: Change) -> anyhow::Result<()> {
        let (answer, answered) = oneshot::channel();
        let ended = || anyhow::anyhow!("the read model's writer has ended");
        self.changes.send((change, answer)).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?.map_err(anyhow::Error::msg)
    }
}

fn run(mut connection: Connection, mut received: mpsc::Receiver<Asked>) {
    let mut asked = Vec::with_capacity(MOST);
    while received.blocking_recv_many(&mut asked, MOST) > 0 {
        let made = make(&mut connection, &asked).map_err(|error| error.to_string());
        for (_, answer) in asked.drain(..) {
            // Who has given up does not hear of it, and is handed the event again.
            drop(answer.send(made.clone()));
        }
    }
}

fn make(connection: &mut Connection, asked: &[Asked]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(Immediate)?;
    for (change, _) in asked {
        match change {
            Change::Aircraft(AircraftChange {
                position,
                aircraft,
                step,
                departures,
                arrivals,
                air_min,
                miles,
                last_seen,
            }) => transaction.prepare_cached(AIRCRAFT)?.execute(named_params! {
                ":aircraft": aircraft,
                ":position": position.to_bytes(),
                ":departures": departures,
                ":arrivals": arrivals,
                ":air_min": air_min,
                ":miles": miles,
                ":last_seen": last_seen,
                ":step": step,
            })?,
            Change::Flight { flight, scheduled, delay_min } => {
                let (cancelled, delay_min) = (delay_min.is_none(), delay_min.unwrap_or(0));
                transaction.prepare_cached(FLIGHT)?.execute(params![flight, scheduled, cancelled, delay_min])?
            }
            Change::Checksum { position, sum } => {
                transaction.prepare_cached(CHECKSUM)?.execute(params![position.to_bytes(), sum])?
            }
        };
    }
    transaction.commit()
}
