//! From updates to text. Pure: what is printed depends on what came, and nothing else.

use std::collections::HashMap;

use serde_json::Value;

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
    titles: HashMap<String, String>,
    /// Calls whose diff was shown.
    diffs: HashMap<String, String>,
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
        let shown = format!(
            "{}{}\n",
            self.line_start(),
            self.paint("1", &format!("> {}", plain(text)))
        );
        self.fresh = true;
        shown
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
                if !text.is_empty() {
                    self.fresh = text.ends_with('\n');
                }
                text
            }
            "tool_call" => {
                self.titles
                    .insert(field("toolCallId").to_owned(), field("title").to_owned());
                let line = format!("● {}", plain(field("title")));
                self.block(&self.paint("36", &line))
            }
            "tool_call_update" => self.call(field("toolCallId"), field("status"), update),
            "plan" => self.plan(update),
            "notice" => {
                let code = if field("severity") == "error" {
                    "31"
                } else {
                    "33"
                };
                let mut text = plain(field("title"));
                if !field("description").is_empty() {
                    text = plain(field("description"));
                }
                self.block(&self.paint(code, &text))
            }
            _ => String::new(),
        }
    }

    /// A question, up to where the answer is typed.
    pub(super) fn question(&mut self, request: &Value) -> String {
        let call = request.get("toolCall").cloned().unwrap_or_default();
        let title = call.get("title").and_then(Value::as_str).unwrap_or("this");
        let mut shown = self.block(&self.paint("1;33", &format!("? {}", plain(title))));
        for text in texts(&call) {
            shown.push_str(&indented(&plain(text)));
        }
        let id = call
            .get("toolCallId")
            .and_then(Value::as_str)
            .unwrap_or_default();
        shown.push_str(&self.call_diffs(id, &call));
        for option in request
            .get("options")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let field = |key: &str| option.get(key).and_then(Value::as_str).unwrap_or_default();
            let key = match field("kind") {
                "allow_once" => 'y',
                "allow_always" => 'a',
                "reject_once" => 'n',
                _ => continue,
            };
            shown.push_str(&format!("  [{key}] {}\n", plain(field("name"))));
        }
        shown.push_str("> ");
        self.fresh = true;
        shown
    }

    /// The end of a turn that did not simply end.
    pub(super) fn ended(&mut self, stop_reason: &str) -> String {
        let words = match stop_reason {
            "end_turn" => return self.line_start().to_owned(),
            "cancelled" => "Stopped.",
            "refusal" => "The model refused.",
            "max_tokens" => "The answer reached its length limit.",
            "max_turn_requests" => "The turn reached its limit of steps.",
            other => other,
        };
        self.block(&self.paint("33", words))
    }

    fn call(&mut self, id: &str, status: &str, update: &Value) -> String {
        let mut shown = self.call_diffs(id, update);
        let title = self.titles.get(id).cloned().unwrap_or_default();
        match status {
            "completed" => {
                let line = self.paint("32", &format!("✓ {}", plain(&title)));
                shown.push_str(&self.block(&line));
            }
            "failed" => {
                let line = self.paint("31", &format!("✗ {}", plain(&title)));
                shown.push_str(&self.block(&line));
                let text = texts(update).next_back().unwrap_or_default();
                let lines: Vec<&str> = text.lines().take(ERROR_LINES).collect();
                shown.push_str(&indented(&plain(&lines.join("\n"))));
            }
            _ => {}
        }
        if matches!(status, "completed" | "failed") {
            self.titles.remove(id);
            self.diffs.remove(id);
        }
        shown
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
