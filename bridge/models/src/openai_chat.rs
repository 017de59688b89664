//! The Chat Completions API of OpenAI and of the many servers that speak it: OpenRouter,
//! Ollama, llama.cpp, vLLM, LM Studio, Groq. They agree on the outline only, so what they
//! send is read with patience, and what they are sent is what all of them take.

mod fragments;
mod request;
mod stream;

use std::sync::Arc;

use secrecy::ExposeSecret as _;

use crate::calls::CallIds;
use crate::emit;
use crate::http::{Endpoint, HttpCall, HttpOptions, ProviderSettings};
use crate::provider::{Capabilities, ModelError, ModelStream, Provider, Request};

/// A provider that speaks Chat Completions.
#[derive(Debug)]
pub(crate) struct OpenAiChat {
    endpoint: Arc<Endpoint>,
}

impl OpenAiChat {
    pub(crate) fn new(settings: ProviderSettings, options: HttpOptions) -> Self {
        Self {
            endpoint: Arc::new(Endpoint::new(settings, options)),
        }
    }
}

impl Provider for OpenAiChat {
    fn name(&self) -> &str {
        &self.endpoint.settings.name
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        known(&model.to_lowercase())
    }

    fn ready(&self) -> Result<(), ModelError> {
        self.endpoint.ready()
    }

    fn stream(&self, request: Request) -> ModelStream {
        let endpoint = self.endpoint.clone();
        emit::stream(move |emit| async move {
            let base = endpoint.base_url();
            let server = request::Server::of(base);
            let body = request::body(&endpoint.settings.name, server, &request)?;
            let url = format!("{base}/chat/completions");
            let mut headers = vec![
                ("content-type", "application/json".to_owned()),
                ("accept", "text/event-stream".to_owned()),
            ];
            let key = endpoint.key().await?;
            headers.extend(key.iter().map(|key| {
                (
                    "authorization",
                    format!("Bearer {}", key.expose_secret().trim()),
                )
            }));
            let mut decoder = stream::Decoder::new(CallIds::new(&request.conversation));
            endpoint
                .run(
                    &emit,
                    &request,
                    HttpCall {
                        url: &url,
                        headers: &headers,
                        key: key.as_ref(),
                        body,
                    },
                    &mut decoder,
                )
                .await
        })
    }
}

/// What is known of models by their names. An unknown one is not sent images, because a
/// server without them refuses the whole request.
fn known(model: &str) -> Capabilities {
    const WINDOWS: [(&str, u64); 10] = [
        ("gpt-4.1", 1_047_576),
        ("gpt-4o", 128_000),
        ("gpt-5", 400_000),
        ("gemini", 1_048_576),
        ("claude", 200_000),
        ("kimi-k2", 256_000),
        ("deepseek", 128_000),
        ("grok-4", 256_000),
        ("o3", 200_000),
        ("o4-mini", 200_000),
    ];
    const SEES: [&str; 14] = [
        "gpt-4.1", "gpt-4o", "gpt-5", "o3", "o4-mini", "gemini", "claude", "grok-4", "gemma-3",
        "gemma3", "llava", "pixtral", "-vl", "vision",
    ];
    const THINKS: [&str; 11] = [
        "gpt-5",
        "o1",
        "o3",
        "o4-mini",
        "gpt-oss",
        "gemini-2.5",
        "gemini-3",
        "claude",
        "deepseek-r",
        "qwen3",
        "thinking",
    ];
    // A short name such as `o3` counts only where a word begins.
    let named = |name: &str| {
        model.match_indices(name).any(|(at, _)| {
            name.starts_with('-')
                || !model
                    .get(..at)
                    .and_then(|head| head.chars().next_back())
                    .is_some_and(char::is_alphanumeric)
        })
    };
    Capabilities {
        images: SEES.iter().any(|name| named(name)),
        thinking: THINKS.iter().any(|name| named(name)),
        context_window: WINDOWS
            .iter()
            .find(|(name, _)| named(name))
            .map(|(_, tokens)| *tokens),
    }
}

#[cfg(test)]
mod tests;
