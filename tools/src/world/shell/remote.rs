//! Commands where neither our descriptors nor our environment reach: `docker exec`.
//!
//! The command comes on the input with the variables that it is to have behind it. It
//! reports twice, before it begins and at its end, into a file of the container, which a
//! program of its own then prints and removes: what is in it is as little trusted as any
//! report ([`crate::world::shell::carried`]).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::world::process::{End, Processes, Program, Watch};
use crate::world::sandbox::Confinement;
use crate::world::shell::carried::{Carried, Report};

/// Prints the report as hexadecimal digits, which no cleaning of output changes.
const FETCH: &str = "od -An -v -tx1 \"$0\"; rm -f \"$0\"";
/// Reading a small file takes no longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Both reports of a command.
pub(super) struct Reports {
    pub(super) begin: Report,
    pub(super) end: Report,
}

/// What follows the command on the input: `name=value` for what is to be exported,
/// `-name` for what is not to be there, each ended by a zero byte.
pub(super) fn variables(fixed: &[(&str, &str)], carried: &Carried) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut set: BTreeMap<&OsStr, &OsStr> = fixed
        .iter()
        .map(|(name, value)| (OsStr::new(name), OsStr::new(value)))
        .collect();
    set.extend(
        carried
            .set
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str())),
    );
    for name in &carried.unset {
        set.remove(name.as_os_str());
        bytes.push(b'-');
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
    }
    for (name, value) in set {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(b'=');
        bytes.extend_from_slice(value.as_bytes());
        bytes.push(0);
    }
    bytes
}

/// The environment without what is carried: what a report is compared with.
pub(super) fn base(begin: &Report, carried: &Carried) -> BTreeMap<OsString, OsString> {
    let mut base = begin.exported.clone();
    base.retain(|name, _| !carried.set.contains_key(name));
    base
}

/// Fetches the reports; none when the command left no whole ones.
pub(super) async fn reports(
    processes: &Processes,
    path: &str,
    cwd: &Path,
    confinement: Confinement,
    cancel: &CancellationToken,
) -> Option<Reports> {
    let argv = ["/bin/sh", "-c", FETCH, path].map(OsString::from).to_vec();
    let program = Program {
        argv,
        cwd: cwd.to_owned(),
        environment: processes.environment().clone(),
        input: None,
        confinement,
    };
    let watch = Watch {
        timeout: Some(PATIENCE),
        ..Watch::default()
    };
    let running = processes.start(program, watch).await.ok()?;
    let finished = running.finish(cancel).await.ok()?;
    if finished.end != End::Exited(0) || finished.output.left_out > 0 {
        return None;
    }
    parse(&digits(&finished.output.text)?)
}

fn digits(text: &str) -> Option<Vec<u8>> {
    text.split_whitespace()
        .map(|pair| u8::from_str_radix(pair, 16).ok())
        .collect()
}

fn parse(bytes: &[u8]) -> Option<Reports> {
    const END: &[u8] = b"\0=end\0";
    let at = bytes.windows(END.len()).position(|window| window == END)? + END.len();
    let (begin, end) = bytes.split_at(at);
    Some(Reports {
        begin: Report::parse(begin)?,
        end: Report::parse(end)?,
    })
}

#[cfg(test)]
mod tests;
