//! A window of numbered lines from a file of any size, in bounded memory (check 136).
//!
//! The file is read in pieces. Only the lines asked for are kept, and of each line only
//! as much as is shown.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::files::{Content, FileError, MAX_WHOLE};
use super::text::{self, Document, NotText};

/// One piece of a file.
const PIECE: usize = 64 * 1024;
/// The largest image that is given to a model, in bytes: what providers take after base64.
const MAX_IMAGE: u64 = 3_932_160;
/// How many cut lines are named one by one.
const NAMED_CUTS: usize = 10;

/// Which lines, and how much of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowRequest {
    /// Counts from 1.
    pub first: u64,
    pub lines: u64,
    /// Characters kept of a line.
    pub line_characters: usize,
    /// Bytes kept in all.
    pub bytes: usize,
}

/// Numbered lines, and what is not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Lines as `     1<tab>text`, without a final newline.
    pub text: String,
    /// The last line shown; `first - 1` when none is.
    pub last: u64,
    /// Lines that were cut, with the characters left out.
    pub cut: Vec<(u64, u64)>,
    pub end: End,
    /// SHA-256 of the whole file, where it was read to the end.
    pub hash: Option<String>,
}

/// How a window ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The file was read to its end.
    Known { lines: u64 },
    /// More follows; how many lines was not counted. The file's size in bytes.
    Unknown { size: u64 },
}

impl Window {
    /// What is left out and how to get it, for the ledger.
    pub fn remarks(&self, request: &WindowRequest) -> Vec<String> {
        let mut remarks = Vec::new();
        for (line, left) in self.cut.iter().take(NAMED_CUTS) {
            remarks.push(format!(
                "line {line} is cut: {left} more characters; get them with a command such as `sed -n {line}p`"
            ));
        }
        if self.cut.len() > NAMED_CUTS {
            remarks.push(format!(
                "{} more lines are cut in the same way",
                self.cut.len() - NAMED_CUTS
            ));
        }
        let next = self.last + 1;
        match self.end {
            End::Known { lines: 0 } => remarks.push("the file is empty".to_owned()),
            End::Known { lines } if self.last < lines => remarks.push(format!(
                "lines {} to {} of {lines}; to go on, Read with offset {next}",
                request.first, self.last
            )),
            End::Known { .. } => {}
            End::Unknown { size } => remarks.push(format!(
                "lines {} to {} of a file of {size} bytes, whose lines were not counted; to go on, Read with offset {next}",
                request.first, self.last
            )),
        }
        remarks
    }
}

/// The window of a text that is in memory.
pub fn of_document(document: &Document, request: &WindowRequest) -> Window {
    let mut collector = Collector::new(*request);
    collector.feed(document.view().as_bytes());
    let mut window = collector.finish(true, 0);
    window.hash = Some(text::hash(document.bytes()));
    window
}

/// The window of an open file, or what is said in its place.
pub(super) fn of_file(
    mut file: File,
    size: u64,
    path: &Path,
    request: &WindowRequest,
    cancel: &CancellationToken,
    mut remarks: Vec<String>,
) -> Result<Content, FileError> {
    let system = |source: io::Error| FileError::System {
        path: path.to_owned(),
        source,
    };
    let mut head = vec![0; PIECE];
    let length = fill(&mut file, &mut head).map_err(system)?;
    head.truncate(length);
    if let Some(mime_type) = image_type(&head) {
        return image(file, head, size, mime_type).map_err(system);
    }
    if text::looks_binary(&head) || head.starts_with(b"%PDF-") {
        return Ok(Content::Binary {
            description: describe(&head, size),
            hash: None,
        });
    }
    match stream(&mut file, &head, size, request, cancel).map_err(system)? {
        Some(window) => Ok(Content::Text { window, remarks }),
        None if size <= MAX_WHOLE => {
            let mut bytes = head;
            // The stream stopped somewhere; begin anew behind the head.
            io::Seek::seek(&mut file, io::SeekFrom::Start(bytes.len() as u64)).map_err(system)?;
            file.take(MAX_WHOLE)
                .read_to_end(&mut bytes)
                .map_err(system)?;
            match Document::decode(bytes) {
                Ok(document) => {
                    remarks.push(encoding_remark(&document));
                    Ok(Content::Text {
                        window: of_document(&document, request),
                        remarks,
                    })
                }
                Err(NotText::Binary) => Ok(Content::Binary {
                    description: describe(&[], size),
                    hash: None,
                }),
                Err(reason) => Err(FileError::NotText {
                    path: path.to_owned(),
                    reason,
                }),
            }
        }
        None => Ok(Content::Binary {
            description: describe(&[], size),
            hash: None,
        }),
    }
}

