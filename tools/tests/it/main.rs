//! Tests of the crate from outside.
#![expect(
    clippy::disallowed_methods,
    reason = "tests read the seeds and the list of their files"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

terret_tools::own_helpers!();

mod engine_death;
mod seeds;
mod zombies;

/// A test file that is not named above would never run.
#[test]
fn every_test_file_is_part_of_this_binary() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    let main = std::fs::read_to_string(format!("{folder}/main.rs")).expect("this file");
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let name = entry
            .expect("a file")
            .file_name()
            .to_string_lossy()
            .into_owned();
        let Some(module) = name.strip_suffix(".rs").filter(|module| *module != "main") else {
            continue;
        };
        assert!(
            main.contains(&format!("mod {module};")),
            "{name} is not named in main.rs"
        );
    }
}
