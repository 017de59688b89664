//! The card of one tool call: what was shown of it, and what is still to be shown.

use std::time::Duration;

use serde_json::{Map, Value, json};
use terret_acp::schema::v1;
use terret_engine::SessionHandle;
use terret_engine::room::tools::call::LEDGER_SEPARATOR;
use terret_engine::room::tools::definition::Kind;
use terret_engine::trust::QUESTION;
use tokio::time::Instant;

use super::diff::text_content;
use crate::text::{encoded_len, ends, fenced, hides, line, plain};

/// Encoded bytes of all that a card's frame holds beside ids and names.
const FRAME: usize = 40 * 1024;
/// Of a card's contents.
pub(crate) const CONTENT: usize = 28 * 1024;
/// Of a result's text, live; editors fold it, and nobody reads more there.
const RESULT: usize = 16 * 1024;
/// Of a result's text in a replay: a long thread must load fast.
const REPLAYED_RESULT: usize = 8 * 1024;
/// Of live output that is shown as text.
const TAIL: usize = 4 * 1024;
/// Between two showings of live output.
const PAUSE: Duration = Duration::from_millis(100);
/// Characters of a title.
const TITLE: usize = 160;
const PATHS: usize = 4 * 1024;

/// One call.
#[derive(Debug)]
pub(crate) struct Card {
    pub name: String,
    pub args: Value,
    pub title: String,
    pub kind: v1::ToolKind,
    locations: Vec<v1::ToolCallLocation>,
    /// The client knows it. Never true for a hidden one.
    pub announced: bool,
    /// Shown in another way, so the client must hear nothing of it.
    pub hidden: bool,
    pub started: bool,
    /// Output goes to a terminal that the client draws.
    terminal: bool,
    /// A terminal of the client's shows the command and its output.
    held: bool,
    /// A job of this call runs: the card goes on behind the call's result.
    pub job: bool,
    /// Contents for the changes of files, by path.
    changes: Vec<(String, Vec<v1::ToolCallContent>)>,
    output: Output,
}

/// Live output: its end, and when it was last shown.
#[derive(Debug, Default)]
struct Output {
    tail: String,
    cut: bool,
    /// Since when some of it waits to be shown.
    waits: Option<Instant>,
    shown_at: Option<Instant>,
    /// Whether any went to the client's terminal.
    streamed: bool,
}

impl Card {
    /// A card for a call. Nothing is sent by this.
    pub(crate) fn new(session: &SessionHandle, name: &str, args: &Value) -> Self {
        let tool = session.table().get(name);
        let title = tool.map_or_else(|| name.to_owned(), |tool| tool.title(args));
        let kind = tool.map_or(Kind::Other, |tool| tool.definition().kind);
        let places = tool
            .map(|tool| tool.locations(session.world(), args))
            .unwrap_or_default();
        let mut room = PATHS;
        let locations = places
            .into_iter()
            .take_while(|place| {
                let need = encoded_len(&place.path.to_string_lossy()) + 40;
                let fits = need <= room;
                room = room.saturating_sub(need);
                fits
            })
            .map(|place| v1::ToolCallLocation::new(place.path).line(place.line))
            .collect();
        Self {
            name: name.to_owned(),
            args: args.clone(),
            title: line(&title, TITLE),
            kind: wire_kind(kind),
            locations,
            announced: false,
            hidden: false,
            started: false,
            terminal: false,
            held: false,
            job: false,
            changes: Vec::new(),
            output: Output::default(),
        }
    }

    /// A card for a question that is about no tool call.
    pub(crate) fn question(name: &str, args: &Value, title: &str) -> Self {
        Self {
            name: name.to_owned(),
            args: args.clone(),
            title: line(title, TITLE),
            kind: v1::ToolKind::Other,
            locations: Vec::new(),
            announced: false,
            hidden: false,
            started: false,
            terminal: false,
            held: false,
            job: false,
            changes: Vec::new(),
            output: Output::default(),
        }
    }

