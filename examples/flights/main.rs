//! A year of flights out of New York, appended to an event log and projected into a read model, in one SQLite file.
//!
//! The parts, in the order an event passes them: [`input`] reads it, [`event`] gives it its type, [`mod@import`] puts it into
//! the log, [`projector`] is handed it, [`read_model`] keeps what it changes, [`report`] prints the sums.

mod args;
mod checksum;
mod event;
mod import;
mod input;
mod projector;
mod read_model;
mod report;

use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Instant,
};

use clap::Parser as _;
use evento_core::{CheckpointMode, Component as _};
use evento_runtime::{Bundle, ConsumerExecutor, ConsumerStatus, shutdown_signal, store::SqliteStore};
use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::EnvFilter;

use crate::{
    args::Args,
    import::import,
    input::{Input, InputError},
    projector::{AIRCRAFT, AircraftLives, CHECKSUMS, CarrierTotals, Checksums, TOTALS},
    read_model::ReadModel,
    report::Work,
};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let Err(error) = run(&args).await else { return ExitCode::SUCCESS };
    // Nobody is left to tell where stderr is gone.
    drop(writeln!(io::stderr(), "error: {error:#}"));
    match () {
        () if error.is::<InputError>() => ExitCode::from(2),
        () if error.is::<Interrupted>() => ExitCode::from(130),
        () => ExitCode::FAILURE,
    }
}

async fn run(args: &Args) -> anyhow::Result<()> {
    let began = Instant::now();
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template("{wide_bar} {percent:>3} %")?);
    let input = Input::open(args.input.as_deref(), &bar)?;
    let database = args.database()?;
    let read_model = ReadModel::open(&database.path)?;
    let running = Bundle::builder("flights")
        .store(SqliteStore::at(&database.path))
        .executor(ConsumerExecutor::tasks(TOTALS, PERMITS[0]))
        .executor(ConsumerExecutor::partitioned(AIRCRAFT, PERMITS[1]))
        .executor(ConsumerExecutor::pooled(CHECKSUMS, PERMITS[2]))
        .checkpoint_mode(args.checkpoint.into())
        .provide(CarrierTotals { read_model: read_model.clone() })
        .provide(AircraftLives { read_model: read_model.clone() })
        .provide(Checksums { read_model: read_model.clone() })
        .start()
        .await?;

    let outcome = tokio::select! {
        outcome = import(&running, input) => outcome,
        () = shutdown_signal() => Err(Interrupted.into()),
    };
    let lives = |consumer: &ConsumerStatus| consumer.consumer.name == AircraftLives::NAME;
    let projected = running.consumers().into_iter().find(lives).map_or(0, |consumer| consumer.handled);
    running.shutdown().await?;
    bar.finish_and_clear();
    let work = Work { appended: outcome?, projected, took: began.elapsed(), at_risk: at_risk(args.checkpoint.into()) };

    let summary = read_model.summary()?;
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&summary)?)?;
    } else {
        writeln!(out, "{summary}\n{work}")?;
    }
    Ok(())
}

/// How many handlers each executor runs at once.
const PERMITS: [usize; 3] = [32, 16, 2];

/// How many events a kill may cost.
fn at_risk(mode: CheckpointMode) -> usize {
    if mode == CheckpointMode::OnStart { PERMITS.iter().sum() } else { 0 }
}

/// Somebody asked the process to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted; what is done is kept where `--db` names a file: run again to go on")]
struct Interrupted;
