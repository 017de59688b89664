//! What a person may choose for a session: mode, model and thinking. Choices are
//! events, so they survive a restart; faces show them and never keep them.

use terret_log::Payload;
use terret_models::{ModelName, ThinkingLevel};
use terret_tools::mode::Mode;

use crate::error::OptionError;
use crate::policy::mode_of;
use crate::step::{model_of, thinking_of};
use crate::turn::TurnParts;

/// The modes that are offered everywhere. `auto` needs an isolating sandbox, and comes with
/// it; `bypass` needs a flag.
pub const OFFERED_MODES: [Mode; 3] = [Mode::Plan, Mode::Ask, Mode::Edits];

/// What a mode means, in one line for people.
pub fn mode_description(mode: Mode) -> &'static str {
    match mode {
        Mode::Plan => "only look, change nothing",
        Mode::Ask => "ask before files change and commands run",
        Mode::Edits => "edit files in the workspace without asking, ask for the rest",
        Mode::Auto => "do everything inside the sandbox without asking",
        Mode::Bypass => "do everything without asking",
    }
}

/// The options of a session as they stand.
#[derive(Debug, Clone)]
pub struct Options {
    pub mode: Mode,
    /// Those that can be chosen, the most careful first.
    pub modes: Vec<Mode>,
    /// None when no model is configured.
    pub model: Option<ModelName>,
    pub models: Vec<ModelName>,
    /// `off`, `low`, `medium` or `high`; none when the model does not think.
    pub thinking: Option<ThinkingLevel>,
}

/// Auto is offered where the sandbox isolates, or may do so: whether it does is found out
/// with the first command, until which `auto` asks as `ask` does.
fn offered(parts: &TurnParts) -> Vec<Mode> {
    let may_isolate = parts.pipeline.world.processes().sandbox().may_isolate();
    OFFERED_MODES
        .into_iter()
        .chain(may_isolate.then_some(Mode::Auto))
        .chain(parts.policy.settings().bypass.then_some(Mode::Bypass))
        .collect()
}

pub(crate) fn current(parts: &TurnParts) -> Options {
    let settings = parts.policy.settings();
    let model = model_of(&parts.core, &parts.policy);
    let mut models = settings.offered_models.clone();
    if let Some(model) = &model
        && !models.contains(model)
    {
        models.insert(0, model.clone());
    }
    let thinks = parts
        .models
        .resolve(&parts.core, &parts.policy)
        .is_ok_and(|found| found.provider.capabilities(&found.name.model).thinking);
    Options {
        mode: parts.core.state(|state| mode_of(&settings, state)),
        modes: offered(parts),
        model,
        models,
        thinking: thinks.then(|| thinking_of(&parts.core, &parts.policy)),
    }
}

pub(crate) fn set(
    parts: &TurnParts,
    option: &str,
    value: &str,
    by: &str,
) -> Result<(), OptionError> {
    let wrong = |known: String| OptionError::Value {
        option: option.to_owned(),
        value: value.to_owned(),
        known,
    };
    match option {
        "mode" => {
            let offered = offered(parts);
            let known = || {
                offered
                    .iter()
                    .map(|mode| format!("`{}`", mode.name()))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            let mode = Mode::named(value).ok_or_else(|| wrong(known()))?;
            if !offered.contains(&mode) {
                return Err(wrong(known()));
            }
        }
        "model" => {
            let name: ModelName = value
                .parse()
                .map_err(|error| OptionError::Refused(format!("{error}")))?;
            let registry = parts
                .models
                .registry
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone();
            registry
                .resolve(&name)
                .map_err(|error| OptionError::Refused(error.to_string()))?;
        }
        "thinking" => {
            ThinkingLevel::named(value)
                .ok_or_else(|| wrong("`off`, `low`, `medium`, `high`".to_owned()))?;
        }
        other => return Err(OptionError::Unknown(other.to_owned())),
    }
    // An unchanged choice is not an event.
    if parts
        .core
        .state(|state| state.options.get(option).map(String::as_str) == Some(value))
    {
        return Ok(());
    }
    parts
        .core
        .append(Payload::OptionSet {
            option: option.to_owned(),
            value: value.to_owned(),
            by: by.to_owned(),
        })
        .map_err(|fault| OptionError::Fault(fault.0))?;
    if option == "mode" {
        parts.policy.refresh();
        parts
            .approvals
            .settle_covered(&format!("mode:{value}"))
            .map_err(|fault| OptionError::Fault(fault.0))?;
    }
    Ok(())
}
