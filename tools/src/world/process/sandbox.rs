//! The seam that every spawn goes through (`Terret spec §5.1`): a provider rewrites the
//! argument list so that the program starts confined.

use std::ffi::OsString;
use std::path::Path;

/// Confines what is spawned.
pub trait Sandbox: Send + Sync {
    /// The name that config and `terret doctor` use.
    fn name(&self) -> &'static str;

    /// The argument list to start instead. Standard input, output and error pass through
    /// unchanged, and so does the environment unless the provider says otherwise.
    ///
    /// # Errors
    /// The reason in words; then nothing is spawned.
    fn wrap(&self, argv: Vec<OsString>, cwd: &Path) -> Result<Vec<OsString>, SandboxRefusal>;

    /// Whether what runs inside is kept from the rest of the machine, so that a command
    /// need not always be asked for.
    fn isolated(&self) -> bool;
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

    fn wrap(&self, argv: Vec<OsString>, _cwd: &Path) -> Result<Vec<OsString>, SandboxRefusal> {
        Ok(argv)
    }

    fn isolated(&self) -> bool {
        false
    }
}
