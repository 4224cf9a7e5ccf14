use std::{fmt, time::Duration};

use evento_core::{
    Component, ConsumerKey, Position,
    store::{CommitError, StoreError},
};
use tokio::time::Instant;

use super::{Running, running::Member};
use crate::consumer::{ConsumerState, ConsumerStatus};

/// Why something that was waited for, or asked of a consumer, did not come about.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The bundle has no such consumer.
    #[error(
        "component `{component}` has no such consumer in this bundle; give the builder an instance of it: `.provide(..)`"
    )]
    NoConsumer {
        /// The component's name.
        component: &'static str,
    },
    /// The consumer has stopped, because the bundle did.
    #[error("consumer {consumer} has stopped")]
    Stopped {
        /// Which.
        consumer: ConsumerKey,
    },
    /// The consumer could not be reset.
    #[error("consumer {consumer} could not be reset")]
    Reset {
        /// Which.
        consumer: ConsumerKey,
        /// What the store said.
        #[source]
        source: Box<CommitError>,
    },
    /// Some consumers have not caught up in time.
    #[error("not caught up with position {head} after {waited:?}: {}", Held(behind))]
    Behind {
        /// The position that was to be reached.
        head: Position,
        /// How long was waited.
        waited: Duration,
        /// The consumers that have not reached it.
        behind: Vec<ConsumerStatus>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What holds consumers back, for messages.
struct Held<'a>(&'a [ConsumerStatus]);

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, status) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{} is at {}", status.consumer, status.settled_to)?;
            if let Some(failing) = &status.failing {
                let (name, position, attempts) = (&failing.name, failing.position, failing.attempts);
                let cause = failing.cause.join(": ");
                write!(f, ", held by event `{name}` at {position}, which failed {attempts} times: {cause}")?;
            } else if let Some(trouble) = &status.trouble {
                write!(f, ", and cannot go on: {trouble}")?;
            } else {
                match (status.state, &status.held_by) {
                    (ConsumerState::Waiting, Some(owner)) => write!(f, ", and waits for the claim, held by {owner}")?,
                    (ConsumerState::Waiting, None) => f.write_str(", and has no claim yet")?,
                    (ConsumerState::Paused, _) => f.write_str(", and is paused")?,
                    (ConsumerState::Stopped, _) => f.write_str(", and has stopped")?,
                    (ConsumerState::Running | ConsumerState::Failing, _) => f.write_str(", and goes on")?,
                }
            }
        }
        Ok(())
    }
}

impl Running {
    /// Waits until a component has settled everything up to `position`, in every context: read your own write.
    ///
    /// It waits as long as it takes; put a timeout around it where an event may fail for ever. Where another process
    /// holds the claim, its stored checkpoint is waited for.
    ///
    /// # Errors
    /// [`WaitError::NoConsumer`], [`WaitError::Stopped`], [`WaitError::Store`].
    ///
    /// # Cancel safety
    /// It only waits.
    pub async fn wait_for<T: Component>(&self, position: impl Into<Position>) -> Result<(), WaitError> {
        let position = position.into();
        for member in self.of::<T>()? {
            self.reached(member, position).await?;
        }
        Ok(())
    }

    /// Waits until every consumer has settled everything that was committed when this was called. Dead and parked
    /// events count as settled.
    ///
    /// # Errors
    /// [`WaitError::Behind`] says, after `timeout`, what holds which consumer; else as [`Running::wait_for`].
    pub async fn wait_until_caught_up(&self, timeout: Duration) -> Result<(), WaitError> {
        let began = Instant::now();
        let head = self.shared.store.head().await?.committed;
        let all = async {
            for member in &self.members {
                self.reached(member, head).await?;
            }
            Ok(())
        };
        if let Ok(outcome) = tokio::time::timeout(timeout, all).await {
            return outcome;
        }
        let behind = self.consumers().into_iter().filter(|status| status.settled_to < head).collect();
        Err(WaitError::Behind { head, waited: began.elapsed(), behind })
    }

    async fn reached(&self, member: &Member, position: Position) -> Result<(), WaitError> {
        let mut status = member.control.status.subscribe();
        loop {
            let (state, settled_to) = {
                let status = status.borrow_and_update();
                (status.state, status.settled_to)
            };
            match state {
                ConsumerState::Stopped => return Err(member.stopped()),
                ConsumerState::Waiting => {
                    if self.reached_elsewhere(member, position).await? {
                        return Ok(());
                    }
                    // The other process tells nobody here: ask again, unless our own claim comes first.
                    drop(tokio::time::timeout(Duration::from_millis(200), status.changed()).await);
                }
                _ if settled_to >= position => return Ok(()),
                _ => {
                    if status.changed().await.is_err() {
                        return Err(member.stopped());
                    }
                }
            }
        }
    }

    async fn reached_elsewhere(&self, member: &Member, position: Position) -> Result<bool, WaitError> {
        let consumer = member.control.status.snapshot().consumer;
        let stored = self.shared.store.consumers(self.name.clone()).await?;
        let of_consumer = stored.iter().filter(|stored| stored.consumer == consumer);
        Ok(of_consumer.clone().count() > 0
            && of_consumer.into_iter().all(|it| it.frontier >= position && it.open + it.waiting == 0))
    }
}
