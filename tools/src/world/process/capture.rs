//! What is kept of a command's output: both ends for the model, counted exactly, and the
//! whole of it in a private file when the ends are not all. Memory is bounded whatever
//! a command writes (check 141, 153).

#![expect(
    clippy::disallowed_methods,
    reason = "the private file of a command's output"
)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::world::process::clean::Cleaner;

/// Bounds of one capture.
#[derive(Debug, Clone)]
pub struct CaptureLimits {
    /// Bytes of cleaned text kept for the model, half from each end.
    pub shown: usize,
    /// Bytes of raw output kept in the file; what follows is only counted.
    pub file: u64,
    /// Where the file is made when the text is longer than `shown`; none is made where
    /// this is empty.
    pub path: PathBuf,
}

/// The output of one command, as far as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Cleaned text, with a line in the place of what was left out.
    pub text: String,
    /// Bytes of cleaned text that are not in `text`.
    pub left_out: u64,
    /// Bytes of cleaned text in all.
    pub total: u64,
    /// The raw output, when something was left out.
    pub file: Option<KeptFile>,
}

/// The file with the raw output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    pub path: PathBuf,
    /// Bytes that went past the file's bound.
    pub dropped: u64,
}

/// Collects output as it comes.
pub struct Capture {
    limits: CaptureLimits,
    cleaner: Cleaner,
    ends: Ends,
    raw: Raw,
    fresh: String,
}

impl Capture {
    /// An empty capture; nothing is created on disk yet.
    pub fn new(limits: CaptureLimits) -> Self {
        let ends = Ends::new(limits.shown);
        let raw = if limits.path.as_os_str().is_empty() {
            Raw::Lost
        } else {
            Raw::Memory(Vec::new())
        };
        Self {
            limits,
            cleaner: Cleaner::new(),
            ends,
            raw,
            fresh: String::new(),
        }
    }

    /// Takes the next bytes and gives the cleaned text that they completed.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.raw.push(bytes, &self.limits);
        self.fresh.clear();
        self.cleaner.push(bytes, &mut self.fresh);
        self.ends.push(&self.fresh);
        &self.fresh
    }

    /// The line that has not ended yet.
    pub fn unfinished(&self) -> &str {
        self.cleaner.unfinished()
    }

    /// What is there now; more may come.
    pub fn so_far(&self) -> Captured {
        let mut ends = self.ends.clone();
        ends.push(self.cleaner.unfinished());
        self.captured(&ends)
    }

    /// Ends the capture.
    pub fn finish(&mut self) -> Captured {
        self.fresh.clear();
        std::mem::take(&mut self.cleaner).finish(&mut self.fresh);
        self.ends.push(&self.fresh);
        self.captured(&self.ends)
    }

    /// Bytes held in memory, for the proof that they are bounded.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        let raw = match &self.raw {
            Raw::Memory(bytes) => bytes.capacity(),
            Raw::File { .. } | Raw::Lost => 0,
        };
        self.ends.head.capacity() + self.ends.tail.capacity() + self.fresh.capacity() + raw
    }

    fn captured(&self, ends: &Ends) -> Captured {
        let (text, left_out) = ends.render();
        let file = match &self.raw {
            Raw::File { written, total, .. } if left_out > 0 => Some(KeptFile {
                path: self.limits.path.clone(),
                dropped: total - written,
            }),
            _ => None,
        };
        Captured {
            text,
            left_out,
            total: ends.total,
            file,
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Escape sequences alone can make the raw output long and the text short.
        if let Raw::File { .. } = self.raw
            && self.ends.render().1 == 0
        {
            let _ = std::fs::remove_file(&self.limits.path);
        }
    }
}

/// Both ends of a text.
#[derive(Clone)]
struct Ends {
    half: usize,
    head: String,
    head_full: bool,
    tail: VecDeque<u8>,
    total: u64,
}

impl Ends {
    fn new(shown: usize) -> Self {
        Self {
            half: shown / 2,
            head: String::new(),
            head_full: false,
            tail: VecDeque::new(),
            total: 0,
        }
    }