    /// The `tool_call` that makes the card. With `terminal` a command's output will go to
    /// a terminal that the client draws.
    pub(crate) fn announce(&mut self, id: &str, terminal: bool, cwd: &str) -> v1::SessionUpdate {
        self.announced = true;
        self.terminal =
            terminal && self.kind == v1::ToolKind::Execute && !starts_job(&self.name, &self.args);
        let status = if self.started {
            v1::ToolCallStatus::InProgress
        } else {
            v1::ToolCallStatus::Pending
        };
        let mut call = v1::ToolCall::new(id.to_owned(), self.title.clone())
            .kind(self.kind)
            .status(status)
            .locations(self.locations.clone())
            .raw_input(bounded(&self.args, FRAME / 2));
        if self.terminal {
            call = call
                .content(vec![v1::ToolCallContent::Terminal(v1::Terminal::new(
                    id.to_owned(),
                ))])
                .meta(meta(
                    "terminal_info",
                    json!({ "terminal_id": id, "cwd": cwd }),
                ));
        }
        v1::SessionUpdate::ToolCall(call)
    }

    /// New arguments, title and places after a hook rewrote the call.
    pub(crate) fn rewritten(&mut self, id: &str, new: Self) -> v1::SessionUpdate {
        self.args = new.args;
        self.title = new.title;
        self.locations = new.locations;
        let fields = v1::ToolCallUpdateFields::new()
            .title(self.title.clone())
            .locations(self.locations.clone())
            .raw_input(bounded(&self.args, FRAME / 2));
        update(id, fields)
    }

    pub(crate) fn start(&mut self, id: &str) -> v1::SessionUpdate {
        self.started = true;
        update(
            id,
            v1::ToolCallUpdateFields::new().status(v1::ToolCallStatus::InProgress),
        )
    }

    /// Takes a change of a file, in the place of an earlier one of the same file, and
    /// gives the card's contents.
    pub(crate) fn changed(
        &mut self,
        id: &str,
        path: &str,
        contents: Vec<v1::ToolCallContent>,
    ) -> v1::SessionUpdate {
        match self.changes.iter_mut().find(|(known, _)| known == path) {
            Some((_, known)) => *known = contents,
            None => self.changes.push((path.to_owned(), contents)),
        }
        update(
            id,
            v1::ToolCallUpdateFields::new().content(self.change_contents(CONTENT)),
        )
    }

    /// Room for one more change's diff.
    pub(crate) fn change_budget(&self) -> usize {
        CONTENT / (self.changes.len() + 1)
    }

    /// All changes that fit; of the rest the paths are named.
    fn change_contents(&self, budget: usize) -> Vec<v1::ToolCallContent> {
        let mut room = budget;
        let mut contents = Vec::new();
        let mut left_out = 0;
        for (_, change) in &self.changes {
            let size = encoded_size(change);
            if size <= room {
                room -= size;
                contents.extend(change.iter().cloned());
            } else {
                left_out += 1;
            }
        }
        if left_out > 0 {
            contents.push(text_content(&format!(
                "{left_out} more changed files are not shown here."
            )));
        }
        contents
    }

    /// Takes a piece of live output. What is to be sent at once is given back; the rest
    /// waits for [`Card::due`].
    pub(crate) fn output(&mut self, id: &str, text: &str) -> Vec<v1::SessionUpdate> {
        if !self.terminal {
            self.output.push(text);
            return Vec::new();
        }
        self.output.streamed = true;
        crate::text::pieces(text, CONTENT)
            .map(|piece| terminal_data(id, piece))
            .collect()
    }

    /// Gives the card a terminal that the client runs, in the place of text.
    pub(crate) fn hold(&mut self, id: &str, terminal: &str) -> v1::SessionUpdate {
        self.held = true;
        self.terminal = false;
        self.output = Output::default();
        let content = v1::ToolCallContent::Terminal(v1::Terminal::new(terminal.to_owned()));
        update(id, v1::ToolCallUpdateFields::new().content(vec![content]))
    }

    /// Whether the client's terminal shows the output.
    pub(crate) fn is_in_terminal(&self) -> bool {
        self.held
    }

