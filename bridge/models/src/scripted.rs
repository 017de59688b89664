//! The embedded model: replies from a JSONL file, for the demo and for tests. A reply
//! depends on the request alone, so a restart in the middle of a session changes nothing.
//!
//! One reply a line; empty lines and lines that begin with `#` are passed over:
//!
//! ```json
//! {"match":"regex","agent":"regex","think":"…","say":"text",
//!  "calls":[{"id":"c1","name":"Read","args":{"file_path":"a.txt"}}],
//!  "usage":{"input":10,"output":5},"stop":"end|length|refusal","chunk":16,"delay_ms":0,
//!  "fail":{"status":529,"retry_after":1,"times":1},"cut_after":40}
//! ```
//!
//! All keys are optional. `agent` is looked for in the session's first user text, `match`
//! in the text of the request's last message, tool results included. Of the lines whose
//! `agent` fits, the first whose `match` fits is taken, else the k-th line without
//! `match`, k being the number of assistant messages in the request. A `fail` line answers
//! as told `times` times (1 unless told) and then is passed over; without `match` it stands
//! before the line that follows it and takes no number of its own. Text goes out in pieces
//! of `chunk` characters (16) with `delay_ms` between them, and after `cut_after`
//! characters of output the stream breaks off. `args` that is a string is sent as the
//! model's own raw text, which may be no JSON. A call without `id` is given one. `{{1}}` in
//! `say` and in `args` stands for what the first group of `match` found, such as the id that
//! a result named; `{{2}}` for the second one's, and so on.

mod script;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::calls::{CallIds, OpenCall, finish_calls, settle};
use crate::emit::{self, Emitter};
use crate::failure::{Censor, ErrorBody, status_error};
use crate::http::{is_status, passes};
use crate::message::{Conversation, Message, Part, Role};
use crate::provider::{Capabilities, ModelError, ModelStream, Provider, Request, StreamEvent};
use crate::retry::{Backoff, Failure, RetryPolicy};
use script::{Answer, Fail, Line, Reply};

/// The name before the colon.
const NAME: &str = "scripted";
/// Characters of a request that an error repeats.
const ASKED: usize = 200;

/// One script. How often its `fail` lines have answered lives here and nowhere else, so
/// all agents of a process share one instance.
#[derive(Debug)]
pub struct Scripted {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The file, or the name that the text was given.
    name: String,
    lines: Vec<Line>,
    /// How often each line has failed, by its place.
    failed: Vec<AtomicU32>,
    backoff: Backoff,
}

impl Scripted {
    /// Reads a script from a file.
    ///
    /// # Errors
    /// [`ModelError::Script`] when the file cannot be read or a line is wrong; the message
    /// names the file and the line.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ModelError> {
        Self::open_with(path.as_ref(), RetryPolicy::default())
    }

    /// Reads a script from text. `name` stands for the file in messages.
    ///
    /// # Errors
    /// As [`Scripted::open`].
    pub fn from_text(name: &str, text: &str) -> Result<Self, ModelError> {
        Self::from_text_with(name, text, RetryPolicy::default())
    }

    /// As [`Scripted::from_text`], with waits of its own for lines that fail.
    ///
    /// # Errors
    /// As [`Scripted::open`].
    pub fn from_text_with(name: &str, text: &str, retry: RetryPolicy) -> Result<Self, ModelError> {
        let lines = script::read(name, text)?;
        let failed = lines.iter().map(|_| AtomicU32::new(0)).collect();
        Ok(Self {
            inner: Arc::new(Inner {
                name: name.to_owned(),
                lines,
                failed,
                backoff: Backoff::new(retry),
            }),
        })
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the operator's own file, read once at the start"
    )]
    pub(crate) fn open_with(path: &Path, retry: RetryPolicy) -> Result<Self, ModelError> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            ModelError::Script(format!(
                "the script `{name}` cannot be read: {error}; name a file of replies, as in \
                 `scripted:replies.jsonl`"
            ))
        })?;
        Self::from_text_with(&name, &text, retry)
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        NAME
    }

    fn capabilities(&self, _model: &str) -> Capabilities {
        Capabilities {
            images: true,
            thinking: true,
            context_window: Some(200_000),
        }
    }

    fn ready(&self) -> Result<(), ModelError> {
        Ok(())
    }

    fn stream(&self, request: Request) -> ModelStream {
        let inner = self.inner.clone();
        emit::stream(move |emit| async move {
            let asked = Asked::of(&request.conversation);
            let answer = inner
                .backoff
                .run(&emit, || {
                    let picked = inner.pick(&asked);
                    async move { picked }
                })
                .await?;
            play(&answer, &request.conversation, &emit).await
        })
    }
}

/// What a reply is chosen by.
struct Asked {
    first: String,
    last: String,
    answers: usize,
}

impl Asked {
    fn of(conversation: &Conversation) -> Self {
        let messages = conversation.messages();
        Self {
            first: messages
                .iter()
                .find(|message| message.role == Role::User)
                .map(|message| message.text())
                .unwrap_or_default(),
            last: messages
                .last()
                .map(|message| whole_text(message))
                .unwrap_or_default(),
            answers: messages
                .iter()
                .filter(|message| message.role == Role::Assistant)
                .count(),
        }
    }
}

