//! The system prompt: sections in a fixed order, the same bytes as long as nothing
//! that they speak of changes, so that providers can cache it.

use terret_tools::mode::Mode;
use terret_tools::world::World;

use crate::core::Core;
use crate::policy::{SessionPolicy, mode_of};

const IDENTITY: &str = "\
You are Terret, a coding agent that works inside the user's editor on their repository.
Do what is asked, completely and no more. Look before you change: read the code around a change first, \
and follow its style. When you are done, say briefly what you did and what you could not do.
The user sees your text as Markdown in the editor, your tool calls as cards, and TodoWrite as a task list. \
For work of three steps or more keep such a list, with one entry in progress at a time.";

const TOOLS: &str = "\
Prefer Read, Glob and Grep over shell commands for looking, and Edit over rewriting whole files. \
A file must be read before it is edited. Calls that do not depend on each other belong in one message. \
A result may end with remarks after the line `--- terret ---`: they say what was left out and how to get it. \
A call that the user denied must not be tried again in another form; ask or find another way.";

/// The system prompt of the session at this moment.
pub(crate) fn system_prompt(core: &Core, world: &World, policy: &SessionPolicy) -> String {
    let settings = policy.settings();
    let mode = core.state(|state| mode_of(&settings, state));
    let mut sections = vec![IDENTITY.to_owned(), TOOLS.to_owned(), place(world)];
    if mode == Mode::Plan {
        sections.push(
            "The session is in plan mode: only look. Do not change files or run commands; \
             work out a plan, and show it with ExitPlanMode when it is complete."
                .to_owned(),
        );
    }
    if let Some(text) = &settings.instructions {
        sections.push(format!("Instructions of the user:\n{text}"));
    }
    sections.join("\n\n")
}

fn place(world: &World) -> String {
    let mut text = format!(
        "Working folder: {}\nPlatform: {}",
        world.cwd().display(),
        std::env::consts::OS
    );
    let further = world.roots();
    if further.len() > 1 {
        text.push_str("\nFurther folders: ");
        let names: Vec<String> = further
            .iter()
            .skip(1)
            .map(|path| path.display().to_string())
            .collect();
        text.push_str(&names.join(", "));
    }
    text
}
