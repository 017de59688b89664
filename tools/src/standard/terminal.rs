//! What the terminal tools share.

use serde_json::Value;

use crate::call::{Failure, FileChange};
use crate::world::terminals::{TerminalError, keys};

/// Characters of a title.
const TITLE: usize = 120;
/// The longest text, as JSON, that an approval shows whole.
const SHOWN_WHOLE: usize = 24 * 1024;

/// `verb name`, from arguments that may be malformed.
pub(super) fn title(verb: &str, args: &Value) -> String {
    match args.get("name").and_then(Value::as_str) {
        Some(name) => cut(&format!("{verb} {}", keys::shown(name.trim()))),
        None => verb.to_owned(),
    }
}

/// A title of a length that a card has room for.
pub(super) fn cut(title: &str) -> String {
    let title = title.trim_end();
    let mut short: String = title.chars().take(TITLE).collect();
    if short.len() < title.len() {
        short.push_str(" …");
    }
    short
}

/// What cannot be shown whole to whoever decides is not asked about at all.
pub(super) fn shown_whole(argument: &str, args: &Value) -> Result<Vec<FileChange>, Failure> {
    let size = args
        .get(argument)
        .map_or(0, |value| value.to_string().len());
    if size > SHOWN_WHOLE {
        return Err(Failure::new(format!(
            "`{argument}` is {size} bytes long and cannot be shown whole to the person who has to approve it, which \
             ends at {SHOWN_WHOLE}; write it to a file with Write, and use that"
        )));
    }
    Ok(Vec::new())
}

/// The words of a terminal's refusal.
#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
pub(super) fn failure(error: TerminalError) -> Failure {
    Failure::new(error.to_string())
}
