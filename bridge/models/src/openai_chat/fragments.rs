//! Puts the calls of an answer together from fragments (`R056`). The index alone does not
//! tell calls apart: servers give all parallel calls index 0, leave the index out, leave
//! the id out, or send it late. A new id or name always begins a new call.

use serde_json::Value;

use crate::calls::{CallIds, OpenCall};
use crate::http::DecodeError;
use crate::provider::StreamEvent;
use crate::strict::parse_arguments;

/// What the arguments of one call may weigh, and how many calls one answer may make.
const MAX_ARGUMENTS: usize = crate::sse::MAX_EVENT_BYTES;
const MAX_CALLS: usize = 512;

pub(super) struct Fragments {
    ids: CallIds,
    calls: Vec<Call>,
}

#[derive(Default)]
struct Call {
    index: Option<i64>,
    /// As the server named it.
    id: Option<String>,
    name: String,
    json: String,
    /// The id under which the call was announced, from its name on.
    announced: Option<String>,
}

/// One fragment; what is empty is as if it were missing.
struct Fragment<'a> {
    index: Option<i64>,
    id: Option<&'a str>,
    name: Option<&'a str>,
    json: String,
}

impl Fragments {
    pub(super) fn new(ids: CallIds) -> Self {
        Self {
            ids,
            calls: Vec::new(),
        }
    }

    /// Adds a fragment to the call it belongs to.
    pub(super) fn take(
        &mut self,
        value: &Value,
        out: &mut Vec<StreamEvent>,
    ) -> Result<(), DecodeError> {
        let fragment = Fragment::read(value);
        let place = match self.place(&fragment) {
            Some(place) => place,
            None => {
                if self.calls.len() >= MAX_CALLS {
                    return Err(DecodeError::Protocol(
                        "the answer makes too many calls".to_owned(),
                    ));
                }
                self.calls.push(Call {
                    index: fragment.index,
                    ..Call::default()
                });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(place) else {
            return Ok(());
        };
        if let (None, Some(id)) = (&call.id, fragment.id) {
            call.id = Some(id.to_owned());
        }
        if let (true, Some(name)) = (call.name.is_empty(), fragment.name) {
            name.clone_into(&mut call.name);
        }
        if call.json.len() + fragment.json.len() > MAX_ARGUMENTS {
            return Err(DecodeError::Protocol("a call is too large".to_owned()));
        }
        call.json.push_str(&fragment.json);
        match &call.announced {
            Some(id) if !fragment.json.is_empty() => out.push(StreamEvent::ToolCallDelta {
                id: id.clone(),
                json: fragment.json,
            }),
            None if !call.name.is_empty() => announce(call, &mut self.ids, out),
            _ => {}
        }
        Ok(())
    }

    /// All calls, in the order in which they began.
    pub(super) fn finish(&mut self, out: &mut Vec<StreamEvent>) -> Vec<OpenCall> {
        let mut finished = Vec::new();
        for mut call in std::mem::take(&mut self.calls) {
            if call.announced.is_none() {
                announce(&mut call, &mut self.ids, out);
            }
            finished.push(OpenCall {
                id: call.announced.unwrap_or_default(),
                name: call.name,
                json: call.json,
            });
        }
        finished
    }

    /// The call that a fragment continues; nothing when it begins one.
    fn place(&self, fragment: &Fragment<'_>) -> Option<usize> {
        let same_index = |call: &Call| match (call.index, fragment.index) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let mut backwards = self.calls.iter().enumerate().rev();
        if let Some(id) = fragment.id {
            let known = backwards
                .clone()
                .find(|(_, call)| call.id.as_deref() == Some(id) && same_index(call));
            if let Some((place, call)) = known {
                return (!call.differs_in_name(fragment)).then_some(place);
            }
        }
        // Without an index the last call is meant.
        let (place, call) =
            backwards.find(|(_, call)| fragment.index.is_none() || call.index == fragment.index)?;
        let begins = match (fragment.id, &call.id) {
            // Another id, since its own was looked for above.
            (Some(_), Some(_)) => true,
            // The id comes late; with a name once more it is a new call's.
            (Some(_), None) => fragment.name.is_some() && !call.name.is_empty(),
            (None, _) => call.differs_in_name(fragment) || call.is_begun_again(fragment),
        };
        (!begins).then_some(place)
    }
}

impl Call {
    fn differs_in_name(&self, fragment: &Fragment<'_>) -> bool {
        !self.name.is_empty() && fragment.name.is_some_and(|name| name != self.name)
    }

    /// A name that comes again without an id: servers that repeat it in each fragment do so
    /// while the arguments are open; after whole ones it is a second call of the tool.
    fn is_begun_again(&self, fragment: &Fragment<'_>) -> bool {
        fragment.name.is_some()
            && !self.name.is_empty()
            && !self.json.is_empty()
            && parse_arguments(&self.json).is_ok()
    }
}

impl<'a> Fragment<'a> {
    fn read(value: &'a Value) -> Self {
        let filled = |path: &str| {
            value
                .pointer(path)
                .and_then(Value::as_str)
                .filter(|text| !text.is_empty())
        };
        Self {
            index: value.get("index").and_then(Value::as_i64),
            id: filled("/id"),
            name: filled("/function/name"),
            json: match value.pointer("/function/arguments") {
                Some(Value::String(json)) => json.clone(),
                // Some servers send the arguments as JSON and not as its text.
                Some(arguments @ Value::Object(_)) => arguments.to_string(),
                _ => String::new(),
            },
        }
    }
}

/// Announces a call, with what is there of its arguments.
fn announce(call: &mut Call, ids: &mut CallIds, out: &mut Vec<StreamEvent>) {
    let id = ids.assign(call.id.as_deref());
    out.push(StreamEvent::ToolCallStart {
        id: id.clone(),
        name: call.name.clone(),
    });
    if !call.json.is_empty() {
        out.push(StreamEvent::ToolCallDelta {
            id: id.clone(),
            json: call.json.clone(),
        });
    }
    call.announced = Some(id);
}
