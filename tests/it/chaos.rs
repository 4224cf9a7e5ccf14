//! The chaos program, small: processes that are killed and started again until their logs are done.

use std::process::Command;

fn chaos(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_chaos")).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a promise is broken:\n{text}{errors}");
    text
}

/// Section 4.2: after `kill -9` watermark loses nothing, on-start repeats nothing, and order is kept.
#[test]
fn what_kills_cost_is_within_what_is_promised() {
    let text = chaos(&["--runs", "1"]);
    let lines: Vec<_> = text.lines().filter(|line| line.starts_with("mode=")).collect();
    assert_eq!(lines.len(), 7, "{text}");
    for line in lines {
        let promised = if line.starts_with("mode=watermark") { "lost=0 " } else { "repeated=0 " };
        assert!(line.contains(promised) && !line.contains("kills=0 ") && line.contains("broken=0"), "{text}");
    }
}

/// R27: a process that was frozen for longer than its claim lasts never runs two events of one key at once.
#[test]
fn r27_a_process_that_was_frozen_runs_no_key_twice_at_once() {
    let text = chaos(&["--runs", "1", "--freeze", "--mode", "watermark", "--executor", "partitioned"]);
    assert!(text.contains("lost=0 ") && text.contains("out_of_order=0 "), "{text}");
}
