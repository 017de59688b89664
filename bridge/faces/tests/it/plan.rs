//! The plan: full lists, only when they change, and never as a card.

use serde_json::{Value, json};
use terret_fixtures::{Preset, Reply, Script};

use crate::stage::{Setting, Stage, place, text, updates};

fn todos(items: &[(&str, &str)]) -> Value {
    let list: Vec<Value> = items
        .iter()
        .map(|(content, status)| json!({ "content": content, "status": status, "activeForm": content }))
        .collect();
    json!({ "todos": list })
}

fn planner(lists: &[Value]) -> Script {
    let mut script = Script::new();
    for (n, list) in lists.iter().enumerate() {
        script = script.reply(Reply::on(&format!("^plan {n}$")).call_as(
            &format!("t{n}"),
            "TodoWrite",
            list.clone(),
        ))
    }
    for _ in 0..12 {
        script = script.say("Noted.");
    }
    script
}

#[tokio::test]
async fn r011_a_list_is_one_full_plan_update_and_no_card() {
    let five = todos(&[
        ("a", "completed"),
        ("b", "in_progress"),
        ("c", "pending"),
        ("d", "pending"),
        ("e", "pending"),
    ]);
    let stage = Stage::new(Setting::from(planner(&[five.clone(), five])).editor(Preset::zed()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "plan 0").await.unwrap();
    // The same list again is no change, and vscode-acp would draw it twice (quirk 14).
    stage.editor.prompt(&session, "plan 1").await.unwrap();
    let seen = stage.finish().await;
    let plans = updates(&seen, "plan");
    assert_eq!(plans.len(), 1, "{seen}");
    let entries = plans[0]["entries"].as_array().unwrap();
    let shown: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry["content"].as_str().unwrap(),
                entry["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("a", "completed"),
            ("b", "in_progress"),
            ("c", "pending"),
            ("d", "pending"),
            ("e", "pending")
        ]
    );
    assert!(entries.iter().all(|entry| entry["priority"] == "medium"));
    assert!(updates(&seen, "tool_call").is_empty());
    assert!(updates(&seen, "tool_call_update").is_empty());
}

