#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::mode::Mode;
use crate::table::Table;
use crate::testing::{Bench, call, set_policy};

fn bench() -> Bench {
    let scratch = tempfile::tempdir().unwrap().keep();
    Bench::with(|settings| settings.scratch = scratch)
}

async fn run(bench: &Bench, args: Value) -> Output {
    bench.run(&Bash::new(), args).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn check_139_status_is_in_the_ledger_and_no_output_says_so() {
    let bench = bench();
    let failed = run(&bench, json!({"command": "echo one; echo two >&2; exit 3"})).await;
    assert_eq!(failed.render(), "one\ntwo\n--- terret ---\nexit status 3");
    assert_eq!(
        run(&bench, json!({"command": "true"})).await.render(),
        "(no output)"
    );
    let killed = run(&bench, json!({"command": "kill -TERM $$"})).await;
    assert_eq!(killed.remarks, ["ended by SIGTERM"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_140_a_timeout_is_a_notice_and_keeps_what_was_printed() {
    let bench = bench();
    let output = run(
        &bench,
        json!({"command": "echo before; sleep 600", "timeout": 200}),
    )
    .await;
    assert_eq!(output.text, "before\n");
    let notice = output.remarks.first().unwrap();
    assert!(
        notice.starts_with(
            "notice: the command was still running after 200 ms and was stopped, with everything"
        ),
        "{notice}"
    );
    assert_eq!(
        run(&bench, json!({"command": "echo after"})).await.render(),
        "after\n"
    );
}

#[test]
fn check_140_zero_and_less_mean_the_default_and_more_than_the_most_is_said() {
    for asked in [None, Some(0), Some(-5)] {
        assert_eq!(timeout(asked), (Duration::from_millis(120_000), Vec::new()));
    }
    assert_eq!(timeout(Some(1)).0, Duration::from_millis(1));
    let (most, remarks) = timeout(Some(600_001));
    assert_eq!((most, remarks.len()), (Duration::from_millis(600_000), 1));
}

#[test]
fn check_140_a_timeout_that_is_no_number_is_refused_and_a_numeric_string_is_one() {
    let bash = Bash::new();
    let schema = &bash.definition().parameters;
    let refused =
        arguments::check("Bash", schema, json!({"command": "x", "timeout": "soon"})).unwrap_err();
    assert!(
        refused.0.contains("`timeout`") && refused.0.contains("integer"),
        "{}",
        refused.0
    );
    let taken =
        arguments::check("Bash", schema, json!({"command": "x", "timeout": "1000"})).unwrap();
    assert_eq!(taken.args.get("timeout"), Some(&json!(1000)));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_141_long_output_is_shown_from_both_ends_and_kept_whole() {
    let bench = bench();
    let output = run(
        &bench,
        json!({"command": "for i in {1..10000}; do echo \"line $i\"; done"}),
    )
    .await;
    let whole: String = (1..=10_000).map(|i| format!("line {i}\n")).collect();
    assert!(output.text.starts_with("line 1\nline 2\n") && output.text.ends_with("line 10000\n"));
    let left_out = whole.len() - 30_000;
    let remark = output.remarks.first().unwrap();
    assert!(
        remark.starts_with(&format!(
            "30000 of {} bytes of output are shown, {left_out} from the middle",
            whole.len()
        )),
        "{remark}"
    );
    let path = remark.rsplit(' ').next().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), whole);
    assert!(bench.world.resolve(path).is_ok(), "Read can open {path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_142_output_cannot_write_a_ledger() {
    let bench = bench();
    let output = run(
        &bench,
        json!({"command": "echo '--- terret ---'; echo 'exit status 0'; exit 1"}),
    )
    .await;
    assert_eq!(
        output.render(),
        "| --- terret ---\nexit status 0\n--- terret ---\nexit status 1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_named_and_ended() {
    let bench = bench();
    let output = run(&bench, json!({"command": "sleep 599 & echo $!"})).await;
    let pid = output.text.trim();
    assert_eq!(
        output.remarks,
        [format!(
            "still running when the command ended, and was ended: sleep 599 (pid {pid})"
        )]
    );
    assert!(!std::path::Path::new("/proc").join(pid).join("cwd").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_061_a_cancel_ends_the_command_and_keeps_what_was_printed() {
    let bench = bench();
    let mut context = bench.context();
    context.cancel = CancellationToken::new();
    let ready = bench.path("ready");
    let cancel = context.cancel.clone();
    let waiter = tokio::task::spawn_blocking(move || {
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        cancel.cancel();
        std::time::Instant::now()
    });
    let command = "echo partial; (trap '' TERM; sleep 600) & touch ready; sleep 600";
    let failure = Bash::new()
        .run(&context, json!({"command": command}))
        .await
        .unwrap_err();
    let waited = waiter.await.unwrap().elapsed();
    assert!(
        failure
            .0
            .starts_with("partial\n--- terret ---\ncancelled: "),
        "{}",
        failure.0
    );
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_152_commands_know_that_they_are_inside_and_see_no_key() {
    let bench = Bench::with(|settings| {
        settings
            .environment
            .set
            .insert("GIVEN".to_owned(), "yes".to_owned());
    });
    let output = run(
        &bench,
        json!({"command": "echo \"$TERRET_INSIDE $GIVEN\"; env | grep -c -e _API_KEY -e _TOKEN"}),
    )
    .await;
    assert_eq!(output.text, "1 yes\n0\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_background_job_is_refused_with_what_to_do() {
    let bench = bench();
    let refused = bench
        .run(
            &Bash::new(),
            json!({"command": "true", "run_in_background": true}),
        )
        .await
        .unwrap_err();
    assert!(refused.0.contains("without `run_in_background`"));
    assert!(
        bench
            .run(&Bash::new(), json!({"command": " \n"}))
            .await
            .is_err()
    );
}

#[test]
fn the_title_is_the_first_line() {
    let bash = Bash::new();
    assert_eq!(
        bash.title(&json!({"command": "\n  cargo test\n"})),
        "cargo test"
    );
    assert_eq!(bash.title(&json!({"command": "a\nb"})), "a …");
    assert_eq!(bash.title(&json!({"command": 5})), "Bash");
    assert!(
        bash.title(&json!({"command": "x".repeat(500)}))
            .chars()
            .count()
            <= TITLE + 2
    );
}

/// The whole way: a cancel of a turn whose tool hangs gives a result at once, and the next
/// command runs.
#[tokio::test(flavor = "multi_thread")]
async fn r027_a_cancel_of_a_hung_command_is_answered_and_the_next_call_is_served() {
    let bench = bench();
    set_policy(&bench.policy, |policy| policy.mode = Mode::Bypass);
    let mut table = Table::new();
    table.add(Arc::new(Bash::new())).unwrap();
    let pipeline = bench.pipeline(table);
    bench.approver.approve("a");
    bench.approver.approve("b");
    let cancel = CancellationToken::new();
    let ready = bench.path("ready");
    let stop = cancel.clone();
    let waiter = tokio::task::spawn_blocking(move || {
        while !ready.exists() {
            std::thread::sleep(Duration::from_millis(2));
        }
        stop.cancel();
        std::time::Instant::now()
    });
    let hung = call(
        "a",
        "Bash",
        json!({"command": "trap '' TERM INT HUP; touch ready; while :; do sleep 600; done", "timeout": 600_000}),
    );
    pipeline.run_calls(vec![hung], &cancel).await.unwrap();
    let waited = waiter.await.unwrap().elapsed();
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    assert!(
        bench.journal.error("a").contains("cancelled: "),
        "{}",
        bench.journal.error("a")
    );
    pipeline
        .run_calls(
            vec![call("b", "Bash", json!({"command": "echo served"}))],
            &CancellationToken::new(),
        )
        .await
        .unwrap();
    assert_eq!(bench.journal.output("b").text, "served\n");
}

/// Nobody can approve what they were not shown.
#[tokio::test(flavor = "multi_thread")]
async fn r007_a_command_too_long_to_be_shown_is_not_asked_about() {
    let bench = bench();
    let mut table = Table::new();
    table.add(Arc::new(Bash::new())).unwrap();
    let pipeline = bench.pipeline(table);
    let hidden = format!("echo {}; touch made", "x".repeat(30_000));
    let calls = vec![call("1", "Bash", json!({ "command": hidden }))];
    pipeline
        .run_calls(calls, &CancellationToken::new())
        .await
        .unwrap();
    assert!(bench.approver.questions().is_empty());
    assert!(bench.journal.error("1").contains("script file"));
    assert!(!bench.path("made").exists());
}
