//! The web as a session may see it: one page at a time, from hosts that the operator's
//! lists leave open, over addresses that are no part of this machine or its networks
//! (`Terret spec §6 WebFetch`, checks 155 to 157, 160).
//!
//! Who permits a host is not decided here: the caller says it for each host that a redirect
//! leads to. The lists and the addresses hold whatever it says.

pub mod address;
mod body;
mod client;
pub mod host;
mod markdown;
pub mod page;
pub mod target;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::LOCATION;
use reqwest::{Client, Response};
use tokio::sync::OnceCell;

pub use self::body::Size;
pub use self::client::{Resolver, SystemResolver};
use crate::world::process::clean::Cleaner;
use crate::world::web::address::Addresses;
use crate::world::web::body::{Body, Form};
use crate::world::web::host::{Host, HostPattern};
use crate::world::web::target::{Target, TargetError};

/// Redirects that are followed; the next is refused.
pub const REDIRECTS: usize = 5;

/// What a session's web is like.
#[derive(Debug, Clone)]
pub struct WebSettings {
    /// The hosts that may be fetched from at all; any when none. An empty list is none of
    /// them.
    pub allow: Option<Vec<HostPattern>>,
    /// Hosts that are never fetched from, whatever `allow` says.
    pub deny: Vec<HostPattern>,
    pub addresses: Addresses,
    /// For a page with all its redirects.
    pub deadline: Duration,
    /// The most of a page's text that is kept, in bytes.
    pub max_bytes: usize,
    pub resolver: Arc<dyn Resolver>,
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            allow: None,
            deny: Vec::new(),
            addresses: Addresses::Public,
            deadline: Duration::from_secs(30),
            max_bytes: 100_000,
            resolver: Arc::new(SystemResolver),
        }
    }
}

/// Whether a redirect may lead to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    Granted,
    /// A person would have to be asked.
    Asked,
    /// Why not.
    Denied(String),
}

/// What came of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    Document(Document),
    /// A redirect to a host that was not permitted; nothing was asked of it.
    Elsewhere {
        status: u16,
        from: Target,
        to: Target,
    },
}

/// What a server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Where it was in the end.
    pub target: Target,
    pub redirects: usize,
    pub status: u16,
    /// The status in words, where it is a known one.
    pub reason: Option<&'static str>,
    pub content: Content,
    pub size: Size,
    /// Why its end did not come, when the connection broke.
    pub broken: Option<String>,
}

/// The content of a [`Document`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text(Text),
    /// No text; the type that the server named, which may be empty.
    Binary(String),
}

/// The text of a document, safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    pub text: String,
    /// Bytes of text beyond [`WebSettings::max_bytes`], of what was read.
    pub left_out: usize,
    /// Bytes of the body that the text was made from.
    pub read: usize,
    /// All that the body holds is in `text` and `left_out`.
    pub whole: bool,
}

/// Why there is no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebError {
    #[error("{0} is not fetched from: `web.allow` in the configuration does not name it")]
    NotAllowed(Host),
    #[error("{0} is not fetched from: `web.deny` in the configuration names it")]
    Denied(Host),
    #[error("{host} is not fetched from: {what}, and only public addresses are reached")]
    Address { host: Host, what: String },
    #[error("the redirect to {host} is not followed: {reason}")]
    Forbidden { host: Host, reason: String },
    #[error("the server redirects to something that is not fetched: {0}")]
    Redirect(TargetError),
    #[error(
        "the server redirects from https to http, which is not followed; when that is wanted, fetch {to} itself"
    )]
    Downgrade { to: String },
    #[error(
        "more than {REDIRECTS} redirects, the last from {from}; the server may lead in circles"
    )]
    TooManyRedirects { from: Host },
    #[error("{host} could not be reached: {cause}")]
    Connect { host: Host, cause: String },
    #[error("the answer of {host} broke off before its first byte: {cause}")]
    Broken { host: Host, cause: String },
    #[error(
        "{host} sent its answer packed as {packing} although none was asked for, and it was not unpacked"
    )]
    Packed { host: Host, packing: String },
    #[error("the page was given up after {} s (`web.deadline`); the server is slow, or sends without end", .0.as_secs_f64())]
    Deadline(Duration),
    #[error(
        "no secure connection can be set up: {0}; are certificate authorities installed (the package `ca-certificates`, or `SSL_CERT_FILE`)?"
    )]
    Setup(String),
    #[error("the page could not be read as text: {0}")]
    Lost(String),
}

