//! Keepers that are killed, files that go away or were never right, disks that are full.

use super::*;

#[tokio::test]
async fn a_killed_keeper_takes_its_job_along_and_the_job_is_lost() {
    let bench = Bench::new();
    let mut changes = bench.jobs.changes();
    let job = bench
        .start("setsid sleep 600 & (sleep 600 &); echo ready; sleep 600")
        .await;
    says(&bench.jobs, &job.id, "ready").await;
    let folder = bench.folder(&job.id);
    let keeper = keepers(&folder);
    assert_eq!(keeper.len(), 1);
    kill(keeper[0]);
    let lost = bench.ended(&job.id).await;
    assert!(
        matches!(&lost.state, JobState::Lost(why) if why.contains("keeper was killed")),
        "{:?}",
        lost.state
    );
    assert_eq!(members(&folder), 0);
    assert_eq!((lost.written, lost.tail.as_str()), (6, "ready"));
    // Told once, and written down for those who come later.
    loop {
        match tokio::time::timeout(PATIENCE, changes.recv())
            .await
            .unwrap()
            .unwrap()
        {
            JobChange::Output(_) => {}
            JobChange::Ended(told) => {
                assert_eq!(told.state, lost.state);
                break;
            }
        }
    }
    let later = open(&bench.settings).adopt().await.unwrap().remove(0);
    assert_eq!(later.state, lost.state);
    assert_eq!(output(&bench.jobs, &job.id, 0).await.0, b"ready\n");
    bench.jobs.stop(&job.id).await.unwrap();
    bench.jobs.forget(&job.id).await;
}

/// Nobody was there when the keeper was killed: the next engine clears up.
#[tokio::test]
async fn a_keeper_that_was_killed_without_an_engine_is_noticed_by_the_next() {
    let mut bench = Bench::new();
    let job = bench.start("setsid sleep 600 & sleep 600").await;
    let folder = bench.folder(&job.id);
    bench.jobs = open(&bench.settings);
    kill(keepers(&folder)[0]);
    let found = bench.jobs.started_by("call-1").await.unwrap().unwrap();
    assert!(
        matches!(found.state, JobState::Lost(_)),
        "{:?}",
        found.state
    );
    assert_eq!(members(&folder), 0);
}

/// Whatever a state file says, only what carries the job's mark in this boot is killed.
#[tokio::test]
async fn after_a_restart_of_the_machine_nothing_is_killed() {
    let mut bench = Bench::new();
    let job = bench.start("true").await;
    bench.ended(&job.id).await;
    let folder = bench.folder(&job.id);
    let mut record = record(&folder);
    record.phase = record::Phase::Running { leader: None };
    record.ended_at = None;
    let mark = "0123456789abcdef0123456789abcdef".to_owned();
    record.mark.clone_from(&mark);
    record.boot = "another boot".to_owned();
    record
        .write(&folder::Folder::open(&folder).unwrap())
        .unwrap();
    let mut bystander = std::process::Command::new("sleep")
        .arg("600")
        .env(crate::world::process::environment::TREE, &mark)
        .spawn()
        .unwrap();
    until("the bystander", async || {
        (!strays(&mark).find().is_empty()).then_some(())
    })
    .await;
    until("the keeper's end", async || {
        keepers(&folder).is_empty().then_some(())
    })
    .await;
    bench.jobs = open(&bench.settings);
    let found = bench.jobs.adopt().await.unwrap().remove(0);
    assert_eq!(
        found.state,
        JobState::Lost("the machine was restarted".to_owned())
    );
    let lives = bystander.try_wait().unwrap().is_none();
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    assert!(lives);
}

/// A mark that is none, as a damaged or foreign file might have, kills nothing.
#[tokio::test]
async fn a_mark_that_anybody_could_have_kills_nothing() {
    let mut bystander = std::process::Command::new("sleep")
        .arg("600")
        .env(crate::world::process::environment::TREE, "")
        .spawn()
        .unwrap();
    for mark in ["", "1", &"g".repeat(32)] {
        assert!(sweep::sweep(mark));
    }
    let lives = bystander.try_wait().unwrap().is_none();
    bystander.kill().unwrap();
    bystander.wait().unwrap();
    assert!(lives);
}

