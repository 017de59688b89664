//! Lists and holes, in a made-up home folder.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test makes its own files, and fails by panicking"
)]

use super::*;

fn home() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().canonicalize().unwrap().join("me");
    for name in [
        ".cargo/bin",
        ".cargo/registry",
        ".ssh",
        ".local/bin",
        ".local/share/private",
        "tools/node/bin",
        "tools/node/lib",
        "work",
    ] {
        std::fs::create_dir_all(home.join(name)).unwrap();
    }
    std::fs::write(home.join(".cargo/credentials.toml"), "").unwrap();
    std::fs::write(home.join(".gitconfig"), "[user]\n\tname = one\n").unwrap();
    (folder, home)
}

fn ground(home: &Path, path: &[&str]) -> Ground {
    let path = std::env::join_paths(path.iter().map(|part| home.join(part))).unwrap();
    Ground::of(|name| match name {
        "HOME" => Some(home.into()),
        "PATH" => Some(path.clone()),
        _ => None,
    })
}

fn holds(list: &[PathBuf], path: &Path) -> bool {
    list.iter().any(|one| path.starts_with(one))
}

#[test]
fn toolchains_on_the_path_are_read_with_what_lies_beside_them() {
    let (_folder, home) = home();
    let readable = ground(&home, &["tools/node/bin", ".local/bin", "."]).readable();
    for name in [
        ".cargo/bin/x",
        "tools/node/lib/x",
        ".local/bin/x",
        ".gitconfig",
    ] {
        assert!(holds(&readable, &home.join(name)), "{name}: {readable:?}");
    }
    for name in [
        ".ssh/id",
        "work/x",
        ".local/share/private/x",
        ".cargo/credentials.toml",
    ] {
        assert!(!holds(&readable, &home.join(name)), "{name}: {readable:?}");
    }
    assert!(holds(&readable, Path::new("/usr/bin/env")));
}

#[test]
fn naming_the_home_folder_or_the_disk_opens_neither() {
    let (_folder, home) = home();
    let mut ground = ground(&home, &["", ".."]);
    ground.path.push("/".into());
    ground.path.push("relative".into());
    ground.toolchains.push(("NVM_DIR", home.clone()));
    let readable = ground.readable();
    assert!(!holds(&readable, &home.join("work")), "{readable:?}");
    assert!(!readable.contains(&PathBuf::from("/")));
}

#[test]
fn settings_with_a_token_are_kept_back() {
    let (_folder, home) = home();
    let ground = ground(&home, &[]);
    let gitconfig = home.join(".gitconfig");
    assert!(!ground.secrets().contains(&gitconfig));
    for text in [
        "[http]\n\textraheader = AUTHORIZATION: basic x\n",
        "[url \"https://me:word@example.org/\"]\n",
    ] {
        std::fs::write(&gitconfig, text).unwrap();
        assert!(ground.secrets().contains(&gitconfig), "{text}");
    }
    std::fs::write(&gitconfig, "[url \"ssh://git@example.org/\"]\n# token\n").unwrap();
    assert!(!ground.secrets().contains(&gitconfig));
}

#[test]
fn a_folder_is_taken_apart_around_its_holes() {
    let (_folder, home) = home();
    let holes = [home.join(".ssh"), home.join(".cargo/credentials.toml")];
    let parts = carve(&home, &holes);
    assert!(holds(&parts, &home.join("work")) && holds(&parts, &home.join(".cargo/registry")));
    assert!(!holds(&parts, &holes[0]) && !holds(&parts, &holes[1]));
    assert!(carve(&holes[0], &holes).is_empty());
    assert_eq!(carve(&home.join("work"), &holes), [home.join("work")]);
}

#[test]
fn only_the_outermost_paths_are_kept() {
    let paths = ["/a/b", "/a", "/ab", "/a/b/c"].map(PathBuf::from);
    assert_eq!(outermost(paths), ["/a", "/ab"].map(PathBuf::from));
}

#[test]
fn links_on_the_way_are_found() {
    let (_folder, home) = home();
    std::fs::rename(home.join(".gitconfig"), home.join("work/gitconfig")).unwrap();
    std::os::unix::fs::symlink("work/gitconfig", home.join(".gitconfig")).unwrap();
    let ground = ground(&home, &[]);
    let readable = ground.readable();
    assert!(readable.contains(&home.join("work/gitconfig")));
    let links = ground.links(&readable);
    assert_eq!(
        links.get(&home.join(".gitconfig")),
        Some(&"work/gitconfig".into())
    );
}
