//! What a repository brings does nothing beyond narrowing until a person trusts it: one
//! question, remembered by content.

use std::path::PathBuf;

use terret_engine::room::log::{ApprovalStage, Payload, PendingApproval, TurnStatus, Verdict};
use terret_engine::room::tools::mode::Mode;
use terret_engine::trust::{Decided, Source, Survey, TrustStore, TrustVerdict};
use terret_engine::{AgentStatus, Decision, SessionHandle};

use crate::harness::{
    AutoApprove, Harness, approval, assert_sound, complete, events, names, prompt, result, status,
    text, wait_for, within,
};

const SCRIPT: &str = r#"{"match":"^write$","calls":[{"id":"w","name":"Write","args":{"file_path":"made","content":"made"}}]}
{"match":"^bash$","calls":[{"id":"b","name":"Bash","args":{"command":"touch by-bash"}}]}
{"match":"^read$","calls":[{"id":"r","name":"Read","args":{"file_path":"secret"}}]}
{"match":".","say":"done"}"#;

const ALLOWS: &str = "[policy]\nallow = [\"Bash(touch:*)\"]\ndeny = [\"Read(secret)\"]\n";

fn harness(config: &str) -> Harness {
    let mut harness = Harness::new(SCRIPT);
    harness.settings.project_sources = vec![Source::Config];
    bring(&harness, config);
    harness
}

fn bring(harness: &Harness, config: &str) {
    std::fs::create_dir_all(harness.work().join(".terret")).unwrap();
    harness.write(".terret/config.toml", config);
}

fn root(harness: &Harness) -> PathBuf {
    harness.work().canonicalize().unwrap()
}

fn decide(harness: &Harness, verdict: TrustVerdict) {
    let store = TrustStore::new(&harness.state());
    let root = root(harness);
    let survey = Survey::of(&root, &[Source::Config], &store).unwrap();
    let decided: Vec<Decided> = survey
        .files
        .iter()
        .map(|judged| Decided {
            root: root.clone(),
            file: judged.brought.file.clone(),
            sha256: judged.brought.hash.clone(),
            verdict,
            at: 1,
            by: "test".to_owned(),
        })
        .collect();
    store.decide(&decided).unwrap();
}

fn verdicts(harness: &Harness) -> Vec<TrustVerdict> {
    let known = TrustStore::new(&harness.state()).read().unwrap();
    known.iter().map(|decided| decided.verdict).collect()
}

fn pending(session: &SessionHandle) -> Vec<PendingApproval> {
    session.state(|state| state.approvals.pending().to_vec())
}

