//! The log through its public face: real files, real processes, disks that fail.

#![expect(
    clippy::disallowed_methods,
    reason = "tests damage, copy and compare the files of a log"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on is to fail"
)]

mod blobs;
mod crash;
mod disk;
mod editor;
mod fork;
mod history;
mod index;
mod jobs;
mod plan;
mod properties;
mod replay;
mod seeds;
mod state;
mod store;
mod support;
mod transfer;

#[test]
fn every_test_file_is_part_of_this_binary() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let this = std::fs::read_to_string(folder.join("main.rs")).unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").expect("only Rust files are here");
        assert!(
            module == "main" || this.contains(&format!("\nmod {module};\n")),
            "`{name}` is forgotten in main.rs"
        );
    }
}
