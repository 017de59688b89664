//! `terret rules replay`: what rules would have done in the past, from the logs alone.

use std::path::Path;

use serde_json::{Value, json};
use terret_engine::grants::RuleFile;
use terret_engine::grants::replay::{Replay, ReplayRules, Report, Told};
use terret_engine::room::log::{Clock as _, SessionId, Store, SystemClock, moment};
use terret_engine::room::tools::floor::Floor;
use terret_engine::room::tools::rules::{Rule, RuleSet, Scope, shown};
use terret_engine::room::tools::standard::web_fetch;
use terret_engine::room::tools::world::sandbox::choice;

use super::{brought, given};
use crate::args::RulesReplayArgs;
use crate::command::sessions;
use crate::output::Output;
use crate::paths::Environment;
use crate::wiring::Setup;

/// Judges and tells.
pub(super) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    args: &RulesReplayArgs,
    out: &mut Output,
) -> anyhow::Result<()> {
    let proposed = given(&args.allow, &args.ask, &args.deny)?;
    let nothing = proposed.is_empty();
    let report = replayed(setup, environment, args, proposed)?;
    if args.json {
        out.line(row(&report).to_string())?;
        return Ok(());
    }
    for line in lines(&report, nothing, args.limit) {
        out.line(line)?;
    }
    Ok(())
}

fn replayed(
    setup: &Setup,
    environment: &dyn Environment,
    args: &RulesReplayArgs,
    proposed: Vec<Rule>,
) -> anyhow::Result<Report> {
    if !setup.paths.state.exists() {
        return Ok(Report::default());
    }
    let store = Store::open(setup.paths.state.clone(), std::sync::Arc::new(SystemClock))?;
    let named = !args.session.is_empty();
    let ids: Vec<SessionId> = if named {
        let names = args.session.iter();
        let found = names.map(|name| sessions::find(&store, name));
        found.collect::<anyhow::Result<_>>()?
    } else {
        let mut ids = store.ids()?;
        ids.sort();
        ids
    };
    let settings = setup.settings(environment)?;
    let now = SystemClock.now_ms();
    let project = |root: &Path| -> Result<Vec<Rule>, String> {
        let file = RuleFile::project(&setup.paths.state, root);
        let mut rules = Vec::new();
        for stored in file.read().map_err(|error| error.to_string())? {
            if !stored.is_expired(now) {
                let rule = stored.rule(Scope::Project);
                rules.push(rule.map_err(|error| error.to_string())?);
            }
        }
        let brought = brought(setup, root).map_err(|error| error.to_string())?.0;
        for rule in brought.iter().filter(|rule| rule.in_force) {
            let rule = Rule::parse(&rule.text, rule.effect, rule.scope);
            rules.push(rule.map_err(|error| error.to_string())?);
        }
        Ok(rules)
    };
    let rules = ReplayRules {
        floor: Floor::new(settings.floor.iter().cloned()),
        mode: settings.mode,
        isolated: choice::provider(&settings.sandbox).isolated(),
        everywhere: settings.rules.with(web_fetch::rules(&settings.web)),
        proposed: RuleSet::new(proposed),
        home: settings.sandbox.ground.home.clone(),
        denied: setup.paths.denied(),
    };
    let mut replay = Replay::new(&store, rules, &project);
    for id in &ids {
        match replay.session(id) {
            Ok(()) => {}
            Err(error) if named => return Err(error.into()),
            // One that goes away meanwhile, or whose project's rules are not right, does
            // not keep the others from being judged.
            Err(error) => crate::complain(&format!("terret: {id} is left out: {error}")),
        }
    }
    Ok(replay.finish(args.limit))
}

fn lines(report: &Report, nothing: bool, limit: usize) -> Vec<String> {
    let mut lines = vec![format!(
        "{} in {}; {} asked about, {} refused",
        counted(report.calls, "call"),
        counted(report.sessions, "session"),
        report.asked,
        report.refused
    )];
    if report.gone > 0 {
        lines.push(format!(
            "{} left out, since the folder is gone",
            counted(report.gone, "session")
        ));
    }
    if report.unjudged > 0 {
        lines.push(format!(
            "{} left out, since the tool or its arguments are not known here",
            counted(report.unjudged, "call")
        ));
    }
    lines.push(format!(
        "prompts that the rules in force save by now: {}",
        report.saved_now
    ));
    if !nothing {
        lines.push(format!(
            "prompts that the proposed rules save beyond these: {}",
            report.saved
        ));
        told(&mut lines, "newly let through", &report.let_through, limit);
        told(&mut lines, "newly asked about", &report.newly_asked, limit);
        told(&mut lines, "newly denied", &report.newly_denied, limit);
    }
    lines.push(format!("prompts that remain: {}", report.remaining));
    if report.suggestions.is_empty() {
        if report.remaining > 0 {
            lines.push("no rule would have saved more than one of them".to_owned());
        }
        return lines;
    }
    let saved: usize = report.suggestions.iter().map(|found| found.saved).sum();
    lines.push(format!(
        "{} would have saved {saved} of them:",
        counted(report.suggestions.len(), "rule")
    ));
    for found in &report.suggestions {
        lines.push(format!(
            "  {:>5}  {}  ({})",
            found.saved,
            shown(&found.rule),
            counted(found.different, "different call")
        ));
    }
    lines
}

fn told(lines: &mut Vec<String>, what: &str, told: &Told, limit: usize) {
    lines.push(format!("{what}: {}", counted(told.calls, "call")));
    for call in told.different.iter().take(limit) {
        let refused = if call.refused {
            "  YOU REFUSED THIS"
        } else {
            ""
        };
        lines.push(format!(
            "  {:>5}  {}({}){refused}",
            call.times,
            shown(&call.tool),
            shown(&call.subject)
        ));
        lines.push(format!(
            "         {}; last in {} at {} UTC",
            call.why,
            call.session,
            moment(call.at)
        ));
    }
    let more = told.different.len().saturating_sub(limit);
    if more > 0 {
        lines.push(format!("         and {more} more; `--limit` shows them"));
    }
}

fn counted(count: usize, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

fn row(report: &Report) -> Value {
    let told = |told: &Told| {
        let calls = told.different.iter().map(|call| {
            json!({
                "tool": call.tool,
                "subject": call.subject,
                "times": call.times,
                "refused": call.refused,
                "session": call.session,
                "at": call.at,
                "why": call.why,
            })
        });
        json!({"calls": told.calls, "different": calls.collect::<Vec<_>>()})
    };
    let suggestions = report.suggestions.iter().map(
        |found| json!({"rule": found.rule, "saved": found.saved, "different": found.different}),
    );
    json!({
        "sessions": report.sessions,
        "sessions_left_out": report.gone,
        "calls": report.calls,
        "calls_left_out": report.unjudged,
        "asked": report.asked,
        "refused": report.refused,
        "saved_now": report.saved_now,
        "saved": report.saved,
        "let_through": told(&report.let_through),
        "newly_asked": told(&report.newly_asked),
        "newly_denied": told(&report.newly_denied),
        "remaining": report.remaining,
        "suggestions": suggestions.collect::<Vec<_>>(),
    })
}
