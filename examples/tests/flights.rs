use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use flate2::read::GzDecoder;
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

const EXPECTED: &str = include_str!("../data/expected-week1.json");

fn flights<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flights"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs on `db` in `folder`; the input is `lines`, or the built-in week.
fn run(folder: &Folder, lines: Option<&str>) -> Output {
    let mut command = flights(["--json", "--db"]);
    command.arg(folder.path("flights.db"));
    if let Some(lines) = lines {
        fs::write(folder.path("input.ndjson"), lines).unwrap();
        command.arg("--input").arg(folder.path("input.ndjson"));
    }
    command.output().unwrap()
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn appended(&self) -> i64 {
        query(&self.path("flights.db"), "SELECT count(*) FROM evento_event").unwrap()
    }

    fn projected(&self) -> i64 {
        query(&self.path("flights.db"), "SELECT sum(events) FROM aircraft_v1").unwrap()
    }
}

fn query(path: &Path, sql: &str) -> rusqlite::Result<i64> {
    Connection::open(path)?.query_row(sql, [], |row| row.get(0))
}

#[track_caller]
fn assert_week(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(printed, serde_json::from_str::<Value>(EXPECTED).unwrap());
}

/// The input is refused at `line`, for a cause that is told in these words.
#[track_caller]
fn assert_refused(output: &Output, line: usize, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(output.stdout, b"");
    assert!(said.contains(&format!("input.ndjson:{line}: ")), "{said}");
    for word in words {
        assert!(said.contains(word), "{word} is missing: {said}");
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn week() -> String {
    let compressed = include_bytes!("../data/flights-2013-week1.ndjson.gz");
    let mut lines = String::new();
    GzDecoder::new(&compressed[..]).read_to_string(&mut lines).unwrap();
    lines
}

/// The week, with something else in place of this line.
fn week_with(line: usize, text: &str) -> String {
    let mut lines = week().lines().map(str::to_owned).collect::<Vec<_>>();
    text.clone_into(&mut lines[line - 1]);
    lines.join("\n")
}

#[test]
fn the_week_comes_out_right_to_the_last_number_and_stdout_holds_nothing_else() {
    let output = flights(["--json"]).output().unwrap();
    assert_week(&output);
    assert_eq!(stderr(&output), "");
}

#[test]
fn without_json_tables_and_the_throughput_are_printed_and_no_bar_goes_into_a_pipe() {
    let output = flights([]).output().unwrap();
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(printed.contains("N14542") && printed.contains("18358"), "{printed}");
    assert!(printed.contains("12105 events appended, 12105 projected in "), "{printed}");
    assert!(printed.trim_end().ends_with("events per second"), "{printed}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn a_second_run_on_the_same_file_appends_and_counts_nothing_twice() {
    let folder = Folder::new();
    assert_week(&run(&folder, None));
    assert_week(&run(&folder, None));
    assert_eq!(folder.appended(), 12_105);
    let output = flights(["--db"]).arg(folder.path("flights.db")).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("0 events appended, 0 projected"), "{printed}");
}

#[test]
fn killed_at_any_moment_and_run_again_it_ends_with_the_same_numbers() {
    let folder = Folder::new();
    let mut counts = Vec::new();
    for after in [5, 15, 25, 40, 60, 80, 100, 150, 200, 250, 300, 350, 400, 450] {
        let mut child = flights(["--json", "--db"]).arg(folder.path("flights.db")).spawn().unwrap();
        #[expect(clippy::disallowed_methods, reason = "the moment of the kill is meant to be any")]
        thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
        child.wait().unwrap();
        if folder.path("flights.db").exists() {
            // Fails as long as there is no log yet.
            counts.extend(query(&folder.path("flights.db"), "SELECT count(*) FROM evento_event"));
        }
    }
    println!("events in the log after each kill: {counts:?}");
    assert!(counts.iter().any(|count| (1..12_105).contains(count)), "no kill came in the middle: {counts:?}");
    assert_week(&run(&folder, None));
    assert_eq!(folder.appended(), 12_105);
}

/// Under on-start a kill costs what was under way, which the closing table says, and nothing is handled twice.
#[test]
fn on_start_a_kill_costs_no_more_than_the_closing_table_says() {
    let folder = Folder::new();
    let on_start = |json: bool| {
        let mut command = flights(["--checkpoint", "on-start", "--db"]);
        command.arg(folder.path("flights.db")).env("RUST_LOG", "error").args(json.then_some("--json"));
        command
    };
    let mut kills = 0;
    for after in [60, 90, 120, 160, 200, 250] {
        let mut child = on_start(true).spawn().unwrap();
        #[expect(clippy::disallowed_methods, reason = "the moment of the kill is meant to be any")]
        thread::sleep(Duration::from_millis(after));
        child.kill().unwrap();
        kills += i64::from(!child.wait().unwrap().success());
    }
    let output = on_start(false).output().unwrap();
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(printed.contains("checkpoint on-start: each time the process was killed may have cost up to 50 events"));
    let of_flights = "SELECT count(*) FROM flight_v1";
    let checksums = query(&folder.path("flights.db"), "SELECT count(*) FROM checksum_v1").unwrap();
    let ended = query(&folder.path("flights.db"), "SELECT count(*) FROM evento_event WHERE name <> 'flight.departed'");
    for (all, kept, permits) in [
        (12_105, folder.projected(), 16),
        (12_105, checksums, 2),
        (ended.unwrap(), query(&folder.path("flights.db"), of_flights).unwrap(), 32),
    ] {
        assert!(kept <= all && all - kept <= kills * permits, "{kept} of {all} after {kills} kills");
    }
    // Without a kill it is exact.
    assert_week(&flights(["--checkpoint", "on-start", "--json"]).env("RUST_LOG", "error").output().unwrap());
}

#[test]
fn two_processes_on_one_file_end_with_the_same_numbers() {
    let folder = Folder::new();
    let [one, two] = [(); 2].map(|()| flights(["--json", "--db"]).arg(folder.path("flights.db")).spawn().unwrap());
    assert_week(&one.wait_with_output().unwrap());
    assert_week(&two.wait_with_output().unwrap());
    assert_eq!(folder.appended(), 12_105);
}

#[test]
fn a_malformed_line_is_named_what_came_before_stays_and_a_mended_file_is_taken_up() {
    let folder = Folder::new();
    let broken = week_with(2_500, r#"{"type":"flight.departed","aircraft":"N1"#);
    assert_refused(&run(&folder, Some(&broken)), 2_500, &["EOF while parsing a string (column 40)"]);
    assert_eq!(folder.appended(), 2_499);
    assert_eq!(folder.projected(), 2_499);
    assert_week(&run(&folder, Some(&week())));
}

#[test]
fn a_line_that_is_no_known_event_is_refused_like_a_malformed_one() {
    let folder = Folder::new();
    let broken = week_with(3, &week().lines().nth(2).unwrap().replace("flight.departed", "flight.diverted"));
    assert_refused(&run(&folder, Some(&broken)), 3, &["unknown event type `flight.diverted`", "`flight.departed`"]);
    let broken = week_with(3, r#"{"type":"flight.departed","aircraft":"N1","at":"","data":{"flight":"UA1"}}"#);
    assert_refused(&run(&folder, Some(&broken)), 3, &["missing field `scheduled`"]);
    let broken = week_with(3, &week().lines().nth(2).unwrap().replace("\"N619AA\"", "\"\""));
    assert_refused(&run(&folder, Some(&broken)), 3, &["aggregate id"]);
    let broken = week_with(3, "");
    assert_refused(&run(&folder, Some(&broken)), 3, &["the line is empty"]);
    assert_eq!(folder.appended(), 2);
}

#[test]
fn a_line_that_changes_what_was_appended_is_named() {
    let folder = Folder::new();
    assert_week(&run(&folder, None));
    let altered = week_with(7_007, &week().lines().nth(7_006).unwrap().replace("\"N", "\"M"));
    assert_refused(&run(&folder, Some(&altered)), 7_007, &["taken by a different event"]);
    assert_week(&run(&folder, None));
}

#[test]
fn a_line_that_is_there_twice_counts_once() {
    let folder = Folder::new();
    let week = week();
    let first = week.lines().next().unwrap();
    assert_week(&run(&folder, Some(&format!("{first}\n{week}"))));
}

#[test]
fn what_cannot_be_read_or_opened_is_told_with_the_cure() {
    let folder = Folder::new();
    let input = |path: &str| flights(["--input"]).arg(folder.path(path)).output().unwrap();
    let output = input("nothing.ndjson");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("name a file of events with `--input`"), "{}", stderr(&output));

    fs::write(folder.path("plain.ndjson.gz"), week()).unwrap();
    let output = input("plain.ndjson.gz");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("plain.ndjson.gz:1: the file cannot be read on"), "{}", stderr(&output));

    let whole = include_bytes!("../data/flights-2013-week1.ndjson.gz");
    fs::write(folder.path("half.ndjson.gz"), &whole[..whole.len() / 2]).unwrap();
    let output = input("half.ndjson.gz");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("half.ndjson.gz:"), "{}", stderr(&output));

    fs::write(folder.path("no.db"), "not a database, however long this text may be".repeat(100)).unwrap();
    for db in ["no.db", "no/such/folder.db", ""] {
        let output = flights(["--db"]).arg(folder.path(db)).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("with `--db`"), "{}", stderr(&output));
    }
    assert_eq!(flights(["--jsno"]).output().unwrap().status.code(), Some(2));
    let output = flights(["--checkpoint", "on-strat"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'on-start'"), "{}", stderr(&output));
}
