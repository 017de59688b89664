//! Standing rules: granted by an answer, kept for the session or the project, taken back.

use std::path::PathBuf;
use std::time::Duration;

use terret_engine::grants::{RuleFile, StoredRule, project_root};
use terret_engine::room::log::{Allowance, GrantScope, Payload, Verdict};
use terret_engine::room::tools::rules::Effect;
use terret_engine::{Decision, SessionHandle};

use crate::harness::{Harness, approval, complete, events, status, text, wait_for, within};

const SAME: &str = r#"{"match":"^(go|again)$","calls":[{"name":"Bash","args":{"command":"echo same"}}]}
{"match":".","say":"done"}"#;

fn project_file(harness: &Harness) -> RuleFile {
    let root = project_root(&harness.work(), None);
    RuleFile::project(&harness.state(), &root)
}

async fn verdicts(session: &SessionHandle) -> Vec<(Verdict, String, Option<GrantScope>)> {
    events(session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ApprovalResolved {
                verdict, by, scope, ..
            } => Some((verdict, by, scope)),
            _ => None,
        })
        .collect()
}

async fn allowances(session: &SessionHandle) -> Vec<Allowance> {
    events(session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ToolStarted { allowed, .. } => allowed,
            _ => None,
        })
        .collect()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Allows the first question of a turn for the project.
async fn grant_for_project(session: &SessionHandle) {
    let answer = session.prompt(text("go")).await.unwrap();
    let id = approval(session, 0).await;
    session
        .decide(&id, Decision::AllowAlways(GrantScope::Project), "editor")
        .unwrap();
    within(answer.outcome()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn r073_a_rule_for_the_project_holds_in_every_session_and_names_its_approval() {
    let harness = Harness::new(SAME);
    let (engine, session) = harness.session().await;
    grant_for_project(&session).await;
    complete(&session, "again").await;
    let second = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    second.attach(None);
    complete(&second, "go").await;
    assert_eq!(
        verdicts(&session).await,
        [(
            Verdict::Approved,
            "editor".to_owned(),
            Some(GrantScope::Project)
        )]
    );
    assert_eq!(verdicts(&second).await, []);
    let rule = Allowance::Rule {
        layer: "project".to_owned(),
        rule: "Bash(echo same)".to_owned(),
    };
    assert_eq!(allowances(&session).await.last(), Some(&rule));
    assert_eq!(allowances(&second).await, [rule]);
    engine.shutdown().await;

    // On the disk, with where it came from, and in force for the next process.
    let stored = project_file(&harness).read().unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].text, "Bash(echo same)");
    let origin = stored[0].origin.as_deref().unwrap();
    assert!(origin.contains(session.id().as_str()), "{origin}");
    let (_engine, third) = harness.session().await;
    complete(&third, "go").await;
    assert_eq!(verdicts(&third).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn r009_a_rule_that_is_revoked_elsewhere_asks_again_at_the_next_call() {
    let harness = Harness::new(SAME);
    let (engine, session) = harness.session().await;
    grant_for_project(&session).await;
    let file = project_file(&harness);
    until("the rule is written", || {
        file.read().is_ok_and(|rules| !rules.is_empty())
    })
    .await;
    assert!(file.remove(Effect::Allow, "Bash(echo same)").unwrap());
    let seq = session.next_seq();
    let answer = session.prompt(text("again")).await.unwrap();
    let id = approval(&session, seq).await;
    // And one that is added elsewhere settles what waits.
    file.add(&StoredRule::new(Effect::Allow, "Bash(echo same)"))
        .unwrap();
    engine.freshen_rules().await;
    within(answer.outcome()).await.unwrap();
    let by = wait_for(&session, seq, |payload| match payload {
        Payload::ApprovalResolved { id: found, by, .. } if *found == id => Some(by.clone()),
        _ => None,
    })
    .await;
    assert_eq!(by, "rule:project");
}

#[tokio::test(flavor = "multi_thread")]
async fn r002_one_always_settles_what_waits_in_all_sessions_of_the_project() {
    let harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"a","name":"Bash","args":{"command":"echo same"}},{"id":"b","name":"Bash","args":{"command":"echo same"}},{"id":"c","name":"Bash","args":{"command":"echo same"}}]}
{"match":".","say":"done"}"#,
    );
    let (engine, first) = harness.session().await;
    let second = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    second.attach(None);
    let answers = [
        first.prompt(text("go")).await.unwrap(),
        second.prompt(text("go")).await.unwrap(),
    ];
    let id = approval(&first, 0).await;
    for session in [&first, &second] {
        until("all ask", || {
            session.state(|state| state.approvals.pending().len()) == 3
        })
        .await;
    }
    first
        .decide(&id, Decision::AllowAlways(GrantScope::Project), "editor")
        .unwrap();
    for answer in answers {
        within(answer.outcome()).await.unwrap();
    }
    // Six calls, six verdicts, one of them a person's.
    let all = [verdicts(&first).await, verdicts(&second).await].concat();
    assert_eq!(all.len(), 6);
    assert_eq!(all.iter().filter(|(_, by, _)| by == "editor").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r074_a_rule_that_cannot_be_kept_holds_for_the_session_and_says_so() {
    let harness = Harness::new(SAME);
    let (_engine, session) = harness.session().await;
    // A file where the folder of rules would be.
    let path: PathBuf = project_file(&harness).path().to_owned();
    let projects = path.parent().unwrap().parent().unwrap();
    std::fs::create_dir_all(projects.parent().unwrap()).unwrap();
    std::fs::write(projects, "in the way").unwrap();
    grant_for_project(&session).await;
    let warning = wait_for(&session, 0, |payload| match payload {
        Payload::NoticeShown { text, .. } => Some(text.clone()),
        _ => None,
    })
    .await;
    assert!(
        warning.contains("for this session alone") && warning.contains("projects"),
        "{warning}"
    );
    complete(&session, "again").await;
    assert_eq!(verdicts(&session).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_rule_asks_again() {
    let harness = Harness::new(SAME);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let soon = u64::try_from(now.as_millis()).unwrap() + 1500;
    let mut rule = StoredRule::new(Effect::Allow, "Bash(echo same)");
    rule.expires = Some(soon);
    project_file(&harness).add(&rule).unwrap();
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    assert_eq!(verdicts(&session).await, []);
    tokio::time::sleep(Duration::from_millis(1600)).await;
    let seq = session.next_seq();
    let answer = session.prompt(text("again")).await.unwrap();
    let id = approval(&session, seq).await;
    session
        .decide(&id, Decision::Reject { reason: None }, "editor")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    status(&session, terret_engine::AgentStatus::Idle).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r079_only_a_lasting_answer_changes_what_is_kept() {
    let decisions = [
        Decision::AllowOnce,
        Decision::Reject { reason: None },
        Decision::Cancelled,
        Decision::RejectAndWait,
    ];
    for decision in decisions {
        let harness = Harness::new(SAME);
        let file = project_file(&harness);
        file.add(&StoredRule::new(Effect::Deny, "Bash(rm:*)"))
            .unwrap();
        let before = std::fs::read(file.path()).unwrap();
        let (engine, session) = harness.session().await;
        let answer = session.prompt(text("go")).await.unwrap();
        let id = approval(&session, 0).await;
        session.decide(&id, decision.clone(), "editor").unwrap();
        within(answer.outcome()).await.unwrap();
        engine.shutdown().await;
        assert_eq!(std::fs::read(file.path()).unwrap(), before, "{decision:?}");
        assert!(session.state(|state| state.rules.rules().is_empty()));
    }
}
