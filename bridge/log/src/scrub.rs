//! Redaction: secrets never reach the log, and so neither an editor, an index nor an export.
//!
//! Two kinds of secret are known. *Exact* ones are the keys of this installation, in the
//! forms in which they get about: as they are, escaped for JSON or an address, in base64.
//! *Patterns* have the shape of a credential. Every string of every event goes through both
//! before it is written ([`Scrubber::payload`]); what arrives in pieces goes through a
//! [`TextStream`], which holds back what may still become a secret and nothing else.
//!
//! The state is folded from the scrubbed event, so what a model sees, what is compared with
//! a recorded verdict and what a person is shown is what the log holds (`Terret spec §5.7`).

mod exact;
mod patterns;
mod payload;
mod stream;

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

use exact::Exact;
use patterns::Patterns;

use crate::event::Payload;

pub use patterns::BadPattern;
pub use stream::TextStream;

/// What stands in the place of a secret when config says nothing else.
pub const REPLACEMENT: &str = "[REDACTED]";

/// A credential shorter than this, in bytes, is not looked for by its bytes: it would be
/// found in ordinary words (`Terret spec §5.7`).
pub const SHORTEST_SECRET: usize = 8;

/// What is scrubbed, shared by all that scrub: a key that is learnt is scrubbed everywhere
/// from then on. Cheap to clone. The default knows the built-in patterns.
#[derive(Clone)]
pub struct Scrubber {
    rules: Arc<RwLock<Arc<Rules>>>,
}

/// What is scrubbed at one moment.
#[derive(Clone)]
struct Rules {
    secrets: Vec<String>,
    exact: Option<Arc<Exact>>,
    patterns: Arc<Patterns>,
    replacement: Arc<str>,
}

impl Default for Scrubber {
    fn default() -> Self {
        Self::of(Patterns::built_in())
    }
}

impl Scrubber {
    /// Scrubs nothing until it is told a secret.
    pub fn without_patterns() -> Self {
        Self::of(Arc::new(Patterns::none()))
    }

    fn of(patterns: Arc<Patterns>) -> Self {
        Self {
            rules: Arc::new(RwLock::new(Arc::new(Rules {
                secrets: Vec::new(),
                exact: None,
                patterns,
                replacement: REPLACEMENT.into(),
            }))),
        }
    }

    /// Takes patterns beside the built-in ones, and another text for what is redacted. They
    /// replace what an earlier call gave; secrets stay. Syntax is that of the crate
    /// `regex` over bytes; where a group is named `secret`, it alone is redacted.
    ///
    /// # Errors
    /// [`BadPattern`] names the pattern by its place; nothing has changed then.
    pub fn configure(&self, own: &[String], replacement: Option<&str>) -> Result<(), BadPattern> {
        let replacement: Arc<str> = replacement.unwrap_or(REPLACEMENT).into();
        let patterns = Patterns::with_own(own, &replacement)?;
        self.change(|rules| {
            rules.patterns = Arc::clone(&patterns);
            rules.replacement = Arc::clone(&replacement);
            true
        });
        Ok(())
    }

    /// Scrubs these bytes from now on. One that is shorter than [`SHORTEST_SECRET`], or
    /// known already, changes nothing.
    pub fn add_secret(&self, secret: &str) {
        let secret = secret.trim();
        if secret.len() < SHORTEST_SECRET || self.rules().knows(secret) {
            return;
        }
        self.change(|rules| {
            if rules.knows(secret) {
                return false;
            }
            rules.secrets.push(secret.to_owned());
            rules.exact = Exact::new(&rules.secrets).map(Arc::new);
            true
        });
    }

    /// The text that stands in the place of a secret.
    pub fn replacement(&self) -> Arc<str> {
        Arc::clone(&self.rules().replacement)
    }

    /// An event as it may be stored. What refers to something keeps its value: ids,
    /// verdicts, statuses, hashes. Folders and files lose only the exact secrets, since a
    /// pattern that a path happens to fit must not make its session unusable.
    pub fn payload(&self, payload: Payload) -> Payload {
        payload::scrubbed(&self.rules(), payload)
    }

    /// A text as it may be stored.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.rules().text(text)
    }

    /// The path of a file or a folder as it is stored.
    pub fn place<'a>(&self, path: &'a str) -> Cow<'a, str> {
        self.rules().place(path)
    }

    /// A JSON value as it may be stored, keys included.
    pub fn value(&self, value: &Value) -> Value {
        let mut value = value.clone();
        payload::value(&self.rules(), &mut value);
        value
    }

    /// A piece cut out of a longer text, such as the last lines of an output: also a secret
    /// that the cut went through is gone.
    pub fn excerpt(&self, text: &str) -> String {
        self.rules().excerpt(text).into_owned()
    }

    /// A way for text that arrives in pieces.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.rules())
    }

    /// Whether bytes, of a file or an image, hold a secret.
    pub fn finds(&self, bytes: &[u8]) -> bool {
        let rules = self.rules();
        rules
            .exact
            .as_ref()
            .is_some_and(|exact| exact.is_match(bytes))
            || rules.patterns.is_match(bytes)
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the rules by changed ones, unless `change` says that nothing did.
    fn change(&self, change: impl FnOnce(&mut Rules) -> bool) {
        let mut held = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let mut rules = Rules::clone(&held);
        if change(&mut rules) {
            *held = Arc::new(rules);
        }
    }
}

impl Rules {
    fn knows(&self, secret: &str) -> bool {
        self.secrets.iter().any(|known| known == secret)
    }

    fn place<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.exact {
            Some(exact) => exact.scrub(text, &self.replacement),
            None => Cow::Borrowed(text),
        }
    }

    /// Exact secrets first: a pattern that ends inside of one would leave its rest.
    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.by_shape(self.place(text))
    }

    fn excerpt<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.by_shape(match &self.exact {
            Some(exact) => exact.scrub_excerpt(text, &self.replacement),
            None => Cow::Borrowed(text),
        })
    }

    fn by_shape<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        match text {
            Cow::Borrowed(text) => self.patterns.scrub(text, &self.replacement),
            Cow::Owned(text) => match self.patterns.scrub(&text, &self.replacement) {
                Cow::Owned(text) => Cow::Owned(text),
                Cow::Borrowed(_) => Cow::Owned(text),
            },
        }
    }
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rules = self.rules();
        f.debug_struct("Scrubber")
            .field("secrets", &rules.secrets.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
