//! Two versions of the core crate in one graph would collect two registries: cargo refuses them.

use std::{fs, path::Path, process::Command};

/// The package section of the core crate's manifest, under another version and without what it inherits.
fn copy_of_core(version: &str) -> String {
    let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../evento-core/Cargo.toml")).unwrap();
    let (package, _) = manifest.split_once("\n\n").unwrap();
    let own = package.lines().filter(|line| !line.contains(".workspace"));
    own.chain([format!("version = \"{version}\"").as_str(), "edition = \"2024\""]).collect::<Vec<_>>().join("\n")
}

fn write_crate(folder: &Path, manifest: &str) {
    fs::create_dir_all(folder.join("src")).unwrap();
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    fs::write(folder.join("build.rs"), "fn main() {}\n").unwrap();
    fs::write(folder.join("src/lib.rs"), "").unwrap();
}

#[test]
fn two_versions_of_the_core_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_crate(&folder.path().join("old"), &copy_of_core("0.1.0"));
    write_crate(&folder.path().join("new"), &copy_of_core("0.2.0"));
    let application = "[package]\nname = \"shop\"\nedition = \"2024\"\n\n[dependencies]\n\
        old = { path = \"old\", package = \"evento-core\" }\n\
        new = { path = \"new\", package = \"evento-core\" }\n";
    write_crate(folder.path(), application);

    let check = Command::new(env!("CARGO")).args(["check", "--offline"]).current_dir(folder.path()).output().unwrap();

    let message = String::from_utf8(check.stderr).unwrap();
    assert!(!check.status.success(), "cargo took two versions of evento-core:\n{message}");
    assert!(message.contains("links to the native library `evento-core`"), "another refusal than `links`:\n{message}");
    assert!(message.contains("conflicts with a previous package"), "{message}");
}
