//! What the watcher logs, and when.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop at the place"
)]

use terret_log::{Event, JobOutcome, Payload, SessionId, SessionState, Store, SystemClock};
use terret_tools::world::jobs::JobState;

use super::*;
use crate::jobs::tests::{FakeJobs, RUNNING, job};

struct Stage {
    core: Arc<Core>,
    jobs: Arc<FakeJobs>,
    _folder: tempfile::TempDir,
}

impl Stage {
    fn new(jobs: FakeJobs) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().to_owned(), Arc::new(SystemClock)).unwrap();
        let log = store.create(SessionId::generate()).unwrap();
        Self {
            core: Arc::new(Core::new(store, log, SessionState::default())),
            jobs: Arc::new(jobs),
            _folder: folder,
        }
    }

    fn watch(&self) -> JobWatch {
        JobWatch::new(Arc::clone(&self.core), Arc::clone(&self.jobs) as _)
    }

    /// The start of the n-th job is in the log.
    fn started(&self, n: u8) {
        let job = job(n, RUNNING);
        self.core.append(started_event(&job.call_id, &job)).unwrap();
        self.jobs.put(job);
    }

    fn events(&self) -> Vec<Event> {
        (0..self.core.next_seq())
            .map(|seq| (*self.core.recent(seq).unwrap()).clone())
            .collect()
    }

    fn count(&self, wanted: impl Fn(&Payload) -> bool) -> usize {
        self.events()
            .iter()
            .filter(|event| wanted(&event.payload))
            .count()
    }

    async fn until(&self, wanted: impl Fn(&SessionState) -> bool) {
        let mut seq = self.core.watch_seq();
        let waiting = async {
            while !self.core.state(&wanted) {
                seq.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting)
            .await
            .unwrap();
    }
}

fn is_end(payload: &Payload) -> bool {
    matches!(payload, Payload::JobEnded { .. })
}

fn is_progress(payload: &Payload) -> bool {
    matches!(payload, Payload::JobProgress { .. })
}

fn ended(state: &SessionState, n: u8) -> Option<JobOutcome> {
    let id = job(n, RUNNING).id;
    Some(state.jobs.get(id.as_str())?.end.as_ref()?.outcome.clone())
}

#[tokio::test]
async fn an_end_is_logged_once_and_only_for_a_job_of_the_session() {
    let stage = Stage::new(FakeJobs::new());
    stage.started(1);
    let _watch = tokio::task::JoinSet::from_iter([stage.watch().run()]);
    stage.jobs.change(job(2, JobState::Exited(0)));
    stage.jobs.change(job(1, JobState::Exited(3)));
    stage.jobs.change(job(1, JobState::Exited(3)));
    stage
        .until(|state| ended(state, 1) == Some(JobOutcome::Exited { status: 3 }))
        .await;
    JobWatch::settle(&stage.core, stage.jobs.as_ref()).await;
    assert_eq!(stage.count(is_end), 1);
}

#[tokio::test]
async fn a_job_that_ends_before_its_start_is_logged_is_not_forgotten() {
    let stage = Stage::new(FakeJobs::new());
    let _watch = tokio::task::JoinSet::from_iter([stage.watch().run()]);
    let agent = "agent".to_owned();
    stage.core.append(Payload::TurnStart { agent }).unwrap();
    stage.jobs.change(job(1, JobState::Exited(0)));
    tokio::task::yield_now().await;
    let early = job(1, RUNNING);
    stage.core.append(started_event("c1", &early)).unwrap();
    stage.until(|state| ended(state, 1).is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn a_noisy_job_of_many_hours_adds_a_bounded_number_of_events() {
    let stage = Stage::new(FakeJobs::new());
    stage.started(1);
    stage.started(2);
    let _watch = tokio::task::JoinSet::from_iter([stage.watch().run()]);
    let hours = 6;
    for second in 0..hours * 3600_u64 {
        let mut noisy = job(1, RUNNING);
        noisy.written = second;
        stage.jobs.change(noisy);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let shown = stage.count(is_progress);
    assert!(
        (300..=6 * 60 + 10).contains(&shown),
        "{shown} events in {hours} hours"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_output_is_shown_at_once_and_the_last_is_not_lost() {
    let stage = Stage::new(FakeJobs::new());
    stage.started(1);
    let _watch = tokio::task::JoinSet::from_iter([stage.watch().run()]);
    for written in 1..=3 {
        let mut output = job(1, RUNNING);
        output.written = written;
        stage.jobs.change(output);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stage.count(is_progress), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let last = stage
        .events()
        .into_iter()
        .rev()
        .find_map(|event| match event.payload {
            Payload::JobProgress { written, .. } => Some(written),
            _ => None,
        });
    assert_eq!((stage.count(is_progress), last), (2, Some(3)));
    // Silent now: nothing is due, so nothing wakes it.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(stage.count(is_progress), 2);
}

#[tokio::test]
async fn who_was_behind_finds_all_ends() {
    let stage = Stage::new(FakeJobs::with_room(2));
    for n in 1..=20 {
        stage.started(n);
    }
    let watch = stage.watch();
    for n in 1..=20 {
        stage.jobs.change(job(n, JobState::Exited(0)));
    }
    let _watch = tokio::task::JoinSet::from_iter([watch.run()]);
    stage
        .until(|state| state.jobs.running().next().is_none())
        .await;
    assert_eq!(stage.count(is_end), 20);
}

#[tokio::test]
async fn r099_what_became_of_jobs_meanwhile_is_logged_when_the_session_opens() {
    let stage = Stage::new(FakeJobs::new());
    for n in 1..=5 {
        stage.started(n);
    }
    // 1 runs, 2 ended, 3 is gone, 4 was collected out and not forgotten yet.
    let gone = job(3, JobState::Exited(0));
    stage.jobs.put(gone.clone());
    stage.jobs.forget(&gone.id).await;
    stage.jobs.put(job(2, JobState::Exited(7)));
    let id = job(4, RUNNING).id;
    for payload in [
        Payload::JobCollected {
            call_id: "x".to_owned(),
            id: id.to_string(),
            upto: 10,
            ended: true,
        },
        Payload::ToolResult {
            id: "x".to_owned(),
            content: Some(String::new()),
            error: None,
            images: Vec::new(),
        },
    ] {
        stage.core.append(payload).unwrap();
    }
    stage.jobs.put(job(4, JobState::Exited(0)));
    stage.jobs.put(job(
        5,
        JobState::Lost("the machine was restarted".to_owned()),
    ));
    // A crash between a job's start and its event; and one that its call gave up.
    stage.jobs.put(job(6, RUNNING));
    stage.jobs.put(job(7, JobState::Stopped));
    let watch = stage.watch();
    watch.adopt().await;
    let seq = stage.core.next_seq();
    watch.adopt().await;
    let running: Vec<String> = stage.core.state(|state| {
        state
            .jobs
            .running()
            .map(|job| job.call_id.clone())
            .collect()
    });
    assert_eq!(running, ["c1", "c6"]);
    stage.core.state(|state| {
        assert_eq!(ended(state, 2), Some(JobOutcome::Exited { status: 7 }));
        assert!(matches!(ended(state, 3), Some(JobOutcome::Lost { .. })));
        assert!(matches!(ended(state, 5), Some(JobOutcome::Lost { reason }) if reason.contains("restarted")));
        assert!(state.jobs.get(job(7, RUNNING).id.as_str()).is_none());
    });
    assert!(
        !stage.jobs.ids().contains(&id),
        "collected out and forgotten"
    );
    assert_eq!(stage.core.next_seq(), seq, "a second adoption adds nothing");
}
