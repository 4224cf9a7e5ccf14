//! Starts a consuming process, kills it at a random moment, and again, until its log is done.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use crate::{
    child::{CONSUMES, SUBCOMMAND},
    effect, log,
    random::Random,
    setup::{Combination, Setup},
    verdict::{Totals, judge},
};

/// After so many kills the process is let go on to its end.
const MOST_KILLS: u32 = 10;

/// A process that does not end by itself within this time has got stuck.
const PATIENCE: Duration = Duration::from_secs(90);

/// Writes a log, has it consumed to its end by processes that are killed, and judges what that left behind.
pub(crate) fn to_the_end(combination: Combination, seed: u64, freeze: bool) -> anyhow::Result<Totals> {
    let folder = tempfile::tempdir()?;
    let mut random = Random::new(seed ^ 0x51ed);
    let mut setup = Setup {
        folder: folder.path().to_owned(),
        combination,
        process: 1,
        seed,
        time_to_live: Duration::from_secs(if freeze { 2 } else { 10 }),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let events = runtime.block_on(log::write(&setup.database(), seed))?;
    let mut kills = 0;
    let clean = loop {
        let moment = Duration::from_millis(random.between(5, 200));
        let kill = match freeze {
            true if setup.process == 1 => Some(Blow::Freeze(moment)),
            false if kills < MOST_KILLS => Some(Blow::Kill(moment)),
            _ => None,
        };
        match process(&setup, kill)? {
            Ended::Killed => kills += 1,
            Ended::ByItself { clean } => break clean,
        }
        setup.process += 1;
    };
    let effects = effect::read(&setup.effects())?;
    // A claim that is lost may cost what a kill may.
    let mut totals = judge(combination, events, kills.max(u32::from(freeze)), &effects);
    if !clean {
        totals.broken.push("the last process did not end in order: stuck, or events were given up".to_owned());
    }
    if kills == 0 && !freeze {
        totals.broken.push("the log was done before the first kill".to_owned());
    }
    if !totals.broken.is_empty() {
        totals.broken.push(format!("seed {seed}, files in {}", folder.keep().display()));
    }
    Ok(totals)
}

/// What happens to the process, so long after its first handler began.
enum Blow {
    Kill(Duration),
    /// It is stopped for longer than its claim lasts, and goes on.
    Freeze(Duration),
}

enum Ended {
    Killed,
    ByItself { clean: bool },
}

fn process(setup: &Setup, blow: Option<Blow>) -> anyhow::Result<Ended> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(SUBCOMMAND)
        .args(setup.arguments())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().context("no output")?;
    let (tell, told) = mpsc::channel();
    let reader = thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if tell.send(line).is_err() {
                break;
            }
        }
    });
    let consumes = told.recv_timeout(PATIENCE);
    if consumes.as_deref() == Ok(CONSUMES) {
        match blow {
            Some(Blow::Kill(after)) => {
                pause(after);
                child.kill()?;
            }
            Some(Blow::Freeze(after)) => {
                pause(after);
                signal(&child, "STOP")?;
                pause(setup.time_to_live + Duration::from_millis(500));
                signal(&child, "CONT")?;
            }
            None => {}
        }
    }
    let Some(status) = ended(&mut child)? else {
        child.kill()?;
        child.wait()?;
        return Ok(Ended::ByItself { clean: false });
    };
    drop(reader.join());
    Ok(match status.code() {
        // Ended by a signal: ours.
        None => Ended::Killed,
        Some(code) => Ended::ByItself { clean: code == 0 },
    })
}

fn ended(child: &mut Child) -> anyhow::Result<Option<std::process::ExitStatus>> {
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        pause(Duration::from_millis(2));
    }
    Ok(None)
}

fn signal(child: &Child, name: &str) -> anyhow::Result<()> {
    let status = Command::new("kill").arg(format!("-{name}")).arg(child.id().to_string()).status()?;
    anyhow::ensure!(status.success(), "`kill -{name}` failed");
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "a program's own thread, whose business is to wait")]
fn pause(time: Duration) {
    thread::sleep(time);
}
