//! Bringing one session's rows up to its log.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use super::{signed, unsigned};
use crate::error::StoreError;
use crate::event::{Allowance, Event, InjectedBy, JobOutcome, Part, Payload};
use crate::id::SessionId;
use crate::platform::FileIdentity;
use crate::projection::UsageTotals;
use crate::reader::{EventReader, Place};
use crate::store::Store;

/// Bytes of one message that are searched, and of a first prompt that is shown.
const SEARCHED: usize = 64 * 1024;
const SHOWN: usize = 200;

/// The columns of a session that grow with each event.
#[derive(Default)]
struct Totals {
    cwd: String,
    directories: Vec<String>,
    title: Option<String>,
    first_text: Option<String>,
    created_at: u64,
    updated_at: u64,
    parent: Option<String>,
    delegated: bool,
    depth: u32,
    events: u64,
    turns: u64,
    usage: UsageTotals,
    open_turn: bool,
}

/// A log as it lies in its folder.
#[derive(PartialEq, Eq)]
struct LogFile {
    /// Which file it is. With the time it was made, since a new file may get the number
    /// of one that was removed.
    name: String,
    size: u64,
    /// Nanoseconds of its last change.
    modified: i64,
}

impl LogFile {
    fn of(metadata: &fs::Metadata) -> Self {
        let nanoseconds = |time: std::io::Result<SystemTime>| {
            let passed = time.ok()?.duration_since(UNIX_EPOCH).ok()?;
            i64::try_from(passed.as_nanos()).ok()
        };
        let made = nanoseconds(metadata.created()).unwrap_or(0);
        Self {
            name: format!("{:?} made {made}", FileIdentity::of(metadata)),
            size: metadata.len(),
            modified: nanoseconds(metadata.modified()).unwrap_or(0),
        }
    }
}

/// What was read of a log.
struct Known {
    file: LogFile,
    place: Option<Place>,
    problem: bool,
    totals: Totals,
}

/// Reads what is new in a session's log.
#[expect(clippy::disallowed_methods, reason = "a session's own log file")]
pub(super) fn catch_up(
    connection: &mut Connection,
    store: &Store,
    id: &SessionId,
) -> rusqlite::Result<()> {
    let path = store.log_path(id);
    let Ok(metadata) = fs::metadata(&path) else {
        // Deleted since the folder was listed; the caller forgets it the next time.
        return Ok(());
    };
    let file = LogFile::of(&metadata);
    if known(connection, id)?.is_some_and(|known| is_current(&known, &file)) {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it meanwhile.
    let before = known(&transaction, id)?;
    if before
        .as_ref()
        .is_some_and(|known| is_current(known, &file))
    {
        return Ok(());
    }
    let (totals, place) = match before {
        Some(Known {
            file: same,
            place: Some(place),
            problem: false,
            totals,
            ..
        }) if same.name == file.name && place.offset <= file.size => (totals, Some(place)),
        // Replaced, cut, or damaged when it was last read: all of it is read again.
        _ => {
            forget_in(&transaction, id.as_str())?;
            (Totals::default(), None)
        }
    };
    let reader = match &place {
        Some(place) => EventReader::resume(id, &path, place),
        None => store.read(id, 0),
    };
    match reader {
        Ok(reader) => read_new(&transaction, id, reader, totals, &file)?,
        Err(StoreError::NotFound { .. }) => return Ok(()),
        Err(error) => write_row(
            &transaction,
            id,
            &totals,
            Some(&error.to_string()),
            &file,
            None,
        )?,
    }
    transaction.commit()?;
    Ok(())
}

fn is_current(known: &Known, file: &LogFile) -> bool {
    match &known.place {
        Some(place) if !known.problem => known.file.name == file.name && place.offset == file.size,
        // Reading a damaged log again gives nothing new until it changes.
        _ => known.file == *file,
    }
}

fn read_new(
    transaction: &Transaction<'_>,
    id: &SessionId,
    mut reader: EventReader,
    mut totals: Totals,
    file: &LogFile,
) -> rusqlite::Result<()> {
    let mut problem = None;
    for event in reader.by_ref() {
        match event {
            Ok(event) => {
                totals.apply(&event);
                apply_rows(transaction, id.as_str(), &event)?;
            }
            Err(error) => {
                let newer = matches!(error, StoreError::Newer { .. } | StoreError::Io { .. });
                problem.get_or_insert_with(|| error.to_string());
                if newer {
                    break;
                }
            }
        }
    }
    let place = reader.place();
    write_row(transaction, id, &totals, problem.as_deref(), file, place)?;
    Ok(())
}

impl Totals {
    fn apply(&mut self, event: &Event) {
        self.events += 1;
        self.updated_at = event.at;
        self.usage.apply(event);
        match &event.payload {
            Payload::SessionCreated {
                parent_id,
                depth,
                cwd,
                additional_directories,
                ..
            } => {
                self.created_at = event.at;
                self.cwd.clone_from(cwd);
                self.directories.clone_from(additional_directories);
                self.delegated = parent_id.is_some();
                self.parent = parent_id.as_ref().map(|id| id.as_str().to_owned());
                self.depth = *depth;
            }
            // A copy is the person's own, whatever it was copied from.
            Payload::SessionForked { from, .. } => {
                self.parent = Some(from.as_str().to_owned());
                self.delegated = false;
            }
            Payload::RootsSet {
                additional_directories,
            } => self.directories.clone_from(additional_directories),
            Payload::SessionTitled { title } => self.title = Some(title.clone()),
            Payload::UserMessage { text, .. } if self.first_text.is_none() => {
                self.first_text = Some(beginning(text, SHOWN).to_owned());
            }
            Payload::TurnStart { .. } => {
                self.turns += 1;
                self.open_turn = true;
            }
            Payload::TurnEnd { .. } => self.open_turn = false,
            _ => {}
        }
    }
}

fn apply_rows(transaction: &Transaction<'_>, id: &str, event: &Event) -> rusqlite::Result<()> {
    match &event.payload {
        Payload::UserMessage { text, .. }
        | Payload::ContextInjected {
            text,
            source: InjectedBy::Steer,
            ..
        } => add_message(transaction, id, event, "user", text),
        Payload::AssistantMessage { parts, .. } => {
            let texts: Vec<&str> = parts
                .iter()
                .filter_map(|part| match part {
                    Part::Text { text } => Some(text.as_str()),
                    _ => None,
                })
                .collect();
            add_message(transaction, id, event, "assistant", &texts.join("\n"))
        }
        Payload::ApprovalRequested {
            id: request,
            call_id,
            name,
            args,
            title,
            reason,
            offered_rule,
            ..
        } => transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO pending VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                id,
                signed(event.seq),
                request,
                call_id,
                name,
                args.to_string(),
                title,
                reason,
                offered_rule,
                signed(event.at)
            ])
            .map(drop),
        Payload::ApprovalResolved { id: request, .. } => transaction
            .prepare_cached("DELETE FROM pending WHERE session = ?1 AND request = ?2")?
            .execute([id, request])
            .map(drop),
        Payload::JobStarted { .. }
        | Payload::JobProgress { .. }
        | Payload::JobEnded { .. }
        | Payload::SessionForked { .. } => apply_job(transaction, id, event),
        Payload::ToolStarted {
            allowed: Some(Allowance::Rule { layer, rule }),
            ..
        } => transaction
            .prepare_cached(
                "INSERT INTO rule_uses VALUES (?1, ?2, ?3, ?4, 1)
                 ON CONFLICT DO UPDATE SET last_at = max(last_at, excluded.last_at), uses = uses + 1",
            )?
            .execute(params![id, layer, rule, signed(event.at)])
            .map(drop),
        Payload::TurnStart { .. } | Payload::TurnEnd { .. } => transaction
            .prepare_cached("DELETE FROM pending WHERE session = ?1")?
            .execute([id])
            .map(drop),
        _ => Ok(()),
    }
}

