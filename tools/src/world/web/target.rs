//! What a model may ask for: a whole `http` or `https` address without credentials. An
//! address that cannot be read is never repeated, because it may hold a secret (check 157).

use url::Url;

use super::host::Host;

/// The longest address, in bytes.
const LONGEST: usize = 8 * 1024;

/// An address that was read and may be asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: Host,
}

/// Why an address cannot be fetched. None of these repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error("the url cannot be read; give a whole one, with its scheme: `https://…`")]
    Unreadable,
    #[error("the url is longer than {LONGEST} bytes")]
    TooLong,
    #[error("the url has another scheme than http and https; only these are fetched")]
    Scheme,
    #[error("the url holds a user name or password; give it without")]
    Credentials,
    #[error(
        "the url names no host that a server could have; give one, as in `https://example.com/`"
    )]
    Host,
}

impl Target {
    /// Reads an address.
    ///
    /// # Errors
    /// [`TargetError`] says what is wrong with it, without repeating it.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if text.len() > LONGEST {
            return Err(TargetError::TooLong);
        }
        match Url::parse(text) {
            Ok(url) => Self::of(url),
            Err(url::ParseError::EmptyHost) => Err(TargetError::Host),
            Err(_) => Err(TargetError::Unreadable),
        }
    }

    /// Reads what a redirect points at, from where it was.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub(super) fn join(&self, location: &str) -> Result<Self, TargetError> {
        if location.len() > LONGEST {
            return Err(TargetError::TooLong);
        }
        Self::of(
            self.url
                .join(location)
                .map_err(|_| TargetError::Unreadable)?,
        )
    }

    fn of(mut url: Url) -> Result<Self, TargetError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetError::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::Credentials);
        }
        let host = Host::of(&url).ok_or(TargetError::Host)?;
        if url.domain().is_some_and(|name| name.ends_with('.')) {
            // What is asked for is what was matched.
            url.set_host(Some(host.as_str()))
                .map_err(|_| TargetError::Host)?;
        }
        url.set_fragment(None);
        Ok(Self { url, host })
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The address in its one spelling. Its characters are ASCII and printable.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    pub(super) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::{Target, TargetError};

    #[test]
    fn check_157_credentials_schemes_and_missing_hosts_are_refused_without_an_echo() {
        let secret = "s3cr3t";
        for (url, wanted) in [
            (
                format!("https://user:{secret}@example.com/"),
                TargetError::Credentials,
            ),
            (
                format!("https://{secret}@example.com/"),
                TargetError::Credentials,
            ),
            (
                format!("https://:{secret}@example.com/"),
                TargetError::Credentials,
            ),
            (format!("ftp://example.com/{secret}"), TargetError::Scheme),
            (format!("file:///{secret}"), TargetError::Scheme),
            (format!("javascript:{secret}"), TargetError::Scheme),
            (format!("localhost:3000/{secret}"), TargetError::Scheme),
            (format!("https://?{secret}"), TargetError::Host),
            (format!("example.com/{secret}"), TargetError::Unreadable),
            (format!("//example.com/{secret}"), TargetError::Unreadable),
            (format!("http://[::1/{secret}"), TargetError::Unreadable),
            (format!("http://exa mple/{secret}"), TargetError::Unreadable),
            (format!("http://*.com/{secret}"), TargetError::Host),
            (
                format!("http://a/{}", secret.repeat(2000)),
                TargetError::TooLong,
            ),
        ] {
            let error = Target::parse(&url).unwrap_err();
            assert_eq!(error, wanted, "{url}");
            assert!(!error.to_string().contains(secret), "{error}");
        }
    }

    #[test]
    fn what_is_asked_for_is_what_was_matched() {
        let target = Target::parse("HTTP://Example.COM.:80/a b#part").unwrap();
        assert_eq!(target.as_str(), "http://example.com/a%20b");
        assert_eq!(target.host().as_str(), "example.com");
        let next = target.join("../x?y=1").unwrap();
        assert_eq!(next.as_str(), "http://example.com/x?y=1");
        assert_eq!(
            target.join("//other.example/").unwrap().host().as_str(),
            "other.example"
        );
        assert_eq!(target.join("ftp://a/").unwrap_err(), TargetError::Scheme);
    }
}
