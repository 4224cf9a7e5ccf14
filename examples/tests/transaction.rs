use std::process::Command;

#[test]
fn a_failed_attempt_leaves_nothing_behind_and_the_next_is_kept() {
    let run = Command::new(env!("CARGO_BIN_EXE_transaction")).output().unwrap();
    let printed = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{printed}\n{}", String::from_utf8_lossy(&run.stderr));
    assert!(printed.contains(r#"3 orders, spent: [("ada", 1550), ("bob", 700)]"#), "{printed}");
}
