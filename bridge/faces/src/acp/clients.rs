//! What we know of real clients beyond what they say of themselves, by the name that
//! `initialize` gives. Seen on the wire of each; a client that is not here is taken at its
//! word. One table, so that what a client does differently is looked up in one place.

/// What a client does differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Habits {
    /// Shows `plan` updates. One that drops them gets the list as a tool card's text.
    pub shows_plans: bool,
    /// Shows several permission requests at once. One that cannot gets them one by one.
    pub asks_together: bool,
    /// Shows each option of a permission request by its name, also a second of a kind. Most
    /// give a key to the first of a kind only, or show labels of their own.
    pub several_of_a_kind: bool,
    /// Reads `plan_update` as it is now, when it says that it does. One that knows only an
    /// earlier draft fails on it and shows nothing.
    pub reads_plan_updates: bool,
}

const ORDINARY: Habits = Habits {
    shows_plans: true,
    asks_together: true,
    several_of_a_kind: false,
    reads_plan_updates: true,
};

/// Names in lower case, as a part of what the client calls itself.
const TABLE: [(&str, Habits); 4] = [
    // Has a handler for plans that nothing calls.
    (
        "codecompanion",
        Habits {
            shows_plans: false,
            asks_together: false,
            ..ORDINARY
        },
    ),
    // Its library wants `id` where the schema has `planId`.
    (
        "hrns",
        Habits {
            reads_plan_updates: false,
            ..ORDINARY
        },
    ),
    // One full-screen question at a time.
    (
        "toad",
        Habits {
            asks_together: false,
            ..ORDINARY
        },
    ),
    // A quick pick, which lists every option by its name, and which a second one replaces and answers as cancelled.
    (
        "vscode-acp",
        Habits {
            asks_together: false,
            several_of_a_kind: true,
            ..ORDINARY
        },
    ),
];

/// What is known of a client by its name; `None` when it gave none (avante, marimo).
pub(crate) fn habits(name: Option<&str>) -> Habits {
    let Some(name) = name.map(str::to_lowercase) else {
        return ORDINARY;
    };
    let squeezed: String = name
        .chars()
        .filter(|c| c.is_alphanumeric() || *c == '-')
        .collect();
    TABLE
        .iter()
        .find(|(known, _)| squeezed.contains(known))
        .map_or(ORDINARY, |(_, habits)| *habits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_known_however_they_spell_their_name() {
        assert!(!habits(Some("CodeCompanion.nvim")).shows_plans);
        assert!(!habits(Some("Toad")).asks_together);
        assert!(!habits(Some("hrns-client")).reads_plan_updates);
        assert_eq!(habits(Some("zed")), ORDINARY);
        assert_eq!(habits(None), ORDINARY);
    }
}
