use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use evento_core::{Aggregate, BoxFuture, Position};

use crate::{Delivery, Interceptor, Next};

/// One attempt that a bundle under test made.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TestAttempt {
    /// The component's name.
    pub component: &'static str,
    /// The handler's method.
    pub handler: &'static str,
    /// The event's name.
    pub event: String,
    /// Where the event is.
    pub position: Position,
    /// The aggregate it belongs to.
    pub aggregate: Aggregate,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Whether it was a replay.
    pub replay: bool,
    /// What it failed with, outermost first; `None` where it succeeded.
    pub error: Option<String>,
}

impl fmt::Display for TestAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { component, handler, event, position, aggregate, attempt, .. } = self;
        write!(f, "{component}::{handler} `{event}` at {position} of {aggregate}, attempt {attempt}: ")?;
        match &self.error {
            None => f.write_str("handled"),
            Some(error) => write!(f, "failed: {error}"),
        }
    }
}

/// Notes every attempt. The outermost interceptor of a bundle under test.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts(Arc<Mutex<Vec<TestAttempt>>>);

impl Attempts {
    pub(super) fn all(&self) -> Vec<TestAttempt> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn handled(&self, counts: impl Fn(&TestAttempt) -> bool) -> usize {
        let attempts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        attempts.iter().filter(|attempt| attempt.error.is_none() && counts(attempt)).count()
    }
}

impl Interceptor for Attempts {
    fn intercept<'a>(&'a self, delivery: &'a Delivery<'a>, next: Next<'a>) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let context = delivery.context();
            let attempt = TestAttempt {
                component: delivery.component().name,
                handler: delivery.handler().method,
                event: delivery.event().name().to_owned(),
                position: context.position(),
                aggregate: delivery.event().aggregate().to_owned(),
                attempt: context.attempt(),
                replay: context.is_replay(),
                error: None,
            };
            // An attempt that is cut off, or panics, never returns: the guard notes it all the same.
            let mut noted = Noted { attempts: self, attempt: Some(attempt) };
            let outcome = next.run().await;
            noted.end(outcome.as_ref().err().map(|error| format!("{error:#}")));
            outcome
        })
    }
}

struct Noted<'a> {
    attempts: &'a Attempts,
    attempt: Option<TestAttempt>,
}

impl Noted<'_> {
    fn end(&mut self, error: Option<String>) {
        if let Some(attempt) = self.attempt.take() {
            self.attempts.0.lock().unwrap_or_else(PoisonError::into_inner).push(TestAttempt { error, ..attempt });
        }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { "it panicked" } else { "it was cut off" };
        self.end(Some(how.to_owned()));
    }
}

/// The last attempts, one a line, for messages.
pub(super) struct Listed<'a>(pub(super) &'a [TestAttempt]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 50;
        let earlier = self.0.len().saturating_sub(MOST);
        if self.0.is_empty() {
            f.write_str("no attempt was made; was `run_until_idle` awaited?\n")?;
        }
        if earlier > 0 {
            writeln!(f, "({earlier} earlier attempts)")?;
        }
        self.0[earlier..].iter().try_for_each(|attempt| writeln!(f, "{attempt}"))
    }
}
