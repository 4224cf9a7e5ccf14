use std::process::Command;

const SOURCE: &str = include_str!("../quickstart.rs");

#[test]
fn the_readme_quotes_the_quickstart_word_for_word() {
    let readme = include_str!("../../README.md");
    assert!(readme.contains(&format!("```rust\n{SOURCE}```\n")), "quote examples/quickstart.rs in README.md");
    assert!(SOURCE.lines().count() <= 60);
}

#[test]
fn the_quickstart_reads_its_own_writes() {
    let output = Command::new(env!("CARGO_BIN_EXE_quickstart")).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(printed.starts_with("{\"ada\": 1550, \"bob\": 700}\n"), "{printed}");
}
