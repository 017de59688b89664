//! The stage of a test: a project, an engine with a scripted model, and an editor that is
//! connected to the face by pipes in memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use terret_engine::room::log::SystemClock;
use terret_engine::room::models::{ModelName, Registry, RetryPolicy, Scripted, ThinkingLevel};
use terret_engine::room::tools::call::{CallContext, Failure, Output, Tool};
use terret_engine::room::tools::definition::{Approval, Concurrency, Definition, Kind, Replay};
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::table::Table;
use terret_engine::room::tools::world::web::WebSettings;
use terret_engine::{Engine, EngineParts, JobSettings, Limits, Places, Settings};
use terret_faces::acp::{self, FaceSettings};
use terret_fixtures::{
    EditorError, EditorOptions, Frame, Script, ScriptedEditor, Transcript, Workspace, invariants,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::conformance;

pub(crate) struct Stage {
    pub(crate) workspace: Workspace,
    pub(crate) engine: Engine,
    pub(crate) editor: ScriptedEditor,
    /// A permit lets one `Hold` call go on.
    pub(crate) gate: Arc<Semaphore>,
    served: JoinHandle<terret_acp::Ended>,
}

/// What is different from the usual.
pub(crate) struct Setting {
    pub(crate) script: Script,
    pub(crate) editor: EditorOptions,
    pub(crate) model: Option<ModelName>,
    pub(crate) tree: &'static str,
    pub(crate) mode: Mode,
    /// Commands are shown in the editor's terminals.
    pub(crate) editor_terminal: bool,
}

impl From<Script> for Setting {
    fn from(script: Script) -> Self {
        Self {
            script,
            editor: EditorOptions::default(),
            model: Some(scripted()),
            tree: "//- notes.txt\none\ntwo\nthree\n",
            mode: Mode::Ask,
            editor_terminal: false,
        }
    }
}

impl Setting {
    pub(crate) fn editor(mut self, options: impl Into<EditorOptions>) -> Self {
        self.editor = options.into();
        self
    }
}

pub(crate) fn scripted() -> ModelName {
    ModelName {
        provider: "scripted".into(),
        model: "test".into(),
    }
}

pub(crate) fn engine(workspace: &Workspace, setting: &Setting, gate: &Arc<Semaphore>) -> Engine {
    let none = Duration::ZERO;
    let retry = RetryPolicy {
        base: none,
        longest: none,
        spacing: none,
        ..RetryPolicy::default()
    };
    let script = Scripted::from_text_with("test", &setting.script.lines(), retry).unwrap();
    let mut registry = Registry::new([]);
    registry.insert(Arc::new(script));
    let mut table = Table::standard();
    table.add(Arc::new(Hold::new(Arc::clone(gate)))).unwrap();
    Engine::new(EngineParts {
        places: Places {
            state: workspace.home().join("state"),
            scratch: workspace.home().join("scratch"),
            denied: vec![workspace.home().to_owned()],
        },
        settings: Settings {
            model: setting.model.clone(),
            offered_models: setting.model.iter().cloned().collect(),
            thinking: ThinkingLevel::Off,
            mode: setting.mode,
            bypass: false,
            floor: vec!["*".into()],
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
        registry,
        clock: Arc::new(SystemClock),
        scrubber: terret_engine::room::log::Scrubber::default(),
        table,
        call_hooks: Vec::new(),
        turn_hooks: Vec::new(),
    })
}

pub(crate) fn face() -> FaceSettings {
    FaceSettings {
        version: "1.2.3".into(),
        key_hint: "Set ANTHROPIC_API_KEY".into(),
        sign_in_arguments: Some(vec!["auth".into(), "login".into()]),
        editor_terminal: false,
    }
}

impl Stage {
    pub(crate) fn new(setting: impl Into<Setting>) -> Self {
        let setting = setting.into();
        let workspace = Workspace::new(setting.tree).unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let engine = engine(&workspace, &setting, &gate);
        let face = FaceSettings {
            editor_terminal: setting.editor_terminal,
            ..face()
        };
        let (editor, served) = connect(&engine, face, setting.editor);
        Self {
            workspace,
            engine,
            editor,
            gate,
            served,
        }
    }

    /// Initializes and starts a session.
    pub(crate) async fn session(&self) -> String {
        self.editor.initialize().await.unwrap();
        self.editor
            .new_session(self.workspace.root())
            .await
            .unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.workspace.root().join(name)
    }

    /// A second editor on the same engine.
    pub(crate) fn second(
        &self,
        options: impl Into<EditorOptions>,
    ) -> (ScriptedEditor, JoinHandle<terret_acp::Ended>) {
        connect(&self.engine, face(), options.into())
    }

    /// Ends everything and holds all that was said to the rules of the wire.
    pub(crate) async fn finish(self) -> Transcript {
        self.editor.close_input().await;
        self.editor.wait_closed().await.unwrap();
        self.served.await.unwrap();
        self.engine.shutdown().await;
        let transcript = self.editor.transcript();
        judge(&transcript);
        transcript
    }
}

pub(crate) fn judge(transcript: &Transcript) {
    if let Err(broken) = invariants::check(transcript) {
        panic!("{broken}\n--- the wire ---\n{transcript}");
    }
    conformance::check(transcript);
    for frame in transcript.from_agent() {
        assert!(
            frame.line.len() < 48 * 1024,
            "a frame of {} bytes",
            frame.line.len()
        );
    }
}

fn connect(
    engine: &Engine,
    face: FaceSettings,
    options: EditorOptions,
) -> (ScriptedEditor, JoinHandle<terret_acp::Ended>) {
    let (editor, input, output) = ScriptedEditor::in_process(options);
    (
        editor,
        tokio::spawn(acp::serve(engine.clone(), face, input, output)),
    )
}

// --- looking at what was said -------------------------------------------------

pub(crate) fn stop_reason(answer: &Value) -> &str {
    answer["stopReason"].as_str().unwrap_or("none")
}

pub(crate) fn code(error: &EditorError) -> i64 {
    match error {
        EditorError::Refused { code, .. } => *code,
        other => panic!("{other}"),
    }
}

pub(crate) fn message(error: &EditorError) -> &str {
    match error {
        EditorError::Refused { message, .. } => message,
        other => panic!("{other}"),
    }
}

/// All updates of a kind, in order.
pub(crate) fn updates(transcript: &Transcript, kind: &str) -> Vec<Value> {
    transcript
        .updates()
        .filter(|(_, update)| update["sessionUpdate"] == kind)
        .map(|(_, update)| update.clone())
        .collect()
}

/// The text of all chunks of a kind.
pub(crate) fn text(transcript: &Transcript, kind: &str) -> String {
    updates(transcript, kind)
        .iter()
        .map(|update| update["content"]["text"].as_str().unwrap_or_default())
        .collect()
}

/// The place of the first frame that fits.
pub(crate) fn place(transcript: &Transcript, fits: impl Fn(&Frame) -> bool) -> usize {
    transcript
        .frames
        .iter()
        .position(fits)
        .unwrap_or_else(|| panic!("no such frame in\n{transcript}"))
}

// --- a tool that waits --------------------------------------------------------

/// Writes its `say` as live output, asks for more reach where it has a `reach`, else waits
/// for a permit of the gate or a cancel.
struct Hold {
    definition: Definition,
    gate: Arc<Semaphore>,
}

impl Hold {
    fn new(gate: Arc<Semaphore>) -> Self {
        let definition = Definition {
            name: "Hold",
            description: "Waits.".into(),
            parameters: json!({ "type": "object", "properties": { "say": { "type": "array" }, "reach": { "type": "string" } } }),
            mutating: false,
            approval: Approval::Never,
            concurrency: Concurrency::Parallel,
            replay: Replay::Safe,
            kind: Kind::Execute,
        };
        Self { definition, gate }
    }
}

#[async_trait]
impl Tool for Hold {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, _args: &Value) -> String {
        "hold on".into()
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        for piece in args["say"].as_array().into_iter().flatten() {
            context
                .journal
                .output(&context.call_id, piece.as_str().unwrap_or_default());
        }
        if let Some(reason) = args["reach"].as_str() {
            let answer = context.escalate.ask(reason.to_owned()).await.unwrap();
            return Ok(Output::text(format!("{answer:?}")));
        }
        tokio::select! {
            permit = self.gate.acquire() => {
                permit.unwrap().forget();
                Ok(Output::text("let go"))
            }
            () = context.cancel.cancelled() => Err(Failure::new("cancelled while waiting")),
        }
    }
}
