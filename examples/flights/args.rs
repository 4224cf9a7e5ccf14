//! The command line.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use evento_core::CheckpointMode;
use tempfile::TempDir;

/// Appends flights to an event log and projects them into a read model.
///
/// It can be stopped at any point, `kill -9` included: run it again on the same `--db`, and it goes on where it was.
#[derive(Debug, Parser)]
#[command(
    name = "flights",
    after_help = "Exit status: 0 done, 1 failed, 2 the command line or the input is at fault, 130 interrupted."
)]
pub(crate) struct Args {
    /// Events, one JSON object a line: `.ndjson`, or compressed, `.ndjson.gz` [default: a week of 2013, built in]
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// The SQLite file for log and read model, made if missing [default: a temporary file, removed at the end]
    #[arg(long, value_name = "PATH")]
    pub(crate) db: Option<PathBuf>,
    /// Print the result as JSON on stdout, and nothing else
    #[arg(long)]
    pub(crate) json: bool,
    /// What a `kill -9` may cost: nothing but repeated work, or events that are never handled [default: watermark]
    #[arg(long, value_name = "MODE", default_value = "watermark", hide_default_value = true)]
    pub(crate) checkpoint: Checkpoint,
}

/// When an event counts as done with.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Checkpoint {
    /// When it is started: after a kill none is handled twice, and those under way are lost
    OnStart,
    /// When it has been handled: after a kill none is lost, and those under way are handled again
    Watermark,
}

impl From<Checkpoint> for CheckpointMode {
    fn from(checkpoint: Checkpoint) -> Self {
        match checkpoint {
            Checkpoint::OnStart => Self::OnStart,
            Checkpoint::Watermark => Self::Watermark,
        }
    }
}

/// Where the database is; a temporary one is removed when this is dropped.
pub(crate) struct Database {
    pub(crate) path: PathBuf,
    // A folder of its own: SQLite keeps more files beside the one.
    _temporary: Option<TempDir>,
}

impl Args {
    pub(crate) fn database(&self) -> anyhow::Result<Database> {
        if let Some(path) = &self.db {
            return Ok(Database { path: path.clone(), _temporary: None });
        }
        let folder =
            TempDir::with_prefix("flights-").context("no temporary file can be made; name a file with `--db`")?;
        Ok(Database { path: folder.path().join("flights.db"), _temporary: Some(folder) })
    }
}