/// The text of a message, tool results included.
fn whole_text(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        match part {
            Part::Text(piece) => text.push_str(piece),
            Part::ToolResult(result) => match &result.content {
                Ok(piece) | Err(piece) => text.push_str(piece),
            },
            Part::Thinking { .. } | Part::Image(_) | Part::ToolCall(_) => {}
        }
    }
    text
}

impl Inner {
    /// The answer to a request, or the failure that its line tells.
    fn pick(&self, asked: &Asked) -> Result<Cow<'_, Answer>, Failure> {
        let fitting = || {
            self.lines.iter().zip(&self.failed).filter(|(line, _)| {
                line.agent
                    .as_ref()
                    .is_none_or(|agent| agent.is_match(&asked.first))
            })
        };
        for (line, failed) in fitting() {
            let Some(pattern) = &line.pattern else {
                continue;
            };
            let Some(found) = pattern.captures(&asked.last) else {
                continue;
            };
            match &line.reply {
                Reply::Answer(answer) if found.len() > 1 => {
                    return Ok(Cow::Owned(answer.filled(&found)));
                }
                Reply::Answer(answer) => return Ok(Cow::Borrowed(answer)),
                Reply::Fail(fail) => self.fail(fail, failed)?,
            }
        }
        let mut number = 0;
        for (line, failed) in fitting().filter(|(line, _)| line.pattern.is_none()) {
            match &line.reply {
                Reply::Answer(answer) if number == asked.answers => {
                    return Ok(Cow::Borrowed(answer));
                }
                Reply::Answer(_) => number += 1,
                Reply::Fail(fail) if number == asked.answers => self.fail(fail, failed)?,
                Reply::Fail(_) => {}
            }
        }
        let mut last: String = asked.last.chars().take(ASKED).collect();
        if last.len() < asked.last.len() {
            last.push('…');
        }
        Err(Failure::Final(ModelError::Script(format!(
            "the script `{}` has no reply for request {} ({} of its lines fit the session), \
             whose last message is: {}; add a line for it",
            self.name,
            asked.answers + 1,
            fitting().count(),
            last.escape_debug()
        ))))
    }

    /// Fails as the line tells while it has times left.
    fn fail(&self, fail: &Fail, failed: &AtomicU32) -> Result<(), Failure> {
        let spent = failed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                (count < fail.times).then_some(count + 1)
            })
            .is_err();
        if spent {
            return Ok(());
        }
        let body = ErrorBody {
            message: "the script tells this request to fail".to_owned(),
            ..ErrorBody::default()
        };
        let error = status_error(NAME, fail.status, &body, &Censor::new([], None));
        Err(if passes(fail.status) && is_status(&error) {
            Failure::Passing {
                error,
                after: fail.retry_after,
            }
        } else {
            Failure::Final(error)
        })
    }
}

/// Plays one answer into the stream.
async fn play(
    answer: &Answer,
    conversation: &Conversation,
    emit: &Emitter,
) -> Result<(), ModelError> {
    let mut output = Output {
        emit,
        answer,
        left: answer.cut_after,
        begun: false,
    };
    if let Some(think) = &answer.think {
        output.pieces(think, StreamEvent::Thinking).await?;
        emit.send(StreamEvent::ThinkingEnd { signature: None })
            .await;
    }
    if let Some(say) = &answer.say {
        output.pieces(say, StreamEvent::Text).await?;
    }
    let mut ids = CallIds::new(conversation);
    let mut calls = Vec::new();
    for call in &answer.calls {
        let id = ids.assign(call.id.as_deref());
        emit.send(StreamEvent::ToolCallStart {
            id: id.clone(),
            name: call.name.clone(),
        })
        .await;
        output
            .pieces(&call.json, |json| StreamEvent::ToolCallDelta {
                id: id.clone(),
                json,
            })
            .await?;
        calls.push(OpenCall {
            id,
            name: call.name.clone(),
            json: call.json.clone(),
        });
    }
    if output.left.is_some() {
        return Err(cut());
    }
    let stop = settle(answer.stop, !calls.is_empty());
    let mut events = Vec::new();
    finish_calls(calls.into_iter(), stop, &mut events);
    events.extend(answer.usage.map(StreamEvent::Usage));
    events.push(StreamEvent::Stop(stop));
    emit.send_all(&mut events).await;
    Ok(())
}

struct Output<'a> {
    emit: &'a Emitter,
    answer: &'a Answer,
    /// Characters until the stream is cut.
    left: Option<usize>,
    begun: bool,
}

impl Output<'_> {
    async fn pieces(
        &mut self,
        text: &str,
        event: impl Fn(String) -> StreamEvent,
    ) -> Result<(), ModelError> {
        let mut characters = text.chars().peekable();
        while characters.peek().is_some() {
            if self.left == Some(0) {
                return Err(cut());
            }
            if self.begun && !self.answer.delay.is_zero() {
                tokio::time::sleep(self.answer.delay).await;
            }
            self.begun = true;
            let size = self.answer.chunk.min(self.left.unwrap_or(usize::MAX));
            let piece: String = characters.by_ref().take(size).collect();
            if let Some(left) = &mut self.left {
                *left = left.saturating_sub(size);
            }
            self.emit.send(event(piece)).await;
        }
        Ok(())
    }
}

fn cut() -> ModelError {
    ModelError::Cut {
        provider: NAME.to_owned(),
        message: "the script cuts its answer here; send the prompt again".to_owned(),
    }
}

#[cfg(test)]
mod tests;