/// The row of a job, keyed by its session and the call that started it.
fn apply_job(transaction: &Transaction<'_>, id: &str, event: &Event) -> rusqlite::Result<()> {
    match &event.payload {
        Payload::JobStarted {
            id: job,
            call_id,
            command,
            description,
            keep,
        } => transaction
            .prepare_cached(
                "INSERT OR IGNORE INTO jobs VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL, NULL, 0, 0, 0, '')",
            )?
            .execute(params![
                id,
                call_id,
                job,
                signed(event.seq),
                command,
                description,
                keep,
                signed(event.at)
            ])
            .map(drop),
        Payload::JobProgress {
            id: job,
            call_id,
            tail,
            written,
            ..
        } => transaction
            .prepare_cached(
                "UPDATE jobs SET tail = ?4, written = ?5
                 WHERE session = ?1 AND call_id = ?2 AND id = ?3 AND outcome IS NULL",
            )?
            .execute(params![id, call_id, job, tail, signed(*written)])
            .map(drop),
        Payload::JobEnded {
            id: job,
            call_id,
            outcome,
            ran_for,
            written,
            dropped,
            tail,
            ..
        } => transaction
            .prepare_cached(
                "UPDATE jobs SET outcome = ?4, ended_at = ?5, ran_for = ?6, written = ?7, dropped = ?8, tail = ?9
                 WHERE session = ?1 AND call_id = ?2 AND id = ?3 AND outcome IS NULL",
            )?
            .execute(params![
                id,
                call_id,
                job,
                outcome_text(outcome),
                signed(event.at),
                signed(*ran_for),
                signed(*written),
                signed(*dropped),
                tail
            ])
            .map(drop),
        // The copy has the log and not the processes.
        Payload::SessionForked { .. } => {
            let reason = crate::projection::jobs::LEFT_BEHIND.to_owned();
            transaction
                .prepare_cached(
                    "UPDATE jobs SET outcome = ?2, ended_at = ?3 WHERE session = ?1 AND outcome IS NULL",
                )?
                .execute(params![
                    id,
                    outcome_text(&JobOutcome::Lost { reason }),
                    signed(event.at)
                ])
                .map(drop)
        }
        _ => Ok(()),
    }
}

