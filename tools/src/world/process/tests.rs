//! Real programs, real grandchildren. Order comes from files, pipes and process ids.
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::time::Instant;

use super::*;
use crate::helper::members;
use crate::world::process::capture::KeptFile;
use crate::world::sandbox::Network;

struct Bench {
    folder: tempfile::TempDir,
    processes: Processes,
}

impl Bench {
    fn new() -> Self {
        Self::with_grace(Duration::from_millis(300))
    }

    fn with_grace(grace: Duration) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let processes = Processes::new(ProcessSettings {
            scratch: folder.path().join("scratch"),
            grace,
            ..ProcessSettings::default()
        });
        Self { folder, processes }
    }

    fn program(&self, script: &str) -> Program {
        Program {
            argv: ["bash", "--norc", "-c", script]
                .map(OsString::from)
                .to_vec(),
            cwd: self.folder.path().to_owned(),
            environment: self.processes.environment().clone(),
            input: None,
            confinement: Confinement::default(),
        }
    }

    async fn start(&self, script: &str) -> Running {
        self.processes
            .start(self.program(script), Watch::default())
            .await
            .unwrap()
    }

    async fn run(&self, script: &str) -> Finished {
        self.start(script)
            .await
            .finish(&CancellationToken::new())
            .await
            .unwrap()
    }

    /// Waits for a file with process ids, one a line.
    async fn pids(&self, name: &str, count: usize) -> Vec<i32> {
        let path = self.folder.path().join(name);
        tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            loop {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
                if pids.len() >= count && text.ends_with('\n') {
                    return pids;
                }
                assert!(
                    begun.elapsed() < Duration::from_secs(30),
                    "{} has {text:?}",
                    path.display()
                );
                std::thread::sleep(Duration::from_millis(2));
            }
        })
        .await
        .unwrap()
    }
}

/// Both ends of a terminal: ours and that of programs.
fn terminal() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    (ours, theirs)
}

fn script(bench: &Bench, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    let path = bench.folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs, and is no zombie that only its parent's reaper has to take.
fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| {
            stat.rsplit_once(')')
                .map(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
        })
        .unwrap_or(false)
}

