//! Searching the session's folders in process, on the blocking threads: [`find`] files by
//! name, [`grep`] their text (checks 132 and 133, R053, R127, R128).
//!
//! Both walk alike ([`walk`]): hidden files are searched, `.git` is not, ignore files of
//! every kind hold until the call names a place that they exclude. What is found is inside
//! the roots by its real path; results are in a fixed order, bounded, and say exactly what
//! is missing.

#![expect(
    clippy::disallowed_methods,
    reason = "what a search looks at was resolved against the roots"
)]

pub mod find;
pub mod grep;
mod walk;

use std::path::Path;

use crate::world::files::FileError;

/// Why a search gave nothing at all.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} does not exist", .0.display())]
    Missing(std::path::PathBuf),
    #[error("{} is no folder; name its folder in `path`, or read it with Read", .0.display())]
    NotAFolder(std::path::PathBuf),
    #[error("the glob `{glob}` cannot be used: {reason}")]
    Glob { glob: String, reason: String },
    #[error("the pattern is no regular expression that can be searched for: {0}")]
    Pattern(String),
    #[error("{0}")]
    Type(String),
    #[error("cancelled: the search was stopped before its end")]
    Cancelled,
    #[error("the search was lost: {0}")]
    Lost(String),
}

/// A path as one line of text: control characters in names are shown as escapes, so that
/// no name can look like two.
pub fn shown(path: &Path) -> String {
    let text = path.to_string_lossy();
    if !text.contains(char::is_control) {
        return text.into_owned();
    }
    text.chars()
        .fold(String::with_capacity(text.len()), |mut line, character| {
            if character.is_control() {
                line.extend(character.escape_default());
            } else {
                line.push(character);
            }
            line
        })
}

/// `1 file`, `2 files`.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests;