    /// When live output that waits may be shown.
    pub(crate) fn due(&self) -> Option<Instant> {
        let output = &self.output;
        // A time that stands still: one that is read anew each time is never reached.
        output
            .waits
            .map(|since| output.shown_at.map_or(since, |shown| shown + PAUSE))
    }

    /// Shows the end of the output, never all of it again (a command of 100 MB would
    /// otherwise cost the square of that).
    pub(crate) fn show_output(&mut self, id: &str, now: Instant) -> v1::SessionUpdate {
        self.output.waits = None;
        self.output.shown_at = Some(now);
        let mark = if self.output.cut { "[…]\n" } else { "" };
        let tail = crate::text::back(&self.output.tail, TAIL);
        if self.terminal {
            // The card became a terminal after this came; what comes now follows it there.
            self.output.streamed = true;
            return terminal_data(id, &format!("{mark}{tail}"));
        }
        let mut contents = self.change_contents(CONTENT - 2 * TAIL);
        contents.push(text_content(&fenced(&format!("{mark}{}", plain(tail)), "")));
        update(id, v1::ToolCallUpdateFields::new().content(contents))
    }

    /// The call's end.
    pub(crate) fn finish(
        &self,
        id: &str,
        result: Result<&str, &str>,
        images: Vec<v1::ToolCallContent>,
        replayed: bool,
    ) -> Vec<v1::SessionUpdate> {
        let status = match result {
            Ok(_) => v1::ToolCallStatus::Completed,
            Err(_) => v1::ToolCallStatus::Failed,
        };
        let fields = v1::ToolCallUpdateFields::new().status(status);
        if self.held {
            // The terminal stays; to name one again that was released loses the update
            // in some clients.
            return vec![update(id, fields)];
        }
        let text = result.unwrap_or_else(|error| error);
        if self.terminal {
            let data = if self.output.streamed && result.is_ok() {
                None
            } else {
                Some(ends(text, RESULT))
            };
            let (code, signal) = exit(result);
            let exit = json!({ "terminal_id": id, "exit_code": code, "signal": signal });
            let end =
                v1::ToolCallUpdate::new(id.to_owned(), fields).meta(meta("terminal_exit", exit));
            let shown = data
                .filter(|data| !data.is_empty())
                .map(|data| terminal_data(id, &data));
            return shown
                .into_iter()
                .chain([v1::SessionUpdate::ToolCallUpdate(end)])
                .collect();
        }
        let limit = if replayed { REPLAYED_RESULT } else { RESULT };
        let mut contents = self.change_contents(CONTENT - limit / 2);
        let is_change = !contents.is_empty();
        // A diff says all that the result of an edit says; a failure is always told.
        if (!is_change || result.is_err()) && !text.is_empty() {
            let room = if is_change { limit / 2 } else { limit };
            contents.push(text_content(&self.result_text(text, room, result.is_ok())));
        }
        contents.extend(images);
        vec![update(id, fields.content(contents))]
    }

    fn result_text(&self, text: &str, room: usize, is_ok: bool) -> String {
        let verbatim = matches!(
            self.kind,
            v1::ToolKind::Read | v1::ToolKind::Execute | v1::ToolKind::Search
        );
        let shown = ends(text, room);
        if is_ok && verbatim {
            fenced(&shown, "")
        } else {
            shown
        }
    }

