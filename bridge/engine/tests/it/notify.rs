//! A person who looks elsewhere is told of an approval that waits, once, and not of one
//! that is answered.

use std::time::{Duration, Instant};

use serde_json::Value;
use terret_engine::{Decision, Notify};

use crate::harness::{Harness, PATIENCE, approval, prompt, text, within};

const SCRIPT: &str = r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"echo 'a word of it' > made"}}]}
{"match":".","say":"done"}"#;

fn harness(command: &str, after: Duration) -> Harness {
    let mut harness = Harness::new(SCRIPT);
    harness.settings.hooks.notify = Some(Notify {
        argv: ["sh", "-c", command].map(str::to_owned).to_vec(),
        after,
    });
    harness
}

async fn written(harness: &Harness, name: &str) -> String {
    let begun = Instant::now();
    loop {
        if let Some(text) = harness.read(name) {
            return text;
        }
        assert!(begun.elapsed() < PATIENCE, "{name} was never written");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_waits_is_told_of_in_words() {
    let command = "echo once >> times; cat > told.new; mv told.new told";
    let harness = harness(command, Duration::from_millis(20));
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    let told: Value = serde_json::from_str(&written(&harness, "told").await).unwrap();
    assert_eq!(told["session_id"], session.id().as_str());
    assert_eq!(told["approval_id"], id.as_str());
    assert_eq!(told["tool_name"], "Bash");
    assert_eq!(told["reason"], "it runs a command");
    assert!(told["title"].as_str().unwrap().contains("a word of it"));
    assert!(told.get("tool_input").is_none(), "no arguments: {told}");
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(harness.read("times").as_deref(), Some("once\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_time_and_a_cancel_run_nothing() {
    let harness = harness("touch told", Duration::from_secs(600));
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    within(answer.outcome()).await.unwrap();
    let end = session.next_seq();
    let answer = session.prompt(text("go")).await.unwrap();
    approval(&session, end).await;
    session.cancel("enough").await.unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(harness.read("told"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_hangs_ends_with_the_wait_and_one_that_is_missing_harms_nobody() {
    let command = "echo $$ > pid.new; mv pid.new pid; sleep 600";
    let hanging = harness(command, Duration::from_millis(1));
    let (_engine, session) = hanging.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(&session, 0).await;
    let pid = written(&hanging, "pid").await;
    session.decide(&id, Decision::AllowOnce, "test").unwrap();
    within(answer.outcome()).await.unwrap();
    let begun = Instant::now();
    let stat = format!("/proc/{}/stat", pid.trim());
    while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z")) {
        assert!(begun.elapsed() < PATIENCE, "the command goes on");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut missing = harness("", Duration::from_millis(1));
    missing.settings.hooks.notify.as_mut().unwrap().argv = vec!["/no/such/program".to_owned()];
    let (_engine, session) = missing.session().await;
    let _approve = crate::harness::AutoApprove::start(&session, Decision::AllowOnce);
    prompt(&session, "go").await;
    assert!(missing.read("made").is_some());
}
