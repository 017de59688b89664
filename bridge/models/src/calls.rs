//! The calls of one answer while they are being written. An answer's calls are given out
//! together once its finish marker is there: a stream that is cut yields no call at all
//! (`R054`), and the call that the length limit cut is an error for the model (`R055`).

use std::collections::HashSet;

use crate::message::{Conversation, Part, Role, ToolCall};
use crate::provider::{BadToolCall, StopReason, StreamEvent};
use crate::strict::parse_arguments;

/// The longest id of a server's that is kept: it stands in every event and frame of the call.
const LONGEST_ID: usize = 256;

/// Gives each call an id that the conversation does not have yet: providers without ids,
/// and those that count from zero in every answer, would make two calls one.
#[derive(Debug, Default)]
pub(crate) struct CallIds {
    taken: HashSet<String>,
    answer: usize,
    made: usize,
}

impl CallIds {
    pub(crate) fn new(conversation: &Conversation) -> Self {
        let mut ids = Self::default();
        for message in conversation.messages() {
            if message.role == Role::Assistant {
                ids.answer += 1;
            }
            for part in &message.parts {
                if let Part::ToolCall(call) = part {
                    ids.taken.insert(call.id.clone());
                }
            }
        }
        ids
    }

    /// The wanted id when it is free, else one made from the place in the conversation,
    /// so that the same request gives the same ids.
    pub(crate) fn assign(&mut self, wanted: Option<&str>) -> String {
        if let Some(wanted) = wanted.filter(|id| (1..=LONGEST_ID).contains(&id.len()))
            && self.taken.insert(wanted.to_owned())
        {
            return wanted.to_owned();
        }
        loop {
            let id = format!("call_{}_{}", self.answer, self.made);
            self.made += 1;
            if self.taken.insert(id.clone()) {
                return id;
            }
        }
    }
}

/// A call whose arguments are still coming.
#[derive(Debug)]
pub(crate) struct OpenCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) json: String,
}

/// Ends the calls of an answer that stopped for `stop`.
pub(crate) fn finish_calls(
    calls: impl ExactSizeIterator<Item = OpenCall>,
    stop: StopReason,
    out: &mut Vec<StreamEvent>,
) {
    let last = calls.len();
    for (position, call) in calls.enumerate() {
        let problem = match stop {
            StopReason::Length if position + 1 == last => Err(
                "the answer reached its length limit while this call was being written, so it \
                 was not run; make smaller calls, for example write a long file in parts"
                    .to_owned(),
            ),
            StopReason::Refusal => {
                Err("the provider stopped the answer, so this call was not run".to_owned())
            }
            _ if call.name.is_empty() => Err("the call names no tool".to_owned()),
            _ => parse_arguments(&call.json).map_err(|problem| {
                format!(
                    "the arguments of `{}` cannot be used, {problem}; send the call again with \
                     its arguments as one JSON object",
                    excerpt(&call.name)
                )
            }),
        };
        out.push(StreamEvent::ToolCallEnd(match problem {
            Ok(args) => Ok(ToolCall {
                id: call.id,
                name: call.name,
                args,
            }),
            Err(problem) => Err(BadToolCall {
                id: call.id,
                name: call.name,
                problem,
            }),
        }));
    }
}

/// The reason of a stop when the calls of the answer are known as well: servers say
/// `stop` after calls and `tool_calls` without one.
pub(crate) fn settle(stop: StopReason, has_calls: bool) -> StopReason {
    match (stop, has_calls) {
        (StopReason::End, true) => StopReason::ToolUse,
        (StopReason::ToolUse, false) => StopReason::End,
        (stop, _) => stop,
    }
}

/// Models have put a whole shell line where the name goes (`R057`).
fn excerpt(name: &str) -> String {
    name.chars()
        .filter(|character| !character.is_control())
        .take(64)
        .collect()
}
