//! The end of an engine by SIGKILL, of it alone and of its whole process group: what it
//! had in the foreground ends at once, whatever it did to be forgotten (`R018`).
//!
//! The engine is this test binary again, in a process of its own.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use terret_tools::helper::members;
use terret_tools::world::process::{ProcessSettings, Processes, Program, Watch};

const FOLDER: &str = "TEST_ENGINE_FOLDER";

/// Everything that a program can do to outlive its call: groups, sessions, daemons without
/// a parent, a cleared environment, closed pipes, requests that are ignored.
const CLINGING: &str = r#"
    echo $$ >> pids
    (echo $BASHPID >> pids; exec sleep 600) &
    setsid bash -c 'trap "" TERM HUP INT; echo $$ >> pids; while :; do sleep 600; done' >/dev/null 2>&1 &
    (setsid bash -c 'echo $$ >> pids; exec sleep 600' >/dev/null 2>&1 &)
    (env -i setsid bash -c '(exec <&- >/dev/null 2>&1; echo $BASHPID >> pids; exec sleep 600) & exit' &)
    sleep 600
"#;
const CLINGERS: usize = 5;

/// Kills what a failed test leaves.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &Path) -> Engine {
    let child = Command::new("/proc/self/exe")
        .args([
            "--exact",
            "engine_death::engine",
            "--ignored",
            "--nocapture",
        ])
        .env(FOLDER, folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("an engine");
    Engine(child)
}

fn pids(folder: &Path, count: usize) -> Vec<i32> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(folder.join("pids")).unwrap_or_default();
        let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        if pids.len() >= count && text.ends_with('\n') {
            return pids;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "{text:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_alive(pid: &i32) -> bool {
    members::look(*pid).is_some_and(|process| !process.dead)
}

fn dies_with(end: impl FnOnce(&mut Child)) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut engine = start(folder.path());
    let mut pids = pids(folder.path(), CLINGERS);
    assert!(pids.iter().all(is_alive), "{pids:?}");
    let leader = pids.first().copied().expect("the leader");
    pids.push(members::look(leader).expect("the leader").parent);
    let begun = Instant::now();
    end(&mut engine.0);
    let status = engine.0.wait().expect("its end");
    assert_eq!(status.signal(), Some(9));
    while pids.iter().any(is_alive) {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{:?} still run",
            pids.iter().filter(|pid| is_alive(pid)).collect::<Vec<_>>()
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    // Nobody has written a word of a helper's to the engine's standard output.
    let mut said = String::new();
    let mut output = engine.0.stdout.take().expect("its output");
    output.read_to_string(&mut said).expect("its output");
    assert!(
        !said.contains("terret") && !said.contains("started"),
        "{said}"
    );
}

#[test]
fn r018_a_killed_engine_takes_its_trees_along() {
    dies_with(|engine| engine.kill().expect("a kill"));
}

#[test]
fn r018_a_killed_group_of_the_engine_takes_its_trees_along() {
    dies_with(|engine| {
        let group = i32::try_from(engine.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .expect("a group");
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("a kill");
    });
}

/// An engine with one program, until it is killed.
#[test]
#[ignore = "the other tests here start it as a process"]
fn engine() {
    let Some(folder) = std::env::var_os(FOLDER).map(std::path::PathBuf::from) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let processes = Processes::new(ProcessSettings {
            scratch: folder.join("scratch"),
            ..ProcessSettings::default()
        });
        let program = Program {
            argv: ["bash", "--norc", "-c", CLINGING].map(Into::into).to_vec(),
            cwd: folder,
            environment: processes.environment().clone(),
            input: None,
            confinement: Default::default(),
        };
        let _running = processes
            .start(program, Watch::default())
            .await
            .expect("a program");
        std::future::pending::<()>().await;
    });
}
