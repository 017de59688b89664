//! What the fuzzer starts from, tried by the ordinary tests as well.

#[path = "../../../../fuzz/checks/sse.rs"]
mod check;

#[test]
fn every_seed_gives_the_same_events_however_split() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/sse");
    let mut tried = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        check::any_bytes(&std::fs::read(entry.unwrap().path()).unwrap());
        tried += 1;
    }
    assert!(tried >= 4);
}
