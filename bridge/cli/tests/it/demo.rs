//! `terret demo`: what somebody who tries Terret sees first.

use crate::support::{Bench, Finished};

/// What the demo's project is left as: nothing.
fn nothing_is_left(shown: &str) {
    let folder = shown
        .split_whitespace()
        .find(|word| word.contains("terret-demo-"))
        .unwrap();
    assert!(!std::path::Path::new(folder).exists(), "{folder} is left");
}

fn went_well(finished: Finished) -> String {
    assert_eq!(finished.stderr, "");
    let shown = finished.ok();
    assert_eq!(shown.matches("> Some orders").count(), 1, "{shown}");
    // The check fails, the cause is found, and the check passes.
    let failing = shown
        .find("✗ sh check.sh (exit 1)\n  breakfast: wrong")
        .unwrap();
    let passing = shown.find("✓ sh check.sh\n  breakfast: right").unwrap();
    assert!(failing < passing, "{shown}");
    assert_eq!(shown.matches('✗').count(), 1, "{shown}");
    assert!(shown.contains("is right for both now"), "{shown}");
    assert!(shown.contains(" acp\n"), "{shown}");
    assert!(shown.contains("terret doctor"), "{shown}");
    nothing_is_left(&shown);
    shown
}

#[tokio::test]
async fn it_plays_without_a_person() {
    let bench = Bench::saying("never");
    let shown = went_well(bench.terret(&["demo", "--yes"]).await);
    assert!(!shown.contains("[y]"), "{shown}");
    // Nothing of the person's own is touched.
    assert_eq!(std::fs::read_dir(bench.home()).unwrap().count(), 0);
}

#[tokio::test]
async fn it_asks_a_person() {
    let bench = Bench::saying("never");
    let shown = went_well(bench.terret_fed(&["demo"], &"y\n".repeat(20)).await);
    assert!(
        shown.contains("? it runs a command\n    sh check.sh\n  [y] Allow once"),
        "{shown}"
    );
    assert!(!shown.contains("```"), "{shown}");
}

#[tokio::test]
async fn a_no_ends_it_in_peace() {
    let bench = Bench::saying("never");
    let finished = bench.terret_fed(&["demo"], &"n\n".repeat(20)).await;
    let shown = finished.ok();
    assert!(
        shown.contains("Nothing runs or changes without your word"),
        "{shown}"
    );
    assert!(shown.contains("✗ sh check.sh\n  you said no\n"), "{shown}");
    nothing_is_left(&shown);
}

#[tokio::test]
async fn the_end_of_the_keyboard_ends_it() {
    let bench = Bench::saying("never");
    let finished = bench.terret_fed(&["demo"], "").await;
    nothing_is_left(&finished.stdout);
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.code, Some(1), "{finished:?}");
    let end = "nobody answered; the session ends here";
    assert_eq!(finished.stdout.matches(end).count(), 1, "{finished:?}");
    assert!(!finished.stdout.contains("demo.jsonl"), "{finished:?}");
    assert!(finished.stdout.contains("--yes"), "{finished:?}");
}
