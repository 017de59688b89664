//! A file's bytes as text, such that an edit touches no byte outside its span.
//!
//! The model sees a view: decoded, without a byte order mark, with `\n` for every `\r\n`.
//! A splice in the view becomes a splice in the bytes: the encoding, the mark, the line
//! ends and everything else around it stay as they are (R045, R046, R047).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::WINDOWS_1252;
use sha2::{Digest, Sha256};

const UTF8_MARK: &[u8] = b"\xEF\xBB\xBF";
const UTF16_LITTLE_MARK: &[u8] = b"\xFF\xFE";
const UTF16_BIG_MARK: &[u8] = b"\xFE\xFF";
/// How much of a file is looked at to tell text from binary.
const SNIFF: usize = 8 * 1024;

/// How a file's text is written in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    Utf8 {
        mark: bool,
    },
    /// With its byte order mark; without one it is taken for binary.
    Utf16 {
        big_endian: bool,
    },
    /// An eight-bit code page.
    EightBit(&'static encoding_rs::Encoding),
}

/// How lines end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    Lf,
    CrLf,
}

/// Why bytes are not text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotText {
    #[error("it is a binary file")]
    Binary,
    /// Eight-bit bytes whose code page cannot be told for sure.
    #[error(
        "its encoding cannot be told for sure: it is no valid UTF-8 at byte {offset} ({bytes}); convert it to UTF-8 first"
    )]
    Unsure { offset: usize, bytes: String },
}

/// A character that the file's encoding does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the file is {encoding}, which has no character {character:?}; convert the file to UTF-8 first, or leave the character out"
)]
pub struct Unencodable {
    pub encoding: String,
    pub character: char,
}

/// New text for a range of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Splice {
    /// Byte offsets in the view, on character boundaries.
    pub range: Range<usize>,
    pub text: String,
}

/// A text file's bytes together with the view of them.
#[derive(Debug, Clone)]
pub struct Document {
    bytes: Arc<[u8]>,
    encoding: Encoding,
    view: String,
    /// Offsets in the view of each `\n` that stands for `\r\n`, ascending.
    pairs: Vec<usize>,
}

/// Lower-case SHA-256.
pub fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Whether the head of a file says that it is UTF-16.
pub(super) fn has_utf16_mark(head: &[u8]) -> bool {
    head.starts_with(UTF16_LITTLE_MARK) || head.starts_with(UTF16_BIG_MARK)
}

/// Whether the head of a file says that it is no text.
pub(super) fn looks_binary(head: &[u8]) -> bool {
    !has_utf16_mark(head) && head.iter().take(SNIFF).any(|byte| *byte == 0)
}

impl Document {
    /// Takes bytes for text.
    ///
    /// # Errors
    /// [`NotText`] for binary content and for code pages that cannot be told.
    pub fn decode(bytes: impl Into<Arc<[u8]>>) -> Result<Self, NotText> {
        let bytes = bytes.into();
        let encoding = detect(&bytes)?;
        Self::with_encoding(bytes, encoding)
    }

    /// Takes bytes for text in a known encoding.
    ///
    /// # Errors
    /// [`NotText`] when they are not.
    pub fn with_encoding(bytes: impl Into<Arc<[u8]>>, encoding: Encoding) -> Result<Self, NotText> {
        let bytes = bytes.into();
        let (view, pairs) = {
            let decoded = decode(&bytes, encoding)?;
            join_pairs(&decoded)
        };
        Ok(Self {
            bytes,
            encoding,
            view,
            pairs,
        })
    }

    /// The text as the model sees it.
    pub fn view(&self) -> &str {
        &self.view
    }

