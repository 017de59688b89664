//! The tables, and the decision when they are not worth keeping.

#![expect(
    clippy::disallowed_methods,
    reason = "the index file belongs to this module"
)]

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use super::files;
use crate::error::StoreError;
use crate::platform;

/// Grows with every change of the tables or of what is folded into them.
const VERSION: i64 = 3;

const TABLES: &str = "
    DROP TABLE IF EXISTS sessions;
    DROP TABLE IF EXISTS pending;
    DROP TABLE IF EXISTS jobs;
    DROP TABLE IF EXISTS rule_uses;
    DROP TABLE IF EXISTS search;
    DROP TABLE IF EXISTS messages;
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        cwd TEXT NOT NULL, directories TEXT NOT NULL,
        title TEXT, first_text TEXT,
        created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL,
        parent TEXT, delegated INTEGER NOT NULL, depth INTEGER NOT NULL,
        events INTEGER NOT NULL, turns INTEGER NOT NULL,
        prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
        cached_read_tokens INTEGER NOT NULL, cached_write_tokens INTEGER NOT NULL,
        thought_tokens INTEGER NOT NULL, cost REAL NOT NULL, steps INTEGER NOT NULL,
        unpriced_steps INTEGER NOT NULL, context_tokens INTEGER,
        open_turn INTEGER NOT NULL,
        problem TEXT,
        -- What was read of the log: which file, how large it was, where the next event begins.
        file TEXT NOT NULL, size INTEGER NOT NULL, modified INTEGER NOT NULL,
        offset INTEGER NOT NULL, chain TEXT NOT NULL
    ) STRICT;
    CREATE INDEX sessions_by_time ON sessions (updated_at DESC, id DESC);
    CREATE INDEX sessions_by_parent ON sessions (parent);
    CREATE TABLE pending (
        session TEXT NOT NULL, seq INTEGER NOT NULL, request TEXT NOT NULL, call_id TEXT NOT NULL,
        name TEXT NOT NULL, args TEXT NOT NULL, title TEXT NOT NULL, reason TEXT NOT NULL,
        offered_rule TEXT, requested_at INTEGER NOT NULL,
        PRIMARY KEY (session, seq)
    ) STRICT;
    CREATE TABLE jobs (
        session TEXT NOT NULL, call_id TEXT NOT NULL, id TEXT NOT NULL, seq INTEGER NOT NULL,
        command TEXT NOT NULL, description TEXT, keep INTEGER NOT NULL,
        started_at INTEGER NOT NULL,
        -- Of its end, as JSON; null while it runs.
        outcome TEXT, ended_at INTEGER, ran_for INTEGER NOT NULL,
        written INTEGER NOT NULL, dropped INTEGER NOT NULL, tail TEXT NOT NULL,
        PRIMARY KEY (session, call_id)
    ) STRICT;
    CREATE INDEX jobs_running ON jobs (session) WHERE outcome IS NULL;
    -- What let calls run, as `tool/started` names it.
    CREATE TABLE rule_uses (
        session TEXT NOT NULL, layer TEXT NOT NULL, rule TEXT NOT NULL,
        last_at INTEGER NOT NULL, uses INTEGER NOT NULL,
        PRIMARY KEY (session, layer, rule)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE messages (
        row INTEGER PRIMARY KEY,
        session TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL,
        role TEXT NOT NULL, text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX messages_by_session ON messages (session);
    CREATE VIRTUAL TABLE search USING fts5 (
        text, content = 'messages', content_rowid = 'row', tokenize = 'unicode61 remove_diacritics 2'
    );
    CREATE TRIGGER messages_added AFTER INSERT ON messages BEGIN
        INSERT INTO search (rowid, text) VALUES (new.row, new.text);
    END;
    CREATE TRIGGER messages_removed AFTER DELETE ON messages BEGIN
        INSERT INTO search (search, rowid, text) VALUES ('delete', old.row, old.text);
    END;
";

/// Opens the file with tables of this version in it.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    if let Some(folder) = path.parent() {
        platform::private_folder(folder).map_err(StoreError::io("make the folder", folder))?;
    }
    // SQLite gives its side files the mode of this one.
    platform::private_file()
        .append(true)
        .create(true)
        .open(path)
        .map_err(StoreError::io("open", path))?;
    prepare(path).map_err(|source| StoreError::Index {
        path: path.to_owned(),
        source,
    })
}

fn prepare(path: &Path) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // It can be built anew, so it need not outlive a power loss.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version != VERSION {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()?;
    Ok(connection)
}

/// True when only a new file helps.
pub(super) fn is_corrupt(error: &rusqlite::Error) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            matches!(failure.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                // A table that should be there is not: someone else wrote this file.
                || message.as_deref().is_some_and(|text| text.contains("no such table") || text.contains("no such column"))
        }
        rusqlite::Error::InvalidColumnType(..) | rusqlite::Error::FromSqlConversionFailure(..) => {
            true
        }
        _ => false,
    }
}

/// Takes the file away.
pub(super) fn remove(path: &Path) -> Result<(), StoreError> {
    for file in files(path) {
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(StoreError::io("remove", &file)(error));
            }
            _ => {}
        }
    }
    Ok(())
}