fn exists(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

async fn until_gone(pids: &[i32]) {
    let pids = pids.to_vec();
    tokio::task::spawn_blocking(move || {
        let begun = Instant::now();
        while pids.iter().any(|pid| is_alive(*pid)) {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{pids:?} still run"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    })
    .await
    .unwrap();
}

/// A tree in every shape that tries to outlive its leader: a child, a grandchild, one in a
/// session of its own, one that ignores the request to end, a daemon without a parent, one
/// that holds nothing but the output pipe, and one that has shed environment, session,
/// pipe and parent.
const CLINGING: &str = r#"
    note() { echo $BASHPID >> pids; }
    (note; exec sleep 600) &
    ( (note; exec sleep 600) & wait ) &
    setsid bash -c 'echo $$ >> pids; exec sleep 600' &
    setsid bash -c 'trap "" TERM HUP; echo $$ >> pids; while :; do sleep 600; done' >/dev/null 2>&1 &
    (setsid bash -c 'echo $$ >> pids; exec sleep 600' >/dev/null 2>&1 &)
    (env -i PATH="$PATH" setsid bash -c 'echo $$ >> pids; exec sleep 600' &)
    (env -i setsid bash -c '(exec >/dev/null 2>&1; echo $BASHPID >> pids; exec sleep 600) & exit' &)
"#;
const CLINGERS: usize = 7;

#[tokio::test(flavor = "multi_thread")]
async fn check_061_a_cancel_ends_the_whole_tree() {
    let bench = Bench::new();
    let running = bench.start(&format!("{CLINGING}\nwait; sleep 600")).await;
    let leader = running.pid();
    let pids = bench.pids("pids", CLINGERS).await;
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let begun = Instant::now();
    let finished = running.finish(&cancel).await.unwrap();
    assert_eq!(finished.end, End::Cancelled);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    until_gone(&pids).await;
    bench.processes.shutdown().await;
    assert!(!exists(leader), "the leader is no zombie");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_153_a_timeout_ends_grandchildren_too() {
    let bench = Bench::new();
    let program = bench.program(&format!("echo shown; {CLINGING}\nsleep 600"));
    let watch = Watch {
        timeout: Some(Duration::from_secs(2)),
        ..Watch::default()
    };
    let running = bench.processes.start(program, watch).await.unwrap();
    let leader = running.pid();
    let finished = running.finish(&CancellationToken::new()).await.unwrap();
    assert_eq!(
        (finished.end, finished.gone, finished.output.text.as_str()),
        (End::TimedOut, true, "shown\n")
    );
    let pids = bench.pids("pids", CLINGERS).await;
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert!(!exists(leader), "the leader is no zombie");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_handle_ends_the_tree() {
    let bench = Bench::new();
    let running = bench.start(&format!("{CLINGING}\nsleep 600")).await;
    let mut pids = bench.pids("pids", CLINGERS).await;
    pids.push(running.pid());
    drop(running);
    until_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_all_and_starts_no_more() {
    let bench = Bench::new();
    let one = bench.start(&format!("{CLINGING}\nsleep 600")).await;
    let other = bench.start("echo $$ > other; sleep 600").await;
    let mut pids = bench.pids("pids", CLINGERS).await;
    pids.extend(bench.pids("other", 1).await);
    bench.processes.shutdown().await;
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
    assert!(!exists(one.pid()) && !exists(other.pid()));
    assert!(matches!(
        bench
            .processes
            .start(bench.program("true"), Watch::default())
            .await,
        Err(ProcessError::Closed)
    ));
}

#[test]
fn the_end_of_the_runtime_ends_the_tree() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let bench = Bench::new();
    let (running, mut pids) = runtime.block_on(async {
        let running = bench.start(&format!("{CLINGING}\nsleep 600")).await;
        (running, bench.pids("pids", CLINGERS).await)
    });
    pids.push(running.pid());
    drop(runtime);
    let begun = Instant::now();
    while pids.iter().any(|pid| is_alive(*pid)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{pids:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_142_leftovers_are_named_and_ended_with_their_command() {
    let bench = Bench::new();
    let finished = bench
        .run(&format!(
            "{CLINGING}\nwhile [[ $(wc -l < pids) -lt {CLINGERS} ]]; do :; done; echo done"
        ))
        .await;
    assert_eq!((finished.end, finished.gone), (End::Exited(0), true));
    assert_eq!(finished.output.text, "done\n");
    let pids = bench.pids("pids", CLINGERS).await;
    for pid in &pids {
        assert!(
            finished.leftovers.iter().any(|left| left.pid == *pid),
            "{pid} of {:?}",
            finished.leftovers
        );
        assert!(!is_alive(*pid));
    }
    assert!(
        finished
            .leftovers
            .iter()
            .any(|left| left.command == "sleep 600")
    );
}

/// A program that is just being started holds our descriptors for a moment.
#[tokio::test(flavor = "multi_thread")]
async fn programs_side_by_side_are_not_taken_for_each_other() {
    let bench = Arc::new(Bench::new());
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let bench = Arc::clone(&bench);
        running.spawn(async move {
            for _ in 0..8 {
                let finished = bench.run("sleep 0.3 & sleep 0.2; echo x").await;
                assert_eq!(finished.end, End::Exited(0));
                // On a slow machine the program's own rest is one; when it is just ending
                // it has no arguments any more.
                let named = &finished.leftovers;
                let own = |command: &str| matches!(command, "sleep 0.3" | "sleep");
                assert!(
                    named.len() <= 1 && named.iter().all(|left| own(&left.command)),
                    "{named:?}"
                );
            }
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_nearly_done_is_no_leftover() {
    let bench = Bench::new();
    let finished = bench.run("echo through > >(cat)").await;
    assert_eq!(
        (finished.output.text.as_str(), finished.leftovers.len()),
        ("through\n", 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_ends_on_request_is_not_killed() {
    let bench = Bench::with_grace(Duration::from_secs(20));
    let running = bench
        .start(
            "trap 'echo saved > saved; exit 5' TERM; echo $$ > pids; while :; do sleep 0.01; done",
        )
        .await;
    bench.pids("pids", 1).await;
    let pid = running.pid();
    drop(running);
    until_gone(&[pid]).await;
    assert!(bench.folder.path().join("saved").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_program_starts_to_clean_up_is_let_be_within_the_grace() {
    let bench = Bench::with_grace(Duration::from_secs(20));
    let running = bench
        .start("trap 'sleep 0.3 && bash -c \"echo cleaned > done\"; exit' TERM; echo $$ > pids; while :; do sleep 0.01; done")
        .await;
    bench.pids("pids", 1).await;
    drop(running);
    bench.processes.keepers.close();
    bench.processes.keepers.wait().await;
    let done = std::fs::read_to_string(bench.folder.path().join("done"));
    assert_eq!(done.unwrap_or_default(), "cleaned\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_program_ends_too() {
    let bench = Bench::with_grace(Duration::from_secs(20));
    let running = bench.start("echo $$ > pids; kill -STOP $$").await;
    let pids = bench.pids("pids", 1).await;
    drop(running);
    until_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_others_are_left_alone() {
    let bench = Bench::new();
    let other = Bench::new();
    let bystander = other.start("echo $$ > pids; sleep 600").await;
    let pids = other.pids("pids", 1).await;
    let running = bench.start("echo $$ > pids; sleep 600").await;
    let own = bench.pids("pids", 1).await;
    drop(running);
    until_gone(&own).await;
    bench.processes.shutdown().await;
    assert!(is_alive(*pids.first().unwrap()));
    drop(bystander);
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_and_statuses_are_told_apart() {
    let bench = Bench::new();
    assert_eq!(bench.run("exit 130").await.end, End::Exited(130));
    assert_eq!(bench.run("kill -SEGV $$").await.end, End::Signalled(11));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_has_no_terminal_no_input_and_a_session_of_its_own() {
    let bench = Bench::new();
    let finished = bench
        .run("cat; cut -d' ' -f6 /proc/$$/stat; echo $$; test -t 1 || echo no terminal")
        .await;
    let lines: Vec<&str> = finished.output.text.lines().collect();
    assert_eq!(lines.first(), lines.get(1), "session and process id");
    assert_eq!(lines.get(2), Some(&"no terminal"));
}

#[tokio::test(flavor = "multi_thread")]
async fn r136_what_cannot_start_is_told_with_the_path_that_was_used() {
    let bench = Bench::new();
    let refused = async |change: fn(&mut Program)| {
        let mut program = bench.program("true");
        change(&mut program);
        let started = bench.processes.start(program, Watch::default()).await;
        started.err().unwrap().to_string()
    };
    let error = refused(|program| {
        program.argv = vec!["no-such-program".into()];
        program
            .environment
            .insert("PATH".into(), "/usr/bin:/none".into());
    })
    .await;
    assert!(
        error.starts_with("`no-such-program` cannot be started in ")
            && error.contains("in no folder of PATH, which is /usr/bin:/none"),
        "{error}"
    );
    let error = refused(|program| program.cwd.push("none")).await;
    assert!(error.ends_with("none: the folder is gone"), "{error}");
    let error = refused(|program| program.argv = vec!["./missing".into()]).await;
    assert!(error.contains("there is no such file"), "{error}");
    script(&bench, "odd", "#!/usr/bin/no-such-interpreter\n");
    let error = refused(|program| program.argv = vec!["./odd".into()]).await;
    assert!(
        error.contains("the interpreter that it names is not"),
        "{error}"
    );
    let error = refused(|program| program.argv = vec!["/".into()]).await;
    assert!(error.contains("ermission denied"), "{error}");
    let error = refused(|program| program.argv.push("x".repeat(200_000).into())).await;
    assert!(error.contains("larger than the system takes"), "{error}");
    let error = refused(|program| program.argv.push("a\0b".into())).await;
    assert!(error.contains("zero byte"), "{error}");
    let mut program = bench.program("true");
    program.argv.clear();
    assert!(matches!(
        bench.processes.start(program, Watch::default()).await,
        Err(ProcessError::Empty)
    ));
}

/// Notes what it was asked, and starts `echo` with the arguments, called `wrapped`.
#[derive(Default)]
struct Recorder(Mutex<Vec<SandboxRequest>>);

impl Sandbox for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        self.0.lock().unwrap().push(request.clone());
        if request.argv.iter().any(|word| word == "forbidden") {
            return Err(SandboxRefusal("not this".to_owned()));
        }
        let script = "echo $0 \"$@\"".to_owned();
        let fixed = ["wrapped", "--norc", "-c", &script, "inside"].map(OsString::from);
        Ok(Wrapped {
            program: Some("/bin/bash".into()),
            argv: fixed.into_iter().chain(request.argv).collect(),
        })
    }

    fn isolated(&self) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_144_every_spawn_passes_the_seam_and_only_a_terminal_asks_for_one() {
    let recorder = Arc::new(Recorder::default());
    let bench = Bench::new();
    let plain = bench.run("echo plain").await;
    assert_eq!(plain.output.text, "plain\n");
    bench
        .processes
        .set_sandbox(Arc::clone(&recorder) as Arc<dyn Sandbox>);
    bench.processes.set_roots(vec!["/a".into(), "/b".into()]);
    assert!(bench.processes.sandbox().isolated());
    let told = bench.run("true").await.output.text;
    assert_eq!(told, "inside bash --norc -c true\n");
    let mut program = bench.program("open");
    program.confinement = Confinement::Sandboxed {
        network: Network::Open,
    };
    let started = bench.processes.start(program, Watch::default()).await;
    let finished = started.unwrap().finish(&CancellationToken::new()).await;
    assert_eq!(finished.unwrap().end, End::Exited(0));
    let (_terminal, slave) = terminal();
    let held = bench
        .processes
        .start_on_terminal(bench.program("tty"), slave)
        .await
        .unwrap();
    assert_eq!(held.over().await.ended, Some(End::Exited(0)));
    let mut program = bench.program("echo outside");
    program.confinement = Confinement::Outside;
    let started = bench.processes.start(program, Watch::default()).await;
    let finished = started.unwrap().finish(&CancellationToken::new()).await;
    assert_eq!(finished.unwrap().output.text, "outside\n");
    let mut program = bench.program("true");
    program.argv.push("forbidden".into());
    let refused = bench.processes.start(program, Watch::default()).await;
    assert_eq!(
        refused.err().unwrap().to_string(),
        "the sandbox refuses: not this"
    );
    let asked = recorder.0.lock().unwrap();
    let seen: Vec<(bool, Network)> = asked
        .iter()
        .map(|request| (request.tty, request.reach.network))
        .collect();
    let closed = (false, Network::Closed);
    assert_eq!(
        seen,
        [
            closed,
            (false, Network::Open),
            (true, Network::Closed),
            // The one that was refused, after one that ran outside and was not asked of.
            closed
        ]
    );
    for request in asked.iter() {
        assert_eq!(request.reach.roots, [Path::new("/a"), Path::new("/b")]);
        assert_eq!(request.reach.temporary, bench.processes.temporary());
        assert_eq!(request.cwd, bench.folder.path());
    }
    let mode = std::fs::metadata(bench.processes.temporary()).unwrap();
    assert_eq!(
        std::os::unix::fs::MetadataExt::mode(&mode) & 0o777,
        0o700,
        "private"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn check_141_two_hundred_megabytes_are_counted_and_not_held() {
    let bench = Bench::new();
    let running = bench.start("yes 0123456789abcde | head -c 200000000").await;
    let capture = Arc::clone(&running.capture);
    let finished = running.finish(&CancellationToken::new()).await.unwrap();
    let held = capture.lock().unwrap().held();
    assert!(held < 512 * 1024, "{held} bytes held");
    assert_eq!(
        (finished.output.total, finished.output.left_out),
        (200_000_000, 199_970_000)
    );
    assert!(finished.output.text.len() < 30_100);
    let KeptFile { path, dropped } = finished.output.file.unwrap();
    assert_eq!(
        (path.metadata().unwrap().len(), dropped),
        (KEPT, 200_000_000 - KEPT)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn output_without_an_end_does_not_hold_up_the_result() {
    let bench = Bench::new();
    let finished = bench.run("yes & echo $! > pids").await;
    assert_eq!(finished.end, End::Exited(0));
    assert!(
        finished.leftovers.iter().any(|left| left.command == "yes"),
        "{:?}",
        finished.leftovers
    );
    until_gone(&bench.pids("pids", 1).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn live_output_comes_while_the_program_runs_and_is_bounded() {
    let bench = Bench::new();
    let (tell, mut told) = tokio::sync::mpsc::channel(1024);
    let program = bench.program("printf 'waiting \\e[31mnow'; until [[ -e go ]]; do sleep 0.01; done; yes | head -c 1000000");
    let watch = Watch {
        live: Some(Arc::new(move |text: &str| {
            tell.try_send(text.to_owned()).unwrap();
        })),
        ..Watch::default()
    };
    let running = bench.processes.start(program, watch).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "waiting now");
    std::fs::write(bench.folder.path().join("go"), "").unwrap();
    running.finish(&CancellationToken::new()).await.unwrap();
    let mut whole = 0;
    while let Ok(piece) = told.try_recv() {
        assert!(piece.len() <= live::PIECE + 100);
        whole += piece.len();
    }
    assert!(whole > 0 && whole <= live::WHOLE + 100, "{whole}");
}

#[tokio::test]
async fn a_runtime_of_one_thread_is_enough() {
    let bench = Bench::new();
    assert_eq!(bench.run("sleep 600 & echo x").await.output.text, "x\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_is_the_programs_own_and_goes_with_its_tree() {
    let bench = Bench::with_grace(Duration::from_secs(20));
    let (ours, theirs) = terminal();
    // An interactive shell ignores the request that other programs get.
    let mut program = bench.program("");
    program.argv = ["bash", "--norc", "-i"].map(OsString::from).to_vec();
    let held = bench
        .processes
        .start_on_terminal(program, theirs)
        .await
        .unwrap();
    // A child says itself that it is there: before its `exec` it is still the shell, which
    // ignores what it is asked.
    let typed = b"test -t 0 && test -t 2 && echo $$ > pids; setsid bash --norc -c 'echo $$ >> pids; sleep 600' &\n";
    rustix::io::write(&ours, typed).unwrap();
    let pids = bench.pids("pids", 2).await;
    assert_eq!(pids.first(), Some(&held.pid()));
    assert!(held.state().ended.is_none());
    let begun = Instant::now();
    held.stop();
    let state = held.over().await;
    assert!(begun.elapsed() < Duration::from_secs(19), "it was asked to");
    assert!(state.lost.is_none() && !state.is_stuck, "{state:?}");
    until_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_terminal_ends_its_tree() {
    let bench = Bench::new();
    let (_ours, theirs) = terminal();
    let held = bench
        .processes
        .start_on_terminal(bench.program(&format!("{CLINGING}\nsleep 600")), theirs)
        .await
        .unwrap();
    let mut pids = bench.pids("pids", CLINGERS).await;
    pids.push(held.pid());
    drop(held);
    until_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_given_up_leaves_nothing() {
    let bench = Bench::new();
    for delay in 0..12 {
        let start = bench.start("echo $$ >> pids; sleep 600");
        let given_up = tokio::time::timeout(Duration::from_millis(delay), start).await;
        drop(given_up);
    }
    bench.processes.shutdown().await;
    let begun = std::fs::read_to_string(bench.folder.path().join("pids")).unwrap_or_default();
    for pid in begun.lines().filter_map(|line| line.parse::<i32>().ok()) {
        assert!(!is_alive(pid), "{pid}");
    }
}

/// The one that is its child's supervisor.
fn supervisor_of(pid: i32) -> i32 {
    members::look(pid).unwrap().parent
}

fn signal(pid: i32, signal: rustix::process::Signal) {
    members::send(&members::look(pid).unwrap(), signal);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_supervisor_is_a_clear_result_and_leaves_nothing() {
    let bench = Bench::new();
    // What has shed all is beyond reach without a supervisor, so it is not part of this.
    let shedding = CLINGING
        .lines()
        .filter(|line| !line.contains("env -i setsid"));
    let script = shedding.collect::<Vec<_>>().join("\n");
    let running = bench.start(&format!("{script}\nsleep 600")).await;
    let mut pids = bench.pids("pids", CLINGERS - 1).await;
    pids.push(running.pid());
    let supervisor = supervisor_of(running.pid());
    signal(supervisor, rustix::process::Signal::KILL);
    let lost = running.finish(&CancellationToken::new()).await;
    assert!(matches!(lost, Err(ProcessError::Lost)), "{lost:?}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    bench.processes.shutdown().await;
    assert!(!exists(supervisor), "no zombie");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_does_not_hold_up_a_cancel_or_the_end() {
    let bench = Bench::new();
    let running = bench.start("sleep 600 & echo $! > pids; sleep 600").await;
    let mut pids = bench.pids("pids", 1).await;
    pids.push(running.pid());
    let supervisor = supervisor_of(running.pid());
    signal(supervisor, rustix::process::Signal::STOP);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let begun = Instant::now();
    let finished = running.finish(&cancel).await.unwrap();
    assert_eq!((finished.end, finished.gone), (End::Cancelled, false));
    assert!(begun.elapsed() < Duration::from_secs(1));
    bench.processes.shutdown().await;
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    assert!(!exists(supervisor), "no zombie");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_supervisor_goes_on_when_its_tree_is_to_end() {
    let bench = Bench::new();
    let watch = Watch {
        timeout: Some(Duration::from_secs(1)),
        live: None,
    };
    let program = bench.program("trap '' TERM; sleep 600 & echo $! > pids; wait; sleep 600");
    let running = bench.processes.start(program, watch).await.unwrap();
    let mut pids = bench.pids("pids", 1).await;
    pids.push(running.pid());
    signal(supervisor_of(running.pid()), rustix::process::Signal::STOP);
    let finished = running.finish(&CancellationToken::new()).await.unwrap();
    assert_eq!((finished.end, finished.gone), (End::TimedOut, true));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
}

/// What has shed mark, output and parent stands for what is forked while it is looked for:
/// only its group tells.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_goes_as_one_when_its_supervisor_was_killed() {
    let bench = Bench::new();
    let running = bench
        .start(
            "sleep 600 & echo $! >> pids
            (exec env -i sleep 600 <&- >/dev/null 2>&1 & echo $! >> pids)
            sleep 600",
        )
        .await;
    let mut pids = bench.pids("pids", 2).await;
    pids.push(running.pid());
    signal(supervisor_of(running.pid()), rustix::process::Signal::KILL);
    let lost = running.finish(&CancellationToken::new()).await;
    assert!(matches!(lost, Err(ProcessError::Lost)), "{lost:?}");
    until_gone(&pids).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r019_r020_what_holds_the_output_does_not_hold_the_result() {
    let bench = Bench::new();
    for (script, is_named) in [
        ("exec > >(tee -a f) 2>&1; echo done", false),
        ("sleep 60 & echo done", true),
        ("yes > /dev/null & echo done", true),
    ] {
        let begun = Instant::now();
        let finished = bench.run(script).await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{script}");
        assert_eq!(finished.output.text, "done\n", "{script}");
        assert_eq!(
            (finished.end, !finished.leftovers.is_empty(), finished.gone),
            (End::Exited(0), is_named, true),
            "{script}: {:?}",
            finished.leftovers
        );
        for left in finished.leftovers {
            assert!(!is_alive(left.pid), "{left:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_146_r021_a_timeout_ends_what_ignores_the_request() {
    let bench = Bench::new();
    let program = bench
        .program("trap '' TERM; bash -c 'trap \"\" TERM; echo $$ >> pids; sleep 600'; sleep 600");
    let watch = Watch {
        timeout: Some(Duration::from_secs(1)),
        ..Watch::default()
    };
    let running = bench.processes.start(program, watch).await.unwrap();
    let mut pids = bench.pids("pids", 1).await;
    pids.push(running.pid());
    let begun = Instant::now();
    let finished = running.finish(&CancellationToken::new()).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!((finished.end, finished.gone), (End::TimedOut, true));
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn r097_characters_come_whole_however_they_are_written() {
    let bench = Bench::new();
    std::fs::write(bench.folder.path().join("text"), "漢字".repeat(4_000)).unwrap();
    let live = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&live);
    let watch = Watch {
        live: Some(Arc::new(move |text: &str| {
            kept.lock().unwrap().push_str(text);
        })),
        ..Watch::default()
    };
    // A byte a write.
    let program = bench.program("dd if=text bs=1 status=none");
    let running = bench.processes.start(program, watch).await.unwrap();
    let finished = running.finish(&CancellationToken::new()).await.unwrap();
    assert_eq!(finished.output.text, "漢字".repeat(4_000));
    assert!(!live.lock().unwrap().contains('\u{fffd}'));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_152_r139_a_program_sees_what_config_keeps_and_no_profile_brings_more() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    for name in [".profile", ".bash_profile", ".bashrc", ".bash_login"] {
        std::fs::write(home.join(name), "export FROM_PROFILE=1; echo noise\n").unwrap();
    }
    let mut environment = Environment::default();
    let set = [("HOME", home.to_str().unwrap()), ("ALLOWED", "yes")];
    for (name, value) in set {
        environment.set.insert(name.to_owned(), value.to_owned());
    }
    let processes = Processes::new(ProcessSettings {
        environment,
        scratch: folder.path().join("scratch"),
        ..ProcessSettings::default()
    });
    let bench = Bench { folder, processes };
    let told = bench.run("env").await.output.text;
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines.contains(&"ALLOWED=yes") && lines.contains(&"TERRET_INSIDE=1"));
    assert!(!told.contains("FROM_PROFILE") && !told.contains("noise"));
    let temporary = format!("TMPDIR={}", bench.processes.temporary().display());
    assert!(lines.contains(&temporary.as_str()), "{told}");
    let ours: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("TERRET_"))
        .collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn r138_nothing_but_names_stands_on_a_helpers_command_line() {
    let bench = Bench::new();
    let mut program = bench.program("echo $$ > pids; sleep 600");
    let secret = "s".repeat(24);
    program
        .environment
        .insert("KEPT".into(), secret.clone().into());
    let running = bench
        .processes
        .start(program, Watch::default())
        .await
        .unwrap();
    bench.pids("pids", 1).await;
    let supervisor = supervisor_of(running.pid());
    let read = |file: &str| std::fs::read(format!("/proc/{supervisor}/{file}")).unwrap();
    assert_eq!(read("cmdline"), b"terret-supervisor\0");
    assert_eq!(read("environ"), b"");
    let leader = std::fs::read(format!("/proc/{}/cmdline", running.pid())).unwrap();
    assert!(!String::from_utf8_lossy(&leader).contains(&secret));
}

/// The sets of signals in lines of `/proc/PID/status`, but for the two that the C library
/// keeps to itself and lets nobody set.
fn signal_sets(lines: &str) -> Vec<u64> {
    lines
        .lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(1))
        .map(|set| u64::from_str_radix(set, 16).unwrap() & !(0b11 << 31))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_begins_with_clean_signals_and_descriptors_and_our_mask() {
    let bench = Bench::new();
    let run = async |argv: &[&str]| {
        let mut program = bench.program("");
        program.argv = argv.iter().map(OsString::from).collect();
        let running = bench.processes.start(program, Watch::default()).await;
        let finished = running.unwrap().finish(&CancellationToken::new()).await;
        finished.unwrap().output.text
    };
    // Bash would block some of its own.
    let told = run(&["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]).await;
    assert_eq!(signal_sets(&told), [0, 0], "{told}");
    // The fourth is the folder that is read.
    assert_eq!(run(&["ls", "/proc/self/fd"]).await, "0\n1\n2\n3\n");
    let ours = std::process::Command::new("bash")
        .args(["--norc", "-c", "umask; nice"])
        .output()
        .unwrap();
    let ours = String::from_utf8(ours.stdout).unwrap();
    let folder = bench.folder.path().canonicalize().unwrap();
    assert_eq!(
        bench.run("umask; nice; pwd").await.output.text,
        format!("{ours}{}\n", folder.display())
    );
}

/// As an engine under `nohup`, below an editor that is careless with its descriptors.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_engine_was_born_with_reaches_no_program() {
    let mut bench = Bench::new();
    let ourselves = std::env::current_exe().unwrap();
    let text = format!(
        "#!/bin/bash\ntrap '' HUP INT USR1 CHLD\nexec 7< /dev/null\nexec -a terret-supervisor '{}'\n",
        ourselves.display()
    );
    script(&bench, "careless", &text);
    bench.processes = Processes::new(ProcessSettings {
        helper: HelperProgram::At(bench.folder.path().join("careless")),
        ..ProcessSettings::default()
    });
    let run = async |argv: &[&str]| {
        let mut program = bench.program("");
        program.argv = argv.iter().map(OsString::from).collect();
        let running = bench.processes.start(program, Watch::default()).await;
        let finished = running.unwrap().finish(&CancellationToken::new()).await;
        finished.unwrap().output.text
    };
    let told = run(&["grep", "SigIgn", "/proc/self/status"]).await;
    assert_eq!(signal_sets(&told), [0], "{told}");
    assert_eq!(run(&["ls", "/proc/self/fd"]).await, "0\n1\n2\n3\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helper_that_is_none_is_a_clear_result() {
    let mut bench = Bench::new();
    script(&bench, "wrong", "#!/bin/sh\necho hello; exit 3\n");
    for (helper, why) in [
        ("wrong", "the program's supervisor was lost"),
        ("missing", "the supervisor for a program cannot be started"),
    ] {
        bench.processes = Processes::new(ProcessSettings {
            helper: HelperProgram::At(bench.folder.path().join(helper)),
            ..ProcessSettings::default()
        });
        let started = bench
            .processes
            .start(bench.program("echo x > ran"), Watch::default())
            .await;
        let error = started.err().unwrap().to_string();
        // Whether the order could still be sent to it is a matter of luck.
        let early = "the supervisor for a program cannot be started";
        assert!(
            error.starts_with(why) || error.starts_with(early),
            "{error}"
        );
    }
    assert!(!bench.folder.path().join("ran").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_found_as_a_shell_would() {
    let bench = Bench::new();
    std::fs::create_dir(bench.folder.path().join("bin")).unwrap();
    script(&bench, "bin/found-only-there", "#!/bin/sh\necho $0 $1\n");
    script(&bench, "no-first-line", "echo plain $1\n");
    let run = async |argv: &[&str], path: &str| {
        let mut program = bench.program("");
        program.argv = argv.iter().map(OsString::from).collect();
        program.environment.insert("PATH".into(), path.into());
        let running = bench.processes.start(program, Watch::default()).await;
        let finished = running.unwrap().finish(&CancellationToken::new()).await;
        finished.unwrap().output.text
    };
    let bin = bench.folder.path().join("bin");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let there = bin.join("found-only-there");
    assert_eq!(
        run(&["found-only-there", "x"], &path).await,
        format!("{} x\n", there.display())
    );
    assert_eq!(
        run(&["bin/found-only-there", "y"], "/usr/bin:/bin").await,
        "bin/found-only-there y\n"
    );
    assert_eq!(run(&["./no-first-line", "z"], &path).await, "plain z\n");
}

/// 255 processes, each the parent of two.
#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_hundreds_ends_together() {
    let bench = Bench::with_grace(Duration::from_secs(20));
    let running = bench
        .start("b() { echo $BASHPID >> pids; [[ $1 -gt 0 ]] || exec sleep 600; b $(($1 - 1)) & b $(($1 - 1)) & wait; }; b 7")
        .await;
    let mut pids = bench.pids("pids", 255).await;
    pids.push(running.pid());
    let begun = Instant::now();
    drop(running);
    until_gone(&pids).await;
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "asked, not killed"
    );
}

/// Each is a new process in a new session whose parent has ended.
#[tokio::test(flavor = "multi_thread")]
async fn what_forks_faster_than_it_is_asked_is_hunted_down() {
    let bench = Bench::new();
    script(
        &bench,
        "comet",
        "#!/bin/bash\necho x >> trail\n(setsid ./comet &)\n",
    );
    let running = bench
        .start(
            "echo $TERRET_CALL > mark; ./comet >/dev/null 2>&1; ./comet >/dev/null 2>&1; sleep 600",
        )
        .await;
    let trail = bench.folder.path().join("trail");
    let begun = Instant::now();
    while std::fs::metadata(&trail).map_or(0, |data| data.len()) < 100 {
        assert!(begun.elapsed() < Duration::from_secs(30));
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let cancel = CancellationToken::new();
    cancel.cancel();
    running.finish(&cancel).await.unwrap();
    let begun = Instant::now();
    bench.processes.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    let mark = std::fs::read_to_string(bench.folder.path().join("mark")).unwrap();
    let strays = Strays {
        mark: mark.trim().to_owned(),
        pipe: None,
    };
    assert_eq!(strays.find(), []);
}
