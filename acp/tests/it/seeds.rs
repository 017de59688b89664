//! The seeds of the fuzz target `wire`, and what it ever found, as ordinary tests.

#[path = "../../../fuzz/checks/wire.rs"]
mod wire;

#[test]
fn every_seed_of_the_wire_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/wire");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let seed = std::fs::read(&path).unwrap();
        let outcome = std::panic::catch_unwind(|| wire::any_bytes(&seed));
        assert!(outcome.is_ok(), "the seed {} fails", path.display());
        count += 1;
    }
    assert!(count >= 9, "the seeds are missing");
}
