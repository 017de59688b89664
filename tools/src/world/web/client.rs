//! The connection. Names are looked up here, every answer is checked, and only checked
//! addresses are handed to the connector, in one act for each connection: an answer that
//! changes between a look and the use cannot come in (check 160).

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Client;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue};

use super::address::Addresses;

/// How long a connection may take to be made, at most.
const CONNECT: Duration = Duration::from_secs(10);

/// Looks up names.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of a host's name.
    ///
    /// # Errors
    /// Why there are none, in the system's words.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// An address that must not be reached, by what it is.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("its name leads to {0}")]
pub(super) struct Forbidden(pub(super) &'static str);

/// The resolver that connections are made with.
pub(super) struct Checked {
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) addresses: Addresses,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, addresses) = (Arc::clone(&self.resolver), self.addresses);
        Box::pin(async move {
            let found = resolver.resolve(name.as_str()).await?;
            if found.is_empty() {
                return Err(Box::from("its name has no address"));
            }
            // One bad answer among good ones is enough: it might be the one that is used.
            for address in &found {
                addresses.permit(*address).map_err(Forbidden)?;
            }
            let pinned = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(pinned) as Addrs)
        })
    }
}

/// A client that follows no redirect, uses no proxy and keeps no connection. Reads the
/// system's certificate authorities when `secure`, which takes a while.
pub(super) fn build(
    resolver: Arc<dyn Resolver>,
    addresses: Addresses,
    deadline: Duration,
    secure: bool,
) -> Result<Client, String> {
    let mut headers = HeaderMap::new();
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("text/markdown, text/html;q=0.9, text/*;q=0.8, */*;q=0.5"),
    );
    // Nothing is unpacked, so a small answer cannot become a large one.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    let mut builder = Client::builder()
        .user_agent("terret")
        .default_headers(headers)
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT.min(deadline))
        .tcp_nodelay(true)
        .dns_resolver(Arc::new(Checked {
            resolver,
            addresses,
        }));
    if secure {
        // An error means that the process has a provider, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    } else {
        // A plain page must be found on a machine without certificate authorities.
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        builder = builder.tls_backend_preconfigured(tls);
    }
    builder.build().map_err(|error| explain(&error))
}

/// The address that a request failed for, when that is why it failed.
pub(super) fn forbidden(error: &reqwest::Error) -> Option<Forbidden> {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
            return Some(*forbidden);
        }
        next = cause.source();
    }
    None
}

/// The error and its causes, without the address, which may hold a secret.
pub(super) fn explain(error: &dyn Error) -> String {
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
