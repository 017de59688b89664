//! The user's own hooks, as real programs: what they are told, what they may say, and what
//! becomes of a call whose hook hangs, breaks or says what nobody understands.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use terret_engine::external_hooks::{ExternalHook, HookEntry};
use terret_engine::room::log::{ApprovalStage, Payload, TurnStatus};
use terret_engine::room::models::Registry;
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::rules::{Effect, Rule, Scope};
use terret_engine::{AgentStatus, Decision, Engine, SessionHandle};

use crate::harness::{
    AutoApprove, Harness, PATIENCE, approval, assert_sound, complete, events, prompt, result,
    status, text, within,
};

/// One call, and words when its result is there.
fn one_call(name: &str, args: Value) -> String {
    let call = json!({ "match": "^go$", "calls": [{ "id": "a", "name": name, "args": args }] });
    format!("{call}\n{}\n", json!({ "match": ".", "say": "done" }))
}

fn writing() -> String {
    one_call("Write", json!({ "file_path": "made", "content": "made" }))
}

fn hook(event: &str, command: &str, more: &str) -> ExternalHook {
    let text = format!(
        "event = \"{event}\"\ncommand = {}\n{more}",
        Value::from(command)
    );
    toml::from_str::<HookEntry>(&text).unwrap().hook().unwrap()
}

fn before(command: &str) -> ExternalHook {
    hook("PreToolUse", command, "")
}

fn harness(script: &str, mode: Mode, hooks: Vec<ExternalHook>) -> Harness {
    let mut harness = Harness::new(script);
    harness.settings.mode = mode;
    harness.settings.hooks.calls = hooks.into();
    harness
}

/// A shell command that prints this.
fn printing(answer: &Value) -> String {
    format!("cat >/dev/null; printf '%s' '{answer}'")
}

fn decided(decision: &str, reason: &str) -> Value {
    json!({ "hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": reason,
    }})
}

async fn notices(session: &SessionHandle) -> Vec<String> {
    let shown = events(session).await.into_iter();
    shown
        .filter_map(|event| match event.payload {
            Payload::NoticeShown { text, .. } => Some(text),
            _ => None,
        })
        .collect()
}