/// Whether a file's head speaks for text.
pub(super) fn may_be_text(file: File) -> bool {
    let mut head = Vec::new();
    file.take(8 * 1024).read_to_end(&mut head).is_ok()
        && image_type(&head).is_none()
        && !head.starts_with(b"%PDF-")
        && !text::looks_binary(&head)
}

fn encoding_remark(document: &Document) -> String {
    match document.encoding() {
        text::Encoding::Utf8 { .. } => "the file is UTF-8".to_owned(),
        text::Encoding::Utf16 { .. } => "the file is UTF-16; edits keep it so".to_owned(),
        text::Encoding::EightBit(page) => format!("the file is {}; edits keep it so", page.name()),
    }
}

/// Reads UTF-8; none when it turns out to be something else.
fn stream(
    file: &mut File,
    head: &[u8],
    size: u64,
    request: &WindowRequest,
    cancel: &CancellationToken,
) -> io::Result<Option<Window>> {
    if text::has_utf16_mark(head) {
        return Ok(None);
    }
    let mut collector = Collector::new(*request);
    let mut validity = Validity::default();
    let mut digest = (size <= MAX_WHOLE).then(Sha256::new);
    let mut piece = head.to_vec();
    let mut first = true;
    loop {
        if let Some(digest) = &mut digest {
            digest.update(&piece);
        }
        if !validity.feed(&piece) {
            return Ok(None);
        }
        let visible = if first {
            piece.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&piece)
        } else {
            &piece
        };
        first = false;
        collector.feed(visible);
        // Small files are read to the end: their hash is what a later edit is held against.
        if digest.is_none() && collector.is_full() {
            return Ok(Some(collector.finish(false, size)));
        }
        piece.resize(PIECE, 0);
        let length = fill(file, &mut piece)?;
        piece.truncate(length);
        if length == 0 {
            break;
        }
        if cancel.is_cancelled() {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "cancelled while reading",
            ));
        }
    }
    if !validity.is_complete() {
        return Ok(None);
    }
    let mut window = collector.finish(true, size);
    window.hash = digest.map(|digest| text::hex(&digest.finalize()));
    Ok(Some(window))
}

fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match file.read(rest) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Whether the bytes so far are UTF-8, across pieces.
#[derive(Default)]
struct Validity {
    carry: Vec<u8>,
}

