//! A command that the real sandbox keeps from a file: one question, and one more run outside
//! of it (design §4 "Sandbox").

use serde_json::{Value, json};
use tempfile::TempDir;
use terret_fixtures::{PermissionAsked, PermissionPolicy, ScriptedEditor, process};

use crate::support::{Bench, bash, count, last};

/// A project, and a folder elsewhere that its commands may read and not write.
fn bench(provider: &str) -> (Bench, TempDir) {
    // Not below /tmp, where a refusal is not taken for the sandbox's: commands have a private one.
    let elsewhere = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = elsewhere.path().display();
    let command = format!("echo run >> runs; echo made >> {path}/made");
    let bench = Bench::new("", bash(&command));
    bench.configure(&format!(
        "[sandbox]\nprovider = \"{provider}\"\nread = [\"{path}\"]\n"
    ));
    (bench, elsewhere)
}

/// The providers that can confine here, as `terret doctor` says by trying.
async fn providers() -> Vec<&'static str> {
    let mut works = Vec::new();
    for provider in ["bwrap", "landlock"] {
        let (bench, _elsewhere) = bench(provider);
        let doctor = bench.terret_with_model(&["doctor"]).await.stdout;
        let line = doctor.lines().find(|line| line.contains("sandbox:"));
        let line = line.unwrap_or_else(|| panic!("no word of the sandbox: {doctor}"));
        if line.starts_with("broken") {
            // Said with the reason, and nothing runs: what is there to be tried here is that.
            assert!(doctor.contains(provider), "{doctor}");
            assert!(
                provider != "bwrap" || process::find_program("bwrap").is_none() || !is_required(),
                "bubblewrap is installed and does not work: {doctor}"
            );
        } else {
            works.push(provider);
        }
    }
    works
}

fn is_required() -> bool {
    std::env::var("TERRET_REQUIRE_CLIENTS").is_ok_and(|value| value == "1")
}

async fn answer(editor: &ScriptedEditor, asked: &PermissionAsked, kind: &str) {
    let options = asked.params["options"].as_array().unwrap();
    let option = options.iter().find(|option| option["kind"] == kind);
    let option = option.unwrap_or_else(|| panic!("no {kind} in {options:#?}"));
    let outcome = json!({"outcome": {"outcome": "selected", "optionId": option["optionId"]}});
    editor.answer(&asked.id, outcome).await.unwrap();
}

/// Lets the command run and answers what it asks for then; gives the events, the two
/// questions, and what the command did.
async fn run(provider: &str, kind: &str) -> (Vec<Value>, Value, [Option<String>; 2]) {
    let (bench, elsewhere) = bench(provider);
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    let first = editor.wait_permission(0).await.unwrap();
    answer(&editor, &first, "allow_once").await;
    let mark = editor
        .transcript()
        .frames
        .iter()
        .position(|frame| frame.method() == Some("session/request_permission"))
        .unwrap();
    let second = editor.wait_permission(mark + 1).await.unwrap();
    // Until then the command ran once, and inside.
    assert_eq!(bench.workspace.read("runs").unwrap(), "run\n");
    let made = elsewhere.path().join("made");
    assert!(!made.exists(), "{provider}: it was not kept out");
    answer(&editor, &second, kind).await;
    let ended = editor.response(prompt).await.unwrap();
    assert_eq!(ended["stopReason"], "end_turn", "{provider}");
    let events = bench.events(&session).await;
    let did = [
        std::fs::read_to_string(bench.workspace.path("runs")).ok(),
        std::fs::read_to_string(made).ok(),
    ];
    (events, second.params, did)
}

#[tokio::test]
async fn what_the_sandbox_denied_runs_outside_once_after_one_more_approval() {
    for provider in providers().await {
        let (events, question, did) = run(provider, "allow_once").await;
        let text = question.to_string();
        assert!(text.contains("a guess"), "{provider}: {text}");
        assert!(
            text.contains("outside of the sandbox"),
            "{provider}: {text}"
        );
        let kinds = question["options"].as_array().unwrap();
        let lasts = kinds.iter().any(|option| option["kind"] == "allow_always");
        assert!(!lasts, "no rule gives more reach: {kinds:#?}");
        assert_eq!(
            did,
            [Some("run\nrun\n".to_owned()), Some("made\n".to_owned())],
            "{provider}"
        );
        assert_eq!(count(&events, "approval/requested"), 2, "{provider}");
        assert_eq!(count(&events, "tool/started"), 1, "{provider}");
        assert_eq!(count(&events, "tool/result"), 1, "{provider}");
        let result = last(&events, "tool/result").to_string();
        assert!(result.contains("this is the second run"), "{result}");
    }
}

#[tokio::test]
async fn what_the_sandbox_denied_stays_denied_without_that_approval() {
    for provider in providers().await {
        let (events, _, did) = run(provider, "reject_once").await;
        assert_eq!(did, [Some("run\n".to_owned()), None], "{provider}");
        assert_eq!(count(&events, "approval/requested"), 2, "{provider}");
        let result = last(&events, "tool/result").to_string();
        assert!(result.contains("it was not run again"), "{result}");
    }
}
