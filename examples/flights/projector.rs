//! The projectors: what each event changes in the read model. Each has the executor that its work asks for.
//!
//! None fails for good: the read model is tried again until it can be written.

use evento_core::{Context, ExecutorName, FaultExt as _, event_handler, projector};

use crate::{
    checksum::checksum,
    event::{FlightArrived, FlightCancelled, FlightDeparted, Leg},
    read_model::{AircraftChange, Change, ReadModel},
};

/// Waits for the read model, in any order: what it writes is the same however often it is written.
pub(crate) const TOTALS: ExecutorName = ExecutorName::new("totals");
/// Waits for the read model, each aircraft's events in their order.
pub(crate) const AIRCRAFT: ExecutorName = ExecutorName::new("aircraft");
/// Computes, on threads of its own.
pub(crate) const CHECKSUMS: ExecutorName = ExecutorName::new("checksums");

/// What became of each flight, for the carriers' totals. Its consumer is `flights/projector/CarrierTotals/v1`; raising a
/// version begins a new read model: raise the one in the table's name with it.
#[projector(version = 1)]
pub(crate) struct CarrierTotals {
    pub(crate) read_model: ReadModel,
}

#[projector]
impl CarrierTotals {
    #[event_handler(executor = TOTALS, retry = 10)]
    async fn on_cancelled(&self, event: &FlightCancelled) -> anyhow::Result<()> {
        self.ended(&event.leg, None).await
    }

    #[event_handler(executor = TOTALS, retry = 10)]
    async fn on_arrived(&self, event: &FlightArrived) -> anyhow::Result<()> {
        self.ended(&event.leg, Some(event.delay_min.unwrap_or(0))).await
    }
}

impl CarrierTotals {
    async fn ended(&self, leg: &Leg, delay_min: Option<i64>) -> anyhow::Result<()> {
        let (flight, scheduled) = (leg.flight.clone(), leg.scheduled.clone());
        self.read_model.write(Change::Flight { flight, scheduled, delay_min }).await.transient()
    }
}

/// The life of each aircraft, whose trail depends on the order of its events.
#[projector(version = 1)]
pub(crate) struct AircraftLives {
    pub(crate) read_model: ReadModel,
}

#[projector]
impl AircraftLives {
    #[event_handler(executor = AIRCRAFT, retry = 10)]
    async fn on_cancelled(&self, event: &FlightCancelled, ctx: &Context) -> anyhow::Result<()> {
        self.goes_on(AircraftChange::new(ctx.position(), &event.aircraft, &event.leg, 1)).await
    }

    #[event_handler(executor = AIRCRAFT, retry = 10)]
    async fn on_departed(&self, event: &FlightDeparted, ctx: &Context) -> anyhow::Result<()> {
        let change = AircraftChange::new(ctx.position(), &event.aircraft, &event.leg, 2);
        let last_seen = Some(event.leg.origin.clone());
        self.goes_on(AircraftChange { departures: 1, last_seen, ..change }).await
    }

    #[event_handler(executor = AIRCRAFT, retry = 10)]
    async fn on_arrived(&self, event: &FlightArrived, ctx: &Context) -> anyhow::Result<()> {
        let change = AircraftChange::new(ctx.position(), &event.aircraft, &event.leg, 3);
        let last_seen = Some(event.leg.dest.clone());
        let (air_min, miles) = (event.air_min, event.distance_mi);
        self.goes_on(AircraftChange { arrivals: 1, air_min, miles, last_seen, ..change }).await
    }
}

impl AircraftLives {
    async fn goes_on(&self, change: AircraftChange) -> anyhow::Result<()> {
        self.read_model.write(Change::Aircraft(change)).await.transient()
    }
}

/// A checksum of every payload, as a copy of the log could be compared by.
#[projector(version = 1)]
pub(crate) struct Checksums {
    pub(crate) read_model: ReadModel,
}

#[projector]
impl Checksums {
    #[event_handler(executor = CHECKSUMS, retry = 10)]
    async fn on_cancelled(&self, _: &FlightCancelled, ctx: &Context) -> anyhow::Result<()> {
        self.sum(ctx).await
    }

    #[event_handler(executor = CHECKSUMS, retry = 10)]
    async fn on_departed(&self, _: &FlightDeparted, ctx: &Context) -> anyhow::Result<()> {
        self.sum(ctx).await
    }

    #[event_handler(executor = CHECKSUMS, retry = 10)]
    async fn on_arrived(&self, _: &FlightArrived, ctx: &Context) -> anyhow::Result<()> {
        self.sum(ctx).await
    }
}

impl Checksums {
    async fn sum(&self, ctx: &Context) -> anyhow::Result<()> {
        let (position, sum) = (ctx.position(), checksum(ctx.event().payload()));
        self.read_model.write(Change::Checksum { position, sum }).await.transient()
    }
}
