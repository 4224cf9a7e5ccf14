use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use evento_core::{BoxFuture, ConsumerKey, Context, Fault, HandlerDescriptor, store::Epoch};
use futures_util::FutureExt;
use tokio_util::sync::ReusableBoxFuture;
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

/// The inline attempt under way. Its memory is used again by the next.
#[derive(Debug, Default)]
pub(super) struct Inline {
    slot: Option<SlotId>,
    attempt: Option<ReusableBoxFuture<'static, Result<(), Failure>>>,
}

impl Inline {
    /// Begins an attempt, and answers how it ended if it has already: most that need not wait do.
    pub(super) async fn begin(&mut self, attempts: &Arc<Attempts>, job: Job) -> Option<(SlotId, Outcome)> {
        let slot = job.slot;
        self.slot = Some(slot);
        let (attempts, consumer, span) = (Arc::clone(attempts), Arc::clone(&attempts.spec.key), attempts.span(&job));
        let attempt = async move { attempts.run(job, consumer).await };
        if span.is_disabled() {
            self.set(attempt);
        } else {
            self.set(attempt.instrument(span));
        }
        let polled = poll_fn(|context| Poll::Ready(self.poll(context))).await;
        if let Poll::Ready(ended) = polled { Some(ended) } else { None }
    }

    fn set(&mut self, attempt: impl Future<Output = Result<(), Failure>> + Send + 'static) {
        match &mut self.attempt {
            Some(used) => used.set(attempt),
            None => self.attempt = Some(ReusableBoxFuture::new(attempt)),
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.slot.is_some()
    }

    /// Ends when the attempt does; never, where there is none.
    pub(super) async fn ended(&mut self) -> (SlotId, Outcome) {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut std::task::Context<'_>) -> Poll<(SlotId, Outcome)> {
        let (Some(slot), Some(attempt)) = (self.slot, &mut self.attempt) else { return Poll::Pending };
        attempt.poll(context).map(|outcome| {
            self.slot = None;
            (slot, outcome_of(outcome))
        })
    }

    /// Drops the attempt where it is.
    pub(super) fn cut_off(&mut self) -> Option<SlotId> {
        self.attempt = None;
        self.slot.take()
    }
}

fn outcome_of(outcome: Result<(), Failure>) -> Outcome {
    outcome.map_or_else(Outcome::Failed, |()| Outcome::Handled)
}

impl Attempts {
    /// An attempt by a worker, that keeps the attempts alive itself and has the consumer's key to itself: counters that
    /// several threads share would cost more than all the rest.
    pub(super) async fn of_worker(&self, job: Job, consumer: Arc<ConsumerKey>) -> Result<(), Failure> {
        let span = self.span(&job);
        if span.is_disabled() {
            self.run(job, consumer).await
        } else {
            Box::pin(self.run(job, consumer).instrument(span)).await
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

    /// One attempt, from decoding to the handler's return. A panic is a failure like any other.
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
