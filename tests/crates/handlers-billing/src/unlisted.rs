use evento_core::{event_handler, projector};

#[projector]
struct Turnover;

#[projector]
impl Turnover {
    #[event_handler]
    async fn on_paid(&self, _: &crate::InvoicePaid) -> anyhow::Result<()> {
        Ok(())
    }
}
