//! Approvals over the wire of the real binary: several at once, answered in any order,
//! twice, late, wrongly or never, and asked again after a crash.

use serde_json::{Value, json};
use terret_fixtures::{Frame, PermissionAsked, PermissionPolicy, Reply, Script, ScriptedEditor};

use crate::support::{Bench, count, last};

/// A turn whose one message holds these commands.
fn commands(commands: &[&str]) -> Script {
    let mut reply = Reply::on("^go$");
    for (place, command) in commands.iter().enumerate() {
        reply = reply.call_as(&format!("c{place}"), "Bash", json!({ "command": command }));
    }
    Script::new()
        .reply(reply)
        .reply(Reply::on("again").say("Here."))
        .reply(Reply::on("").say("Done."))
}

async fn go(bench: &Bench) -> (ScriptedEditor, String, i64) {
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    (editor, session, prompt)
}

/// The first so many questions.
async fn asked(editor: &ScriptedEditor, number: usize) -> Vec<PermissionAsked> {
    let mut all = Vec::new();
    let mut mark = 0;
    while all.len() < number {
        let next = editor
            .wait_from(mark, "one more question", |frame| {
                is_question(frame).then(|| PermissionAsked {
                    id: frame.id().cloned().unwrap(),
                    params: frame.params().cloned().unwrap(),
                })
            })
            .await
            .unwrap();
        let frames = editor.transcript().frames;
        mark = 1 + frames
            .iter()
            .position(|frame| is_question(frame) && frame.id() == Some(&next.id))
            .unwrap();
        all.push(next);
    }
    all
}

fn is_question(frame: &Frame) -> bool {
    frame.is_request() && frame.method() == Some("session/request_permission")
}

fn questions(editor: &ScriptedEditor) -> usize {
    let frames = editor.transcript().frames;
    frames.iter().filter(|frame| is_question(frame)).count()
}

fn chosen(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

async fn stop_reason(editor: &ScriptedEditor, prompt: i64) -> String {
    let answer = editor.response(prompt).await.unwrap();
    answer["stopReason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn r002_five_calls_one_always_and_five_run() {
    let bench = Bench::new("", commands(&["touch made"; 5]));
    let (editor, session, prompt) = go(&bench).await;
    let questions = asked(&editor, 5).await;
    editor
        .answer(&questions[2].id, chosen("allow_always"))
        .await
        .unwrap();
    assert_eq!(stop_reason(&editor, prompt).await, "end_turn");
    assert!(bench.workspace.path("made").exists());
    // Each has a verdict of its own, and the open questions were taken back.
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "tool/started"), 5);
    assert_eq!(count(&events, "approval/resolved"), 5);
    let by_rule = events
        .iter()
        .filter(|event| event["type"] == "approval/resolved")
        .filter(|event| {
            event["payload"]["by"]
                .as_str()
                .unwrap()
                .starts_with("rule:")
        })
        .count();
    assert_eq!(by_rule, 4);
    let taken_back = editor.transcript();
    let taken_back = taken_back
        .frames
        .iter()
        .filter(|frame| frame.method() == Some("$/cancel_request"))
        .count();
    assert_eq!(taken_back, 4);
}

#[tokio::test]
async fn r076_questions_come_together_and_are_answered_in_any_order() {
    let bench = Bench::new(
        "",
        commands(&["echo one >> runs", "echo two >> runs", "echo three >> runs"]),
    );
    let (editor, session, prompt) = go(&bench).await;
    let questions = asked(&editor, 3).await;
    for question in questions.iter().rev() {
        editor
            .answer(&question.id, chosen("allow_once"))
            .await
            .unwrap();
    }
    assert_eq!(stop_reason(&editor, prompt).await, "end_turn");
    let results: Vec<String> = bench
        .events(&session)
        .await
        .iter()
        .filter(|event| event["type"] == "tool/result")
        .map(|event| event["payload"]["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(results, ["c0", "c1", "c2"]);
    assert_eq!(bench.workspace.read("runs").unwrap(), "one\ntwo\nthree\n");
}

#[tokio::test]
async fn r077_questions_are_independent_and_no_answer_is_no_refusal() {
    let bench = Bench::new(
        "",
        commands(&["echo one >> runs", "echo two >> runs", "echo three >> runs"]),
    );
    let (editor, session, prompt) = go(&bench).await;
    let questions = asked(&editor, 3).await;
    editor
        .answer(&questions[1].id, chosen("reject_once"))
        .await
        .unwrap();
    // The others stand, for whoever answers them, here or elsewhere.
    let listed = loop {
        let listed = bench.terret(&["inbox", "list", "--json"]).await.ok();
        if listed.lines().count() == 2 {
            break listed;
        }
    };
    assert!(listed.contains("echo one") && listed.contains("echo three"));
    for place in [0, 2] {
        editor
            .answer(&questions[place].id, chosen("allow_once"))
            .await
            .unwrap();
    }
    assert_eq!(stop_reason(&editor, prompt).await, "end_turn");
    assert_eq!(bench.workspace.read("runs").unwrap(), "one\nthree\n");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "approval/resolved"), 3);
}

#[tokio::test]
async fn r071_a_cancel_leaves_nobody_waiting() {
    let bench = Bench::new("", commands(&["touch one", "touch two", "touch three"]));
    let (editor, session, prompt) = go(&bench).await;
    let questions = asked(&editor, 3).await;
    editor.cancel(&session).await.unwrap();
    assert_eq!(stop_reason(&editor, prompt).await, "cancelled");
    let answer = editor.prompt(&session, "again").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    assert_eq!(bench.terret(&["inbox"]).await.ok(), "Nothing waits.\n");
    // Answers that come too late change nothing.
    for question in &questions {
        editor
            .answer(&question.id, chosen("allow_always"))
            .await
            .unwrap();
    }
    let answer = editor.prompt(&session, "again").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "tool/started"), 0);
    assert_eq!(count(&events, "rule/added"), 0);
}

