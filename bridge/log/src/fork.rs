//! A session that goes on from a point of another one.
//!
//! The copied lines are the source's bytes, so both logs have one chain up to the fork
//! (`Terret spec §1.13`, check 13). Beyond the seed: a fork may not part a call from
//! its result, and a turn that is open at the fork is closed in the child, which
//! otherwise would run the source's calls a second time.

use std::fs::File;
use std::io::{self, BufReader, Read as _};

use crate::error::StoreError;
use crate::event::{Event, Payload, TurnStatus};
use crate::id::SessionId;
use crate::line;
use crate::projection::SessionState;
use crate::reader::{Found, LineReader, open_log};
use crate::session_log::{Position, SessionLog};
use crate::store::Store;

/// Why the child's copy of an open turn ends.
const FORKED: &str = "the session was forked here";

impl Store {
    /// Makes `child` from the first `boundary` events of `source`, or from all of them,
    /// and appends `session/forked`. The source is only read; it may have a writer.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Exists`], [`StoreError::Broken`] when the
    /// copied part is damaged, [`StoreError::Boundary`] when it is empty, longer than
    /// the log, or would part a call from its result; nothing is left of the child then.
    pub fn fork(
        &self,
        source: &SessionId,
        boundary: Option<u64>,
        child: SessionId,
    ) -> Result<(SessionLog, SessionState), StoreError> {
        let copied = self.read_prefix(source, boundary)?;
        let Copied {
            position,
            mut state,
            file,
            path,
        } = copied;
        let bytes = BufReader::new(file).take(position.length);
        let mut log =
            self.create_with(child.clone(), bytes, position)
                .map_err(|error| match error {
                    CreateError::Store(error) => error,
                    CreateError::Read(error) => StoreError::io("read", &path)(error),
                })?;
        let mut events = vec![Payload::SessionForked {
            from: source.clone(),
            boundary,
        }];
        events.extend(closing_events(&state, FORKED));
        match log.append_all(events) {
            Ok(events) => {
                events.iter().for_each(|event| state.apply(event));
                Ok((log, state))
            }
            Err(error) => {
                drop(log);
                self.delete(&child)?;
                Err(error.into())
            }
        }
    }

    /// Copies what can still be read of a damaged session into a new one, which then
    /// can go on (R042). Events get new numbers, calls without a result are settled.
    /// Gives the new session and how many places of the source could not be read.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Newer`], [`StoreError::Exists`],
    /// [`StoreError::Boundary`] when no event can be read, [`StoreError::Io`].
    pub fn salvage(
        &self,
        source: &SessionId,
        child: SessionId,
    ) -> Result<(SessionLog, SessionState, u64), StoreError> {
        let mut lost = 0;
        let mut state = SessionState::default();
        let mut reader = self.read(source, 0)?.peekable();
        while let Some(Err(StoreError::Broken { .. })) = reader.peek() {
            lost += 1;
            reader.next();
        }
        let begins = matches!(
            reader.peek(),
            Some(Ok(Event {
                payload: Payload::SessionCreated { .. },
                ..
            }))
        );
        if !begins {
            if let Some(Err(error)) = reader.next() {
                return Err(error);
            }
            let why = "its `session/created` cannot be read, so its folder is not known".to_owned();
            return Err(StoreError::Boundary {
                id: source.clone(),
                boundary: 0,
                why,
            });
        }
        let mut log = self.create(child.clone())?;
        let mut old_numbers = Vec::new();
        let result = reader.try_for_each(|event| {
            match event {
                Ok(event) => match log.append_at(renumbered(event.payload, &old_numbers), event.at)
                {
                    Ok(copied) => {
                        old_numbers.push(event.seq);
                        state.apply(&copied);
                    }
                    Err(_) => lost += 1,
                },
                Err(StoreError::Broken { .. }) => lost += 1,
                Err(other) => return Err(other),
            }
            Ok(())
        });
        let result = result.and_then(|()| {
            let mut events = vec![Payload::SessionForked {
                from: source.clone(),
                boundary: None,
            }];
            events.extend(closing_events(&state, "the session was salvaged here"));
            Ok(log.append_all(events)?)
        });
        match result {
            Ok(events) => {
                events.iter().for_each(|event| state.apply(event));
                Ok((log, state, lost))
            }
            Err(error) => {
                drop(log);
                self.delete(&child)?;
                Err(error)
            }
        }
    }

