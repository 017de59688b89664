//! `terret inbox`: seeing and deciding what waits, from another terminal; and not from
//! inside ("nobody approves themselves").

use serde_json::{Value, json};
use terret_fixtures::{PermissionPolicy, Reply, Script, ScriptedEditor};

use crate::support::{Bench, TERRET, bash, count, last};

/// An agent that asks for a command; gives the editor, the session and the prompt.
async fn asking(bench: &Bench) -> (ScriptedEditor, String, i64) {
    let (editor, session) = bench.session(PermissionPolicy::Never).await;
    let prompt = editor.start_prompt(&session, "go").await.unwrap();
    editor.wait_permission(0).await.unwrap();
    (editor, session, prompt)
}

/// What waits, as `terret inbox list --json` gives it.
async fn waiting(bench: &Bench) -> Vec<Value> {
    let listed = bench.terret(&["inbox", "list", "--json"]).await.ok();
    listed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The editor's question was taken back.
async fn withdrawn(editor: &ScriptedEditor) {
    let asked = editor.wait_permission(0).await.unwrap();
    editor
        .wait_for("the question taken back", |frame| {
            (frame.method() == Some("$/cancel_request")
                && frame.params()?.get("requestId") == Some(&asked.id))
            .then_some(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn an_approval_is_seen_and_given_from_another_terminal() {
    let bench = Bench::new("", bash("echo ran >> runs"));
    let (editor, session, prompt) = asking(&bench).await;
    let items = waiting(&bench).await;
    assert_eq!(items.len(), 1, "{items:#?}");
    assert_eq!(items[0]["sessionId"], session.as_str());
    assert_eq!(items[0]["title"], "echo ran >> runs");
    let shown = bench.terret(&["inbox"]).await.ok();
    let name = format!("{session}/{}", items[0]["id"].as_str().unwrap());
    assert!(shown.starts_with(&name), "{shown}");
    let done = bench.terret(&["inbox", "approve", &name]).await.ok();
    assert!(done.starts_with("allowed once: echo ran"), "{done}");
    withdrawn(&editor).await;
    let answer = editor.response(prompt).await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    assert_eq!(bench.workspace.read("runs").unwrap(), "ran\n");
    assert_eq!(bench.terret(&["inbox"]).await.ok(), "Nothing waits.\n");
    // The first decision won; a second one finds nothing.
    let late = bench.terret(&["inbox", "reject", &name]).await;
    assert_eq!(late.code, Some(1));
    assert!(late.stderr.contains("terret inbox"), "{late:?}");
    let events = bench.events(&session).await;
    assert_eq!(count(&events, "approval/resolved"), 1);
    assert_eq!(last(&events, "approval/resolved")["by"], "inbox");
}

#[tokio::test]
async fn a_refusal_carries_its_reason_to_the_model() {
    let bench = Bench::new(
        "",
        Script::new()
            .reply(Reply::on("^go$").call_as("b1", "Bash", json!({"command": "echo ran >> runs"})))
            .reply(Reply::on("use the heron instead").say("the heron it is"))
            .reply(Reply::on("").say("no reason came")),
    );
    let (editor, session, prompt) = asking(&bench).await;
    bench
        .terret(&[
            "inbox",
            "reject",
            &session,
            "--reason",
            "use the heron instead",
        ])
        .await
        .ok();
    withdrawn(&editor).await;
    editor.response(prompt).await.unwrap();
    assert!(!bench.workspace.path("runs").exists());
    let events = bench.events(&session).await;
    let resolved = last(&events, "approval/resolved");
    assert_eq!(resolved["reason"], "use the heron instead");
    assert_eq!(resolved["verdict"], "denied");
    let shown = terret_fixtures::Shown::of(&editor.transcript(), &session);
    assert!(
        format!("{shown:?}").contains("the heron it is"),
        "{shown:?}"
    );
}

#[tokio::test]
async fn a_wrong_name_decides_nothing() {
    let bench = Bench::new("", bash("echo ran >> runs"));
    let (_editor, session, _) = asking(&bench).await;
    for wrong in ["nothing", "a", &format!("{session}/a9999")] {
        let finished = bench.terret(&["inbox", "approve", wrong]).await;
        assert_eq!(finished.code, Some(1), "{wrong}: {finished:?}");
    }
    assert_eq!(waiting(&bench).await.len(), 1);
    assert!(!bench.workspace.path("runs").exists());
}

/// What a command of the agent does to approve another one, in ways that differ in what
/// they leave of its origin.
const ATTEMPTS: [(&str, &str); 3] = [
    ("as it is", "inbox"),
    ("without the mark in its environment", "env -i inbox"),
    ("in a session of its own", "env -i setsid --wait inbox"),
];

#[tokio::test]
async fn nobody_approves_themselves() {
    for (name, attempt) in ATTEMPTS {
        let bench = Bench::new("", Script::new()).unconfined();
        let command = format!(
            "{} approve \"$(cat prey)\" > out 2>&1; echo $? > code",
            attempt.replace(
                "inbox",
                &format!("'{TERRET}' --home '{}' inbox", bench.home().display())
            )
        );
        bench.rescript(
            Script::new()
                .reply(Reply::on("^go$").call("Bash", json!({"command": "echo ran >> runs"})))
                .reply(Reply::on("^attempt$").call("Bash", json!({"command": command})))
                .reply(Reply::on("").say("done")),
        );
        let (editor, prey, _) = asking(&bench).await;
        bench.workspace.write("prey", &format!("{prey}/")).unwrap();
        let session = editor.new_session(bench.workspace.root()).await.unwrap();
        let mark = editor.mark();
        let prompt = editor.start_prompt(&session, "attempt").await.unwrap();
        // The person lets this one run; it tries to answer for them from then on.
        let asked = editor.wait_permission(mark).await.unwrap();
        let options = asked.params["options"].as_array().unwrap();
        let once = options
            .iter()
            .find(|option| option["kind"] == "allow_once")
            .unwrap();
        editor
            .answer(
                &asked.id,
                json!({"outcome": {"outcome": "selected", "optionId": once["optionId"]}}),
            )
            .await
            .unwrap();
        editor.response(prompt).await.unwrap();
        let out = bench.workspace.read("out").unwrap();
        assert_eq!(
            bench.workspace.read("code").unwrap(),
            "1\n",
            "{name}: {out}"
        );
        assert!(
            out.contains("may not decide") || out.contains("cannot decide"),
            "{name}: {out}"
        );
        let left = waiting(&bench).await;
        assert_eq!(left.len(), 1, "{name}: {left:#?}");
        assert_eq!(left[0]["sessionId"], prey.as_str(), "{name}");
        assert!(!bench.workspace.path("runs").exists(), "{name}");
    }
}

#[tokio::test]
async fn what_is_no_engine_is_passed_over() {
    let bench = Bench::new("", bash("echo ran >> runs"));
    let (_editor, session, _) = asking(&bench).await;
    let run = bench.home().join("run");
    // A socket that nobody listens on, a file that bears its name, and one that is silent.
    drop(std::os::unix::net::UnixListener::bind(run.join("engine-1.sock")).unwrap());
    std::fs::write(run.join("engine-2.sock"), "no socket").unwrap();
    std::fs::write(run.join("notes.txt"), "mine").unwrap();
    let items = waiting(&bench).await;
    assert_eq!(items.len(), 1);
    assert_eq!(items[0]["sessionId"], session.as_str());
    assert!(!run.join("engine-1.sock").exists());
    assert!(run.join("engine-2.sock").exists());
    assert!(run.join("notes.txt").exists());
}

#[tokio::test]
async fn what_waits_in_a_session_at_rest_is_listed_too() {
    let bench = Bench::new("", bash("echo ran >> runs"));
    let (editor, session, _) = asking(&bench).await;
    editor.finish().await.unwrap();
    let shown = bench.terret(&["inbox"]).await.ok();
    assert!(shown.starts_with(&session), "{shown}");
    assert!(shown.contains("not running"), "{shown}");
    assert!(shown.contains("send a prompt"), "{shown}");
    cannot_be_decided(&bench, &session).await;
    // A load alone asks nothing, so nothing can be decided after it either.
    let second = bench.editor(PermissionPolicy::Never).await;
    second
        .load_session(&session, bench.workspace.root())
        .await
        .unwrap();
    assert!(waiting(&bench).await.is_empty());
    let shown = bench.terret(&["inbox"]).await.ok();
    assert!(shown.contains("send a prompt"), "{shown}");
    cannot_be_decided(&bench, &session).await;
    // The prompt asks again, and then it can.
    second.start_prompt(&session, "carry on").await.unwrap();
    second.wait_permission(0).await.unwrap();
    bench.terret(&["inbox", "approve", &session]).await.ok();
}

/// Deciding is refused with what to do, in a person's words.
async fn cannot_be_decided(bench: &Bench, session: &str) {
    for verb in ["approve", "reject"] {
        let refused = bench.terret(&["inbox", verb, session]).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains("send a prompt"), "{refused:?}");
        for word in ["_terret", "code"] {
            assert!(!refused.stderr.contains(word), "{word}: {refused:?}");
        }
    }
}

#[tokio::test]
async fn a_session_wide_approval_without_a_rule_says_that_it_is_none() {
    // No rule can cover what only the shell will know.
    let bench = Bench::new("", bash("echo $(echo ran) >> runs"));
    let (_editor, session, _) = asking(&bench).await;
    assert_eq!(waiting(&bench).await[0]["offeredRule"], Value::Null);
    let done = bench
        .terret(&["inbox", "approve", "--session", &session])
        .await
        .ok();
    assert!(done.starts_with("allowed once: "), "{done}");
    assert!(done.contains("asked for again"), "{done}");

    let bench = Bench::new("", bash("make"));
    let (_editor, session, _) = asking(&bench).await;
    let done = bench
        .terret(&["inbox", "approve", "--session", &session])
        .await
        .ok();
    assert!(done.starts_with("allowed for this session: "), "{done}");
}
