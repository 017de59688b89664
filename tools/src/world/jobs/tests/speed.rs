//! What jobs cost: at rest nothing, at full speed no memory.

use super::*;

/// Processor time of a process in ticks of 10 ms.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum()
}

/// How often a process was put to sleep by itself, which each of its timers does.
fn sleeps(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|count| count.trim().parse().ok())
        .unwrap()
}

/// Resident memory in KiB.
fn memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|size| size.trim().split(' ').next()?.parse().ok())
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn r068_a_silent_job_costs_nothing() {
    let bench = Bench::new();
    let mut keeping = Vec::new();
    for _ in 0..2 {
        let job = bench.start("echo ready; exec sleep 600").await;
        says(&bench.jobs, &job.id, "ready").await;
        // The last that was to be told is told.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        keeping.extend(keepers(&bench.folder(&job.id)));
    }
    let before: Vec<_> = keeping
        .iter()
        .map(|pid| (ticks(*pid), sleeps(*pid)))
        .collect();
    // What the engine's part does shows in what it asks of its runtime.
    let polls = || {
        tokio::runtime::Handle::current()
            .metrics()
            .worker_park_count(0)
    };
    let engine = polls();
    // Not a sleep of the runtime, which would be a timer of its own.
    std::thread::sleep(Duration::from_secs(3));
    let engine = polls() - engine;
    let after: Vec<_> = keeping
        .iter()
        .map(|pid| (ticks(*pid), sleeps(*pid)))
        .collect();
    for ((ticks, sleeps), (ticks_before, sleeps_before)) in after.into_iter().zip(before) {
        assert!(ticks - ticks_before <= 1, "{}", ticks - ticks_before);
        assert!(sleeps - sleeps_before <= 1, "{}", sleeps - sleeps_before);
    }
    assert!(engine <= 1, "{engine}");
}

#[tokio::test]
async fn sixty_four_jobs_at_once() {
    let bench = Bench::with(|settings| settings.limit = 64);
    let begun = Instant::now();
    let starts = (0..64).map(|number| {
        bench.jobs.start(request(
            &format!("call-{number}"),
            &format!("echo {number}; exit {number}"),
        ))
    });
    let jobs = futures::future::join_all(starts).await;
    let started = begun.elapsed();
    for (number, job) in jobs.into_iter().enumerate() {
        let job = job.unwrap();
        let end = bench.ended(&job.id).await;
        assert_eq!(end.state, JobState::Exited(i32::try_from(number).unwrap()));
        assert_eq!(end.tail, number.to_string());
    }
    // Shown with `--nocapture`-like flags only when it fails.
    assert!(started < PATIENCE, "{started:?}");
    let refused = bench.jobs.start(request("call", "true")).await;
    assert!(matches!(refused, Err(JobError::Limit { limit: 64 })));
}

/// `cargo test --release -p terret-tools --lib full_speed -- --ignored --nocapture`
#[tokio::test]
#[ignore = "a measurement of 10 s, for a machine that has nothing else to do"]
#[expect(clippy::print_stderr, reason = "a measurement is told")]
async fn full_speed_for_ten_seconds() {
    let bench = Bench::new();
    let us = i32::try_from(std::process::id()).unwrap();
    let job = bench.start("cat /dev/zero").await;
    let keeper = keepers(&bench.folder(&job.id))[0];
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (engine, kept) = (memory(us), memory(keeper));
    let first = bench.job(&job.id).await;
    let begun = Instant::now();
    let cancel = CancellationToken::new();
    let (mut from, mut read) = (first.written, 0);
    while begun.elapsed() < Duration::from_secs(10) {
        // Somebody follows it, as fast as it can be read.
        let piece = bench
            .jobs
            .read(&job.id, from, 1 << 20, Duration::from_secs(1), &cancel)
            .await
            .unwrap();
        from = piece.upto;
        read += piece.bytes.len() as u64;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (engine_after, kept_after) = (memory(us), memory(keeper));
    let last = bench.jobs.stop(&job.id).await.unwrap();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    eprintln!(
        "written {:.0} MB/s, read {:.0} MB/s; engine {engine} -> {engine_after} KiB, keeper {kept} -> {kept_after} KiB; dropped {:.0} MB",
        megabytes(last.written - first.written) / seconds,
        megabytes(read) / seconds,
        megabytes(last.dropped),
    );
    assert!(engine_after < engine + 16 * 1024 && kept_after < kept + 4 * 1024);
}
