//! Real programs, real grandchildren. Order comes from files, pipes and process ids.
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::time::Instant;

use super::*;
use crate::world::process::capture::KeptFile;

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
/// session of its own, one that ignores the request to end, a daemon without a parent, and
/// one that holds nothing but the output pipe.
const CLINGING: &str = r#"
    note() { echo $BASHPID >> pids; }
    (note; exec sleep 600) &
    ( (note; exec sleep 600) & wait ) &
    setsid bash -c 'echo $$ >> pids; exec sleep 600' &
    setsid bash -c 'trap "" TERM HUP; echo $$ >> pids; while :; do sleep 600; done' >/dev/null 2>&1 &
    (setsid bash -c 'echo $$ >> pids; exec sleep 600' >/dev/null 2>&1 &)
    (env -i PATH="$PATH" setsid bash -c 'echo $$ >> pids; exec sleep 600' &)
"#;
const CLINGERS: usize = 6;

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
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
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
async fn a_missing_program_or_folder_is_named() {
    let bench = Bench::new();
    let mut program = bench.program("true");
    program.argv = vec!["no-such-program".into()];
    let error = bench
        .processes
        .start(program, Watch::default())
        .await
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("`no-such-program` cannot be started in "),
        "{error}"
    );
    let mut program = bench.program("true");
    program.cwd = bench.folder.path().join("none");
    assert!(
        bench
            .processes
            .start(program, Watch::default())
            .await
            .is_err()
    );
    let mut program = bench.program("true");
    program.argv.clear();
    assert!(matches!(
        bench.processes.start(program, Watch::default()).await,
        Err(ProcessError::Empty)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_starts_through_the_sandbox() {
    struct Echo;
    impl Sandbox for Echo {
        fn name(&self) -> &'static str {
            "echo"
        }
        fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
            let argv = request.argv;
            if argv.iter().any(|word| word == "forbidden") {
                return Err(SandboxRefusal("not this".to_owned()));
            }
            Ok(Wrapped::unchanged(
                std::iter::once("echo".into()).chain(argv).collect(),
            ))
        }
        fn isolated(&self) -> bool {
            true
        }
    }
    let mut bench = Bench::new();
    bench.processes = Processes::new(ProcessSettings {
        sandbox: Arc::new(Echo),
        ..ProcessSettings::default()
    });
    assert_eq!(bench.run("true").await.output.text, "bash --norc -c true\n");
    let refused = bench
        .processes
        .start(bench.program("forbidden"), Watch::default())
        .await
        .err()
        .unwrap();
    assert_eq!(refused.to_string(), "the sandbox refuses: not this");
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
