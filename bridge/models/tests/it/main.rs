//! Providers against a real socket that misbehaves on command.

#![expect(
    clippy::disallowed_methods,
    reason = "tests read the seeds and write scripts"
)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

mod cuts;
mod failures;
mod registry;
mod retries;
mod seeds;
mod server;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use secrecy::SecretString;
use terret_models::{
    Conversation, HttpOptions, Kind, Message, ModelError, ModelName, Provider, ProviderSettings,
    Registry, Request, RetryPolicy, StreamEvent, ThinkingLevel,
};

/// A key that looks like none.
const KEY: &str = "a-key-for-tests-only";

/// Waits short enough for a test, tries without luck in them.
fn options() -> HttpOptions {
    HttpOptions {
        connect: Duration::from_secs(5),
        answer: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        retry: RetryPolicy {
            base: Duration::from_millis(20),
            spacing: Duration::from_millis(10),
            jitter: Arc::new(|| 0.5),
            ..RetryPolicy::default()
        },
    }
}

fn settings(kind: Kind, base_url: &str) -> ProviderSettings {
    ProviderSettings {
        name: match kind {
            Kind::Anthropic => "anthropic".to_owned(),
            Kind::OpenAiChat => "openai".to_owned(),
        },
        kind,
        base_url: Some(base_url.to_owned()),
        key: Some(SecretString::from(KEY)),
        source: None,
        key_hint: "set the key".to_owned(),
        headers: vec![("x-extra".to_owned(), SecretString::from("more"))],
    }
}

fn provider_with(kind: Kind, base_url: &str, options: HttpOptions) -> Arc<dyn Provider> {
    let settings = settings(kind, base_url);
    let name = ModelName {
        provider: settings.name.clone(),
        model: "m".to_owned(),
    };
    Registry::with_options([settings], options)
        .resolve(&name)
        .unwrap()
}

fn provider(kind: Kind, base_url: &str) -> Arc<dyn Provider> {
    provider_with(kind, base_url, options())
}

fn request(text: &str) -> Request {
    let mut conversation = Conversation::default();
    conversation.push(Arc::new(Message::user(text)));
    Request {
        model: "m".to_owned(),
        system: "".into(),
        tools: Vec::new().into(),
        conversation,
        thinking: ThinkingLevel::Off,
        max_output: None,
    }
}

async fn ask(provider: &dyn Provider) -> (Vec<StreamEvent>, Option<ModelError>) {
    let mut stream = provider.stream(request("hello"));
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => {
                assert!(stream.next().await.is_none(), "an error is the last item");
                return (events, Some(error));
            }
        }
    }
    (events, None)
}

fn text_of(events: &[StreamEvent]) -> String {
    events
        .iter()
        .filter_map(|event| match event {
            StreamEvent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

fn retries_of(events: &[StreamEvent]) -> usize {
    events
        .iter()
        .filter(|event| matches!(event, StreamEvent::Retry { .. }))
        .count()
}

const CHAT: &str = include_str!("../fixtures/chat_text.sse");
const CLAUDE: &str = include_str!("../fixtures/anthropic_thinking_and_two_calls.sse");

/// A body that ends well, for each kind.
fn good(kind: Kind) -> &'static str {
    match kind {
        Kind::Anthropic => CLAUDE,
        Kind::OpenAiChat => CHAT,
    }
}

const BOTH: [Kind; 2] = [Kind::Anthropic, Kind::OpenAiChat];

#[test]
fn every_file_of_this_folder_is_a_module() {
    let main = include_str!("main.rs");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap();
        assert!(
            module == "main" || main.contains(&format!("mod {module};")),
            "{name}"
        );
    }
}
