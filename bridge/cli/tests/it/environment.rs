//! Starting where little is there: no key, no environment, two at once.

use serde_json::json;
use terret_fixtures::{EditorError, PermissionPolicy, Preset};
use tokio::process::Command;

use crate::support::{Bench, TERRET, spawn};

/// `terret acp` without a model.
fn without_model(bench: &Bench) -> Command {
    let mut command = bench.command();
    command.arg("acp");
    bench.keep_stderr(&mut command);
    command
}

#[tokio::test]
async fn without_a_key_it_starts_and_a_prompt_says_what_to_do() {
    let bench = Bench::saying("never");
    let editor = spawn(without_model(&bench), PermissionPolicy::AllowOnce);
    let hello = editor.initialize().await.unwrap();
    let methods = hello["authMethods"].as_array().unwrap();
    assert!(!methods.is_empty());
    assert!(
        methods[0]["description"]
            .as_str()
            .unwrap()
            .contains("ANTHROPIC_API_KEY"),
        "{methods:?}"
    );
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    let error = editor.prompt(&session, "hi").await.unwrap_err();
    let EditorError::Refused { code, message, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*code, -32000);
    assert!(message.contains("set ANTHROPIC_API_KEY"), "{message}");
    assert!(!message.contains('\n'), "{message}");
    // Some clients hide the error, so the text is in the conversation too (quirk 16).
    let shown = terret_fixtures::Shown::of(&editor.transcript(), &session);
    assert!(
        shown.turns[0].text.contains("set ANTHROPIC_API_KEY"),
        "{shown:?}"
    );
    let error = editor
        .request("authenticate", json!({"methodId": methods[0]["id"]}))
        .await
        .unwrap_err();
    assert!(
        matches!(error, EditorError::Refused { code: -32000, .. }),
        "{error}"
    );
    let (_, status) = editor.finish().await.unwrap();
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(bench.stderr(), "");
}

#[tokio::test]
async fn a_script_that_is_missing_is_a_line_in_the_editor() {
    let bench = Bench::saying("never");
    let mut command = bench.command();
    command.args(["--model", "scripted:/nowhere/replies.jsonl", "acp"]);
    let editor = bench.editor_of(command, PermissionPolicy::AllowOnce).await;
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    let error = editor.prompt(&session, "hi").await.unwrap_err().to_string();
    assert!(error.contains("/nowhere/replies.jsonl"), "{error}");
}

#[tokio::test]
async fn quirk_06_two_processes_work_in_one_folder() {
    let bench = Bench::saying("hello");
    let (one, first) = bench.session(PermissionPolicy::AllowOnce).await;
    let (other, second) = bench.session(PermissionPolicy::AllowOnce).await;
    assert_ne!(first, second);
    let (left, right) = tokio::join!(one.prompt(&first, "hi"), other.prompt(&second, "hi"));
    assert_eq!(left.unwrap()["stopReason"], "end_turn");
    assert_eq!(right.unwrap()["stopReason"], "end_turn");
    // A session that is live in one is not taken by the other, and the reason is said.
    let error = other
        .load_session(&first, bench.workspace.root())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&one.pid().unwrap().to_string()),
        "who holds it is not said: {error}"
    );
    // Since when is a date, and no count of milliseconds.
    assert!(error.contains(" since 2"), "{error}");
    assert!(error.contains(" UTC") && !error.contains(" ms "), "{error}");
    one.finish().await.unwrap();
    other
        .load_session(&first, bench.workspace.root())
        .await
        .unwrap();
    other.finish().await.unwrap();
}

#[tokio::test]
async fn quirk_12_a_stripped_environment_is_enough() {
    let bench = Bench::saying("hello");
    let mut command = Command::new(TERRET);
    command
        .env_clear()
        .current_dir("/")
        .arg("acp")
        .arg("--home")
        .arg(bench.home())
        .args(["--model", &bench.model()]);
    bench.keep_stderr(&mut command);
    let options = terret_fixtures::EditorOptions {
        limit: crate::support::PATIENCE,
        ..Preset::avante().into()
    };
    let editor = terret_fixtures::ScriptedEditor::spawn(command, options).unwrap();
    editor.initialize().await.unwrap();
    let session = editor.new_session(bench.workspace.root()).await.unwrap();
    let answer = editor.prompt(&session, "hi").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let (_, status) = editor.finish().await.unwrap();
    assert_eq!(status.unwrap().code(), Some(0));
    assert_eq!(bench.stderr(), "");
}

#[tokio::test]
async fn without_any_home_the_way_out_is_named() {
    let mut command = Command::new(TERRET);
    command.env_clear().args(["sessions", "list"]);
    let finished = crate::support::Finished::of(
        terret_fixtures::process::run(command, crate::support::PATIENCE)
            .await
            .unwrap(),
    );
    assert_eq!(finished.code, Some(1));
    assert!(finished.stderr.contains("--home"), "{finished:?}");
}

#[tokio::test]
async fn the_xdg_folders_are_used_without_a_home() {
    let bench = Bench::saying("hello");
    let base = bench.workspace.beside().join("xdg");
    let mut command = Command::new(TERRET);
    command
        .env_clear()
        .env("HOME", &base)
        .current_dir(bench.workspace.root())
        .args(["--model", &bench.model(), "run", "hi"]);
    let output = terret_fixtures::process::run(command, crate::support::PATIENCE)
        .await
        .unwrap();
    assert!(output.status.success());
    assert!(base.join(".local/state/terret/sessions").is_dir());
    // An empty `TERRET_HOME` is how a shell unsets it for one command.
    let mut command = Command::new(TERRET);
    command
        .env_clear()
        .env("HOME", &base)
        .env("TERRET_HOME", "")
        .args(["sessions", "list", "--json"]);
    let output = terret_fixtures::process::run(command, crate::support::PATIENCE)
        .await
        .unwrap();
    assert_eq!(crate::support::Finished::of(output).ok().lines().count(), 1);
}
