//! The connection as a peer sees it: bytes in, bytes out.
#![expect(
    clippy::disallowed_methods,
    reason = "tests read the seeds and the kernel's counters"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod asking;
mod ending;
mod json_rpc;
mod lanes;
mod limits;
mod noise;
mod properties;
mod seeds;
mod support;

/// A test file that is not named above would never run.
#[test]
fn every_test_file_is_part_of_this_binary() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    let main = std::fs::read_to_string(format!("{folder}/main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|extension| extension == "rs") && name != "main" {
            assert!(
                main.contains(&format!("mod {name};")),
                "tests/it/{name}.rs is not in main.rs"
            );
        }
    }
}
