//! `terret rules`: the rules that stand, with where each came from; and what they say about
//! a call, of now or of the past. Nothing here runs anything, and what changes a rule
//! refuses to work inside the agent.

mod list;
mod replay;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use terret_engine::grants::standing::{self, Kept, Standing};
use terret_engine::grants::{RuleFile, StoredRule, parse_duration, parse_expiry, project_root};
use terret_engine::room::log::{Clock as _, SystemClock, moment};
use terret_engine::room::tools::gate::Policy;
use terret_engine::room::tools::rules::{self, Effect, Rule, RuleSet, Scope, shown};
use terret_engine::room::tools::standard::web_fetch;
use terret_engine::room::tools::world::sandbox::ground::Ground;
use terret_engine::trust::{Survey, TrustStore};
use terret_engine::{Settings, room};

use crate::args::{LayerArgs, RulesAddArgs, RulesCommand};
use crate::claude;
use crate::inside::refuse_inside;
use crate::output::Output;
use crate::paths::Environment;
use crate::wiring::Setup;

/// Runs one of the `rules` commands.
pub(crate) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    command: RulesCommand,
    out: &mut Output,
) -> anyhow::Result<ExitCode> {
    match command {
        RulesCommand::List { json, cwd, session } => {
            let place = Place::of(cwd.as_deref(), environment)?;
            list::run(setup, environment, &place, session.as_deref(), json, out)?;
        }
        RulesCommand::Add(args) => {
            refuse_inside(environment)?;
            add(setup, environment, &args, out)?;
        }
        RulesCommand::Revoke { rule, layer, cwd } => {
            refuse_inside(environment)?;
            let place = Place::of(cwd.as_deref(), environment)?;
            revoke(setup, environment, &place, &rule, layer, out)?;
        }
        RulesCommand::Test(args) => return test::run(setup, environment, &args, out),
        RulesCommand::Replay(args) => replay::run(setup, environment, &args, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder that is asked about, and its project.
struct Place {
    cwd: PathBuf,
    root: PathBuf,
}

impl Place {
    #[expect(
        clippy::disallowed_methods,
        reason = "a command means the folder that it is called in"
    )]
    fn of(cwd: Option<&Path>, environment: &dyn Environment) -> anyhow::Result<Self> {
        let cwd = match cwd {
            Some(cwd) => cwd.to_owned(),
            None => std::env::current_dir()?,
        };
        let cwd = cwd
            .canonicalize()
            .with_context(|| format!("`{}` is no folder that can be used", cwd.display()))?;
        let home = Ground::of(|name| environment.var(name).map(Into::into)).home;
        Ok(Self {
            root: project_root(&cwd, home.as_deref()),
            cwd,
        })
    }
}

/// What of a file is no rule here, for who looks for it.
struct LeftOut {
    path: PathBuf,
    why: String,
}

/// All rules that stand in a place beside those of a session, and what could not be one.
fn in_place(
    setup: &Setup,
    environment: &dyn Environment,
    place: &Place,
) -> anyhow::Result<(Vec<Standing>, Vec<LeftOut>)> {
    let mut all = standing::of_file(
        &RuleFile::project(&setup.paths.state, &place.root),
        Scope::Project,
    )?;
    let mut left_out = Vec::new();
    let names = &setup.config.policy.claude_settings;
    let (brought, problems) = brought(setup, &place.root)?;
    left_out.extend(problems);
    let mut imported_rules = brought;
    for file in claude::users(names, environment) {
        let imported = file.read()?;
        let path = file.path.display().to_string();
        let rules = imported.rules.iter();
        imported_rules.extend(rules.map(|rule| Standing::elsewhere(rule, &path)));
        left_out.extend(imported.left_out.into_iter().map(|left| LeftOut {
            path: file.path.clone(),
            why: format!(
                "its rule `{}` ({}): {}",
                shown(&left.text),
                left.effect.name(),
                left.why
            ),
        }));
    }
    let user = RuleFile::user(setup.paths.config_file());
    for (stored, _) in setup.stored_rules()? {
        all.push(Standing::stored(
            stored,
            Scope::User,
            Kept::File(user.clone()),
        ));
    }
    all.extend(imported_rules);
    let settings = setup.settings(environment)?;
    let web = web_fetch::rules(&settings.web);
    let file = format!("[web] of {}", setup.paths.config_file().display());
    all.extend(web.iter().map(|rule| Standing::elsewhere(rule, &file)));
    all.extend(standing::of_terret());
    Ok((all, left_out))
}

/// The rules that files of a project bring, whether they hold yet or not, and what in these
/// files cannot be one.
fn brought(setup: &Setup, root: &Path) -> anyhow::Result<(Vec<Standing>, Vec<LeftOut>)> {
    let store = TrustStore::new(&setup.paths.state);
    let survey = Survey::of(root, &setup.project_sources(), &store)?;
    let mut rules = Vec::new();
    let mut left_out = Vec::new();
    for judged in &survey.files {
        let path = root.join(&judged.brought.file);
        for (rule, holds) in judged.rules() {
            let kept = Kept::Elsewhere(path.display().to_string());
            rules.push(Standing {
                in_force: holds,
                ..Standing::stored(rule.clone(), Scope::Project, kept)
            });
        }
        left_out.extend(judged.brought.problems.iter().map(|why| LeftOut {
            path: path.clone(),
            why: why.clone(),
        }));
    }
    left_out.extend(survey.unusable.into_iter().map(|unusable| LeftOut {
        path: root.join(unusable.file),
        why: unusable.why,
    }));
    Ok((rules, left_out))
}

/// The policy of these rules, without those that do not count.
fn policy(settings: &Settings, standing: &[Standing]) -> anyhow::Result<Policy> {
    let now = SystemClock.now_ms();
    let mut rules = Vec::with_capacity(standing.len());
    for rule in standing
        .iter()
        .filter(|rule| rule.in_force && !rule.is_expired(now))
    {
        rules.push(Rule::parse(&rule.text, rule.effect, rule.scope)?);
    }
    Ok(Policy {
        floor: room::tools::floor::Floor::new(settings.floor.iter().cloned()),
        mode: settings.mode,
        rules: RuleSet::new(rules),
        ..Policy::default()
    })
}

/// The rules that a person gave on the command line.
fn given(allow: &[String], ask: &[String], deny: &[String]) -> Result<Vec<Rule>, rules::RuleError> {
    let kinds = [
        (deny, Effect::Deny),
        (ask, Effect::Ask),
        (allow, Effect::Allow),
    ];
    let mut rules = Vec::new();
    for (texts, effect) in kinds {
        for text in texts {
            rules.push(Rule::parse(text, effect, Scope::User)?);
        }
    }
    Ok(rules)
}

fn add(
    setup: &Setup,
    environment: &dyn Environment,
    args: &RulesAddArgs,
    out: &mut Output,
) -> anyhow::Result<()> {
    let place = Place::of(args.cwd.as_deref(), environment)?;
    let effect = match (args.ask, args.deny) {
        (true, _) => Effect::Ask,
        (_, true) => Effect::Deny,
        _ => Effect::Allow,
    };
    let now = SystemClock.now_ms();
    let expires = match (&args.expires, &args.length) {
        (Some(date), _) => Some(parse_expiry(date).map_err(anyhow::Error::msg)?),
        (None, Some(length)) => {
            let length = parse_duration(length).map_err(anyhow::Error::msg)?;
            Some(now.saturating_add(length))
        }
        (None, None) => None,
    };
    if expires.is_some_and(|expires| expires < now) {
        bail!("the rule would have expired already; name a moment that is to come");
    }
    let rule = Rule::parse(&args.rule, effect, Scope::User)?;
    let (file, reach) = match args.layer.user {
        true => (
            RuleFile::user(setup.paths.config_file()),
            "in all projects".to_owned(),
        ),
        false => (
            RuleFile::project(&setup.paths.state, &place.root),
            format!("in {}", place.root.display()),
        ),
    };
    file.add(&StoredRule {
        added: Some(now),
        origin: Some("terret rules add".to_owned()),
        expires,
        ..StoredRule::new(effect, rule.text())
    })?;
    let until = expires.map_or_else(String::new, |expires| {
        format!(" until {} UTC", moment(expires))
    });
    out.line(format!(
        "{}: {} {}{until}",
        effect.name(),
        shown(rule.text()),
        shown(&reach)
    ))?;
    Ok(())
}

fn revoke(
    setup: &Setup,
    environment: &dyn Environment,
    place: &Place,
    name: &str,
    layer: LayerArgs,
    out: &mut Output,
) -> anyhow::Result<()> {
    let (mut all, _) = in_place(setup, environment, place)?;
    // Numbered as the list shows them, whatever layer is meant.
    standing::number(&mut all);
    all.retain(|rule| match rule.scope {
        Scope::User => !layer.project,
        Scope::Project => !layer.user,
        _ => !layer.user && !layer.project,
    });
    let rule = standing::named(&all, name).map_err(|problem| {
        anyhow::anyhow!(
            "{problem}; `terret rules list` shows those of this folder, and `/rules` in a session its own"
        )
    })?;
    match &rule.kept {
        Kept::File(file) => {
            if !file.remove(rule.effect, &rule.text)? {
                bail!("the rule is gone already");
            }
        }
        Kept::BuiltIn => bail!(
            "`{}` comes with Terret; a rule that asks or denies goes before it: `terret rules add --ask`",
            shown(&rule.text)
        ),
        Kept::Session(_) => bail!("`/rules revoke` in the session takes back its own rules"),
        Kept::Elsewhere(place) => bail!("it is kept in {}; take it out there", shown(place)),
    }
    out.line(format!(
        "revoked: {} {} ({})",
        rule.effect.name(),
        shown(&rule.text),
        rule.scope.name()
    ))?;
    Ok(())
}
