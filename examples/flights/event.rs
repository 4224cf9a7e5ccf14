//! The events: what happens to a flight. Each belongs to the aircraft, whose events keep their order.

use evento_core::Event;
use serde::{Deserialize, Serialize};

/// The flight an event is about, which all three have in common.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Leg {
    /// Carrier and number: `UA1545`.
    pub(crate) flight: String,
    /// When it was to leave, in local time.
    pub(crate) scheduled: String,
    pub(crate) origin: String,
    pub(crate) dest: String,
}

#[derive(Debug, Deserialize, Event, Serialize)]
#[event(name = "flight.departed", aggregate = "aircraft")]
pub(crate) struct FlightDeparted {
    #[event(aggregate_id)]
    pub(crate) aircraft: String,
    at: String,
    #[serde(flatten)]
    pub(crate) leg: Leg,
    delay_min: Option<i64>,
}

#[derive(Debug, Deserialize, Event, Serialize)]
#[event(name = "flight.arrived", aggregate = "aircraft")]
pub(crate) struct FlightArrived {
    #[event(aggregate_id)]
    pub(crate) aircraft: String,
    at: String,
    #[serde(flatten)]
    pub(crate) leg: Leg,
    pub(crate) delay_min: Option<i64>,
    pub(crate) air_min: i64,
    pub(crate) distance_mi: i64,
}

#[derive(Debug, Deserialize, Event, Serialize)]
#[event(name = "flight.cancelled", aggregate = "aircraft")]
pub(crate) struct FlightCancelled {
    #[event(aggregate_id)]
    pub(crate) aircraft: String,
    at: String,
    #[serde(flatten)]
    pub(crate) leg: Leg,
}

/// What an event's id is made of: the same flight departs once.
pub(crate) trait OfFlight: Event {
    fn leg(&self) -> &Leg;
}

impl OfFlight for FlightDeparted {
    fn leg(&self) -> &Leg {
        &self.leg
    }
}

impl OfFlight for FlightArrived {
    fn leg(&self) -> &Leg {
        &self.leg
    }
}

impl OfFlight for FlightCancelled {
    fn leg(&self) -> &Leg {
        &self.leg
    }
}
