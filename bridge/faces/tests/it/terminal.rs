//! The terminal face, with a scripted keyboard and a page for a screen.

use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::{Value, json};
use terret_faces::terminal::{
    self, Approvals, Finished, Form, Input, TerminalError, TerminalOptions,
};
use terret_fixtures::{Reply, Script, Workspace};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::stage::{self, Setting};

/// A screen that can be read.
#[derive(Clone, Default)]
struct Screen(Arc<Mutex<Vec<u8>>>);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Screen {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Lines that a person will type.
struct Keys(Mutex<VecDeque<&'static str>>);

impl Keys {
    fn of(lines: &[&'static str]) -> Arc<dyn Input> {
        Arc::new(Self(Mutex::new(lines.iter().copied().collect())))
    }
}

#[async_trait]
impl Input for Keys {
    async fn line(&self) -> Option<String> {
        self.0.lock().unwrap().pop_front().map(str::to_owned)
    }
}

struct Run {
    workspace: Workspace,
    screen: Screen,
    outcome: Result<Finished, TerminalError>,
}

async fn run(
    script: Script,
    prompts: &[&str],
    approvals: Approvals,
    form: Form,
    keys: &[&'static str],
) -> Run {
    let setting = Setting::from(script);
    let workspace = Workspace::new(setting.tree).unwrap();
    let engine = stage::engine(&workspace, &setting, &Arc::new(Semaphore::new(0)));
    let options = TerminalOptions {
        cwd: workspace.root().to_owned(),
        prompts: prompts.iter().map(|prompt| (*prompt).to_owned()).collect(),
        approvals,
        form,
        colour: false,
    };
    let screen = Screen::default();
    let stop = CancellationToken::new();
    let outcome = terminal::run(
        engine.clone(),
        stage::face(),
        options,
        screen.clone(),
        Keys::of(keys),
        stop,
    )
    .await;
    engine.shutdown().await;
    Run {
        workspace,
        screen,
        outcome,
    }
}

fn story() -> Script {
    let todos = json!([{ "content": "look", "status": "in_progress", "activeForm": "Looking" }]);
    Script::new()
        .reply(
            Reply::new()
                .say("I look.")
                .call("Read", json!({ "file_path": "notes.txt" })),
        )
        .reply(Reply::new().call("TodoWrite", json!({ "todos": todos })))
        .reply(Reply::new().call(
            "Edit",
            json!({ "file_path": "notes.txt", "old_string": "two", "new_string": "2" }),
        ))
        .say("Done.")
}

#[tokio::test]
async fn a_turn_is_shown_and_a_question_answered_by_hand() {
    let run = run(
        story(),
        &["change it"],
        Approvals::Ask,
        Form::Text,
        &["what?", "y"],
    )
    .await;
    assert_eq!(run.outcome.unwrap().stop_reason, "end_turn");
    assert_eq!(
        std::fs::read_to_string(run.workspace.root().join("notes.txt")).unwrap(),
        "one\n2\nthree\n"
    );
    let shown = run
        .screen
        .text()
        .replace(run.workspace.root().to_str().unwrap(), "<cwd>");
    insta::assert_snapshot!(shown);
}

#[tokio::test]
async fn a_no_leaves_the_file_as_it_is() {
    let run = run(story(), &["change it"], Approvals::Ask, Form::Text, &["n"]).await;
    run.outcome.unwrap();
    assert_eq!(
        std::fs::read_to_string(run.workspace.root().join("notes.txt")).unwrap(),
        "one\ntwo\nthree\n"
    );
    let shown = run.screen.text();
    assert!(
        shown.contains("✗ Edit notes.txt\n  you said no\n"),
        "{shown}"
    );
    assert!(!shown.contains("no reason given"), "{shown}");
}

#[tokio::test]
async fn yes_to_all_needs_no_keyboard() {
    let run = run(
        story(),
        &["change it"],
        Approvals::AllowAll,
        Form::Text,
        &[],
    )
    .await;
    run.outcome.unwrap();
    assert_eq!(
        std::fs::read_to_string(run.workspace.root().join("notes.txt")).unwrap(),
        "one\n2\nthree\n"
    );
}

#[tokio::test]
async fn with_nobody_there_a_question_is_denied_with_the_reason() {
    let run = run(story(), &["change it"], Approvals::Nobody, Form::Text, &[]).await;
    run.outcome.unwrap();
    assert_eq!(
        std::fs::read_to_string(run.workspace.root().join("notes.txt")).unwrap(),
        "one\ntwo\nthree\n"
    );
    assert!(
        run.screen.text().contains("nobody can be asked"),
        "{}",
        run.screen.text()
    );
}

/// A model that runs a command, whatever comes of it.
fn command(command: &str) -> Script {
    Script::new()
        .reply(Reply::new().call("Bash", json!({ "command": command })))
        .say("Done.")
}

#[tokio::test]
async fn always_is_no_answer_where_it_is_not_offered() {
    // No rule can cover it, so that there is nothing to allow for the session.
    let run = run(
        command("sh check.sh; touch ran"),
        &["go"],
        Approvals::Ask,
        Form::Text,
        &["a", "always", "", "yes please", "n"],
    )
    .await;
    run.outcome.unwrap();
    let shown = run.screen.text();
    assert!(!shown.contains("[a]"), "{shown}");
    assert_eq!(shown.matches("y or n? > ").count(), 4, "{shown}");
    assert!(!run.workspace.root().join("ran").exists());
}

#[tokio::test]
async fn always_is_an_answer_where_it_is_offered() {
    let run = run(story(), &["go"], Approvals::Ask, Form::Text, &["a"]).await;
    run.outcome.unwrap();
    let shown = run.screen.text();
    assert!(!shown.contains("or n?"), "{shown}");
    assert!(shown.contains("✓ Edit notes.txt"), "{shown}");
}

#[tokio::test]
async fn nobody_at_the_keyboard_ends_the_session_without_an_answer() {
    for keys in [&[][..], &["what?"]] {
        let run = run(
            command("touch ran"),
            &["go", "never"],
            Approvals::Ask,
            Form::Text,
            keys,
        )
        .await;
        let finished = run.outcome.unwrap();
        assert_eq!(finished.stop_reason, "cancelled");
        assert!(finished.unanswered);
        let shown = run.screen.text();
        assert!(
            shown.ends_with("\nnobody answered; the session ends here\n"),
            "{shown}"
        );
        assert!(
            !shown.contains("Done.") && !shown.contains("never"),
            "{shown}"
        );
        assert!(!run.workspace.root().join("ran").exists());
    }
}

#[tokio::test]
async fn a_command_is_shown_once_with_its_output_and_its_end() {
    let run = run(
        command("seq 12; exit 3"),
        &["go"],
        Approvals::Ask,
        Form::Text,
        &["y"],
    )
    .await;
    run.outcome.unwrap();
    let shown = run.screen.text();
    let (before, after) = shown.split_once("  [y] ").unwrap();
    assert!(before.ends_with("\n    seq 12; exit 3\n"), "{shown}");
    assert_eq!(before.matches("seq 12").count(), 1, "{shown}");
    assert!(!shown.contains("```"), "{shown}");
    assert!(
        after.contains(
            "✗ seq 12; exit 3 (exit 3)\n  … 2 more lines above\n  3\n  4\n  5\n  6\n  7\n  8\n  9\n  10\n  11\n  12\nDone."
        ),
        "{shown}"
    );
}

#[tokio::test]
async fn a_command_that_went_well_shows_its_output() {
    let run = run(
        command("echo fine"),
        &["go"],
        Approvals::AllowAll,
        Form::Text,
        &[],
    )
    .await;
    run.outcome.unwrap();
    let shown = run.screen.text();
    assert!(
        shown.ends_with("● echo fine\n✓ echo fine\n  fine\nDone.\n"),
        "{shown}"
    );
}

#[tokio::test]
async fn json_is_one_object_a_line() {
    let run = run(
        story(),
        &["change it"],
        Approvals::AllowAll,
        Form::Json,
        &[],
    )
    .await;
    run.outcome.unwrap();
    let lines: Vec<Value> = run
        .screen
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.contains(&json!({ "type": "prompt", "text": "change it" })));
    assert_eq!(
        lines.last().unwrap(),
        &json!({ "type": "end", "stopReason": "end_turn" })
    );
    assert!(lines.iter().any(|line| line["type"] == "permission"));
    assert!(
        lines
            .iter()
            .any(|line| line["update"]["sessionUpdate"] == "tool_call")
    );
}

#[tokio::test]
async fn a_failed_turn_is_an_error_with_the_reason() {
    let run = run(Script::new(), &["hi"], Approvals::Nobody, Form::Text, &[]).await;
    let error = run.outcome.unwrap_err().to_string();
    assert!(error.contains("no reply"), "{error}");
    // Whoever has the error says it.
    assert_eq!(run.screen.text(), "> hi\n");
}

#[tokio::test]
async fn ctrl_c_cancels_the_turn() {
    let setting =
        Setting::from(Script::new().reply(Reply::new().say("Wait.").call("Hold", json!({}))));
    let workspace = Workspace::new(setting.tree).unwrap();
    let engine = stage::engine(&workspace, &setting, &Arc::new(Semaphore::new(0)));
    let options = TerminalOptions {
        cwd: workspace.root().to_owned(),
        prompts: vec!["go".into(), "never".into()],
        approvals: Approvals::Ask,
        form: Form::Text,
        colour: false,
    };
    let (screen, stop) = (Screen::default(), CancellationToken::new());
    let running = tokio::spawn(terminal::run(
        engine.clone(),
        stage::face(),
        options,
        screen.clone(),
        Keys::of(&[]),
        stop.clone(),
    ));
    while !screen.text().contains("hold on") {
        tokio::task::yield_now().await;
        assert!(!running.is_finished());
    }
    stop.cancel();
    assert_eq!(running.await.unwrap().unwrap().stop_reason, "cancelled");
    assert!(screen.text().contains("Stopped."), "{}", screen.text());
    assert!(!screen.text().contains("never"));
    engine.shutdown().await;
}
