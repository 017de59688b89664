//! `terret config`: every setting with its value and where it comes from.

use terret_engine::external_hooks::HookEntry;
use terret_engine::grants::RuleEntry;
use terret_engine::room::models::Kind;
use terret_engine::{JobsTurn, Limits, NOTIFY_AFTER};

use crate::args::ConfigCommand;
use crate::config::Origin;
use crate::output::{Output, printable};
use crate::paths::{Environment, Paths};
use crate::wiring::Setup;

/// Runs one of the `config` commands.
pub(crate) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    command: &ConfigCommand,
    out: &mut Output,
) -> anyhow::Result<()> {
    match command {
        ConfigCommand::Path => path(&setup.paths, out),
        ConfigCommand::Show => show(setup, environment, out),
    }
}

/// `terret config path`: where the file is, whatever is in it.
pub(crate) fn path(paths: &Paths, out: &mut Output) -> anyhow::Result<()> {
    out.line(paths.config_file().display().to_string())?;
    Ok(())
}

fn show(setup: &Setup, environment: &dyn Environment, out: &mut Output) -> anyhow::Result<()> {
    let settings = setup.settings(environment)?;
    let file = setup.paths.config_file();
    let exists = if file.exists() {
        ""
    } else {
        " (not there; all defaults)"
    };
    out.line(format!("# {}{exists}", file.display()))?;
    let config = &setup.config;
    let origin = |set: bool| if set { "config.toml" } else { "default" };
    let mut row = |key: &str, value: String, origin: &str| {
        out.line(format!(
            "{key} = {value}  # {origin}",
            value = printable(&value)
        ))
    };
    match setup.model_text(environment) {
        Some((origin, text)) => {
            let origin = match origin {
                Origin::Flag(_) => "command line",
                Origin::Key(_) => "config.toml",
                Origin::Variable(variable) if environment.var(variable).is_some() => variable,
                Origin::Variable(_) => "the first key that is there",
            };
            row("model", quoted(&text), origin)?;
        }
        None => row(
            "model",
            "none".to_owned(),
            "no key and no model is configured",
        )?,
    }
    row(
        "models",
        list(&config.models),
        origin(!config.models.is_empty()),
    )?;
    row(
        "thinking",
        quoted(settings.thinking.name()),
        origin(config.thinking.is_some()),
    )?;
    row(
        "mode",
        quoted(settings.mode.name()),
        origin(config.mode.is_some()),
    )?;
    row(
        "instructions",
        config
            .instructions
            .as_deref()
            .map_or_else(|| "none".to_owned(), quoted),
        origin(config.instructions.is_some()),
    )?;
    let loops = &config.turn_loop;
    let limits: Limits = settings.limits;
    row(
        "loop.max_agents",
        limits.max_agents.to_string(),
        origin(loops.max_agents.is_some()),
    )?;
    row(
        "loop.max_steps",
        limits.max_steps.to_string(),
        origin(loops.max_steps.is_some()),
    )?;
    row(
        "loop.ask_after_steps",
        limits.ask_after_steps.to_string(),
        origin(loops.ask_after_steps.is_some()),
    )?;
    row(
        "loop.max_output",
        limits
            .max_output
            .map_or_else(|| "the provider's".to_owned(), |tokens| tokens.to_string()),
        origin(loops.max_output.is_some()),
    )?;
    let (jobs, given) = (settings.jobs, &config.jobs);
    row(
        "jobs.turn",
        quoted(match jobs.turn {
            JobsTurn::End => "end",
            JobsTurn::Hold => "hold",
        }),
        origin(given.turn.is_some()),
    )?;
    row(
        "jobs.max",
        jobs.max.to_string(),
        origin(given.max.is_some()),
    )?;
    row(
        "jobs.spool",
        jobs.spool.to_string(),
        origin(given.spool.is_some()),
    )?;
    row(
        "jobs.orphan_grace",
        jobs.orphan_grace.as_secs().to_string(),
        origin(given.orphan_grace.is_some()),
    )?;
    let policy = &config.policy;
    row(
        "policy.floor",
        list(&settings.floor),
        origin(policy.floor.is_some()),
    )?;
    row(
        "policy.allow",
        rules(&policy.allow),
        origin(!policy.allow.is_empty()),
    )?;
    row(
        "policy.ask",
        rules(&policy.ask),
        origin(!policy.ask.is_empty()),
    )?;
    row(
        "policy.deny",
        rules(&policy.deny),
        origin(!policy.deny.is_empty()),
    )?;
    row(
        "policy.claude_settings",
        list(&policy.claude_settings),
        origin(!policy.claude_settings.is_empty()),
    )?;
    row(
        "environment.allow",
        list(&config.environment.allow),
        origin(!config.environment.allow.is_empty()),
    )?;
    let terminal = config.bash.editor_terminal;
    row(
        "bash.editor_terminal",
        terminal.unwrap_or_default().to_string(),
        origin(terminal.is_some()),
    )?;
    row(
        "redact.patterns",
        list(&config.redact.patterns),
        origin(!config.redact.patterns.is_empty()),
    )?;
    row(
        "redact.replacement",
        quoted(&setup.scrubber.replacement()),
        origin(config.redact.replacement.is_some()),
    )?;
    row(
        "credentials.identity",
        quoted(&setup.lock(environment).identity.to_string_lossy()),
        origin(config.credentials.identity.is_some()),
    )?;
    let sandbox = &config.sandbox;
    row(
        "sandbox.provider",
        quoted(settings.sandbox.provider.name()),
        origin(sandbox.provider.is_some()),
    )?;
    row(
        "sandbox.read",
        list(&sandbox.read),
        origin(!sandbox.read.is_empty()),
    )?;
    row(
        "sandbox.write",
        list(&sandbox.write),
        origin(!sandbox.write.is_empty()),
    )?;
    let docker = &settings.sandbox.docker;
    row(
        "sandbox.docker.image",
        quoted(&docker.image),
        origin(sandbox.docker.image.is_some()),
    )?;
    row(
        "sandbox.docker.network",
        quoted(&docker.network),
        origin(sandbox.docker.network.is_some()),
    )?;
    let web = &config.web;
    row(
        "web.allow",
        web.allow
            .as_deref()
            .map_or_else(|| "any host".to_owned(), list),
        origin(web.allow.is_some()),
    )?;
    row("web.deny", list(&web.deny), origin(!web.deny.is_empty()))?;
    row("web.private", web.private.to_string(), origin(web.private))?;
    row(
        "web.deadline",
        settings.web.deadline.as_secs().to_string(),
        origin(web.deadline.is_some()),
    )?;
    row(
        "web.max_bytes",
        settings.web.max_bytes.to_string(),
        origin(web.max_bytes.is_some()),
    )?;
    let inbox = &config.inbox;
    let after = inbox.notify_after.unwrap_or(NOTIFY_AFTER.as_secs());
    row(
        "inbox.notify_after",
        after.to_string(),
        origin(inbox.notify_after.is_some()),
    )?;
    row(
        "inbox.notify",
        inbox
            .notify
            .as_deref()
            .map_or_else(|| "nothing".to_owned(), list),
        origin(inbox.notify.is_some()),
    )?;
    let hooks: Vec<String> = config.hooks.iter().map(HookEntry::in_words).collect();
    row("hooks", list(&hooks), origin(!hooks.is_empty()))?;
    let log = &config.log;
    row(
        "log.level",
        quoted(&log.level(&file)?.to_string()),
        origin(log.level.is_some()),
    )?;
    row(
        "log.file",
        log.file.as_ref().map_or_else(
            || "none; it goes to stderr".to_owned(),
            |path| quoted(&path.to_string_lossy()),
        ),
        origin(log.file.is_some()),
    )?;
    for provider in setup.providers(environment) {
        let key = provider
            .origin
            .describe(&setup.credentials(), provider.variable.as_deref());
        row(
            &format!("providers.{}", provider.name),
            format!(
                "{} ({}; {key})",
                quoted(&provider.base_url),
                kind_name(provider.kind)
            ),
            origin(config.providers.contains_key(&provider.name)),
        )?;
    }
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list(texts: &[String]) -> String {
    serde_json::Value::from(texts.to_vec()).to_string()
}

fn rules(entries: &[RuleEntry]) -> String {
    let texts: Vec<String> = entries.iter().map(|entry| entry.text.clone()).collect();
    list(&texts)
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Anthropic => "anthropic",
        Kind::OpenAiChat => "openai",
    }
}
