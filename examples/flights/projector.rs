//! The projector: what each event changes in the read model.
//!
//! Its consumer is `flights/projector/FlightBoard/v1`. One projector keeps both tables, so that one transaction holds
//! all that an event changes.

use evento_core::{Context, event_handler, projector};

use crate::{
    event::{FlightArrived, FlightCancelled, FlightDeparted},
    read_model::{Change, ReadModel},
};

// The handlers are sequential: the events of an aircraft come in the order of its trail. None says `retry`, so a failure
// is tried again for ever. Raising the version begins a new read model: raise the one in the tables' names with it.
#[projector(version = 1)]
pub(crate) struct FlightBoard {
    pub(crate) read_model: ReadModel,
}

#[projector]
impl FlightBoard {
    #[event_handler]
    async fn on_cancelled(&self, event: &FlightCancelled, ctx: &Context) -> anyhow::Result<()> {
        let change = Change { cancelled: 1, ..Change::new(&event.aircraft, &event.leg, 1) };
        self.read_model.apply(ctx.position(), change).await
    }

    #[event_handler]
    async fn on_departed(&self, event: &FlightDeparted, ctx: &Context) -> anyhow::Result<()> {
        let last_seen = Some(event.leg.origin.clone());
        let change = Change { departures: 1, last_seen, ..Change::new(&event.aircraft, &event.leg, 2) };
        self.read_model.apply(ctx.position(), change).await
    }

    #[event_handler]
    async fn on_arrived(&self, event: &FlightArrived, ctx: &Context) -> anyhow::Result<()> {
        let change = Change {
            arrivals: 1,
            delay_min: event.delay_min.unwrap_or(0),
            air_min: event.air_min,
            miles: event.distance_mi,
            last_seen: Some(event.leg.dest.clone()),
            ..Change::new(&event.aircraft, &event.leg, 3)
        };
        self.read_model.apply(ctx.position(), change).await
    }
}
