//! From updates to text. Pure: what is printed depends on what came, and nothing else.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::command::{Ran, unfenced};
use crate::acp::diff_region;
use crate::text::plain;

/// Lines of a failed call's text.
const ERROR_LINES: usize = 6;
/// Lines of a diff.
const DIFF_LINES: usize = 40;

/// What was printed so far, as far as it matters for what comes.
#[derive(Debug, Default)]
pub(super) struct Render {
    colour: bool,
    /// The cursor is at the start of a line.
    fresh: bool,
    calls: HashMap<String, Call>,
    /// Calls that are not shown yet, in order: what asks about one shows it, too, and
    /// twice is once too often.
    held: Vec<String>,
    /// The words of an error that are not shown yet: the end of the turn may say them.
    error: Option<String>,
    /// Calls to which the person said no.
    refused: HashSet<String>,
    /// Calls whose diff was shown.
    diffs: HashMap<String, String>,
}

/// A call that runs or waits.
#[derive(Debug, Default)]
struct Call {
    title: String,
    is_command: bool,
}

impl Render {
    pub(super) fn new(colour: bool) -> Self {
        Self {
            colour,
            fresh: true,
            ..Self::default()
        }
    }

    /// A prompt, as the person wrote it.
    pub(super) fn prompt(&mut self, text: &str) -> String {
        let shown = self.release();
        shown + &self.block(&self.paint("1", &format!("> {}", plain(text))))
    }

    /// One `session/update`.
    pub(super) fn update(&mut self, update: &Value) -> String {
        let field = |key: &str| update.get(key).and_then(Value::as_str).unwrap_or_default();
        match field("sessionUpdate") {
            "agent_message_chunk" => {
                let text = plain(
                    update
                        .pointer("/content/text")
                        .and_then(Value::as_str)
                        .unwrap_or_default(),
                );
                if text.is_empty() {
                    return text;
                }
                let shown = self.release();
                self.fresh = text.ends_with('\n');
                shown + &text
            }
            "tool_call" => {
                let call = Call {
                    title: field("title").to_owned(),
                    is_command: field("kind") == "execute",
                };
                let id = field("toolCallId").to_owned();
                self.held.push(id.clone());
                self.calls.insert(id, call);
                String::new()
            }
            "tool_call_update" => self.call(field("toolCallId"), field("status"), update),
            "plan" => {
                let shown = self.release();
                shown + &self.plan(update)
            }
            "notice" => {
                let mut text = plain(field("title"));
                if !field("description").is_empty() {
                    text = plain(field("description"));
                }
                let shown = self.release();
                if field("severity") == "error" {
                    self.error = Some(text);
                    return shown;
                }
                shown + &self.block(&self.paint("33", &text))
            }
            _ => String::new(),
        }
    }

