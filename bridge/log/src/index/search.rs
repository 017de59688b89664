//! Full-text search over what was said.

use rusqlite::Row;

use super::{id_at, unsigned_at};
use crate::id::SessionId;

/// A message that fits a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    pub session: SessionId,
    /// The event of the message.
    pub seq: u64,
    /// Unix milliseconds.
    pub at: u64,
    /// `user` or `assistant`.
    pub role: String,
    /// The session's title.
    pub title: Option<String>,
    /// A piece of the message with the words that fit between `«` and `»`.
    pub snippet: String,
}

pub(super) const SELECT: &str = "SELECT messages.session, messages.seq, messages.at, messages.role, sessions.title, \
     snippet(search, 0, '«', '»', '…', 24) \
     FROM search JOIN messages ON messages.row = search.rowid JOIN sessions ON sessions.id = messages.session \
     WHERE search MATCH ?1 ORDER BY rank, messages.at DESC, messages.row DESC LIMIT ?2";

pub(super) fn hit(row: &Row<'_>) -> rusqlite::Result<SearchHit> {
    Ok(SearchHit {
        session: id_at(row, 0)?,
        seq: unsigned_at(row, 1)?,
        at: unsigned_at(row, 2)?,
        role: row.get(3)?,
        title: row.get(4)?,
        snippet: row.get(5)?,
    })
}

/// The words as a query in which nothing is an operator; nothing without any word.
pub(super) fn query(text: &str) -> Option<String> {
    let words: Vec<String> = text
        .split_whitespace()
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .map(|word| format!("\"{}\"", word.replace('"', "\"\"").replace('\0', " ")))
        .collect();
    if words.is_empty() {
        None
    } else {
        Some(format!("{}*", words.join(" AND ")))
    }
}