/// One session's web. New settings hold from the next fetch on.
#[derive(Debug)]
pub struct Web {
    current: RwLock<Arc<Current>>,
}

/// Settings and the clients that were made by them. Nothing is set up before the first
/// fetch.
#[derive(Debug)]
struct Current {
    settings: WebSettings,
    plain: OnceCell<Client>,
    secure: OnceCell<Client>,
}

impl Web {
    pub fn new(settings: WebSettings) -> Self {
        Self {
            current: RwLock::new(Arc::new(Current::new(settings))),
        }
    }

    /// Replaces the settings. A fetch that runs ends under those it began with.
    pub fn reconfigure(&self, settings: WebSettings) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Current::new(settings));
    }

    /// Whether the lists, and the address where the host is one, leave a target open. Asks
    /// nothing of the network.
    ///
    /// # Errors
    /// [`WebError`] when they do not.
    pub fn check(&self, target: &Target) -> Result<(), WebError> {
        self.current().check(target)
    }

    /// Fetches a document. `permits` is asked for each further host that redirects lead to;
    /// the first host is permitted by the call.
    ///
    /// # Errors
    /// [`WebError`] when there is none.
    pub async fn fetch(
        &self,
        target: Target,
        permits: &(dyn Fn(&Host) -> Permission + Send + Sync),
    ) -> Result<Fetched, WebError> {
        let current = self.current();
        let deadline = current.settings.deadline;
        tokio::time::timeout(deadline, Box::pin(current.follow(target, permits)))
            .await
            .unwrap_or(Err(WebError::Deadline(deadline)))
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Current {
    fn new(settings: WebSettings) -> Self {
        Self {
            settings,
            plain: OnceCell::new(),
            secure: OnceCell::new(),
        }
    }

    fn check(&self, target: &Target) -> Result<(), WebError> {
        let host = target.host();
        let names = |list: &[HostPattern]| list.iter().any(|pattern| pattern.matches(host));
        if names(&self.settings.deny) {
            return Err(WebError::Denied(host.clone()));
        }
        if self
            .settings
            .allow
            .as_deref()
            .is_some_and(|list| !names(list))
        {
            return Err(WebError::NotAllowed(host.clone()));
        }
        if let Some(address) = host.address() {
            self.settings
                .addresses
                .permit(address)
                .map_err(|what| WebError::Address {
                    host: host.clone(),
                    what: format!("it is {what}"),
                })?;
        }
        Ok(())
    }

    async fn follow(
        &self,
        target: Target,
        permits: &(dyn Fn(&Host) -> Permission + Send + Sync),
    ) -> Result<Fetched, WebError> {
        let mut permitted = vec![target.host().clone()];
        let mut target = target;
        let mut redirects = 0;
        loop {
            self.check(&target)?;
            let response = self.request(&target).await?;
            let Some(location) = location(&response) else {
                let document = self.document(target, redirects, response).await?;
                return Ok(Fetched::Document(document));
            };
            if redirects == REDIRECTS {
                return Err(WebError::TooManyRedirects {
                    from: target.host().clone(),
                });
            }
            redirects += 1;
            let next = target.join(&location).map_err(WebError::Redirect)?;
            self.check(&next)?;
            if target.is_secure() && !next.is_secure() {
                return Err(WebError::Downgrade {
                    to: next.as_str().to_owned(),
                });
            }
            if !permitted.contains(next.host()) {
                match permits(next.host()) {
                    Permission::Granted => permitted.push(next.host().clone()),
                    Permission::Asked => {
                        return Ok(Fetched::Elsewhere {
                            status: response.status().as_u16(),
                            from: target,
                            to: next,
                        });
                    }
                    Permission::Denied(reason) => {
                        return Err(WebError::Forbidden {
                            host: next.host().clone(),
                            reason,
                        });
                    }
                }
            }
            target = next;
        }
    }

    async fn request(&self, target: &Target) -> Result<Response, WebError> {
        let client = self.client(target.is_secure()).await?;
        let sent = client.get(target.url().clone()).send().await;
        sent.map_err(|error| {
            let host = target.host().clone();
            match client::forbidden(&error) {
                Some(forbidden) => WebError::Address {
                    host,
                    what: forbidden.to_string(),
                },
                None => WebError::Connect {
                    host,
                    cause: client::explain(&error),
                },
            }
        })
    }

    async fn client(&self, secure: bool) -> Result<&Client, WebError> {
        let slot = if secure { &self.secure } else { &self.plain };
        slot.get_or_try_init(|| async {
            let WebSettings {
                resolver,
                addresses,
                deadline,
                ..
            } = self.settings.clone();
            // It reads the certificate authorities: off the runtime.
            tokio::task::spawn_blocking(move || {
                client::build(resolver, addresses, deadline, secure)
            })
            .await
            .map_err(|error| error.to_string())
            .and_then(|built| built)
            .map_err(WebError::Setup)
        })
        .await
    }

    async fn document(
        &self,
        target: Target,
        redirects: usize,
        mut response: Response,
    ) -> Result<Document, WebError> {
        let status = response.status();
        let (essence, charset) = body::content_type(&response);
        let declared = body::declared(&essence);
        let length = response.content_length();
        let document = |target, content, size, broken| Document {
            target,
            redirects,
            status: status.as_u16(),
            reason: status.canonical_reason(),
            content,
            size,
            broken,
        };
        if let (Some(Form::Binary), Some(length)) = (declared, length) {
            let size = Size::Exactly(length);
            return Ok(document(target, Content::Binary(essence), size, None));
        }
        if declared != Some(Form::Binary)
            && let Some(packing) = body::packing(&response)
        {
            return Err(WebError::Packed {
                host: target.host().clone(),
                packing,
            });
        }
        let read = body::read(&mut response).await;
        let Body {
            bytes,
            size,
            broken,
        } = read.map_err(|cause| WebError::Broken {
            host: target.host().clone(),
            cause,
        })?;
        let form = declared.unwrap_or_else(|| body::look(&bytes));
        if form == Form::Binary {
            return Ok(document(target, Content::Binary(essence), size, broken));
        }
        let whole = size == Size::Exactly(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let base = target.url().clone();
        let max_bytes = self.settings.max_bytes;
        // Seconds at the most for the longest page, which is too long for the runtime.
        let made = tokio::task::spawn_blocking(move || {
            let text = body::text(&bytes, charset, form);
            let (text, whole) = if form == Form::Html {
                let page = page::markdown(&text, &base);
                (page.text, whole && !page.cut)
            } else {
                (text, whole)
            };
            kept(&text, bytes.len(), whole, max_bytes)
        });
        let text = made
            .await
            .map_err(|error| WebError::Lost(error.to_string()))?;
        Ok(document(target, Content::Text(text), size, broken))
    }
}

/// The text without what would act on a terminal or deceive a reader, cut.
fn kept(text: &str, read: usize, whole: bool, max_bytes: usize) -> Text {
    // A lone return is a line end in a text, and overwrites nothing.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut cleaner = Cleaner::new();
    let mut clean = String::with_capacity(text.len());
    cleaner.push(text.as_bytes(), &mut clean);
    cleaner.finish(&mut clean);
    let all = clean.len();
    clean.truncate(clean.floor_char_boundary(max_bytes));
    Text {
        left_out: all - clean.len(),
        text: clean,
        read,
        whole,
    }
}

/// Where a redirect leads. One that does not say is just a status.
fn location(response: &Response) -> Option<String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let value = response.headers().get(LOCATION)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

#[cfg(test)]
pub(crate) mod tests;
