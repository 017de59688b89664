//! What must hold in every provider that works here, tried with real programs.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test makes its own files, and fails by panicking"
)]

mod session;

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::testing::{Place, Ran, find, needed};
use super::{Confinement, Network, Reach, Sandbox};
use crate::testing::lacking;
use crate::world::process::End;
use crate::world::shell::ShellCommand;
use crate::world::terminals::OpenTerminal;
use crate::world::{World, WorldSettings};

fn each(check: impl Fn(&Place, &dyn Sandbox)) {
    let place = Place::new();
    for provider in place.providers() {
        check(&place, provider.as_ref());
    }
}

fn assert_fails(ran: &Ran, sandbox: &dyn Sandbox) {
    assert!(!ran.is_ok(), "{}: {ran:?}", sandbox.name());
}

fn assert_ok(ran: &Ran, sandbox: &dyn Sandbox) {
    assert!(ran.is_ok(), "{}: {ran:?}", sandbox.name());
}

#[test]
fn the_root_and_the_temporary_folder_are_written_as_usual() {
    each(|place, sandbox| {
        let ran = place.shell(
            sandbox,
            "set -e; mkdir -p a/b; echo one > a/b/c; mv a/b/c a/d; ln -s d a/e; cat a/e; \
             echo two > $TMPDIR/t; cat $TMPDIR/t; echo $((1)) | tee >(cat >/dev/null) >/dev/null; \
             : > /dev/null; rm -r a",
        );
        assert_ok(&ran, sandbox);
        assert_eq!(ran.text, "one\ntwo\n", "{}", sandbox.name());
        assert_eq!(
            std::fs::read_to_string(place.reach.temporary.join("t")).unwrap(),
            "two\n"
        );
    });
}

#[test]
fn the_status_and_both_outputs_pass_through() {
    each(|place, sandbox| {
        let ran = place.shell(sandbox, "echo out; echo err >&2; exit 7");
        assert_eq!((ran.code, ran.text.as_str()), (Some(7), "out\nerr\n"));
        let killed = place.shell(sandbox, "kill -TERM $$");
        assert_ne!(killed.code, Some(0), "{}", sandbox.name());
    });
}

#[test]
fn check_126_nothing_outside_is_read_or_written() {
    each(|place, sandbox| {
        let outside = place.outside.display();
        std::fs::write(place.root.join("inside"), "in reach").unwrap();
        let link = place.root.join("link");
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&place.outside, &link).unwrap();
        let tries = [
            format!("cat {outside}/secret"),
            format!("echo no > {outside}/made"),
            format!("mkdir {outside}/made"),
            "cat ../elsewhere/secret".to_owned(),
            "echo no > ../made".to_owned(),
            "cat link/secret".to_owned(),
            "echo no > link/made".to_owned(),
            format!("ln -s {outside}/made dangling; echo no > dangling"),
            format!("ln {outside}/secret hard && cat hard"),
            format!("mv {outside}/secret taken"),
            format!("rm {outside}/secret"),
            format!("cat /proc/self/root{outside}/secret"),
            format!("cat /proc/1/root{outside}/secret"),
            format!("cat /proc/{}/root{outside}/secret", std::process::id()),
            format!("cat /proc/{}/cwd/Cargo.toml", std::process::id()),
            format!("cat /proc/{}/environ", std::process::id()),
            format!("exec 9< {outside}; cat /proc/self/fd/9/secret"),
            format!("echo no > {}-sibling", place.root.display()),
            "unshare -Urm true".to_owned(),
            "unshare -m true".to_owned(),
            format!("mount --bind {outside} . && cat secret"),
            "chroot / true".to_owned(),
        ];
        for script in tries {
            let ran = place.shell(sandbox, &script);
            // In a private folder of the same name a file can be made, which is no harm.
            assert!(sandbox.isolated() || !ran.is_ok(), "{script}: {ran:?}");
            assert!(!ran.text.contains("out of reach"), "{script}: {ran:?}");
            let _ = std::fs::remove_file(place.root.join("dangling"));
        }
        let base = place.folder.path();
        assert!(!base.join("made").exists() && !base.join("project-sibling").exists());
        assert_eq!(
            std::fs::read_to_string(place.outside.join("secret")).unwrap(),
            "out of reach"
        );
        let names: Vec<_> = std::fs::read_dir(&place.outside).unwrap().collect();
        assert_eq!(names.len(), 1, "{}: {names:?}", sandbox.name());
        std::fs::remove_file(&link).unwrap();
    });
}

