//! The faces through their own wires: a scripted editor, a scripted model, and everything
//! real between them.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failed unwrap is a failed test"
)]

terret_engine::room::tools::own_helpers!();

mod approvals;
mod cancel;
mod conformance;
mod control;
mod editor_terminal;
mod files;
mod frames;
mod handshake;
mod options;
mod plan;
mod prompts;
mod quirks;
mod sessions;
mod slow;
mod stage;
mod terminal;

#[test]
fn every_test_file_is_a_module() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = std::fs::read_to_string(here.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(here).unwrap() {
        let path = entry.unwrap().path();
        let (Some(stem), Some("rs")) =
            (path.file_stem(), path.extension().and_then(|e| e.to_str()))
        else {
            continue;
        };
        let stem = stem.to_str().unwrap();
        assert!(
            stem == "main" || main.contains(&format!("mod {stem};")),
            "{stem}.rs is not tested"
        );
    }
}