fn outcome_text(outcome: &JobOutcome) -> String {
    serde_json::to_string(outcome).unwrap_or_default()
}

fn add_message(
    transaction: &Transaction<'_>,
    id: &str,
    event: &Event,
    role: &str,
    text: &str,
) -> rusqlite::Result<()> {
    if text.trim().is_empty() {
        return Ok(());
    }
    transaction
        .prepare_cached(
            "INSERT INTO messages (session, seq, at, role, text) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?
        .execute(params![
            id,
            signed(event.seq),
            signed(event.at),
            role,
            beginning(text, SEARCHED)
        ])
        .map(drop)
}

fn write_row(
    transaction: &Transaction<'_>,
    id: &SessionId,
    totals: &Totals,
    problem: Option<&str>,
    file: &LogFile,
    place: Option<Place>,
) -> rusqlite::Result<()> {
    let usage = &totals.usage;
    let (offset, chain) = match place {
        Some(place) => (
            signed(place.offset),
            String::from_utf8_lossy(&place.chain).into_owned(),
        ),
        None => (0, String::new()),
    };
    transaction
        .prepare_cached(
            "INSERT OR REPLACE INTO sessions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
             ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28)",
        )?
        .execute(params![
            id.as_str(),
            totals.cwd,
            serde_json::Value::from(totals.directories.clone()).to_string(),
            totals.title,
            totals.first_text,
            signed(totals.created_at),
            signed(totals.updated_at),
            totals.parent,
            totals.delegated,
            totals.depth,
            signed(totals.events),
            signed(totals.turns),
            signed(usage.prompt_tokens),
            signed(usage.completion_tokens),
            signed(usage.cached_read_tokens),
            signed(usage.cached_write_tokens),
            signed(usage.thought_tokens),
            usage.cost,
            signed(usage.steps),
            signed(usage.unpriced_steps),
            usage.context_tokens.map(signed),
            totals.open_turn,
            problem,
            file.name,
            signed(file.size),
            file.modified,
            offset,
            chain
        ])
        .map(drop)
}

fn known(connection: &Connection, id: &SessionId) -> rusqlite::Result<Option<Known>> {
    let sql = "SELECT file, size, offset, chain, problem IS NOT NULL, cwd, directories, title, first_text, created_at, \
               updated_at, parent, delegated, depth, events, turns, prompt_tokens, completion_tokens, \
               cached_read_tokens, cached_write_tokens, thought_tokens, cost, steps, unpriced_steps, context_tokens, \
               open_turn, modified FROM sessions WHERE id = ?1";
    connection
        .prepare_cached(sql)?
        .query_row([id.as_str()], |row| {
            let number = |column: usize| row.get(column).map(unsigned);
            let events = number(14)?;
            let chain: String = row.get(3)?;
            Ok(Known {
                file: LogFile {
                    name: row.get(0)?,
                    size: number(1)?,
                    modified: row.get(26)?,
                },
                place: match chain.as_bytes().try_into() {
                    Ok(chain) => Some(Place {
                        offset: number(2)?,
                        next_seq: events,
                        chain,
                    }),
                    Err(_) => None,
                },
                problem: row.get(4)?,
                totals: Totals {
                    cwd: row.get(5)?,
                    directories: serde_json::from_str(&row.get::<_, String>(6)?)
                        .unwrap_or_default(),
                    title: row.get(7)?,
                    first_text: row.get(8)?,
                    created_at: number(9)?,
                    updated_at: number(10)?,
                    parent: row.get(11)?,
                    delegated: row.get(12)?,
                    depth: row.get(13)?,
                    events,
                    turns: number(15)?,
                    usage: UsageTotals {
                        prompt_tokens: number(16)?,
                        completion_tokens: number(17)?,
                        cached_read_tokens: number(18)?,
                        cached_write_tokens: number(19)?,
                        thought_tokens: number(20)?,
                        cost: row.get(21)?,
                        steps: number(22)?,
                        unpriced_steps: number(23)?,
                        context_tokens: row.get::<_, Option<i64>>(24)?.map(unsigned),
                    },
                    open_turn: row.get(25)?,
                },
            })
        })
        .optional()
}

/// Removes all rows of a session whose log is gone.
pub(super) fn forget(connection: &mut Connection, id: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    forget_in(&transaction, id)?;
    transaction.commit()
}

fn forget_in(transaction: &Transaction<'_>, id: &str) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM sessions WHERE id = ?1",
        "DELETE FROM pending WHERE session = ?1",
        "DELETE FROM jobs WHERE session = ?1",
        "DELETE FROM rule_uses WHERE session = ?1",
        "DELETE FROM messages WHERE session = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([id])?;
    }
    Ok(())
}

/// The first bytes of a text, cut between characters.
fn beginning(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}
