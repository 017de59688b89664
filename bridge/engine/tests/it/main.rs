//! The engine end to end: a scripted model, real tools in a temporary folder, the real log.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should stop at the place"
)]

terret_tools::own_helpers!();

mod harness;

mod approvals;
mod cancel;
mod commands;
mod escalation;
mod external_hooks;
mod faults;
mod invariant;
mod links;
mod notify;
mod policy;
mod races;
mod resume;
mod sandbox;
mod secrets;
mod sessions;
mod standing;
mod trust;
mod turns;
mod unattended;

/// A test file that nobody lists would never run.
#[test]
fn every_test_file_is_listed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "main") {
            assert!(
                main.contains(&format!("mod {module};")),
                "{name} is not listed in main.rs"
            );
        }
    }
}
