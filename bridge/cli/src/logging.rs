//! Diagnostics: to stderr or a file, never to standard output, which belongs to the
//! protocol. At the default level they hold no prompts, file contents or secrets.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::Mutex;

use anyhow::Context as _;
use tracing::level_filters::LevelFilter;

use crate::config::LogConfig;

/// Starts diagnostics for this process; `config_file` is where the settings came from.
///
/// # Errors
/// When a setting cannot be used; nothing was started then.
#[expect(
    clippy::disallowed_methods,
    reason = "the diagnostics' own file, which the operator named"
)]
pub(crate) fn start(config: &LogConfig, config_file: &Path, verbose: u8) -> anyhow::Result<()> {
    let configured = config.level(config_file)?;
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
            let mut options = OpenOptions::new();
            // At the levels that a person may choose it holds what sessions hold.
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let file = options
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| {
                    format!(
                        "`log.file` in `{}` is `{}`, which could not be opened",
                        config_file.display(),
                        path.display()
                    )
                })?;
            builder.with_writer(Mutex::new(file)).init();
        }
        None => builder.with_writer(std::io::stderr).init(),
    }
    Ok(())
}
