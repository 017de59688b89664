//! Which files are found, without mounting them; `bwrap` tests that it holds.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test makes its own files, and fails by panicking"
)]

use super::*;

fn tree(files: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for file in files {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }
    (folder, root)
}

#[test]
fn repositories_in_the_root_and_right_below_it_are_guarded() {
    let (_folder, root) = tree(&[
        ".git/config",
        ".git/HEAD",
        ".git/modules/a/b/HEAD",
        ".git/modules/a/b/config",
        ".git/worktrees/w/commondir",
        "other/.git/config",
        "other/.git/hooks/x",
        ".envrc",
    ]);
    let found = guarded(std::slice::from_ref(&root));
    for name in [
        ".git/config",
        ".git/modules/a/b/config",
        ".git/worktrees/w/commondir",
        "other/.git/config",
        "other/.git/hooks",
        ".envrc",
    ] {
        assert!(found.frozen.contains(&root.join(name)), "{name}: {found:?}");
    }
    assert!(found.absent.contains(&root.join(".git/hooks")));
    assert!(found.pinned.contains(&root.join("other/.git")));
    assert!(found.write.is_empty());
}

#[test]
fn a_link_guards_what_it_leads_to_and_never_leaves_the_root() {
    let (_folder, root) = tree(&["scripts/envrc"]);
    std::os::unix::fs::symlink("scripts/envrc", root.join(".envrc")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", root.join(".bashrc")).unwrap();
    std::os::unix::fs::symlink("/etc", root.join(".git")).unwrap();
    let found = guarded(std::slice::from_ref(&root));
    assert_eq!(found.frozen, [root.join("scripts/envrc")]);
    assert!(found.pinned.is_empty() && found.write.is_empty());
}

#[test]
fn submodules_are_read_from_their_list_and_must_lie_inside() {
    let (_folder, root) = tree(&[]);
    std::fs::write(
        root.join(".gitmodules"),
        "[submodule \"a\"]\n\tpath = deep/er/a\n[submodule \"b\"]\n\tpath = ../b\n[submodule \"c\"]\n\tpath = /c\n",
    )
    .unwrap();
    assert_eq!(submodules(&root), [PathBuf::from("deep/er/a")]);
}

#[test]
fn what_was_made_since_is_said_once() {
    let (_folder, root) = tree(&[".mcp.json"]);
    let unmade = Unmade::of(std::slice::from_ref(&root));
    assert!(unmade.made().is_empty());
    std::fs::create_dir_all(root.join(".git/hooks")).unwrap();
    std::fs::write(root.join(".envrc"), "").unwrap();
    std::fs::write(root.join(".mcp.json"), "more").unwrap();
    assert_eq!(unmade.made(), [".envrc", ".git"].map(PathBuf::from));
}
