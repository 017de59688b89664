//! Secrets that are known by their shape.
//!
//! All patterns are one automaton over bytes, with the search of the crate `regex` beside a
//! lazy automaton that a stream steps through to learn whether a match may still come.

#![expect(
    clippy::disallowed_types,
    reason = "a constant table of patterns, compiled once"
)]

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use regex_automata::hybrid::dfa::{Cache, DFA};
use regex_automata::meta::Regex;
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input, PatternID};

/// The group of a pattern that is redacted alone.
const SECRET_GROUP: &str = "secret";

/// Patterns beyond this make every append slow.
const MOST_OWN: usize = 64;

/// A built-in pattern.
struct BuiltIn {
    pattern: &'static str,
    /// Words have this shape too; a secret holds a digit.
    needs_digit: bool,
}

const fn shape(pattern: &'static str) -> BuiltIn {
    BuiltIn {
        pattern,
        needs_digit: false,
    }
}

const fn shape_with_digit(pattern: &'static str) -> BuiltIn {
    BuiltIn {
        pattern,
        needs_digit: true,
    }
}

/// What has the shape of a credential. A prefix that belongs to one issuer is enough; where
/// there is none, the words around it must say what it is.
const BUILT_IN: &[BuiltIn] = &[
    // Keys of model providers.
    shape(r"\bsk-(?:(?:ant|proj|or|svcacct|admin|None)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,})"),
    shape(r"\bgsk_[A-Za-z0-9]{20,}"),
    shape(r"\bxai-[A-Za-z0-9]{32,}"),
    shape(r"\bhf_[A-Za-z0-9]{30,}"),
    shape(r"\bpplx-[A-Za-z0-9]{32,}"),
    shape(r"\br8_[A-Za-z0-9]{32,}"),
    // Forges.
    shape(r"\bgh[pousr]_[A-Za-z0-9]{30,}"),
    shape(r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    shape(r"\bgl(?:pat|dt|rt|ft|soat|cbt|ptt|agent|imt|oas)-[A-Za-z0-9_-]{20,}"),
    // Chats.
    shape(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    shape(r"\bxapp-[0-9]-[A-Za-z0-9-]{10,}"),
    shape(r"hooks\.slack\.com/services/(?P<secret>T[A-Za-z0-9]+/B[A-Za-z0-9]+/[A-Za-z0-9]{16,})"),
    // Clouds and payments.
    shape(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"),
    shape(
        r#"(?i:secret_?access_?key)["']?\s*[=:]\s*["']?(?P<secret>[A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+]|$)"#,
    ),
    shape(r"\bAIza[A-Za-z0-9_-]{35}"),
    shape(r"\bya29\.[A-Za-z0-9_-]{20,}"),
    shape(r"\bGOCSPX-[A-Za-z0-9_-]{20,}"),
    shape(r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    shape(r"\bdo[opr]_v1_[a-f0-9]{64}"),
    shape(r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}"),
    // Package registries.
    shape(r"\bnpm_[A-Za-z0-9]{36}"),
    shape(r"\bpypi-[A-Za-z0-9_-]{50,}"),
    // Private keys: with their end, or cut off as they often are in an output.
    shape(
        r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:\s|\\[nrt])*(?:[A-Za-z-]+: [^\r\n]*\s+)*[A-Za-z0-9+/=]{16,}(?:(?:\s|\\[nrt])+[A-Za-z0-9+/=]{32,})*(?:(?:(?:\s|\\[nrt])+[A-Za-z0-9+/=]+)*(?:\s|\\[nrt])*-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?",
    ),
    shape(r"\bAGE-SECRET-KEY-(?:PQ-)?1[0-9A-Z]{40,}"),
    // Headers, addresses and tokens.
    shape_with_digit(
        r#"(?i:authorization)["']?\s*[:=]\s*["']?(?i:bearer|basic|token)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})"#,
    ),
    shape_with_digit(r"\b(?i:bearer)\s+(?P<secret>[A-Za-z0-9._~+/=-]{20,})"),
    shape_with_digit(
        r#"(?i:x-api-key|x-goog-api-key|private-token)["']?\s*[:=]\s*["']?(?P<secret>[A-Za-z0-9._-]{16,})"#,
    ),
    shape(r##"://[^\s/:@"'<>#?]*:(?P<secret>[^\s/@"'<>${}#?]{3,})@[A-Za-z0-9\[]"##),
    shape(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
];

/// A pattern of config cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadPattern {
    /// `place` counts from 1.
    #[error("pattern {place}, `{pattern}`, is not right: {why}")]
    Pattern {
        place: usize,
        pattern: String,
        why: String,
    },
    #[error("the replacement `{replacement}` has itself the shape of a secret: {why}")]
    Replacement { replacement: String, why: String },
    #[error("{found} patterns are more than the {limit} that are allowed; join some with `|`")]
    TooMany { found: usize, limit: usize },
}

/// One automaton of all patterns.
pub(super) struct Patterns {
    /// None when there are none.
    automata: Option<Automata>,
}

struct Automata {
    search: Regex,
    steps: DFA,
    /// Which group of each pattern is redacted, and whether it must hold a digit.
    targets: Vec<Target>,
    /// Bytes that a match can begin with.
    begins: [bool; 256],
}

struct Target {
    group: usize,
    needs_digit: bool,
}

/// A match, and what of it is redacted.
pub(super) struct Found {
    pub(super) whole: Range<usize>,
    /// None when it only looked like a secret.
    pub(super) secret: Option<Range<usize>>,
}

impl Patterns {
    pub(super) fn none() -> Self {
        Self { automata: None }
    }

    /// The built-in patterns, compiled at the first use of the process.
    pub(super) fn built_in() -> Arc<Self> {
        static PATTERNS: LazyLock<Arc<Patterns>> = LazyLock::new(|| {
            let built = Automata::new(&[]);
            debug_assert!(built.is_ok(), "a constant pattern is valid");
            Arc::new(Patterns {
                automata: built.ok(),
            })
        });
        Arc::clone(&PATTERNS)
    }

    /// The built-in patterns and those of config.
    pub(super) fn with_own(own: &[String], replacement: &str) -> Result<Arc<Self>, BadPattern> {
        if own.len() > MOST_OWN {
            return Err(BadPattern::TooMany {
                found: own.len(),
                limit: MOST_OWN,
            });
        }
        for (place, pattern) in own.iter().enumerate() {
            check(pattern).map_err(|why| BadPattern::Pattern {
                place: place + 1,
                pattern: pattern.clone(),
                why,
            })?;
        }
        let patterns = if own.is_empty() {
            Self::built_in()
        } else {
            let automata = Automata::new(own).map_err(|why| BadPattern::Pattern {
                place: own.len(),
                pattern: own.last().cloned().unwrap_or_default(),
                why: format!("together with the others, {why}"),
            })?;
            Arc::new(Self {
                automata: Some(automata),
            })
        };
        // What was redacted would be redacted again at each further look.
        if patterns.is_match(replacement.as_bytes()) {
            return Err(BadPattern::Replacement {
                replacement: replacement.to_owned(),
                why: "a pattern matches it; choose another text, or a narrower pattern".to_owned(),
            });
        }
        Ok(patterns)
    }

    pub(super) fn is_match(&self, bytes: &[u8]) -> bool {
        let Some(automata) = &self.automata else {
            return false;
        };
        let mut from = 0;
        while let Some(found) = automata.find(bytes, from) {
            if found.secret.is_some() {
                return true;
            }
            from = found.whole.end;
        }
        false
    }

    pub(super) fn scrub<'a>(&self, text: &'a str, replacement: &str) -> Cow<'a, str> {
        let mut out = None;
        // What follows a redacted word begins a word: the letters before it are gone.
        let mut rest = text;
        let mut from = 0;
        let mut done = 0;
        while let Some(found) = self.find(rest, from) {
            from = found.whole.end;
            let is_new = |secret: &Range<usize>| rest.get(secret.clone()) != Some(replacement);
            let Some(secret) = found.secret.filter(is_new) else {
                continue;
            };
            let out = out.get_or_insert_with(|| String::with_capacity(text.len()));
            out.push_str(rest.get(done..secret.start).unwrap_or_default());
            out.push_str(replacement);
            done = secret.end;
            if done == from {
                rest = rest.get(done..).unwrap_or_default();
                (from, done) = (0, 0);
            }
        }
        match out {
            None => Cow::Borrowed(text),
            Some(mut out) => {
                out.push_str(rest.get(done..).unwrap_or_default());
                Cow::Owned(out)
            }
        }
    }

    /// The first match that begins at `from` or later; its bounds lie between characters.
    pub(super) fn find(&self, text: &str, from: usize) -> Option<Found> {
        let found = self.automata.as_ref()?.find(text.as_bytes(), from)?;
        let outwards = |range: Range<usize>| {
            text.floor_char_boundary(range.start)..text.ceil_char_boundary(range.end)
        };
        Some(Found {
            whole: outwards(found.whole),
            secret: found.secret.map(outwards),
        })
    }

    /// A memory for [`Patterns::unfinished`].
    pub(super) fn cache(&self) -> Option<Cache> {
        Some(self.automata.as_ref()?.steps.create_cache())
    }

    /// Where, at `from` or later, the first match begins that more text may make, or change;
    /// the length of the text when none may.
    pub(super) fn unfinished(&self, cache: &mut Cache, text: &str, from: usize) -> usize {
        let Some(automata) = &self.automata else {
            return text.len();
        };
        (from..text.len())
            .find(|start| automata.may_go_on(cache, text.as_bytes(), *start))
            .map_or(text.len(), |start| {
                text.floor_char_boundary(start).max(from)
            })
    }
}

impl Automata {
    fn new(own: &[String]) -> Result<Self, String> {
        let built_in = BUILT_IN.iter().map(|built_in| built_in.pattern);
        let patterns: Vec<&str> = built_in.chain(own.iter().map(String::as_str)).collect();
        let search = Regex::builder()
            .syntax(over_bytes())
            .configure(
                Regex::config()
                    .utf8_empty(false)
                    .nfa_size_limit(Some(SIZE_LIMIT)),
            )
            .build_many(&patterns)
            .map_err(|error| plain(&error))?;
        let steps = DFA::builder()
            .syntax(over_bytes())
            .thompson(
                thompson::Config::new()
                    .utf8(false)
                    .nfa_size_limit(Some(SIZE_LIMIT)),
            )
            .build_many(&patterns)
            .map_err(|error| plain(&error))?;
        let targets = (0..patterns.len())
            .map(|place| Target {
                group: PatternID::new(place)
                    .ok()
                    .and_then(|id| search.group_info().to_index(id, SECRET_GROUP))
                    .unwrap_or(0),
                needs_digit: BUILT_IN
                    .get(place)
                    .is_some_and(|built_in| built_in.needs_digit),
            })
            .collect();
        let mut automata = Self {
            search,
            steps,
            targets,
            begins: [true; 256],
        };
        automata.begins = automata.find_begins();
        Ok(automata)
    }

    fn find(&self, bytes: &[u8], from: usize) -> Option<Found> {
        let mut from = from;
        loop {
            let whole = self.search.find(Input::new(bytes).range(from..))?;
            if whole.is_empty() {
                from = whole.end() + 1;
                if from > bytes.len() {
                    return None;
                }
                continue;
            }
            let target = self.targets.get(whole.pattern().as_usize());
            let secret = match target {
                Some(target) if target.group > 0 => self.group(bytes, &whole, target.group),
                _ => Some(whole.range()),
            };
            let is_secret = |range: &Range<usize>| {
                !target.is_some_and(|target| target.needs_digit)
                    || bytes
                        .get(range.clone())
                        .is_some_and(|found| found.iter().any(u8::is_ascii_digit))
            };
            return Some(Found {
                whole: whole.range(),
                secret: secret.filter(is_secret),
            });
        }
    }

    fn group(
        &self,
        bytes: &[u8],
        whole: &regex_automata::Match,
        group: usize,
    ) -> Option<Range<usize>> {
        let mut captures = self.search.create_captures();
        let input = Input::new(bytes)
            .range(whole.start()..)
            .anchored(Anchored::Yes);
        self.search.search_captures(&input, &mut captures);
        captures
            .get_group(group)
            .map(|span| span.range())
            .filter(|range| !range.is_empty())
    }

    /// Whether a match that begins at `start` may need bytes behind the end.
    fn may_go_on(&self, cache: &mut Cache, bytes: &[u8], start: usize) -> bool {
        if !bytes
            .get(start)
            .is_some_and(|byte| self.begins.get(usize::from(*byte)).copied().unwrap_or(true))
        {
            return false;
        }
        let input = Input::new(bytes).range(start..).anchored(Anchored::Yes);
        // What the automaton cannot tell may go on.
        let Ok(mut state) = self.steps.start_state_forward(cache, &input) else {
            return true;
        };
        for byte in bytes.get(start..).unwrap_or_default() {
            match self.steps.next_state(cache, state, *byte) {
                Ok(next) if next.is_dead() => return false,
                Ok(next) if next.is_quit() => return true,
                Ok(next) => state = next,
                Err(_) => return true,
            }
        }
        true
    }

    /// Tries each byte behind the kinds of byte that an assertion can tell apart.
    fn find_begins(&self) -> [bool; 256] {
        let mut cache = self.steps.create_cache();
        let mut begins = [false; 256];
        for (byte, begins) in (0..=u8::MAX).zip(begins.iter_mut()) {
            let contexts: [&[u8]; 5] = [b"", b" ", b"a", b"\n", b"\r"];
            *begins = contexts.iter().any(|before| {
                let bytes = [*before, &[byte]].concat();
                self.may_go_on(&mut cache, &bytes, before.len())
            });
        }
        begins
    }
}

/// What one automaton may take, in bytes, before it is compiled further.
const SIZE_LIMIT: usize = 8 * 1024 * 1024;

fn over_bytes() -> syntax::Config {
    syntax::Config::new().unicode(false).utf8(false)
}

/// Compiles a pattern of config alone, so that an error is its own.
fn check(pattern: &str) -> Result<(), String> {
    let parsed = syntax::parse_with(pattern, &over_bytes()).map_err(|error| error.to_string())?;
    if parsed
        .properties()
        .minimum_len()
        .is_none_or(|least| least == 0)
    {
        return Err("it matches where nothing is; it must take at least one character".to_owned());
    }
    DFA::builder()
        .syntax(over_bytes())
        .thompson(
            thompson::Config::new()
                .utf8(false)
                .nfa_size_limit(Some(SIZE_LIMIT)),
        )
        .build(pattern)
        .map_err(|error| plain(&error))?;
    Ok(())
}

/// An error with its causes.
fn plain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
