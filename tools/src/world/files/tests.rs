#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use tempfile::TempDir;

use super::{FileAccess, FileError, FileHook, FileOperation, Files};
use crate::pipeline::Veto;
use crate::testing::Bench;
use crate::world::{World, WorldError, WorldSettings};

#[test]
fn check_127_a_loop_of_links_is_denied() {
    let bench = Bench::new();
    symlink("b", bench.path("a")).expect("linked");
    symlink("a", bench.path("b")).expect("linked");
    symlink("self/x", bench.path("self")).expect("linked");
    for path in ["a", "a/x", "self", "self/y"] {
        let error = bench.world.resolve(path).expect_err("a loop").to_string();
        assert!(error.contains("circle"), "{error}");
    }
}

#[test]
fn check_128_no_workspace_grants_nothing_and_a_second_root_works() {
    let nothing = Files::new(Vec::new(), PathBuf::new(), &[], None, Vec::new());
    assert!(matches!(
        nothing.resolve(Path::new("/etc/hosts"), FileOperation::Read),
        Err(FileError::Outside { .. })
    ));
    let missing = World::new(WorldSettings {
        cwd: "/no/such/folder".into(),
        ..WorldSettings::default()
    });
    assert!(matches!(missing.err(), Some(WorldError::Root { .. })));
    let bench = Bench::new();
    let second = TempDir::new().expect("a folder");
    let path = second.path().join("x");
    assert!(bench.world.resolve(&path).is_err());
    bench
        .world
        .set_additional_directories(&[second.path().to_owned()])
        .expect("set");
    assert!(bench.world.resolve(&path).is_ok());
    assert!(
        bench
            .world
            .set_additional_directories(&["/no/such/folder".into()])
            .is_err()
    );
    assert!(
        bench.world.resolve(&path).is_ok(),
        "a failed change changed something"
    );
    bench.world.set_additional_directories(&[]).expect("set");
    assert!(bench.world.resolve(&path).is_err());
}

struct Refuses;

impl FileHook for Refuses {
    fn authorize(&self, access: FileAccess) -> Result<FileAccess, Veto> {
        if access.operation == FileOperation::Write {
            return Err(Veto("read only today".to_owned()));
        }
        // Sends reads elsewhere, which is to have no effect.
        Ok(FileAccess {
            path: "/etc/hosts".into(),
            ..access
        })
    }
}

#[test]
fn check_129_a_veto_denies_with_its_reason_and_a_rewritten_path_is_ignored() {
    let bench = Bench::with(|settings| settings.hooks.push(Arc::new(Refuses)));
    let files = bench.world.files();
    let error = files
        .resolve(Path::new("a"), FileOperation::Write)
        .expect_err("a veto")
        .to_string();
    assert!(error.ends_with("read only today"), "{error}");
    let real = files
        .resolve(Path::new("a"), FileOperation::Read)
        .expect("read");
    assert_eq!(
        real,
        bench.folder.path().canonicalize().expect("real").join("a")
    );
}

#[test]
fn our_own_folders_are_out_of_reach_and_scratch_is_read_only() {
    let bench = Bench::with(|settings| {
        let inside = settings.cwd.join("state");
        std::fs::create_dir_all(inside.join("scratch")).expect("a folder");
        settings.scratch = inside.join("scratch");
        settings.denied = vec![inside];
    });
    let files = bench.world.files();
    symlink("state", bench.path("alias")).expect("linked");
    for path in ["state/log", "alias/log", "state"] {
        for operation in [FileOperation::Read, FileOperation::Write] {
            assert!(
                matches!(
                    files.resolve(Path::new(path), operation),
                    Err(FileError::Ours { .. })
                ),
                "{path}"
            );
        }
    }
    let output = Path::new("state/scratch/out.txt");
    assert!(files.resolve(output, FileOperation::Read).is_ok());
    assert!(files.resolve(output, FileOperation::Write).is_err());
}

