//! `/rules` and `/rules revoke N`: the rules that hold in a session, those of its project
//! and of the person with them, and taking one back (R009).

use std::sync::Arc;

use terret_log::{Index, Payload};
use terret_tools::rules::{Effect, RuleSet, Scope};

use crate::commands::Command;
use crate::grants::RuleFileError;
use crate::grants::standing::{self, Kept, Standing};
use crate::jobs::command_words;
use crate::turn::TurnParts;

/// Who takes rules back here.
const BY: &str = "command";

/// What is asked of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleCommand {
    List,
    /// By number or exact text.
    Revoke(String),
    /// All that was granted for this session and this project.
    RevokeAll,
    Unknown(String),
}

/// The command, if it is about rules.
pub(crate) fn of(command: &Command) -> Option<RuleCommand> {
    if command.name != "rules" {
        return None;
    }
    let argument = command.argument.as_str();
    let rest = argument.strip_prefix("revoke").map(str::trim);
    Some(match (argument, rest) {
        ("" | "list", _) => RuleCommand::List,
        (_, Some("all")) => RuleCommand::RevokeAll,
        (_, Some(rule)) if !rule.is_empty() && argument.starts_with("revoke ") => {
            RuleCommand::Revoke(rule.to_owned())
        }
        _ => RuleCommand::Unknown(argument.to_owned()),
    })
}

/// Does it, and says what came of it.
pub(crate) async fn run(parts: &TurnParts, command: &RuleCommand) -> Result<String, String> {
    match command {
        RuleCommand::List => list(parts).await,
        RuleCommand::Revoke(name) => {
            let rules = standing(parts).await?;
            let rule = standing::named(&rules, name)
                .map_err(|problem| format!("{problem}; `/rules` lists what there is"))?;
            revoke(parts, rule).await?;
            Ok(format!(
                "Revoked: {}. What it covered goes by the other rules and the mode again, from the next call on.",
                words(rule)
            ))
        }
        RuleCommand::RevokeAll => revoke_all(parts).await,
        RuleCommand::Unknown(other) => Err(format!(
            "`/rules {}` is not known; use `/rules`, `/rules revoke N` or `/rules revoke all`",
            command_words(other)
        )),
    }
}

async fn list(parts: &TurnParts) -> Result<String, String> {
    let rules = standing(parts).await?;
    if rules.is_empty() {
        return Ok(
            "No rule was granted for this session or its project, and config.toml has none."
                .to_owned(),
        );
    }
    let now = parts.policy.now();
    let mut text = String::new();
    for rule in &rules {
        let number = rule.number.unwrap_or_default();
        let details = rule.details(now);
        text.push_str(&format!("- {number}: {}", words(rule)));
        if !details.is_empty() {
            text.push_str(&format!("; {}", command_words(&details)));
        }
        text.push('\n');
    }
    text.push_str(
        "\n`/rules revoke N` takes one back, `/rules revoke all` all that was granted for this session and its project. \
         `terret rules list` shows those that come with Terret, too.",
    );
    Ok(text)
}

/// The rules that can be taken back here, numbered: the session's, the project's, the
/// person's.
async fn standing(parts: &TurnParts) -> Result<Vec<Standing>, String> {
    let mut rules: Vec<Standing> = parts
        .core
        .state(|state| state.rules.iter().map(Standing::of_session).collect());
    let project = parts.policy.project().file().clone();
    let user = parts.policy.settings().user_rules.clone();
    let (store, id) = (parts.core.store().clone(), parts.core.id().clone());
    let found = tokio::task::spawn_blocking(move || {
        rules.extend(standing::of_file(&project, Scope::Project)?);
        if let Some(user) = user {
            rules.extend(standing::of_file(&user, Scope::User)?);
        }
        standing::number(&mut rules);
        // The list is of use without this, too.
        let uses = Index::open(store.root().join("index.sqlite"), store.clone())
            .and_then(|mut index| {
                index.refresh()?;
                index.rule_uses()
            })
            .inspect_err(|error| tracing::warn!(%error, "the uses of rules are not known"))
            .unwrap_or_default();
        standing::learn_uses(&mut rules, &uses, project.root(), Some(&id));
        Ok::<_, RuleFileError>(rules)
    });
    found
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
}

async fn revoke(parts: &TurnParts, rule: &Standing) -> Result<(), String> {
    match &rule.kept {
        Kept::Session(id) => {
            let removed = Payload::RuleRemoved {
                id: id.clone(),
                by: BY.to_owned(),
            };
            parts.core.append(removed).map_err(|fault| fault.0)?;
            parts.policy.refresh();
        }
        Kept::File(file) => {
            let (file, effect, text) = (file.clone(), rule.effect, rule.text.clone());
            tokio::task::spawn_blocking(move || file.remove(effect, &text))
                .await
                .map_err(|error| error.to_string())?
                .map_err(|error| error.to_string())?;
            if rule.scope == Scope::User {
                // The file is taken up a moment later; here it counts at once.
                let mut settings = (*parts.policy.settings()).clone();
                let same = |known: &&terret_tools::rules::Rule| {
                    known.scope == Scope::User
                        && known.effect == rule.effect
                        && known.text() == rule.text
                };
                let left = settings.rules.iter().filter(|known| !same(known));
                settings.rules = RuleSet::new(left.cloned().collect());
                parts.policy.reconfigure(Arc::new(settings));
            }
            parts.policy.freshen().await;
        }
        Kept::BuiltIn | Kept::Elsewhere(_) => {
            return Err(format!("{} is not kept here", words(rule)));
        }
    }
    Ok(())
}

/// Takes back what was granted while working; what a person wrote into config.toml, and
/// rules that ask or deny, stay.
async fn revoke_all(parts: &TurnParts) -> Result<String, String> {
    let rules = standing(parts).await?;
    let granted = |rule: &&Standing| {
        rule.effect == Effect::Allow && matches!(rule.scope, Scope::Session | Scope::Project)
    };
    let mut text = String::new();
    for rule in rules.iter().filter(granted) {
        revoke(parts, rule).await?;
        text.push_str(&format!("- {}\n", words(rule)));
    }
    if text.is_empty() {
        return Ok("Nothing was granted for this session or its project.".to_owned());
    }
    Ok(format!("Revoked:\n{text}"))
}

fn words(rule: &Standing) -> String {
    format!(
        "{} `{}` ({})",
        rule.effect.name(),
        command_words(&rule.text),
        rule.scope.name()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_command() {
        let of = |argument: &str| {
            super::of(&Command {
                name: "rules",
                argument: argument.to_owned(),
            })
        };
        assert_eq!(of(""), Some(RuleCommand::List));
        assert_eq!(of("revoke 2"), Some(RuleCommand::Revoke("2".to_owned())));
        assert_eq!(
            of("revoke Bash(cargo test all)"),
            Some(RuleCommand::Revoke("Bash(cargo test all)".to_owned()))
        );
        assert_eq!(of("revoke all"), Some(RuleCommand::RevokeAll));
        for other in ["revoke", "revoke2", "drop 1"] {
            assert_eq!(of(other), Some(RuleCommand::Unknown(other.to_owned())));
        }
    }
}
