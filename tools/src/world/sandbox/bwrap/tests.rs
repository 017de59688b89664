//! What bubblewrap adds: protected files, private folders, and its own shapes.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test makes its own files, and fails by panicking"
)]

use std::process::Command;

use crate::testing::lacking;
use crate::world::sandbox::testing::{Place, Ran, find};
use crate::world::sandbox::{Reach, Sandbox};

/// A repository with hooks and configuration, as the root.
fn repository(place: &Place) {
    let git = |words: &[&str]| {
        let status = Command::new("git")
            .args(words)
            .current_dir(&place.root)
            .env("HOME", &place.home)
            .status()
            .unwrap();
        assert!(status.success(), "{words:?}");
    };
    git(&["init", "-q", "."]);
    git(&["config", "user.name", "one"]);
    git(&["config", "user.email", "one@example.org"]);
    std::fs::write(place.root.join("file"), "one\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "first"]);
}

fn in_bwrap(check: impl Fn(&Place, &dyn Sandbox)) {
    let place = Place::new();
    if let Some(bwrap) = place.needed_bwrap() {
        check(&place, &bwrap);
    }
}

fn fails(place: &Place, sandbox: &dyn Sandbox, script: &str) -> Ran {
    let ran = place.shell(sandbox, script);
    assert!(!ran.is_ok(), "{script}: {ran:?}");
    ran
}

#[test]
fn what_runs_code_later_is_read_only_and_cannot_be_moved_away() {
    in_bwrap(|place, bwrap| {
        repository(place);
        for (folder, name) in [
            (".terret", "config.toml"),
            (".vscode", "tasks.json"),
            (".claude/hooks", "check.sh"),
            (".", ".mcp.json"),
            (".", ".envrc"),
            (".", ".bashrc"),
        ] {
            std::fs::create_dir_all(place.root.join(folder)).unwrap();
            std::fs::write(place.root.join(folder).join(name), "kept").unwrap();
        }
        std::fs::remove_dir_all(place.root.join(".git/hooks")).unwrap();
        for script in [
            "echo no > .git/config",
            "git config core.fsmonitor evil",
            "mkdir -p .git/hooks; echo no > .git/hooks/pre-commit",
            "rm -rf .git/hooks; mkdir .git/hooks && echo no > .git/hooks/pre-commit",
            "mv .git elsewhere",
            "rm .git/config",
            "echo no > .terret/config.toml",
            "echo no > .terret/more",
            "mv .terret other",
            "rm -rf .terret; test ! -e .terret",
            "echo no > .vscode/tasks.json",
            "mv .vscode other",
            "echo no > .claude/hooks/check.sh",
            "mv .claude other",
            "echo no > .mcp.json",
            "rm -f .mcp.json",
            "echo no > new; mv new .envrc",
            "ln -f file .envrc",
            "echo no >> .bashrc",
        ] {
            fails(place, bwrap, script);
        }
        for name in [
            ".terret/config.toml",
            ".vscode/tasks.json",
            ".claude/hooks/check.sh",
            ".mcp.json",
            ".envrc",
            ".bashrc",
        ] {
            assert_eq!(
                std::fs::read_to_string(place.root.join(name)).unwrap(),
                "kept"
            );
        }
        let ran = place.shell(
            bwrap,
            "set -e; echo two >> file; git add -A; git commit -qm second; git status --porcelain; \
             git branch other; git tag v1; echo more > .vscode/settings.json; git log --oneline | wc -l",
        );
        assert_eq!((ran.code, ran.text.trim()), (Some(0), "2"), "{ran:?}");
    });
}

#[test]
fn a_worktree_and_a_submodule_commit_and_keep_their_configuration() {
    in_bwrap(|place, bwrap| {
        repository(place);
        let base = place.folder.path().canonicalize().unwrap();
        let worktree = base.join("worktree");
        let status = Command::new("git")
            .args(["worktree", "add", "-q"])
            .arg(&worktree)
            .current_dir(&place.root)
            .env("HOME", &place.home)
            .status()
            .unwrap();
        assert!(status.success());
        let reach = Reach {
            roots: vec![worktree.clone()],
            ..place.reach.clone()
        };
        let run = |script: &str| place.run_in(bwrap, &["bash", "-c", script], &reach, &worktree);
        let ran = run("set -e; echo two >> file; git commit -qam second; git status --porcelain");
        assert_eq!((ran.code, ran.text.as_str()), (Some(0), ""), "{ran:?}");
        let git = place.root.join(".git");
        for script in [
            "echo 'gitdir: /tmp' > .git".to_owned(),
            format!("echo no > {}/config", git.display()),
            format!("echo no > {}/hooks/post-commit", git.display()),
            format!("echo /tmp > {}/worktrees/worktree/commondir", git.display()),
        ] {
            let ran = run(&script);
            assert!(!ran.is_ok(), "{script}: {ran:?}");
        }
        // The repository's own files are not the worktree's.
        run(&format!("echo no > {}/file", place.root.display()));
        let file = std::fs::read_to_string(place.root.join("file")).unwrap();
        assert_eq!(file, "one\n");
    });
}

#[test]
fn a_git_file_that_nobody_answers_for_opens_no_folder() {
    in_bwrap(|place, bwrap| {
        std::fs::create_dir_all(place.outside.join("objects")).unwrap();
        std::fs::write(place.outside.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        std::fs::write(
            place.root.join(".git"),
            format!("gitdir: {}\n", place.outside.display()),
        )
        .unwrap();
        let script = format!("echo no > {}/made", place.outside.display());
        place.shell(bwrap, &script);
        assert!(!place.outside.join("made").exists());
    });
}

#[test]
fn temporary_folders_home_and_sockets_of_the_system_are_private() {
    in_bwrap(|place, bwrap| {
        let ran = place.shell(
            bwrap,
            "echo one > /tmp/terret-private; echo two > ~/.cache/made; echo three > /var/tmp/terret-private; \
             echo four > /dev/shm/terret-private; ls -A /run ~ | sort",
        );
        assert!(ran.is_ok(), "{ran:?}");
        assert!(!std::path::Path::new("/tmp/terret-private").exists());
        assert!(!std::path::Path::new("/dev/shm/terret-private").exists());
        assert!(!place.home.join(".cache/made").exists());
        assert!(place.reach.temporary.join("terret-private").exists());
        assert!(!ran.text.contains("dbus"), "{ran:?}");
        fails(place, bwrap, "echo no > /made");
        fails(place, bwrap, "echo no > /usr/made");
        fails(place, bwrap, "echo no > /etc/made");
        fails(place, bwrap, "echo no > /run/terret/terret-sandbox");
    });
}

/// What is not there when the command has ended must not look as if it had been kept.
#[test]
fn what_is_moved_out_of_the_workspace_is_refused_and_not_lost() {
    in_bwrap(|place, bwrap| {
        let root = place.home.join("work/here");
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("kept"), "kept").unwrap();
        let reach = Reach {
            roots: vec![root.clone()],
            ..place.reach.clone()
        };
        for script in [
            "mv kept ~/kept",
            "mv kept ../kept",
            "mkdir ../new",
            "mv kept ~",
        ] {
            let ran = place.run_in(bwrap, &["bash", "-c", script], &reach, &root);
            assert!(!ran.is_ok(), "{script}: {ran:?}");
            assert!(ran.text.contains("Read-only file system"), "{ran:?}");
            assert!(root.join("kept").exists(), "{script}");
        }
    });
}

#[test]
fn root_reads_no_passwords_of_the_system() {
    in_bwrap(|place, bwrap| {
        let ran = place.shell(bwrap, "cat /etc/shadow /etc/gshadow; true");
        assert!(!ran.text.contains("root:"), "{ran:?}");
    });
}

/// A server and its client in one program is what many tests are.
#[test]
fn a_private_loopback_serves_the_program_itself() {
    let place = Place::new();
    let Some(bwrap) = place.needed_bwrap() else {
        return;
    };
    if !bwrap.shape().private_network {
        lacking("no private network can be made");
        return;
    }
    let script = "import socket; s = socket.create_server(('127.0.0.1', 0)); \
                  c = socket.create_connection(s.getsockname()); a, _ = s.accept(); c.send(b'x'); print(a.recv(1))";
    let ran = place.run(&bwrap, &["/usr/bin/python3", "-c", script]);
    assert_eq!(ran.text.trim(), "b'x'", "{ran:?}");
}

#[test]
fn what_a_command_leaves_running_outlives_its_leader() {
    in_bwrap(|place, bwrap| {
        // Its end is the supervisor's affair, which must be able to name it.
        let ran = place.shell(
            bwrap,
            "(sleep 0.3; echo late > late) >/dev/null 2>&1 & echo leader",
        );
        assert_eq!(ran.text, "leader\n");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !place.root.join("late").exists() {
            assert!(std::time::Instant::now() < deadline);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
}

/// Containers often forbid a new `/proc`; the next shape is taken then.
#[test]
fn bubblewrap_inside_bubblewrap_is_found_by_probing() {
    let place = Place::new();
    let (Some(bwrap), Some(_)) = (find("bwrap"), place.needed_bwrap()) else {
        return;
    };
    let inner = |proc: &[&str]| {
        let mut outer = Command::new(&bwrap);
        outer.args([
            "--unshare-user",
            "--unshare-pid",
            "--dev-bind",
            "/",
            "/",
            "--proc",
            "/proc",
            "--",
        ]);
        outer
            .arg(&bwrap)
            .args(["--unshare-pid", "--ro-bind", "/", "/"]);
        outer
            .args(proc)
            .args(["--", "true"])
            .output()
            .unwrap()
            .status
            .success()
    };
    // Both are facts of this kernel; the ladder has a step for either.
    let shown = inner(&["--ro-bind", "/proc", "/proc"]);
    let private = inner(&["--proc", "/proc"]);
    assert!(
        shown || !private,
        "a shape of the ladder must work where any does"
    );
}
