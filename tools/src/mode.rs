//! Modes: how much may be done without asking, where no rule speaks
//! (`design: Permissions`).

use serde::{Deserialize, Serialize};

use crate::definition::{Approval, Definition, Kind};

/// How much may be done without asking.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Look only.
    Plan,
    /// Ask before what changes something.
    #[default]
    Ask,
    /// Files in the workspace may be edited.
    Edits,
    /// No asking, inside an isolating sandbox.
    Auto,
    /// No asking at all; passes ask rules too.
    Bypass,
}

impl Mode {
    /// The name on the wire and in config.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Ask => "ask",
            Self::Edits => "edits",
            Self::Auto => "auto",
            Self::Bypass => "bypass",
        }
    }

    /// The mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Plan, Self::Ask, Self::Edits, Self::Auto, Self::Bypass]
            .into_iter()
            .find(|mode| mode.name() == name)
    }

    /// Whether a call of this tool runs unasked when no rule speaks. `isolated` tells
    /// whether commands run in an isolating sandbox; `auto` is `ask` without one.
    pub fn runs_unasked(self, definition: &Definition, isolated: bool) -> bool {
        let needs_decision = match definition.approval {
            Approval::Never => false,
            // What leaves this machine is asked for as well, unless a rule names its host.
            Approval::Policy => definition.mutating || definition.kind == Kind::Fetch,
            Approval::Always | Approval::BySandbox => true,
        };
        match self {
            _ if !needs_decision => true,
            Self::Bypass => true,
            // Outside of an isolating sandbox what it bounds is always asked for.
            // Nor does one bound what is fetched.
            Self::Auto => {
                isolated
                    && definition.approval != Approval::Always
                    && definition.kind != Kind::Fetch
            }
            Self::Edits => definition.kind == Kind::Edit,
            Self::Plan | Self::Ask => false,
        }
    }
}
