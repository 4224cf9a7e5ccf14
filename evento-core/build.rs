//! Exists only because cargo wants a build script beside the `links` key of the manifest.

fn main() {
    std::println!("cargo::rerun-if-changed=build.rs");
}
