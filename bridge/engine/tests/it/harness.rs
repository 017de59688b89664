//! One engine over a temporary home and a temporary workspace, with a scripted model.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use terret_engine::hooks::TurnHook;
use terret_engine::room::log::{Event, Payload, SystemClock, TurnStatus};
use terret_engine::room::models::{ModelName, Provider, Registry, ThinkingLevel};
use terret_engine::room::tools::floor::Floor;
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::pipeline::CallHook;
use terret_engine::room::tools::table::Table;
use terret_engine::room::tools::world::web::WebSettings;
use terret_engine::{
    AgentStatus, Decision, Engine, EngineParts, InputBlock, JobSettings, Limits, Places,
    SessionHandle, Settings, TurnOutcome,
};

/// Longer than anything a test waits for; reaching it is a failure, never a pass.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Harness {
    folder: tempfile::TempDir,
    pub settings: Settings,
    pub call_hooks: Vec<Arc<dyn CallHook>>,
    pub turn_hooks: Vec<Arc<dyn TurnHook>>,
    pub table: Table,
    pub providers: Vec<Arc<dyn Provider>>,
}

impl Harness {
    /// A harness whose model plays `script`, a scripted reply a line.
    pub(crate) fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("work")).unwrap();
        let file = folder.path().join("script.jsonl");
        std::fs::write(&file, script).unwrap();
        let model: ModelName = format!("scripted:{}", file.display()).parse().unwrap();
        Self {
            settings: Settings {
                offered_models: vec![model.clone()],
                model: Some(model),
                thinking: ThinkingLevel::Off,
                mode: Mode::Ask,
                bypass: false,
                floor: Floor::default().patterns().to_vec(),
                rules: Default::default(),
                limits: Limits::default(),
                jobs: JobSettings::default(),
                environment_allow: Vec::new(),
                environment_hide: Vec::new(),
                sandbox: Default::default(),
                web: WebSettings::default(),
                unattended: Default::default(),
                project_sources: Vec::new(),
                hooks: Default::default(),
                instructions: None,
                user_rules: None,
            },
            folder,
            call_hooks: Vec::new(),
            turn_hooks: Vec::new(),
            table: Table::standard(),
            providers: Vec::new(),
        }
    }

    /// A new engine over the same home: a second process, as far as the disk can tell.
    pub(crate) fn engine(&self) -> Engine {
        let mut registry = Registry::new(Vec::new());
        for provider in &self.providers {
            registry.insert(Arc::clone(provider));
        }
        Engine::new(EngineParts {
            places: Places {
                state: self.folder.path().join("state"),
                scratch: self.folder.path().join("scratch"),
                denied: vec![self.folder.path().join("state")],
            },
            settings: self.settings.clone(),
            registry,
            clock: Arc::new(SystemClock),
            scrubber: terret_log::Scrubber::default(),
            table: self.table.clone(),
            call_hooks: self.call_hooks.clone(),
            turn_hooks: self.turn_hooks.clone(),
        })
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn write(&self, name: &str, content: &str) -> PathBuf {
        let path = self.work().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.work().join(name)).ok()
    }

    /// The session in a second process, as far as the disk can tell; the first one ended
    /// with whatever was open.
    pub(crate) async fn restarted(
        &self,
        engine: Engine,
        session: SessionHandle,
    ) -> (Engine, SessionHandle) {
        let id = session.id().clone();
        engine.shutdown().await;
        drop((session, engine));
        let engine = self.engine();
        let session = engine.open_session(&id, None, None).await.unwrap();
        session.attach(None);
        (engine, session)
    }

    /// An attended session of a new engine.
    pub(crate) async fn session(&self) -> (Engine, SessionHandle) {
        let engine = self.engine();
        let session = engine
            .create_session(self.work(), Vec::new())
            .await
            .unwrap();
        session.attach(None);
        (engine, session)
    }
}

pub(crate) fn text(text: &str) -> Vec<InputBlock> {
    vec![InputBlock::Text(text.to_owned())]
}

/// Sends a prompt and waits for the end of its turn.
pub(crate) async fn prompt(session: &SessionHandle, words: &str) -> TurnOutcome {
    let answer = session.prompt(text(words)).await.unwrap();
    within(answer.outcome())
        .await
        .expect("the turn was left open")
}

/// Sends a prompt and expects an ordinary end.
pub(crate) async fn complete(session: &SessionHandle, words: &str) {
    let outcome = prompt(session, words).await;
    assert_eq!(
        outcome.status,
        TurnStatus::Completed,
        "{:?}",
        outcome.reason
    );
}

pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("waited too long")
}

/// All events so far, read from the session's beginning as a follower would.
pub(crate) async fn events(session: &SessionHandle) -> Vec<Event> {
    let mut follower = session.follow(0);
    let mut events = Vec::new();
    while !follower.caught_up() {
        events.push((*within(follower.next()).await.unwrap()).clone());
    }
    events
}

/// The names of all events so far, without those that only editors see and without the
/// request's frame.
pub(crate) async fn names(session: &SessionHandle) -> Vec<String> {
    events(session)
        .await
        .iter()
        .map(|event| name(&event.payload))
        .filter(|name| {
            !matches!(
                name.as_str(),
                "assistant/chunk"
                    | "assistant/thought"
                    | "request/frame"
                    | "tool/output"
                    | "file/seen"
                    | "session/titled"
            )
        })
        .collect()
}