#[tokio::test]
async fn a_job_whose_folder_is_removed_by_hand_goes_on_and_its_end_is_told() {
    let bench = Bench::new();
    let go = bench.home.path().join("go");
    let job = bench
        .start(&format!(
            "echo ready; while [ ! -e {0} ]; do sleep 0.02; done; echo more; exit 3",
            go.display()
        ))
        .await;
    says(&bench.jobs, &job.id, "ready").await;
    std::fs::remove_dir_all(bench.folder(&job.id)).unwrap();
    std::fs::write(&go, "").unwrap();
    let ended = bench.ended(&job.id).await;
    assert_eq!(ended.state, JobState::Exited(3));
    assert_eq!((ended.written, ended.dropped), (11, 11));
    assert!(
        matches!(&ended.notes[..], [JobNote::Unkept { .. }]),
        "{:?}",
        ended.notes
    );
    assert_eq!(output(&bench.jobs, &job.id, 0).await, (Vec::new(), 11));
    bench.jobs.forget(&job.id).await;
    assert!(bench.jobs.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_spool_that_is_removed_by_hand_is_counted_as_gone() {
    let bench = Bench::new();
    let go = bench.home.path().join("go");
    let job = bench
        .start(&format!(
            "echo ready; while [ ! -e {0} ]; do sleep 0.02; done; echo more; exit 3",
            go.display()
        ))
        .await;
    says(&bench.jobs, &job.id, "ready").await;
    for entry in std::fs::read_dir(bench.folder(&job.id)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name().to_string_lossy().starts_with("output.") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    std::fs::write(&go, "").unwrap();
    let ended = bench.ended(&job.id).await;
    assert_eq!(ended.state, JobState::Exited(3));
    let (bytes, missing) = output(&bench.jobs, &job.id, 0).await;
    assert_eq!(missing, ended.dropped);
    assert_eq!(bytes.len() as u64 + missing, 11);
    assert!(missing >= 6);
}

/// Every file that is larger than a page fails to be written, as on a full disk: the limit
/// is on the keeper and what it starts.
#[tokio::test]
async fn what_cannot_be_written_is_counted_and_the_job_goes_on() {
    let bench = Bench::new();
    let job = bench
        .start("for i in {1..50}; do head -c 1000 /dev/zero; sleep 0.01; done; echo done; exit 3")
        .await;
    let keeper = keepers(&bench.folder(&job.id));
    let limit = rustix::process::Rlimit {
        current: Some(8192),
        maximum: Some(8192),
    };
    rustix::process::prlimit(
        rustix::process::Pid::from_raw(keeper[0]),
        rustix::process::Resource::Fsize,
        limit,
    )
    .unwrap();
    let ended = bench.ended(&job.id).await;
    assert_eq!(ended.state, JobState::Exited(3));
    assert_eq!(ended.written, 50_005);
    let (bytes, missing) = output(&bench.jobs, &job.id, 0).await;
    assert_eq!(missing, ended.dropped);
    assert_eq!(bytes.len() as u64 + missing, ended.written);
    assert!(
        ended
            .notes
            .iter()
            .any(|note| matches!(note, JobNote::Unkept { .. })),
        "{:?}",
        ended.notes
    );
}

/// A file system of 256 KiB, where the system lets us make one.
#[tokio::test]
async fn a_full_disk_costs_output_and_neither_the_job_nor_its_end() {
    let bench = Bench::new();
    std::fs::create_dir_all(&bench.settings.folder).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs"])
        .arg(&bench.settings.folder)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        // The limit on the size of files in the test above is what remains.
        assert!(!can_mount(), "root with its rights could not mount a tmpfs");
        return;
    }
    let job = bench
        .start("head -c 2000000 /dev/zero; echo end; exit 3")
        .await;
    let ended = bench.ended(&job.id).await;
    let seen = output(&bench.jobs, &job.id, 0).await;
    let refused = {
        std::fs::write(bench.settings.folder.join("ballast"), vec![1; 300_000]).unwrap_err();
        bench.jobs.start(request("call-2", "true")).await
    };
    let written = record(&bench.folder(&job.id));
    bench.jobs.close().await;
    let unmounted = std::process::Command::new("umount")
        .arg("-l")
        .arg(&bench.settings.folder)
        .status()
        .unwrap();
    assert!(unmounted.success());
    assert_eq!(ended.state, JobState::Exited(3));
    assert_eq!(written.phase, record::Phase::Exited { status: 3 });
    assert_eq!((ended.written, ended.dropped), (2_000_004, seen.1));
    assert!(seen.0.len() > 100_000, "{}", seen.0.len());
    let refused = refused.unwrap_err();
    assert!(matches!(refused, JobError::Files { .. }), "{refused}");
    assert!(refused.to_string().contains("space"), "{refused}");
}

/// For root every folder can be written, so a file stands in the way there.
#[tokio::test]
async fn a_folder_that_takes_nothing_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    if rustix::process::geteuid().is_root() {
        std::fs::create_dir_all(bench.root()).unwrap();
        std::fs::write(&bench.settings.folder, "").unwrap();
    } else {
        std::fs::create_dir_all(&bench.settings.folder).unwrap();
        std::fs::set_permissions(
            &bench.settings.folder,
            std::fs::Permissions::from_mode(0o500),
        )
        .unwrap();
    }
    let error = bench
        .jobs
        .start(request("call-1", "true"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, JobError::Files { place, .. } if place.contains("session-1")),
        "{error}"
    );
    let _ = std::fs::set_permissions(
        &bench.settings.folder,
        std::fs::Permissions::from_mode(0o700),
    );
}

#[tokio::test]
async fn a_state_file_that_is_damaged_newer_or_foreign_does_no_harm() {
    let mut bench = Bench::new();
    let mut ids = Vec::new();
    for number in 0..5 {
        let job = bench
            .jobs
            .start(request(&format!("call-{number}"), "echo out"))
            .await
            .unwrap();
        bench.ended(&job.id).await;
        until("the keeper's end", async || {
            keepers(&bench.folder(&job.id)).is_empty().then_some(())
        })
        .await;
        ids.push(job.id);
    }
    let place = bench.settings.folder.clone();
    let file = |at: usize| place.join(ids[at].as_str()).join("job.json");
    let text = std::fs::read_to_string(file(0)).unwrap();
    std::fs::write(file(0), "{").unwrap();
    std::fs::write(file(1), text.replace("\"format\": 1", "\"format\": 2")).unwrap();
    std::fs::write(file(2), text.replace("session-1", "session-9")).unwrap();
    std::fs::remove_file(file(3)).unwrap();
    let newer = std::fs::read(file(1)).unwrap();
    bench.jobs = open(&bench.settings);
    let found = bench.jobs.adopt().await.unwrap();
    let state = |at: usize| {
        found
            .iter()
            .find(|job| job.id == ids[at])
            .map(|job| job.state.clone())
    };
    for at in [0, 3] {
        assert!(
            matches!(state(at), Some(JobState::Lost(why)) if why.contains("state file")),
            "{at}"
        );
    }
    assert_eq!((state(1), state(2)), (None, None));
    assert_eq!(state(4), Some(JobState::Exited(0)));
    // Left alone, whatever is done.
    bench.jobs.forget(&ids[1]).await;
    assert!(bench.jobs.stop(&ids[1]).await.is_err());
    assert_eq!(std::fs::read(file(1)).unwrap(), newer);
    for at in [0, 3] {
        bench.jobs.forget(&ids[at]).await;
        assert!(!bench.folder(&ids[at]).exists());
    }
}

/// The state file is gone and the keeper is there: the job can still be ended.
#[tokio::test]
async fn a_job_without_a_state_file_can_be_stopped() {
    let mut bench = Bench::new();
    let job = bench.start("sleep 600").await;
    std::fs::remove_file(bench.folder(&job.id).join("job.json")).unwrap();
    bench.jobs = open(&bench.settings);
    let found = bench.jobs.adopt().await.unwrap().remove(0);
    assert!(found.state.is_running());
    assert_eq!(
        bench.jobs.stop(&job.id).await.unwrap().state,
        JobState::Stopped
    );
}

#[tokio::test]
async fn a_keeper_whose_socket_was_removed_is_found_by_the_mark() {
    let mut bench = Bench::with(|settings| settings.grace = Duration::ZERO);
    let job = bench.start("sleep 600").await;
    let folder = bench.folder(&job.id);
    std::fs::remove_file(folder.join("control")).unwrap();
    bench.jobs = open(&bench.settings);
    // The job goes on, which the lock says, and cannot be asked.
    assert!(bench.job(&job.id).await.state.is_running());
    let _ = bench.jobs.stop(&job.id).await;
    assert_eq!(members(&folder), 0);
}

#[tokio::test]
async fn a_command_line_sees_and_stops_jobs_without_owning_them() {
    let bench = Bench::with(|settings| settings.orphan_grace = Duration::from_secs(5));
    let job = bench.start("echo ready; sleep 600").await;
    says(&bench.jobs, &job.id, "ready").await;
    let root = bench.root();
    let id = job.id.clone();
    let look = tokio::task::spawn_blocking(move || {
        let listed = listing::list(&root).unwrap();
        let read = listing::read(&root, &id, 2, 100).unwrap();
        let stopped = listing::stop(&root, &id, Duration::from_millis(500)).unwrap();
        let again = listing::stop(&root, &id, Duration::from_millis(500)).unwrap();
        let unknown = JobId::parse("job-0123456789abcdef").unwrap();
        let missing = listing::stop(&root, &unknown, Duration::ZERO).unwrap_err();
        (listed, read, stopped, again, missing)
    });
    let (listed, read, stopped, again, missing) = look.await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (
            listed[0].session.as_str(),
            &listed[0].job.id,
            listed[0].job.tail.as_str()
        ),
        ("session-1", &job.id, "ready")
    );
    assert!(listed[0].job.state.is_running());
    assert_eq!((read.bytes.as_slice(), read.upto), (&b"ady\n"[..], 6));
    assert_eq!(
        (&stopped.state, &again.state),
        (&JobState::Stopped, &JobState::Stopped)
    );
    assert!(matches!(missing, JobError::NoSuchJob(_)));
    // Its engine hears of it.
    assert_eq!(bench.ended(&job.id).await.state, JobState::Stopped);
}