#[tokio::test]
async fn r010_an_empty_list_empties_the_plan_live_and_in_a_replay() {
    let three = todos(&[("a", "pending"), ("b", "pending"), ("c", "pending")]);
    let stage = Stage::new(Setting::from(planner(&[three, todos(&[])])).editor(Preset::zed()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "plan 0").await.unwrap();
    stage.editor.prompt(&session, "plan 1").await.unwrap();
    let mark = stage.editor.mark();
    stage
        .editor
        .load_session(&session, stage.workspace.root())
        .await
        .unwrap();
    let seen = stage.finish().await;
    let last = |from: usize| {
        seen.frames[from..]
            .iter()
            .filter_map(|frame| frame.update())
            .rfind(|(_, update)| update["sessionUpdate"] == "plan")
            .unwrap()
            .1["entries"]
            .clone()
    };
    assert_eq!(last(0), json!([]));
    assert_eq!(last(mark), json!([]));
}

#[tokio::test]
async fn r084_a_finished_plan_is_gone_before_the_next_turn_says_anything() {
    let done = todos(&[("a", "completed"), ("b", "completed")]);
    let stage = Stage::new(Setting::from(planner(&[done])).editor(Preset::zed()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "plan 0").await.unwrap();
    let mark = stage.editor.mark();
    stage
        .editor
        .prompt(&session, "something else")
        .await
        .unwrap();
    let seen = stage.finish().await;
    let turn = terret_fixtures::Transcript {
        frames: seen.frames[mark..].to_vec(),
    };
    let emptied = place(&turn, |frame| {
        frame
            .update()
            .is_some_and(|(_, update)| update["entries"] == json!([]))
    });
    let said = place(&turn, |frame| {
        frame.update_kind() == Some("agent_message_chunk")
    });
    assert!(emptied < said);
}

#[tokio::test]
async fn r086_an_open_plan_is_never_called_done_and_can_be_cleared() {
    let stage =
        Stage::new(Setting::from(planner(&[todos(&[("left", "pending")])])).editor(Preset::zed()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "plan 0").await.unwrap();
    let said = text(&stage.editor.transcript(), "agent_message_chunk");
    assert_eq!(said, "Noted.", "the agent adds nothing about being done");
    let mark = stage.editor.mark();
    stage.editor.prompt(&session, "/plan").await.unwrap();
    assert!(text(&stage.editor.transcript(), "agent_message_chunk").contains("1 step open"));
    stage.editor.prompt(&session, "/plan clear").await.unwrap();
    let plan = stage.editor.wait_update(mark, "plan").await.unwrap();
    assert_eq!(plan["entries"], json!([]));
    stage.finish().await;
}

#[tokio::test]
async fn a_client_with_plan_operations_gets_those_alone() {
    let stage =
        Stage::new(Setting::from(planner(&[todos(&[("a", "pending")])])).editor(Preset::full()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "plan 0").await.unwrap();
    let seen = stage.finish().await;
    assert!(updates(&seen, "plan").is_empty());
    let plan = &updates(&seen, "plan_update")[0]["plan"];
    assert_eq!(
        (&plan["type"], &plan["planId"]),
        (&json!("items"), &json!("todo"))
    );
    assert_eq!(plan["entries"][0]["content"], "a");
}

/// hrns says that it has plan operations and reads a draft of them, in which the id has
/// another name.
#[tokio::test]
async fn a_client_that_reads_a_draft_of_plan_operations_gets_plain_plans() {
    let stage =
        Stage::new(Setting::from(planner(&[todos(&[("a", "pending")])])).editor(Preset::hrns()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "plan 0").await.unwrap();
    let seen = stage.finish().await;
    assert!(updates(&seen, "plan_update").is_empty());
    assert_eq!(updates(&seen, "plan")[0]["entries"][0]["content"], "a");
}

#[tokio::test]
async fn r102_a_cancel_keeps_rules_plan_and_history() {
    let script = Script::new()
        .reply(Reply::on("^plan 0$").call_as("t0", "TodoWrite", todos(&[("a", "pending")])))
        .reply(Reply::on("^hold$").call("Hold", json!({})))
        .reply(
            Reply::on("^write (one|two)$")
                .call("Write", json!({ "file_path": "x.txt", "content": "x\n" })),
        )
        .say("Noted.")
        .say("Noted.")
        .say("Noted.")
        .say("Noted.")
        .say("Noted.")
        .say("Noted.")
        .say("Noted.");
    let options = terret_fixtures::EditorOptions {
        permission: terret_fixtures::PermissionPolicy::AllowAlways,
        ..Preset::zed().into()
    };
    let stage = Stage::new(Setting::from(script).editor(options));
    let session = stage.session().await;
    stage.editor.prompt(&session, "plan 0").await.unwrap();
    stage.editor.prompt(&session, "write one").await.unwrap();
    let held = stage.editor.start_prompt(&session, "hold").await.unwrap();
    stage
        .editor
        .wait_for("the held call", |frame| {
            frame
                .update()
                .filter(|(_, update)| update["title"] == "hold on")
                .map(|_| ())
        })
        .await
        .unwrap();
    stage.editor.cancel(&session).await.unwrap();
    assert_eq!(
        stage.editor.response(held).await.unwrap()["stopReason"],
        "cancelled"
    );
    stage.editor.prompt(&session, "write two").await.unwrap();
    let id = session.parse().unwrap();
    let (open, history) = stage
        .engine
        .session(&id)
        .unwrap()
        .state(|state| (state.plan.open_count(), format!("{:?}", state.history)));
    assert_eq!(open, 1);
    assert!(history.contains("plan 0"));
    let seen = stage.finish().await;
    assert_eq!(
        seen.requests_of_agent("session/request_permission").count(),
        1,
        "the rule still holds"
    );
}
