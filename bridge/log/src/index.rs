//! One SQLite file beside the logs for what would need all of them: lists, search,
//! everything that waits for a person.
//!
//! It is a cache and never the truth. [`Index::refresh`] compares the size of each log
//! with what was read of it and folds only what is new; a file that is missing, of
//! another version or broken is built anew. Calls block: make them by `spawn_blocking`.

mod fold;
mod schema;
mod search;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::error::StoreError;
use crate::event::JobOutcome;
use crate::hex;
use crate::id::SessionId;
use crate::projection::UsageTotals;
use crate::store::Store;

pub use search::SearchHit;

/// Sessions a page, when the filter does not say.
const DEFAULT_LIMIT: usize = 50;

/// The index of one store.
pub struct Index {
    connection: Connection,
    path: PathBuf,
    store: Store,
}

/// Which sessions are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only those that work in this folder.
    pub cwd: Option<String>,
    /// Where an earlier page ended.
    pub cursor: Option<String>,
    /// At most so many; 0 for the default of 50.
    pub limit: usize,
    /// With the sessions of subagents, which are left out otherwise.
    pub children: bool,
}

/// A part of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub sessions: Vec<SessionRow>,
    /// For the next page, when there is one.
    pub next_cursor: Option<String>,
}

/// What a list shows of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
    pub id: SessionId,
    pub cwd: String,
    pub additional_directories: Vec<String>,
    pub title: Option<String>,
    /// The beginning of the first prompt, for want of a title.
    pub first_text: Option<String>,
    /// Unix milliseconds.
    pub created_at: u64,
    /// Unix milliseconds of the last event.
    pub updated_at: u64,
    /// The session that delegated this one, or that it was forked from.
    pub parent: Option<SessionId>,
    pub depth: u32,
    pub events: u64,
    pub turns: u64,
    pub usage: UsageTotals,
    /// A turn has no end: it runs, or waits to be resumed.
    pub open_turn: bool,
    pub pending_approvals: u64,
    /// Why the log cannot be read to its end. Such a session is listed all the same.
    pub problem: Option<String>,
}

/// A request that waits for a person, in any session.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingRow {
    pub session: SessionId,
    pub id: String,
    pub call_id: String,
    pub name: String,
    pub args: serde_json::Value,
    pub title: String,
    pub reason: String,
    pub offered_rule: Option<String>,
    /// Unix milliseconds.
    pub requested_at: u64,
}

/// A job of any session, as its log knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    pub session: SessionId,
    /// The call that started it.
    pub call_id: String,
    pub id: String,
    pub command: String,
    pub description: Option<String>,
    /// It outlives a clean end of its session.
    pub keep: bool,
    /// Unix milliseconds.
    pub started_at: u64,
    /// None while it runs, as far as its log says.
    pub outcome: Option<JobOutcome>,
    /// Unix milliseconds.
    pub ended_at: Option<u64>,
    /// Milliseconds; 0 while it runs.
    pub ran_for: u64,
    /// Bytes that it wrote, as far as its log says.
    pub written: u64,
    /// Bytes of these that were not kept.
    pub dropped: u64,
    /// Its last lines, as last logged.
    pub tail: String,
}

/// How often a rule let calls of one session run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleUse {
    pub session: SessionId,
    /// The folder that the session works in.
    pub cwd: String,
    /// The layer that held the rule then.
    pub layer: String,
    /// The rule's exact text.
    pub rule: String,
    /// Unix milliseconds of the last call.
    pub last_at: u64,
    pub uses: u64,
}

impl Index {
    /// Opens the index at `path`, or makes it. What it holds may be old until
    /// [`Index::refresh`].
    ///
    /// # Errors
    /// [`StoreError::Index`], [`StoreError::Io`] when the file cannot be made.
    pub fn open(path: impl Into<PathBuf>, store: Store) -> Result<Self, StoreError> {
        let path = path.into();
        let connection = match schema::open(&path) {
            Err(StoreError::Index { source, .. }) if schema::is_corrupt(&source) => {
                schema::remove(&path)?;
                schema::open(&path)?
            }
            other => other?,
        };
        Ok(Self {
            connection,
            path,
            store,
        })
    }

    /// Catches up with all logs.
    ///
    /// # Errors
    /// [`StoreError::Index`], [`StoreError::Io`] when the folder of the logs cannot be
    /// listed. A log that cannot be read is no error; its row names the problem.
    pub fn refresh(&mut self) -> Result<(), StoreError> {
        match self.refresh_once() {
            Err(StoreError::Index { source, .. }) if schema::is_corrupt(&source) => {
                tracing::warn!(error = %source, "the session index is broken and is built anew");
                schema::remove(&self.path)?;
                self.connection = schema::open(&self.path)?;
                self.refresh_once()
            }
            other => other,
        }
    }

