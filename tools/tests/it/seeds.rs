//! The fuzzer's checks, held to its seeds and to random edits by the ordinary tests.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the shared checks fail by panicking"
)]

#[path = "../../../fuzz/checks/edit_match.rs"]
mod check;

use proptest::prelude::*;

#[test]
fn every_seed_of_the_edit_fuzzer_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/edit_match");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the seeds") {
        check::any_bytes(&std::fs::read(entry.expect("a seed").path()).expect("its bytes"));
        count += 1;
    }
    assert!(count >= 10, "seeds are missing");
}

proptest! {
    #[test]
    fn random_edits_hold(all in any::<bool>(), file in "[ab\r\n\u{e9}\u{1f600}]{0,20}", old in "[ab\r\n]{1,3}", new in "[ab\r\n]{0,3}") {
        let data = [&[u8::from(all)], file.as_bytes(), b"\xFF\0", old.as_bytes(), b"\xFF\0", new.as_bytes()].concat();
        check::any_bytes(&data);
    }
}
