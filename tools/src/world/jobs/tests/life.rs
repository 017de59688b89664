//! A job's life with its engine there.

use super::*;

#[tokio::test]
async fn check_149_a_start_returns_at_once_and_the_end_has_its_status() {
    let bench = Bench::new();
    let begun = Instant::now();
    let job = bench
        .start("echo begun; sleep 0.2; echo done; exit 7")
        .await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!(job.state, JobState::Running { leader: None });
    let (bytes, missing) = output(&bench.jobs, &job.id, 0).await;
    assert_eq!((bytes.as_slice(), missing), (&b"begun\ndone\n"[..], 0));
    let job = bench.ended(&job.id).await;
    assert_eq!(job.state, JobState::Exited(7));
    assert_eq!((job.written, job.dropped), (11, 0));
    assert_eq!(job.tail, "begun\ndone");
    assert!(job.ran_for >= 200 && job.ended_at.unwrap() >= job.started_at);
    bench.jobs.forget(&job.id).await;
    assert!(bench.jobs.list().await.unwrap().is_empty());
    assert!(!bench.folder(&job.id).exists());
}

#[tokio::test]
async fn check_150_the_ninth_job_is_refused_and_strangers_look_alike() {
    let bench = Bench::new();
    let mut jobs = Vec::new();
    for number in 0..8 {
        let script = if number == 0 { "true" } else { "sleep 600" };
        jobs.push(bench.start(script).await);
    }
    bench.ended(&jobs[0].id).await;
    // One that ended counts until it is forgotten.
    let refused = bench.jobs.start(request("call-9", "true")).await;
    assert!(
        matches!(refused, Err(JobError::Limit { limit: 8 })),
        "{refused:?}"
    );
    bench.jobs.forget(&jobs[0].id).await;
    // One that runs is not forgotten.
    bench.jobs.forget(&jobs[1].id).await;
    let ninth = bench.start("sleep 600").await;
    assert_eq!(bench.jobs.list().await.unwrap().len(), 8);

    let mut other = bench.settings.clone();
    other.folder = bench.root().join("session-2");
    let foreign = open(&other).start(request("call", "true")).await.unwrap();
    let unknown = JobId::parse("job-0123456789abcdef").unwrap();
    let cancel = CancellationToken::new();
    for id in [&unknown, &foreign.id, &jobs[0].id] {
        for error in [
            bench.jobs.stop(id).await.unwrap_err(),
            bench
                .jobs
                .read(id, 0, 10, PATIENCE, &cancel)
                .await
                .unwrap_err(),
        ] {
            assert_eq!(
                error.to_string(),
                format!("there is no job `{id}` in this session")
            );
        }
        bench.jobs.forget(id).await;
    }
    assert!(
        bench
            .root()
            .join("session-2")
            .join(foreign.id.as_str())
            .exists()
    );
    listing::discard(&other.folder).unwrap();
    bench.jobs.close().await;
    assert_eq!(bench.job(&ninth.id).await.state, JobState::Stopped);
}

#[tokio::test]
async fn check_151_a_stop_ends_what_left_the_group_and_the_session_too() {
    let bench = Bench::new();
    let job = bench
        .start("setsid sleep 600 & (sleep 600 &) ; setsid bash -c 'env -i sleep 600 & exit' ; echo ready; sleep 600")
        .await;
    says(&bench.jobs, &job.id, "ready").await;
    let folder = bench.folder(&job.id);
    let keeper = keepers(&folder)[0];
    // One of them has no mark, no group and no parent of ours any more.
    let there = until("all to be there", async || {
        Some(crate::helper::members::descendants(keeper))
            .filter(|there| there.iter().filter(|one| !one.dead).count() >= 4)
    })
    .await;
    let stopped = bench.jobs.stop(&job.id).await.unwrap();
    assert_eq!(stopped.state, JobState::Stopped);
    for one in there {
        let now = crate::helper::members::look(one.pid);
        assert!(now.is_none_or(|now| now.started != one.started || now.dead));
    }
    assert_eq!(bench.jobs.stop(&job.id).await.unwrap(), stopped);
    until("the keeper's end", async || {
        keepers(&folder).is_empty().then_some(())
    })
    .await;
}

#[tokio::test]
async fn check_146_a_job_that_ignores_the_request_is_killed_after_the_grace() {
    let bench = Bench::new();
    let job = bench
        .start("trap '' TERM; echo ready; while :; do sleep 0.05; done")
        .await;
    says(&bench.jobs, &job.id, "ready").await;
    let begun = Instant::now();
    assert_eq!(
        bench.jobs.stop(&job.id).await.unwrap().state,
        JobState::Stopped
    );
    assert!(begun.elapsed() >= bench.settings.grace);
    assert_eq!(members(&bench.folder(&job.id)), 0);
}

