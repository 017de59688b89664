//! A session's title: the start of its first prompt, until a model writes a better one.

use terret_log::Payload;

use crate::core::Core;

/// `Terret spec §7`: the fallback is the first 40 characters.
const LENGTH: usize = 40;

/// Titles an untitled session after its turn.
pub(crate) fn after_turn(core: &Core) {
    let title = core.state(|state| {
        if state.title.is_some() {
            return None;
        }
        state.first_user_text.as_deref().and_then(fallback)
    });
    if let Some(title) = title
        && let Err(fault) = core.append(Payload::SessionTitled { title })
    {
        tracing::error!(%fault, "a title was not logged");
    }
}

/// The first line with text, cut at a character boundary.
fn fallback(text: &str) -> Option<String> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut title: String = line
        .chars()
        .filter(|c| !c.is_control())
        .take(LENGTH)
        .collect();
    if line.chars().count() > LENGTH {
        title.truncate(title.trim_end().len());
        title.push('…');
    }
    Some(title)
}