    fn refresh_once(&mut self) -> Result<(), StoreError> {
        let ids = self.store.ids()?;
        for id in &ids {
            fold::catch_up(&mut self.connection, &self.store, id)
                .map_err(|source| self.fault(source))?;
        }
        let present: HashSet<&str> = ids.iter().map(SessionId::as_str).collect();
        let gone: Vec<String> = self
            .query("SELECT id FROM sessions", [], |row| row.get::<_, String>(0))?
            .into_iter()
            .filter(|id| !present.contains(id.as_str()))
            .collect();
        for id in gone {
            fold::forget(&mut self.connection, &id).map_err(|source| self.fault(source))?;
        }
        Ok(())
    }

    /// Sessions, those with the latest event first. A cursor stays good while sessions
    /// come, go and change: the next page holds what was older than the last one shown.
    ///
    /// # Errors
    /// [`StoreError::BadCursor`] for a cursor that no list gave, [`StoreError::Index`].
    pub fn list(&self, filter: &SessionFilter) -> Result<Page, StoreError> {
        let limit = if filter.limit == 0 {
            DEFAULT_LIMIT
        } else {
            filter.limit
        };
        let (before, before_id) = match &filter.cursor {
            Some(cursor) => parse_cursor(cursor)?,
            None => (i64::MAX, String::new()),
        };
        let any_cursor = filter.cursor.is_none();
        let fetch = i64::try_from(limit)
            .unwrap_or(i64::MAX - 1)
            .saturating_add(1);
        let mut sessions = self.query(
            &format!(
                "{SELECT} WHERE (?1 IS NULL OR cwd = ?1) AND (?2 OR delegated = 0)
                   AND (?3 OR updated_at < ?4 OR (updated_at = ?4 AND id < ?5))
                 ORDER BY updated_at DESC, id DESC LIMIT ?6"
            ),
            params![
                filter.cwd,
                filter.children,
                any_cursor,
                before,
                before_id,
                fetch
            ],
            session_row,
        )?;
        let more = sessions.len() > limit;
        sessions.truncate(limit);
        let next_cursor = sessions
            .last()
            .filter(|_| more)
            .map(|last| cursor(signed(last.updated_at), last.id.as_str()));
        Ok(Page {
            sessions,
            next_cursor,
        })
    }

    /// One session, if there is such.
    ///
    /// # Errors
    /// [`StoreError::Index`].
    pub fn get(&self, id: &SessionId) -> Result<Option<SessionRow>, StoreError> {
        self.connection
            .query_row(
                &format!("{SELECT} WHERE id = ?1"),
                [id.as_str()],
                session_row,
            )
            .optional()
            .map_err(|source| self.fault(source))
    }

    /// The sessions that `parent` delegated or that were forked from it, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Index`].
    pub fn children_of(&self, parent: &SessionId) -> Result<Vec<SessionRow>, StoreError> {
        self.query(
            &format!("{SELECT} WHERE parent = ?1 ORDER BY created_at, id"),
            [parent.as_str()],
            session_row,
        )
    }

    /// All that waits for a person, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Index`].
    pub fn pending_approvals(&self) -> Result<Vec<PendingRow>, StoreError> {
        self.query(
            "SELECT session, request, call_id, name, args, title, reason, offered_rule, requested_at
             FROM pending ORDER BY requested_at, session, seq",
            [],
            |row| {
                Ok(PendingRow {
                    session: id_at(row, 0)?,
                    id: row.get(1)?,
                    call_id: row.get(2)?,
                    name: row.get(3)?,
                    args: serde_json::from_str(&row.get::<_, String>(4)?).unwrap_or_default(),
                    title: row.get(5)?,
                    reason: row.get(6)?,
                    offered_rule: row.get(7)?,
                    requested_at: unsigned_at(row, 8)?,
                })
            },
        )
    }

    /// The jobs of one session, or of all, oldest first; with `ended` also those that are
    /// over.
    ///
    /// # Errors
    /// [`StoreError::Index`].
    pub fn jobs(
        &self,
        session: Option<&SessionId>,
        ended: bool,
    ) -> Result<Vec<JobRow>, StoreError> {
        self.query(
            "SELECT session, call_id, id, command, description, keep, started_at, outcome, ended_at, ran_for, written,
                 dropped, tail
             FROM jobs WHERE (?1 IS NULL OR session = ?1) AND (?2 OR outcome IS NULL)
             ORDER BY started_at, session, seq",
            params![session.map(SessionId::as_str), ended],
            job_row,
        )
    }

    /// Which rules let calls run, by session, the latest last.
    ///
    /// # Errors
    /// [`StoreError::Index`].
    pub fn rule_uses(&self) -> Result<Vec<RuleUse>, StoreError> {
        self.query(
            "SELECT session, cwd, layer, rule, last_at, uses
             FROM rule_uses JOIN sessions ON sessions.id = session
             ORDER BY last_at, session, layer, rule",
            [],
            |row| {
                Ok(RuleUse {
                    session: id_at(row, 0)?,
                    cwd: row.get(1)?,
                    layer: row.get(2)?,
                    rule: row.get(3)?,
                    last_at: unsigned_at(row, 4)?,
                    uses: unsigned_at(row, 5)?,
                })
            },
        )
    }

