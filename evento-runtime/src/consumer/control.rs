use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use evento_core::{Position, store::CommitError};
use tokio::sync::{mpsc, oneshot};

use super::StatusCell;

/// Asks a consumer that is busy to look up from its work, after the event in hand.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attention(Arc<AtomicBool>);

impl Attention {
    pub(crate) fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn given(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Something a consumer is told to do.
#[derive(Debug)]
pub(crate) enum Command {
    Pause(Reply),
    Resume(Reply),
    Reset { to: Position, reply: Reply },
}

impl Command {
    /// The consumer has stopped.
    pub(crate) fn refuse(self) {
        let (Self::Pause(reply) | Self::Resume(reply) | Self::Reset { reply, .. }) = self;
        reply.answer(Err(CommitError::Fenced));
    }
}

/// Where the outcome of a command goes; whoever asked may have stopped waiting.
#[derive(Debug)]
pub(crate) struct Reply(oneshot::Sender<Result<(), CommitError>>);

impl Reply {
    pub(crate) fn answer(self, outcome: Result<(), CommitError>) {
        drop(self.0.send(outcome));
    }
}

/// The other end of a consumer: how it stands, and what it can be told.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) status: Arc<StatusCell>,
    attention: Attention,
    commands: mpsc::Sender<Command>,
}

impl Control {
    pub(super) fn new(status: Arc<StatusCell>, attention: Attention, commands: mpsc::Sender<Command>) -> Self {
        Self { status, attention, commands }
    }

    pub(crate) fn attention(&self) -> &Attention {
        &self.attention
    }

    pub(crate) async fn pause(&self) -> Result<(), CommitError> {
        self.tell(Command::Pause).await
    }

    pub(crate) async fn resume(&self) -> Result<(), CommitError> {
        self.tell(Command::Resume).await
    }

    pub(crate) async fn reset(&self, to: Position) -> Result<(), CommitError> {
        self.tell(|reply| Command::Reset { to, reply }).await
    }

    async fn tell(&self, command: impl FnOnce(Reply) -> Command) -> Result<(), CommitError> {
        let (sender, outcome) = oneshot::channel();
        let sent = self.commands.send(command(Reply(sender))).await;
        self.attention.ask();
        if sent.is_err() {
            return Err(CommitError::Fenced);
        }
        outcome.await.unwrap_or(Err(CommitError::Fenced))
    }
}