#[test]
fn check_127_a_loop_of_links_fails_and_hangs_nothing() {
    each(|place, sandbox| {
        let ran = place.shell(sandbox, "ln -sf two one; ln -sf one two; cat one");
        assert_fails(&ran, sandbox);
    });
}

#[test]
fn check_128_a_second_root_works_and_a_folder_outside_both_does_not() {
    each(|place, sandbox| {
        let second = place.folder.path().canonicalize().unwrap().join("second");
        std::fs::create_dir_all(&second).unwrap();
        let reach = Reach {
            roots: vec![place.root.clone(), second.clone()],
            ..place.reach.clone()
        };
        let script = format!("echo yes > {}/made", second.display());
        let ran = place.run_in(sandbox, &["bash", "-c", &script], &reach, &place.root);
        assert_ok(&ran, sandbox);
        assert_eq!(std::fs::read(second.join("made")).unwrap(), b"yes\n");
        std::fs::remove_file(second.join("made")).unwrap();
        place.shell(sandbox, &script);
        assert!(!second.join("made").exists(), "{}", sandbox.name());
    });
}

#[test]
fn keys_of_the_home_folder_and_our_own_folders_are_never_read() {
    each(|place, sandbox| {
        let keys = [
            ".ssh/id_ed25519",
            ".aws/credentials",
            ".config/gh/hosts.yml",
            ".netrc",
            ".docker/config.json",
            ".cargo/credentials.toml",
            ".gnupg/secring.gpg",
            ".local/state/terret/log",
            ".cache/terret/other",
            "notes.txt",
        ];
        for key in keys {
            let path = place.home.join(key);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "out of reach").unwrap();
            let ran = place.run(sandbox, &["cat", path.to_str().unwrap()]);
            assert_fails(&ran, sandbox);
            assert!(!ran.text.contains("out of reach"), "{key}: {ran:?}");
        }
        // Settings are read, unless they hold a token.
        let npmrc = place.home.join(".npmrc");
        std::fs::write(&npmrc, "fund=false\n").unwrap();
        assert_ok(&place.shell(sandbox, "cat ~/.npmrc"), sandbox);
        std::fs::write(&npmrc, "//registry.example/:_authToken=word\n").unwrap();
        assert_fails(&place.shell(sandbox, "cat ~/.npmrc"), sandbox);
    });
}

#[test]
fn keys_stay_unread_when_the_home_folder_itself_is_the_root() {
    each(|place, sandbox| {
        std::fs::create_dir_all(place.home.join(".ssh")).unwrap();
        std::fs::create_dir_all(place.home.join("work")).unwrap();
        std::fs::write(place.home.join(".ssh/id"), "out of reach").unwrap();
        let reach = Reach {
            roots: vec![place.home.clone()],
            ..place.reach.clone()
        };
        let shell =
            |script: &str| place.run_in(sandbox, &["bash", "-c", script], &reach, &place.home);
        assert_ok(&shell("echo yes > work/made; cat work/made"), sandbox);
        for script in [
            "cat .ssh/id",
            "cat .local/state/terret/log",
            "echo no > .ssh/made",
        ] {
            let ran = shell(script);
            assert_fails(&ran, sandbox);
            assert!(!ran.text.contains("out of reach"), "{ran:?}");
        }
        assert!(!place.home.join(".ssh/made").exists());
    });
}

