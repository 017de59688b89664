//! `terret run`: one prompt without an editor.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use terret_engine::Engine;
use terret_faces::control::ControlServer;
use terret_faces::terminal::{self, Approvals, Finished, Form, TerminalOptions};
use tokio_util::sync::CancellationToken;

use crate::args::RunArgs;
use crate::command::acp::face_settings;
use crate::paths::Environment;
use crate::runtime;
use crate::terminal_input::StdinLines;
use crate::wiring::{Setup, VERSION};

/// Runs one prompt and prints its answer. The exit code is 0 only for an ordinary end.
pub(crate) fn run(
    setup: &mut Setup,
    environment: &dyn Environment,
    args: &RunArgs,
) -> anyhow::Result<ExitCode> {
    let prompt = match args.prompt.as_str() {
        "-" => {
            let mut text = String::new();
            std::io::stdin()
                .read_to_string(&mut text)
                .context("the prompt could not be read")?;
            text
        }
        text => text.to_owned(),
    };
    if prompt.trim().is_empty() {
        bail!("the prompt is empty; say what is to be done");
    }
    if args.ask && args.prompt == "-" {
        bail!("`--ask` reads answers from standard input, so the prompt cannot come from there");
    }
    if let Some(mode) = &args.mode {
        setup.config.mode = Some(mode.clone());
    }
    let cwd = match &args.cwd {
        Some(cwd) => std::path::absolute(cwd)?,
        None => std::env::current_dir()?,
    };
    let options = TerminalOptions {
        cwd,
        prompts: vec![prompt],
        approvals: if args.ask {
            Approvals::Ask
        } else {
            Approvals::Nobody
        },
        form: if args.json { Form::Json } else { Form::Text },
        colour: std::io::stdout().is_terminal(),
    };
    let finished = play(setup, environment, options)?;
    Ok(match finished.stop_reason.as_str() {
        "end_turn" => ExitCode::SUCCESS,
        "cancelled" => ExitCode::from(130),
        _ => ExitCode::FAILURE,
    })
}

/// Runs a terminal session over an engine of its own. Ctrl-C cancels the turn; a second
/// one ends the command.
pub(crate) fn play(
    setup: &Setup,
    environment: &dyn Environment,
    options: TerminalOptions,
) -> anyhow::Result<Finished> {
    let parts = setup.engine_parts(environment)?;
    let runtime = runtime::start()?;
    let finished = runtime.block_on(async {
        let engine = Engine::new(parts);
        engine.ready()?;
        let control = ControlServer::start(engine.clone(), &setup.paths.runtime, VERSION).ok();
        let stop = CancellationToken::new();
        let interrupted = stop.clone();
        let watch = tokio::spawn(async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                interrupted.cancel();
            }
            if tokio::signal::ctrl_c().await.is_ok() {
                std::process::exit(130);
            }
        });
        let input = Arc::new(StdinLines);
        let played = terminal::run(
            engine.clone(),
            face_settings(),
            options,
            std::io::stdout(),
            input,
            stop,
        )
        .await;
        watch.abort();
        engine.shutdown().await;
        if let Some(control) = control {
            control.stop().await;
        }
        anyhow::Ok(played?)
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    finished
}
