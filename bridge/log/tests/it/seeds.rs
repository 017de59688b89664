//! The fuzz target's check on the seeds that it starts from.

#[path = "../../../../fuzz/checks/import.rs"]
mod check;

#[test]
fn what_must_hold_for_any_import_holds_for_the_seeds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/import");
    let mut seeds = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        check::any_bytes(&std::fs::read(entry.unwrap().path()).unwrap());
        seeds += 1;
    }
    assert!(seeds >= 5);
}
