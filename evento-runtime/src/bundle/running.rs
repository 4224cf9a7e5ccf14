use std::{any::TypeId, future::Future, sync::Arc, thread::JoinHandle};

use evento_core::{Component, Position, store::CommitError};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::{DeadEvents, Log, WaitError};
use crate::{
    ExecutorStatus,
    consumer::{ConsumerStatus, Control, Shared},
};

/// A bundle that runs.
///
/// [`Running::shutdown`] or [`Running::run_until`] end it in order. Where it is only dropped, its consumers are told to
/// stop and nobody waits for them: what they had not written is handled again after the next start.
#[derive(Debug)]
pub struct Running {
    pub(super) name: String,
    pub(crate) shared: Arc<Shared>,
    pub(super) members: Vec<Member>,
    pub(super) tasks: TaskTracker,
    pub(super) kick: Arc<Notify>,
    pub(super) keeper: Option<JoinHandle<()>>,
    /// A shutdown has ended.
    pub(super) ended: bool,
}

/// One consumer of a running bundle.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) type_id: TypeId,
    pub(super) control: Control,
}

impl Running {
    pub(super) fn new(
        name: String,
        shared: Arc<Shared>,
        members: Vec<Member>,
        tasks: TaskTracker,
        kick: Arc<Notify>,
        keeper: Option<JoinHandle<()>>,
    ) -> Self {
        Self { name, shared, members, tasks, kick, keeper, ended: false }
    }

    /// The bundle's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The event log, to append to.
    #[must_use]
    pub fn log(&self) -> Log {
        Log::new(Arc::clone(&self.shared.store))
    }

    /// How every consumer stands, by kind, name and context.
    #[must_use]
    pub fn consumers(&self) -> Vec<ConsumerStatus> {
        self.members.iter().map(|member| member.control.status.snapshot()).collect()
    }

    /// How every executor stands.
    #[must_use]
    pub fn executors(&self) -> Vec<ExecutorStatus> {
        self.shared.executors.iter().map(|executor| executor.status()).collect()
    }

    /// The dead events of a component, in the bundle's first context.
    ///
    /// # Errors
    /// [`WaitError::NoConsumer`] where the component is not part of the bundle.
    pub fn dead_events<T: Component>(&self) -> Result<DeadEvents, WaitError> {
        let member = self.of::<T>()?.remove(0);
        Ok(self.dead_events_of(member))
    }

    /// The dead events of a component in one context.
    ///
    /// # Errors
    /// [`WaitError::NoConsumer`] where the component is not part of the bundle, or does not consume that context.
    pub fn dead_events_in<T: Component>(&self, context: &str) -> Result<DeadEvents, WaitError> {
        let member =
            self.of::<T>()?.into_iter().find(|member| member.control.status.snapshot().consumer.context == context);
        member.map(|member| self.dead_events_of(member)).ok_or(WaitError::NoConsumer { component: T::NAME })
    }

    fn dead_events_of(&self, member: &Member) -> DeadEvents {
        let consumer = member.control.status.snapshot().consumer;
        DeadEvents::new(Arc::clone(&self.shared.store), consumer, Arc::clone(&self.kick))
    }

    /// Stops admission of a component's events, in every context. What runs settles normally.
    ///
    /// # Errors
    /// [`WaitError::NoConsumer`], [`WaitError::Stopped`].
    pub async fn pause<T: Component>(&self) -> Result<(), WaitError> {
        for member in self.of::<T>()? {
            member.control.pause().await.map_err(|_| member.stopped())?;
        }
        Ok(())
    }

    /// Admits a component's events again.
    ///
    /// # Errors
    /// [`WaitError::NoConsumer`], [`WaitError::Stopped`].
    pub async fn resume<T: Component>(&self) -> Result<(), WaitError> {
        for member in self.of::<T>()? {
            member.control.resume().await.map_err(|_| member.stopped())?;
        }
        Ok(())
    }

    /// Replays a component, in every context: everything after `to` is handled again, in a new generation.
    /// [`Position::BEGINNING`] replays everything.
    ///
    /// What runs settles first. Letters, retries and held aggregates after `to` are archived. Empty the read model
    /// before, with the component paused, unless its handlers overwrite what they find.
    ///
    /// # Errors
    /// [`WaitError::NoConsumer`], [`WaitError::Stopped`], [`WaitError::Reset`] where the store refused, or another
    /// process holds the claim.
    pub async fn reset<T: Component>(&self, to: impl Into<Position>) -> Result<(), WaitError> {
        let to = to.into();
        for member in self.of::<T>()? {
            member.control.reset(to).await.map_err(|source| match source {
                CommitError::Fenced => member.stopped(),
                source => {
                    WaitError::Reset { consumer: member.control.status.snapshot().consumer, source: Box::new(source) }
                }
            })?;
        }
        Ok(())
    }

    /// Runs until `signal` ends, then shuts down.
    ///
    /// # Errors
    /// As [`Running::shutdown`].
    pub async fn run_until<S: Future>(self, signal: S) -> Result<super::Drained, super::ShutdownError> {
        signal.await;
        self.shutdown().await
    }

    pub(super) fn of<T: Component>(&self) -> Result<Vec<&Member>, WaitError> {
        let members: Vec<_> = self.members.iter().filter(|member| member.type_id == TypeId::of::<T>()).collect();
        if members.is_empty() { Err(WaitError::NoConsumer { component: T::NAME }) } else { Ok(members) }
    }
}

impl Member {
    pub(super) fn stopped(&self) -> WaitError {
        WaitError::Stopped { consumer: self.control.status.snapshot().consumer }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            tracing::warn!(bundle = self.name, "dropped before a shutdown ended: what is not written is handled again");
            self.shared.stop.cancel();
            self.shared.cut.cancel();
            self.ask_attention();
            self.shared.keeper.stop();
            self.shared.executors.iter().for_each(|executor| executor.close());
        }
    }
}
