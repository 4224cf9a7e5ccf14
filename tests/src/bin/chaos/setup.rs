//! What is tried, and how a child is told of it.

use std::{fmt, path::PathBuf, time::Duration};

use anyhow::Context;
use evento_core::CheckpointMode;
use evento_runtime::ConsumerExecutor;

/// The executor that the handlers name.
pub(crate) const EXECUTOR: &str = "work";

/// How many handlers may run at once.
pub(crate) const CAPACITY: usize = 8;

/// What runs the handlers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Executor {
    Tasks,
    Pooled,
    Partitioned,
    Inline,
}

/// A mode and an executor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Combination {
    pub(crate) mode: CheckpointMode,
    pub(crate) executor: Executor,
}

impl Combination {
    pub(crate) const ALL: [Self; 7] = [
        Self { mode: CheckpointMode::OnStart, executor: Executor::Tasks },
        Self { mode: CheckpointMode::OnStart, executor: Executor::Pooled },
        Self { mode: CheckpointMode::OnStart, executor: Executor::Partitioned },
        Self { mode: CheckpointMode::Watermark, executor: Executor::Tasks },
        Self { mode: CheckpointMode::Watermark, executor: Executor::Pooled },
        Self { mode: CheckpointMode::Watermark, executor: Executor::Partitioned },
        Self { mode: CheckpointMode::Watermark, executor: Executor::Inline },
    ];

    pub(crate) fn mode_name(self) -> &'static str {
        match self.mode {
            CheckpointMode::OnStart => "on-start",
            CheckpointMode::Watermark => "watermark",
        }
    }

    pub(crate) fn executor_name(self) -> &'static str {
        match self.executor {
            Executor::Tasks => "tasks",
            Executor::Pooled => "pooled",
            Executor::Partitioned => "partitioned",
            Executor::Inline => "inline",
        }
    }

    pub(crate) fn capacity(self) -> usize {
        if self.executor == Executor::Inline { 1 } else { CAPACITY }
    }

    /// Whether an aggregate's events are handled in their order.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(self.executor, Executor::Partitioned | Executor::Inline)
    }

    pub(crate) fn build(self) -> Option<ConsumerExecutor> {
        match self.executor {
            Executor::Tasks => Some(ConsumerExecutor::tasks(EXECUTOR, CAPACITY)),
            Executor::Pooled => Some(ConsumerExecutor::pooled(EXECUTOR, CAPACITY)),
            Executor::Partitioned => Some(ConsumerExecutor::partitioned(EXECUTOR, CAPACITY)),
            Executor::Inline => None,
        }
    }

    fn of(mode: &str, executor: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.mode_name() == mode && it.executor_name() == executor)
    }
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mode={} executor={}", self.mode_name(), self.executor_name())
    }
}

/// One process that consumes one log.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) folder: PathBuf,
    pub(crate) combination: Combination,
    /// Which process of this log, from 1.
    pub(crate) process: u32,
    pub(crate) seed: u64,
    /// How long its claim lasts.
    pub(crate) time_to_live: Duration,
}

impl Setup {
    pub(crate) fn database(&self) -> PathBuf {
        self.folder.join("log.db")
    }

    pub(crate) fn effects(&self) -> PathBuf {
        self.folder.join("effects")
    }

    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { folder, combination, process, seed, time_to_live } = self;
        vec![
            folder.display().to_string(),
            combination.mode_name().to_owned(),
            combination.executor_name().to_owned(),
            process.to_string(),
            seed.to_string(),
            time_to_live.as_millis().to_string(),
        ]
    }

    pub(crate) fn from_arguments(arguments: &[String]) -> anyhow::Result<Self> {
        let [folder, mode, executor, process, seed, time_to_live] = arguments else {
            anyhow::bail!("a consuming process is started by this program itself");
        };
        Ok(Self {
            folder: PathBuf::from(folder),
            combination: Combination::of(mode, executor).context("no such combination")?,
            process: process.parse()?,
            seed: seed.parse()?,
            time_to_live: Duration::from_millis(time_to_live.parse()?),
        })
    }
}
