//! Hosts as rules and settings name them: one spelling for each, so that nothing gets past
//! a pattern by case, a trailing dot, a port, or a way of writing an address (check 155).

use std::fmt;
use std::net::IpAddr;

use crate::floor::glob_matches;

/// A host in its one spelling: lower-case ASCII without a trailing dot, or an address
/// without brackets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host(String);

impl Host {
    /// The host of an address line that was read; none when it is no name that a server
    /// could have.
    pub(super) fn of(url: &url::Url) -> Option<Self> {
        match url.host()? {
            url::Host::Domain(name) => {
                let name = name.strip_suffix('.').unwrap_or(name);
                is_name(name).then(|| Self(name.to_owned()))
            }
            url::Host::Ipv4(address) => Some(Self(address.to_string())),
            url::Host::Ipv6(address) => Some(Self(address.to_string())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address, when the host is one and not a name.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.0.parse().ok()
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Only what host names are made of: a `*` in one would be a pattern in the rule that is
/// offered for it.
fn is_name(name: &str) -> bool {
    let fits =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    name.len() <= 253
        && name
            .split('.')
            .all(|label| !label.is_empty() && label.len() <= 63 && label.bytes().all(fits))
}

/// A shell glob over hosts: `example.com`, `*.example.com`, `192.168.1.*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPattern(String);

/// What a pattern got wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostPatternError {
    #[error("a host pattern is empty; write a host, for example `example.com` or `*.example.com`")]
    Empty,
    #[error(
        "`{0}` is no host pattern; write the host alone, without scheme, port and path: `example.com` or `*.example.com`"
    )]
    NotAHost(String),
}

impl HostPattern {
    /// Reads a pattern. Case and a trailing dot make no difference, and a name in letters
    /// outside of ASCII is what the network calls it.
    ///
    /// # Errors
    /// [`HostPatternError`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, HostPatternError> {
        let bare = text.trim();
        if bare.is_empty() {
            return Err(HostPatternError::Empty);
        }
        let wrong = || HostPatternError::NotAHost(text.to_owned());
        let inner = bare
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Ok(address) = inner.unwrap_or(bare).parse::<std::net::Ipv6Addr>() {
            return Ok(Self(address.to_string()));
        }
        if bare.contains(['/', '@', ' ', '\\', '#', '%']) {
            return Err(wrong());
        }
        // A colon outside of an address of IPv6 would begin a port, which never counts.
        let ipv6_glob = bare.matches(':').count() > 1;
        if bare.contains(':') && !ipv6_glob {
            return Err(wrong());
        }
        let bare = bare.strip_suffix('.').unwrap_or(bare);
        let is_glob = |text: &str| text.contains(['*', '?', '[', ']', '!', '^']);
        if !is_glob(bare) {
            let host = match url::Host::parse(bare) {
                Ok(url::Host::Domain(name)) if is_name(&name) => name,
                Ok(url::Host::Ipv4(address)) => address.to_string(),
                _ => return Err(wrong()),
            };
            return Ok(Self(host));
        }
        let labels: Option<Vec<String>> = bare
            .split('.')
            .map(|label| {
                if is_glob(label) || label.is_ascii() {
                    return Some(label.to_lowercase());
                }
                match url::Host::parse(label) {
                    Ok(url::Host::Domain(name)) => Some(name),
                    _ => None,
                }
            })
            .collect();
        match labels {
            Some(labels) if labels.iter().all(|label| !label.is_empty()) => {
                Ok(Self(labels.join(".")))
            }
            _ => Err(wrong()),
        }
    }

    /// Whether it speaks of this host.
    pub fn matches(&self, host: &Host) -> bool {
        self.matches_text(host.as_str())
    }

    /// The same for the text of a [`Host`].
    pub(crate) fn matches_text(&self, host: &str) -> bool {
        glob_matches(&self.0, host)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests;
