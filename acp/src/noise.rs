//! Terminal escape sequences and other text around a message (R115).
//!
//! Programs that are driven as agents set the terminal's title, draw a spinner or reset colours
//! on the pipe that should hold messages alone.

/// How much of a noise line is kept to be shown.
const MOST_SHOWN: usize = 300;

/// The JSON object that the line holds among escape sequences and other text: from its first
/// `{` that could begin one, without escape sequences after its end. Linear in the line.
pub(crate) fn find_message(line: &str) -> Option<&str> {
    let rest = strip_leading(line);
    let rest = if rest.starts_with('{') {
        rest
    } else {
        rest.get(rest.find("{\"")?..)?
    };
    let mut values =
        serde_json::Deserializer::from_str(rest).into_iter::<&serde_json::value::RawValue>();
    values.next()?.ok()?;
    let end = values.byte_offset();
    let after = rest.get(end..)?;
    strip_leading(after)
        .is_empty()
        .then(|| rest.get(..end))
        .flatten()
}

/// The line as it can be shown to a person: no escape sequences, no control characters, cut to
/// a bounded length.
pub(crate) fn shown(line: &[u8]) -> String {
    let head = line
        .get(..line.len().min(4 * MOST_SHOWN))
        .unwrap_or_default();
    let text = String::from_utf8_lossy(head);
    let mut shown = String::new();
    let mut rest = strip_leading(&text);
    while let Some(next) = rest.chars().next() {
        if shown.len() >= MOST_SHOWN {
            shown.push('…');
            break;
        }
        shown.push(next);
        rest = strip_leading_controls(rest.get(next.len_utf8()..).unwrap_or_default());
    }
    shown.trim_end().to_owned()
}

/// Takes off escape sequences, control characters and blanks.
fn strip_leading(text: &str) -> &str {
    let mut rest = text;
    loop {
        let next = strip_leading_controls(rest).trim_start();
        if next.len() == rest.len() {
            return next;
        }
        rest = next;
    }
}

/// Takes off escape sequences and control characters, also those that change the direction of
/// text, which could make a shown line read as something else.
fn strip_leading_controls(mut text: &str) -> &str {
    loop {
        let mut chars = text.chars();
        let rest = match chars.next() {
            Some('\u{1b}') => after_escape(chars.as_str()),
            // The one-character forms of CSI and of the string sequences.
            Some('\u{9b}') => after_csi(chars.as_str()),
            Some('\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}') => {
                after_string(chars.as_str())
            }
            Some(first) if first.is_control() || is_direction(first) || first == '\u{feff}' => {
                chars.as_str()
            }
            _ => return text,
        };
        text = rest;
    }
}

fn is_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What follows a sequence whose escape character has been read.
fn after_escape(text: &str) -> &str {
    let mut chars = text.chars();
    match chars.next() {
        Some('[') => after_csi(chars.as_str()),
        Some(']' | 'P' | 'X' | '^' | '_') => after_string(chars.as_str()),
        // Intermediate bytes, then a final one: `ESC ( B`.
        Some(' '..='/') => {
            let rest = chars
                .as_str()
                .trim_start_matches(|c: char| (' '..='/').contains(&c));
            let mut rest = rest.chars();
            rest.next();
            rest.as_str()
        }
        Some('0'..='~') => chars.as_str(),
        _ => text,
    }
}

/// `ESC [ parameters final`.
fn after_csi(text: &str) -> &str {
    let rest = text.trim_start_matches(|c: char| (' '..='?').contains(&c));
    match rest.chars().next() {
        Some(last @ '@'..='~') => rest.get(last.len_utf8()..).unwrap_or_default(),
        _ => rest,
    }
}

/// `ESC ] text BEL`, or ended by `ESC \`. Without an end it is the whole line.
fn after_string(text: &str) -> &str {
    let ends = ['\u{7}', '\u{9c}', '\u{1b}'];
    let Some(at) = text.find(ends) else {
        return "";
    };
    let rest = text.get(at..).unwrap_or_default();
    if let Some(rest) = rest.strip_prefix("\u{1b}\\") {
        return rest;
    }
    let mut rest = rest.chars();
    rest.next();
    rest.as_str()
}

#[cfg(test)]
mod tests;
