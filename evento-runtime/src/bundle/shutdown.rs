use std::{fmt, future::Future, time::Duration};

use evento_core::{ConsumerKey, Position};
use tokio::time::Instant;

use super::Running;
use crate::consumer::ConsumerState;

/// What a shutdown finished, and what it left.
#[derive(Clone, Debug)]
pub struct Drained {
    /// The consumers, by kind, name and context.
    pub consumers: Vec<DrainedConsumer>,
    /// How long it took.
    pub took: Duration,
}

/// One consumer after a shutdown.
#[derive(Clone, Debug)]
pub struct DrainedConsumer {
    /// Which.
    pub consumer: ConsumerKey,
    /// Everything at or below this is settled.
    pub settled_to: Position,
    /// The events whose handlers were cut off: they are delivered again after the next start, or, where the checkpoint
    /// had passed them, are dead events now.
    pub left: Vec<Position>,
    /// The process that consumed, where it was another.
    pub held_by: Option<String>,
    /// Whether it stopped and let its claim go. If not, its handler has not returned, or the store did not answer, and the
    /// claim runs out by itself.
    pub released: bool,
}

impl Drained {
    /// Whether everything that ran has finished.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.consumers.iter().all(|consumer| consumer.left.is_empty() && consumer.released)
    }
}

impl fmt::Display for Drained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consumers = if self.consumers.len() == 1 { "consumer" } else { "consumers" };
        write!(f, "drained {} {consumers} in {:?}", self.consumers.len(), self.took)?;
        for consumer in &self.consumers {
            match &consumer.held_by {
                Some(owner) => write!(f, "; {} consumed by {owner}", consumer.consumer)?,
                None => write!(f, "; {} at {}", consumer.consumer, consumer.settled_to)?,
            }
            if let [left] = &consumer.left[..] {
                write!(f, ", left the event at {left}")?;
            } else if let [first, more @ ..] = &consumer.left[..] {
                write!(f, ", left the event at {first} and {} others", more.len())?;
            } else if !consumer.released {
                f.write_str(", whose claim runs out by itself")?;
            }
        }
        Ok(())
    }
}

/// The shutdown's budget was spent before everything had finished. Nothing is lost: what was left is delivered again.
///
/// As the error of `main` it makes the exit status tell.
#[derive(Debug, thiserror::Error)]
#[error(
    "the shutdown's budget of {budget:?} was spent before everything had finished: {drained}; give it more with `shutdown_budget`, or handlers a `timeout`"
)]
pub struct ShutdownError {
    /// The budget.
    pub budget: Duration,
    /// What was finished, and what was left.
    pub drained: Drained,
}

impl Running {
    /// Stops admission, lets what runs finish, writes the checkpoints, releases the claims and closes the store, all
    /// within one budget (30 s unless `shutdown_budget` says otherwise). What has not returned shortly before its end
    /// is cut off.
    ///
    /// # Errors
    /// [`ShutdownError`] where something was left.
    pub async fn shutdown(mut self) -> Result<Drained, ShutdownError> {
        let began = Instant::now();
        let budget = self.shared.settings.shutdown_budget;
        tracing::info!(bundle = self.name, ?budget, "shutting down");
        self.shared.stop.cancel();
        self.ask_attention();
        self.shared.executors.iter().for_each(|executor| executor.close());
        // The end of the budget belongs to the last writes.
        let writes = (budget / 10).min(Duration::from_secs(1));
        if tokio::time::timeout_at(began + (budget - writes), self.tasks.wait()).await.is_err() {
            self.shared.cut.cancel();
            self.ask_attention();
            let end = (began + budget).max(Instant::now() + Duration::from_millis(100));
            if tokio::time::timeout_at(end, self.tasks.wait()).await.is_err() {
                tracing::error!(bundle = self.name, "handlers have not returned within the shutdown's budget");
            }
        }
        self.shared.keeper.stop();
        self.shared.keeper.ended().await;
        let drained = self.drained(began.elapsed());
        self.ended = true;
        if self.consumers().iter().all(|status| status.state == ConsumerState::Stopped) {
            if let Some(keeper) = self.keeper.take() {
                // It ends at once: it waits for nothing but the stop.
                drop(tokio::task::spawn_blocking(move || keeper.join()).await);
            }
            let close = tokio::time::timeout(Duration::from_secs(5), self.shared.store.close());
            if close.await.is_err() {
                tracing::error!(bundle = self.name, "the store did not close within 5 s");
            }
        }
        if drained.is_clean() {
            tracing::info!(bundle = self.name, "{drained}");
            Ok(drained)
        } else {
            tracing::error!(bundle = self.name, "{drained}");
            Err(ShutdownError { budget, drained })
        }
    }

    pub(super) fn ask_attention(&self) {
        for member in &self.members {
            member.control.attention().ask();
        }
    }

    fn drained(&self, took: Duration) -> Drained {
        let consumers = self.consumers().into_iter().map(|status| DrainedConsumer {
            consumer: status.consumer,
            settled_to: status.settled_to,
            left: status.left,
            held_by: status.held_by,
            released: status.released,
        });
        Drained { consumers: consumers.collect(), took }
    }
}

/// Ends at the first signal that asks the process to stop: interrupt (Ctrl-C), or termination on Unix.
///
/// Signals are listened for from the call on, not only once the future is awaited: call it before the bundle starts, and
/// a signal during the start is heard too.
///
/// # Panics
/// Outside a tokio runtime.
pub fn shutdown_signal() -> impl Future<Output = ()> + Send {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{Signal, SignalKind, signal};
        let listening = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        async move {
            let [terminate, interrupt] = listening.map(warn_of);
            let heard = async |signal: Option<Signal>| match signal {
                Some(mut signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            };
            tokio::select! {
                () = heard(terminate) => {}
                () = heard(interrupt) => {}
            }
        }
    }
    #[cfg(not(unix))]
    async {
        if warn_of(tokio::signal::ctrl_c().await).is_none() {
            std::future::pending().await
        }
    }
}

/// A signal that cannot be listened for never comes.
fn warn_of<T>(listened: std::io::Result<T>) -> Option<T> {
    listened
        .inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::error!(error, "signals cannot be listened for: stop the bundle another way");
        })
        .ok()
}
