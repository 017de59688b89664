//! `terret run`: one prompt, its forms, its refusals and its exit codes.

use std::process::Stdio;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use terret_fixtures::{Reply, Script, process};
use tokio::io::AsyncReadExt as _;

use crate::support::{Bench, END, PATIENCE, bash, count, file_text, last, signal};

#[tokio::test]
async fn the_answer_is_text() {
    let bench = Bench::saying("hello");
    let finished = bench.terret_with_model(&["run", "hi"]).await;
    assert_eq!(finished.stderr, "");
    assert_eq!(finished.ok(), "> hi\nhello\n");
}

#[tokio::test]
async fn the_prompt_may_come_from_standard_input() {
    let bench = Bench::new(
        "",
        Script::new().reply(Reply::on("two\nlines").say("both read")),
    );
    let shown = bench.terret_fed(&["run", "-"], "two\nlines").await.ok();
    assert!(shown.ends_with("both read\n"), "{shown}");
    let empty = bench.terret_fed(&["run", "-"], " \n").await;
    assert_eq!(empty.code, Some(1));
    assert!(empty.stderr.contains("empty"), "{empty:?}");
}

#[tokio::test]
async fn json_is_one_object_a_line_and_says_how_it_ended() {
    let bench = Bench::saying("hello");
    let shown = bench.terret_with_model(&["run", "--json", "hi"]).await.ok();
    let lines: Vec<Value> = shown
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines.last().unwrap(),
        &json!({"type": "end", "stopReason": "end_turn"})
    );
    assert!(
        lines.iter().any(
            |line| line.pointer("/update/content/text").and_then(Value::as_str) == Some("hello")
        )
    );
}

#[tokio::test]
async fn a_failed_turn_is_said_once_on_a_line_of_its_own() {
    let bench = Bench::new("", Script::new().reply(Reply::on("never")));
    let finished = bench.terret_with_model(&["run", "hi"]).await;
    assert_eq!(finished.code, Some(1));
    assert!(finished.stdout.ends_with('\n'), "{finished:?}");
    assert!(
        finished.stderr.starts_with("terret: the script"),
        "{finished:?}"
    );
    assert_eq!(
        finished.stderr.matches("the script").count(),
        1,
        "{finished:?}"
    );
    assert!(!finished.stdout.contains("the script"), "{finished:?}");
    assert!(!finished.stderr.contains("-32603"), "{finished:?}");
}

#[tokio::test]
async fn a_failure_amid_a_line_ends_the_line() {
    let bench = Bench::new(
        "",
        Script::new().reply(Reply::on("").say("half a sentence").cut_after(6)),
    );
    let finished = bench.terret_with_model(&["run", "hi"]).await;
    assert_eq!(finished.code, Some(1));
    assert!(finished.stdout.contains("half a"), "{finished:?}");
    assert!(finished.stdout.ends_with('\n'), "{finished:?}");
}

#[tokio::test]
async fn without_a_key_the_way_out_is_named() {
    let bench = Bench::saying("never");
    let finished = bench.terret(&["run", "hi"]).await;
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(1), ""));
    assert!(
        finished.stderr.contains("ANTHROPIC_API_KEY"),
        "{finished:?}"
    );
}

#[tokio::test]
async fn what_needs_a_person_is_denied_when_nobody_is_there() {
    let bench = Bench::new("", bash("echo ran >> runs"));
    let finished = bench.terret_with_model(&["run", "go"]).await;
    // The model is told, and the turn goes on to its ordinary end.
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert!(
        finished.stdout.contains("nobody can be asked"),
        "{finished:?}"
    );
    assert!(finished.stdout.contains("--ask"), "{finished:?}");
    assert!(
        !finished.stdout.contains("request_permission"),
        "{finished:?}"
    );
    assert!(finished.stdout.contains("done"), "{finished:?}");
    assert!(!bench.workspace.path("runs").exists());
}

#[tokio::test]
async fn a_person_is_asked_with_ask() {
    for (answer, runs) in [
        ("y\n", true),
        ("what\nyes\n", true),
        ("n\n", false),
        ("", false),
    ] {
        let bench = Bench::new("", bash("echo ran >> runs"));
        let finished = bench.terret_fed(&["run", "--ask", "go"], answer).await;
        assert!(finished.stdout.contains("[y] Allow once"), "{finished:?}");
        assert_eq!(
            bench.workspace.path("runs").exists(),
            runs,
            "{answer:?} {finished:?}"
        );
        assert_eq!(finished.stderr, "");
        let unanswered = finished.stdout.contains("nobody answered");
        assert_eq!(unanswered, answer.is_empty(), "{finished:?}");
    }
}

