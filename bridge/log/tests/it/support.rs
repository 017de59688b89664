//! Short ways to make events, stores and disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use terret_log::{
    Clock, EditorFold, EditorItem, Event, InjectedBy, Part, Payload, SessionId, SessionLog,
    SessionState, StepUsage, Store, TurnStatus,
};

/// Counts up with every look.
pub(crate) struct Ticks(AtomicU64);

impl Ticks {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(1_000)))
    }
}

impl Clock for Ticks {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) struct Home {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
}

pub(crate) fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("state"), Ticks::new()).unwrap();
    Home { folder, store }
}

pub(crate) fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}

impl Home {
    /// A session with these events behind its `session/created`.
    pub(crate) fn session(&self, name: &str, payloads: Vec<Payload>) -> SessionLog {
        let mut log = self.store.create(id(name)).unwrap();
        log.append(created()).unwrap();
        for payload in payloads {
            log.append(payload).unwrap();
        }
        log
    }

    pub(crate) fn events(&self, name: &str) -> Vec<Event> {
        self.store
            .read(&id(name), 0)
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }
}

pub(crate) fn created() -> Payload {
    Payload::SessionCreated {
        parent_id: None,
        root_id: None,
        depth: 0,
        call_id: None,
        cwd: "/project".to_owned(),
        additional_directories: Vec::new(),
    }
}

pub(crate) fn turn_start() -> Payload {
    Payload::TurnStart {
        agent: "agent-1".to_owned(),
    }
}

pub(crate) fn turn_end(status: TurnStatus) -> Payload {
    Payload::TurnEnd {
        status,
        reason: None,
    }
}

pub(crate) fn step_start(n: u32) -> Payload {
    Payload::StepStart {
        n,
        model: "scripted:demo".to_owned(),
    }
}

pub(crate) fn step_end(n: u32) -> Payload {
    Payload::StepEnd { n, usage: None }
}

pub(crate) fn step_end_with(n: u32, prompt: u64, completion: u64, cost: Option<f64>) -> Payload {
    let usage = StepUsage {
        prompt_tokens: prompt,
        completion_tokens: completion,
        cost,
        ..StepUsage::default()
    };
    Payload::StepEnd {
        n,
        usage: Some(usage),
    }
}

pub(crate) fn user(text: &str) -> Payload {
    Payload::UserMessage {
        text: text.to_owned(),
        images: Vec::new(),
        blocks: Vec::new(),
    }
}

pub(crate) fn injected(text: &str, source: InjectedBy) -> Payload {
    Payload::ContextInjected {
        text: text.to_owned(),
        images: Vec::new(),
        blocks: Vec::new(),
        source,
    }
}

pub(crate) fn chunk(text: &str) -> Payload {
    Payload::AssistantChunk {
        text: text.to_owned(),
    }
}

pub(crate) fn thought(text: &str) -> Payload {
    Payload::AssistantThought {
        text: text.to_owned(),
    }
}

pub(crate) fn text(text: &str) -> Part {
    Part::Text {
        text: text.to_owned(),
    }
}

pub(crate) fn thinking(text: &str) -> Part {
    Part::Thinking {
        text: text.to_owned(),
        signature: Some("sig".to_owned()),
        provider: "scripted".to_owned(),
    }
}

pub(crate) fn call(id: &str, name: &str, args: Value) -> Part {
    Part::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        args,
    }
}

pub(crate) fn assistant(parts: Vec<Part>) -> Payload {
    Payload::AssistantMessage {
        parts,
        partial: false,
    }
}

pub(crate) fn says(said: &str) -> Payload {
    assistant(vec![text(said)])
}

pub(crate) fn tool_call(id: &str, name: &str, args: Value) -> Payload {
    Payload::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        args,
    }
}

pub(crate) fn tool_started(id: &str) -> Payload {
    Payload::ToolStarted {
        id: id.to_owned(),
        allowed: None,
    }
}

pub(crate) fn result(id: &str, content: &str) -> Payload {
    Payload::ToolResult {
        id: id.to_owned(),
        content: Some(content.to_owned()),
        error: None,
        images: Vec::new(),
    }
}

pub(crate) fn failure(id: &str, error: &str) -> Payload {
    Payload::ToolResult {
        id: id.to_owned(),
        content: None,
        error: Some(error.to_owned()),
        images: Vec::new(),
    }
}

pub(crate) fn asked(request: &str, call_id: &str) -> Payload {
    Payload::ApprovalRequested {
        id: request.to_owned(),
        call_id: call_id.to_owned(),
        name: "Bash".to_owned(),
        args: json!({"command": "make"}),
        title: "Run `make`".to_owned(),
        reason: "no rule covers it".to_owned(),
        preview: Vec::new(),
        offered_rule: Some("Bash(make)".to_owned()),
        stage: terret_log::ApprovalStage::Call,
    }
}

pub(crate) fn resolved(request: &str, call_id: &str, verdict: terret_log::Verdict) -> Payload {
    Payload::ApprovalResolved {
        id: request.to_owned(),
        call_id: call_id.to_owned(),
        verdict,
        reason: None,
        by: "editor".to_owned(),
        scope: None,
    }
}

/// Two steps with one call, as the seed's golden order has them.
pub(crate) fn golden_turn() -> Vec<Payload> {
    vec![
        turn_start(),
        step_start(1),
        user("read it"),
        chunk("on "),
        chunk("it"),
        assistant(vec![
            text("on it"),
            call("c1", "Read", json!({"file_path": "/project/a"})),
        ]),
        tool_call("c1", "Read", json!({"file_path": "/project/a"})),
        tool_started("c1"),
        result("c1", "content"),
        step_end_with(1, 10, 5, Some(0.25)),
        step_start(2),
        chunk("done"),
        says("done"),
        step_end(2),
        turn_end(TurnStatus::Completed),
    ]
}

/// Events as a log would number them.
pub(crate) fn numbered(payloads: Vec<Payload>) -> Vec<Event> {
    payloads
        .into_iter()
        .enumerate()
        .map(|(place, payload)| Event {
            seq: place as u64,
            at: 1_000 + place as u64,
            payload,
        })
        .collect()
}

pub(crate) fn fold(events: &[Event]) -> SessionState {
    let mut state = SessionState::default();
    events.iter().for_each(|event| state.apply(event));
    state
}

pub(crate) fn state_of(payloads: Vec<Payload>) -> SessionState {
    fold(&numbered(payloads))
}

/// What is sent to a model, a line a message.
pub(crate) fn conversation(state: &SessionState) -> Vec<String> {
    state
        .history
        .messages()
        .iter()
        .map(|message| {
            let parts: Vec<String> = message
                .parts
                .iter()
                .map(|part| match part {
                    Part::Text { text } => text.clone(),
                    Part::Thinking { text, .. } => format!("<{text}>"),
                    Part::ToolCall { id, name, args } => format!("{name}#{id}{args}"),
                    Part::ToolResult {
                        id, content, error, ..
                    } => match (content, error) {
                        (Some(content), _) => format!("#{id} ok {content}"),
                        (None, error) => {
                            format!("#{id} error {}", error.as_deref().unwrap_or_default())
                        }
                    },
                    Part::Image { image } => format!("[{}]", image.mime_type),
                })
                .collect();
            format!("{:?}: {}", message.role, parts.join(" + "))
        })
        .collect()
}

pub(crate) fn shown(mut editor: EditorFold, events: &[Event]) -> Vec<EditorItem> {
    let mut items = Vec::new();
    events
        .iter()
        .for_each(|event| editor.apply(event, &mut items));
    editor.finish(&mut items);
    items
}