#[tokio::test]
async fn jobs_of_a_deleted_session_end_and_their_files_go() {
    let bench = Bench::new();
    let kept = bench
        .jobs
        .start(JobRequest {
            keep: true,
            ..request("call-1", "setsid sleep 600 & echo ready; sleep 600")
        })
        .await
        .unwrap();
    says(&bench.jobs, &kept.id, "ready").await;
    bench.start("true").await;
    let mark = record(&bench.folder(&kept.id)).mark;
    bench.jobs.close().await;
    let folder = bench.settings.folder.clone();
    tokio::task::spawn_blocking(move || listing::discard(&folder))
        .await
        .unwrap()
        .unwrap();
    assert!(!bench.settings.folder.exists());
    assert!(strays(&mark).find().is_empty());
    listing::discard(&bench.settings.folder).unwrap();
}

#[tokio::test]
async fn old_jobs_of_other_sessions_are_cleared_away_and_running_ones_never() {
    let bench = Bench::new();
    let old = bench.start("true").await;
    let young = bench.start("true").await;
    let running = bench.start("sleep 600").await;
    for id in [&old.id, &young.id] {
        bench.ended(id).await;
        until("the keeper's end", async || {
            keepers(&bench.folder(id)).is_empty().then_some(())
        })
        .await;
    }
    let mut of_old = record(&bench.folder(&old.id));
    of_old.ended_at = Some(record::unix_millis() - 8 * 24 * 60 * 60 * 1000);
    of_old
        .write(&folder::Folder::open(&bench.folder(&old.id)).unwrap())
        .unwrap();
    // Its own session keeps what it has.
    listing::collect_garbage(&bench.settings.folder);
    assert!(bench.folder(&old.id).exists());
    listing::collect_garbage(&bench.root().join("session-2"));
    assert!(!bench.folder(&old.id).exists());
    for id in [&young.id, &running.id] {
        assert!(bench.folder(id).join("job.json").exists());
    }
    bench.jobs.stop(&running.id).await.unwrap();
}

