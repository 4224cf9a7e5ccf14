//! A process for tests to kill: one bundle on a SQLite file, whose handler does what the arguments say.
//!
//! `victim DB slow MS` handles each event in so many milliseconds, until a signal.
//! `victim DB stuck` never returns from a handler; its shutdown's budget is one second.
//! `victim DB abort NUMBER` aborts in the handler of that event; ends by itself when it has caught up.
//!
//! It prints `began N` and `handled N` for each event, and `ready` when it has started.

use std::{io::Write, pin::pin, task::Poll, time::Duration};

use anyhow::Context as _;
use evento_runtime::{Bundle, Settings, shutdown_signal, store::SqliteStore};
use evento_tests::probe::{Forever, Probe};

fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        std::process::exit(3);
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [db, mode, rest @ ..] = &args[..] else { anyhow::bail!("usage: victim DB slow MS | stuck | abort NUMBER") };
    let number: u64 = rest.first().map_or(Ok(0), |text| text.parse()).context("no number")?;
    let stuck = mode == "stuck";
    let aborts = mode == "abort";
    let probe = Probe::doing(move |call| async move {
        say(&format!("began {}", call.number));
        if stuck {
            std::future::pending::<()>().await;
        } else if !aborts {
            tokio::time::sleep(Duration::from_millis(number)).await;
        } else if call.number == number {
            std::process::abort();
        }
        say(&format!("handled {}", call.number));
        Ok(())
    });
    let shutdown_budget = Duration::from_secs(if stuck { 1 } else { 30 });
    let settings = Settings { shutdown_budget, poll: Duration::from_millis(50), ..Settings::default() };
    let mut signal = pin!(shutdown_signal());
    // It listens from its first poll on: before anything is said that a test waits for.
    let listening = std::future::poll_fn(|context| Poll::Ready(signal.as_mut().poll(context).is_ready())).await;
    anyhow::ensure!(!listening, "a signal came before the start");
    let bundle = Bundle::builder("victim").store(SqliteStore::at(db)).only_provided().settings(settings);
    let running = bundle.provide(Forever(probe)).start().await?;
    say("ready");
    if aborts {
        running.wait_until_caught_up(Duration::from_secs(60)).await?;
        running.shutdown().await?;
    } else {
        running.run_until(signal).await?;
    }
    Ok(())
}
