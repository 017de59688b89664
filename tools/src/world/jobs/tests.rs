//! Real jobs under real keepers. This test binary is its own keeper, and, where the engine
//! has to die, its own engine, too.
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

mod crash;
mod life;
mod speed;
mod trouble;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::*;
use crate::world::jobs::start::Point;
use crate::world::jobs::sweep::strays;
use crate::world::process::{ProcessSettings, Processes};
use crate::world::sandbox::Confinement;

/// The longest that a real process is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// Says where the engine of a test dies.
const DIE_AT: &str = "TERRET_TEST_DIE_AT";

/// Dies here when the test says so, as `kill -9` would have it.
pub(crate) fn reached(point: Point) {
    if std::env::var(DIE_AT).is_ok_and(|at| at == format!("{point:?}")) {
        die();
    }
}

fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    panic!("killed and alive");
}

/// A home with the jobs of one session.
struct Bench {
    home: tempfile::TempDir,
    settings: JobsSettings,
    jobs: KeptJobs,
}

impl Bench {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut JobsSettings)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut settings = JobsSettings::new(home.path().join("jobs/session-1"));
        settings.grace = Duration::from_millis(500);
        change(&mut settings);
        Self {
            jobs: open(&settings),
            home,
            settings,
        }
    }

    async fn start(&self, script: &str) -> Job {
        self.jobs.start(request("call-1", script)).await.unwrap()
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("jobs")
    }

    fn folder(&self, id: &JobId) -> PathBuf {
        self.settings.folder.join(id.as_str())
    }

    async fn job(&self, id: &JobId) -> Job {
        find(&self.jobs, id).await
    }

    async fn ended(&self, id: &JobId) -> Job {
        ended(&self.jobs, id).await
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A failed test leaves nothing behind either.
        let _ = listing::discard(&self.settings.folder);
    }
}

fn open(settings: &JobsSettings) -> KeptJobs {
    KeptJobs::new(
        settings.clone(),
        Arc::new(Processes::new(ProcessSettings::default())),
    )
}

fn request(call_id: &str, script: &str) -> JobRequest {
    JobRequest {
        call_id: call_id.to_owned(),
        command: script.to_owned(),
        description: None,
        keep: false,
        program: program(script),
    }
}

fn program(script: &str) -> Program {
    let path = std::env::var_os("PATH").unwrap_or_default();
    Program {
        argv: ["bash", "--norc", "-c", script]
            .map(OsString::from)
            .to_vec(),
        cwd: PathBuf::from("/"),
        environment: BTreeMap::from([(OsString::from("PATH"), path)]),
        input: None,
        confinement: Confinement::Outside,
    }
}

async fn find(jobs: &KeptJobs, id: &JobId) -> Job {
    jobs.list()
        .await
        .unwrap()
        .into_iter()
        .find(|job| job.id == *id)
        .unwrap_or_else(|| panic!("{id} is not listed"))
}

/// Waits for something that a real process does.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn ended(jobs: &KeptJobs, id: &JobId) -> Job {
    until("a job's end", async || {
        Some(find(jobs, id).await).filter(|job| !job.state.is_running())
    })
    .await
}

/// All that is there from a place on, waiting for the job's end.
async fn output(jobs: &KeptJobs, id: &JobId, mut from: u64) -> (Vec<u8>, u64) {
    let (mut bytes, mut missing) = (Vec::new(), 0);
    loop {
        let piece = jobs
            .read(id, from, 64 * 1024, PATIENCE, &CancellationToken::new())
            .await
            .unwrap();
        assert_eq!(
            piece.upto,
            from + piece.missing + piece.bytes.len() as u64,
            "a read says where it ends"
        );
        if piece.upto == from {
            assert!(!piece.job.state.is_running(), "nothing came of {id}");
            return (bytes, missing);
        }
        from = piece.upto;
        missing += piece.missing;
        bytes.extend_from_slice(&piece.bytes);
    }
}

/// Waits until a job has written this.
async fn says(jobs: &KeptJobs, id: &JobId, text: &str) {
    until(text, async || {
        let piece = jobs
            .read(
                id,
                0,
                64 * 1024,
                Duration::from_millis(200),
                &CancellationToken::new(),
            )
            .await
            .unwrap();
        String::from_utf8_lossy(&piece.bytes)
            .contains(text)
            .then_some(())
    })
    .await;
}

fn record(folder: &Path) -> record::Record {
    record::Record::read(&folder::Folder::open(folder).unwrap()).unwrap()
}

/// Processes of a job that are there.
fn members(folder: &Path) -> usize {
    strays(&record(folder).mark).find().len()
}

/// The keepers of jobs below a place, as the system knows them: whoever has a file there
/// open.
fn keepers(place: &Path) -> Vec<i32> {
    let place = place.canonicalize().unwrap_or_else(|_| place.to_owned());
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "terret-keeper")
        })
        .filter(|pid| {
            std::fs::read_dir(format!("/proc/{pid}/fd"))
                .into_iter()
                .flatten()
                .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
                .any(|target| target.starts_with(&place))
        })
        .collect()
}

fn kill(pid: i32) {
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}
