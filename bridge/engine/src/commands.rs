//! Slash commands that the engine answers itself. Any other text that begins with a
//! slash, such as a path, is an ordinary prompt.

use terret_log::{Payload, Severity, TurnStatus};

use crate::options::{self, Options, mode_description};
use crate::status::TurnOutcome;
use crate::turn::TurnParts;

/// A command, its hint for the argument, and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandInfo {
    /// The name without the slash.
    pub name: &'static str,
    pub description: &'static str,
    /// What may follow the name; none when nothing may.
    pub hint: Option<&'static str>,
}

/// All commands, in the order in which `/help` and editors show them.
pub const COMMANDS: [CommandInfo; 7] = [
    CommandInfo {
        name: "help",
        description: "Say what Terret can do here",
        hint: None,
    },
    CommandInfo {
        name: "mode",
        description: "Show or set how much may be done without asking",
        hint: Some("plan | ask | edits | auto"),
    },
    CommandInfo {
        name: "model",
        description: "Show or set the model",
        hint: Some("provider:model"),
    },
    CommandInfo {
        name: "plan",
        description: "Show the task list, or clear it",
        hint: Some("clear"),
    },
    CommandInfo {
        name: "jobs",
        description: "List background jobs, or stop one",
        hint: Some("stop ID"),
    },
    CommandInfo {
        name: "rules",
        description: "List the rules that hold here, or take one back",
        hint: Some("revoke N | revoke all"),
    },
    CommandInfo {
        name: "compact",
        description: "Summarise the conversation to make room",
        hint: None,
    },
];

/// A command that was recognised in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) argument: String,
}

/// Recognises a command: a slash, a known name, and nothing after it but an argument
/// on the same line.
pub(crate) fn parse(text: &str) -> Option<Command> {
    let line = text.trim();
    let rest = line.strip_prefix('/')?;
    if line.contains('\n') {
        return None;
    }
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let info = COMMANDS.iter().find(|info| info.name == name)?;
    Some(Command {
        name: info.name,
        argument: argument.trim().to_owned(),
    })
}

/// Runs a command; its answer is a notice in the log, never model text.
pub(crate) fn run(parts: &TurnParts, command: &Command, text: &str) -> TurnOutcome {
    // Before it does anything: what it does comes behind it in the log.
    match log_command(parts, text) {
        Ok(()) => log_answer(parts, answer(parts, command)),
        Err(outcome) => outcome,
    }
}

/// Logs a command whose answer had to be waited for, and the answer.
pub(crate) fn log(parts: &TurnParts, text: &str, said: Result<String, String>) -> TurnOutcome {
    match log_command(parts, text) {
        Ok(()) => log_answer(parts, said),
        Err(outcome) => outcome,
    }
}

fn log_command(parts: &TurnParts, text: &str) -> Result<(), TurnOutcome> {
    let payload = Payload::CommandRun {
        text: text.trim().to_owned(),
    };
    match parts.core.append(payload) {
        Ok(_) => Ok(()),
        Err(fault) => Err(outcome(parts, TurnStatus::Failed, Some(fault.0))),
    }
}

fn outcome(parts: &TurnParts, status: TurnStatus, reason: Option<String>) -> TurnOutcome {
    TurnOutcome {
        status,
        reason,
        end: parts.core.next_seq(),
    }
}

fn log_answer(parts: &TurnParts, said: Result<String, String>) -> TurnOutcome {
    let (severity, text) = match said {
        Ok(answer) => (Severity::Info, answer),
        Err(problem) => (Severity::Warning, problem),
    };
    match parts.core.append(Payload::NoticeShown { severity, text }) {
        Ok(_) => outcome(parts, TurnStatus::Completed, None),
        Err(fault) => outcome(parts, TurnStatus::Failed, Some(fault.0)),
    }
}

fn answer(parts: &TurnParts, command: &Command) -> Result<String, String> {
    match (command.name, command.argument.as_str()) {
        ("help", _) => Ok(help()),
        ("mode", "") => {
            let options = options::current(parts);
            Ok(format!("The mode is `{}`. {}", options.mode.name(), modes(&options)))
        }
        ("mode", mode) => options::set(parts, "mode", mode, "command")
            .map(|()| format!("The mode is now `{mode}`."))
            .map_err(|error| error.to_string()),
        ("model", "") => Ok(model(parts)),
        ("model", name) => options::set(parts, "model", name, "command")
            .map(|()| format!("The model is now `{name}`, from the next request on."))
            .map_err(|error| error.to_string()),
        ("plan", "clear") => parts
            .core
            .append(Payload::PlanCleared { by: "command".to_owned() })
            .map(|_| "The task list is empty now.".to_owned())
            .map_err(|fault| fault.0),
        ("plan", "") => Ok(plan(parts)),
        ("plan", other) => Err(format!("`/plan {other}` is not known; use `/plan` or `/plan clear`")),
        ("compact", _) => Err(
            "Compaction is not available yet in this version. Start a new session when the context is full."
                .to_owned(),
        ),
        (name, _) => Err(format!("`/{name}` is not known; `/help` lists the commands")),
    }
}

fn help() -> String {
    let mut text = String::from("Commands:\n");
    for info in COMMANDS {
        let hint = info.hint.map(|hint| format!(" {hint}")).unwrap_or_default();
        text.push_str(&format!("- `/{}{hint}`: {}\n", info.name, info.description));
    }
    text.push_str(
        "\nTerret asks before it runs commands or changes files, as the mode says. \
         A prompt that you send while it works joins what it is doing.",
    );
    text
}

fn modes(options: &Options) -> String {
    let modes = options
        .modes
        .iter()
        .map(|mode| format!("`{}`: {}", mode.name(), mode_description(*mode)))
        .collect::<Vec<_>>()
        .join("; ");
    format!("There are {modes}.")
}

fn model(parts: &TurnParts) -> String {
    let options = options::current(parts);
    let current = options.model.map_or_else(
        || "No model is configured.".to_owned(),
        |model| format!("The model is `{model}`."),
    );
    if options.models.len() < 2 {
        return current;
    }
    let others = options
        .models
        .iter()
        .map(|model| format!("`{model}`"))
        .collect::<Vec<_>>()
        .join(", ");
    format!("{current} Offered: {others}.")
}

fn plan(parts: &TurnParts) -> String {
    parts.core.state(|state| {
        let entries = state.plan.entries();
        if entries.is_empty() {
            return "The task list is empty.".to_owned();
        }
        let open = state.plan.open_count();
        let mut text = match open {
            0 => String::from("All steps are completed:\n"),
            1 => String::from("1 step open:\n"),
            n => format!("{n} steps open:\n"),
        };
        for entry in entries {
            let mark = match entry.status {
                terret_log::PlanStatus::Pending => "[ ]",
                terret_log::PlanStatus::InProgress => "[~]",
                terret_log::PlanStatus::Completed => "[x]",
            };
            text.push_str(&format!("- {mark} {}\n", entry.content));
        }
        text
    })
}
