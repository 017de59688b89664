//! The standard tools, one file each; [`crate::table::Table::standard`] lists them.

pub mod bash;
mod change;
pub mod edit;
pub mod exit_plan_mode;
pub mod glob;
pub mod grep;
pub mod job_collect;
pub mod job_list;
pub mod job_start;
pub mod job_stop;
mod jobs;
pub mod matching;
pub mod multi_edit;
pub mod read;
mod shown;
mod terminal;
pub mod terminal_close;
pub mod terminal_input;
pub mod terminal_open;
pub mod terminal_read;
pub mod todo_write;
pub mod web_fetch;
pub mod write;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::call::{Location, Tool};
use crate::world::World;

/// The standard tools in the order a model reads them.
pub(crate) fn all() -> Vec<Arc<dyn Tool>> {
    vec![
        Arc::new(read::Read::new()),
        Arc::new(write::Write::new()),
        Arc::new(edit::Edit::new()),
        Arc::new(multi_edit::MultiEdit::new()),
        Arc::new(glob::Glob::new()),
        Arc::new(grep::Grep::new()),
        Arc::new(bash::Bash::new()),
        Arc::new(job_start::JobStart::new()),
        Arc::new(job_collect::JobCollect::new()),
        Arc::new(job_stop::JobStop::new()),
        Arc::new(job_list::JobList::new()),
        Arc::new(terminal_open::TerminalOpen::new()),
        Arc::new(terminal_input::TerminalInput::new()),
        Arc::new(terminal_read::TerminalRead::new()),
        Arc::new(terminal_close::TerminalClose::new()),
        Arc::new(web_fetch::WebFetch::new()),
        Arc::new(todo_write::TodoWrite::new()),
        Arc::new(exit_plan_mode::ExitPlanMode::new()),
    ]
}

/// `Verb path`, from arguments that may be malformed.
fn file_title(verb: &str, args: &Value) -> String {
    match args.get("file_path").and_then(Value::as_str) {
        Some(path) => format!("{verb} {path}"),
        None => verb.to_owned(),
    }
}

/// The file that `file_path` names, as the editor names it.
fn file_location(world: &World, args: &Value) -> Vec<Location> {
    let Some(path) = args.get("file_path").and_then(Value::as_str) else {
        return Vec::new();
    };
    let path = match world.resolve(path) {
        Ok(real) => world.files().as_given(&real),
        Err(_) => world.cwd().join(path),
    };
    vec![Location { path, line: None }]
}

/// The file that `file_path` names, as rules name it.
fn file_subject(world: &World, args: &Value) -> Option<String> {
    Some(world.relative(Path::new(args.get("file_path")?.as_str()?)))
}
