//! One request over HTTP: the client, the tries, and the reading of the answer, which the
//! provider's [`Decode`] turns into events. Nothing is set up before the first request,
//! because the start of the program must not pay for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Response};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::emit::Emitter;
use crate::failure::{Censor, ErrorBody, status_error};
use crate::key::KeySource;
use crate::provider::{ModelError, Request, StreamEvent};
use crate::retry::{Backoff, Failure, RetryPolicy};
use crate::retry_after::retry_after;
use crate::sse::{SseEvent, SseParser};

/// How long the end of a body is waited for when the answer is whole. It stands in the
/// same packet as a rule.
const LINGER: Duration = Duration::from_millis(20);

/// The protocol that a provider speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The Messages API.
    Anthropic,
    /// The Chat Completions API, and the many servers that speak it.
    OpenAiChat,
}

impl Kind {
    /// Where the protocol's own provider is.
    pub fn default_base_url(self) -> &'static str {
        match self {
            Kind::Anthropic => "https://api.anthropic.com",
            Kind::OpenAiChat => "https://api.openai.com/v1",
        }
    }
}

/// A provider as config names it. This room reads neither the environment nor files:
/// who builds the settings does.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// The name before the colon in a model's name.
    pub name: String,
    pub kind: Kind,
    /// [`Kind::default_base_url`] when absent. A trailing slash makes no difference, and
    /// for `Anthropic` a trailing `/v1` makes none.
    pub base_url: Option<String>,
    pub key: Option<SecretString>,
    /// Asked at each request when there is no `key`.
    pub source: Option<Arc<dyn KeySource>>,
    /// What to do when the key is missing, as the end of the sentence "no key for
    /// `name`: …". Empty when the provider needs no key, as a local server.
    pub key_hint: String,
    /// Sent with each request. They win over our own headers of the same name.
    pub headers: Vec<(String, SecretString)>,
}

/// Waits and tries, for all providers of a registry.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// For the connection to stand.
    pub connect: Duration,
    /// For the answer to begin: long, since a local model reads the whole prompt first.
    pub answer: Duration,
    /// For the next bytes of an answer that has begun.
    pub idle: Duration,
    pub retry: RetryPolicy,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            answer: Duration::from_secs(300),
            idle: Duration::from_secs(120),
            retry: RetryPolicy::default(),
        }
    }
}

/// What remains to be read of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    More,
    /// The answer is whole; figures may follow, and a break is no error any more.
    Whole,
    /// Nothing follows.
    Done,
}

/// Turns a provider's events into ours. Pure: it knows no clock and no socket.
pub(crate) trait Decode: Send {
    fn event(
        &mut self,
        event: &SseEvent,
        out: &mut Vec<StreamEvent>,
    ) -> Result<Progress, DecodeError>;

    /// The body ended. Either the closing events, or an error: an answer without its
    /// finish marker is never taken for a whole one (check 46).
    fn end(&mut self, out: &mut Vec<StreamEvent>) -> Result<(), DecodeError>;
}

/// Why an answer could not be read.
#[derive(Debug)]
pub(crate) enum DecodeError {
    /// The provider said so inside its stream.
    Reported(ErrorBody),
    /// The finish marker is missing.
    Unfinished,
    /// What came is not the protocol.
    Protocol(String),
}

/// The part that all HTTP providers share.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) settings: ProviderSettings,
    options: HttpOptions,
    client: OnceCell<Client>,
    backoff: Backoff,
}

/// What a provider makes of a request.
pub(crate) struct HttpCall<'a> {
    pub(crate) url: &'a str,
    pub(crate) headers: &'a [(&'static str, String)],
    /// Kept out of what a failure says.
    pub(crate) key: Option<&'a SecretString>,
    pub(crate) body: Bytes,
}

/// An answer's first bytes and the rest.
struct Answer {
    first: Option<Bytes>,
    response: Response,
}

impl Endpoint {
    pub(crate) fn new(settings: ProviderSettings, options: HttpOptions) -> Self {
        Self {
            backoff: Backoff::new(options.retry.clone()),
            settings,
            options,
            client: OnceCell::new(),
        }
    }

    /// The base URL without a slash at its end.
    pub(crate) fn base_url(&self) -> &str {
        self.settings
            .base_url
            .as_deref()
            .unwrap_or(self.settings.kind.default_base_url())
            .trim()
            .trim_end_matches('/')
    }

