//! Live output for the editor: at most so often, so much at once and so much in all, so
//! that a loud command costs the log and the editor next to nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Takes pieces of live output.
pub type LiveSink = Arc<dyn Fn(&str) + Send + Sync>;

/// The least time between two pieces.
pub const INTERVAL: Duration = Duration::from_millis(100);
/// Bytes in one piece; the newest are kept.
pub const PIECE: usize = 8 * 1024;
/// Bytes in all.
pub const WHOLE: usize = 64 * 1024;

const NOTE: &str = "\n[live output ends here; the result has both ends]\n";

/// The throttle of one command.
pub struct Live {
    sink: LiveSink,
    pending: String,
    skipped: u64,
    sent: usize,
    last: Option<Instant>,
    /// What was shown of the line that has not ended yet.
    shown: String,
    ended: bool,
}

impl Live {
    /// A throttle before its first piece, which goes out at once.
    pub fn new(sink: LiveSink) -> Self {
        Self {
            sink,
            pending: String::new(),
            skipped: 0,
            sent: 0,
            last: None,
            shown: String::new(),
            ended: false,
        }
    }

    /// Takes whole lines; the first continues the unfinished line that was shown.
    pub fn push(&mut self, text: &str) {
        if self.ended || text.is_empty() {
            return;
        }
        let shown = std::mem::take(&mut self.shown);
        let text = text.strip_prefix(shown.as_str()).unwrap_or_else(|| {
            // The line was overwritten after its beginning was shown.
            self.pending.push('\n');
            text
        });
        self.pending.push_str(
            text.get(text.ceil_char_boundary(text.len().saturating_sub(PIECE))..)
                .unwrap_or_default(),
        );
        self.skipped += text.len().saturating_sub(PIECE) as u64;
        if self.pending.len() > PIECE {
            let cut = self.pending.ceil_char_boundary(self.pending.len() - PIECE);
            self.pending.drain(..cut);
            self.skipped += cut as u64;
        }
    }

    /// When the next [`Live::flush`] has something to do.
    pub fn due(&self, unfinished: &str, now: Instant) -> Option<Instant> {
        let more = unfinished.len() > self.shown.len() && unfinished.starts_with(&self.shown);
        if self.ended || (self.pending.is_empty() && !more) {
            return None;
        }
        Some(self.last.map_or(now, |last| last + INTERVAL))
    }

    /// Sends what is pending, with the beginning of the line that has not ended yet.
    pub fn flush(&mut self, unfinished: &str, now: Instant) {
        if self.ended {
            return;
        }
        if let Some(more) = unfinished.strip_prefix(self.shown.as_str()) {
            self.pending.push_str(more);
            self.shown.push_str(more);
        }
        if self.pending.is_empty() {
            return;
        }
        self.last = Some(now);
        let mut piece = String::new();
        if self.skipped > 0 {
            piece = format!("[... {} bytes not shown live ...]\n", self.skipped);
            self.skipped = 0;
        }
        piece.push_str(&self.pending);
        self.pending.clear();
        let room = WHOLE.saturating_sub(self.sent);
        if piece.len() > room {
            piece.truncate(piece.floor_char_boundary(room));
            piece.push_str(NOTE);
            self.ended = true;
        }
        self.sent += piece.len();
        (self.sink)(&piece);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

    use std::sync::Mutex;

    use super::*;

    fn live() -> (Live, Arc<Mutex<Vec<String>>>) {
        let pieces = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&pieces);
        (
            Live::new(Arc::new(move |text| {
                kept.lock().unwrap().push(text.to_owned())
            })),
            pieces,
        )
    }

    #[test]
    fn an_unfinished_line_is_shown_once() {
        let (mut live, pieces) = live();
        let now = Instant::now();
        live.push("one\n");
        live.flush("tw", now);
        assert!(live.due("tw", now).is_none());
        live.push("two\n");
        live.flush("", now + INTERVAL);
        assert_eq!(*pieces.lock().unwrap(), ["one\ntw", "o\n"]);
    }

    #[test]
    fn pieces_and_the_whole_are_bounded() {
        let (mut live, pieces) = live();
        let mut now = Instant::now();
        for _ in 0..100 {
            live.push(&"€".repeat(10_000));
            live.flush("", now);
            assert!(live.due("", now).is_none());
            now += INTERVAL;
        }
        let pieces = pieces.lock().unwrap();
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE + 100));
        assert!(pieces.iter().map(String::len).sum::<usize>() <= WHOLE + 200);
        assert!(pieces.first().unwrap().starts_with("[... 218"));
        assert!(pieces.last().unwrap().ends_with(NOTE));
    }
}