/// Connects with bash's own sockets to a port, or with Python to a path.
#[test]
fn a_closed_network_reaches_no_socket_outside_and_an_open_one_does() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    each(|place, sandbox| {
        let open = Reach {
            network: Network::Open,
            ..place.reach.clone()
        };
        let tcp = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        assert_fails(&place.shell(sandbox, &tcp), sandbox);
        let ran = place.run_in(sandbox, &["bash", "-c", &tcp], &open, &place.root);
        assert_ok(&ran, sandbox);
        let path = place.root.join("socket");
        let _ = std::fs::remove_file(&path);
        let _unix = UnixListener::bind(&path).unwrap();
        let connect = "import socket; socket.socket(socket.AF_UNIX).connect('socket')";
        // A pair of datagram sockets must not become a way to a path.
        let pair = "import socket; a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.connect('socket')";
        let stream =
            "import socket; a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'";
        assert_fails(
            &place.run(sandbox, &["/usr/bin/python3", "-c", connect]),
            sandbox,
        );
        assert_fails(
            &place.run(sandbox, &["/usr/bin/python3", "-c", pair]),
            sandbox,
        );
        assert_ok(
            &place.run(sandbox, &["/usr/bin/python3", "-c", stream]),
            sandbox,
        );
        let ran = place.run_in(
            sandbox,
            &["/usr/bin/python3", "-c", connect],
            &open,
            &place.root,
        );
        assert_ok(&ran, sandbox);
    });
}

#[test]
fn processes_outside_get_no_signal_and_cannot_be_traced() {
    each(|place, sandbox| {
        let mut sleeper = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = sleeper.id();
        assert_fails(&place.shell(sandbox, &format!("kill -KILL {pid}")), sandbox);
        assert!(sleeper.try_wait().unwrap().is_none());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        // Its own children are its own.
        assert_ok(
            &place.shell(sandbox, "sleep 60 & kill $!; wait; true"),
            sandbox,
        );
    });
}

/// Each call by its number, so that no library stands between.
#[test]
#[cfg(target_arch = "x86_64")]
fn calls_that_would_undo_the_sandbox_are_refused() {
    each(|place, sandbox| {
        let script = "
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
def call(n, *a):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(n), *[ctypes.c_long(x) for x in a])
    return ctypes.get_errno()
eperm = dict(ptrace=(101, 0), bpf=(321, 0), keyctl=(250, 0), mount=(165,), perf=(298, 0),
             userns=(272, 0x10000000), clone_user=(56, 0x10000000 | 17), setns=(308, 0), tiocsti=(16, 0, 0x5412, 0),
             userfaultfd=(323, 0), process_vm_readv=(310, 1), open_tree=(428, 0), pivot_root=(155,))
enosys = dict(io_uring=(425, 1, 0), clone3=(435, 0, 0), x32=(0x40000000 + 39,))
for name, args in eperm.items():
    assert call(*args) == errno.EPERM, name
for name, args in enosys.items():
    assert call(*args) == errno.ENOSYS, name
assert call(39) == 0
print('all')
";
        let ran = place.run(sandbox, &["/usr/bin/python3", "-c", script]);
        assert_eq!(ran.text, "all\n", "{}: {ran:?}", sandbox.name());
    });
}

#[test]
fn an_ordinary_commit_works() {
    each(|place, sandbox| {
        let _ = std::fs::remove_dir_all(place.root.join("repo"));
        let ran = place.shell(
            sandbox,
            "set -e; git init -q repo; cd repo; git config user.name one; \
             git config user.email one@example.org",
        );
        assert_ok(&ran, sandbox);
        let reach = Reach {
            roots: vec![place.root.join("repo")],
            ..place.reach.clone()
        };
        let cwd = place.root.join("repo");
        let script = "set -e; echo one > a; git add -A; git commit -qm first; git checkout -qb other; \
                      echo two >> a; git commit -qam second; git gc -q; git stash list; git log --oneline | wc -l; \
                      git status --porcelain";
        let ran = place.run_in(sandbox, &["bash", "-c", script], &reach, &cwd);
        assert_ok(&ran, sandbox);
        assert_eq!(ran.text.trim(), "2", "{}", sandbox.name());
    });
}

