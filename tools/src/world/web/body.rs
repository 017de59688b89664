//! What a server sent, read within bounds and made text where it is text.

use encoding_rs::{Encoding, UTF_8};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};

use super::client::explain;

/// The most that is read of a body, in bytes.
pub(super) const MOST: usize = 4 * 1024 * 1024;
/// Where a page may say what its letters are, in bytes.
const META: usize = 1024;

/// A body, or its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) size: Size,
    /// Why the rest did not come, when the connection broke.
    pub(super) broken: Option<String>,
}

/// How long a body is, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Exactly(u64),
    AtLeast(u64),
}

/// What a body is, by its type and a look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Html,
    Text,
    Binary,
}

/// How a server packed a body although nothing was asked to be packed.
pub(super) fn packing(response: &Response) -> Option<String> {
    let value = response.headers().get(CONTENT_ENCODING)?;
    let value = value.to_str().unwrap_or("unknown").trim().to_lowercase();
    (!matches!(value.as_str(), "" | "identity")).then(|| short(&value))
}

/// The type without parameters, and the character set that it names.
pub(super) fn content_type(response: &Response) -> (String, Option<&'static Encoding>) {
    let value = response
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let mut parts = value.split(';');
    let essence = short(&parts.next().unwrap_or_default().trim().to_lowercase());
    let charset = parts
        .filter_map(|part| part.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("charset"))
        .and_then(|(_, label)| Encoding::for_label(label.trim().trim_matches('"').as_bytes()));
    (essence, charset)
}

/// A word of a header, for a message.
fn short(value: &str) -> String {
    value
        .chars()
        .filter(|character| character.is_ascii_graphic())
        .take(80)
        .collect()
}

/// Reads a body to its end or to [`MOST`]. A break after the first bytes gives those.
pub(super) async fn read(response: &mut Response) -> Result<Body, String> {
    let length = response.content_length();
    let mut bytes = Vec::new();
    loop {
        let broken = match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = MOST - bytes.len();
                bytes.extend_from_slice(chunk.get(..room.min(chunk.len())).unwrap_or_default());
                if chunk.len() <= room {
                    continue;
                }
                let seen = u64::try_from(MOST - room + chunk.len()).unwrap_or(u64::MAX);
                let size = length.map_or(Size::AtLeast(seen), Size::Exactly);
                return Ok(Body {
                    bytes,
                    size,
                    broken: None,
                });
            }
            Ok(None) => None,
            Err(error) => Some(explain(&error)),
        };
        let seen = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let size = match (&broken, length) {
            (None, _) => Size::Exactly(seen),
            (Some(_), Some(length)) => Size::Exactly(length),
            (Some(_), None) => Size::AtLeast(seen),
        };
        return match broken {
            Some(broken) if bytes.is_empty() => Err(broken),
            broken => Ok(Body {
                bytes,
                size,
                broken,
            }),
        };
    }
}

/// What a type is known to be; none when only a look at the bytes can tell.
pub(super) fn declared(essence: &str) -> Option<Form> {
    if matches!(essence, "text/html" | "application/xhtml+xml") {
        return Some(Form::Html);
    }
    if matches!(
        essence,
        "" | "application/octet-stream" | "binary/octet-stream" | "unknown/unknown"
    ) {
        return None;
    }
    let text = essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || essence.ends_with("+yaml")
        || essence == "message/rfc822"
        || essence
            .strip_prefix("application/")
            .is_some_and(|kind| TEXTS.contains(&kind.strip_prefix("x-").unwrap_or(kind)));
    Some(if text { Form::Text } else { Form::Binary })
}

/// Types below `application/` that are text, without `x-`.
const TEXTS: &[&str] = &[
    "json",
    "xml",
    "javascript",
    "ecmascript",
    "typescript",
    "yaml",
    "toml",
    "ndjson",
    "jsonl",
    "json5",
    "jsonlines",
    "json-seq",
    "sh",
    "shellscript",
    "sql",
    "graphql",
    "tex",
    "latex",
    "perl",
    "python",
    "ruby",
    "php",
    "httpd-php",
    "csh",
    "www-form-urlencoded",
    "pem-certificate-chain",
    "pem-file",
    "xml-dtd",
    "markdown",
    "diff",
    "patch",
    "subrip",
    "csv",
];

/// What the bytes of a body of unknown type are.
pub(super) fn look(bytes: &[u8]) -> Form {
    let head = bytes.get(..bytes.len().min(8192)).unwrap_or_default();
    if Encoding::for_bom(head).is_none() {
        let control =
            |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
        let cut = std::str::from_utf8(head)
            .err()
            .is_some_and(|error| error.error_len().is_some());
        if cut || head.iter().any(control) {
            return Form::Binary;
        }
    }
    let start = String::from_utf8_lossy(head);
    let start: String = start
        .trim_start()
        .chars()
        .take(15)
        .flat_map(char::to_lowercase)
        .collect();
    if start.starts_with("<!doctype html") || start.starts_with("<html") {
        Form::Html
    } else {
        Form::Text
    }
}

/// The text of a body: by its byte order mark, the header, for a page what it says itself,
/// and else UTF-8 or a guess.
pub(super) fn text(bytes: &[u8], header: Option<&'static Encoding>, form: Form) -> String {
    let encoding = match Encoding::for_bom(bytes) {
        Some((encoding, _)) => encoding,
        None => header
            .or_else(|| (form == Form::Html).then(|| meta(bytes)).flatten())
            .unwrap_or_else(|| guess(bytes)),
    };
    encoding.decode(bytes).0.into_owned()
}

fn guess(bytes: &[u8]) -> &'static Encoding {
    let valid = match std::str::from_utf8(bytes) {
        Ok(_) => true,
        // A body that was cut may end within a character.
        Err(error) => error.error_len().is_none(),
    };
    if valid {
        return UTF_8;
    }
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    detector.guess(None, chardetng::Utf8Detection::Allow)
}

/// What a page says about its letters: `charset=` in one of its first tags.
fn meta(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = bytes.get(..bytes.len().min(META)).unwrap_or_default();
    let head = String::from_utf8_lossy(head).to_lowercase();
    let meta = head.get(head.find("<meta")?..)?;
    let after = meta.get(meta.find("charset")? + "charset".len()..)?;
    let value = after.trim_start().strip_prefix('=')?.trim_start();
    let value = value.trim_start_matches(['"', '\'']);
    let end = value
        .find(|character: char| !(character.is_ascii_alphanumeric() || "-_:.".contains(character)))
        .unwrap_or(value.len());
    let found = Encoding::for_label(value.get(..end)?.as_bytes())?;
    // A page that could be read so far is in no encoding of two bytes a letter.
    Some(
        if found == encoding_rs::UTF_16LE || found == encoding_rs::UTF_16BE {
            UTF_8
        } else {
            found
        },
    )
}
