//! Diagnostics: to stderr or a file, never to standard output, which belongs to the
//! protocol. What cannot be written is let go: an editor that closes our stderr, or a full
//! disk behind it, ends nothing. At the default level they hold no prompts and no file contents, and secrets at
//! none: each line passes the scrubber.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use terret_engine::room::log::Scrubber;
use tracing::level_filters::LevelFilter;

use crate::config::LogConfig;

/// Starts diagnostics for this process; `config_file` is where the settings came from, and
/// what `scrubber` learns later counts, too.
///
/// # Errors
/// When a setting cannot be used; nothing was started then.
#[expect(
    clippy::disallowed_methods,
    reason = "the diagnostics' own file, which the operator named"
)]
pub(crate) fn start(
    config: &LogConfig,
    config_file: &Path,
    verbose: u8,
    scrubber: &Scrubber,
) -> anyhow::Result<()> {
    let configured = config.level(config_file)?;
    let level = match verbose {
        0 => configured,
        1 => configured.max(LevelFilter::DEBUG),
        _ => LevelFilter::TRACE,
    };
    let scrubber = scrubber.clone();
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        // It would be said on stderr, and a panic where that is full or closed.
        .log_internal_errors(false)
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
            let file = Arc::new(file);
            let lines = move || Scrubbed {
                to: Arc::clone(&file),
                scrubber: scrubber.clone(),
            };
            builder.with_writer(lines).init();
        }
        None => {
            let lines = move || Scrubbed {
                to: std::io::stderr(),
                scrubber: scrubber.clone(),
            };
            builder.with_writer(lines).init();
        }
    }
    Ok(())
}

/// Scrubs what is written, which is a whole event each time.
struct Scrubbed<W> {
    to: W,
    scrubber: Scrubber,
}

impl<W: Write> Write for Scrubbed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        self.to.write_all(self.scrubber.text(&text).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}