#[test]
fn cargo_builds_with_a_crate_of_the_registry_cache() {
    if needed("cargo").is_none() {
        return;
    }
    each(|place, sandbox| {
        let ran = place.shell(
            sandbox,
            "set -e; rm -rf small; cargo new -q --vcs none small; cd small; \
             echo 'cfg-if = \"1\"' >> Cargo.toml; \
             echo 'cfg_if::cfg_if! { if #[cfg(unix)] { fn main() { println!(\"built\") } } }' > src/main.rs; \
             CARGO_TARGET_DIR=target cargo run -q --offline",
        );
        assert_ok(&ran, sandbox);
        assert_eq!(ran.text.trim(), "built", "{}", sandbox.name());
    });
}

#[test]
fn npm_test_works() {
    if needed("npm").is_none() {
        return;
    }
    each(|place, sandbox| {
        std::fs::write(
            place.root.join("package.json"),
            r#"{"name":"a","version":"1.0.0","scripts":{"test":"node --test"}}"#,
        )
        .unwrap();
        std::fs::write(
            place.root.join("a.test.js"),
            "const { test } = require('node:test'); const { execFileSync } = require('node:child_process');\n\
             test('adds', () => { if (1 + 1 !== 2) throw new Error(); execFileSync('node', ['-e', '1']); });",
        )
        .unwrap();
        let ran = place.shell(sandbox, "npm test 2>&1");
        assert_ok(&ran, sandbox);
        assert!(ran.text.contains("pass 1"), "{}: {ran:?}", sandbox.name());
    });
}

#[test]
fn python_tests_work() {
    let Some(python) = needed("python3") else {
        return;
    };
    each(|place, sandbox| {
        std::fs::write(
            place.root.join("test_a.py"),
            "import subprocess, sys, tempfile, threading, unittest\n\
             class A(unittest.TestCase):\n    def test_a(self):\n        \
             with tempfile.TemporaryFile() as f: f.write(b'x')\n        \
             threading.Thread(target=int).start()\n        \
             subprocess.run([sys.executable, '-c', '1'], check=True)\n",
        )
        .unwrap();
        let ran = place.shell(
            sandbox,
            &format!(
                "{python} -m pytest -q test_a.py 2>/dev/null || {python} -m unittest test_a 2>&1",
                python = python.display()
            ),
        );
        assert_ok(&ran, sandbox);
    });
}

/// The whole way of a command: shell, supervisor, sandbox.
#[tokio::test(flavor = "multi_thread")]
async fn a_shells_command_runs_confined_and_its_leftovers_are_named_and_ended() {
    let place = Place::new();
    for sandbox in place.providers() {
        let (name, isolated) = (sandbox.name(), sandbox.isolated());
        std::fs::create_dir_all(place.root.join("sub")).unwrap();
        let world = World::new(WorldSettings {
            cwd: place.root.clone(),
            scratch: place.home.join(".cache/terret/outputs"),
            ..WorldSettings::default()
        })
        .unwrap();
        world.set_sandbox(Arc::from(sandbox));
        let run = async |command: String| {
            let command = ShellCommand {
                command,
                timeout: Duration::from_secs(60),
                roots: world.roots(),
                live: None,
                confinement: Confinement::default(),
            };
            let cancel = CancellationToken::new();
            let ran = world.shell().run(world.processes(), command, &cancel);
            ran.await.unwrap()
        };
        let first = run("cd sub; export CARRIED=yes; echo one".to_owned()).await;
        assert_eq!(first.finished.output.text, "one\n", "{name}: {first:?}");
        // New files that run code later are said, whoever may look at them next.
        let made = run("echo one > ../.envrc".to_owned()).await;
        let remarks = made.remarks.join("\n");
        let is_said = remarks.contains("`.envrc`") && remarks.contains("direnv");
        assert_eq!(is_said, isolated, "{made:?}");
        std::fs::remove_file(place.root.join(".envrc")).unwrap();
        let secret = place.outside.join("secret");
        let second = run(format!(
            "pwd; echo $CARRIED; echo two > $TMPDIR/t; cat $TMPDIR/t {}; sleep 300 & exit 3",
            secret.display()
        ))
        .await;
        let finished = &second.finished;
        assert_eq!(finished.end, End::Exited(3), "{name}: {second:?}");
        let text = &finished.output.text;
        let begins = format!("{}\nyes\ntwo\n", place.root.join("sub").display());
        assert!(text.starts_with(&begins), "{name}: {second:?}");
        assert!(!text.contains("out of reach"), "{name}: {second:?}");
        let left: Vec<&str> = finished
            .leftovers
            .iter()
            .map(|one| one.command.as_str())
            .collect();
        assert_eq!(left, ["sleep 300"], "{name}");
        assert!(finished.gone, "{name}: {second:?}");
        world.processes().shutdown().await;
    }
}