    /// The card as a permission request shows it: everything a person needs to decide.
    pub(crate) fn asking(
        &self,
        id: &str,
        reason: &str,
        preview: Vec<v1::ToolCallContent>,
    ) -> v1::ToolCallUpdate {
        let mut contents = preview;
        if contents.is_empty()
            && let Some(command) = self.args.get("command").and_then(Value::as_str)
        {
            // Whole, with its risky end, or with a visible note of what is missing (R007).
            contents.push(text_content(&fenced(&ends(&plain(command), CONTENT), "sh")));
        }
        if self.kind == v1::ToolKind::SwitchMode
            && let Some(plan) = self.args.get("plan").and_then(Value::as_str)
        {
            contents.push(text_content(&ends(&plain(plan), CONTENT)));
        }
        if self.name == QUESTION
            && let Some(files) = self.args.get("files").and_then(Value::as_array)
        {
            contents.push(text_content(&ends(&trusting(files), CONTENT)));
        }
        let hides = |content: &v1::ToolCallContent| match content {
            v1::ToolCallContent::Diff(diff) => hides(&diff.new_text),
            _ => false,
        };
        if contents.iter().any(hides) {
            // A diff is shown as it is; what its reader cannot see must be said.
            let warning = "The change holds invisible characters, or such that reorder text.";
            contents.push(text_content(warning));
        }
        if !reason.is_empty() {
            contents.push(text_content(&line(reason, 500)));
        }
        let room = FRAME.saturating_sub(encoded_size(&contents)).max(1024);
        let fields = v1::ToolCallUpdateFields::new()
            .title(self.title.clone())
            .kind(self.kind)
            .status(v1::ToolCallStatus::Pending)
            .content(contents)
            .locations(self.locations.clone())
            .raw_input(bounded(&self.args, room.saturating_sub(PATHS).max(1024)));
        v1::ToolCallUpdate::new(id.to_owned(), fields)
    }
}

impl Output {
    fn push(&mut self, text: &str) {
        self.waits.get_or_insert_with(Instant::now);
        self.tail.push_str(text);
        // Cut rarely, so that each byte is moved a bounded number of times.
        if self.tail.len() > 4 * TAIL {
            let from = self.tail.len() - crate::text::back(&self.tail, 2 * TAIL).len();
            self.tail.drain(..from);
            self.cut = true;
        }
    }
}

/// All that files of a project would do: nobody trusts what they cannot read.
fn trusting(files: &[Value]) -> String {
    let mut text = String::new();
    for file in files {
        let name = file.get("file").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("`{}` would:\n", plain(name)));
        let would = file.get("would").and_then(Value::as_array);
        for line in would.into_iter().flatten().filter_map(Value::as_str) {
            text.push_str(&format!("- {}\n", plain(line)));
        }
    }
    text
}

/// Whether a call is to start a job. Its last lines take the place of those before them,
/// which nothing in a terminal can.
fn starts_job(name: &str, args: &Value) -> bool {
    name == "job_start" || args.get("run_in_background") == Some(&Value::Bool(true))
}

/// An update of a card.
pub(crate) fn update(id: &str, fields: v1::ToolCallUpdateFields) -> v1::SessionUpdate {
    v1::SessionUpdate::ToolCallUpdate(v1::ToolCallUpdate::new(id.to_owned(), fields))
}

fn terminal_data(id: &str, data: &str) -> v1::SessionUpdate {
    let data = json!({ "terminal_id": id, "data": data });
    let fields = v1::ToolCallUpdateFields::new();
    v1::SessionUpdate::ToolCallUpdate(
        v1::ToolCallUpdate::new(id.to_owned(), fields).meta(meta("terminal_output", data)),
    )
}

fn meta(key: &str, value: Value) -> Map<String, Value> {
    Map::from_iter([(key.to_owned(), value)])
}

fn encoded_size(contents: &[v1::ToolCallContent]) -> usize {
    serde_json::to_string(contents).map_or(0, |text| text.len())
}

/// How a command ended, from the ledger of its result: a status, or a signal, or neither
/// when it was stopped.
fn exit(result: Result<&str, &str>) -> (Option<i64>, Option<String>) {
    let text = match result {
        Ok(text) | Err(text) => text,
    };
    let ledger = text
        .rsplit_once(LEDGER_SEPARATOR)
        .map_or("", |(_, ledger)| ledger);
    for remark in ledger.lines().map(str::trim) {
        if let Some(status) = remark.strip_prefix("exit status ") {
            return (status.parse().ok(), None);
        }
        if let Some(signal) = remark.strip_prefix("ended by ") {
            return (None, Some(line(signal, 20)));
        }
        if remark.starts_with("notice: the command was still running") {
            return (None, None);
        }
    }
    (result.is_ok().then_some(0), None)
}