    fn read_prefix(&self, source: &SessionId, boundary: Option<u64>) -> Result<Copied, StoreError> {
        let path = self.log_path(source);
        let refuse = |boundary: u64, why: String| StoreError::Boundary {
            id: source.clone(),
            boundary,
            why,
        };
        if boundary == Some(0) {
            return Err(refuse(0, "there is nothing to copy".to_owned()));
        }
        let file = open_log(source, &path)?;
        let reading = file.try_clone().map_err(StoreError::io("open", &path))?;
        let mut lines = LineReader::new(BufReader::new(reading), 0);
        let mut position = Position::START;
        let mut state = SessionState::default();
        let mut last_whole = 0;
        while boundary.is_none_or(|boundary| position.next_seq < boundary) {
            let line = match lines.next_line().map_err(StoreError::io("read", &path))? {
                Found::Line(line) => line,
                Found::TooLong => {
                    let why = "a line is longer than any that is written".to_owned();
                    return Err(StoreError::Broken {
                        id: source.clone(),
                        seq: position.next_seq,
                        why,
                    });
                }
                Found::Unfinished | Found::End => break,
            };
            let (event, chain) = line::decode(line, position.next_seq, Some(&position.chain))
                .map_err(|bad| bad.into_error(source, position.next_seq))?;
            position.follow(&event, chain, lines.offset);
            state.apply(&event);
            if can_fork(&state) {
                last_whole = position.next_seq;
            }
        }
        if let Some(wanted) = boundary.filter(|wanted| *wanted > position.next_seq) {
            return Err(refuse(
                wanted,
                format!("it has {} events", position.next_seq),
            ));
        }
        if position.next_seq == 0 {
            return Err(refuse(0, "there is nothing to copy".to_owned()));
        }
        if let Some(wanted) = boundary.filter(|_| !can_fork(&state)) {
            let hint = if last_whole > 0 {
                format!("; {last_whole} would do")
            } else {
                String::new()
            };
            return Err(refuse(
                wanted,
                format!("a step would be cut, and a call parted from its result{hint}"),
            ));
        }
        // The clone shares its place in the file with the original.
        let mut file = file;
        io::Seek::rewind(&mut file).map_err(StoreError::io("read", &path))?;
        Ok(Copied {
            position,
            state,
            file,
            path,
        })
    }
}

struct Copied {
    position: Position,
    state: SessionState,
    file: File,
    path: std::path::PathBuf,
}

/// Why a log with given content could not be made.
pub(crate) enum CreateError {
    Store(StoreError),
    Read(io::Error),
}

/// True where no step is cut: an explicit boundary must be such a place.
fn can_fork(state: &SessionState) -> bool {
    state
        .turn
        .open
        .as_ref()
        .is_none_or(|open| open.owed.is_empty() && !open.step_open)
}

/// What a copy needs so that nothing of the source's open turn goes on in it: a
/// verdict for each request, a result for each call, the end of step and turn.
pub(crate) fn closing_events(state: &SessionState, why: &str) -> Vec<Payload> {
    let Some(open) = &state.turn.open else {
        return Vec::new();
    };
    let mut events: Vec<Payload> = state
        .approvals
        .pending()
        .iter()
        .map(|request| Payload::ApprovalResolved {
            id: request.id.clone(),
            call_id: request.call_id.clone(),
            verdict: crate::event::Verdict::Cancelled,
            reason: Some(why.to_owned()),
            by: "cancel".to_owned(),
            scope: None,
        })
        .collect();
    for call in &open.owed {
        if !call.announced {
            let (id, name, args) = (call.id.clone(), call.name.clone(), call.args.clone());
            events.push(Payload::ToolCall { id, name, args });
        }
        let error = if call.started {
            format!("{why} while this call ran; here it has no result")
        } else {
            format!("{why} before this call ran")
        };
        events.push(Payload::ToolResult {
            id: call.id.clone(),
            content: None,
            error: Some(error),
            images: Vec::new(),
        });
    }
    if open.step_open {
        events.push(Payload::StepEnd {
            n: open.steps,
            usage: None,
        });
    }
    events.push(Payload::TurnEnd {
        status: TurnStatus::Cancelled,
        reason: Some(why.to_owned()),
    });
    events
}

/// A payload that names another event by number, moved to a place where those before
/// it may have moved too.
fn renumbered(payload: Payload, old_numbers: &[u64]) -> Payload {
    match payload {
        Payload::SessionCompacted { upto_seq, summary } => {
            let covered = old_numbers.partition_point(|old| *old <= upto_seq) as u64;
            Payload::SessionCompacted {
                upto_seq: covered.saturating_sub(1),
                summary,
            }
        }
        other => other,
    }
}

impl Position {
    /// Moves behind an event that was read.
    pub(crate) fn follow(&mut self, event: &Event, chain: line::Chain, offset: u64) {
        if let Payload::SessionCompacted { upto_seq, .. } = event.payload {
            self.compacted = self.compacted.max(Some(upto_seq));
        }
        self.length = offset;
        self.next_seq = event.seq + 1;
        self.chain = chain;
    }
}