    /// What was said to and by models in all sessions: each word of `text` must be in
    /// the message, the last one as a beginning. Best first.
    ///
    /// # Errors
    /// [`StoreError::BadQuery`] without any letter or digit, [`StoreError::Index`].
    pub fn search(&self, text: &str, limit: usize) -> Result<Vec<SearchHit>, StoreError> {
        let query = search::query(text)
            .ok_or_else(|| StoreError::BadQuery(text.chars().take(64).collect()))?;
        let limit =
            i64::try_from(if limit == 0 { DEFAULT_LIMIT } else { limit }).unwrap_or(i64::MAX);
        self.query(search::SELECT, params![query, limit], search::hit)
    }

    fn query<T>(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map(params, read)?.collect())
            .map_err(|source| self.fault(source))
    }

    fn fault(&self, source: rusqlite::Error) -> StoreError {
        StoreError::Index {
            path: self.path.clone(),
            source,
        }
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

const SELECT: &str = "SELECT id, cwd, directories, title, first_text, created_at, updated_at, parent, depth, events, \
     turns, prompt_tokens, completion_tokens, cached_read_tokens, cached_write_tokens, thought_tokens, cost, steps, \
     unpriced_steps, context_tokens, open_turn, problem, (SELECT count(*) FROM pending WHERE session = sessions.id) \
     FROM sessions";

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: id_at(row, 0)?,
        cwd: row.get(1)?,
        additional_directories: serde_json::from_str(&row.get::<_, String>(2)?).unwrap_or_default(),
        title: row.get(3)?,
        first_text: row.get(4)?,
        created_at: unsigned_at(row, 5)?,
        updated_at: unsigned_at(row, 6)?,
        parent: row
            .get::<_, Option<String>>(7)?
            .and_then(|id| id.parse().ok()),
        depth: row.get(8)?,
        events: unsigned_at(row, 9)?,
        turns: unsigned_at(row, 10)?,
        usage: UsageTotals {
            prompt_tokens: unsigned_at(row, 11)?,
            completion_tokens: unsigned_at(row, 12)?,
            cached_read_tokens: unsigned_at(row, 13)?,
            cached_write_tokens: unsigned_at(row, 14)?,
            thought_tokens: unsigned_at(row, 15)?,
            cost: row.get(16)?,
            steps: unsigned_at(row, 17)?,
            unpriced_steps: unsigned_at(row, 18)?,
            context_tokens: row.get::<_, Option<i64>>(19)?.map(unsigned),
        },
        open_turn: row.get(20)?,
        problem: row.get(21)?,
        pending_approvals: unsigned_at(row, 22)?,
    })
}

fn job_row(row: &Row<'_>) -> rusqlite::Result<JobRow> {
    Ok(JobRow {
        session: id_at(row, 0)?,
        call_id: row.get(1)?,
        id: row.get(2)?,
        command: row.get(3)?,
        description: row.get(4)?,
        keep: row.get(5)?,
        started_at: unsigned_at(row, 6)?,
        outcome: row
            .get::<_, Option<String>>(7)?
            .and_then(|outcome| serde_json::from_str(&outcome).ok()),
        ended_at: row.get::<_, Option<i64>>(8)?.map(unsigned),
        ran_for: unsigned_at(row, 9)?,
        written: unsigned_at(row, 10)?,
        dropped: unsigned_at(row, 11)?,
        tail: row.get(12)?,
    })
}

fn id_at(row: &Row<'_>, column: usize) -> rusqlite::Result<SessionId> {
    row.get::<_, String>(column)?
        .parse()
        .map_err(|error: crate::id::BadSessionId| {
            rusqlite::Error::FromSqlConversionFailure(
                column,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })
}

fn unsigned_at(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(unsigned)
}

/// SQLite counts with a sign; what is beyond it is shown as the largest number.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// `<time>.<id>.<check>`: the check tells a cursor of ours from a made-up one.
fn cursor(updated_at: i64, id: &str) -> String {
    format!("{updated_at}.{id}.{}", cursor_check(updated_at, id))
}

fn parse_cursor(text: &str) -> Result<(i64, String), StoreError> {
    let parse = || {
        let mut fields = text.split('.');
        let (time, id, check) = (fields.next()?, fields.next()?, fields.next()?);
        let time: i64 = time.parse().ok()?;
        (fields.next().is_none() && check == cursor_check(time, id)).then(|| (time, id.to_owned()))
    };
    parse().ok_or_else(|| StoreError::BadCursor(text.chars().take(64).collect()))
}

fn cursor_check(updated_at: i64, id: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = Sha256::digest(format!("terret list cursor {updated_at} {id}"));
    hex::text(&hash.into()).chars().take(12).collect()
}

/// The file and those that SQLite keeps beside it.
fn files(path: &Path) -> [PathBuf; 3] {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    [path.to_owned(), beside("-wal"), beside("-shm")]
}