async fn questions(session: &SessionHandle) -> Vec<(ApprovalStage, String)> {
    let shown = events(session).await.into_iter();
    shown
        .filter_map(|event| match event.payload {
            Payload::ApprovalRequested { stage, title, .. } => Some((stage, title)),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_widens_is_one_question_before_the_first_request_and_is_remembered() {
    let harness = harness(ALLOWS);
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("bash")).await.unwrap();
    let id = approval(&session, 0).await;
    let asked = pending(&session).remove(0);
    assert_eq!(asked.stage, ApprovalStage::Trust);
    assert_eq!(asked.title, "Trust `.terret/config.toml` of this project?");
    assert_eq!(
        asked.reason,
        "it would allow `Bash(touch:*)` without asking"
    );
    assert!(asked.call_id.starts_with("trust-"));
    assert_eq!(
        asked.args["files"][0]["would"][0],
        "allow `Bash(touch:*)` without asking"
    );
    // The person's words are in the log, and no request was made.
    let before: Vec<String> = names(&session).await;
    assert!(before.contains(&"user/message".to_owned()));
    assert!(!before.iter().any(|name| name.starts_with("assistant/")));
    session.decide(&id, Decision::AllowOnce, "editor").unwrap();
    within(answer.outcome()).await.unwrap();
    assert!(result(&session, "b").await.is_ok(), "the rule lets it run");
    assert!(harness.read("by-bash").is_some());
    assert_eq!(verdicts(&harness), [TrustVerdict::Trusted]);
    complete(&session, "another").await;
    assert_eq!(questions(&session).await.len(), 1);
    // Another session of the project, in another process, asks nothing.
    let (_engine, other) = harness.session().await;
    complete(&other, "bash").await;
    assert_eq!(questions(&other).await, []);
    assert_sound(&events(&session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_remembered_too_and_what_narrows_holds_whatever_was_said() {
    let harness = harness(ALLOWS);
    harness.write("secret", "word");
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("read")).await.unwrap();
    let id = approval(&session, 0).await;
    session
        .decide(&id, Decision::Reject { reason: None }, "editor")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    assert!(
        result(&session, "r")
            .await
            .unwrap_err()
            .contains("denied by the rule")
    );
    assert_eq!(verdicts(&harness), [TrustVerdict::Refused]);
    let _reject = AutoApprove::start(&session, Decision::Reject { reason: None });
    complete(&session, "bash").await;
    let stages: Vec<ApprovalStage> = questions(&session)
        .await
        .into_iter()
        .map(|(stage, _)| stage)
        .collect();
    assert_eq!(stages, [ApprovalStage::Trust, ApprovalStage::Call]);
    assert_eq!(harness.read("by-bash"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_content_is_asked_for_again_and_the_old_trust_does_not_hold_for_it() {
    let harness = harness(ALLOWS);
    decide(&harness, TrustVerdict::Trusted);
    let (_engine, session) = harness.session().await;
    complete(&session, "bash").await;
    assert_eq!(questions(&session).await, []);
    bring(
        &harness,
        "[policy]\nallow = [\"Bash(touch:*)\", \"Bash(rm:*)\"]\n",
    );
    let end = session.next_seq();
    let answer = session.prompt(text("more")).await.unwrap();
    let id = approval(&session, end).await;
    assert_eq!(pending(&session)[0].stage, ApprovalStage::Trust);
    session
        .decide(&id, Decision::Reject { reason: None }, "editor")
        .unwrap();
    within(answer.outcome()).await.unwrap();
    // Back to what was trusted: nothing is asked.
    bring(&harness, ALLOWS);
    complete(&session, "more").await;
    assert_eq!(questions(&session).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_decides_nothing_loses_no_word_and_the_next_prompt_asks_again() {
    let harness = harness(ALLOWS);
    let (_engine, session) = harness.session().await;
    for by_editor in [false, true] {
        let end = session.next_seq();
        let answer = session.prompt(text("more")).await.unwrap();
        let id = approval(&session, end).await;
        if by_editor {
            session.decide(&id, Decision::Cancelled, "editor").unwrap();
        } else {
            session.cancel("enough").await.unwrap();
        }
        let outcome = within(answer.outcome()).await.unwrap();
        assert_eq!(outcome.status, TurnStatus::Cancelled);
    }
    assert_eq!(verdicts(&harness), []);
    let ids: Vec<String> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::ApprovalRequested { call_id, .. } => Some(call_id),
            _ => None,
        })
        .collect();
    assert_ne!(ids[0], ids[1], "each question is a card of its own");
    let said = events(&session)
        .await
        .iter()
        .filter(|event| matches!(event.payload, Payload::UserMessage { .. }))
        .count();
    assert_eq!(said, 2);
    assert_sound(&events(&session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_a_crash_left_is_the_same_one_with_the_next_prompt() {
    let harness = harness(ALLOWS);
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("bash")).await.unwrap();
    let id = approval(&session, 0).await;
    engine.shutdown().await;
    let engine = harness.engine();
    let session = engine.open_session(session.id(), None, None).await.unwrap();
    session.attach(None);
    let answer = session.prompt(text("go on")).await.unwrap();
    status(&session, AgentStatus::WaitingApproval).await;
    let waiting = pending(&session);
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].id, id);
    session.decide(&id, Decision::AllowOnce, "editor").unwrap();
    within(answer.outcome()).await.unwrap();
    assert_eq!(verdicts(&harness), [TrustVerdict::Trusted]);
    assert_eq!(questions(&session).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_whose_content_changed_meanwhile_is_taken_back() {
    let harness = harness(ALLOWS);
    let (engine, session) = harness.session().await;
    let _answer = session.prompt(text("bash")).await.unwrap();
    let id = approval(&session, 0).await;
    engine.shutdown().await;
    bring(&harness, "[policy]\nallow = [\"Bash(make:*)\"]\n");
    let engine = harness.engine();
    let session = engine.open_session(session.id(), None, None).await.unwrap();
    session.attach(None);
    let end = session.next_seq();
    let answer = session.prompt(text("go on")).await.unwrap();
    let other = approval(&session, end).await;
    assert_ne!(other, id);
    let taken_back = wait_for(&session, end, |payload| match payload {
        Payload::ApprovalResolved { id, verdict, .. } => Some((id.clone(), *verdict)),
        _ => None,
    })
    .await;
    assert_eq!(taken_back, (id, Verdict::Cancelled));
    assert!(pending(&session)[0].reason.contains("make"));
    session
        .decide(&other, Decision::Reject { reason: None }, "editor")
        .unwrap();
    within(answer.outcome()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nobody_can_be_asked_nothing_is_trusted_and_one_notice_says_so() {
    let harness = harness(ALLOWS);
    let (_engine, session) = harness.session().await;
    session.attach_unattended(None);
    complete(&session, "bash").await;
    complete(&session, "more").await;
    assert_eq!(harness.read("by-bash"), None);
    let notices: Vec<String> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::NoticeShown { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].contains("terret trust allow"));
    assert_eq!(verdicts(&harness), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn more_than_a_person_can_read_is_not_asked() {
    let rules: Vec<String> = (0..400)
        .map(|n| format!("\"Bash(make target-{n})\""))
        .collect();
    let harness = harness(&format!("[policy]\nallow = [{}]\n", rules.join(", ")));
    let (_engine, session) = harness.session().await;
    complete(&session, "more").await;
    assert_eq!(questions(&session).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_narrowing_asks_nothing_and_holds() {
    let harness = harness("[policy]\ndeny = [\"Read(secret)\"]\n");
    harness.write("secret", "word");
    let (_engine, session) = harness.session().await;
    complete(&session, "read").await;
    assert!(
        result(&session, "r")
            .await
            .unwrap_err()
            .contains("denied by the rule")
    );
    assert_eq!(questions(&session).await, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_projects_hooks_run_once_trusted_and_what_they_allow_counts_for_nothing() {
    let hook = "[[hooks]]\nevent = \"PreToolUse\"\nmatcher = \"Write\"\ncommand = '''cat > told; echo '{\"decision\":\"approve\"}' '''\n";
    let harness = harness(hook);
    let (_engine, session) = harness.session().await;
    session.set_option("mode", "ask", "test").unwrap();
    session.attach_unattended(None);
    complete(&session, "write").await;
    assert_eq!(harness.read("told"), None, "it does not run before");
    decide(&harness, TrustVerdict::Trusted);
    let _reject = AutoApprove::start(&session, Decision::Reject { reason: None });
    session.attach(None);
    complete(&session, "write").await;
    assert!(harness.read("told").is_some());
    assert_eq!(harness.read("made"), None, "it is asked for all the same");
    let store = TrustStore::new(&harness.state());
    let survey = Survey::of(&root(&harness), &[Source::Config], &store).unwrap();
    assert_eq!(survey.files[0].verdict, Some(TrustVerdict::Trusted));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_counts_for_nothing_is_said_once() {
    let harness = harness("model = \"a:b\"\n[policy]\nfloor = []\n");
    let (_engine, session) = harness.session().await;
    complete(&session, "more").await;
    complete(&session, "more").await;
    let told: Vec<String> = events(&session)
        .await
        .into_iter()
        .filter_map(|event| match event.payload {
            Payload::NoticeShown { text, .. } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("`model` is not taken from a repository"));
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_that_cannot_be_read_or_kept_trust_nothing() {
    let mut harness = harness(ALLOWS);
    harness.settings.mode = Mode::Ask;
    let store = TrustStore::new(&harness.state());
    std::fs::create_dir_all(store.path()).unwrap();
    let (_engine, session) = harness.session().await;
    let answer = session.prompt(text("more")).await.unwrap();
    let id = approval(&session, 0).await;
    session.decide(&id, Decision::AllowOnce, "editor").unwrap();
    let outcome = within(answer.outcome()).await.unwrap();
    assert_eq!(outcome.status, TurnStatus::Completed);
    let told = events(&session).await.into_iter().any(|event| {
        matches!(event.payload, Payload::NoticeShown { text, .. } if text.contains("trust.toml") && text.contains("nothing of it is trusted"))
    });
    assert!(told);
    let _reject = AutoApprove::start(&session, Decision::Reject { reason: None });
    prompt(&session, "bash").await;
    assert_eq!(harness.read("by-bash"), None);
}
