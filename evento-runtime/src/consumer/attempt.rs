use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use evento_core::{BoxFuture, Context, Fault, HandlerDescriptor, store::Epoch};
use futures_util::FutureExt;
use tracing::Instrument;

use super::Shared;
use crate::{
    bundle::ConsumerSpec,
    engine::{Failure, FailureKind, Start},
    interceptor::{Delivery, Next},
};

/// What attempts of one claim have in common.
#[derive(Debug)]
pub(super) struct Attempts {
    pub(super) shared: Arc<Shared>,
    pub(super) spec: Arc<ConsumerSpec>,
    pub(super) epoch: Epoch,
}

/// One attempt under way.
pub(super) type Attempt = BoxFuture<'static, Result<(), Failure>>;

impl Attempts {
    /// One attempt, from decoding to the handler's return. A panic is a failure like any other.
    pub(super) fn begin(self: &Arc<Self>, start: Start) -> Attempt {
        let span = tracing::info_span!(
            "attempt",
            component = self.spec.component.name,
            event = start.event.name(),
            position = %start.event.position(),
            aggregate = %start.event.aggregate(),
            attempt = start.attempt,
        );
        let attempts = Arc::clone(self);
        if span.is_disabled() {
            Box::pin(async move { attempts.run(start).await })
        } else {
            Box::pin(async move { attempts.run(start).await }.instrument(span))
        }
    }

    async fn run(&self, start: Start) -> Result<(), Failure> {
        let handler = &self.spec.component.handlers[start.handler];
        if let Some(bytes) = start.event.oversize() {
            let limit = self.shared.settings.payload_limit;
            let cause =
                format!("the payload has {bytes} bytes, the limit is {limit}; raise `payload_limit` and retry it");
            return Err(Failure { kind: FailureKind::TooLarge, cause: vec![cause] });
        }
        let handled = AssertUnwindSafe(self.handle(handler, start)).catch_unwind().await;
        let failure = match handled {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(panic) => Failure {
                kind: FailureKind::Handler(Fault::Ordinary),
                cause: vec!["the handler panicked".to_owned(), panic_text(&*panic)],
            },
        };
        tracing::warn!(
            handler = handler.method,
            at = %handler.location,
            cause = failure.cause.join(": "),
            "attempt failed"
        );
        Err(failure)
    }

    async fn handle(&self, handler: &HandlerDescriptor, start: Start) -> Result<(), Failure> {
        let event = (handler.event.decode)(&start.event)
            .map_err(|error| Failure { kind: FailureKind::Undecodable, cause: chain(&anyhow::Error::new(error)) })?;
        let context = Context::new(start.event, Arc::clone(&self.spec.key), start.attempt, start.replay, self.epoch);
        let delivery = Delivery { component: &self.spec.component, handler, context: &context };
        let mut called = (handler.call)(&*self.spec.instance, &*event, &context);
        // What few handlers have is boxed apart, so that the attempts of all others are small.
        if !self.shared.interceptors.is_empty() {
            let next = Next { rest: &self.shared.interceptors, delivery: &delivery, handler: called };
            called = Box::pin(next.run());
        }
        match handler.timeout {
            None => called.await.map_err(|error| self.failure(&error)),
            Some(limit) => Box::pin(self.within(limit, called)).await,
        }
    }

    async fn within(&self, limit: Duration, called: BoxFuture<'_, anyhow::Result<()>>) -> Result<(), Failure> {
        match tokio::time::timeout(limit, called).await {
            Ok(outcome) => outcome.map_err(|error| self.failure(&error)),
            Err(_elapsed) => {
                // For the budget an overrun is ordinary, though an elapsed timeout inside the handler is transient.
                let cause = format!("the handler took longer than its timeout of {limit:?}");
                Err(Failure { kind: FailureKind::Handler(Fault::Ordinary), cause: vec![cause] })
            }
        }
    }

    fn failure(&self, error: &anyhow::Error) -> Failure {
        Failure { kind: FailureKind::Handler(self.shared.classifiers.classify(error)), cause: chain(error) }
    }
}

/// The error and what led to it, outermost first; bounded, because it is stored.
fn chain(error: &anyhow::Error) -> Vec<String> {
    const MOST_CAUSES: usize = 32;
    const MOST_CHARS: usize = 4096;
    error.chain().take(MOST_CAUSES).map(|cause| cause.to_string().chars().take(MOST_CHARS).collect()).collect()
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "with no message".to_owned())
}