/// Root in a container, and an ordinary user, get the same.
#[test]
fn an_ordinary_user_is_confined_as_root_is() {
    if !rustix::process::geteuid().is_root() {
        // Every other test of this file is this one then.
        return;
    }
    let Some(setpriv) = needed("setpriv") else {
        return;
    };
    let place = Place::new();
    let nobody = 65534;
    for path in [&place.root, &place.home, &place.reach.temporary] {
        std::os::unix::fs::chown(path, Some(nobody), Some(nobody)).unwrap();
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.folder.path(), open).unwrap();
    // The helper must be a file that somebody else can run.
    let helper = place.folder.path().join(super::order::HELPER);
    std::fs::copy("/proc/self/exe", &helper).unwrap();
    let mut ground = place.ground.clone();
    // Root's own toolchains are nobody else's.
    ground.toolchains.clear();
    ground.path = vec!["/usr/bin".into(), "/bin".into()];
    let as_nobody = |program: &std::path::Path, argv: &[std::ffi::OsString]| {
        std::process::Command::new(&setpriv)
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(program)
            .args(argv.iter().skip(1))
            .current_dir(&place.root)
            .env("HOME", &place.home)
            .output()
            .unwrap()
    };
    let secret = place.outside.join("secret");
    let script = format!("echo yes > made; cat made {}", secret.display());
    let request = |argv: Vec<std::ffi::OsString>| super::SandboxRequest {
        argv,
        cwd: place.root.clone(),
        reach: place.reach.clone(),
        tty: false,
    };
    let argv: Vec<std::ffi::OsString> = ["bash", "-c", &script].map(Into::into).to_vec();
    if super::confine::landlock_version() > 0 {
        let landlock = super::landlock::LandlockSandbox::new(ground.clone(), helper.clone());
        let wrapped = landlock.wrap(request(argv.clone())).unwrap();
        let output = as_nobody(&helper, &wrapped.argv);
        assert_eq!(output.stdout, b"yes\n", "{output:?}");
    }
    let Some(bwrap) = needed("bwrap") else {
        return;
    };
    // Bubblewrap's own view of an ordinary user: it needs user namespaces there.
    let works = as_nobody(
        &bwrap,
        &["", "--ro-bind", "/", "/", "--unshare-pid", "true"].map(Into::into),
    );
    if !works.status.success() {
        // A container may keep them from users: nothing is said then of an own fault.
        let unshare = needed("unshare").unwrap();
        let alone = as_nobody(&unshare, &["", "-Ur", "true"].map(Into::into));
        assert!(!alone.status.success(), "user namespaces work: {works:?}");
        lacking("the kernel lets no ordinary user have a user namespace");
        return;
    }
    let Some(shape) = place.needed_bwrap().map(|found| found.shape()) else {
        return;
    };
    // Root's try left folders there that are root's alone.
    std::fs::remove_dir_all(&place.reach.temporary).unwrap();
    std::fs::create_dir(&place.reach.temporary).unwrap();
    std::os::unix::fs::chown(&place.reach.temporary, Some(nobody), Some(nobody)).unwrap();
    let sandbox = super::bwrap::BwrapSandbox::new(bwrap.clone(), shape, ground, helper.clone());
    let wrapped = sandbox.wrap(request(argv)).unwrap();
    // What root adds for itself, and where its own binary lies, are not a user's.
    let own = std::env::current_exe().unwrap().canonicalize().unwrap();
    let mut argv: Vec<std::ffi::OsString> = Vec::new();
    let mut words = wrapped.argv.into_iter();
    while let Some(word) = words.next() {
        if word == "--cap-add" {
            words.next();
        } else if word == own {
            argv.push(helper.clone().into());
        } else {
            argv.push(word);
        }
    }
    let output = as_nobody(&bwrap, &argv);
    assert_eq!(output.stdout, b"yes\n", "{output:?}");
}

