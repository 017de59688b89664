//! The permissions of a Claude Code settings file as rules of ours.

use serde_json::Value;

use super::{Effect, Rule, Scope};

/// What a settings file came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    pub rules: Vec<Rule>,
    pub left_out: Vec<LeftOut>,
}

/// A permission that has no counterpart here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    pub effect: Effect,
    /// As it stands in the file.
    pub text: String,
    pub why: String,
}

/// Reads `permissions.allow`, `.ask` and `.deny` of a settings file's value.
pub fn import(settings: &Value, scope: Scope) -> Imported {
    let mut imported = Imported::default();
    let permissions = settings.get("permissions");
    for effect in [Effect::Deny, Effect::Ask, Effect::Allow] {
        let texts = permissions
            .and_then(|permissions| permissions.get(effect.name()))
            .and_then(Value::as_array);
        for value in texts.into_iter().flatten() {
            let Some(text) = value.as_str() else {
                imported.left_out.push(LeftOut {
                    effect,
                    text: value.to_string(),
                    why: "it is not a text".to_owned(),
                });
                continue;
            };
            match Rule::parse(text, effect, scope) {
                Ok(rule) => imported.rules.push(rule),
                Err(error) => imported.left_out.push(LeftOut {
                    effect,
                    text: text.to_owned(),
                    why: error.to_string(),
                }),
            }
        }
    }
    imported
}
