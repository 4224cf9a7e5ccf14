//! Interceptors: application code around every attempt.

use std::{fmt, sync::Arc};

use evento_core::{BoxFuture, ComponentDescriptor, Context, HandlerDescriptor, RecordedEvent};

/// Runs around each attempt, in the attempt's own future: polled by one task from start to end.
///
/// Several nest in the order they were registered; each attempt passes through all of them again. A dead event is
/// written after they have returned. What it returns is what the attempt ends with: an interceptor that answers `Ok`
/// without calling `next` settles the event unhandled.
///
/// ```
/// use evento_core::BoxFuture;
/// use evento_runtime::{Delivery, Interceptor, Next};
///
/// struct Timed;
///
/// impl Interceptor for Timed {
///     fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
///         Box::pin(async move {
///             let began = std::time::Instant::now();
///             let outcome = next.run().await;
///             tracing::debug!(event = delivery.event().name(), elapsed = ?began.elapsed());
///             outcome
///         })
///     }
/// }
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Runs around one attempt.
    fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>>;
}

/// What an attempt is about.
#[derive(Clone, Copy)]
pub struct Delivery<'a> {
    pub(crate) component: &'a ComponentDescriptor,
    pub(crate) handler: &'a HandlerDescriptor,
    pub(crate) context: &'a Context,
}

impl<'a> Delivery<'a> {
    /// The component.
    #[must_use]
    pub fn component(&self) -> &'a ComponentDescriptor {
        self.component
    }

    /// The handler.
    #[must_use]
    pub fn handler(&self) -> &'a HandlerDescriptor {
        self.handler
    }

    /// What the handler may know.
    #[must_use]
    pub fn context(&self) -> &'a Context {
        self.context
    }

    /// The event.
    #[must_use]
    pub fn event(&self) -> &'a RecordedEvent {
        self.context.event()
    }
}

impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("component", &self.component.name)
            .field("handler", &self.handler.method)
            .field("position", &self.context.position())
            .field("attempt", &self.context.attempt())
            .finish()
    }
}

/// The rest of an attempt: further interceptors, then the handler.
pub struct Next<'a> {
    pub(crate) rest: &'a [Arc<dyn Interceptor>],
    pub(crate) delivery: &'a Delivery<'a>,
    pub(crate) handler: BoxFuture<'a, anyhow::Result<()>>,
}

impl<'a> Next<'a> {
    /// Runs the rest.
    #[must_use]
    pub fn run(self) -> BoxFuture<'a, anyhow::Result<()>> {
        match self.rest.split_first() {
            Some((first, rest)) => first.intercept(self.delivery, Next { rest, ..self }),
            None => self.handler,
        }
    }
}

impl fmt::Debug for Next<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("rest", &self.rest.len()).finish_non_exhaustive()
    }
}