#[tokio::test]
async fn a_signal_of_somebody_else_is_no_stop_of_ours() {
    let bench = Bench::new();
    let job = bench.start("kill -SEGV $$").await;
    assert_eq!(bench.ended(&job.id).await.state, JobState::Signalled(11));
}

#[tokio::test]
async fn a_job_is_over_when_all_of_it_is_gone() {
    let bench = Bench::new();
    let job = bench
        .start("(while [ ! -e \"$0\" ]; do sleep 0.02; done; echo late) & exit 3")
        .await;
    // The shell's name is the program's: a file that nobody makes until the test does.
    let running = until("the leader's end", async || {
        Some(bench.job(&job.id).await).filter(|job| job.state != JobState::Running { leader: None })
    })
    .await;
    assert_eq!(running.state, JobState::Running { leader: Some(3) });
    let stopped = bench.jobs.stop(&job.id).await.unwrap();
    assert_eq!(stopped.state, JobState::Stopped);
}

#[tokio::test]
async fn r018_a_close_ends_all_within_five_seconds() {
    let bench = Bench::new();
    let plain = bench.start("sh -c 'sleep 600 & sleep 600'").await;
    let stubborn = bench
        .start("trap '' TERM; setsid sleep 600 & while :; do sleep 0.05; done")
        .await;
    let kept = bench
        .jobs
        .start(JobRequest {
            keep: true,
            ..request("call-2", "sleep 600")
        })
        .await
        .unwrap();
    let begun = Instant::now();
    bench.jobs.close().await;
    assert!(begun.elapsed() < Duration::from_secs(5));
    for job in [&plain, &stubborn] {
        assert_eq!(members(&bench.folder(&job.id)), 0);
        assert_eq!(record(&bench.folder(&job.id)).phase, record::Phase::Stopped);
    }
    assert!(members(&bench.folder(&kept.id)) > 0);
    let refused = bench.jobs.start(request("call-3", "true")).await;
    assert!(matches!(refused, Err(JobError::Unavailable(_))));
    // Any later engine has it.
    let later = open(&bench.settings);
    let found = later.started_by("call-2").await.unwrap().unwrap();
    assert!(found.keep && found.state.is_running());
    later.stop(&kept.id).await.unwrap();
}

#[tokio::test]
async fn r022_output_has_a_bound_on_the_disk_and_what_is_gone_is_counted() {
    const ROOM: u64 = 1 << 20;
    let bench = Bench::with(|settings| settings.spool = ROOM);
    let job = bench.start("yes").await;
    let full = until("output beyond the room", async || {
        let folder = bench.folder(&job.id);
        assert!(on_disk(&folder) <= ROOM);
        Some(bench.job(&job.id).await).filter(|job| job.written > 8 * ROOM)
    })
    .await;
    assert_eq!(full.notes, [JobNote::Full { room: ROOM }]);
    // Others are not held up.
    let other = bench
        .jobs
        .start(request("call-2", "echo fine"))
        .await
        .unwrap();
    assert_eq!(output(&bench.jobs, &other.id, 0).await.0, b"fine\n");
    let stopped = bench.jobs.stop(&job.id).await.unwrap();
    let (bytes, missing) = output(&bench.jobs, &job.id, 0).await;
    assert_eq!(missing, stopped.dropped);
    assert_eq!(bytes.len() as u64 + missing, stopped.written);
    assert_eq!(bytes.len() as u64, on_disk(&bench.folder(&job.id)));
    assert!(bytes.len() as u64 <= ROOM && bytes.starts_with(b"y\ny\n"));
    bench.jobs.forget(&job.id).await;
    assert!(!bench.folder(&job.id).exists());
}

#[tokio::test]
async fn r022_a_job_that_has_filled_80_percent_says_so_at_once() {
    let bench = Bench::with(|settings| settings.spool = 100_000);
    let mut changes = bench.jobs.changes();
    let job = bench
        .start("head -c 70000 /dev/zero; sleep 1.2; head -c 15000 /dev/zero; sleep 600")
        .await;
    let mut seen = Vec::new();
    loop {
        let change = tokio::time::timeout(PATIENCE, changes.recv())
            .await
            .unwrap();
        let JobChange::Output(job) = change.unwrap() else {
            panic!("it ended");
        };
        seen.push(job.notes.clone());
        if !job.notes.is_empty() {
            break;
        }
    }
    assert_eq!(
        seen.last().unwrap(),
        &[JobNote::Filling {
            held: 85_000,
            room: 100_000
        }]
    );
    assert!(seen.len() > 1, "70 % is nothing to tell of");
    let note = seen.last().unwrap()[0].to_string();
    assert!(note.contains("85000 of the 100000"), "{note}");
    bench.jobs.stop(&job.id).await.unwrap();
}

