use std::{fs, process::Command};

#[test]
fn e18_a_misspelt_executor_ends_the_start_with_the_place_and_the_cure_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_misconfigured")).current_dir(folder.path()).output().unwrap();
    let report = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert_eq!(output.stdout, b"");
    let line = 1 + include_str!("../misconfigured.rs").lines().position(|line| line.contains("fn on_placed")).unwrap();
    let place = format!("misconfigured.rs:{line}");
    let parts =
        ["`OrderView`", "`on_placed`", &place, "`read-modle`", "`read-model`, `mail`", "did you mean `read-model`?"];
    for part in parts {
        assert!(report.contains(part), "{part} is missing: {report}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