#[tokio::test]
async fn a_mode_is_taken_and_an_unknown_one_is_refused() {
    let bench = Bench::new(
        "//- a.txt\none\n",
        Script::new()
            .reply(
                Reply::on("^go$").call("Write", json!({"file_path": "b.txt", "content": "two\n"})),
            )
            .reply(Reply::on("").say("done")),
    );
    bench
        .terret_with_model(&["run", "--mode", "edits", "go"])
        .await
        .ok();
    assert_eq!(bench.workspace.read("b.txt").unwrap(), "two\n");
    let wrong = bench
        .terret_with_model(&["run", "--mode", "bold", "go"])
        .await;
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("`bold`"), "{wrong:?}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_named() {
    let bench = Bench::saying("hello");
    let finished = bench
        .terret_with_model(&["run", "--cwd", "nowhere", "hi"])
        .await;
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("nowhere"), "{finished:?}");
}

#[tokio::test]
async fn a_signal_cancels_the_turn_and_what_it_runs() {
    for (which, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let bench = Bench::new("", bash("echo $$ > pid; exec sleep 3631")).unconfined();
        let mut command = bench.command();
        command
            .args(["--model", &bench.model(), "run", "go"])
            .args(["--mode", "bypass", "--allow-bypass"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pid: u32 = file_text(&bench.workspace.path("pid"))
            .await
            .trim()
            .parse()
            .unwrap();
        let start = Instant::now();
        signal(child.id().unwrap(), which);
        let mut shown = String::new();
        child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut shown)
            .await
            .unwrap();
        let status = tokio::time::timeout(PATIENCE, child.wait())
            .await
            .unwrap()
            .unwrap();
        let took = start.elapsed();
        assert_eq!(status.code(), Some(code), "{which:?} {shown}");
        assert!(took < END, "{took:?}");
        assert!(shown.ends_with("Stopped.\n"), "{shown}");
        assert!(!process::is_alive(pid));
        let id = bench.terret(&["sessions", "list", "--json"]).await.ok();
        let id: Value = serde_json::from_str(id.trim()).unwrap();
        let events = bench.events(id["id"].as_str().unwrap()).await;
        assert_eq!(count(&events, "turn/end"), 1);
        assert_eq!(last(&events, "turn/end")["status"], "cancelled");
    }
}

#[tokio::test]
async fn check_037_a_headless_run_ends_at_the_step_ceiling() {
    let mut script = Script::new();
    for _ in 0..40 {
        script = script.reply(Reply::new().call("Glob", json!({ "pattern": "*" })));
    }
    let bench = Bench::new("", script);
    let finished = bench.terret_with_model(&["run", "--json", "go"]).await;
    assert_ne!(finished.code, Some(0), "{finished:?}");
    assert!(
        finished.stdout.contains("max_turn_requests"),
        "{finished:?}"
    );
    let calls = finished
        .stdout
        .matches("\"sessionUpdate\":\"tool_call\"")
        .count();
    assert_eq!(calls, 25, "{finished:?}");
}

#[tokio::test]
async fn a_run_denies_fails_or_allows_what_nobody_can_be_asked() {
    for (policy, code, made) in [("deny", 0, false), ("fail", 1, false), ("allow", 0, true)] {
        let bench = Bench::new("", bash("touch made"));
        let arguments = ["run", "--permission-policy", policy, "go"];
        let finished = bench.terret_with_model(&arguments).await;
        assert_eq!(finished.code, Some(code), "{policy}: {finished:?}");
        assert_eq!(bench.workspace.path("made").exists(), made, "{policy}");
        if policy == "fail" {
            assert!(
                finished
                    .stderr
                    .starts_with("terret: `Bash` needs an approval: nobody can be asked"),
                "{finished:?}"
            );
            assert!(
                finished.stderr.contains("--permission-policy allow"),
                "{finished:?}"
            );
        }
    }
    let bench = Bench::saying("hello");
    let both = bench
        .terret_with_model(&["run", "--ask", "--permission-policy", "allow", "hi"])
        .await;
    assert_eq!(both.code, Some(2), "{both:?}");
}
