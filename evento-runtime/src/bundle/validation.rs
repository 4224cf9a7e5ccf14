use std::sync::Arc;

use evento_core::{ComponentDescriptor, store::OpenStore};

use super::{BundleBuilder, StartError};
use crate::ConsumerExecutor;

/// What is known of a bundle once it has passed.
pub(super) struct Accepted {
    pub(super) store: Arc<dyn OpenStore>,
    pub(super) executors: Vec<ConsumerExecutor>,
    pub(super) warnings: Vec<String>,
}

pub(super) fn validate(builder: &BundleBuilder, linked: &[&ComponentDescriptor]) -> Result<Accepted, StartError> {
    let _ = linked;
    let Some(store) = builder.stores.first() else {
        return Err(StartError::Refused(super::Report::new(&builder.name, vec![])));
    };
    Ok(Accepted { store: Arc::clone(store), executors: builder.executors.clone(), warnings: vec![] })
}
