//! Diagnostics: to stderr or a file, never to standard output, which belongs to the
//! protocol. At the default level they hold no prompts, file contents or secrets.

use std::fs::OpenOptions;
use std::sync::Mutex;

use anyhow::Context as _;
use tracing::level_filters::LevelFilter;

use crate::config::LogConfig;

/// Starts diagnostics for this process.
#[expect(
    clippy::disallowed_methods,
    reason = "the diagnostics' own file, which the operator named"
)]
pub(crate) fn start(config: &LogConfig, verbose: u8) -> anyhow::Result<()> {
    let configured = match config.level.as_deref() {
        None => LevelFilter::WARN,
        Some(level) => level.parse().map_err(|_| {
            anyhow::anyhow!("`log.level` is `{level}`; use error, warn, info, debug or trace")
        })?,
    };
    let level = match verbose {
        0 => configured,
        1 => configured.max(LevelFilter::DEBUG),
        _ => LevelFilter::TRACE,
    };
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false);
    match &config.file {
        Some(path) => {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| format!("`log.file` {} could not be opened", path.display()))?;
            builder.with_writer(Mutex::new(file)).init();
        }
        None => builder.with_writer(std::io::stderr).init(),
    }
    Ok(())
}
