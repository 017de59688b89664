//! Checks F 83 to 86 at the level of sessions; the rest is proved in `terret-tools`.

use std::sync::Arc;

use async_trait::async_trait;
use terret_engine::room::models::Registry;
use terret_engine::room::tools::call::{Call, CallResult, Fault, Output};
use terret_engine::room::tools::pipeline::{Admission, CallHook, Next, Veto};

use crate::harness::{Harness, complete, result};

const LOOK: &str = r#"{"match":"^1$","calls":[{"id":"c1","name":"Glob","args":{"pattern":"*"}}]}
{"match":"^2$","calls":[{"id":"c2","name":"Glob","args":{"pattern":"*"}}]}
{"match":"^3$","calls":[{"id":"c3","name":"Glob","args":{"pattern":"*"}}]}
{"match":".","say":"done"}"#;

const REFUSED: &str = "Glob is not on the allow list";

#[tokio::test(flavor = "multi_thread")]
async fn check_078_an_empty_floor_denies_every_call() {
    let mut harness = Harness::new(LOOK);
    harness.settings.floor.clear();
    let (_engine, session) = harness.session().await;
    complete(&session, "1").await;
    assert_eq!(result(&session, "c1").await, Err(REFUSED.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_083_the_live_set_holds_from_the_next_call_on_and_over_a_restart() {
    let harness = Harness::new(LOOK);
    let (engine, session) = harness.session().await;
    complete(&session, "1").await;
    assert!(result(&session, "c1").await.is_ok());
    session.set_policy(vec!["Read".to_owned()]).unwrap();
    complete(&session, "2").await;
    assert_eq!(result(&session, "c2").await, Err(REFUSED.to_owned()));
    let id = session.id().clone();
    drop(session);
    engine.shutdown().await;
    drop(engine);
    let engine = harness.engine();
    let session = engine.open_session(&id, None, None).await.unwrap();
    session.attach(None);
    complete(&session, "3").await;
    assert_eq!(result(&session, "c3").await, Err(REFUSED.to_owned()));
    assert!(!session.state(|state| format!("{:?}", state.history.messages()).contains("policy")));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_083_a_live_set_never_widens_the_floor() {
    let mut harness = Harness::new(LOOK);
    harness.settings.floor = vec!["Read".to_owned()];
    let (_engine, session) = harness.session().await;
    session.set_policy(vec!["*".to_owned()]).unwrap();
    complete(&session, "1").await;
    assert_eq!(result(&session, "c1").await, Err(REFUSED.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn check_085_one_sessions_list_does_not_touch_another() {
    let harness = Harness::new(LOOK);
    let (engine, narrow) = harness.session().await;
    narrow.set_policy(Vec::new()).unwrap();
    let wide = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    wide.attach(None);
    complete(&narrow, "1").await;
    complete(&wide, "1").await;
    assert!(result(&narrow, "c1").await.is_err());
    assert!(result(&wide, "c1").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn check_086_a_new_floor_tightens_the_next_call() {
    let harness = Harness::new(LOOK);
    let (engine, session) = harness.session().await;
    complete(&session, "1").await;
    let mut settings = harness.settings.clone();
    settings.floor = vec!["Read".to_owned()];
    engine.reconfigure(settings, Registry::new(Vec::new()));
    complete(&session, "2").await;
    assert_eq!(result(&session, "c2").await, Err(REFUSED.to_owned()));
}

/// Vetoes, rewrites or replaces, as the test says.
struct Hook(&'static str);

#[async_trait]
impl CallHook for Hook {
    async fn before(&self, mut call: Call) -> Result<Admission, Veto> {
        match self.0 {
            "veto" => Err(Veto("not today".to_owned())),
            "rewrite" => {
                call.name = "Bash".to_owned();
                call.args = Ok(serde_json::json!({ "command": "touch made" }));
                Ok(call.into())
            }
            _ => Ok(call.into()),
        }
    }

    async fn around(&self, call: Call, next: Next<'_>) -> Result<CallResult, Fault> {
        if self.0 == "replace" {
            return Ok(CallResult::ok(Output::text("replaced")));
        }
        next.run(call).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_080_to_082_hooks_may_veto_and_rewrite_and_never_pass_the_floor() {
    for (hook, floor, expected) in [
        ("veto", vec!["*".to_owned()], Err("not today".to_owned())),
        (
            "rewrite",
            vec!["Glob".to_owned()],
            Err("Bash is not on the allow list".to_owned()),
        ),
        ("replace", vec!["*".to_owned()], Ok("replaced".to_owned())),
        ("replace", vec!["Read".to_owned()], Err(REFUSED.to_owned())),
    ] {
        let mut harness = Harness::new(LOOK);
        harness.settings.floor = floor;
        harness.call_hooks.push(Arc::new(Hook(hook)));
        let (_engine, session) = harness.session().await;
        complete(&session, "1").await;
        assert_eq!(result(&session, "c1").await, expected, "{hook}");
        assert_eq!(harness.read("made"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_088_a_forged_session_id_reaches_no_other_sessions_shell() {
    let harness = Harness::new(
        r#"{"match":"^cd$","calls":[{"id":"c","name":"Bash","args":{"command":"mkdir -p sub && cd sub"}}]}
{"match":"^where (?P<id>.*)$","calls":[{"id":"p","name":"Bash","args":{"command":"pwd","session_id":"forged","session":"forged"}}]}
{"match":".","say":"done"}"#,
    );
    let (engine, first) = harness.session().await;
    let second = engine
        .create_session(harness.work(), Vec::new())
        .await
        .unwrap();
    second.attach(None);
    let _one = crate::harness::AutoApprove::start(&first, terret_engine::Decision::AllowOnce);
    let _two = crate::harness::AutoApprove::start(&second, terret_engine::Decision::AllowOnce);
    complete(&first, "cd").await;
    complete(&second, &format!("where {}", first.id())).await;
    let place = result(&second, "p").await.unwrap();
    assert!(!place.contains("/sub"), "{place}");
}

#[tokio::test(flavor = "multi_thread")]
async fn check_084_an_unknown_session_is_refused_and_the_refusal_is_not_remembered() {
    let harness = Harness::new(LOOK);
    let (engine, session) = harness.session().await;
    let id = session.id().clone();
    drop(session);
    engine.shutdown().await;
    let other = harness.engine();
    assert!(other.session(&id).is_none(), "not known to this engine yet");
    let unknown = "unknown".parse().unwrap();
    assert!(other.open_session(&unknown, None, None).await.is_err());
    let session = other.open_session(&id, None, None).await.unwrap();
    session.attach(None);
    complete(&session, "1").await;
    assert!(result(&session, "c1").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_path_is_out_of_every_tools_reach() {
    use terret_engine::room::tools::rules::{Effect, Rule, Scope};
    let mut harness = Harness::new(
        r#"{"match":"^go$","calls":[{"id":"g","name":"Grep","args":{"pattern":"treasure","output_mode":"content"}},{"id":"r","name":"Read","args":{"file_path":"hidden/map.txt"}},{"id":"o","name":"Read","args":{"file_path":"open.txt"}}]}
{"match":".","say":"done"}"#,
    );
    harness.settings.rules =
        vec![Rule::parse("Read(hidden/**)", Effect::Deny, Scope::User).unwrap()].into();
    std::fs::create_dir(harness.work().join("hidden")).unwrap();
    harness.write("hidden/map.txt", "treasure here");
    harness.write("open.txt", "no treasure");
    let (_engine, session) = harness.session().await;
    complete(&session, "go").await;
    let found = result(&session, "g").await.unwrap();
    assert!(
        found.contains("open.txt") && !found.contains("map.txt"),
        "{found}"
    );
    assert!(result(&session, "r").await.is_err());
    assert!(result(&session, "o").await.is_ok());
}

/// A tool of one session's own.
struct Own(terret_engine::room::tools::definition::Definition);

impl Own {
    fn named(name: &'static str) -> Arc<dyn terret_engine::room::tools::call::Tool> {
        use terret_engine::room::tools::definition::{
            Approval, Concurrency, Definition, Kind, Replay,
        };
        Arc::new(Self(Definition {
            name,
            description: "Says that it ran.".to_owned(),
            parameters: serde_json::json!({ "type": "object", "properties": {} }),
            mutating: false,
            approval: Approval::Never,
            concurrency: Concurrency::Serial,
            replay: Replay::Safe,
            kind: Kind::Other,
        }))
    }
}

#[async_trait]
impl terret_engine::room::tools::call::Tool for Own {
    fn definition(&self) -> &terret_engine::room::tools::definition::Definition {
        &self.0
    }

    fn title(&self, _args: &serde_json::Value) -> String {
        self.0.name.to_owned()
    }

    async fn run(
        &self,
        _context: &terret_engine::room::tools::call::CallContext,
        _args: serde_json::Value,
    ) -> Result<Output, terret_engine::room::tools::call::Failure> {
        Ok(Output::text("ran"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_087_a_sessions_own_tools_are_its_own_and_vanish_with_it() {
    let mut harness = Harness::new(
        r#"{"match":"^1$","calls":[{"id":"c1","name":"Own","args":{}}]}
{"match":"^2$","calls":[{"id":"c2","name":"Own","args":{}}]}
{"match":".","say":"done"}"#,
    );
    harness.settings.floor.push("Own".to_owned());
    let (engine, other) = harness.session().await;
    let session = engine
        .create_session_with(harness.work(), Vec::new(), vec![Own::named("Own")])
        .await
        .unwrap();
    session.attach(None);
    complete(&session, "1").await;
    assert_eq!(result(&session, "c1").await.as_deref(), Ok("ran"));
    complete(&other, "1").await;
    let unknown = result(&other, "c1").await.unwrap_err();
    assert!(unknown.contains("no tool named Own"), "{unknown}");

    let id = session.id().clone();
    engine.close_session(&id).await.unwrap();
    let session = engine.open_session(&id, None, None).await.unwrap();
    session.attach(None);
    complete(&session, "2").await;
    assert!(result(&session, "c2").await.is_err());

    let taken = engine
        .create_session_with(harness.work(), Vec::new(), vec![Own::named("Read")])
        .await;
    assert!(taken.is_err(), "a name is taken once");
}
