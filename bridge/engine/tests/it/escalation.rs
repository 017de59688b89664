//! A call that has run may ask once for more reach: durable like any approval, and never
//! covered by what allows the call itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use terret_engine::room::log::{ApprovalStage, Payload, TurnStatus, Verdict};
use terret_engine::room::tools::call::{Answer, CallContext, Failure, Output, Tool};
use terret_engine::room::tools::definition::{Approval, Concurrency, Definition, Kind, Replay};
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::rules::{Effect, Rule, Scope};
use terret_engine::room::tools::table::Table;
use terret_engine::room::tools::world::World;
use terret_engine::{AgentStatus, Decision, SessionHandle};

use crate::harness::{Harness, events, prompt, result, status, text, wait_for, within};

/// Runs, then asks for more reach as often as it is told to.
struct Reaching {
    definition: Definition,
    runs: Arc<AtomicUsize>,
    asks: usize,
}

impl Reaching {
    fn table(asks: usize) -> (Table, Arc<AtomicUsize>) {
        let runs = Arc::new(AtomicUsize::new(0));
        let definition = Definition {
            name: "Reach",
            description: "Reaches.".to_owned(),
            parameters: json!({"type": "object", "properties": {"command": {"type": "string"}}}),
            mutating: true,
            approval: Approval::Policy,
            concurrency: Concurrency::Serial,
            replay: Replay::Ask,
            kind: Kind::Execute,
        };
        let mut table = Table::new();
        let tool = Self {
            definition,
            runs: Arc::clone(&runs),
            asks,
        };
        table.add(Arc::new(tool)).unwrap();
        (table, runs)
    }
}

#[async_trait::async_trait]
impl Tool for Reaching {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, _args: &Value) -> String {
        "reach".to_owned()
    }

    fn rule_subject(&self, _world: &World, args: &Value) -> Option<String> {
        Some(args.get("command")?.as_str()?.to_owned())
    }

    async fn run(&self, context: &CallContext, _args: Value) -> Result<Output, Failure> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        let mut answers = Vec::new();
        for _ in 0..self.asks {
            let answer = context.escalate.ask("the network looked closed".to_owned());
            answers.push(match answer.await {
                Ok(Answer::Approved) => "yes".to_owned(),
                Ok(Answer::Denied { reason }) => format!("no ({reason})"),
                Ok(Answer::Cancelled) => "cancelled".to_owned(),
                Err(fault) => return Err(Failure(fault.0)),
            });
        }
        Ok(Output::text(answers.join(", ")))
    }
}

const CALL: &str = r#"{"match":"^go$","calls":[{"id":"a","name":"Reach","args":{"command":"fetch"}}]}
{"match":".","say":"done"}"#;

fn harness(asks: usize) -> (Harness, Arc<AtomicUsize>) {
    let mut harness = Harness::new(CALL);
    let (table, runs) = Reaching::table(asks);
    harness.table = table;
    harness.settings.floor = vec!["*".to_owned()];
    (harness, runs)
}

/// The next request from `seq` on: its number, its id and its stage.
async fn request(session: &SessionHandle, stage: ApprovalStage) -> String {
    wait_for(session, 0, |payload| match payload {
        Payload::ApprovalRequested {
            id, stage: found, ..
        } if *found == stage => Some(id.clone()),
        _ => None,
    })
    .await
}

async fn requests(session: &SessionHandle) -> Vec<(ApprovalStage, Option<String>, String)> {
    events(session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ApprovalRequested {
                stage,
                offered_rule,
                reason,
                ..
            } => Some((stage, offered_rule, reason)),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_yes_for_the_call_is_none_for_more_reach_and_neither_is_a_rule() {
    let (harness, runs) = harness(2);
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let first = request(&session, ApprovalStage::Call).await;
    // The rule that this adds covers the call; the question for more reach stands.
    session
        .decide(
            &first,
            Decision::AllowAlways(terret_log::GrantScope::Session),
            "test",
        )
        .unwrap();
    let second = request(&session, ApprovalStage::Escalation).await;
    assert_ne!(first, second);
    session.set_option("mode", "edits", "test").unwrap();
    assert_eq!(session.status(), AgentStatus::WaitingApproval);
    session
        .decide(
            &second,
            Decision::AllowAlways(terret_log::GrantScope::Session),
            "test",
        )
        .unwrap();
    assert_eq!(
        within(answer.outcome()).await.unwrap().status,
        TurnStatus::Completed
    );
    // One question a call, whatever came of it.
    assert_eq!(
        result(&session, "a").await.unwrap(),
        "yes, no (a call asks for more reach once at most)"
    );
    let asked = requests(&session).await;
    assert_eq!(asked.len(), 2);
    assert!(asked[0].1.is_some());
    assert_eq!(
        asked[1],
        (
            ApprovalStage::Escalation,
            None,
            "the network looked closed".to_owned()
        )
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_reach_is_asked_for_in_no_mode_but_bypass() {
    let (mut harness, _runs) = harness(1);
    harness.settings.mode = Mode::Bypass;
    let (_engine, session) = harness.session().await;
    let outcome = prompt(&session, "go").await;
    assert_eq!(outcome.status, TurnStatus::Completed);
    assert_eq!(result(&session, "a").await.unwrap(), "yes");
    assert_eq!(requests(&session).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_give_more_reach_in_a_headless_run() {
    let (mut harness, _runs) = harness(1);
    harness.settings.rules = vec![Rule::parse("Reach", Effect::Allow, Scope::User).unwrap()].into();
    let (_engine, session) = harness.session().await;
    session.attach_unattended(None);
    let outcome = prompt(&session, "go").await;
    assert_eq!(outcome.status, TurnStatus::Completed);
    assert_eq!(
        result(&session, "a").await.unwrap(),
        "no (nobody can be asked in a headless run; a run with `--ask` can ask (the network looked closed))"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_of_more_reach_leaves_the_call_its_result() {
    let (harness, _runs) = harness(1);
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("go")).await.unwrap();
    let first = request(&session, ApprovalStage::Call).await;
    session.decide(&first, Decision::AllowOnce, "test").unwrap();
    let second = request(&session, ApprovalStage::Escalation).await;
    let no = Decision::Reject {
        reason: Some("offline today".to_owned()),
    };
    session.decide(&second, no, "test").unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(result(&session, "a").await.unwrap(), "no (offline today)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_turn_runs_neither_the_call_nor_its_escalation_again() {
    let (harness, runs) = harness(1);
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("go")).await.unwrap();
    let first = request(&session, ApprovalStage::Call).await;
    session.decide(&first, Decision::AllowOnce, "test").unwrap();
    request(&session, ApprovalStage::Escalation).await;
    let (_engine, session) = harness.restarted(engine, session).await;
    let outcome = prompt(&session, "go on").await;
    assert_eq!(outcome.status, TurnStatus::Completed);
    status(&session, AgentStatus::Idle).await;
    assert!(
        result(&session, "a")
            .await
            .unwrap_err()
            .contains("was not run again")
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let verdicts: Vec<Verdict> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ApprovalResolved { verdict, .. } => Some(verdict),
            _ => None,
        })
        .collect();
    assert_eq!(verdicts, [Verdict::Approved, Verdict::Cancelled]);
}
