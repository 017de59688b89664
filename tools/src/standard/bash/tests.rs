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
        [
            format!("still running when the command ended, and was ended: sleep 599 (pid {pid})"),
            "what is to go on in the background is started with `run_in_background`".to_owned()
        ]
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
async fn where_no_jobs_are_kept_a_background_command_is_refused_with_the_reason() {
    let bench = bench();
    let args = json!({"command": "true", "run_in_background": true});
    let refused = bench.run(&Bash::new(), args).await.unwrap_err();
    assert!(
        refused.0.starts_with("jobs are not available here"),
        "{refused:?}"
    );
    let blank = bench.run(&Bash::new(), json!({"command": " \n"})).await;
    assert!(blank.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn r019_what_was_put_in_the_background_is_named_and_gone() {
    let bench = bench();
    let begun = std::time::Instant::now();
    let output = run(&bench, json!({"command": "yes > /dev/null & echo hi $!"})).await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    let pid = output.text.trim().strip_prefix("hi ").unwrap().to_owned();
    assert_eq!(
        output.remarks,
        [
            format!("still running when the command ended, and was ended: yes (pid {pid})"),
            "what is to go on in the background is started with `run_in_background`".to_owned()
        ]
    );
    assert!(!std::path::Path::new("/proc").join(pid).join("cwd").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn r020_nobody_waits_for_who_still_holds_the_output() {
    let bench = bench();
    let begun = std::time::Instant::now();
    let output = run(
        &bench,
        json!({"command": "exec > >(tee -a f) 2>&1; echo done"}),
    )
    .await;
    assert_eq!(output.text, "done\n");
    let output = run(&bench, json!({"command": "sleep 600 & echo done"})).await;
    assert_eq!(output.text, "done\n");
    assert!(output.remarks.first().unwrap().contains("sleep 600"));
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test(flavor = "multi_thread")]
async fn r021_who_ignores_the_request_to_end_is_killed_after_the_grace() {
    let bench = bench();
    let begun = std::time::Instant::now();
    let command =
        "echo $$; trap '' TERM; (trap '' TERM; sleep 600; sleep 600) & sleep 600; sleep 600";
    let output = run(&bench, json!({"command": command, "timeout": 300})).await;
    assert!(begun.elapsed() < Duration::from_secs(20));
    let pid = output.text.trim();
    assert!(!std::path::Path::new("/proc").join(pid).join("cwd").exists());
    assert!(
        output
            .remarks
            .first()
            .unwrap()
            .contains("with everything it had started")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r064_commands_run_where_the_session_is() {
    let (one, two) = (bench(), bench());
    for bench in [&one, &two] {
        let folder = bench.folder.path().canonicalize().unwrap();
        let output = run(bench, json!({"command": "pwd; echo $PWD"})).await;
        assert_eq!(output.text, format!("{0}\n{0}\n", folder.display()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r097_characters_written_a_byte_at_a_time_stay_whole() {
    let bench = bench();
    // One write a byte: 漢 is e6 bc a2.
    let command =
        "for i in {1..300}; do printf '\\xe6'; printf '\\xbc'; printf '\\xa2'; done; echo";
    let output = run(&bench, json!({ "command": command })).await;
    let wanted = "漢".repeat(300) + "\n";
    assert_eq!(output.text, wanted);
    assert_eq!(bench.journal.live(), wanted);
    // Past the size of a pipe, and cut on a character's boundary.
    let command = "for i in {1..50000}; do printf '漢'; done; echo";
    let output = run(&bench, json!({ "command": command })).await;
    assert!(!output.text.contains('\u{fffd}'));
    let remark = output.remarks.first().unwrap();
    let shown: usize = remark.split(' ').next().unwrap().parse().unwrap();
    assert!(
        remark.contains(&format!(
            "of 150001 bytes of output are shown, {} from",
            150_001 - shown
        )),
        "{remark}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r098_colours_titles_and_progress_are_plain_text() {
    let bench = bench();
    let command = "printf '\\x1b[31mred\\x1b[0m \\x1b]0;title\\x07plain\\n'; printf '\\x1b'; sleep 0.1; printf '[1mbold\\n'; \
                   printf '10%%\\r50%%\\r100%%\\n'; printf 'end\\x1b'";
    let output = run(&bench, json!({ "command": command })).await;
    assert_eq!(output.text, "red plain\nbold\n100%\nend");
    let live = bench.journal.live();
    assert!(
        !live.contains('\u{1b}') && live.contains("bold"),
        "{live:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r136_a_program_that_is_missing_is_told_with_the_path_that_was_used() {
    let bench = bench();
    let output = run(
        &bench,
        json!({"command": "export PATH=/usr/bin:/bin:/extra; no-such-program"}),
    )
    .await;
    assert_eq!(
        output.remarks,
        [
            "exit status 127",
            "a program was not found; they are looked for in /usr/bin:/bin:/extra"
        ]
    );
    bench.put("script", "#!/no/such/interpreter\n");
    let output = run(&bench, json!({"command": "chmod +x script; ./script"})).await;
    assert!(
        output.remarks.last().unwrap().contains("/extra"),
        "{output:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r139_a_profile_brings_nothing_back_and_prints_nothing() {
    let bench = bench();
    bench.put(".bash_profile", "export MY_TOKEN=back; echo Welcome");
    bench.put(".bashrc", "export MY_TOKEN=back; echo Welcome");
    bench.put(".profile", "export MY_TOKEN=back; echo Welcome");
    let home = bench.folder.path().display();
    let command = format!("export HOME={home} BASH_ENV={home}/.bashrc ENV={home}/.profile");
    run(&bench, json!({ "command": command })).await;
    let output = run(
        &bench,
        json!({"command": "echo \"$HOME ${MY_TOKEN-none}\""}),
    )
    .await;
    assert_eq!(output.text, format!("{home} none\n"));
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
            <= jobs::TITLE + 2
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
