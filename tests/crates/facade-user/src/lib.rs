//! Event, component and plan through a facade: `evento-core` is no dependency of this crate.

use facade::evento_core::{self, Context, Event, ExecutorName, event_handler, projector};
use serde::{Deserialize, Serialize};

/// A parcel left the house.
#[derive(Debug, Event, Serialize, Deserialize)]
#[event(name = "parcel.sent", aggregate = "parcel", crate = "facade::evento_core")]
pub struct ParcelSent {
    /// The parcel.
    #[event(aggregate_id)]
    pub parcel: String,
}

/// Where parcels are.
#[derive(Debug)]
#[projector(crate = "::facade::evento_core")]
pub struct Parcels;

#[projector(crate = "facade::evento_core")]
impl Parcels {
    /// Takes note of it.
    ///
    /// # Errors
    /// Never.
    #[event_handler(executor = "parcels")]
    pub async fn on_sent(&self, event: &ParcelSent, ctx: &Context) -> Result<(), std::fmt::Error> {
        let _: (&ParcelSent, u32) = (event, ctx.attempt());
        Ok(())
    }
}

facade::evento_core::components! {
    /// The components of this crate.
    pub PARCELS = [Parcels]
}

evento_core::plan! {
    /// The plan of this crate.
    pub POST = { executors: [ExecutorName::new("parcels"), "letters"], components: [PARCELS] }
}

#[cfg(test)]
mod tests {
    use super::{POST, evento_core};

    #[test]
    fn a_component_is_registered_through_a_facade() {
        let linked: Vec<_> = evento_core::linked().iter().map(|component| component.name).collect();
        assert_eq!(linked, ["Parcels"]);
        assert_eq!(POST.executors.len(), 2);
    }
}
