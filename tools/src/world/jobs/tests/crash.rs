//! The engine is killed at points of a job's life, and a new one looks at what is there.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::*;

/// The home of the engine that is to die.
const HOME: &str = "TERRET_TEST_HOME";
/// What it does.
const SCRIPT: &str = "TERRET_TEST_SCRIPT";
/// What it does after the start.
const THEN: &str = "TERRET_TEST_THEN";

/// An engine in a process of its own: this binary, with one test that is none.
struct Engine {
    child: Child,
}

impl Engine {
    fn start(bench: &Bench, script: &str, then: &str, die_at: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "--include-ignored", ENGINE])
            .env(HOME, bench.home.path())
            .env(SCRIPT, script)
            .env(THEN, then)
            .env(DIE_AT, die_at)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Waits until it has died by itself.
    fn died(mut self) {
        use std::os::unix::process::ExitStatusExt;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert_eq!(status.signal(), Some(9), "{status:?}");
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the engine lives");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills it, and with `group` all of its process group.
    fn kill(mut self, group: bool) {
        if group {
            let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
            kill_process_group(pid, Signal::KILL).unwrap();
        } else {
            self.child.kill().unwrap();
        }
        self.child.wait().unwrap();
    }
}

const ENGINE: &str = "world::jobs::tests::crash::engine_that_is_killed";

/// Not a test: what [`Engine`] runs.
#[test]
#[ignore = "the process that other tests start and kill"]
fn engine_that_is_killed() {
    let Some(home) = std::env::var_os(HOME) else {
        return;
    };
    let script = std::env::var(SCRIPT).unwrap();
    let then = std::env::var(THEN).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let jobs = open(&settings(Path::new(&home)));
        let job = jobs
            .start(JobRequest {
                keep: then.contains("keep"),
                ..request("call-1", &script)
            })
            .await
            .unwrap();
        if then.contains("die") {
            die();
        }
        if then.contains("stop") {
            // Dies in the middle of it.
            let _ = tokio::time::timeout(Duration::from_millis(50), jobs.stop(&job.id)).await;
            die();
        }
        if then.contains("forget") {
            ended(&jobs, &job.id).await;
            jobs.forget(&job.id).await;
        }
        // Until the test kills it.
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
}

fn settings(home: &Path) -> JobsSettings {
    JobsSettings {
        grace: Duration::from_millis(500),
        orphan_grace: GRACE,
        ..JobsSettings::new(home.join("jobs/session-1"))
    }
}

/// Long enough for a new engine on a loaded machine to come.
const GRACE: Duration = Duration::from_secs(8);

fn bench() -> Bench {
    Bench::with(|settings| settings.orphan_grace = GRACE)
}

/// The job's folder, once the engine has made it.
async fn folder(bench: &Bench) -> PathBuf {
    until("a job's folder", async || {
        std::fs::read_dir(&bench.settings.folder)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| {
                path.file_name()
                    .is_some_and(|name| JobId::parse(&name.to_string_lossy()).is_some())
            })
    })
    .await
}

async fn phase(folder: &Path, is: impl Fn(&record::Phase) -> bool) {
    until("a state", async || {
        let folder = folder::Folder::open(folder).ok()?;
        let record = record::Record::read(&folder).ok()?;
        is(&record.phase).then_some(())
    })
    .await;
}

fn file_names(place: &Path) -> Vec<String> {
    std::fs::read_dir(place)
        .map(|entries| {
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect()
        })
        .unwrap_or_default()
}

/// Nothing was started: the call runs again and finds nothing in its way.
async fn nothing_was_started(point: &str) {
    let bench = bench();
    Engine::start(&bench, "sleep 600", "", point).died();
    assert!(
        bench.jobs.started_by("call-1").await.unwrap().is_none(),
        "{point}"
    );
    assert!(bench.jobs.adopt().await.unwrap().is_empty());
    until("the folder to be cleared", async || {
        file_names(&bench.settings.folder).is_empty().then_some(())
    })
    .await;
    assert!(keepers(&bench.settings.folder).is_empty());
    let job = bench.start("echo again").await;
    assert_eq!(output(&bench.jobs, &job.id, 0).await.0, b"again\n");
}