pub(crate) fn name(payload: &Payload) -> String {
    serde_json::to_value(payload).unwrap()["type"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Waits for the first event from `seq` on that `wanted` picks.
pub(crate) async fn wait_for<R>(
    session: &SessionHandle,
    seq: u64,
    wanted: impl Fn(&Payload) -> Option<R>,
) -> R {
    let mut follower = session.follow(seq);
    within(async {
        loop {
            let event = follower.next().await.expect("the session went away");
            if let Some(found) = wanted(&event.payload) {
                return found;
            }
        }
    })
    .await
}

/// Waits for a pending approval and gives its id.
pub(crate) async fn approval(session: &SessionHandle, seq: u64) -> String {
    wait_for(session, seq, |payload| match payload {
        Payload::ApprovalRequested { id, .. } => Some(id.clone()),
        _ => None,
    })
    .await
}

pub(crate) async fn status(session: &SessionHandle, wanted: AgentStatus) {
    let mut watch = session.watch_status();
    within(watch.wait_for(|status| *status == wanted))
        .await
        .unwrap();
}

/// The result of a call, `Err` for an error.
pub(crate) async fn result(session: &SessionHandle, call: &str) -> Result<String, String> {
    let found = events(session)
        .await
        .into_iter()
        .find_map(|event| match event.payload {
            Payload::ToolResult {
                id, content, error, ..
            } if id == call => Some(match error {
                Some(error) => Err(error),
                None => Ok(content.unwrap_or_default()),
            }),
            _ => None,
        });
    found.unwrap_or_else(|| panic!("call {call} has no result"))
}

/// Approves whatever is asked until the returned guard is dropped.
pub(crate) struct AutoApprove(tokio::task::JoinHandle<()>);

impl AutoApprove {
    pub(crate) fn start(session: &SessionHandle, decision: Decision) -> Self {
        let session = session.clone();
        Self(tokio::spawn(async move {
            let mut follower = session.follow(0);
            while let Some(event) = follower.next().await {
                if let Payload::ApprovalRequested { id, .. } = &event.payload {
                    let _settled = session.decide(id, decision.clone(), "test");
                }
            }
        }))
    }
}

impl Drop for AutoApprove {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The path as JSON text.
pub(crate) fn json(path: &Path) -> String {
    serde_json::to_string(path.to_str().unwrap()).unwrap()
}

/// Moves the session's log away, so that every append fails, and back.
pub(crate) struct LogAway {
    path: PathBuf,
    away: PathBuf,
}

impl LogAway {
    pub(crate) fn of(harness: &Harness, session: &SessionHandle) -> Self {
        let sessions = harness.folder.path().join("state/sessions");
        let path = sessions.join(format!("{}.jsonl", session.id()));
        assert!(path.exists(), "{}", path.display());
        Self {
            away: path.with_extension("away"),
            path,
        }
    }

    pub(crate) fn take(&self) {
        std::fs::rename(&self.path, &self.away).unwrap();
    }

    pub(crate) fn give_back(&self) {
        std::fs::rename(&self.away, &self.path).unwrap();
    }
}

/// Holds a whole log to what every log must be: turns and steps have one end each, calls
/// one result, requests one verdict, and nothing of a turn comes behind its end.
pub(crate) fn assert_sound(events: &[Event]) {
    use std::collections::HashMap;
    let mut turn = false;
    let (mut step, mut answered) = (false, false);
    let mut calls: HashMap<String, u32> = HashMap::new();
    let mut asked: HashMap<String, u32> = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        assert_eq!(event.seq, place as u64);
        let name = name(&event.payload);
        match &event.payload {
            Payload::TurnStart { .. } => {
                assert!(!turn, "a turn begins within a turn at {place}");
                turn = true;
                step = false;
            }
            Payload::TurnEnd { .. } => {
                assert!(turn, "a turn ends twice at {place}");
                assert!(!step, "a step has no end before {place}");
                for (call, results) in calls.drain() {
                    assert_eq!(results, 1, "results of {call} before {place}");
                }
                for (id, verdicts) in asked.drain() {
                    assert_eq!(verdicts, 1, "verdicts of {id} before {place}");
                }
                turn = false;
            }
            Payload::StepStart { .. } => {
                // One that a crash kept from its answer stays without an end (spec §1.8).
                assert!(!step || !answered, "a step begins within a step at {place}");
                (step, answered) = (true, false);
            }
            Payload::AssistantMessage { .. } => answered = true,
            Payload::StepEnd { .. } => {
                assert!(step, "a step ends twice at {place}");
                step = false;
            }
            Payload::ToolCall { id, .. } => {
                assert!(calls.insert(id.clone(), 0).is_none(), "{id} twice");
            }
            Payload::ToolResult { id, .. } => *calls.get_mut(id).unwrap() += 1,
            Payload::ApprovalRequested { id, .. } => {
                assert!(asked.insert(id.clone(), 0).is_none(), "{id} twice");
            }
            Payload::ApprovalResolved { id, .. } => *asked.get_mut(id).unwrap() += 1,
            Payload::SessionCreated { .. }
            | Payload::SessionTitled { .. }
            | Payload::NoticeShown { .. }
            | Payload::CommandRun { .. }
            | Payload::OptionSet { .. } => continue,
            _ => {}
        }
        let ends = matches!(event.payload, Payload::TurnEnd { .. });
        assert!(turn || ends, "{name} outside of a turn at {place}");
    }
    assert!(!turn, "the last turn has no end");
}