/// Arguments within a bound: long texts in them are shortened, each at both ends.
pub(crate) fn bounded(value: &Value, budget: usize) -> Value {
    let size = |value: &Value| value.to_string().len();
    if size(value) <= budget {
        return value.clone();
    }
    let mut limit = budget / 2;
    while limit >= 128 {
        let shortened = shorten(value, limit);
        if size(&shortened) <= budget {
            return shortened;
        }
        limit /= 2;
    }
    json!({ "note": format!("{} bytes of arguments are not shown here", size(value)) })
}

fn shorten(value: &Value, limit: usize) -> Value {
    match value {
        Value::String(text) => Value::String(ends(text, limit)),
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| shorten(item, limit)).collect())
        }
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| (key.clone(), shorten(value, limit)))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn wire_kind(kind: Kind) -> v1::ToolKind {
    match kind {
        Kind::Read => v1::ToolKind::Read,
        Kind::Edit => v1::ToolKind::Edit,
        Kind::Delete => v1::ToolKind::Delete,
        Kind::Move => v1::ToolKind::Move,
        Kind::Search => v1::ToolKind::Search,
        Kind::Execute => v1::ToolKind::Execute,
        Kind::Think => v1::ToolKind::Think,
        Kind::Fetch => v1::ToolKind::Fetch,
        Kind::SwitchMode => v1::ToolKind::SwitchMode,
        Kind::Other => v1::ToolKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arguments_are_shortened_and_stay_readable() {
        let value = json!({ "path": "/a", "content": "x".repeat(100_000), "n": 3 });
        let shown = bounded(&value, 4096);
        assert!(shown.to_string().len() <= 4096);
        assert_eq!(shown.get("path"), Some(&json!("/a")));
        assert_eq!(bounded(&json!({"a": 1}), 4096), json!({"a": 1}));
        let many: Vec<Value> = (0..10_000).map(|n| json!({ "n": n })).collect();
        assert!(bounded(&Value::Array(many), 4096).to_string().len() <= 4096);
    }

    #[test]
    fn the_tail_of_output_costs_no_more_than_a_bound() {
        let mut output = Output::default();
        for _ in 0..10_000 {
            output.push(&"x".repeat(1000));
            assert!(output.tail.len() <= 4 * TAIL + 1000);
        }
        assert!(output.cut);
    }

    #[test]
    fn r007_a_long_command_is_asked_about_whole_with_its_tail() {
        let ask = |command: &str| {
            let args = json!({ "command": command });
            let card = Card::question("Bash", &args, command);
            serde_json::to_string(&card.asking("c1", "it runs a command", Vec::new()))
                .unwrap_or_default()
        };
        let command = format!(
            "echo start{}rm -rf precious",
            "\n".repeat(200) + &"x".repeat(20_000)
        );
        let asked = ask(&command);
        let whole = serde_json::to_string(&command).unwrap_or_default();
        assert!(
            asked.contains(whole.trim_matches('"')),
            "the whole command is in the content"
        );
        assert!(asked.len() < 48 * 1024);
        // Beyond a frame's room both ends are there, and how much is missing between them.
        let asked = ask(&format!("echo start{}rm -rf precious", "x".repeat(200_000)));
        assert!(asked.contains("rm -rf precious") && asked.contains("bytes are not shown here"));
        assert!(asked.len() < 48 * 1024);
    }

    #[test]
    fn exit_codes_come_from_the_ledger() {
        assert_eq!(exit(Ok("done")), (Some(0), None));
        assert_eq!(
            exit(Ok("x\n--- terret ---\nexit status 3")),
            (Some(3), None)
        );
        let killed = "--- terret ---\nended by SIGKILL\n1 process was left";
        assert_eq!(exit(Ok(killed)), (None, Some("SIGKILL".to_owned())));
        let late =
            "--- terret ---\nnotice: the command was still running after 5 ms and was stopped";
        assert_eq!(exit(Ok(late)), (None, None));
        assert_eq!(exit(Err("refused")), (None, None));
    }
}
