//! Writes to the terminal in a thread of its own: a pager that does not read must hold up
//! the text and not the runtime.

use std::io::{self, Write};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Pieces of text that wait to be written; more make the sender wait.
const WAITING: usize = 256;

/// Owns the thread.
pub(super) struct Printer {
    sender: mpsc::Sender<String>,
    thread: JoinHandle<io::Result<()>>,
}

/// Prints. Cheap to clone.
#[derive(Clone)]
pub(super) struct PrinterHandle(mpsc::Sender<String>);

impl Printer {
    pub(super) fn start(mut output: impl Write + Send + 'static) -> Self {
        let (sender, mut texts) = mpsc::channel::<String>(WAITING);
        let thread = tokio::task::spawn_blocking(move || {
            while let Some(text) = texts.blocking_recv() {
                output.write_all(text.as_bytes())?;
                output.flush()?;
            }
            Ok(())
        });
        Self { sender, thread }
    }

    pub(super) fn handle(&self) -> PrinterHandle {
        PrinterHandle(self.sender.clone())
    }

    /// Waits until everything is written. All handles must be gone.
    pub(super) async fn finish(self) -> io::Result<()> {
        drop(self.sender);
        self.thread.await.map_err(io::Error::other)?
    }
}

impl PrinterHandle {
    /// Prints, waiting for room. A closed output shows when the printer is finished.
    pub(super) async fn print(&self, text: String) {
        if !text.is_empty() {
            let _closed = self.0.send(text).await;
        }
    }
}
