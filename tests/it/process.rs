//! What only a process that dies can show, on a SQLite file.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use evento_core::{
    EventId, NewEvent,
    store::{Append, DeadEvent, DeadFilter, DeadReason, Expected, OpenStore, Store, StoredConsumer},
};
use evento_runtime::store::SqliteStore;
use evento_tests::probe::happened;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

/// The longest anything here may take on a busy machine.
const LONG: Duration = Duration::from_secs(30);

struct Victim {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Victim {
    fn start(db: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_victim"));
        command.arg(db).args(args).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line, `None` after the last.
    async fn line(&mut self) -> Option<String> {
        timeout(LONG, self.lines.next_line()).await.expect("the victim says nothing").unwrap()
    }

    async fn says(&mut self, wanted: &str) {
        let mut said = Vec::new();
        while let Some(line) = self.line().await {
            if line == wanted {
                return;
            }
            said.push(line);
        }
        panic!("the victim ended without saying {wanted:?}: {said:?}");
    }

    async fn rest(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        while let Some(line) = self.line().await {
            rest.push(line);
        }
        rest
    }

    async fn kill(&mut self) {
        self.child.start_kill().unwrap();
        self.ended().await;
    }

    async fn terminate(&self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().await.unwrap().success());
    }

    async fn ended(&mut self) -> ExitStatus {
        timeout(LONG, self.child.wait()).await.expect("the victim does not end").unwrap()
    }
}

struct File {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl File {
    /// A new file with events 1 to `last`, each of an aggregate of its own.
    async fn with_events(last: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("victim.db");
        let file = Self { _dir: dir, path };
        let store = file.open().await;
        let events = (1..=last).map(|number| {
            let event = NewEvent::of(&happened(&format!("k{number}"), number)).unwrap();
            event.with_id(EventId::new(format!("e{number}")).unwrap())
        });
        store.append(Append { expected: Expected::Any, events: events.collect() }).await.unwrap();
        store.close().await;
        file
    }

    async fn open(&self) -> Arc<dyn Store> {
        SqliteStore::at(&self.path).open().await.unwrap()
    }

    /// The victim's consumer as stored, and its letters.
    async fn stored(&self) -> (StoredConsumer, Vec<DeadEvent>) {
        let store = self.open().await;
        let consumer = store.consumers("victim".to_owned()).await.unwrap().remove(0);
        let filter = DeadFilter { limit: 100, ..DeadFilter::default() };
        let letters = store.dead_events(consumer.consumer.clone(), filter).await.unwrap().letters;
        store.close().await;
        (consumer, letters)
    }
}

fn handled(lines: &[String]) -> Vec<u64> {
    lines.iter().filter_map(|line| line.strip_prefix("handled ")).map(|number| number.parse().unwrap()).collect()
}

/// R65: a signal, a handler under way: it completes, its checkpoint is saved, the exit status is 0.
#[tokio::test]
async fn r65_a_terminated_process_completes_its_handler_saves_the_checkpoint_and_exits_0() {
    let file = File::with_events(3).await;
    let mut victim = Victim::start(&file.path, &["slow", "1500"]);
    victim.says("began 1").await;
    victim.terminate().await;
    assert_eq!(victim.rest().await, ["handled 1"]);
    assert!(victim.ended().await.success());
    let (consumer, _) = file.stored().await;
    assert_eq!(consumer.frontier.minor(), 1);
    let mut next = Victim::start(&file.path, &["slow", "0"]);
    next.says("handled 3").await;
    next.terminate().await;
    next.ended().await;
}

/// R66: a handler that never returns: exit within the grace, with a status that tells, and the event comes again.
#[tokio::test]
async fn r66_a_terminated_process_with_a_stuck_handler_exits_within_its_budget_and_says_so() {
    let file = File::with_events(2).await;
    let mut victim = Victim::start(&file.path, &["stuck"]);
    victim.says("began 1").await;
    let began = Instant::now();
    victim.terminate().await;
    let status = victim.ended().await;
    assert_eq!(status.code(), Some(1));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let mut next = Victim::start(&file.path, &["slow", "0"]);
    next.says("handled 1").await;
    next.says("handled 2").await;
    next.kill().await;
}

/// Rule 2.2: after `kill -9` what was running comes again, nothing is lost, and the order stays.
#[tokio::test]
async fn rule_2_2_after_kill_9_what_was_running_is_handled_again_and_nothing_is_lost() {
    let file = File::with_events(12).await;
    let mut all = Vec::new();
    for (delay, until) in [("300", "began 3"), ("300", "began 5")] {
        let mut victim = Victim::start(&file.path, &["slow", delay]);
        let mut said = Vec::new();
        while let Some(line) = victim.line().await {
            let over = line == until;
            said.push(line);
            if over {
                break;
            }
        }
        victim.kill().await;
        all.push(handled(&said));
    }
    let mut last = Victim::start(&file.path, &["abort", "0"]);
    let said = last.rest().await;
    assert!(last.ended().await.success(), "{said:?}");
    all.push(handled(&said));
    // Each run begins at the first that the one before had not written, and goes on without a hole.
    for (before, after) in all.iter().zip(&all[1..]) {
        assert!(after[0] <= before.last().unwrap() + 1 && after[0] > before[0], "{all:?}");
        assert!(after.windows(2).all(|two| two[1] == two[0] + 1), "{all:?}");
    }
    assert_eq!(all[2].last(), Some(&12));
}

/// B85, rule 5.11: an event that kills the process in its handler is dead at the third recorded crash; it loops no
/// longer, and the events before and after it are handled.
#[tokio::test]
async fn b85_an_event_that_kills_the_process_is_dead_lettered_at_the_third_recorded_crash() {
    let file = File::with_events(4).await;
    let mut deaths = 0;
    let mut said = Vec::new();
    loop {
        let mut victim = Victim::start(&file.path, &["abort", "3"]);
        said.extend(victim.rest().await);
        if victim.ended().await.success() {
            break;
        }
        deaths += 1;
        assert!(deaths < 10, "it is handed over for ever");
    }
    // The first crash is unrecorded: nothing had died here before.
    assert_eq!(deaths, 4);
    let (consumer, letters) = file.stored().await;
    assert_eq!((letters.len(), letters[0].reason, letters[0].position.minor()), (1, DeadReason::KilledTheProcess, 3));
    assert_eq!(letters[0].reason.to_string(), "killed the process");
    assert_eq!(consumer.frontier.minor(), 4);
    // 1 and 2 had not been written when the process died first; their second handling was recorded.
    let handled = handled(&said);
    assert_eq!(handled, [1, 2, 1, 2, 4]);
}

/// Rule 8.2: two processes on one file: the second waits for the claim, and has it at once when the first is dead.
#[tokio::test]
async fn rule_8_2_a_second_process_waits_and_takes_a_dead_ones_claim_at_once() {
    let file = File::with_events(3).await;
    let mut first = Victim::start(&file.path, &["slow", "60000"]);
    first.says("began 1").await;
    let mut second = Victim::start(&file.path, &["slow", "0"]);
    second.says("ready").await;
    let silent = timeout(Duration::from_millis(1_500), second.lines.next_line()).await;
    assert!(silent.is_err(), "it did not wait: {silent:?}");
    let began = Instant::now();
    first.kill().await;
    second.says("handled 3").await;
    // Far below the time to live of 10 s.
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    second.kill().await;
}
