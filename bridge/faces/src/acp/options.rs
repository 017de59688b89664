//! Modes and config options: two views of one choice, always sent together, since some
//! clients read the one and some the other (`ACP config options`).

use terret_acp::schema::v1;
use terret_engine::room::models::ThinkingLevel;
use terret_engine::{Engine, Options, SessionHandle, mode_description};

use crate::text::encoded_len;

/// Encoded bytes of the models that are offered: all options stand in one frame.
const MODEL_BYTES: usize = 24 * 1024;

/// The session's mode as session modes.
pub(crate) fn modes(options: &Options) -> v1::SessionModeState {
    let mut offered = options.modes.clone();
    if !offered.contains(&options.mode) {
        // Set by config or a flag: it cannot be chosen here, and must not be hidden.
        offered.push(options.mode);
    }
    let modes = offered
        .into_iter()
        .map(|mode| {
            v1::SessionMode::new(mode.name(), title(mode.name()))
                .description(mode_description(mode).to_owned())
        })
        .collect();
    v1::SessionModeState::new(options.mode.name(), modes)
}

/// All options of the session, the most used first.
pub(crate) fn config_options(options: &Options) -> Vec<v1::SessionConfigOption> {
    let modes = modes(options);
    let choices: Vec<_> = modes
        .available_modes
        .into_iter()
        .map(|mode| {
            v1::SessionConfigSelectOption::new(mode.id.0.to_string(), mode.name)
                .description(mode.description)
        })
        .collect();
    let mode = v1::SessionConfigOption::select("mode", "Mode", options.mode.name(), choices)
        .description("How much may be done without asking".to_owned())
        .category(v1::SessionConfigOptionCategory::Mode);
    let mut all = vec![mode];
    if let Some(model) = &options.model {
        let mut room = MODEL_BYTES;
        let choices: Vec<_> = options
            .models
            .iter()
            .map(|one| (one == model, one.to_string()))
            .filter(|(is_current, name)| {
                let need = 2 * encoded_len(name) + 30;
                let fits = need <= room;
                room -= if fits { need } else { 0 };
                // The one in use must not be hidden, however many stand before it.
                fits || *is_current
            })
            .map(|(_, name)| v1::SessionConfigSelectOption::new(name.clone(), name))
            .collect();
        all.push(
            v1::SessionConfigOption::select("model", "Model", model.to_string(), choices)
                .category(v1::SessionConfigOptionCategory::Model),
        );
    }
    if let Some(level) = options.thinking {
        let choices: Vec<_> = ThinkingLevel::ALL
            .map(|level| v1::SessionConfigSelectOption::new(level.name(), title(level.name())))
            .into();
        all.push(
            v1::SessionConfigOption::select("thinking", "Thinking", level.name(), choices)
                .description("How much the model thinks before it answers".to_owned())
                .category(v1::SessionConfigOptionCategory::ThoughtLevel),
        );
    }
    all
}

/// Both views as they stand.
pub(crate) fn current(
    session: &SessionHandle,
) -> (v1::SessionModeState, Vec<v1::SessionConfigOption>) {
    let options = session.options();
    (modes(&options), config_options(&options))
}

/// The size of the context of the session's model, when it is known.
pub(crate) fn context_window(engine: &Engine, session: &SessionHandle) -> Option<u64> {
    let model = session.options().model?;
    let provider = engine.registry().resolve(&model).ok()?;
    provider.capabilities(&model.model).context_window
}

/// A name with its first letter large.
fn title(name: &str) -> String {
    let mut letters = name.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use terret_engine::room::models::ModelName;
    use terret_engine::room::tools::mode::Mode;

    use super::*;

    #[test]
    fn many_models_fit_a_frame_and_the_one_in_use_is_among_them() {
        let model = |number: usize| ModelName {
            provider: "router".into(),
            model: format!("family/model-{number}"),
        };
        let options = Options {
            mode: Mode::Ask,
            modes: terret_engine::OFFERED_MODES.to_vec(),
            model: Some(model(2999)),
            models: (0..3000).map(model).collect(),
            thinking: None,
        };
        let shown = serde_json::to_string(&config_options(&options)).unwrap();
        assert!(shown.len() < 32 * 1024, "{}", shown.len());
        assert!(shown.contains(r#""value":"router:family/model-2999""#));
        assert!(shown.contains(r#""value":"router:family/model-0""#));
    }
}
