use std::{any::Any, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use evento_core::{BoxFuture, ConsumerKey, Context, Fault, HandlerDescriptor, store::Epoch};
use futures_util::FutureExt;
use tracing::Instrument;

use super::Shared;
use crate::{
    bundle::ConsumerSpec,
    engine::{Failure, FailureKind, Job, Outcome, SlotId},
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

/// Ends when the attempt does; never, where there is none.
pub(super) async fn outcome(attempt: &mut Option<(SlotId, Attempt)>) -> (SlotId, Result<(), Failure>) {
    match attempt {
        Some((slot, attempt)) => (*slot, attempt.await),
        None => std::future::pending().await,
    }
}

pub(super) fn outcome_of(outcome: Result<(), Failure>) -> Outcome {
    outcome.map_or_else(Outcome::Failed, |()| Outcome::Handled)
}

impl Attempts {
    /// One attempt, from decoding to the handler's return. A panic is a failure like any other.
    pub(super) fn begin(self: &Arc<Self>, job: Job) -> Attempt {
        let (attempts, span) = (Arc::clone(self), self.span(&job));
        let consumer = Arc::clone(&self.spec.key);
        if span.is_disabled() {
            Box::pin(async move { attempts.run(job, consumer).await })
        } else {
            Box::pin(async move { attempts.run(job, consumer).await }.instrument(span))
        }
    }

    /// The same for a worker, that keeps the attempts alive itself and has the consumer's key to itself: counters that
    /// several threads share would cost more than all the rest.
    pub(super) fn of_worker(&self, job: Job, consumer: Arc<ConsumerKey>) -> BoxFuture<'_, Result<(), Failure>> {
        let span = self.span(&job);
        if span.is_disabled() {
            Box::pin(self.run(job, consumer))
        } else {
            Box::pin(self.run(job, consumer).instrument(span))
        }
    }

    fn span(&self, job: &Job) -> tracing::Span {
        tracing::info_span!(
            "attempt",
            component = self.spec.component.name,
            event = job.event.name(),
            position = %job.event.position(),
            aggregate = %job.event.aggregate(),
            attempt = job.attempt,
        )
    }

    async fn run(&self, job: Job, consumer: Arc<ConsumerKey>) -> Result<(), Failure> {
        let handler = &self.spec.component.handlers[job.handler];
        if let Some(bytes) = job.event.oversize() {
            let limit = self.shared.settings.payload_limit;
            let cause =
                format!("the payload has {bytes} bytes, the limit is {limit}; raise `payload_limit` and retry it");
            return Err(Failure { kind: FailureKind::TooLarge, cause: vec![cause] });
        }
        let handled = AssertUnwindSafe(self.handle(handler, job, consumer)).catch_unwind().await;
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

    async fn handle(&self, handler: &HandlerDescriptor, job: Job, consumer: Arc<ConsumerKey>) -> Result<(), Failure> {
        let event = (handler.event.decode)(&job.event)
            .map_err(|error| Failure { kind: FailureKind::Undecodable, cause: chain(&anyhow::Error::new(error)) })?;
        let context = Context::new(job.event, consumer, job.attempt, job.replay, self.epoch);
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
                let cause = format!("the handler took longer than its timeout of {limit:?}");
                Err(Failure { kind: FailureKind::Overrun, cause: vec![cause] })
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
