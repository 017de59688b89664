//! A run without a person: what it would ask is denied, fails the run, or is approved, as it
//! was started; what is a person's alone is never approved.

use std::sync::Arc;

use terret_engine::Unattended;
use terret_engine::external_hooks::HookEntry;
use terret_engine::room::log::{Payload, TurnStatus, Verdict};
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::rules::{Effect, Rule, Scope};
use terret_engine::{Engine, SessionHandle};

use crate::harness::{Harness, assert_sound, complete, events, prompt, result};

fn script(call: &str) -> String {
    format!(
        "{{\"match\":\"^go$\",\"calls\":[{call},{{\"id\":\"z\",\"name\":\"Bash\",\"args\":{{\"command\":\"touch z\"}}}}]}}\n{{\"match\":\".\",\"say\":\"done\"}}\n"
    )
}

const BASH: &str = r#"{"id":"a","name":"Bash","args":{"command":"touch a"}}"#;

async fn session(harness: &Harness) -> (Engine, SessionHandle) {
    let (engine, session) = harness.session().await;
    session.attach_unattended(None);
    (engine, session)
}

fn harness(call: &str, unattended: Unattended) -> Harness {
    let mut harness = Harness::new(&script(call));
    harness.settings.unattended = unattended;
    harness
}

async fn verdicts(session: &SessionHandle) -> Vec<(Verdict, String)> {
    let shown = events(session).await.into_iter();
    shown
        .filter_map(|event| match event.payload {
            Payload::ApprovalResolved { verdict, by, .. } => Some((verdict, by)),
            _ => None,
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_what_needs_a_person_is_denied_with_the_way_out() {
    let harness = harness(BASH, Unattended::Deny);
    let (_engine, session) = session(&harness).await;
    complete(&session, "go").await;
    let error = result(&session, "a").await.unwrap_err();
    for word in [
        "nobody can be asked",
        "by a rule",
        "--permission-policy allow",
        "--ask",
    ] {
        assert!(error.contains(word), "{error}");
    }
    assert_eq!((harness.read("a"), harness.read("z")), (None, None));
    let denied = (Verdict::Denied, "nobody".to_owned());
    assert_eq!(verdicts(&session).await, [denied.clone(), denied]);
}

#[tokio::test(flavor = "multi_thread")]
async fn to_fail_ends_the_turn_before_anything_of_the_message_runs() {
    let write = r#"{"id":"w","name":"Write","args":{"file_path":"w","content":"w"}}"#;
    let mut harness = harness(write, Unattended::Fail);
    harness.settings.mode = Mode::Edits;
    let (_engine, session) = session(&harness).await;
    let outcome = prompt(&session, "go").await;
    assert_eq!(outcome.status, TurnStatus::Failed);
    let reason = outcome.reason.unwrap();
    assert!(
        reason.starts_with("`Bash` needs an approval: nobody can be asked"),
        "{reason}"
    );
    assert_eq!((harness.read("w"), harness.read("z")), (None, None));
    assert_sound(&events(&session).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn to_allow_approves_what_would_be_asked_and_says_who_did() {
    let mut harness = harness(BASH, Unattended::Allow);
    let ask = Rule::parse("Bash(touch:*)", Effect::Ask, Scope::User).unwrap();
    harness.settings.rules = vec![ask].into();
    let (_engine, session) = session(&harness).await;
    complete(&session, "go").await;
    assert!(harness.read("a").is_some() && harness.read("z").is_some());
    let approved = (Verdict::Approved, "permission-policy".to_owned());
    assert_eq!(verdicts(&session).await, [approved.clone(), approved]);
}

#[tokio::test(flavor = "multi_thread")]
async fn to_allow_approves_nothing_that_is_forbidden_or_a_persons_alone() {
    let job = r#"{"id":"a","name":"job_start","args":{"command":"sleep 600","keep":true}}"#;
    let protected = r#"{"id":"a","name":"Write","args":{"file_path":".envrc","content":"a"}}"#;
    let plan = r#"{"id":"a","name":"ExitPlanMode","args":{"plan":"all of it"}}"#;
    let deny = |effect| Rule::parse("Bash(touch a)", effect, Scope::User).unwrap();
    for (case, call) in [
        ("deny rule", BASH),
        ("floor", BASH),
        ("protected", protected),
        ("keep", job),
        ("plan", plan),
        ("hook", BASH),
    ] {
        let mut harness = harness(call, Unattended::Allow);
        match case {
            "deny rule" => harness.settings.rules = vec![deny(Effect::Deny)].into(),
            "floor" => harness.settings.floor = vec!["Read".to_owned()],
            "plan" => harness.settings.mode = Mode::Plan,
            "hook" => {
                let entry = "event = \"PreToolUse\"\ncommand = \"exit 2\"";
                let hook = toml::from_str::<HookEntry>(entry).unwrap().hook().unwrap();
                harness.settings.hooks.calls = Arc::from([hook]);
            }
            _ => {}
        }
        let (_engine, session) = session(&harness).await;
        complete(&session, "go").await;
        assert!(result(&session, "a").await.is_err(), "{case}");
        assert_eq!(harness.read("a"), None, "{case}");
        assert_eq!(harness.read(".envrc"), None, "{case}");
        if case == "plan" {
            assert_eq!(session.options().mode, Mode::Plan);
            assert_eq!(harness.read("z"), None);
        }
    }
}
