//! Batch by batch: into the log, then into the read model.
//!
//! Consumers run while others append, so none of this waiting is needed for the result. It keeps two writers of one file
//! out of each other's way, and tells of a failure where it happens.

use std::{mem, thread, time::Duration};

use anyhow::{Context as _, ensure};
use evento_core::store::{AppendError, Expected};
use evento_runtime::{Log, Running, WaitError};
use tokio::sync::mpsc;

use crate::{
    input::{Input, InputError, Numbered},
    projector::{AircraftLives, CarrierTotals, Checksums},
};

const BATCH: usize = 1_000;

type Batch = Vec<Numbered>;

/// Brings everything up to the input's first error into the read model; answers how many events were new to the log.
pub(crate) async fn import(running: &Running, input: Input) -> anyhow::Result<usize> {
    let name = input.name().to_owned();
    // Memory holds this many batches, whatever the input's size.
    let (batches, mut received) = mpsc::channel(2);
    // Reading blocks, on a pipe for as long as it likes: a thread that a stop need not wait for.
    thread::Builder::new().name("input".to_owned()).spawn(move || read_all(input, &batches))?;
    let mut appended = 0;
    while let Some(batch) = received.recv().await {
        appended += append(&running.log(), &name, batch?).await?;
        project(running).await?;
    }
    let dead = running.dead_events::<AircraftLives>()?.depth().await?
        + running.dead_events::<CarrierTotals>()?.depth().await?
        + running.dead_events::<Checksums>()?.depth().await?;
    ensure!(dead == 0, "{dead} events in the log are of no use to this version, and the sums lack them");
    Ok(appended)
}

fn read_all(input: Input, batches: &mpsc::Sender<Result<Batch, InputError>>) {
    let mut batch = Batch::new();
    let mut failed = None;
    for read in input {
        match read {
            Ok(event) => batch.push(event),
            Err(error) => failed = Some(error),
        }
        if batch.len() == BATCH && batches.blocking_send(Ok(mem::take(&mut batch))).is_err() {
            return;
        }
    }
    // What came before the error goes first. Who no longer listens has stopped, and wants neither.
    drop(batches.blocking_send(Ok(batch)));
    if let Some(error) = failed {
        drop(batches.blocking_send(Err(error)));
    }
}

/// Appends a batch, and answers how many of its events were new.
async fn append(log: &Log, input: &str, mut batch: Batch) -> anyhow::Result<usize> {
    match log.append(Expected::Any, batch.iter().map(|numbered| numbered.event.clone())).await {
        Ok(appended) => return Ok(appended.appended),
        // The input has grown, or was mended, since it was read last.
        Err(AppendError::PartlyKnown { known }) => {
            let mut place = 0..;
            batch.retain(|_| place.next().is_none_or(|place| known.binary_search(&place).is_err()));
        }
        // An event differs from the one that has its id: the loop below finds its line.
        Err(AppendError::Altered { .. }) => {}
        Err(error) => return Err(error).context("the events cannot be appended"),
    }
    let mut new = 0;
    for Numbered { line, event } in batch {
        match log.append(Expected::Any, [event]).await {
            Ok(appended) => new += appended.appended,
            Err(error @ AppendError::Altered { .. }) => {
                return Err(InputError { place: format!("{input}:{line}"), cause: error.into() }.into());
            }
            Err(error) => return Err(error).context("the events cannot be appended"),
        }
    }
    Ok(new)
}

/// Waits until all that is in the log is in the read model.
async fn project(running: &Running) -> anyhow::Result<()> {
    while let Err(error) = running.wait_until_caught_up(Duration::from_secs(1)).await {
        let WaitError::Behind { behind, .. } = &error else { return Err(error.into()) };
        // The framework would go on trying; whoever sits in front of a command line wants to know.
        if behind.iter().filter_map(|consumer| consumer.failing.as_ref()).any(|failing| failing.attempts >= 3) {
            return Err(error).context("the read model cannot be brought up to date; mend the cause and run again");
        }
    }
    Ok(())
}
