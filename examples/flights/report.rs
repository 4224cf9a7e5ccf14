//! What is printed: the read model, as JSON or as tables.

use std::{collections::BTreeMap, fmt, time::Duration};

use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};
use serde::{Serialize, Serializer};

/// The read model in figures, in the form of `data/expected-week1.json`.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) events: BTreeMap<&'static str, i64>,
    pub(crate) aircraft: i64,
    pub(crate) carriers: BTreeMap<String, Carrier>,
    /// The ten with most events, in that order.
    #[serde(serialize_with = "as_map")]
    pub(crate) busiest: Vec<(String, Aircraft)>,
    pub(crate) trail_sum: i64,
    /// The sum of the payloads' checksums.
    #[serde(skip)]
    pub(crate) checksum: i64,
}

#[derive(Serialize)]
pub(crate) struct Carrier {
    pub(crate) arrivals: i64,
    pub(crate) total_arrival_delay_min: i64,
    pub(crate) cancelled: i64,
}

#[derive(Serialize)]
pub(crate) struct Aircraft {
    pub(crate) events: i64,
    pub(crate) departures: i64,
    pub(crate) arrivals: i64,
    pub(crate) air_min: i64,
    pub(crate) miles: i64,
    pub(crate) last_seen: Option<String>,
    pub(crate) trail: i64,
}

fn as_map<S: Serializer>(pairs: &[(String, Aircraft)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(name, aircraft)| (name, aircraft)))
}

/// What this run did.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) appended: usize,
    pub(crate) projected: u64,
    pub(crate) took: Duration,
    /// How many events each kill of the process may have cost.
    pub(crate) at_risk: usize,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { appended, projected, took, at_risk } = *self;
        if at_risk > 0 {
            writeln!(f, "checkpoint on-start: each time the process was killed may have cost up to {at_risk} events")?;
        }
        write!(f, "{appended} events appended, {projected} projected in {:.1} s", took.as_secs_f64())?;
        // Both in micros: `u64` as `f64` would be a cast that may lose digits.
        let per_second = u128::from(projected) * 1_000_000 / took.as_micros().max(1);
        write!(f, ": {per_second} events per second")
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut carriers = table(&["carrier", "arrivals", "arrival delay (min)", "cancelled"]);
        for (name, carrier) in &self.carriers {
            let figures = [carrier.arrivals, carrier.total_arrival_delay_min, carrier.cancelled];
            carriers.add_row([name.clone()].into_iter().chain(figures.map(|figure| figure.to_string())));
        }
        let mut busiest = table(&["aircraft", "events", "hours in the air", "miles", "last seen"]);
        for (name, aircraft) in &self.busiest {
            let [events, hours, miles] =
                [aircraft.events, aircraft.air_min / 60, aircraft.miles].map(|n| n.to_string());
            busiest.add_row([name, &events, &hours, &miles, aircraft.last_seen.as_deref().unwrap_or("-")]);
        }
        let (events, aircraft) = (self.events.values().sum::<i64>(), self.aircraft);
        let Self { trail_sum, checksum, .. } = self;
        write!(
            f,
            "{carriers}\n\n{busiest}\n\n{events} events of {aircraft} aircraft, trails sum to {trail_sum}, checksums to {checksum}"
        )
    }
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
