//! `terret acp`: the agent on stdin and stdout.
//!
//! Nothing that `initialize` does not need comes before it: no look at the disk beyond
//! the configuration file, no TLS, no database. The end of the editor's pipe, and the
//! signals that ask a program to end, stop what runs and leave open turns open.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use terret_engine::Engine;
use terret_faces::acp::{FaceSettings, serve};
use terret_faces::control::ControlServer;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::paths::Environment;
use crate::wiring::{Setup, VERSION};
use crate::{reload, runtime, stdio};

/// What stops may take once the editor is gone; after it the process ends all the same.
const LAST_WORDS: Duration = Duration::from_millis(1800);

/// Serves the editor until it is gone.
pub(crate) fn run(
    setup: Setup,
    environment: impl Environment + 'static,
) -> anyhow::Result<ExitCode> {
    let runtime = runtime::start()?;
    // As a task of its own it runs where the input is read, and no message wakes this thread.
    let served = runtime.block_on(async { tokio::spawn(serve_editor(setup, environment)).await? });
    // A read of a terminal or a file cannot be taken back; it must not hold the end.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served
}

async fn serve_editor(
    setup: Setup,
    environment: impl Environment + 'static,
) -> anyhow::Result<ExitCode> {
    let engine = Engine::new(setup.engine_parts(&environment)?);
    let face = FaceSettings {
        editor_terminal: setup.config.bash.editor_terminal.unwrap_or_default(),
        ..face_settings()
    };
    let (input, output) = stdio::open().context("standard input and output could not be opened")?;
    let mut beside = JoinSet::new();
    let control = ControlServer::start(engine.clone(), &setup.paths.runtime, VERSION)
        .inspect_err(|error| tracing::warn!(%error, "no control socket: `terret inbox` cannot reach this engine"))
        .ok();
    let stamp = setup.stamp;
    beside.spawn(reload::watch(engine.clone(), setup, environment, stamp));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        ended = serve(engine.clone(), face, input, output) => {
            tracing::info!(?ended, "the editor is gone");
        }
        gone = stdio::reader_is_gone() => tracing::info!(?gone, "nobody reads the answers any more"),
        _ = terminate.recv() => tracing::info!("asked to end"),
        _ = hang_up.recv() => tracing::info!("the terminal hung up"),
        _ = interrupt.recv() => tracing::info!("interrupted"),
    }
    if tokio::time::timeout(LAST_WORDS, engine.shutdown())
        .await
        .is_err()
    {
        tracing::error!("what ran did not stop in time");
    }
    if let Some(control) = control {
        control.stop().await;
    }
    beside.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

/// What the face says of this program.
pub(crate) fn face_settings() -> FaceSettings {
    FaceSettings {
        version: VERSION.to_owned(),
        key_hint:
            "Set ANTHROPIC_API_KEY or OPENAI_API_KEY in the environment that starts your editor, \
                   or name a model in config.toml (`terret config path` says where it is)."
                .to_owned(),
        sign_in_arguments: None,
        editor_terminal: false,
    }
}