#[test]
fn what_this_kernel_has_is_said() {
    let place = Place::new();
    let names: Vec<_> = place
        .providers()
        .iter()
        .map(|provider| (provider.name(), provider.isolated()))
        .collect();
    for (name, isolated) in &names {
        assert_eq!(*isolated, *name == "bwrap");
    }
    // Nothing here confines commands, and so the person is told.
    if names.is_empty() {
        lacking("neither bubblewrap nor Landlock works");
    }
}

/// Reads until this stands on the screen or among what was written.
async fn read_until(world: &World, wanted: &str, name: &str) -> String {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut all = String::new();
    while !all.contains(wanted) {
        assert!(Instant::now() < deadline, "{name}: no {wanted:?} in {all}");
        let wait = Duration::from_millis(500);
        let cancel = CancellationToken::new();
        let reading = world.terminals().read("t", wait, &cancel).await.unwrap();
        if let Some(view) = reading.view {
            all.push_str(&view.text);
            all.push('\n');
        }
        assert_eq!(reading.ended, None, "{name}: {all}");
    }
    all
}

#[tokio::test]
async fn a_terminal_is_whole_inside() {
    let place = Place::new();
    for provider in place.providers() {
        let name = provider.name();
        let world = World::new(WorldSettings {
            cwd: place.root.clone(),
            scratch: place.folder.path().join("scratch"),
            sandbox: Some(Arc::from(provider)),
            ..WorldSettings::default()
        })
        .unwrap();
        let request = OpenTerminal {
            name: "t".to_owned(),
            argv: ["bash", "--norc", "--noprofile"].map(Into::into).to_vec(),
            cwd: place.root.clone(),
            confinement: Confinement::default(),
        };
        let terminals = world.terminals();
        terminals.open(world.processes(), request).await.unwrap();
        let cancel = CancellationToken::new();
        let type_in = async |text: &str| {
            terminals.input("t", text, &cancel).await.unwrap();
        };
        // Size and controlling terminal are the program's to ask for.
        type_in("stty size < /dev/tty; echo made > made; [ -t 0 ] && echo all $((1 + 1))\n").await;
        let text = read_until(&world, "all 2", name).await;
        assert!(text.contains("\n24 80\n"), "{name}: {text}");
        // Job control needs the terminal to be the session's own.
        type_in("echo be''gun; sleep 600\n").await;
        read_until(&world, "\nbegun", name).await;
        type_in("<C-c>").await;
        // What is typed before it has come is flushed with it.
        read_until(&world, "^C", name).await;
        type_in("echo status $?\n").await;
        read_until(&world, "status 130", name).await;
        type_in(&format!("cat {}/secret\n", place.outside.display())).await;
        read_until(&world, "secret: ", name).await;
        if find("less").is_some() {
            type_in("less made\n").await;
            read_until(&world, "(END)", name).await;
            type_in("q").await;
            read_until(&world, "less made", name).await;
        }
        world.shutdown().await;
        assert!(place.root.join("made").exists(), "{name}");
    }
}
