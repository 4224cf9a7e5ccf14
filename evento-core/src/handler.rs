use std::{
    any::{Any, TypeId},
    fmt,
    time::Duration,
};

use crate::{__private::retry_under_executor, BoxFuture, Context, Event, ExecutorName, Location};

/// A component, with its type forgotten.
pub type Erased = dyn Any + Send + Sync;

/// Decodes the context's event and calls one handler with it: component, context. The future owns the decoded event.
pub type Call = for<'a> fn(&'a Erased, &'a Context) -> Result<Called<'a>, DecodeError>;

/// A handler that has been called.
pub type Called<'a> = BoxFuture<'a, Result<(), anyhow::Error>>;

/// A payload that is not what the event's type says.
#[derive(Debug, thiserror::Error)]
#[error("the payload does not decode as `{event}`")]
pub struct DecodeError {
    /// The event's name.
    pub event: &'static str,
    /// What serde said.
    #[source]
    pub source: serde_json::Error,
}

/// One event type as a handler takes it.
#[derive(Clone, Copy)]
pub struct EventType {
    /// The stable name it is stored under.
    pub name: &'static str,
    /// The type of its aggregate.
    pub aggregate: &'static str,
    /// The Rust type.
    pub type_id: fn() -> TypeId,
    /// That type's name, for messages.
    pub type_name: fn() -> &'static str,
}

impl EventType {
    /// Describes `E`.
    #[must_use]
    pub const fn of<E: Event>() -> Self {
        Self { name: E::NAME, aggregate: E::AGGREGATE, type_id: TypeId::of::<E>, type_name: std::any::type_name::<E> }
    }
}

/// The event that a context is of.
///
/// # Errors
/// [`DecodeError`] where its payload is not what `E` says.
pub fn decode<E: Event>(context: &Context) -> Result<E, DecodeError> {
    let text = context.event().payload_text().ok_or_else(no_text);
    text.and_then(serde_json::from_str).map_err(|source| DecodeError { event: E::NAME, source })
}

/// A handler's future, boxed.
///
/// # Errors
/// None: it is what follows [`decode`] in a [`Call`].
pub fn called<'a>(
    handler: impl Future<Output = Result<(), anyhow::Error>> + Send + 'a,
) -> Result<Called<'a>, DecodeError> {
    Ok(Box::pin(handler))
}

fn no_text() -> serde_json::Error {
    serde::de::Error::custom("it is not UTF-8, as JSON is")
}

impl fmt::Debug for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, (self.type_name)())
    }
}

/// How often a handler is tried again: the `retry` of `#[event_handler]`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RetryOption {
    /// Not said: for ever where the handler runs inline, not at all under an executor.
    Unset,
    /// `retry = -1`: for ever. Inline only.
    Forever,
    /// `retry = n`: up to `n + 1` attempts.
    Times(u16),
}

/// One handler: a method that takes one event type.
#[derive(Clone, Copy, Debug)]
pub struct HandlerDescriptor {
    /// The method's name.
    pub method: &'static str,
    /// The event it takes.
    pub event: EventType,
    /// The executor it runs under; `None` is inline, one event at a time.
    pub executor: Option<ExecutorName>,
    /// How often it is tried again.
    pub retry: RetryOption,
    /// The delay before the second attempt, where the handler says one.
    pub retry_delay: Option<Duration>,
    /// How long an attempt may take, where the handler says so.
    pub timeout: Option<Duration>,
    /// Where it is written.
    pub location: Location,
    /// Calls it.
    pub call: Call,
}

impl HandlerDescriptor {
    /// A handler that runs inline and is tried again for ever; `#[event_handler]` expands to this.
    #[must_use]
    pub const fn new(method: &'static str, event: EventType, location: Location, call: Call) -> Self {
        Self {
            method,
            event,
            executor: None,
            retry: RetryOption::Unset,
            retry_delay: None,
            timeout: None,
            location,
            call,
        }
    }

    /// The same under an executor.
    #[must_use]
    pub const fn with_executor(mut self, executor: ExecutorName) -> Self {
        self.executor = Some(executor);
        self
    }

    /// The same with up to `retry` further attempts, -1 for ever.
    ///
    /// # Panics
    /// Unless `retry` is -1 to 1000, and where it is -1 under an executor. In a constant that is a compile error.
    #[must_use]
    #[track_caller]
    pub const fn with_retry(mut self, retry: i32) -> Self {
        let retry = if self.executor.is_some() { retry_under_executor(retry) } else { crate::__private::retry(retry) };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000, as asserted")]
        let times = RetryOption::Times(retry as u16);
        self.retry = if retry == -1 { RetryOption::Forever } else { times };
        self
    }

    /// The same with a delay of its own before the second attempt.
    #[must_use]
    pub const fn with_retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = Some(delay);
        self
    }

    /// The same with a limit to how long an attempt may take.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
}

/// What a handler may return: `Result<(), E>` for any error that converts into [`anyhow::Error`].
#[diagnostic::on_unimplemented(
    message = "an event handler must return `Result<(), E>`, not `{Self}`",
    label = "return `anyhow::Result<()>`, or `Result<(), E>` with any error that converts into `anyhow::Error`"
)]
pub trait HandlerOutput {
    /// The outcome, with the error's type forgotten.
    ///
    /// # Errors
    /// What the handler returned.
    fn into_result(self) -> Result<(), anyhow::Error>;
}

impl<E: Into<anyhow::Error>> HandlerOutput for Result<(), E> {
    fn into_result(self) -> Result<(), anyhow::Error> {
        self.map_err(Into::into)
    }
}
