//! `terret rules test`: what would become of one call. The first word is the decision; what
//! cannot be judged ends with status 2, so that a script tells the two apart.

use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use terret_engine::Judge;
use terret_engine::room::tools::gate::{Decider, Policy, Ruling};
use terret_engine::room::tools::mode::Mode;
use terret_engine::room::tools::rules::{Rule, RuleSet, shown};
use terret_engine::room::tools::table::Table;
use terret_engine::room::tools::world::sandbox::choice;

use super::{Place, given, in_place, policy};
use crate::args::RulesTestArgs;
use crate::output::Output;
use crate::paths::Environment;
use crate::wiring::Setup;

/// Status for input that cannot be judged.
const UNUSABLE: u8 = 2;

/// Judges the call.
pub(super) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    args: &RulesTestArgs,
    out: &mut Output,
) -> anyhow::Result<ExitCode> {
    match judged(setup, environment, args) {
        Ok(ruling) => {
            for line in lines(&ruling) {
                out.line(line)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            crate::complain(&format!("terret: {}", shown(&crate::words(&error))));
            Ok(ExitCode::from(UNUSABLE))
        }
    }
}

fn judged(
    setup: &Setup,
    environment: &dyn Environment,
    args: &RulesTestArgs,
) -> anyhow::Result<Ruling> {
    let place = Place::of(args.cwd.as_deref(), environment)?;
    let (tool, call) = match (&args.line, &args.tool) {
        (_, Some(tool)) => {
            let text = args.args.as_deref().unwrap_or("{}");
            let call: Value = serde_json::from_str(text)
                .map_err(|error| anyhow::anyhow!("`--args` is no JSON: {error}"))?;
            (tool.as_str(), call)
        }
        (Some(line), None) => ("Bash", json!({ "command": line })),
        (None, None) => anyhow::bail!("write a command line, or `--tool NAME --args JSON`"),
    };
    let settings = setup.settings(environment)?;
    let rules = given(&args.allow, &args.ask, &args.deny)?;
    let alone = !rules.is_empty();
    let mut policy = if alone {
        // Those given are tried by themselves, so that the answer is the same everywhere.
        Policy {
            rules: RuleSet::new(rules),
            ..Policy::default()
        }
    } else {
        policy(&settings, &in_place(setup, environment, &place)?.0)?
    };
    if let Some(name) = &args.mode {
        policy.mode = Mode::named(name).ok_or_else(|| {
            anyhow::anyhow!("`{name}` is no mode; write `plan`, `ask`, `edits`, `auto` or `bypass`")
        })?;
    }
    let table = Arc::new(Table::standard());
    let judge = Judge::new(&table, &place.cwd, &[], &setup.paths.denied())?;
    let under = |isolated: bool| {
        judge.set_policy(Arc::new(Policy {
            isolated,
            ..policy.clone()
        }));
        judge.ruling(tool, call.clone()).map_err(anyhow::Error::msg)
    };
    let (outside, inside) = (under(false)?, under(true)?);
    if alone || outside.decision == inside.decision {
        return Ok(outside);
    }
    // Only where it matters is it found out what commands run in here.
    let isolated = choice::provider(&settings.sandbox).isolated();
    Ok(if isolated { inside } else { outside })
}

/// The decision, then why, and which rules it rests on.
fn lines(ruling: &Ruling) -> Vec<String> {
    let mut lines = vec![ruling.effect().name().to_owned()];
    lines.push(format!("  {}", shown(&ruling.why)));
    if let Some(part) = &ruling.part {
        lines.push(format!("  because of the part: {}", shown(part)));
    }
    if ruling.rules.is_empty() {
        lines.push(format!("  decided by {}", decider(&ruling.by)));
    }
    lines.extend(ruling.rules.iter().map(|rule| format!("  {}", words(rule))));
    lines
}

fn words(rule: &Rule) -> String {
    format!(
        "rule: {} {} ({})",
        rule.effect.name(),
        shown(rule.text()),
        rule.scope.name()
    )
}

fn decider(by: &Decider) -> String {
    match by {
        Decider::Rule(rule) => words(rule),
        Decider::Floor => "the floor, `policy.floor` in config.toml".to_owned(),
        Decider::Ceiling => "the session's list of tools".to_owned(),
        Decider::Plan => "the mode `plan`".to_owned(),
        Decider::Protection(_) => "the file's protection".to_owned(),
        Decider::Mode(mode) => format!("the mode `{}`, since no rule speaks", mode.name()),
        Decider::Hook => "a hook, since no rule speaks".to_owned(),
        Decider::Tool => "the tool itself, since no rule speaks".to_owned(),
    }
}
