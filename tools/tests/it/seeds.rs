//! The fuzzer's checks, held to its seeds and to random edits by the ordinary tests.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "the shared checks fail by panicking"
)]

#[path = "../../../fuzz/checks/edit_match.rs"]
mod check;
#[path = "../../../fuzz/checks/screen.rs"]
mod screen;

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

#[test]
fn every_seed_of_the_screen_fuzzer_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/screen");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the seeds") {
        screen::any_bytes(&std::fs::read(entry.expect("a seed").path()).expect("its bytes"));
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

    #[test]
    fn random_output_holds(size in any::<u8>(), split in 0u8..9, pieces in proptest::collection::vec("(\\x1b\\[[?>!]?[0-9]{0,4}(;[0-9]{0,4}){0,2}[ !]?[@-~]|[ -~]{0,40}|\r\n|\\x1b[ -~]{1,2}|[\u{301}\u{65e5}\u{1f600}]{1,4})", 0..60)) {
        screen::any_bytes(&[&[size, split], pieces.concat().as_bytes()].concat());
    }
}
