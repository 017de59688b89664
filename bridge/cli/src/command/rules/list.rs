//! `terret rules list`.

use serde_json::json;
use terret_engine::grants::standing::{self, Kept, Standing};
use terret_engine::room::log::{Clock as _, Index, Store, SystemClock};
use terret_engine::room::tools::rules::shown;

use super::{Place, in_place};
use crate::command::sessions;
use crate::output::Output;
use crate::paths::Environment;
use crate::wiring::Setup;

/// Prints all rules that hold in a place, those of one session first.
pub(super) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    place: &Place,
    session: Option<&str>,
    json: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    let mut all = Vec::new();
    let mut id = None;
    let mut uses = Vec::new();
    if setup.paths.state.exists() {
        let store = Store::open(setup.paths.state.clone(), std::sync::Arc::new(SystemClock))?;
        if let Some(name) = session {
            let found = sessions::find(&store, name)?;
            let state = store.load(&found)?;
            all.extend(state.rules.iter().map(Standing::of_session));
            id = Some(found);
        }
        let mut index = Index::open(setup.paths.state.join("index.sqlite"), store)?;
        index.refresh()?;
        uses = index.rule_uses()?;
    } else if let Some(name) = session {
        anyhow::bail!("there is no session `{}`", shown(name));
    }
    let (mut rules, left_out) = in_place(setup, environment, place)?;
    // As `terret rules revoke` counts, which does not reach into sessions.
    standing::number(&mut rules);
    all.extend(rules);
    standing::learn_uses(&mut all, &uses, &place.root, id.as_ref());
    let now = SystemClock.now_ms();
    for rule in &all {
        if json {
            out.line(row(rule, now).to_string())?;
            continue;
        }
        out.line(rule.line())?;
        let details = rule.details(now);
        if !details.is_empty() {
            out.line(format!("     {details}"))?;
        }
    }
    for left in &left_out {
        if json {
            let row = json!({"left_out": left.path, "why": left.why});
            out.line(row.to_string())?;
        } else {
            out.line(format!(
                "not taken over from {}: {}",
                shown(&left.path.display().to_string()),
                shown(&left.why)
            ))?;
        }
    }
    if all.is_empty() && left_out.is_empty() && !json {
        out.line("There are no rules.")?;
    }
    Ok(())
}

fn row(rule: &Standing, now: u64) -> serde_json::Value {
    let kept = match &rule.kept {
        Kept::BuiltIn => None,
        Kept::File(file) => Some(file.path().display().to_string()),
        Kept::Session(id) => Some(id.clone()),
        Kept::Elsewhere(place) => Some(place.clone()),
    };
    json!({
        "number": rule.number,
        "effect": rule.effect.name(),
        "rule": rule.text,
        "scope": rule.scope.name(),
        "kept": kept,
        "origin": rule.origin,
        "added_at": rule.added,
        "expires_at": rule.expires,
        "expired": rule.is_expired(now),
        "in_force": rule.in_force && !rule.is_expired(now),
        "last_used_at": rule.used.map(|used| used.last),
        "uses": rule.used.map_or(0, |used| used.times),
    })
}
