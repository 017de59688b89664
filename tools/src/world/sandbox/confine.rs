//! The helper `terret-sandbox`: confines itself by Landlock and seccomp, and becomes the
//! program. It is no process of its own afterwards, so the program's id, signals and
//! status are those that were started.
//!
//! Landlock is applied before seccomp, whose filter would not mind, but whose failure
//! must leave nothing half confined running: any error ends the helper with 126.

mod filter;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::world::sandbox::order::{HELPER, Order, Sockets};
use crate::world::sandbox::tries;

/// The newest rules that were tested; an older kernel enforces what it knows of them.
const RULES: ABI = ABI::V9;

/// What a shell says of a program that it could not start.
const CANNOT_START: u8 = 126;
/// What a shell says of a program that it did not find.
const NOT_FOUND: u8 = 127;

/// Why the helper started nothing.
#[derive(Debug, thiserror::Error)]
enum ConfineError {
    #[error(transparent)]
    Order(#[from] super::order::BadOrder),
    #[error("no new privileges cannot be ruled out: {0}")]
    Privileges(#[source] rustix::io::Errno),
    #[error("the rights of root cannot be given up: {0}")]
    Capabilities(#[source] rustix::io::Errno),
    #[error("Landlock failed: {0}")]
    Landlock(#[from] landlock::RulesetError),
    #[error(
        "this kernel enforces no Landlock rules, so nothing was started; choose another sandbox \
         provider, or start the kernel with `lsm=landlock,…`"
    )]
    NoLandlock,
    #[error("the seccomp filter failed: {0}")]
    Filter(#[from] filter::FilterError),
}

/// Reads the order from our own arguments, and becomes the program. Comes back only to
/// report a failure, by a line on standard error and this exit code.
pub fn main() -> u8 {
    let program = match confine(std::env::args_os().skip(1)) {
        Ok(argv) => argv,
        Err(error) => {
            complain(&error.to_string());
            return CANNOT_START;
        }
    };
    if let Some((name, tries)) = program.split_first()
        && name == tries::TRIES
    {
        return tries::main(tries);
    }
    let (error, name) = become_program(program);
    complain(&format!("`{}` cannot be started: {error}", name.display()));
    if error.kind() == std::io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        CANNOT_START
    }
}

/// The version of Landlock that this kernel has, asked without changing anything; 0 is
/// none.
pub fn landlock_version() -> i64 {
    const VERSION: u32 = 1;
    #[expect(unsafe_code, reason = "the crate does not tell it without a rule set")]
    // SAFETY: with this flag the call reads no memory and only answers a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            VERSION,
        )
    };
    version.max(0)
}

fn confine(arguments: impl Iterator<Item = OsString>) -> Result<Vec<OsString>, ConfineError> {
    let order = Order::parse(arguments)?;
    rustix::thread::set_no_new_privs(true).map_err(ConfineError::Privileges)?;
    give_up_rights().map_err(ConfineError::Capabilities)?;
    let enforced = restrict(&order)?;
    if order.required && !enforced {
        return Err(ConfineError::NoLandlock);
    }
    filter::install(order.sockets)?;
    Ok(order.argv)
}

/// What root keeps: to work on files of several owners, and to become one of them. The
/// rest reaches memory, devices and the machine past all file rules.
const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID);

/// Nobody gains rights after `no_new_privs`, so what is given up here does not come back
/// with the program, root's or not.
fn give_up_rights() -> Result<(), rustix::io::Errno> {
    let had = rustix::thread::capabilities(None)?;
    if KEPT.contains(had.permitted) {
        return Ok(());
    }
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: had.effective.intersection(KEPT),
            permitted: had.permitted.intersection(KEPT),
            inheritable: CapabilitySet::empty(),
        },
    )
}

#[expect(
    clippy::disallowed_methods,
    reason = "becomes the program, with the environment and descriptors it was given"
)]
fn become_program(argv: Vec<OsString>) -> (std::io::Error, PathBuf) {
    let mut words = argv.into_iter();
    let name = words.next().unwrap_or_default();
    let error = Command::new(&name).args(words).exec();
    (error, name.into())
}

/// Applies the Landlock rules; false where the kernel enforces none of them.
fn restrict(order: &Order) -> Result<bool, ConfineError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(RULES))?
        // Other people's abstract sockets and processes stay out of reach whatever is
        // approved: by them a program could have anything done outside.
        .scope(Scope::from_all(RULES))?;
    if order.sockets == Sockets::Closed {
        ruleset = ruleset.handle_access(AccessNet::from_all(RULES))?;
    }
    let mut created = ruleset.create()?;
    for path in &order.read {
        created = allow(created, path, AccessFs::from_read(RULES))?;
    }
    let mut write = AccessFs::from_all(RULES);
    write.remove(AccessFs::MakeChar | AccessFs::MakeBlock);
    for path in &order.write {
        created = allow(created, path, write)?;
    }
    let device = AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::IoctlDev;
    for path in &order.devices {
        created = allow(created, path, device)?;
    }
    let status = created.restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}

/// A rule for what is there; a path that is gone needs none.
fn allow(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, ConfineError> {
    let Ok(opened) = PathFd::new(path) else {
        return Ok(created);
    };
    // The kernel refuses a rule for a file that speaks of folders.
    let access = if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(RULES)
    };
    Ok(created.add_rule(PathBeneath::new(opened, access))?)
}

/// The helper's only words; standard error is the program's output.
fn complain(text: &str) {
    // A closed one must not make a panic of the exit status that tells of the failure.
    let _ = writeln!(std::io::stderr(), "{HELPER}: {text}");
}
