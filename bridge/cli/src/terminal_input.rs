//! A person's answers from standard input, a line at a time.

use std::io::BufRead as _;

use async_trait::async_trait;
use terret_faces::terminal::Input;

/// Lines of standard input. The read itself cannot be cancelled; the command ends
/// without waiting for it.
pub(crate) struct StdinLines;

#[async_trait]
impl Input for StdinLines {
    async fn line(&self) -> Option<String> {
        tokio::task::spawn_blocking(|| {
            let mut line = String::new();
            match std::io::stdin().lock().read_line(&mut line) {
                Ok(1..) => Some(line),
                _ => None,
            }
        })
        .await
        .ok()
        .flatten()
    }
}
