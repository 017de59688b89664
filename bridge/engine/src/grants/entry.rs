//! One rule as it is written in a file: its text alone, or a table with what is known of it.

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use terret_tools::rules::Effect;
use toml::value::Datetime;

use super::{StoredRule, date};

/// An element of `allow`, `ask` or `deny`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleEntry {
    /// As `Tool` or `Tool(…)`.
    pub text: String,
    /// Unix milliseconds.
    pub added: Option<u64>,
    /// What it came from, for people: `approval a12 of session …`.
    pub origin: Option<String>,
    /// Unix milliseconds after which it counts for nothing.
    pub expires: Option<u64>,
    /// Subjects that it must cover.
    pub matches: Vec<String>,
    /// Subjects that it must not cover.
    pub not_matches: Vec<String>,
}

impl RuleEntry {
    /// With the array's effect.
    pub fn stored(self, effect: Effect) -> StoredRule {
        StoredRule {
            effect,
            text: self.text,
            added: self.added,
            origin: self.origin,
            expires: self.expires,
            matches: self.matches,
            not_matches: self.not_matches,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    rule: String,
    #[serde(rename = "match", default)]
    matches: Vec<String>,
    #[serde(rename = "not_match", default)]
    not_matches: Vec<String>,
    #[serde(default)]
    expires: Option<Moment>,
    #[serde(default)]
    added: Option<Moment>,
    #[serde(default)]
    origin: Option<String>,
}

/// Unix milliseconds, written as a date.
struct Moment(u64);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let datetime = Datetime::deserialize(deserializer)?;
        date::of(&datetime).map(Self).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RuleEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        // By hand and not untagged, which would lose which key was wrong, and where.
        impl<'de> Visitor<'de> for Either {
            type Value = RuleEntry;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("a rule such as \"Bash(cargo test)\", or a table with the key `rule`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RuleEntry, E> {
                Ok(RuleEntry {
                    text: text.to_owned(),
                    ..RuleEntry::default()
                })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RuleEntry, A::Error> {
                let written = Written::deserialize(MapAccessDeserializer::new(map))?;
                Ok(RuleEntry {
                    text: written.rule,
                    added: written.added.map(|moment| moment.0),
                    origin: written.origin,
                    expires: written.expires.map(|moment| moment.0),
                    matches: written.matches,
                    not_matches: written.not_matches,
                })
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// The element's text in a file, on one line.
pub(super) fn rendered(rule: &StoredRule) -> String {
    let mut fields = Vec::new();
    let list = |texts: &[String]| {
        let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
        format!("[{}]", quoted.join(", "))
    };
    if !rule.matches.is_empty() {
        fields.push(format!("match = {}", list(&rule.matches)));
    }
    if !rule.not_matches.is_empty() {
        fields.push(format!("not_match = {}", list(&rule.not_matches)));
    }
    if let Some(expires) = rule.expires {
        fields.push(format!("expires = {}", date::written(expires)));
    }
    if let Some(added) = rule.added {
        fields.push(format!("added = {}", date::written(added)));
    }
    if let Some(origin) = &rule.origin {
        fields.push(format!("origin = {}", quoted(origin)));
    }
    let text = quoted(&rule.text);
    if fields.is_empty() {
        text
    } else {
        format!("{{ rule = {text}, {} }}", fields.join(", "))
    }
}

/// A TOML string: with `'` where that spares escapes, and always on one line. What a
/// person could not see, or would see in another order, is written by its number.
pub(super) fn quoted(text: &str) -> String {
    let shown = |character: char| !character.is_control() && !is_hidden(character);
    let literal = text.contains(['"', '\\']) && !text.contains('\'');
    if literal && text.chars().all(shown) {
        return format!("'{text}'");
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            other if shown(other) => quoted.push(other),
            other => {
                let number = u32::from(other);
                quoted.push_str(&if number <= 0xffff {
                    format!("\\u{number:04X}")
                } else {
                    format!("\\U{number:08X}")
                });
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Marks of direction and characters without a shape.
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{61c}' | '\u{ad}' | '\u{e0000}'..='\u{e007f}')
}