#[tokio::test]
async fn an_answer_that_comes_twice_counts_once() {
    let bench = Bench::new("", commands(&["echo ran >> runs"]));
    let (editor, session, prompt) = go(&bench).await;
    let question = &asked(&editor, 1).await[0];
    for option in ["reject_once", "allow_once", "allow_always"] {
        editor.answer(&question.id, chosen(option)).await.unwrap();
    }
    assert_eq!(stop_reason(&editor, prompt).await, "end_turn");
    assert!(bench.workspace.read("runs").is_err());
    let events = bench.events(&session).await;
    assert_eq!(last(&events, "approval/resolved")["verdict"], "denied");
    assert_eq!(count(&events, "rule/added"), 0);
}

#[tokio::test]
async fn garbage_for_an_answer_never_allows() {
    for garbage in [
        json!(null),
        json!(true),
        json!({ "outcome": "selected" }),
        json!({ "outcome": { "outcome": "selected" } }),
        json!({ "outcome": { "outcome": "approved", "optionId": "allow_once" } }),
        json!({ "outcome": { "outcome": "selected", "optionId": ["allow_once"] } }),
        chosen("allow_project"),
    ] {
        let bench = Bench::new("", commands(&["echo ran >> runs"]));
        let (editor, session, prompt) = go(&bench).await;
        let question = &asked(&editor, 1).await[0];
        editor.answer(&question.id, garbage.clone()).await.unwrap();
        assert_eq!(stop_reason(&editor, prompt).await, "end_turn", "{garbage}");
        assert!(bench.workspace.read("runs").is_err(), "{garbage}");
        let events = bench.events(&session).await;
        assert_eq!(last(&events, "approval/resolved")["verdict"], "denied");
    }
}

#[tokio::test]
async fn checks_069_and_070_a_question_outlives_a_kill_and_comes_once_with_the_next_prompt() {
    let bench = Bench::new("", commands(&["echo ran >> runs"]));
    let (mut editor, session, _) = go(&bench).await;
    let before = asked(&editor, 1).await.remove(0);
    editor.kill().await.unwrap();
    let second = bench.editor(PermissionPolicy::Never).await;
    second
        .load_session(&session, bench.workspace.root())
        .await
        .unwrap();
    assert_eq!(questions(&second), 0);
    let prompt = second.start_prompt(&session, "carry on").await.unwrap();
    let after = asked(&second, 1).await.remove(0);
    for part in [
        "/toolCall/toolCallId",
        "/toolCall/title",
        "/toolCall/rawInput",
        "/options",
    ] {
        assert_eq!(before.params.pointer(part), after.params.pointer(part));
    }
    second
        .answer(&after.id, chosen("allow_once"))
        .await
        .unwrap();
    assert_eq!(stop_reason(&second, prompt).await, "end_turn");
    assert_eq!(questions(&second), 1);
    assert_eq!(bench.workspace.read("runs").unwrap(), "ran\n");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "approval/requested"), 1);
}

#[tokio::test]
async fn r007_the_whole_command_is_asked_about() {
    let command = format!("echo start{}rm -rf precious", "\n".repeat(200));
    let bench = Bench::new("", commands(&[&command]));
    let (editor, _, _) = go(&bench).await;
    let question = asked(&editor, 1).await.remove(0);
    let call = &question.params["toolCall"];
    assert_eq!(call["rawInput"]["command"], command);
    assert!(call["content"].to_string().contains("rm -rf precious"));
}

#[tokio::test]
async fn the_inbox_allows_for_the_project_and_refuses_for_good() {
    let bench = Bench::new("", commands(&["mkdir -p made/here"]));
    let (editor, session, prompt) = go(&bench).await;
    asked(&editor, 1).await;
    let done = bench
        .terret(&["inbox", "approve", "--project", &session])
        .await
        .ok();
    assert!(done.starts_with("allowed for this project: "), "{done}");
    assert_eq!(stop_reason(&editor, prompt).await, "end_turn");
    editor.finish().await.unwrap();
    // Another process, another session of the project.
    let (editor, session, prompt) = go(&bench).await;
    assert_eq!(stop_reason(&editor, prompt).await, "end_turn");
    assert_eq!(questions(&editor), 0);
    let events = bench.events(&session).await;
    let allowed = &last(&events, "tool/started")["allowed"];
    assert_eq!(allowed["layer"], "project");
    editor.finish().await.unwrap();

    let bench = Bench::new("", commands(&["echo ran >> runs"]));
    let (editor, session, prompt) = go(&bench).await;
    asked(&editor, 1).await;
    bench
        .terret(&["inbox", "reject", "--stop", &session])
        .await
        .ok();
    assert_eq!(stop_reason(&editor, prompt).await, "end_turn");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "step/start"), 1);
    let answer = editor.prompt(&session, "again").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
}

#[tokio::test]
async fn bypass_needs_its_flag() {
    let bench = Bench::new("", commands(&["echo ran >> runs"]));
    let refused = bench
        .terret_with_model(&["run", "--mode", "bypass", "go"])
        .await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("--allow-bypass"), "{refused:?}");
    bench
        .terret_with_model(&["run", "--mode", "bypass", "--allow-bypass", "go"])
        .await
        .ok();
    assert_eq!(bench.workspace.read("runs").unwrap(), "ran\n");
}
