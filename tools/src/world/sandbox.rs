//! The seam that every spawn goes through (`Terret spec §5.1`, `design: Sandbox`): a
//! provider rewrites what is started so that it runs confined.

pub mod bwrap;
pub mod choice;
pub mod confine;
pub mod docker;
pub mod ground;
pub mod guarded;
pub mod guess;
mod helper_file;
pub mod landlock;
pub mod order;
mod passing;
pub mod report;
#[cfg(test)]
mod testing;
pub mod tries;

use std::ffi::OsString;
use std::path::PathBuf;

/// Confines what is spawned.
pub trait Sandbox: Send + Sync {
    /// The name that config and `terret doctor` use.
    fn name(&self) -> &'static str;

    /// What to start instead. Standard input, output and error pass through unchanged,
    /// and so does the environment unless the provider says otherwise. Only a terminal
    /// asks for a tty (check 144). May block for as long as a provider takes to start.
    ///
    /// # Errors
    /// The reason in words; then nothing is spawned.
    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal>;

    /// Whether what runs inside is kept from the rest of the machine, so that a command
    /// need not always be asked for. Landlock alone is not called isolated.
    fn isolated(&self) -> bool;

    /// Whether it isolates, or may do so and was not looked at yet. Never blocks.
    fn may_isolate(&self) -> bool {
        self.isolated()
    }

    /// Whether a failure looks as if the sandbox had caused it. A guess, for the one
    /// approval to run the call again with more reach; `text` is its output.
    fn guess(&self, _text: &str, _network: Network) -> Option<Denial> {
        None
    }

    /// Whether what runs inside has the descriptors and the environment that we give it.
    /// Where it has not, its input is a stream, and the shell finds another way to hand
    /// over what one command leaves to the next.
    fn shares_descriptors(&self) -> bool {
        true
    }

    /// What a signal does not reach or a limit does not hold, in one sentence for the
    /// model, where a provider has such a gap (`Terret seed §6`, the docker provider).
    fn caveat(&self) -> Option<&'static str> {
        None
    }

    /// Ends what the provider keeps running, containers say. May block for some seconds;
    /// what is started afterwards begins anew.
    fn close(&self) {}
}

/// A program and what it may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxRequest {
    pub argv: Vec<OsString>,
    /// Absolute; where the program starts.
    pub cwd: PathBuf,
    pub reach: Reach,
    /// The program gets a terminal.
    pub tty: bool,
}

/// What a confined program may reach beyond the system and the toolchains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// The real paths of the session's roots: may be written, but for protected files.
    pub roots: Vec<PathBuf>,
    /// The session's private temporary folder, which may be written and is `TMPDIR`.
    pub temporary: PathBuf,
    pub network: Network,
}

/// Whether a confined program may use the network and Unix sockets; all or nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    #[default]
    Closed,
    Open,
}

/// How a program is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confinement {
    /// By the session's provider.
    Sandboxed { network: Network },
    /// Not at all: a person approved it for this call.
    Outside,
}

impl Default for Confinement {
    fn default() -> Self {
        Self::Sandboxed {
            network: Network::Closed,
        }
    }
}

/// What is started in the place of the program that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapped {
    /// What is executed, when that is not what `argv` begins with: our own binary, which
    /// acts by the name that it is called (`design §3`).
    pub program: Option<OsString>,
    pub argv: Vec<OsString>,
}

/// What a sandbox seems to have kept from a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denial {
    /// The command wanted the network.
    Network,
    /// The command wanted a file, or another thing outside.
    Files,
}

/// Why a provider will not start something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sandbox refuses: {0}")]
pub struct SandboxRefusal(pub String);

/// No confinement: programs run as we do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoSandbox;

impl Sandbox for NoSandbox {
    fn name(&self) -> &'static str {
        "none"
    }

    fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
        Ok(Wrapped::unchanged(request.argv))
    }

    fn isolated(&self) -> bool {
        false
    }
}

impl Wrapped {
    /// A program that starts as it is.
    pub fn unchanged(argv: Vec<OsString>) -> Self {
        Self {
            program: None,
            argv,
        }
    }
}

#[cfg(test)]
mod tests;
