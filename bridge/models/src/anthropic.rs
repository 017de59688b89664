//! The Messages API of Anthropic, and servers that speak it.

mod request;
mod stream;

use std::sync::Arc;

use secrecy::ExposeSecret as _;

use crate::calls::CallIds;
use crate::emit;
use crate::http::{Endpoint, HttpCall, HttpOptions, ProviderSettings};
use crate::provider::{Capabilities, ModelError, ModelStream, Provider, Request};

/// The version of the API that this room was written against.
const VERSION: &str = "2023-06-01";

/// A provider that speaks the Messages API.
#[derive(Debug)]
pub(crate) struct Anthropic {
    endpoint: Arc<Endpoint>,
}

impl Anthropic {
    pub(crate) fn new(settings: ProviderSettings, options: HttpOptions) -> Self {
        Self {
            endpoint: Arc::new(Endpoint::new(settings, options)),
        }
    }
}

impl Provider for Anthropic {
    fn name(&self) -> &str {
        &self.endpoint.settings.name
    }

    fn capabilities(&self, model: &str) -> Capabilities {
        let claude = model.contains("claude");
        Capabilities {
            images: claude,
            thinking: request::ModelAge::of(model).thinks(),
            context_window: claude.then_some(200_000),
        }
    }

    fn ready(&self) -> Result<(), ModelError> {
        self.endpoint.ready()
    }

    fn stream(&self, request: Request) -> ModelStream {
        let endpoint = self.endpoint.clone();
        emit::stream(move |emit| async move {
            let provider = &endpoint.settings.name;
            let body = request::body(provider, &request)?;
            let base = endpoint.base_url();
            let url = format!("{}/v1/messages", base.strip_suffix("/v1").unwrap_or(base));
            let mut headers = vec![
                ("content-type", "application/json".to_owned()),
                ("accept", "text/event-stream".to_owned()),
                ("anthropic-version", VERSION.to_owned()),
            ];
            let key = endpoint.key().await?;
            headers.extend(
                key.iter()
                    .map(|key| ("x-api-key", key.expose_secret().to_owned())),
            );
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

#[cfg(test)]
mod tests;
