//! The files inside the roots that run code later, as the mounts of a sandbox protect
//! them: what is there is read-only, and what holds it cannot be moved away. Git stays
//! usable: a commit writes objects, refs, logs and the index, and none of these.
//!
//! [`protection`](crate::world::protection) says the same of single paths to the file
//! seam, which always asks.

use std::path::{Component, Path, PathBuf};

use crate::world::protection::START_UP;

/// How a root's protected files are mounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guarded {
    /// Git folders outside the roots that a commit in them writes to.
    pub write: Vec<PathBuf>,
    /// Mounted on themselves, since a mount point cannot be renamed or removed.
    pub pinned: Vec<PathBuf>,
    /// Read-only with all below them.
    pub frozen: Vec<PathBuf>,
    /// Folders that are missing, to be empty and read-only. Only below git folders,
    /// where nobody minds that an empty folder is made.
    pub absent: Vec<PathBuf>,
}

/// Right below a root, files and folders, beside the start-up files of shells.
const NAMES: &[&str] = &[".terret", ".mcp.json", ".envrc"];

/// Two deep: the folder is pinned, or it could be moved away with what it holds.
const NESTED: &[(&str, &str)] = &[
    (".vscode", "tasks.json"),
    (".claude", "settings.json"),
    (".claude", "settings.local.json"),
    (".claude", "hooks"),
    (".config/fish", "config.fish"),
    (".config/fish", "conf.d"),
];

/// Of a repository in the root: itself, and what tells git where its configuration is.
const IN_GIT: &[&str] = &[
    ".git",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
    ".git/hooks",
];

/// Entries of a root that are looked at for repositories of their own.
const ENTRIES: usize = 1024;
/// Folders of submodules lie below each other.
const MODULES_DEPTH: usize = 6;

/// What is protected right below a root.
fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().chain(START_UP).copied()
}

/// Looks at the roots as they are now.
pub fn guarded(roots: &[PathBuf]) -> Guarded {
    let mut guarded = Guarded::default();
    for root in roots {
        guarded.names(root);
        guarded.repository(root, root, roots);
        // Repositories beside each other in one folder, and submodules.
        for entry in entries(root).into_iter().take(ENTRIES) {
            guarded.repository(&entry, root, roots);
        }
        for path in submodules(root) {
            guarded.repository(&root.join(path), root, roots);
        }
    }
    for list in [
        &mut guarded.write,
        &mut guarded.pinned,
        &mut guarded.frozen,
        &mut guarded.absent,
    ] {
        list.sort();
        list.dedup();
    }
    guarded
}

/// Protected files that are not there yet. Nothing can be mounted on them without making
/// them for everyone, so that a program can make them; what it made is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unmade(Vec<(PathBuf, PathBuf)>);

impl Unmade {
    /// Looks at the roots as they are now.
    pub fn of(roots: &[PathBuf]) -> Self {
        let nested = NESTED
            .iter()
            .map(|(folder, file)| Path::new(folder).join(file));
        let names: Vec<PathBuf> = names()
            .chain(IN_GIT.iter().copied())
            .map(PathBuf::from)
            .chain(nested)
            .collect();
        let missing = |root: &PathBuf| {
            let root = root.clone();
            names
                .iter()
                .filter(|name| root.join(name).symlink_metadata().is_err())
                .map(|name| (root.clone(), name.clone()))
                .collect::<Vec<_>>()
        };
        Self(roots.iter().flat_map(missing).collect())
    }

    /// Those that are there now, relative to their root; a folder stands for what it holds.
    pub fn made(&self) -> Vec<PathBuf> {
        let made = self
            .0
            .iter()
            .filter(|(root, name)| root.join(name).symlink_metadata().is_ok())
            .map(|(_, name)| name.clone());
        super::ground::outermost(made)
    }
}

impl Guarded {
    fn names(&mut self, root: &Path) {
        for name in names() {
            self.freeze(&root.join(name), root);
        }
        for (folder, file) in NESTED {
            let folder = root.join(folder);
            if folder.join(file).exists() && is_inside(&folder, root) {
                self.pinned.push(folder.clone());
                self.freeze(&folder.join(file), root);
            }
        }
    }

    /// A link cannot be mounted on; where it leads to inside the root, that is frozen.
    fn freeze(&mut self, path: &Path, root: &Path) {
        if let Ok(real) = path.canonicalize()
            && real.starts_with(root)
            && real != root
        {
            self.frozen.push(real);
        }
    }