#[tokio::test]
async fn r022_all_jobs_of_a_session_share_a_bound() {
    let bench = Bench::with(|settings| {
        settings.spool = 400_000;
        settings.total = 1_000_000;
        settings.limit = 4;
    });
    let mut rooms = Vec::new();
    for _ in 0..4 {
        let job = bench.start("yes").await;
        rooms.push(record(&bench.folder(&job.id)).room);
    }
    assert!(rooms.iter().all(|room| *room >= 250_000), "{rooms:?}");
    assert!(rooms.iter().sum::<u64>() <= 1_000_000, "{rooms:?}");
    until("all to be full", async || {
        let jobs = bench.jobs.list().await.unwrap();
        jobs.iter().all(|job| job.dropped > 0).then_some(())
    })
    .await;
    let all: u64 = bench
        .jobs
        .list()
        .await
        .unwrap()
        .iter()
        .map(|job| on_disk(&bench.folder(&job.id)))
        .sum();
    assert!(all <= 1_000_000, "{all}");
}

/// In a process of its own: other tests end their runtimes with keepers as children.
#[test]
fn r092_no_zombie_stays() {
    let status = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "--include-ignored",
            "world::jobs::tests::life::zombies_are_counted",
        ])
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
#[ignore = "run by another test, in a process of its own"]
async fn zombies_are_counted() {
    let bench = Bench::with(|settings| settings.limit = 100);
    let us = i32::try_from(std::process::id()).unwrap();
    for round in 0..5 {
        let mut names = Vec::new();
        for number in 0..20 {
            let call = format!("call-{round}-{number}");
            names.push(bench.jobs.start(request(&call, "true")).await.unwrap().id);
        }
        for id in &names {
            let begun = Instant::now();
            let job = bench.ended(id).await;
            assert_eq!(job.state, JobState::Exited(0));
            assert!(begun.elapsed() < Duration::from_secs(10));
            bench.jobs.forget(id).await;
        }
    }
    until("all keepers to be reaped", async || {
        let children = crate::helper::members::all()
            .into_iter()
            .filter(|process| process.parent == us)
            .count();
        (children == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn r097_characters_are_collected_whole() {
    let bench = Bench::new();
    // One byte a write, in pieces that know nothing of characters.
    let job = bench
        .start("for i in {1..300}; do printf '\\xe6'; printf '\\xbc'; printf '\\xa2'; printf '\\xe5\\xad'; printf '\\x97'; done; printf '\\xe6\\xbc'")
        .await;
    let (mut from, mut text) = (0, String::new());
    let cancel = CancellationToken::new();
    loop {
        let piece = bench
            .jobs
            .read(&job.id, from, 7, PATIENCE, &cancel)
            .await
            .unwrap();
        if piece.upto == from {
            break;
        }
        from = piece.upto;
        match std::str::from_utf8(&piece.bytes) {
            Ok(piece) => text.push_str(piece),
            // The job ended within a character, which is told as it is.
            Err(_) => assert_eq!(piece.bytes, b"\xe6\xbc"),
        }
    }
    assert_eq!(text, "漢字".repeat(300));
}

#[tokio::test]
async fn a_read_waits_for_output_and_no_longer_than_it_was_told() {
    let bench = Bench::new();
    let job = bench.start("read -r -t 600 < <(sleep 600)").await;
    let cancel = CancellationToken::new();
    let begun = Instant::now();
    let wait = Duration::from_millis(150);
    let piece = bench
        .jobs
        .read(&job.id, 0, 10, wait, &cancel)
        .await
        .unwrap();
    assert!(piece.bytes.is_empty() && piece.job.state.is_running());
    assert!(begun.elapsed() >= wait);
    cancel.cancel();
    let begun = Instant::now();
    bench
        .jobs
        .read(&job.id, 0, 10, PATIENCE, &cancel)
        .await
        .unwrap();
    assert!(begun.elapsed() < PATIENCE / 2);
    bench.jobs.stop(&job.id).await.unwrap();
}

#[tokio::test]
async fn a_program_that_is_not_there_is_no_job() {
    let bench = Bench::new();
    let mut missing = request("call-1", "");
    missing.program.argv = vec!["/no/such/program".into()];
    let error = bench.jobs.start(missing).await.unwrap_err();
    assert!(
        matches!(&error, JobError::Process(ProcessError::Spawn { source, .. }) if source.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
    let mut nowhere = request("call-1", "true");
    nowhere.program.cwd = "/no/such/folder".into();
    let error = bench.jobs.start(nowhere).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    assert!(bench.jobs.list().await.unwrap().is_empty());
    assert_eq!(
        std::fs::read_dir(&bench.settings.folder).unwrap().count(),
        0
    );
    assert!(bench.jobs.started_by("call-1").await.unwrap().is_none());
}

#[tokio::test]
async fn an_input_reaches_the_job() {
    let bench = Bench::new();
    let (reader, mut writer) = std::io::pipe().unwrap();
    std::io::Write::write_all(&mut writer, b"given").unwrap();
    drop(writer);
    let mut with = request("call-1", "cat");
    with.program.input = Some(reader.into());
    let job = bench.jobs.start(with).await.unwrap();
    assert_eq!(output(&bench.jobs, &job.id, 0).await.0, b"given");
}

#[tokio::test]
async fn a_start_that_nobody_waits_for_any_more_leaves_nothing() {
    let bench = Bench::new();
    bench.jobs.list().await.unwrap();
    let start = bench.jobs.start(request("call-1", "sleep 600"));
    // Dropped at its first pause, while the job is being started.
    assert!(
        tokio::time::timeout(Duration::ZERO, start).await.is_err(),
        "it was too quick"
    );
    until("the job to be gone", async || {
        let has_folder = std::fs::read_dir(&bench.settings.folder)
            .is_ok_and(|mut entries| entries.next().is_some());
        let is_idle = bench.jobs.is_idle();
        (!has_folder && is_idle).then_some(())
    })
    .await;
    assert!(keepers(&bench.settings.folder).is_empty());
}

#[tokio::test]
async fn r137_all_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let bench = Bench::new();
    let job = bench.start("echo; umask; sleep 600").await;
    says(&bench.jobs, &job.id, "0").await;
    let mode = |path: &Path| path.symlink_metadata().unwrap().permissions().mode() & 0o7777;
    for folder in [
        bench.root(),
        bench.settings.folder.clone(),
        bench.folder(&job.id),
    ] {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(bench.folder(&job.id)).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().into_string().unwrap());
        assert_eq!(mode(&entry.path()), 0o600, "{names:?}");
    }
    for name in ["control", "job.json", "lock"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    // The keeper's care for its files is no affair of the job's.
    let own = {
        let mask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(mask);
        mask.as_raw_mode()
    };
    says(&bench.jobs, &job.id, &format!("{own:04o}")).await;
    bench.jobs.stop(&job.id).await.unwrap();
}

#[tokio::test]
async fn a_tail_is_clean_and_short() {
    let bench = Bench::new();
    let job = bench
        .start("for i in {1..3000}; do printf '\\e[31mline %d\\e[0m\\n' $i; done")
        .await;
    let job = bench.ended(&job.id).await;
    assert!(job.tail.len() <= 2048 && job.tail.ends_with("line 3000"));
    assert!(job.tail.lines().all(|line| line.starts_with("line ")));
}

#[tokio::test]
async fn changes_are_told_once_a_second_and_the_end_once() {
    let bench = Bench::new();
    let mut changes = bench.jobs.changes();
    let begun = Instant::now();
    let job = bench
        .start("for i in {1..120}; do echo $i; sleep 0.01; done")
        .await;
    let mut outputs = 0;
    loop {
        match tokio::time::timeout(PATIENCE, changes.recv())
            .await
            .unwrap()
            .unwrap()
        {
            JobChange::Output(_) => outputs += 1,
            JobChange::Ended(end) => {
                assert_eq!((end.id, end.state), (job.id.clone(), JobState::Exited(0)));
                assert!(end.tail.ends_with("120"));
                break;
            }
        }
    }
    assert!(outputs >= 1);
    assert!(outputs <= 1 + begun.elapsed().as_secs() + 1, "{outputs}");
    assert!(changes.try_recv().is_err());
}

fn on_disk(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.unwrap();
            let is_output = entry.file_name().to_string_lossy().starts_with("output.");
            // One may go while we look.
            is_output.then(|| entry.metadata().map_or(0, |data| data.len()))
        })
        .sum()
}