    /// A question, up to where the answer is typed.
    pub(super) fn question(&mut self, request: &Value) -> String {
        let call = request.get("toolCall").cloned().unwrap_or_default();
        let field = |key: &str| call.get(key).and_then(Value::as_str);
        let id = field("toolCallId").unwrap_or_default();
        self.held.retain(|held| held != id);
        let mut texts: Vec<&str> = texts(&call).collect();
        let command = match texts.first().copied().and_then(unfenced) {
            Some(("sh", command)) => {
                texts.remove(0);
                Some(command)
            }
            _ => None,
        };
        // A command's title is the command.
        let head = match (command, texts.last().copied()) {
            (Some(_), Some(reason)) if field("kind") == Some("execute") => {
                texts.pop();
                reason
            }
            _ => field("title").unwrap_or("this"),
        };
        let mut shown = self.release_error();
        shown.push_str(&self.block(&self.paint("1;33", &format!("? {}", plain(head)))));
        if let Some(command) = command {
            shown.push_str(&indented(&indented(&plain(command))));
        }
        for text in texts {
            shown.push_str(&indented(&plain(text)));
        }
        shown.push_str(&self.call_diffs(id, &call));
        for option in request
            .get("options")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let field = |key: &str| option.get(key).and_then(Value::as_str).unwrap_or_default();
            let Some(key) = key(field("kind")) else {
                continue;
            };
            shown.push_str(&format!("  [{key}] {}\n", plain(field("name"))));
        }
        shown.push_str("> ");
        self.fresh = true;
        shown
    }

    /// The person said no to a call.
    pub(super) fn refused(&mut self, call: &str) {
        self.refused.insert(call.to_owned());
    }

    /// A question found the keyboard's end: the cursor stands where the answer would be.
    pub(super) fn left_open(&mut self) {
        self.fresh = false;
    }

    /// The end of a turn since nobody answered.
    pub(super) fn unanswered(&mut self) -> String {
        let shown = self.release();
        shown + &self.block(&self.paint("33", "nobody answered; the session ends here"))
    }

    /// The end by an error whose words somebody else says.
    pub(super) fn failed(&mut self, words: &str) -> String {
        let known = |text: &String| words.contains(text.trim()) || text.contains(words.trim());
        if self.error.as_ref().is_some_and(known) {
            self.error = None;
        }
        self.release()
    }

    /// The end of a turn that did not simply end.
    pub(super) fn ended(&mut self, stop_reason: &str) -> String {
        let shown = self.release();
        let words = match stop_reason {
            "end_turn" => return shown + self.line_start(),
            "cancelled" => "Stopped.",
            "refusal" => "The model refused.",
            "max_tokens" => "The answer reached its length limit.",
            "max_turn_requests" => "The turn reached its limit of steps.",
            other => other,
        };
        shown + &self.block(&self.paint("33", words))
    }

    fn call(&mut self, id: &str, status: &str, update: &Value) -> String {
        if let (Some(call), Some(title)) = (
            self.calls.get_mut(id),
            update.get("title").and_then(Value::as_str),
        ) {
            title.clone_into(&mut call.title);
        }
        let mut shown = self.release_error();
        if let Some(place) = self.held.iter().position(|held| held == id) {
            shown.push_str(&self.release_calls(place + 1));
        }
        shown.push_str(&self.call_diffs(id, update));
        if matches!(status, "completed" | "failed") {
            let call = self.calls.remove(id).unwrap_or_default();
            self.diffs.remove(id);
            shown.push_str(&self.finished(id, &call, status == "completed", update));
        }
        shown
    }

    fn finished(&mut self, id: &str, call: &Call, completed: bool, update: &Value) -> String {
        let title = plain(&call.title);
        let text = texts(update).next_back().unwrap_or_default();
        let refused = self.refused.remove(id);
        let ran = Ran::of(text);
        let (line, below) = if call.is_command && (completed || ran.has_ledger) {
            let line = match &ran.trouble {
                Some(trouble) => self.paint("31", &format!("✗ {title} ({trouble})")),
                None => self.paint("32", &format!("✓ {title}")),
            };
            (line, ran.tail())
        } else if completed {
            (self.paint("32", &format!("✓ {title}")), String::new())
        } else if refused {
            let line = self.paint("31", &format!("✗ {title}"));
            (line, "you said no".to_owned())
        } else {
            let lines: Vec<&str> = text.lines().take(ERROR_LINES).collect();
            let line = self.paint("31", &format!("✗ {title}"));
            (line, plain(&lines.join("\n")))
        };
        self.block(&line) + &indented(&below)
    }

    /// All that waits to be shown.
    fn release(&mut self) -> String {
        let calls = self.release_calls(self.held.len());
        calls + &self.release_error()
    }

    fn release_calls(&mut self, count: usize) -> String {
        let ids: Vec<String> = self.held.drain(..count).collect();
        let mut shown = String::new();
        for id in ids {
            let title = self.calls.get(&id).map(|call| plain(&call.title));
            let line = format!("● {}", title.unwrap_or_default());
            shown.push_str(&self.block(&self.paint("36", &line)));
        }
        shown
    }

    fn release_error(&mut self) -> String {
        match self.error.take() {
            Some(text) => self.block(&self.paint("31", &text)),
            None => String::new(),
        }
    }

    /// The diffs of a call that were not shown yet: they come with the question, with the
    /// change and with the end.
    fn call_diffs(&mut self, id: &str, holder: &Value) -> String {
        let mut shown = String::new();
        for item in holder
            .get("content")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            if item.get("type").and_then(Value::as_str) != Some("diff") {
                continue;
            }
            let field = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
            shown.push_str(&self.diff(field("path"), field("oldText"), field("newText")));
        }
        if shown.is_empty() || self.diffs.get(id).is_some_and(|known| *known == shown) {
            return String::new();
        }
        self.diffs.insert(id.to_owned(), shown.clone());
        let start = self.line_start().to_owned();
        self.fresh = true;
        start + &shown
    }

    fn diff(&self, path: &str, old: &str, new: &str) -> String {
        let (first, old, new) = diff_region(old, new);
        let mut shown = format!("  {}\n", plain(&format!("{path}:{first}")));
        let mut left = DIFF_LINES;
        for (mark, code, text) in [('-', "31", old), ('+', "32", new)] {
            for line in text.lines() {
                if left == 0 {
                    shown.push_str("    …\n");
                    return shown;
                }
                left -= 1;
                shown.push_str(&self.paint(code, &format!("    {mark} {}", plain(line))));
                shown.push('\n');
            }
        }
        shown
    }

    fn plan(&mut self, update: &Value) -> String {
        let entries = update
            .get("entries")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if entries.is_empty() {
            return String::new();
        }
        let mut text = String::from("Plan");
        for entry in entries {
            let field = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
            let mark = match field("status") {
                "completed" => "[x]",
                "in_progress" => "[~]",
                _ => "[ ]",
            };
            text.push_str(&format!("\n  {mark} {}", plain(field("content"))));
        }
        self.block(&text)
    }

    /// Text on lines of its own.
    fn block(&mut self, text: &str) -> String {
        let shown = format!("{}{text}\n", self.line_start());
        self.fresh = true;
        shown
    }

    fn line_start(&self) -> &'static str {
        if self.fresh { "" } else { "\n" }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// What is typed for an option of a kind.