    /// # Errors
    /// When the provider needs a key and has none.
    pub(crate) fn ready(&self) -> Result<(), ModelError> {
        if self.settings.key.is_some() {
            return Ok(());
        }
        if let Some(source) = &self.settings.source {
            return source.ready().map_err(|way_out| self.no_key(way_out));
        }
        if self.settings.key_hint.is_empty() {
            return Ok(());
        }
        Err(self.no_key(self.settings.key_hint.clone()))
    }

    /// The key of this request; none when the provider needs none.
    pub(crate) async fn key(&self) -> Result<Option<SecretString>, ModelError> {
        self.ready()?;
        match (&self.settings.key, &self.settings.source) {
            (Some(key), _) => Ok(Some(key.clone())),
            (None, Some(source)) => source
                .key()
                .await
                .map(Some)
                .map_err(|way_out| self.no_key(way_out)),
            (None, None) => Ok(None),
        }
    }

    fn no_key(&self, way_out: String) -> ModelError {
        ModelError::NoKey {
            provider: self.settings.name.clone(),
            way_out,
        }
    }

    /// Sends the request, with its tries, and hands on what `decode` makes of the answer.
    pub(crate) async fn run(
        &self,
        emit: &Emitter,
        request: &Request,
        call: HttpCall<'_>,
        decode: &mut dyn Decode,
    ) -> Result<(), ModelError> {
        let HttpCall {
            url,
            headers,
            key,
            body,
        } = call;
        let headers = self.headers(headers)?;
        let client = self.client.get_or_try_init(|| self.make_client()).await?;
        let secrets = key
            .into_iter()
            .chain(self.settings.headers.iter().map(|(_, value)| value));
        let censor = Censor::new(secrets, Some(request));
        let answer = self
            .backoff
            .run(emit, || {
                self.try_once(client, url, headers.clone(), body.clone(), &censor)
            })
            .await
            .inspect_err(|error| {
                if let (ModelError::Auth { .. }, Some(source)) = (error, &self.settings.source) {
                    source.refused();
                }
            })?;
        if is_json(&answer.response) {
            self.read_json(emit, answer, decode, &censor).await
        } else {
            self.read_events(emit, answer, decode, &censor).await
        }
    }

