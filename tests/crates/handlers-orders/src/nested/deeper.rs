use evento_core::{event_handler, projector};

#[projector]
pub(crate) struct OrderAudit;

#[projector]
impl OrderAudit {
    #[event_handler(executor = crate::AUDIT)]
    async fn on_placed(&self, _: &crate::OrderPlaced) -> anyhow::Result<()> {
        Ok(())
    }
}
