//! The real binary, driven as people and editors drive it: by its standard streams, its
//! arguments, its files and signals.
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod approvals;
mod config;
mod crash;
mod demo;
mod ending;
mod environment;
mod inbox;
mod jobs;
mod nobody;
mod reach;
mod rules;
mod run;
mod secrets;
mod sessions;
mod streams;
mod support;
mod trust;
mod upgrade;
mod wire;

/// A file that is not named above would be no test at all.
#[test]
fn every_test_file_is_compiled() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        assert!(
            name == "main" || main.contains(&format!("mod {name};")),
            "{} is never compiled",
            path.display()
        );
    }
}
