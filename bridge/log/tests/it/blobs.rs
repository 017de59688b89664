//! Content by hash.

use std::time::Duration;

use terret_log::{BlobError, BlobId, FileChange, MAX_BLOB_BYTES, Payload};

use crate::support::*;

#[test]
fn equal_content_is_kept_once_under_its_hash() {
    let home = home();
    let blobs = home.store.blobs();
    let first = blobs.put(b"same").unwrap();
    assert_eq!(first, blobs.put(b"same").unwrap());
    assert_eq!(first, BlobId::of(b"same"));
    assert_eq!(blobs.get(&first).unwrap(), b"same");
    assert_eq!(blobs.get(&blobs.put(b"").unwrap()).unwrap(), b"");
    assert!(blobs.contains(&first) && !blobs.contains(&BlobId::of(b"other")));
}

#[test]
fn a_missing_torn_or_changed_blob_is_said_and_written_anew() {
    let home = home();
    let blobs = home.store.blobs();
    let id = BlobId::of(b"content");
    assert!(matches!(blobs.get(&id), Err(BlobError::Missing { .. })));
    blobs.put(b"content").unwrap();
    let path = home
        .store
        .root()
        .join("blobs")
        .join(&id.as_str()[..2])
        .join(id.as_str());
    std::fs::write(&path, b"con").unwrap();
    assert!(matches!(blobs.get(&id), Err(BlobError::Damaged { .. })));
    blobs.put(b"content").unwrap();
    assert_eq!(blobs.get(&id).unwrap(), b"content");
}

#[test]
fn a_blob_over_the_limit_is_refused() {
    let home = home();
    let error = home
        .store
        .blobs()
        .put(&vec![0; usize::try_from(MAX_BLOB_BYTES).unwrap() + 1])
        .unwrap_err();
    assert!(matches!(error, BlobError::TooLarge { .. }), "{error}");
}

#[test]
fn an_id_that_is_no_hash_is_refused() {
    for bad in [
        "",
        "ab",
        "../../etc/passwd",
        &"g".repeat(64),
        &"A".repeat(64),
        &"a".repeat(65),
    ] {
        assert!(bad.parse::<BlobId>().is_err(), "{bad}");
    }
}

#[test]
fn a_sweep_takes_only_what_is_old_and_not_wanted() {
    let home = home();
    let blobs = home.store.blobs();
    let (kept, gone) = (blobs.put(b"kept").unwrap(), blobs.put(b"gone").unwrap());
    assert_eq!(
        blobs.sweep(Duration::from_secs(3600), |_| false).unwrap(),
        0,
        "all of them are young"
    );
    assert_eq!(blobs.sweep(Duration::ZERO, |id| *id == kept).unwrap(), 1);
    assert!(blobs.contains(&kept) && !blobs.contains(&gone));
    let change = FileChange {
        path: "/a".into(),
        before: Some(kept.clone()),
        after: None,
    };
    home.session(
        "s",
        vec![Payload::FileChanged {
            call_id: "c".into(),
            change,
        }],
    );
    assert_eq!(home.store.sweep_blobs().unwrap(), 0);
}