    async fn try_once(
        &self,
        client: &Client,
        url: &str,
        headers: HeaderMap,
        body: Bytes,
        censor: &Censor<'_>,
    ) -> Result<Answer, Failure> {
        let sent = client.post(url).headers(headers).body(body).send();
        let mut response = match timeout(self.options.answer, sent).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.connect_failure(error)),
            Err(_) => {
                return Err(Failure::Final(self.connect_error(format!(
                    "it took the request and did not begin to answer within {} s; is it \
                     overloaded, or the model still loading?",
                    self.options.answer.as_secs()
                ))));
            }
        };
        let status = response.status();
        if !status.is_success() {
            let after = retry_after(response.headers());
            let may_retry = response
                .headers()
                .get("x-should-retry")
                .is_none_or(|value| value != "false");
            let body = ErrorBody::read(&self.read_bounded(&mut response, 64 * 1024).await);
            let status = status.as_u16();
            let error = status_error(&self.settings.name, status, &body, censor);
            return Err(
                if may_retry && passes(status) && !body.is_spent() && is_status(&error) {
                    Failure::Passing { error, after }
                } else {
                    Failure::Final(error)
                },
            );
        }
        // The first bytes belong to the try: until they are here, nothing was said.
        match timeout(self.options.answer, response.chunk()).await {
            Ok(Ok(first)) => Ok(Answer { first, response }),
            Ok(Err(error)) => Err(Failure::Passing {
                error: self.cut(format!("nothing of the answer came: {}", explain(&error))),
                after: None,
            }),
            Err(_) => Err(Failure::Final(self.idle(self.options.answer))),
        }
    }

    async fn read_events(
        &self,
        emit: &Emitter,
        answer: Answer,
        decode: &mut dyn Decode,
        censor: &Censor<'_>,
    ) -> Result<(), ModelError> {
        let Answer {
            mut first,
            mut response,
        } = answer;
        let mut parser = SseParser::default();
        let mut parsed = Vec::new();
        let mut out = Vec::new();
        let mut progress = Progress::More;
        let foreign = foreign_type(&response);
        let mut any = false;
        while progress != Progress::Done {
            let chunk = match first.take() {
                Some(chunk) => chunk,
                None => {
                    let whole = progress == Progress::Whole;
                    match timeout(self.patience(whole), response.chunk()).await {
                        Ok(Ok(Some(chunk))) => chunk,
                        Ok(Ok(None)) => break,
                        _ if whole => break,
                        Ok(Err(error)) => return Err(self.cut(explain(&error))),
                        Err(_) => return Err(self.idle(self.options.idle)),
                    }
                }
            };
            let pushed = parser.push(&chunk, &mut parsed);
            any |= !parsed.is_empty();
            for event in parsed.drain(..) {
                let next = decode.event(&event, &mut out);
                emit.send_all(&mut out).await;
                progress = next
                    .map_err(|error| self.decode_error(error, censor))?
                    .max_with(progress);
                if progress == Progress::Done {
                    break;
                }
            }
            pushed.map_err(|error| self.protocol(&error.to_string()))?;
        }
        if !any && let Some(kind) = foreign {
            // A web page is no answer that was cut.
            let kind = censor.clean(&kind);
            return Err(self.protocol(&format!(
                "it answered with `{kind}` and no stream of events"
            )));
        }
        let ended = decode.end(&mut out);
        if ended.is_ok() {
            // A body that is read to its end leaves the connection for the next request,
            // which saves that one a handshake. Whoever reads the stream drops it at its
            // last event, so this comes before.
            let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
            let _ = timeout(LINGER, rest).await;
        }
        emit.send_all(&mut out).await;
        ended.map_err(|error| self.decode_error(error, censor))
    }

    /// A server that answers with one JSON body: an error, or all of the answer at once.
    async fn read_json(
        &self,
        emit: &Emitter,
        answer: Answer,
        decode: &mut dyn Decode,
        censor: &Censor<'_>,
    ) -> Result<(), ModelError> {
        let Answer {
            first,
            mut response,
        } = answer;
        let mut body = first.map(|first| first.to_vec()).unwrap_or_default();
        loop {
            match timeout(self.options.idle, response.chunk()).await {
                Ok(Ok(Some(chunk))) if body.len() + chunk.len() > crate::sse::MAX_EVENT_BYTES => {
                    return Err(self.protocol("its answer is too large"));
                }
                Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
                Ok(Ok(None)) => break,
                Ok(Err(error)) => return Err(self.cut(explain(&error))),
                Err(_) => return Err(self.idle(self.options.idle)),
            }
        }
        let event = SseEvent {
            data: String::from_utf8_lossy(&body).into_owned(),
            ..SseEvent::default()
        };
        let mut out = Vec::new();
        let read = decode
            .event(&event, &mut out)
            .and_then(|_| decode.end(&mut out));
        emit.send_all(&mut out).await;
        read.map_err(|error| self.decode_error(error, censor))
    }

    /// As much of an error body as is worth reading; a break in it changes nothing.
    async fn read_bounded(&self, response: &mut Response, limit: usize) -> Vec<u8> {
        let mut body = Vec::new();
        let read = async {
            while body.len() < limit {
                match response.chunk().await {
                    Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                    _ => break,
                }
            }
        };
        let _ = timeout(self.options.connect, read).await;
        body.truncate(limit);
        body
    }

    /// How long to wait for more. Once the answer is whole, what may still come is figures.
    fn patience(&self, whole: bool) -> Duration {
        if whole {
            self.options.idle.min(Duration::from_secs(5))
        } else {
            self.options.idle
        }
    }

    fn headers(&self, own: &[(&'static str, String)]) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        let own = own.iter().map(|(name, value)| (*name, value.as_str()));
        let set = self
            .settings
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.expose_secret()));
        for (name, value) in own.chain(set) {
            let bad = |what: &str| ModelError::Connect {
                provider: self.settings.name.clone(),
                message: format!(
                    "the {what} of the header `{}` cannot be sent: check the key and the \
                     headers in the config",
                    name.escape_debug()
                ),
            };
            let header = HeaderName::try_from(name).map_err(|_| bad("name"))?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| bad("value"))?;
            value.set_sensitive(true);
            headers.insert(header, value);
        }
        Ok(headers)
    }

    /// Reads the system's certificate authorities, which takes a while: off the runtime.
    async fn make_client(&self) -> Result<Client, ModelError> {
        let connect = self.options.connect;
        let plain = self.base_url().starts_with("http://");
        let local = is_local(self.base_url());
        let build = move || {
            let mut builder = Client::builder()
                .user_agent(concat!("terret/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(connect)
                .pool_idle_timeout(Duration::from_secs(90))
                .tcp_nodelay(true)
                // A redirect would carry the key to wherever it points.
                .redirect(reqwest::redirect::Policy::none())
                .http2_keep_alive_interval(Duration::from_secs(30));
            let ring = Arc::new(rustls::crypto::ring::default_provider());
            if plain {
                // A local server must work on a machine without certificate authorities.
                let tls = rustls::ClientConfig::builder_with_provider(ring)
                    .with_safe_default_protocol_versions()
                    .map_err(|error| error.to_string())?
                    .with_root_certificates(rustls::RootCertStore::empty())
                    .with_no_client_auth();
                builder = builder.tls_backend_preconfigured(tls);
            } else {
                // An error means that the process has a provider, which is as good.
                let _ = rustls::crypto::ring::default_provider().install_default();
            }
            if local {
                builder = builder.no_proxy();
            }
            builder.build().map_err(|error| explain(&error))
        };
        let built = tokio::task::spawn_blocking(build)
            .await
            .map_err(|error| error.to_string())
            .and_then(|built| built);
        built.map_err(|error| {
            self.connect_error(format!(
                "no secure connection can be set up: {error}; are certificate authorities \
                 installed (the package `ca-certificates`, or `SSL_CERT_FILE`)?"
            ))
        })
    }

    fn connect_failure(&self, error: reqwest::Error) -> Failure {
        let text = explain(&error).to_lowercase();
        let certificate = text.contains("certificate");
        let plain = text.contains("corrupt message");
        let advice = if plain {
            "does the server speak plain `http://`?"
        } else if certificate {
            "is the system's certificate store (the package `ca-certificates`) there and up \
             to date?"
        } else if is_local(self.base_url()) {
            "is the server running, and `base_url` right?"
        } else {
            "is the network up, and `base_url` right?"
        };
        let message = self.connect_error(format!("{}; {advice}", explain(&error)));
        if error.is_builder() || certificate || plain {
            Failure::Final(message)
        } else {
            Failure::Passing {
                error: message,
                after: None,
            }
        }
    }

    fn connect_error(&self, message: String) -> ModelError {
        ModelError::Connect {
            provider: self.settings.name.clone(),
            message,
        }
    }

    fn cut(&self, message: String) -> ModelError {
        ModelError::Cut {
            provider: self.settings.name.clone(),
            message,
        }
    }

    fn idle(&self, waited: Duration) -> ModelError {
        self.cut(format!(
            "nothing came for {} s, so the request was given up; send the prompt again",
            waited.as_secs_f64()
        ))
    }

    fn protocol(&self, message: &str) -> ModelError {
        ModelError::Protocol {
            provider: self.settings.name.clone(),
            message: format!("{message}; is `base_url` right, and `kind`?"),
        }
    }

    fn decode_error(&self, error: DecodeError, censor: &Censor<'_>) -> ModelError {
        match error {
            DecodeError::Reported(body) => {
                status_error(&self.settings.name, body.stream_status(), &body, censor)
            }
            DecodeError::Unfinished => self.cut(
                "the answer has no end mark, so it is not whole and was not used; send the \
                 prompt again"
                    .to_owned(),
            ),
            DecodeError::Protocol(message) => self.protocol(&censor.clean(&message)),
        }
    }
}

impl Progress {
    /// An answer that was whole stays whole.
    fn max_with(self, earlier: Self) -> Self {
        match (self, earlier) {
            (Progress::More, earlier) => earlier,
            (this, _) => this,
        }
    }
}

/// Statuses that may pass: too many requests, and the provider's own faults (check 164).
pub(crate) fn passes(status: u16) -> bool {
    status == 429 || status >= 500
}

pub(crate) fn is_status(error: &ModelError) -> bool {
    matches!(error, ModelError::Status { .. })
}

fn is_json(response: &Response) -> bool {
    response
        .headers()
        .get(reqwest::header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().starts_with("application/json"))
}

/// The type of an answer that says that it is no stream of events.
fn foreign_type(response: &Response) -> Option<String> {
    let value = response.headers().get(reqwest::header::CONTENT_TYPE)?;
    let kind = value
        .to_str()
        .ok()?
        .split(';')
        .next()?
        .trim()
        .to_lowercase();
    (kind != "text/event-stream").then(|| kind.chars().take(80).collect())
}

/// Whether the address is this machine's, which no proxy reaches.
fn is_local(base_url: &str) -> bool {
    reqwest::Url::parse(base_url).is_ok_and(|url| {
        url.host_str()
            .is_some_and(|host| host == "localhost" || host == "[::1]" || host.starts_with("127."))
    })
}

/// The error and its causes, without the address, which may carry credentials.
fn explain(error: &dyn std::error::Error) -> String {
    let mut causes = Vec::new();
    let mut next = error.source();
    if next.is_none() {
        causes.push(error.to_string());
    }
    while let Some(cause) = next {
        causes.push(cause.to_string());
        next = cause.source();
    }
    causes.dedup();
    causes.join(": ")
}
