//! Grep: searches the text of files.

use std::sync::Arc;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::arguments;
use crate::call::{CallContext, Failure, Output, Tool};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::world::World;
use crate::world::search::SearchError;
use crate::world::search::grep::{GrepRequest, MOST, Mode, RESULTS, grep};

/// Lines of context beyond which a search is a reading.
const CONTEXT: usize = 100;

/// Searches the text of files for a regular expression in Rust's syntax, as ripgrep does:
/// `fn \w+`, and `\{` for a brace. Hidden files are searched; `.git`, binary and ignored files
/// are not, unless `path` or `glob` names their folder. Results come in the order of their
/// paths.
#[derive(Debug, Deserialize, JsonSchema)]
struct GrepInput {
    /// The regular expression.
    pattern: String,
    /// The file or folder to search; the session's folders when not given.
    path: Option<String>,
    /// Only files that fit: `*.ts` by name, `src/**/*.{ts,tsx}` by path from `path`, `!*.min.js`
    /// to leave files out.
    glob: Option<String>,
    /// Only files of a kind that ripgrep knows: `rust`, `js`, `py`.
    #[serde(rename = "type")]
    file_type: Option<String>,
    /// `files_with_matches` (when not given) gives paths, `content` gives `path:line:text`,
    /// `count` gives `path:number`.
    output_mode: Option<OutputMode>,
    /// Lines to show after each match, in `content`.
    #[serde(rename = "-A")]
    #[schemars(range(min = 0))]
    after: Option<usize>,
    /// Lines to show before each match, in `content`.
    #[serde(rename = "-B")]
    #[schemars(range(min = 0))]
    before: Option<usize>,
    /// Lines to show before and after each match, in `content`.
    #[serde(rename = "-C")]
    #[schemars(range(min = 0))]
    around: Option<usize>,
    /// Whether `content` has line numbers; true when not given.
    #[serde(rename = "-n")]
    numbers: Option<bool>,
    /// Whether case does not matter.
    #[serde(rename = "-i")]
    ignore_case: Option<bool>,
    /// Whether a match may span lines, and `.` matches line ends.
    multiline: Option<bool>,
    /// How many results to give; 250 when not given, 0 for as many as there may be.
    #[schemars(range(min = 0))]
    head_limit: Option<usize>,
    /// How many results to pass over.
    #[schemars(range(min = 0))]
    offset: Option<usize>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum OutputMode {
    FilesWithMatches,
    Content,
    Count,
}

/// The tool.
pub struct Grep {
    definition: Definition,
}

impl Default for Grep {
    fn default() -> Self {
        Self::new()
    }
}

impl Grep {
    pub fn new() -> Self {
        let (description, parameters) = arguments::describe::<GrepInput>();
        Self {
            definition: Definition {
                name: "Grep",
                description,
                parameters,
                mutating: false,
                approval: Approval::Never,
                concurrency: Concurrency::Parallel,
                replay: Replay::Safe,
                kind: Kind::Search,
            },
        }
    }
}

#[async_trait]
impl Tool for Grep {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, args: &Value) -> String {
        let word = |name| args.get(name).and_then(Value::as_str);
        let Some(pattern) = word("pattern") else {
            return "Grep".to_owned();
        };
        let mut title = format!("Grep {pattern}");
        if let Some(path) = word("path") {
            title.push_str(&format!(" in {path}"));
        }
        if let Some(glob) = word("glob") {
            title.push_str(&format!(" ({glob})"));
        }
        title
    }

    fn rule_subject(&self, world: &World, args: &Value) -> Option<String> {
        Some(world.relative(args.get("path").and_then(Value::as_str).unwrap_or(".")))
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        let input: GrepInput = arguments::parse(args)?;
        let request = input.request();
        let world = Arc::clone(&context.world);
        let found = search(context, move |cancel| grep(&world, &request, cancel)).await?;
        let text = if found.text.is_empty() {
            "No matches".to_owned()
        } else {
            found.text
        };
        Ok(Output {
            text,
            remarks: found.remarks,
            ..Output::default()
        })
    }
}

impl GrepInput {
    fn request(self) -> GrepRequest {
        let lines = |own: Option<usize>| own.or(self.around).unwrap_or(0).min(CONTEXT);
        GrepRequest {
            before: lines(self.before),
            after: lines(self.after),
            mode: match self.output_mode {
                None | Some(OutputMode::FilesWithMatches) => Mode::Files,
                Some(OutputMode::Content) => Mode::Content,
                Some(OutputMode::Count) => Mode::Count,
            },
            line_numbers: self.numbers.unwrap_or(true),
            ignore_case: self.ignore_case.unwrap_or(false),
            multiline: self.multiline.unwrap_or(false),
            limit: match self.head_limit {
                None => RESULTS,
                Some(0) => MOST,
                Some(limit) => limit.min(MOST),
            },
            offset: self.offset.unwrap_or(0),
            pattern: self.pattern,
            path: self.path,
            glob: self.glob,
            file_type: self.file_type,
        }
    }
}

/// Runs a search where it may block. A cancel, and a call that nobody waits for any more,
/// stop it.
pub(super) async fn search<T: Send + 'static>(
    context: &CallContext,
    work: impl FnOnce(&CancellationToken) -> Result<T, SearchError> + Send + 'static,
) -> Result<T, Failure> {
    let cancel = context.cancel.child_token();
    let _stop = cancel.clone().drop_guard();
    let result = tokio::task::spawn_blocking(move || work(&cancel)).await;
    result
        .unwrap_or_else(|error| Err(SearchError::Lost(error.to_string())))
        .map_err(|error| Failure::new(error.to_string()))
}

#[cfg(test)]
mod tests;
