//! Billing: a component that the crate's list names, and one in a module that nothing names.

use evento_core::{Event, event_handler, projector};
use serde::{Deserialize, Serialize};

mod unlisted;

/// An invoice was paid.
#[derive(Debug, Event, Serialize, Deserialize)]
#[event(name = "invoice.paid", aggregate = "invoice")]
pub struct InvoicePaid {
    /// The invoice.
    #[event(aggregate_id)]
    pub number: u64,
}

/// What is still to be paid.
#[derive(Debug, Default)]
#[projector(version = 2)]
pub struct OpenInvoices;

#[projector]
impl OpenInvoices {
    #[event_handler(executor = "read-model")]
    async fn on_paid(&self, _: &InvoicePaid) -> anyhow::Result<()> {
        Ok(())
    }
}

evento_core::components! {
    /// The components of this crate.
    pub BILLING = [OpenInvoices]
}
