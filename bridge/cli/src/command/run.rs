//! `terret run`: one prompt without an editor.

use std::io::{self, IsTerminal as _, Read as _, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use terret_engine::{Engine, Unattended};
use terret_faces::control::ControlServer;
use terret_faces::terminal::{self, Approvals, Finished, Form, TerminalOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::{PermissionPolicy, RunArgs};
use crate::command::acp::face_settings;
use crate::output::colour;
use crate::paths::Environment;
use crate::terminal_input::StdinLines;
use crate::wiring::{Setup, VERSION};
use crate::{runtime, stdio};

/// Runs one prompt and prints its answer. The exit code is 0 only for an ordinary end.
#[expect(
    clippy::disallowed_methods,
    reason = "typed in a shell, it is about the shell's folder"
)]
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
    setup.allow_bypass = args.allow_bypass;
    setup.unattended = match args.permission_policy {
        PermissionPolicy::Deny => Unattended::Deny,
        PermissionPolicy::Fail => Unattended::Fail,
        PermissionPolicy::Allow => Unattended::Allow,
    };
    if let Some(mode) = &args.mode {
        setup.mode = Some(mode.clone());
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
        colour: colour(std::io::stdout().is_terminal(), environment),
    };
    Ok(play(setup, environment, options)?.exit_code())
}

/// How a terminal session ended.
pub(crate) struct Played {
    finished: Finished,
    /// The signal that ended it.
    signal: Option<u8>,
}

impl Played {
    /// The turn came to its ordinary end.
    pub(crate) fn went_well(&self) -> bool {
        self.finished.stop_reason == "end_turn"
    }

    /// A question found nobody at the keyboard.
    pub(crate) fn unanswered(&self) -> bool {
        self.finished.unanswered
    }

    /// As shells have it: 128 and the signal for what a signal ended.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match (self.finished.stop_reason.as_str(), self.signal) {
            ("end_turn", _) => ExitCode::SUCCESS,
            (_, Some(signal)) => ExitCode::from(128 + signal),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Runs a terminal session over an engine of its own. Ctrl-C, the other signals that ask
/// to end, and the end of who reads cancel the turn; a second signal ends the command.
pub(crate) fn play(
    setup: &Setup,
    environment: &dyn Environment,
    options: TerminalOptions,
) -> anyhow::Result<Played> {
    let parts = setup.engine_parts(environment)?;
    let runtime = runtime::start()?;
    let played = runtime.block_on(async {
        let engine = Engine::new(parts);
        engine.ready()?;
        let control = ControlServer::start(engine.clone(), &setup.paths.runtime, VERSION).ok();
        let stop = CancellationToken::new();
        let came = Arc::new(AtomicU8::new(0));
        let watch = tokio::spawn(watch(stop.clone(), Arc::clone(&came)));
        let line_end = LineEnd::new(std::io::stdout());
        let at_line_start = line_end.at_start();
        let input = Arc::new(StdinLines);
        let played = terminal::run(
            engine.clone(),
            face_settings(),
            options,
            line_end,
            input,
            stop,
        )
        .await;
        watch.abort();
        engine.shutdown().await;
        if let Some(control) = control {
            control.stop().await;
        }
        if played.is_err() && !at_line_start.load(Ordering::Relaxed) {
            // What is said of the error begins a line of its own.
            std::io::stdout().write_all(b"\n")?;
        }
        anyhow::Ok(Played {
            finished: played?,
            signal: Some(came.load(Ordering::Relaxed)).filter(|signal| *signal > 0),
        })
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    played
}

/// Cancels the turn at the first signal, and ends the process at the second.
#[expect(
    clippy::disallowed_methods,
    reason = "a second signal ends the process at once"
)]
async fn watch(stop: CancellationToken, came: Arc<AtomicU8>) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        let number = tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
            _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
            _ = hang_up.recv() => SignalKind::hangup().as_raw_value(),
            Ok(()) = stdio::reader_is_gone(), if !stop.is_cancelled() => {
                stop.cancel();
                continue;
            }
        };
        let number = u8::try_from(number)?;
        if came.swap(number, Ordering::Relaxed) > 0 {
            std::process::exit(128 + i32::from(number));
        }
        stop.cancel();
    }
}

/// Standard output that knows whether a line is begun.
struct LineEnd<W> {
    output: W,
    at_start: Arc<AtomicBool>,
}

impl<W> LineEnd<W> {
    fn new(output: W) -> Self {
        Self {
            output,
            at_start: Arc::new(AtomicBool::new(true)),
        }
    }

    fn at_start(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.at_start)
    }
}

impl<W: Write> Write for LineEnd<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.output.write(bytes)?;
        if let Some(last) = bytes.get(..written).and_then(<[u8]>::last) {
            self.at_start.store(*last == b'\n', Ordering::Relaxed);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
