//! What one command leaves to the next: the folder, and exported variables that cannot
//! take over a later command's programs (`design.md §4 Bash`, check 138).
//!
//! The command itself runs in the shell that reports this, so it can report what it likes.
//! That gains it nothing over `cd` and `export`: the report is filtered here, and status
//! and output do not come from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A value longer than this makes every later program's start fail.
const VALUE_LIMIT: usize = 64 * 1024;

/// Folder and variables for the next command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    pub cwd: Option<PathBuf>,
    pub set: BTreeMap<OsString, OsString>,
    pub unset: BTreeSet<OsString>,
}

/// What a shell reported at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub cwd: PathBuf,
    pub exported: BTreeMap<OsString, OsString>,
}

impl Report {
    /// Reads a report: the folder, `name=value` for each variable and `=end`, each ended
    /// by a zero byte. None when it is not whole.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut records = bytes.split(|byte| *byte == 0);
        let cwd = PathBuf::from(OsString::from_vec(records.next()?.to_vec()));
        if !cwd.is_absolute() {
            return None;
        }
        let mut exported = BTreeMap::new();
        for record in records {
            if record == b"=end" {
                return Some(Self { cwd, exported });
            }
            let at = record.iter().position(|byte| *byte == b'=')?;
            let (name, value) = record.split_at(at);
            if name.is_empty() {
                return None;
            }
            let value = value.get(1..).unwrap_or_default();
            exported.insert(
                OsStr::from_bytes(name).to_owned(),
                OsStr::from_bytes(value).to_owned(),
            );
        }
        None
    }
}

impl Carried {
    /// Whether anything but the folder is carried.
    pub fn has_variables(&self) -> bool {
        !self.set.is_empty() || !self.unset.is_empty()
    }

    /// The environment of the next command.
    pub fn apply(&self, environment: &mut BTreeMap<OsString, OsString>) {
        environment.retain(|name, _| !self.unset.contains(name));
        environment.extend(
            self.set
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
    }

    /// Takes over a report. `given` is the environment that the command started with, and
    /// `base` the one without anything carried. Gives remarks on what is not kept.
    pub fn update(
        &mut self,
        report: Report,
        given: &BTreeMap<OsString, OsString>,
        base: &BTreeMap<OsString, OsString>,
    ) -> Vec<String> {
        let mut remarks = Vec::new();
        self.cwd = Some(report.cwd);
        for name in given
            .keys()
            .filter(|name| is_carried(name) && !report.exported.contains_key(*name))
        {
            self.set.remove(name);
            self.unset.insert(name.clone());
        }
        for (name, value) in report.exported {
            if !is_carried(&name) || given.get(&name) == Some(&value) {
                continue;
            }
            if value.len() > VALUE_LIMIT {
                remarks.push(format!(
                    "the variable {} is too long to be kept for later commands ({} bytes)",
                    name.to_string_lossy(),
                    value.len()
                ));
                continue;
            }
            let value = if name == "PATH" {
                let (kept, dropped) = safe_path(
                    &value,
                    base.get(OsStr::new("PATH")).map(OsString::as_os_str),
                );
                if !dropped.is_empty() {
                    remarks.push(format!(
                        "PATH for later commands is without {}: a folder that can be written to may not come before \
                         the others; append it, or name its programs by their path",
                        dropped.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
                    ));
                }
                kept
            } else {
                value
            };
            self.unset.remove(&name);
            if base.get(&name) == Some(&value) {
                self.set.remove(&name);
            } else {
                self.set.insert(name, value);
            }
        }
        remarks
    }
}

/// Whether a variable of this name lives on. What changes how a shell or the loader starts
/// does not, and neither does what each command gets anew.
fn is_carried(name: &OsStr) -> bool {
    const FRESH: &[&str] = &[
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "PS4",
        "PROMPT_COMMAND",
        "IFS",
        "POSIXLY_CORRECT",
    ];
    let Some(name) = name.to_str() else {
        return false;
    };
    !FRESH.contains(&name)
        && !["LD_", "DYLD_", "TERRET_", "BASH_FUNC_"]
            .iter()
            .any(|start| name.starts_with(start))
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The folders of `path` without new ones that stand before a folder of `base` and could
/// be written to: whoever can write there would choose what later commands run.
fn safe_path(path: &OsStr, base: Option<&OsStr>) -> (OsString, Vec<PathBuf>) {
    let trusted: BTreeSet<PathBuf> = base
        .map(|base| std::env::split_paths(base).collect())
        .unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(path).collect();
    let last = folders
        .iter()
        .rposition(|folder| trusted.contains(folder))
        .unwrap_or(folders.len());
    let mut dropped = Vec::new();
    let mut kept = Vec::new();
    for (index, folder) in folders.into_iter().enumerate() {
        if !trusted.contains(&folder) && index < last && is_writable(&folder) {
            dropped.push(folder);
        } else {
            kept.push(folder);
        }
    }
    let joined = std::env::join_paths(kept)
        .unwrap_or_else(|_| base.map(OsStr::to_owned).unwrap_or_default());
    (joined, dropped)
}

/// A relative folder is whatever the current one holds; a missing one can be made.
fn is_writable(folder: &Path) -> bool {
    !folder.is_absolute()
        || !folder.is_dir()
        || rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests;