impl Validity {
    fn feed(&mut self, piece: &[u8]) -> bool {
        let mut rest = piece;
        // A character cut by the piece's edge is at most four bytes.
        while !self.carry.is_empty() {
            let Some((byte, after)) = rest.split_first() else {
                return true;
            };
            self.carry.push(*byte);
            rest = after;
            match std::str::from_utf8(&self.carry) {
                Ok(_) => self.carry.clear(),
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }
        match std::str::from_utf8(rest) {
            Ok(_) => true,
            Err(error) if error.error_len().is_some() => false,
            Err(error) => {
                self.carry = rest.get(error.valid_up_to()..).unwrap_or_default().to_vec();
                true
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.carry.is_empty()
    }
}

/// Takes bytes and keeps the window's lines.
struct Collector {
    request: WindowRequest,
    text: String,
    /// The number of the line that comes.
    line: u64,
    /// The shown part of that line.
    kept: Vec<u8>,
    characters: u64,
    /// Characters of that line in all.
    begun: bool,
    last: u64,
    cut: Vec<(u64, u64)>,
    full: bool,
}

impl Collector {
    fn new(request: WindowRequest) -> Self {
        Self {
            request,
            text: String::new(),
            line: 1,
            kept: Vec::new(),
            characters: 0,
            begun: false,
            last: request.first.saturating_sub(1),
            cut: Vec::new(),
            full: false,
        }
    }

    /// Whether nothing that comes can be shown any more.
    fn is_full(&self) -> bool {
        self.full || self.line >= self.request.first.saturating_add(self.request.lines)
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match bytes.iter().position(|byte| *byte == b'\n') {
                Some(at) => {
                    self.extend(bytes.get(..at).unwrap_or_default());
                    self.end_line();
                    bytes = bytes.get(at + 1..).unwrap_or_default();
                }
                None => {
                    self.extend(bytes);
                    self.begun = true;
                    return;
                }
            }
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.line < self.request.first || self.is_full() {
            return;
        }
        // Four bytes a character at most; one more character tells a cut from an end.
        let room = (self.request.line_characters * 4 + 8).saturating_sub(self.kept.len());
        self.kept
            .extend_from_slice(bytes.get(..room).unwrap_or(bytes));
        self.characters += bytes.iter().filter(|byte| (**byte & 0xC0) != 0x80).count() as u64;
    }

    fn end_line(&mut self) {
        if self.line >= self.request.first && !self.is_full() {
            let carriage = self.kept.last() == Some(&b'\r')
                && self.characters
                    <= self
                        .kept
                        .iter()
                        .filter(|byte| (**byte & 0xC0) != 0x80)
                        .count() as u64;
            if carriage {
                self.kept.pop();
                self.characters -= 1;
            }
            let kept = String::from_utf8_lossy(&self.kept);
            let shown: String = kept.chars().take(self.request.line_characters).collect();
            let left = self.characters.saturating_sub(shown.chars().count() as u64);
            let numbered = format!("{:>6}\t{shown}", self.line);
            if self.text.len() + numbered.len() + 1 > self.request.bytes && !self.text.is_empty() {
                self.full = true;
            } else {
                if self.line > self.request.first {
                    self.text.push('\n');
                }
                self.text.push_str(&numbered);
                self.last = self.line;
                if left > 0 {
                    self.cut.push((self.line, left));
                }
            }
        }
        self.kept.clear();
        self.characters = 0;
        self.begun = false;
        self.line += 1;
    }

    fn finish(mut self, complete: bool, size: u64) -> Window {
        if complete && self.begun {
            self.end_line();
        }
        let end = if complete {
            End::Known {
                lines: self.line - 1,
            }
        } else {
            End::Unknown { size }
        };
        Window {
            text: self.text,
            last: self.last,
            cut: self.cut,
            end,
            hash: None,
        }
    }
}

fn image_type(head: &[u8]) -> Option<&'static str> {
    if head.starts_with(b"\x89PNG\r\n\x1a\n") {
        Some("image/png")
    } else if head.starts_with(b"\xFF\xD8\xFF") {
        Some("image/jpeg")
    } else if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") {
        Some("image/gif")
    } else if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        Some("image/webp")
    } else {
        None
    }
}

fn image(file: File, head: Vec<u8>, size: u64, mime_type: &'static str) -> io::Result<Content> {
    if size > MAX_IMAGE {
        let description = format!(
            "an image ({mime_type}) of {size} bytes, which is more than models take ({MAX_IMAGE})"
        );
        return Ok(Content::Binary {
            description,
            hash: None,
        });
    }
    let mut bytes = head;
    file.take(MAX_IMAGE).read_to_end(&mut bytes)?;
    let hash = text::hash(&bytes);
    Ok(Content::Image {
        mime_type,
        bytes,
        hash,
    })
}

/// What a binary file is, by its first bytes.
fn describe(head: &[u8], size: u64) -> String {
    const KINDS: &[(&[u8], &str)] = &[
        (b"%PDF-", "a PDF document"),
        (b"\x7FELF", "a program (ELF)"),
        (b"MZ", "a Windows program"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1F\x8B", "gzip data"),
        (b"\x28\xB5\x2F\xFD", "zstd data"),
        (b"\xFD7zXZ\x00", "xz data"),
        (b"BZh", "bzip2 data"),
        (b"SQLite format 3\x00", "an SQLite database"),
        (b"\xCA\xFE\xBA\xBE", "a Java class or a universal program"),
        (b"\x00asm", "a WebAssembly module"),
        (b"wOF2", "a font"),
        (b"OggS", "Ogg media"),
        (b"ID3", "MP3 audio"),
    ];
    let kind = KINDS
        .iter()
        .find(|(magic, _)| head.starts_with(magic))
        .map_or("a binary file", |(_, kind)| kind);
    format!("{kind} of {size} bytes")
}

#[cfg(test)]
mod tests;
