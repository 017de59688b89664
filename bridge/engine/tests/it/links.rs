//! Case R117: a URI that we make names the same file again, whatever its name.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use proptest::prelude::*;
use terret_engine::input::{file_path, file_uri};

/// Any bytes that a file name may hold.
fn file_name() -> impl Strategy<Value = OsString> {
    prop::collection::vec(
        any::<u8>().prop_filter("no name holds these", |byte| *byte != 0 && *byte != b'/'),
        1..40,
    )
    .prop_map(OsString::from_vec)
    .prop_filter("not a folder's own names", |name| {
        name != "." && name != ".."
    })
}

proptest! {
    #[test]
    fn r117_a_uri_of_ours_opens_the_file_it_was_made_for(name in file_name()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(&name);
        std::fs::write(&path, "found").unwrap();
        let uri = file_uri(&path);
        prop_assert!(uri.is_ascii());
        let back = file_path(&uri).unwrap();
        prop_assert_eq!(&back, &path);
        prop_assert_eq!(std::fs::read_to_string(back).unwrap(), "found");
    }
}

#[test]
fn r117_names_that_mean_something_in_a_uri_are_encoded() {
    for name in ["a b", "50%", "a#b", "a?b", "é", "new\nline", "%2F"] {
        let path = std::path::Path::new("/tmp").join(name);
        assert_eq!(file_path(&file_uri(&path)), Some(path));
    }
}

#[test]
fn bare_paths_and_hosts_are_read_and_others_are_not() {
    for (uri, expected) in [
        ("/plain/path", Some("/plain/path")),
        ("file:///a%20b", Some("/a b")),
        ("file://localhost/a", Some("/a")),
        ("file:///a.rs#L10", Some("/a.rs")),
        ("file://elsewhere/a", None),
        ("https://example.com/a", None),
        ("relative", None),
    ] {
        assert_eq!(
            file_path(uri).as_deref(),
            expected.map(std::path::Path::new),
            "{uri}"
        );
    }
}