    fn push(&mut self, text: &str) {
        self.total += text.len() as u64;
        let mut rest = text;
        if !self.head_full {
            let room = self.half.saturating_sub(self.head.len());
            let (fits, over) = rest.split_at(rest.floor_char_boundary(room));
            self.head.push_str(fits);
            self.head_full = !over.is_empty();
            rest = over;
        }
        let keep = rest.len().saturating_sub(self.half);
        let rest = rest.as_bytes().get(keep..).unwrap_or_default();
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over.min(self.tail.len()));
        self.tail.extend(rest);
    }

    fn render(&self) -> (String, u64) {
        let mut tail: Vec<u8> = self.tail.iter().copied().collect();
        let kept = (self.head.len() + tail.len()) as u64;
        if kept == self.total {
            return (self.head.clone() + &String::from_utf8_lossy(&tail), 0);
        }
        // A character that was cut in two is left out as a whole.
        let cut = tail.iter().take_while(|byte| **byte & 0xc0 == 0x80).count();
        tail.drain(..cut);
        let left_out = self.total - (self.head.len() + tail.len()) as u64;
        let mut text = self.head.clone();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[... {left_out} bytes left out here ...]\n"));
        text.push_str(&String::from_utf8_lossy(&tail));
        (text, left_out)
    }
}

/// The raw output: in memory until it is clear that a file is needed.
enum Raw {
    Memory(Vec<u8>),
    File {
        file: File,
        written: u64,
        total: u64,
    },
    /// No file is wanted, or it could not be made or written.
    Lost,
}

impl Raw {
    fn push(&mut self, bytes: &[u8], limits: &CaptureLimits) {
        if let Self::Memory(held) = self {
            if held.len() + bytes.len() <= limits.shown {
                held.extend_from_slice(bytes);
                return;
            }
            let held = std::mem::take(held);
            *self = match private_file(&limits.path) {
                Ok(file) => Self::File {
                    file,
                    written: 0,
                    total: 0,
                },
                Err(error) => {
                    tracing::warn!(%error, "the whole output of a command cannot be kept");
                    Self::Lost
                }
            };
            self.write(&held, limits);
        }
        self.write(bytes, limits);
    }

    fn write(&mut self, bytes: &[u8], limits: &CaptureLimits) {
        let Self::File {
            file,
            written,
            total,
        } = self
        else {
            return;
        };
        *total += bytes.len() as u64;
        let room = usize::try_from(limits.file - *written).unwrap_or(usize::MAX);
        let fits = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        match file.write_all(fits) {
            Ok(()) => *written += fits.len() as u64,
            Err(error) => {
                tracing::warn!(%error, "the whole output of a command cannot be kept");
                let _ = std::fs::remove_file(&limits.path);
                *self = Self::Lost;
            }
        }
    }
}

fn private_file(path: &Path) -> std::io::Result<File> {
    if path.as_os_str().is_empty() {
        return Err(std::io::Error::other("there is no folder for it"));
    }
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn capture(folder: &Path, shown: usize, file: u64) -> Capture {
        Capture::new(CaptureLimits {
            shown,
            file,
            path: folder.join("output"),
        })
    }

    #[test]
    fn check_141_both_ends_are_kept_and_the_middle_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = capture(folder.path(), 30_000, 1 << 20);
        let whole = "0123456789abcde\n".repeat(4_000);
        capture.push(whole.as_bytes());
        let captured = capture.finish();
        assert_eq!((captured.total, captured.left_out), (64_000, 34_000));
        assert!(captured.text.starts_with(&whole[..15_000]));
        assert!(captured.text.ends_with(&whole[whole.len() - 15_000..]));
        assert!(
            captured
                .text
                .contains("[... 34000 bytes left out here ...]")
        );
        let path = captured.file.unwrap().path;
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn check_141_the_cut_is_on_character_boundaries() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = capture(folder.path(), 10, 1 << 20);
        let whole = "€".repeat(10) + "\n";
        for byte in whole.as_bytes() {
            capture.push(&[*byte]);
        }
        let captured = capture.finish();
        assert_eq!(captured.text, "€\n[... 24 bytes left out here ...]\n€\n");
        assert_eq!(captured.left_out, 24);
    }

    #[test]
    fn a_text_that_just_fits_is_whole_and_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = capture(folder.path(), 10, 1 << 20);
        capture.push(b"12345");
        capture.push(b"67890");
        assert_eq!(capture.finish().text, "1234567890");
        drop(capture);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_not_needed_goes() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = capture(folder.path(), 10, 1 << 20);
        capture.push("\u{1b}[0m".repeat(50).as_bytes());
        assert_eq!(capture.finish().file, None);
        drop(capture);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn memory_and_file_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut capture = capture(folder.path(), 30_000, 1 << 20);
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..200 {
            capture.push(&piece);
        }
        assert!(capture.held() < 400 * 1024, "{} bytes held", capture.held());
        let captured = capture.finish();
        assert_eq!(captured.total, 200 * 64 * 1024);
        let file = captured.file.unwrap();
        assert_eq!(file.path.metadata().unwrap().len(), 1 << 20);
        assert_eq!(file.dropped, 200 * 64 * 1024 - (1 << 20));
    }
}