#[test]
fn files_that_run_code_later_are_protected() {
    let bench = Bench::new();
    std::fs::create_dir_all(bench.path(".git/hooks")).expect("a folder");
    symlink(".git/hooks/pre-commit", bench.path("innocent")).expect("linked");
    for path in [
        ".git/hooks/pre-commit",
        ".git/config",
        ".GIT/Config",
        "sub/.git/config",
        ".git/modules/a/hooks/x",
        ".git",
        ".terret/config.toml",
        ".mcp.json",
        "sub/.envrc",
        ".vscode/tasks.json",
        ".claude/settings.json",
        ".claude/hooks/check.sh",
        ".bashrc",
        "home/.zshrc",
        ".config/fish/config.fish",
        "a/../.git/config",
        "innocent",
    ] {
        assert!(bench.world.protection(path).is_some(), "{path}");
    }
    for path in [
        "src/main.rs",
        ".git/HEAD",
        ".gitignore",
        "config",
        ".vscode/settings.json",
        "hooks/x",
        "mcp.json",
    ] {
        assert!(bench.world.protection(path).is_none(), "{path}");
    }
}

#[test]
fn paths_are_shown_relative_and_as_the_editor_named_them() {
    let real = TempDir::new().expect("a folder");
    let place = TempDir::new().expect("a folder");
    let given = place.path().join("project");
    symlink(real.path(), &given).expect("linked");
    let world = World::new(WorldSettings {
        cwd: given.clone(),
        ..WorldSettings::default()
    })
    .expect("a world");
    assert_eq!(world.relative(given.join("src/a.rs")), "src/a.rs");
    assert_eq!(world.relative("src/../b.rs"), "b.rs");
    let resolved = world.resolve("src/a.rs").expect("inside");
    assert_eq!(
        resolved,
        real.path().canonicalize().expect("real").join("src/a.rs")
    );
    assert_eq!(world.files().as_given(&resolved), given.join("src/a.rs"));
}

/// A step in building a tree of links.
#[derive(Debug, Clone)]
enum Step {
    Folder(Vec<u8>),
    File(Vec<u8>),
    Link { at: Vec<u8>, to: Vec<u8>, kind: u8 },
}

fn names(parts: &[u8]) -> PathBuf {
    parts
        .iter()
        .map(|part| match part % 5 {
            3 => "..".to_owned(),
            4 => ".".to_owned(),
            name => format!("n{name}"),
        })
        .collect()
}

fn any_steps() -> impl Strategy<Value = Vec<Step>> {
    let path = || prop::collection::vec(0_u8..5, 1..4);
    let plain = || prop::collection::vec(0_u8..3, 1..4);
    prop::collection::vec(
        prop_oneof![
            plain().prop_map(Step::Folder),
            plain().prop_map(Step::File),
            (plain(), path(), 0_u8..4).prop_map(|(at, to, kind)| Step::Link { at, to, kind }),
        ],
        0..12,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_tree_of_links_leads_outside(steps in any_steps(), asked in prop::collection::vec(prop::collection::vec(0_u8..5, 1..5), 1..6)) {
        let top = TempDir::new().expect("a folder");
        let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
        std::fs::create_dir_all(&inside).expect("a folder");
        std::fs::create_dir_all(&outside).expect("a folder");
        for step in &steps {
            // A step that does not fit the tree so far is left out.
            let _ = match step {
                Step::Folder(at) => std::fs::create_dir_all(inside.join(names(at))),
                Step::File(at) => std::fs::write(inside.join(names(at)), "inside"),
                Step::Link { at, to, kind } => {
                    let target = match kind {
                        0 => names(to),
                        1 => inside.join(names(to)),
                        2 => outside.join(names(to)),
                        _ => Path::new("../outside").join(names(to)),
                    };
                    symlink(target, inside.join(names(at)))
                }
            };
        }
        // Building goes through the links as well; what counts is what comes after.
        std::fs::remove_dir_all(&outside).expect("removed");
        std::fs::create_dir_all(&outside).expect("a folder");
        std::fs::write(outside.join("n0"), "secret").expect("written");
        let bench = Bench::with(|settings| settings.cwd.clone_from(&inside));
        let real_inside = inside.canonicalize().expect("real");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        for path in &asked {
            let path = names(path);
            if let Ok(real) = bench.world.resolve(&path) {
                prop_assert!(real.starts_with(&real_inside), "{:?} leads to {:?}", path, real);
            }
            let _ = runtime.block_on(bench.world.files().store(&path, None, b"written".to_vec()));
            if let Ok(Some(loaded)) = runtime.block_on(bench.world.files().load(&path, FileOperation::Read)) {
                prop_assert_ne!(loaded.document.view(), "secret");
            }
        }
        prop_assert_eq!(std::fs::read_dir(&outside).expect("list").count(), 1, "something was made outside");
        prop_assert_eq!(std::fs::read(outside.join("n0")).expect("read"), b"secret");
    }
}
