//! The job tools on real jobs, under their keepers.

use serde_json::json;

use super::*;
use crate::world::jobs::JobsSettings;

fn bench() -> (Bench, tempfile::TempDir) {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().canonicalize().unwrap().join("jobs/s1");
    let bench = Bench::with(|settings| {
        settings.jobs = Some(JobsSettings::new(folder));
    });
    (bench, home)
}

async fn collect(bench: &Bench, id: &JobId) -> Output {
    let args = json!({"id": id.as_str(), "wait_ms": 30_000});
    bench.run(&JobCollect::new(), args).await.unwrap()
}

/// Collects until the end, and gives all output with the last ledger.
async fn collected(bench: &Bench, id: &JobId) -> (String, Vec<String>) {
    let mut text = String::new();
    for _ in 0..100 {
        let output = collect(bench, id).await;
        if output.text != "(no new output)" {
            text.push_str(&output.text);
        }
        if !output.remarks.first().unwrap().contains(": running") {
            return (text, output.remarks);
        }
    }
    unreachable!("the job does not end: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_149_a_real_job_gives_its_output_and_its_status_and_is_forgotten() {
    let (bench, _home) = bench();
    bench
        .run(&Bash::new(), json!({"command": "export SHOWN=yes"}))
        .await
        .unwrap();
    let id = started(
        &bench,
        "c1",
        "echo $SHOWN; printf '\\033[1mbold\\033[0m\\n'; cat; exit 3",
    )
    .await;
    let (text, remarks) = collected(&bench, &id).await;
    assert_eq!(text, "yes\nbold\n");
    let state = remarks.first().unwrap();
    assert!(
        state.starts_with(&format!("job {id}: exited with status 3 after ")),
        "{state}"
    );
    let again = bench
        .run(&JobCollect::new(), json!({"id": id.as_str()}))
        .await
        .unwrap_err();
    assert_eq!(again.0, format!("there is no job `{id}` in this session"));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_151_a_stop_ends_all_of_a_real_job() {
    let (bench, _home) = bench();
    let command = "trap '' TERM; sleep 600 & echo $! $$; sleep 600; sleep 600";
    let id = started(&bench, "c1", command).await;
    let pids = collect(&bench, &id).await.text;
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2);
    let stopped = bench
        .run(&JobStop::new(), json!({"id": id.as_str()}))
        .await
        .unwrap();
    assert!(
        stopped.text.starts_with(&format!("Stopped the job {id}")),
        "{stopped:?}"
    );
    for pid in pids {
        assert!(
            !std::path::Path::new("/proc").join(pid).join("cwd").exists(),
            "{pid}"
        );
    }
    let (_, remarks) = collected(&bench, &id).await;
    assert!(
        remarks
            .first()
            .unwrap()
            .contains("stopped before reporting a status"),
        "{remarks:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r097_a_real_job_that_writes_a_byte_at_a_time_is_collected_whole() {
    let (bench, _home) = bench();
    let command =
        "for i in {1..200}; do printf '\\xe6'; printf '\\xbc'; printf '\\xa2'; done; echo";
    let id = started(&bench, "c1", command).await;
    let (text, _) = collected(&bench, &id).await;
    assert_eq!(text, "漢".repeat(200) + "\n");
}