    /// The bytes as they are.
    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }

    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Whether another document says the same, but for line ends, mark, encoding and a
    /// final newline.
    pub fn same_text(&self, other: &Self) -> bool {
        without_final_newline(&self.view) == without_final_newline(&other.view)
    }

    /// Whether an editor's text is this file read as UTF-8 though it is not: characters are
    /// lost in it that the file still has, and nothing else was changed.
    pub fn lost_in(&self, open: &Self) -> bool {
        if matches!(self.encoding, Encoding::Utf8 { .. }) {
            return false;
        }
        let (read, _) = join_pairs(&String::from_utf8_lossy(&self.bytes));
        without_final_newline(&read) == without_final_newline(&open.view)
    }

    /// What most of its lines end with; none when it has one line.
    pub fn line_end(&self) -> Option<LineEnd> {
        let all = self.view.bytes().filter(|byte| *byte == b'\n').count();
        match (self.pairs.len(), all) {
            (_, 0) => None,
            (pairs, all) if pairs * 2 > all => Some(LineEnd::CrLf),
            _ => Some(LineEnd::Lf),
        }
    }

    /// The bytes with the splices made. They must ascend and not overlap. A lone `\n` in
    /// their text becomes what the neighbouring lines end with.
    ///
    /// # Errors
    /// [`Unencodable`].
    pub fn splice(&self, splices: &[Splice]) -> Result<Vec<u8>, Unencodable> {
        let mut result = Vec::with_capacity(self.bytes.len());
        let mut position = 0;
        for splice in splices {
            let start = self.offset(splice.range.start);
            let end = self.offset(splice.range.end);
            result.extend_from_slice(self.bytes.get(position..start).unwrap_or_default());
            let text = with_line_end(&splice.text, self.line_end_at(splice.range.start));
            result.extend_from_slice(&encode(&text, self.encoding)?);
            position = end;
        }
        result.extend_from_slice(self.bytes.get(position..).unwrap_or_default());
        Ok(result)
    }

    /// The bytes of a whole new text in this document's encoding, mark and line ends.
    ///
    /// # Errors
    /// [`Unencodable`].
    pub fn overwrite(&self, text: &str) -> Result<Vec<u8>, Unencodable> {
        let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
        let text = with_line_end(text, self.line_end().unwrap_or(LineEnd::Lf));
        let mut result = mark(self.encoding).to_vec();
        result.extend_from_slice(&encode(&text, self.encoding)?);
        Ok(result)
    }

    /// Where a boundary of the view lies in the bytes.
    fn offset(&self, view: usize) -> usize {
        let pairs = self.pairs.partition_point(|pair| *pair < view);
        let before = self.view.get(..view).unwrap_or(&self.view);
        mark(self.encoding).len()
            + match self.encoding {
                Encoding::Utf8 { .. } => view + pairs,
                Encoding::Utf16 { .. } => (before.encode_utf16().count() + pairs) * 2,
                Encoding::EightBit(_) => before.chars().count() + pairs,
            }
    }

    /// How the line before this place ends, else the line it is in, else `\n`.
    fn line_end_at(&self, view: usize) -> LineEnd {
        let before = self.view.get(..view).and_then(|text| text.rfind('\n'));
        let near = before.or_else(|| {
            self.view
                .get(view..)
                .and_then(|text| text.find('\n'))
                .map(|at| at + view)
        });
        match near {
            Some(at) if self.pairs.binary_search(&at).is_ok() => LineEnd::CrLf,
            _ => LineEnd::Lf,
        }
    }
}

/// The text with `\n` made the given line end; a `\r\n` stays one.
pub fn with_line_end(text: &str, end: LineEnd) -> Cow<'_, str> {
    if end == LineEnd::Lf || !text.contains('\n') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.replace("\r\n", "\n").replace('\n', "\r\n"))
}

fn without_final_newline(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

fn mark(encoding: Encoding) -> &'static [u8] {
    match encoding {
        Encoding::Utf8 { mark: true } => UTF8_MARK,
        Encoding::Utf8 { mark: false } | Encoding::EightBit(_) => b"",
        Encoding::Utf16 { big_endian: false } => UTF16_LITTLE_MARK,
        Encoding::Utf16 { big_endian: true } => UTF16_BIG_MARK,
    }
}