async fn asked(session: &SessionHandle) -> Vec<String> {
    let shown = events(session).await.into_iter();
    shown
        .filter_map(|event| match event.payload {
            Payload::ApprovalRequested { reason, .. } => Some(reason),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_is_told_of_the_call_and_refuses_it_by_status_two() {
    let command = "cat > told; echo \"$TERRET_INSIDE $CLAUDE_PROJECT_DIR\" >> told; \
                   echo 'not on a Friday' >&2; exit 2";
    let harness = harness(&writing(), Mode::Edits, vec![before(command)]);
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert_eq!(harness.read("made"), None);
    assert_eq!(
        result(&session, "a").await,
        Err("Write denied by a hook: not on a Friday".to_owned())
    );
    let told = harness.read("told").unwrap();
    let (told, inside) = told.rsplit_once('}').unwrap();
    let told: Value = serde_json::from_str(&format!("{told}}}")).unwrap();
    let work = harness.work().canonicalize().unwrap();
    let work = work.to_str().unwrap();
    assert_eq!(inside, format!("1 {work}\n"));
    assert_eq!(
        told,
        json!({
            "session_id": session.id().as_str(),
            "cwd": work,
            "permission_mode": "acceptEdits",
            "hook_event_name": "PreToolUse",
            "tool_name": "Write",
            "tool_input": { "file_path": "made", "content": "made" },
            "tool_use_id": "a",
        })
    );
    assert_sound(&events(&session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_refuses_unless_it_is_to_be_passed_over() {
    for (command, more, why) in [
        ("sleep 600", "timeout = 1", "did not end in time"),
        ("kill -SEGV $$", "", "was killed by signal 11"),
        ("echo oh >&2; exit 1", "", "ended with status 1 (oh)"),
        (
            "head -c 10000000 /dev/zero | tr '\\0' x",
            "",
            "printed more than",
        ),
        ("printf '\\377\\376'", "", "printed what is no text"),
        ("echo '{\"decision\":'", "", "printed what is no JSON"),
        (
            "echo 'note: old'; echo '{\"decision\":\"block\"}'",
            "",
            "printed what is no JSON",
        ),
        ("/no/such/program", "", "ended with status 127"),
    ] {
        for on_failure in ["deny", "run"] {
            let more = format!("{more}\non_failure = \"{on_failure}\"");
            let hooks = vec![hook("PreToolUse", command, &more)];
            let harness = harness(&writing(), Mode::Edits, hooks);
            let (_engine, session) = harness.session().await;
            complete(&session, "go").await;
            let notices = notices(&session).await.join("\n");
            assert!(notices.contains(why), "{command}: {notices}");
            if on_failure == "run" {
                assert_eq!(harness.read("made").as_deref(), Some("made"), "{command}");
                continue;
            }
            assert_eq!(harness.read("made"), None, "{command}");
            let refused = result(&session, "a").await.unwrap_err();
            assert!(
                refused.starts_with("Write was not run: the hook `") && refused.contains(why),
                "{refused}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_refuses_too() {
    let entry = "event = \"PreToolUse\"\ncommand = [\"/no/such/program\"]";
    let missing = toml::from_str::<HookEntry>(entry).unwrap().hook().unwrap();
    let harness = harness(&writing(), Mode::Edits, vec![missing]);
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    let refused = result(&session, "a").await.unwrap_err();
    assert!(refused.contains("could not be run"), "{refused}");
    assert_eq!(harness.read("made"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_of_a_hook_ends_with_it_and_holds_nothing_up() {
    let command = "setsid sleep 600 & echo $! > pid";
    let harness = harness(&writing(), Mode::Edits, vec![before(command)]);
    let (_engine, session) = harness.session().await;
    let begun = Instant::now();
    complete(&session, "go").await;
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(harness.read("made").as_deref(), Some("made"));
    let pid = harness.read("pid").unwrap();
    assert!(!is_alive(pid.trim()));
}

fn is_alive(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap().starts_with('Z'))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_stronger_than_a_question_and_a_question_than_a_leave() {
    let (allow, ask, deny) = (
        before(&printing(&decided("allow", "fine"))),
        before(&printing(&decided("ask", "a person must see it"))),
        before(&printing(&decided("deny", "never"))),
    );
    for (hooks, questions, made) in [
        (vec![allow.clone()], 0, true),
        (vec![allow.clone(), ask.clone()], 1, true),
        (vec![ask.clone(), allow.clone()], 1, true),
        (vec![allow, ask, deny], 0, false),
    ] {
        let harness = harness(&writing(), Mode::Ask, hooks);
        let (_engine, session) = harness.session().await;
        let _approve = AutoApprove::start(&session, Decision::AllowOnce);
        complete(&session, "go").await;
        let asked = asked(&session).await;
        assert_eq!(asked.len(), questions);
        assert!(
            asked
                .iter()
                .all(|reason| reason.contains("a person must see it"))
        );
        assert_eq!(harness.read("made").is_some(), made);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leave_passes_no_rule_no_protected_file_no_plan_mode_and_no_floor() {
    let allow = || vec![before(&printing(&decided("allow", "fine")))];
    let rule = |effect| Rule::parse("Write", effect, Scope::User).unwrap();
    let protected = one_call("Write", json!({ "file_path": ".envrc", "content": "x" }));
    for case in ["ask rule", "deny rule", "plan", "floor", "protected"] {
        let script = if case == "protected" {
            protected.clone()
        } else {
            writing()
        };
        let mut harness = harness(&script, Mode::Ask, allow());
        match case {
            "ask rule" => harness.settings.rules = vec![rule(Effect::Ask)].into(),
            "deny rule" => harness.settings.rules = vec![rule(Effect::Deny)].into(),
            "plan" => harness.settings.mode = Mode::Plan,
            "floor" => harness.settings.floor = vec!["Read".to_owned()],
            _ => {}
        }
        let (_engine, session) = harness.session().await;
        let _reject = AutoApprove::start(&session, Decision::Reject { reason: None });
        complete(&session, "go").await;
        assert!(result(&session, "a").await.is_err(), "{case}");
        let is_asked = matches!(case, "ask rule" | "protected");
        assert_eq!(asked(&session).await.len(), usize::from(is_asked), "{case}");
        assert_eq!(harness.read("made"), None, "{case}");
        assert_eq!(harness.read(".envrc"), None, "{case}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_a_hook_is_settled_by_no_mode_and_no_rule() {
    let hooks = vec![before(&printing(&decided("ask", "look at it")))];
    let harness = harness(&writing(), Mode::Ask, hooks);
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    let offered = session.state(|state| state.approvals.get(&id).unwrap().offered_rule.clone());
    assert_eq!(offered, None);
    session.set_option("mode", "edits", "test").unwrap();
    assert_eq!(session.status(), AgentStatus::WaitingApproval);
    assert_eq!(harness.read("made"), None);
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(harness.read("made").as_deref(), Some("made"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_hook_changed_is_judged_as_what_it_became_and_says_so() {
    let becomes = |path: &str| {
        let input = json!({ "file_path": path, "content": "other" });
        let answer = json!({ "hookSpecificOutput": {
            "permissionDecision": "allow", "updatedInput": input,
        }});
        before(&printing(&answer))
    };
    let harness_of = |path: &str| {
        let mut harness = harness(&writing(), Mode::Ask, vec![becomes(path)]);
        let deny = Rule::parse("Edit(denied)", Effect::Deny, Scope::User).unwrap();
        harness.settings.rules = vec![deny].into();
        harness
    };
    let changed = harness_of("other");
    let (_engine, session) = changed.session().await;
    complete(&session, "go").await;
    assert_eq!(changed.read("other").as_deref(), Some("other"));
    assert_eq!(changed.read("made"), None);
    let told = result(&session, "a").await.unwrap();
    assert!(
        told.contains("a hook changed the arguments of this call to {\"file_path\":\"other\""),
        "{told}"
    );
    let refused = harness_of("denied");
    let (_engine, session) = refused.session().await;
    complete(&session, "go").await;
    assert_eq!(refused.read("denied"), None);
    assert!(
        result(&session, "a")
            .await
            .unwrap_err()
            .contains("denied by the rule")
    );
    // A protected file is asked for, as it would be unchanged.
    let protected = harness_of(".envrc");
    let (_engine, session) = protected.session().await;
    let _reject = AutoApprove::start(&session, Decision::Reject { reason: None });
    complete(&session, "go").await;
    assert_eq!(asked(&session).await.len(), 1);
    let shown = events(&session)
        .await
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::ApprovalRequested { args, stage, .. } => Some((args, stage)),
            _ => None,
        });
    let (args, stage) = shown.unwrap();
    assert_eq!(
        (args["file_path"].as_str(), stage),
        (Some(".envrc"), ApprovalStage::Call)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hook_sees_what_those_before_it_made_of_the_call() {
    let first = json!({ "hookSpecificOutput": {
        "updatedInput": { "file_path": "second", "content": "x" },
    }});
    let hooks = vec![before(&printing(&first)), before("cat > seen")];
    let harness = harness(&writing(), Mode::Edits, hooks);
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert!(harness.read("seen").unwrap().contains("\"second\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_may_end_the_turn_and_says_why() {
    let script = r#"{"match":"^go$","calls":[{"id":"a","name":"Write","args":{"file_path":"a","content":"a"}},{"id":"b","name":"Write","args":{"file_path":"b","content":"b"}}]}
{"match":"again","say":"here"}"#;
    let ends = json!({ "continue": false, "stopReason": "the budget is spent" });
    for (event, first, ran) in [
        ("PreToolUse", "denied by a hook", false),
        ("PostToolUse", "", true),
    ] {
        let command = printing(&ends);
        let harness = harness(script, Mode::Edits, vec![hook(event, &command, "")]);
        let (_engine, session) = harness.session().await;
        let outcome = prompt(&session, "go").await;
        assert_eq!(outcome.status, TurnStatus::Completed);
        assert_eq!(harness.read("a").is_some(), ran, "{event}");
        assert_eq!(harness.read("b"), None, "{event}");
        match result(&session, "a").await {
            Ok(_) => assert!(ran),
            // The hook of the other call may have been first to say so.
            Err(error) => assert!(
                !ran && (error.contains(first) || error.contains("cancelled")),
                "{error}"
            ),
        }
        assert!(
            notices(&session)
                .await
                .contains(&"A hook ended the turn: the budget is spent".to_owned())
        );
        assert_sound(&events(&session).await);
        complete(&session, "again").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_after_a_call_adds_to_its_result_and_never_loses_it() {
    let objects = json!({
        "decision": "block", "reason": "not formatted",
        "systemMessage": "for the person",
        "hookSpecificOutput": { "additionalContext": "run the formatter" },
    });
    let harness = harness(
        &one_call("Bash", json!({ "command": "echo said" })),
        Mode::Ask,
        vec![
            hook("PostToolUse", "cat > told; echo 'and this' >&2; exit 2", ""),
            hook("PostToolUse", &printing(&objects), ""),
            hook("PostToolUse", "exit 9", ""),
        ],
    );
    let (_engine, session) = harness.session().await;
    let _approve = AutoApprove::start(&session, Decision::AllowOnce);
    complete(&session, "go").await;
    let said = result(&session, "a").await.unwrap();
    let (output, remarks) = said.split_once("--- terret ---").unwrap();
    assert_eq!(output.trim(), "said");
    for remark in [
        "a hook objects: and this",
        "a hook objects: not formatted",
        "a hook adds: run the formatter",
    ] {
        assert!(remarks.contains(remark), "{remarks}");
    }
    let told: Value = serde_json::from_str(&harness.read("told").unwrap()).unwrap();
    assert_eq!(told["hook_event_name"], "PostToolUse");
    assert_eq!(told["tool_response"]["is_error"], false);
    assert!(
        told["tool_response"]["output"]
            .as_str()
            .unwrap()
            .starts_with("said")
    );
    let notices = notices(&session).await.join("\n");
    assert!(notices.contains("for the person"), "{notices}");
    assert!(
        notices.contains("status 9: it was passed over"),
        "{notices}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_after_a_call_that_must_work_holds_the_result_back() {
    let harness = harness(
        &writing(),
        Mode::Edits,
        vec![hook("PostToolUse", "exit 1", "on_failure = \"deny\"")],
    );
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    let error = result(&session, "a").await.unwrap_err();
    assert!(error.contains("the call had run"), "{error}");
    assert_eq!(harness.read("made").as_deref(), Some("made"));
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_for_the_tools_that_they_name_and_for_what_can_do_the_same() {
    let refuse = |matcher: &str| hook("PreToolUse", "exit 2", &format!("matcher = \"{matcher}\""));
    let job = one_call("job_start", json!({ "command": "touch made" }));
    for (script, matcher, refused) in [
        (writing(), "Bash", false),
        (writing(), "Edit|Write", true),
        (writing(), "^W.*", true),
        (job, "Bash", true),
    ] {
        let harness = harness(&script, Mode::Edits, vec![refuse(matcher)]);
        let (_engine, session) = harness.session().await;
        complete(&session, "go").await;
        assert_eq!(result(&session, "a").await.is_err(), refused, "{matcher}");
    }
}

fn with_hooks(engine: &Engine, harness: &Harness, hooks: Vec<ExternalHook>) {
    let mut settings = harness.settings.clone();
    settings.hooks.calls = hooks.into();
    engine.reconfigure(settings, Registry::new(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_are_changed_while_a_session_lives() {
    let script = r#"{"match":"^1$","calls":[{"id":"c1","name":"Write","args":{"file_path":"a1","content":"a"}}]}
{"match":"^2$","calls":[{"id":"c2","name":"Write","args":{"file_path":"a2","content":"a"}}]}
{"match":"^3$","calls":[{"id":"c3","name":"Write","args":{"file_path":"a3","content":"a"}}]}
{"match":".","say":"done"}"#;
    let harness = harness(script, Mode::Edits, Vec::new());
    let (engine, session) = harness.session().await;
    complete(&session, "1").await;
    with_hooks(&engine, &harness, vec![before("exit 2")]);
    complete(&session, "2").await;
    with_hooks(&engine, &harness, Vec::new());
    complete(&session, "3").await;
    let made: Vec<bool> = ["a1", "a2", "a3"]
        .map(|name| harness.read(name).is_some())
        .into();
    assert_eq!(made, [true, false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_waits_for_no_hook_and_ends_it() {
    for event in ["PreToolUse", "PostToolUse"] {
        let command =
            "trap '' TERM; echo $$ > pid.new; mv pid.new pid; while :; do sleep 600; done";
        let harness = harness(
            &writing(),
            Mode::Edits,
            vec![hook(event, command, "timeout = 600")],
        );
        let (_engine, session) = harness.session().await;
        let answer = session.prompt(text("go")).await.unwrap();
        let begun = Instant::now();
        while harness.read("pid").is_none() {
            assert!(begun.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        session.cancel("enough").await.unwrap();
        let outcome = within(answer.outcome()).await.unwrap();
        assert_eq!(outcome.status, TurnStatus::Cancelled);
        assert_eq!(harness.read("made").is_some(), event == "PostToolUse");
        if event == "PostToolUse" {
            assert!(
                result(&session, "a").await.is_ok(),
                "its own result is there"
            );
        }
        status(&session, AgentStatus::Idle).await;
        let pid = harness.read("pid").unwrap();
        let begun = Instant::now();
        while is_alive(pid.trim()) {
            assert!(begun.elapsed() < PATIENCE, "{event}: the hook goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hooks_of_the_calls_of_one_message_run_beside_each_other() {
    // Each waits until it sees the other: one after another they would never end.
    let script = r#"{"match":"^go$","calls":[{"id":"a","name":"Write","args":{"file_path":"a","content":"a"}},{"id":"b","name":"Write","args":{"file_path":"b","content":"b"}}]}
{"match":".","say":"done"}"#;
    let command = "echo x >> there; while [ \"$(wc -l < there)\" != 2 ]; do sleep 0.01; done";
    let harness = harness(script, Mode::Edits, vec![before(command)]);
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert!(harness.read("a").is_some() && harness.read("b").is_some());
}