#[tokio::test]
async fn a_session_that_clears_away_takes_no_folder_from_one_that_begins() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("jobs");
    std::fs::create_dir_all(root.join("session-new")).unwrap();
    listing::collect_garbage(&root.join("session-1"));
    assert!(root.join("session-new").exists());

    // Whoever holds every empty folder for old takes what was made a moment ago, and the
    // start makes it once more.
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cleaner = std::thread::spawn({
        let (root, stop) = (root.clone(), Arc::clone(&stop));
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                listing::collect(&root.join("session-1"), Duration::ZERO);
            }
        }
    });
    let mut sessions = Vec::new();
    for number in 0..20 {
        let folder = root.join(format!("session-other-{number}"));
        let jobs = open(&JobsSettings::new(folder.clone()));
        let started = jobs.start(request("call-1", "sleep 600")).await;
        sessions.push((folder, started));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    cleaner.join().unwrap();
    let errors: Vec<_> = sessions
        .iter()
        .filter_map(|(folder, started)| {
            listing::discard(folder).unwrap();
            started.as_ref().err()
        })
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[tokio::test]
async fn no_tool_reaches_the_files_of_a_job() {
    let bench = Bench::new();
    let job = bench.start("echo out").await;
    bench.ended(&job.id).await;
    let world = crate::world::World::new(crate::world::WorldSettings {
        cwd: bench.home.path().to_owned(),
        denied: vec![bench.root()],
        ..crate::world::WorldSettings::default()
    })
    .unwrap();
    for entry in std::fs::read_dir(bench.folder(&job.id)).unwrap() {
        assert!(world.resolve(entry.unwrap().path()).is_err());
    }
    // It has no folder for jobs of its own either.
    let error = world
        .jobs()
        .start(request("call", "true"))
        .await
        .unwrap_err();
    assert!(matches!(error, JobError::Unavailable(_)));
}

/// A home whose path is longer than that of a socket may be.
#[tokio::test]
async fn a_long_home_is_no_hindrance() {
    let bench = Bench::with(|settings| {
        let long: PathBuf = std::iter::repeat_n("a".repeat(60), 5).collect();
        settings.folder = settings
            .folder
            .parent()
            .unwrap()
            .join(long)
            .join("session-1");
    });
    let job = bench.start("echo out; sleep 600").await;
    says(&bench.jobs, &job.id, "out").await;
    bench.jobs.stop(&job.id).await.unwrap();
}

/// Whether we have the right to mount.
fn can_mount() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok())
        .is_some_and(|rights| rights & SYS_ADMIN != 0)
}