pub(super) fn key(kind: &str) -> Option<char> {
    match kind {
        "allow_once" => Some('y'),
        "allow_always" => Some('a'),
        "reject_once" => Some('n'),
        _ => None,
    }
}

/// The texts among a call's contents.
fn texts(holder: &Value) -> impl DoubleEndedIterator<Item = &str> {
    let items = holder
        .get("content")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.pointer("/content/text").and_then(Value::as_str))
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_cards_keep_to_their_lines() {
        let mut render = Render::new(false);
        let mut shown = render.update(&json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Let me see"}}));
        shown += &render.update(
            &json!({"sessionUpdate": "tool_call", "toolCallId": "c1", "title": "Read a.txt"}),
        );
        shown += &render.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": "c1", "status": "completed"}));
        assert_eq!(shown, "Let me see\n● Read a.txt\n✓ Read a.txt\n");
    }

    #[test]
    fn what_a_model_says_cannot_drive_the_terminal() {
        let mut render = Render::new(false);
        let chunk = json!({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a\u{1b}]0;x\u{7}b"}});
        assert_eq!(render.update(&chunk), "a\\u{1b}]0;x\\u{7}b");
    }

    #[test]
    fn a_command_is_asked_about_once_and_its_calls_stay_in_order() {
        let mut render = Render::new(false);
        let call = |id: &str, title: &str| json!({"sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": "execute"});
        let mut shown = render.update(&call("c1", "ls"));
        shown += &render.update(&call("c2", "rm a"));
        assert_eq!(shown, "");
        let question = json!({"toolCall": {
            "toolCallId": "c2", "title": "rm a", "kind": "execute", "content": [
                {"type": "content", "content": {"type": "text", "text": "```sh\nrm a\n```"}},
                {"type": "content", "content": {"type": "text", "text": "it runs a command"}},
            ]},
            "options": [{"optionId": "n", "kind": "reject_once", "name": "Reject"}],
        });
        assert_eq!(
            render.question(&question),
            "? it runs a command\n    rm a\n  [n] Reject\n> "
        );
        let end = |id: &str, text: &str| {
            json!({"sessionUpdate": "tool_call_update", "toolCallId": id, "status": "completed",
            "content": [{"type": "content", "content": {"type": "text", "text": text}}]})
        };
        assert_eq!(
            render.update(&end("c2", "```\nno a\n--- terret ---\nexit status 1\n```")),
            "✗ rm a (exit 1)\n  no a\n"
        );
        assert_eq!(
            render.update(&end("c1", "```\na\n```")),
            "● ls\n✓ ls\n  a\n"
        );
    }

    #[test]
    fn an_error_is_shown_unless_the_end_says_it() {
        let notice = json!({"sessionUpdate": "notice", "severity": "error", "title": "no credit"});
        let mut render = Render::new(false);
        assert_eq!(render.update(&notice), "");
        assert_eq!(render.failed("no credit"), "");
        assert_eq!(render.ended("end_turn"), "");
        assert_eq!(render.update(&notice), "");
        assert_eq!(render.failed("the pipe broke"), "no credit\n");
        assert_eq!(render.update(&notice), "");
        assert_eq!(render.ended("end_turn"), "no credit\n");
        let retry = json!({"sessionUpdate": "notice", "severity": "warning", "title": "busy; trying again in 1 s (try 2)"});
        assert_eq!(render.update(&retry), "busy; trying again in 1 s (try 2)\n");
    }

    #[test]
    fn a_diff_is_shown_once() {
        let mut render = Render::new(false);
        let diff = json!([{"type": "diff", "path": "/a.txt", "oldText": "one\ntwo\n", "newText": "one\n2\n"}]);
        let call = json!({"toolCallId": "c", "title": "Edit a.txt", "content": diff});
        let options = json!([{"optionId": "y", "kind": "allow_once", "name": "Allow once"}]);
        let question = render.question(&json!({"toolCall": call, "options": options}));
        assert_eq!(
            question,
            "? Edit a.txt\n  /a.txt:2\n    - two\n    + 2\n  [y] Allow once\n> "
        );
        assert_eq!(
            render.update(
                &json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": diff})
            ),
            ""
        );
    }
}
