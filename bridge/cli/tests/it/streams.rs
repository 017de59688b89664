//! What goes where: frames alone to standard output, diagnostics to stderr or a file, and
//! nothing of a person's work in diagnostics.

use std::process::Stdio;

use serde_json::json;
use terret_fixtures::{Direction, PermissionPolicy, Reply, Script};

use crate::support::{Bench, file_text};

const IN_PROMPT: &str = "mallard-in-the-prompt";
const IN_FILE: &str = "heron-in-the-file";
const IN_ANSWER: &str = "plover-in-the-answer";
const IN_OUTPUT: &str = "ospreyoutput";

fn bench() -> Bench {
    Bench::new(
        &format!("//- a.txt\n{IN_FILE}\n"),
        Script::new()
            .reply(
                Reply::on(IN_PROMPT)
                    .say(IN_ANSWER)
                    .call("Read", json!({"file_path": "a.txt"}))
                    .call("Read", json!({"file_path": "missing.txt"}))
                    .call("Bash", json!({"command": "echo osprey''output; exit 3"}))
                    .call("Nothing", json!({})),
            )
            .reply(Reply::on("fail").fail(400, 100))
            .reply(Reply::on("").say("done")),
    )
}

/// A day's work: calls that go well and badly, a failed turn, and lines that are no frames.
async fn work(bench: &Bench, arguments: &[&str]) {
    let mut command = bench.acp();
    command.args(arguments);
    let editor = bench.editor_of(command, PermissionPolicy::AllowOnce).await;
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    editor.prompt(&session, IN_PROMPT).await.unwrap();
    editor.prompt(&session, "fail").await.unwrap_err();
    editor.send_line("no json at all").await.unwrap();
    editor
        .request("session/unknown", json!({"sessionId": session}))
        .await
        .unwrap_err();
    let (transcript, status) = editor.finish().await.unwrap();
    assert_eq!(status.unwrap().code(), Some(0));
    let lines = transcript
        .frames
        .iter()
        .filter(|frame| frame.direction == Direction::FromAgent);
    let mut count = 0;
    for frame in lines {
        count += 1;
        let json = frame
            .json
            .as_ref()
            .unwrap_or_else(|| panic!("{}", frame.line));
        assert_eq!(json["jsonrpc"], "2.0", "{}", frame.line);
    }
    assert!(count > 10, "{count} lines");
}

fn nothing_of_the_work(log: &str) {
    for word in [IN_PROMPT, IN_FILE, IN_ANSWER, IN_OUTPUT] {
        assert!(!log.contains(word), "`{word}` is in the log:\n{log}");
    }
}

#[tokio::test]
async fn standard_output_carries_frames_and_the_log_carries_no_work() {
    let bench = bench();
    work(&bench, &[]).await;
    nothing_of_the_work(&bench.stderr());
}

#[tokio::test]
async fn diagnostics_of_every_level_go_to_stderr() {
    let bench = bench();
    work(&bench, &["-vv"]).await;
    let log = bench.stderr();
    assert!(log.contains("DEBUG") || log.contains("TRACE"), "{log}");
    nothing_of_the_work(&log);
}

#[tokio::test]
async fn diagnostics_go_to_a_file_that_is_named() {
    let bench = bench();
    let file = bench.workspace.beside().join("terret.log");
    bench.configure(&format!(
        "[log]\nlevel = \"debug\"\nfile = {:?}\n",
        file.display().to_string()
    ));
    work(&bench, &[]).await;
    assert_eq!(bench.stderr(), "");
    nothing_of_the_work(&file_text(&file).await);
}

#[tokio::test]
async fn a_log_level_that_does_not_exist_is_refused_by_name() {
    let bench = bench();
    bench.configure("[log]\nlevel = \"loud\"\n");
    let finished = bench.terret(&["acp"]).await;
    assert_eq!(finished.code, Some(1));
    assert_eq!(finished.stdout, "");
    assert!(
        finished.stderr.contains("log.level") && finished.stderr.contains("loud"),
        "{finished:?}"
    );
}

/// Diagnostics that nobody takes are no reason to fail: not when the editor has closed
/// their pipe, and not when the disk behind them is full.
#[tokio::test]
async fn stderr_that_cannot_be_written_ends_nothing() {
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    for stderr in [Stdio::from(closed), Stdio::from(full)] {
        let bench = Bench::saying("hello");
        let mut command = bench.acp();
        command.arg("-vv").stderr(stderr);
        let editor = bench.editor_of(command, PermissionPolicy::AllowOnce).await;
        let session = editor.new_session(bench.workspace.root()).await.unwrap();
        editor.prompt(&session, "go").await.unwrap();
        let (transcript, status) = editor.finish().await.unwrap();
        assert!(status.unwrap().success());
        assert!(format!("{transcript:?}").contains("hello"));
    }
}