fn detect(bytes: &[u8]) -> Result<Encoding, NotText> {
    if bytes.starts_with(UTF16_LITTLE_MARK) {
        return Ok(Encoding::Utf16 { big_endian: false });
    }
    if bytes.starts_with(UTF16_BIG_MARK) {
        return Ok(Encoding::Utf16 { big_endian: true });
    }
    if looks_binary(bytes) {
        return Err(NotText::Binary);
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => Ok(Encoding::Utf8 {
            mark: bytes.starts_with(UTF8_MARK),
        }),
        Err(error) => eight_bit(bytes, error.valid_up_to()),
    }
}

/// Only Western European text is taken, and only when the guess does not lean on a hint:
/// it must come out the same whatever country the text is said to be from.
fn eight_bit(bytes: &[u8], offset: usize) -> Result<Encoding, NotText> {
    if bytes.contains(&0) {
        return Err(NotText::Binary);
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    let hints: [Option<&[u8]>; 6] = [
        None,
        Some(b"de"),
        Some(b"ru"),
        Some(b"gr"),
        Some(b"cn"),
        Some(b"tr"),
    ];
    let sure = hints
        .iter()
        .all(|hint| detector.guess(*hint, Utf8Detection::Deny) == WINDOWS_1252);
    // Controls that no text has give binary content away.
    let controls = bytes
        .iter()
        .any(|byte| matches!(byte, 1..=8 | 14..=26 | 28..=31 | 127));
    if sure && !controls {
        return Ok(Encoding::EightBit(WINDOWS_1252));
    }
    if controls {
        return Err(NotText::Binary);
    }
    let context = bytes
        .get(offset..bytes.len().min(offset + 8))
        .unwrap_or_default();
    let shown = context
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ");
    Err(NotText::Unsure {
        offset,
        bytes: shown,
    })
}

fn decode(bytes: &[u8], encoding: Encoding) -> Result<Cow<'_, str>, NotText> {
    let body = bytes.strip_prefix(mark(encoding)).unwrap_or(bytes);
    match encoding {
        Encoding::Utf8 { .. } => std::str::from_utf8(body)
            .map(Cow::Borrowed)
            .map_err(|_| NotText::Binary),
        Encoding::Utf16 { big_endian } => {
            let (pairs, rest) = body.as_chunks::<2>();
            if !rest.is_empty() {
                return Err(NotText::Binary);
            }
            let units = pairs.iter().map(|pair| {
                if big_endian {
                    u16::from_be_bytes(*pair)
                } else {
                    u16::from_le_bytes(*pair)
                }
            });
            char::decode_utf16(units)
                .collect::<Result<String, _>>()
                .map(Cow::Owned)
                .map_err(|_| NotText::Binary)
        }
        Encoding::EightBit(page) => page
            .decode_without_bom_handling_and_without_replacement(body)
            .ok_or(NotText::Binary),
    }
}

fn encode(text: &str, encoding: Encoding) -> Result<Cow<'_, [u8]>, Unencodable> {
    match encoding {
        Encoding::Utf8 { .. } => Ok(Cow::Borrowed(text.as_bytes())),
        Encoding::Utf16 { big_endian } => Ok(Cow::Owned(
            text.encode_utf16()
                .flat_map(|unit| {
                    if big_endian {
                        unit.to_be_bytes()
                    } else {
                        unit.to_le_bytes()
                    }
                })
                .collect(),
        )),
        Encoding::EightBit(page) => {
            let (bytes, _, unmappable) = page.encode(text);
            if unmappable {
                let lacks = |character: &char| page.encode(character.encode_utf8(&mut [0; 4])).2;
                let character = text.chars().find(lacks).unwrap_or('\u{FFFD}');
                return Err(Unencodable {
                    encoding: page.name().to_owned(),
                    character,
                });
            }
            Ok(bytes)
        }
    }
}

/// Joins each `\r\n` to `\n` and says where.
fn join_pairs(text: &str) -> (String, Vec<usize>) {
    let mut view = String::with_capacity(text.len());
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\r\n") {
        view.push_str(before);
        pairs.push(view.len());
        view.push('\n');
        rest = after;
    }
    view.push_str(rest);
    (view, pairs)
}

#[cfg(test)]
mod tests;