    /// `folder` may hold a repository: `.git` is a folder, or a file that names one.
    fn repository(&mut self, folder: &Path, root: &Path, roots: &[PathBuf]) {
        let git = folder.join(".git");
        let Ok(found) = git.symlink_metadata() else {
            return;
        };
        if found.is_dir() {
            if is_inside(&git, root) {
                self.pinned.push(git.clone());
                self.git_folder(&git);
            }
        } else if found.is_file() {
            self.freeze(&git, root);
            self.redirected(&git, folder, roots);
        }
    }

    /// A worktree or a submodule: what it names may be written when it names us back, so
    /// that a file from somewhere cannot open a folder of its choice.
    fn redirected(&mut self, file: &Path, folder: &Path, roots: &[PathBuf]) {
        let Some(named) = read(file).and_then(|text| {
            let path = text.strip_prefix("gitdir:")?.trim().to_owned();
            folder.join(path).canonicalize().ok()
        }) else {
            return;
        };
        let common = read(&named.join("commondir")).and_then(|text| {
            let back = read(&named.join("gitdir"))?;
            let back = named.join(back.trim()).canonicalize().ok()?;
            let common = named.join(text.trim()).canonicalize().ok()?;
            // The worktree's folder lies in the repository's own list of them.
            (back == *file && named.starts_with(common.join("worktrees"))).then_some(common)
        });
        let is_submodule = || {
            read(&named.join("config")).is_some_and(|text| {
                text.lines()
                    .filter_map(|line| {
                        line.trim()
                            .strip_prefix("worktree")?
                            .trim()
                            .strip_prefix('=')
                    })
                    .any(|path| {
                        named
                            .join(path.trim())
                            .canonicalize()
                            .is_ok_and(|back| back == folder)
                    })
            })
        };
        let Some(git) = common.or_else(|| is_submodule().then(|| named.clone())) else {
            return;
        };
        if !git.join("HEAD").is_file() || !git.join("objects").is_dir() {
            return;
        }
        if !roots.iter().any(|root| git.starts_with(root)) {
            self.write.push(git.clone());
        }
        self.git_folder(&git);
    }

    /// What a git folder runs or is told by.
    fn git_folder(&mut self, git: &Path) {
        self.git_files(git);
        if !git.join("hooks").exists() {
            self.absent.push(git.join("hooks"));
        }
        for worktree in entries(&git.join("worktrees")) {
            self.git_files(&worktree);
        }
        self.modules(&git.join("modules"), MODULES_DEPTH);
    }

    fn git_files(&mut self, git: &Path) {
        for name in ["config", "config.worktree", "hooks", "commondir"] {
            self.freeze(&git.join(name), git);
        }
    }

    fn modules(&mut self, folder: &Path, depth: usize) {
        if depth == 0 {
            return;
        }
        for entry in entries(folder) {
            if entry.join("HEAD").is_file() {
                self.pinned.push(entry.clone());
                self.git_folder(&entry);
            } else {
                self.modules(&entry, depth - 1);
            }
        }
    }
}

/// Whether a folder lies below a root without a link on the way.
fn is_inside(path: &Path, root: &Path) -> bool {
    path.canonicalize()
        .is_ok_and(|real| real == *path && real.starts_with(root))
}

/// The folders that a repository's submodules are in, as far as they lie below it.
fn submodules(root: &Path) -> Vec<PathBuf> {
    read(&root.join(".gitmodules"))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("path")?.trim().strip_prefix('='))
        .map(|path| PathBuf::from(path.trim()))
        .filter(|path| {
            path.components()
                .all(|part| matches!(part, Component::Normal(_)))
        })
        .take(ENTRIES)
        .collect()
}

/// The folders in a folder; links are not followed.
#[expect(
    clippy::disallowed_methods,
    reason = "names of folders in the roots, to protect what runs code in them"
)]
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

/// A small file of git's; none when it is missing, long or no text.
#[expect(
    clippy::disallowed_methods,
    reason = "git's own pointers in the roots, to protect where they lead"
)]
fn read(path: &Path) -> Option<String> {
    const LONG: u64 = 1024 * 1024;
    let found = std::fs::metadata(path).ok()?;
    if !found.is_file() || found.len() > LONG {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests;
