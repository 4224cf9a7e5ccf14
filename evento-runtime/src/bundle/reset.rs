use std::any::TypeId;

use evento_core::{
    Component, ConsumerKey, Position, Segment,
    store::{ClaimOutcome, ClaimRequest, CommitError, Reset, Store, StoreError},
};

use super::{BundleBuilder, ConsumerSpec, Prepared, StartError, start::register};
use crate::store::process;

/// Why a component of a stopped bundle was not reset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResetError {
    /// The bundle could not have been started.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The bundle has no such component.
    #[error("component `{component}` is not part of this bundle; give the builder an instance of it: `.provide(..)`")]
    NoConsumer {
        /// The component's name.
        component: &'static str,
    },
    /// A process consumes: it is to reset, or to be stopped first.
    #[error("consumer {consumer} runs in {owner}; reset it there with `Running::reset`, or stop that process first")]
    Runs {
        /// Which consumer.
        consumer: ConsumerKey,
        /// The process that holds its claim.
        owner: String,
    },
    /// The store refused, or failed.
    #[error("consumer {consumer} could not be reset")]
    Store {
        /// Which consumer.
        consumer: ConsumerKey,
        /// What the store said.
        #[source]
        source: Box<CommitError>,
    },
}

impl BundleBuilder {
    /// Replays a component of a bundle that runs nowhere, in every context: after its next start everything after `to` is
    /// handled again, as after [`Running::reset`](super::Running::reset). No handler is called.
    ///
    /// # Errors
    /// [`ResetError`]; in several contexts those before the one that it names have been reset.
    pub async fn reset<T: Component>(self, to: impl Into<Position>) -> Result<(), ResetError> {
        let to = to.into();
        let prepared = self.prepare()?;
        let of_component = |spec: &&ConsumerSpec| (spec.component.type_id)() == TypeId::of::<T>();
        let consumers: Vec<_> = prepared.consumers.iter().filter(of_component).cloned().collect();
        if consumers.is_empty() {
            return Err(ResetError::NoConsumer { component: T::NAME });
        }
        let store = prepared.open().await?;
        let outcome = reset_all(&prepared, &*store, &consumers, to).await;
        store.close().await;
        outcome
    }
}

async fn reset_all(
    prepared: &Prepared,
    store: &dyn Store,
    consumers: &[ConsumerSpec],
    to: Position,
) -> Result<(), ResetError> {
    register(prepared, store).await?;
    for spec in consumers {
        let failed =
            |source: CommitError| ResetError::Store { consumer: (*spec.key).clone(), source: Box::new(source) };
        let request = ClaimRequest {
            consumer: (*spec.key).clone(),
            segment: Segment::WHOLE,
            owner: process::this_process(),
            time_to_live: prepared.settings.claim.time_to_live,
            names: spec.names.clone(),
        };
        let (claim, clean) = match store.claim(request).await.map_err(|error: StoreError| failed(error.into()))? {
            ClaimOutcome::Taken { claim, clean } => (claim, clean),
            ClaimOutcome::Held { owner, .. } | ClaimOutcome::StandBack { owner, .. } => {
                return Err(ResetError::Runs { consumer: (*spec.key).clone(), owner: owner.name });
            }
        };
        let time_to_live = prepared.settings.claim.time_to_live;
        let reset = store.reset(Reset { claim: claim.clone(), to, time_to_live }).await;
        // Whoever died in a handler before is not forgotten, unless everything begins anew.
        let clean = clean || (reset.is_ok() && to == Position::BEGINNING);
        let held = reset.as_ref().unwrap_or(&claim).clone();
        store.release(held, clean).await.map_err(|error| failed(error.into()))?;
        reset.map_err(failed)?;
    }
    Ok(())
}