#[tokio::test]
async fn point_1_killed_after_the_folder_was_made() {
    nothing_was_started("Folder").await;
}

#[tokio::test]
async fn point_2_killed_after_the_lock() {
    nothing_was_started("Lock").await;
}

#[tokio::test]
async fn point_2_killed_after_the_state_file() {
    nothing_was_started("Record").await;
}

/// The keeper has its order and goes on; a later engine finds the job by its call.
#[tokio::test]
async fn point_3_killed_after_the_keepers_start() {
    let bench = bench();
    Engine::start(&bench, "echo alive; sleep 600", "", "Keeper").died();
    let job = bench.jobs.started_by("call-1").await.unwrap().unwrap();
    says(&bench.jobs, &job.id, "alive").await;
    assert!(bench.job(&job.id).await.state.is_running());
    stopped(&bench, &job.id).await;
}

#[tokio::test]
async fn point_4_killed_after_the_job_runs() {
    let bench = bench();
    Engine::start(&bench, "echo alive; sleep 600", "", "Running").died();
    let job = bench.jobs.started_by("call-1").await.unwrap().unwrap();
    assert!(job.state.is_running());
    says(&bench.jobs, &job.id, "alive").await;
    stopped(&bench, &job.id).await;
}

async fn stopped(bench: &Bench, id: &JobId) {
    let folder = bench.folder(id);
    assert_eq!(bench.jobs.stop(id).await.unwrap().state, JobState::Stopped);
    assert_eq!(members(&folder), 0);
}

/// Killed with its group in the middle of the output: not a byte is lost.
#[tokio::test]
async fn point_5_r099_killed_with_its_group_in_the_middle_of_the_output() {
    for group in [false, true] {
        let bench = bench();
        let engine = Engine::start(
            &bench,
            "for i in {1..60}; do echo $i; sleep 0.02; done; exit 4",
            "",
            "",
        );
        let folder = folder(&bench).await;
        phase(&folder, |phase| {
            matches!(phase, record::Phase::Running { .. })
        })
        .await;
        engine.kill(group);
        let job = bench.jobs.adopt().await.unwrap().remove(0);
        let (bytes, missing) = output(&bench.jobs, &job.id, 0).await;
        let all: String = (1..=60).map(|number| format!("{number}\n")).collect();
        assert_eq!((String::from_utf8(bytes).unwrap(), missing), (all, 0));
        assert_eq!(bench.ended(&job.id).await.state, JobState::Exited(4));
    }
}

/// The first process ends, something of it goes on, and the engine dies there.
#[tokio::test]
async fn point_6_killed_at_the_exit_of_the_leader() {
    let bench = bench();
    let engine = Engine::start(&bench, "(sleep 1; echo late) & exit 5", "", "");
    let folder = folder(&bench).await;
    phase(&folder, |phase| {
        *phase == record::Phase::Running { leader: Some(5) }
    })
    .await;
    engine.kill(true);
    let job = bench.jobs.started_by("call-1").await.unwrap().unwrap();
    assert_eq!(output(&bench.jobs, &job.id, 0).await.0, b"late\n");
    assert_eq!(bench.ended(&job.id).await.state, JobState::Exited(5));
}

/// The engine dies at once after the start, and the job writes much and ends: what was
/// still in the pipe is there.
#[tokio::test]
async fn point_7_killed_during_the_drain() {
    let bench = bench();
    Engine::start(&bench, "head -c 3000000 /dev/zero; exit 6", "die", "").died();
    let job = bench.jobs.adopt().await.unwrap().remove(0);
    let (bytes, missing) = output(&bench.jobs, &job.id, 0).await;
    assert_eq!((bytes.len(), missing), (3_000_000, 0));
    assert_eq!(bench.ended(&job.id).await.state, JobState::Exited(6));
}

