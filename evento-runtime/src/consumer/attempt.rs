use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use evento_core::{Called, Context, Fault, HandlerDescriptor, store::Epoch};
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

/// How an attempt that returned went.
type Tried = Result<(), Box<Failure>>;

/// The inline attempt under way. Its memory is used again by the next.
#[derive(Debug, Default)]
pub(super) struct Inline {
    slot: Option<SlotId>,
    attempt: Option<ReusableBoxFuture<'static, Tried>>,
}

impl Inline {
    /// Begins an attempt, and answers how it ended if it has already: most that need not wait do.
    pub(super) async fn begin(&mut self, attempts: &Arc<Attempts>, job: Job) -> Option<(SlotId, Outcome)> {
        let slot = job.slot;
        self.slot = Some(slot);
        let (attempts, handler, context) = (Arc::clone(attempts), job.handler, attempts.context(job));
        let span = attempts.span(&context);
        let attempt = async move { attempts.run(handler, &context).await };
        if span.is_disabled() {
            self.set(attempt);
        } else {
            self.set(attempt.instrument(span));
        }
        let polled = poll_fn(|context| Poll::Ready(self.poll(context))).await;
        if let Poll::Ready(ended) = polled { Some(ended) } else { None }
    }

    fn set(&mut self, attempt: impl Future<Output = Tried> + Send + 'static) {
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

pub(super) fn outcome_of(tried: Tried) -> Outcome {
    tried.map_or_else(Outcome::Failed, |()| Outcome::Handled)
}

impl Attempts {
    pub(super) fn context(&self, job: Job) -> Context {
        Context::new(job.event, Arc::clone(&self.spec.key), job.attempt, job.replay, self.epoch)
    }

    /// An attempt by a worker, that keeps what it borrows.
    pub(super) async fn of_worker(&self, handler: usize, context: &Context) -> Tried {
        let span = self.span(context);
        if span.is_disabled() {
            self.run(handler, context).await
        } else {
            Box::pin(self.run(handler, context).instrument(span)).await
        }
    }

    fn span(&self, context: &Context) -> tracing::Span {
        tracing::info_span!(
            "attempt",
            component = self.spec.component.name,
            event = context.event().name(),
            position = %context.position(),
            aggregate = %context.event().aggregate(),
            attempt = context.attempt(),
        )
    }

    /// One attempt, from decoding to the handler's return. A panic is a failure like any other.
    async fn run(&self, handler: usize, context: &Context) -> Tried {
        let handler = &self.spec.component.handlers[handler];
        if let Some(bytes) = context.event().oversize() {
            let limit = self.shared.settings.payload_limit;
            let cause =
                format!("the payload has {bytes} bytes, the limit is {limit}; raise `payload_limit` and retry it");
            return Err(Box::new(Failure { kind: FailureKind::TooLarge, cause: vec![cause] }));
        }
        let handled = AssertUnwindSafe(self.handle(handler, context)).catch_unwind().await;
        let failure = match handled {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(panic) => Box::new(Failure {
                kind: FailureKind::Handler(Fault::Ordinary),
                cause: vec!["the handler panicked".to_owned(), panic_text(&*panic)],
            }),
        };
        tracing::warn!(
            handler = handler.method,
            at = %handler.location,
            cause = failure.cause.join(": "),
            "attempt failed"
        );
        Err(failure)
    }

    async fn handle(&self, handler: &HandlerDescriptor, context: &Context) -> Tried {
        let called = (handler.call)(&*self.spec.instance, context).map_err(|error| {
            Box::new(Failure { kind: FailureKind::Undecodable, cause: chain(&anyhow::Error::new(error)) })
        })?;
        // What few handlers have is boxed apart, so that the attempts of all others are small.
        if self.shared.interceptors.is_empty() {
            self.called(handler, called).await
        } else {
            Box::pin(self.intercepted(handler, context, called)).await
        }
    }

    async fn intercepted(&self, handler: &HandlerDescriptor, context: &Context, called: Called<'_>) -> Tried {
        let delivery = Delivery { component: &self.spec.component, handler, context };
        let next = Next { rest: &self.shared.interceptors, delivery: &delivery, handler: called };
        self.called(handler, next.run()).await
    }

    async fn called(&self, handler: &HandlerDescriptor, called: Called<'_>) -> Tried {
        match handler.timeout {
            None => called.await.map_err(|error| self.failure(&error)),
            Some(limit) => Box::pin(self.within(limit, called)).await,
        }
    }

    async fn within(&self, limit: Duration, called: Called<'_>) -> Tried {
        match tokio::time::timeout(limit, called).await {
            Ok(outcome) => outcome.map_err(|error| self.failure(&error)),
            Err(_elapsed) => {
                let cause = format!("the handler took longer than its timeout of {limit:?}");
                Err(Box::new(Failure { kind: FailureKind::Overrun, cause: vec![cause] }))
            }
        }
    }

    fn failure(&self, error: &anyhow::Error) -> Box<Failure> {
        let kind = FailureKind::Handler(self.shared.classifiers.classify(error));
        Box::new(Failure { kind, cause: chain(error) })
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
