#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

use super::paths::{absolute, real};

#[test]
fn a_path_is_made_absolute_by_its_names_alone() {
    let base = Path::new("/a/b");
    for (path, wanted) in [
        ("c", "/a/b/c"),
        ("../c", "/a/c"),
        ("./c/./d/..", "/a/b/c"),
        ("/x/../../y", "/y"),
        ("", "/a/b"),
    ] {
        assert_eq!(
            absolute(base, Path::new(path)),
            PathBuf::from(wanted),
            "{path}"
        );
    }
}

#[test]
fn a_chain_of_dangling_links_is_followed_to_its_end_and_not_for_ever() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let top = folder.path().canonicalize().expect("real");
    for number in 0..60 {
        std::os::unix::fs::symlink(format!("l{}", number + 1), top.join(format!("l{number}")))
            .expect("linked");
    }
    assert_eq!(real(&top.join("l30")).expect("it ends"), top.join("l60"));
    assert!(real(&top.join("l0")).is_err(), "more than 40 hops");
}