#[tokio::test]
async fn point_8_check_154_killed_after_the_final_state() {
    let bench = bench();
    let engine = Engine::start(&bench, "echo out; exit 7", "", "");
    let folder = folder(&bench).await;
    phase(&folder, record::Phase::is_final).await;
    engine.kill(true);
    let job = bench.jobs.adopt().await.unwrap().remove(0);
    assert_eq!(
        (&job.state, job.tail.as_str()),
        (&JobState::Exited(7), "out")
    );
    assert_eq!(output(&bench.jobs, &job.id, 0).await.0, b"out\n");
    assert!(bench.folder(&job.id).join("job.json").exists());
    bench.jobs.forget(&job.id).await;
    assert!(file_names(&bench.settings.folder).is_empty());
}

/// What the keeper was told to do it does.
#[tokio::test]
async fn point_9_killed_during_a_stop() {
    let bench = bench();
    Engine::start(
        &bench,
        "trap '' TERM; while :; do sleep 0.02; done",
        "stop",
        "",
    )
    .died();
    let job = bench.jobs.adopt().await.unwrap().remove(0);
    let folder = bench.folder(&job.id);
    assert_eq!(bench.ended(&job.id).await.state, JobState::Stopped);
    assert_eq!(members(&folder), 0);
}

#[tokio::test]
async fn point_10_killed_during_a_forget() {
    let bench = bench();
    Engine::start(&bench, "echo out", "forget", "Forgetting").died();
    assert_eq!(file_names(&bench.settings.folder).len(), 1);
    assert!(bench.jobs.adopt().await.unwrap().is_empty());
    assert!(file_names(&bench.settings.folder).is_empty());
}

/// Without an owner a job is ended after the grace, and that is told; one that is to be
/// kept is not.
#[tokio::test]
async fn a_job_without_an_owner_ends_after_the_grace_and_a_kept_one_does_not() {
    for keep in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let mut settings = settings(home.path());
        settings.orphan_grace = Duration::from_millis(1500);
        let mut bench = Bench {
            jobs: open(&settings),
            home,
            settings,
        };
        let job = bench
            .jobs
            .start(JobRequest {
                keep,
                ..request("call-1", "setsid sleep 600 & sleep 600")
            })
            .await
            .unwrap();
        let folder = bench.folder(&job.id);
        // With an owner the grace does not run.
        tokio::time::sleep(Duration::from_millis(2000)).await;
        assert!(bench.job(&job.id).await.state.is_running());
        bench.jobs = open(&bench.settings);
        let left = Instant::now();
        if keep {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            assert!(members(&folder) > 0);
            listing::stop(home_root(&folder), &job.id, Duration::from_millis(500)).unwrap();
            assert_eq!(members(&folder), 0);
            continue;
        }
        phase(&folder, record::Phase::is_final).await;
        assert!(left.elapsed() >= Duration::from_millis(1400));
        assert_eq!(members(&folder), 0);
        let found = open(&bench.settings).adopt().await.unwrap().remove(0);
        assert_eq!(found.state, JobState::Stopped);
        assert_eq!(found.notes, [JobNote::Orphaned { after_ms: 1500 }]);
        assert!(found.notes[0].to_string().contains("2 s"));
    }
}

fn home_root(folder: &Path) -> &Path {
    folder.parent().unwrap().parent().unwrap()
}

/// The engine's whole group is killed, and nobody comes.
#[tokio::test]
async fn nothing_is_left_after_the_grace_when_nobody_comes() {
    let bench = bench();
    let engine = Engine::start(
        &bench,
        "setsid sleep 600 & (sleep 600 &); sleep 600",
        "",
        "",
    );
    let folder = folder(&bench).await;
    phase(&folder, |phase| {
        matches!(phase, record::Phase::Running { .. })
    })
    .await;
    engine.kill(true);
    assert!(members(&folder) > 0);
    phase(&folder, |phase| *phase == record::Phase::Stopped).await;
    assert_eq!(members(&folder), 0);
    until("the keeper's end", async || {
        keepers(&folder).is_empty().then_some(())
    })
    .await;
}
