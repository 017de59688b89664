//! The `terret` binary: configuration, wiring and subcommands. This room alone reads the
//! environment and decides what goes to standard output.

mod args;
mod claude;
mod command;
mod config;
mod credentials;
mod inside;
mod logging;
mod output;
mod panics;
mod paths;
mod reload;
mod runtime;
mod stdio;
mod terminal_input;
mod wiring;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use terret_engine::room::log::Scrubber;

use crate::args::{Cli, Command, ConfigCommand};
use crate::config::{Config, LogConfig};
use crate::output::Output;
use crate::paths::{Environment, Paths};
use crate::reload::Stamp;
use crate::wiring::Setup;

/// The environment of this process.
#[derive(Clone, Copy)]
struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    #[expect(
        clippy::disallowed_methods,
        reason = "the binary reads the environment here"
    )]
    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

fn main() -> ExitCode {
    // Called by a helper's name we are that helper, and nothing else may start.
    if let Some(code) = terret_engine::room::tools::helper::dispatch() {
        return code;
    }
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("terret: {}", words(&error)));
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the binary reads the environment here"
)]
fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let home = cli
        .global
        .home
        .or_else(|| std::env::var_os("TERRET_HOME").map(Into::into))
        // `TERRET_HOME= terret …` is how a shell unsets it for one command.
        .filter(|home: &std::path::PathBuf| !home.as_os_str().is_empty());
    let paths = Paths::find(home.as_deref(), &ProcessEnvironment)?;
    // What helps with a broken configuration must start with one.
    if let Command::Config(ConfigCommand::Path) = cli.command {
        let mut out = Output::new();
        command::config::path(&paths, &mut out)?;
        return finish(out);
    }
    let stamp = Stamp::of(&paths.config_file());
    let file = paths.config_file();
    let mut config = match Config::read(&file) {
        Ok(config) => config,
        Err(error) if matches!(cli.command, Command::Doctor) => {
            return command::doctor::broken_config(&error, &mut Output::new());
        }
        Err(_) if needs_no_config(&cli.command) => {
            complain(&format!(
                "terret: `{}` cannot be used, so defaults hold; `terret doctor` says what is wrong with it",
                file.display()
            ));
            Config::default()
        }
        Err(error) => return Err(error.into()),
    };
    let scrubber = Scrubber::default();
    let mut log_problem = None;
    match logging::start(&config.log, &file, cli.global.verbose, &scrubber) {
        Ok(()) => {}
        // It reports this itself, with all else that it finds.
        Err(error) if matches!(cli.command, Command::Doctor) => {
            logging::start(&LogConfig::default(), &file, cli.global.verbose, &scrubber)?;
            log_problem = Some(words(&error));
        }
        Err(error) if needs_no_config(&cli.command) => {
            complain(&format!("terret: {}; the default holds", words(&error)));
            config.log = LogConfig::default();
            logging::start(&config.log, &file, cli.global.verbose, &scrubber)?;
        }
        Err(error) => return Err(error),
    }
    panics::install();
    let mut setup = Setup {
        paths,
        model: cli.global.model,
        mode: None,
        allow_bypass: false,
        unattended: Default::default(),
        config,
        stamp,
        scrubber,
    };
    let environment = ProcessEnvironment;
    let mut out = Output::new();
    match cli.command {
        Command::Acp(args) => {
            setup.allow_bypass = args.allow_bypass;
            command::acp::run(setup, environment)
        }
        Command::Demo(args) => command::demo::run(&args, &environment),
        Command::Run(args) => command::run::run(&mut setup, &environment, &args),
        Command::Sessions(command) => {
            command::sessions::run(&setup, &environment, command, &mut out)?;
            finish(out)
        }
        Command::Inbox(args) => {
            command::inbox::run(&setup.paths, &environment, args.command, &mut out)?;
            finish(out)
        }
        Command::Jobs(args) => {
            command::jobs::run(&setup.paths, &environment, args.command, &mut out)?;
            finish(out)
        }
        Command::Trust(args) => {
            command::trust::run(&setup, &environment, args.command.as_ref(), &mut out)?;
            finish(out)
        }
        Command::Rules(command) => {
            let code = command::rules::run(&setup, &environment, command, &mut out)?;
            finish(out).map(|_| code)
        }
        Command::Doctor => {
            let healthy = command::doctor::run(&setup, &environment, log_problem, &mut out)?;
            finish(out)?;
            Ok(if healthy {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        Command::Auth(command) => {
            command::auth::run(&setup, &environment, &command, &mut out)?;
            finish(out)
        }
        Command::Config(command) => {
            command::config::run(&setup, &environment, &command, &mut out)?;
            finish(out)
        }
    }
}

/// Whether a command works the same whatever the file says: what is there of sessions must
/// be within reach while the file is broken.
fn needs_no_config(command: &Command) -> bool {
    matches!(
        command,
        Command::Sessions(_) | Command::Inbox(_) | Command::Jobs(_) | Command::Demo(_)
    )
}

fn finish(mut out: Output) -> anyhow::Result<ExitCode> {
    std::io::Write::flush(&mut out)?;
    Ok(ExitCode::SUCCESS)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

/// An error with its causes, each said once: many repeat the cause in their own words.
pub(crate) fn words(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !said
            .iter()
            .any(|known| known.contains(&text) || text.contains(known))
        {
            said.push(text);
        }
    }
    said.join(": ")
}

/// The one line on stderr that ends a failed command.
pub(crate) fn complain(text: &str) {
    // There is nobody else to tell when nobody reads it.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let cause = std::io::Error::other("the disk is full");
        let repeated = anyhow::Error::new(cause).context("not written: the disk is full");
        assert_eq!(words(&repeated), "not written: the disk is full");
        let plain = anyhow::anyhow!("the disk is full").context("`a` was not written");
        assert_eq!(words(&plain), "`a` was not written: the disk is full");
        let wrapped = anyhow::anyhow!("refused: no model (code 1)").context("no model");
        assert_eq!(words(&wrapped), "no model");
    }
}
