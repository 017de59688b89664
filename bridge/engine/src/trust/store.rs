//! What was decided about files that projects bring: one file in the user's state, which no
//! tool reaches and no repository brings.

#![expect(
    clippy::disallowed_methods,
    reason = "the file of verdicts belongs to this module"
)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// More is no file of verdicts.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// Contents of one file that are remembered, the newest: who goes from branch to branch is
/// not asked each time.
const MOST_CONTENTS: usize = 32;

/// The verdicts of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustStore {
    path: PathBuf,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustVerdict {
    Trusted,
    Refused,
}

/// One verdict: about this content of this file of this project, and about no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decided {
    /// The project's real path.
    pub root: PathBuf,
    /// Relative to it.
    pub file: String,
    /// Of the content, in lower-case hexadecimal.
    pub sha256: String,
    pub verdict: TrustVerdict,
    /// Unix milliseconds.
    pub at: u64,
    /// Who decided: `editor`, `inbox`, `command line`.
    pub by: String,
}

/// The verdicts cannot be read or changed. The message names file, cause and way out.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("what was decided about projects' files, in `{}`, could not be {what}: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "`{}` {why}; remove it, and decide anew when you are asked",
        path.display()
    )]
    Unusable { path: PathBuf, why: String },
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Content {
    file: Vec<Decided>,
}

impl TrustStore {
    /// In this state folder. Touches nothing.
    pub fn new(state: &Path) -> Self {
        Self {
            path: state.join("trust.toml"),
        }
    }

    /// Where it is, or would be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All verdicts, oldest first. Blocks.
    ///
    /// # Errors
    /// [`TrustError`]; nothing counts as trusted then.
    pub fn read(&self) -> Result<Vec<Decided>, TrustError> {
        let opened = OpenOptions::new()
            .read(true)
            // A link could lead to a file of another, a pipe would be waited for.
            .custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK))
            .open(&self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.failed("read")(source)),
        };
        let found = file.metadata().map_err(self.failed("read"))?;
        let unusable = |why: &str| {
            Err(TrustError::Unusable {
                path: self.path.clone(),
                why: why.to_owned(),
            })
        };
        if !found.is_file() {
            return unusable("is no file");
        }
        if found.uid() != rustix::process::geteuid().as_raw() {
            return unusable("belongs to another user");
        }
        if found.mode() & 0o022 != 0 {
            return unusable("can be written by others");
        }
        if found.len() > MOST_BYTES {
            return unusable("is larger than any file of verdicts");
        }
        let mut text = String::new();
        file.take(MOST_BYTES)
            .read_to_string(&mut text)
            .map_err(self.failed("read"))?;
        match toml::from_str::<Content>(&text) {
            Ok(content) => Ok(content.file),
            Err(error) => unusable(&format!("is not right: {error}")),
        }
    }

    /// Remembers verdicts, each in the place of an earlier one about the same content. On
    /// the disk when this returns. Blocks.
    ///
    /// # Errors
    /// [`TrustError`]; nothing changed then.
    pub fn decide(&self, verdicts: &[Decided]) -> Result<(), TrustError> {
        self.change(|all| {
            for verdict in verdicts {
                let about =
                    |known: &Decided| (&known.root, &known.file) == (&verdict.root, &verdict.file);
                all.retain(|known| !(about(known) && known.sha256 == verdict.sha256));
                let known = all.iter().filter(|known| about(known)).count();
                let mut surplus = (known + 1).saturating_sub(MOST_CONTENTS);
                all.retain(|known| {
                    let goes = surplus > 0 && about(known);
                    surplus -= usize::from(goes);
                    !goes
                });
                all.push(verdict.clone());
            }
        })
    }

    /// Forgets all verdicts about a project; how many there were. Blocks.
    ///
    /// # Errors
    /// [`TrustError`]; nothing changed then.
    pub fn forget(&self, root: &Path) -> Result<usize, TrustError> {
        if self.stamp().is_none() {
            return Ok(0);
        }
        let mut forgotten = 0;
        self.change(|all| {
            let before = all.len();
            all.retain(|known| known.root != root);
            forgotten = before - all.len();
        })?;
        Ok(forgotten)
    }

    /// Of the file as it is now; none when it is not there.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        FileStamp::of(&self.path)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Decided>)) -> Result<(), TrustError> {
        let failed = || self.failed("written");
        if let Some(folder) = self.path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(folder)
                .map_err(failed())?;
        }
        // Not the file itself, which the change replaces.
        let _held = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(flags(OFlags::NOFOLLOW))
            .open(self.path.with_extension("lock"))
            .and_then(|lock| lock.lock().map(|()| lock))
            .map_err(self.failed("locked"))?;
        let mut all = self.read()?;
        change(&mut all);
        let text =
            toml::to_string(&Content { file: all }).map_err(|error| TrustError::Unusable {
                path: self.path.clone(),
                why: format!("cannot hold this: {error}"),
            })?;
        let text = format!(
            "# What was decided about files that projects bring; `terret trust` lists and changes it.\n{text}"
        );
        let temporary = self
            .path
            .with_extension(format!("new-{}", std::process::id()));
        // Left behind by a process that died and had our number.
        let _ = fs::remove_file(&temporary);
        let written = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(failed())?;
        match self.path.parent() {
            Some(folder) => File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(failed()),
            None => Ok(()),
        }
    }

    fn failed(&self, what: &'static str) -> impl FnOnce(io::Error) -> TrustError + use<> {
        let path = self.path.clone();
        move |source| TrustError::Io { what, path, source }
    }
}

/// Tells a changed file from the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    file: (u64, u64),
    changed: (i64, i64),
    length: u64,
}

impl FileStamp {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self {
            file: (found.dev(), found.ino()),
            changed: (found.ctime(), found.ctime_nsec()),
            length: found.len(),
        })
    }
}

fn flags(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn verdict(root: &str, hash: &str, verdict: TrustVerdict) -> Decided {
        Decided {
            root: root.into(),
            file: ".terret/config.toml".to_owned(),
            sha256: hash.to_owned(),
            verdict,
            at: 1,
            by: "test".to_owned(),
        }
    }

    #[test]
    fn verdicts_are_kept_by_content_and_the_last_one_counts() {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::new(&folder.path().join("state"));
        assert_eq!(store.read().unwrap(), []);
        assert_eq!(store.forget(Path::new("/a")).unwrap(), 0);
        let one = verdict("/a", "01", TrustVerdict::Trusted);
        let other = verdict("/b", "01", TrustVerdict::Refused);
        store.decide(&[one.clone(), other.clone()]).unwrap();
        assert_eq!(store.read().unwrap(), [one, other.clone()]);
        let again = verdict("/a", "01", TrustVerdict::Refused);
        store.decide(std::slice::from_ref(&again)).unwrap();
        assert_eq!(store.read().unwrap(), [other.clone(), again]);
        let mode = fs::metadata(store.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(store.forget(Path::new("/a")).unwrap(), 1);
        assert_eq!(store.read().unwrap(), [other]);
    }

    #[test]
    fn only_so_many_contents_of_a_file_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::new(folder.path());
        for number in 0..MOST_CONTENTS + 3 {
            let one = verdict("/a", &number.to_string(), TrustVerdict::Trusted);
            store.decide(&[one]).unwrap();
        }
        let kept = store.read().unwrap();
        assert_eq!(kept.len(), MOST_CONTENTS);
        assert_eq!(kept.first().unwrap().sha256, "3");
    }

    #[test]
    fn a_file_that_is_not_ours_alone_trusts_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::new(folder.path());
        store
            .decide(&[verdict("/a", "01", TrustVerdict::Trusted)])
            .unwrap();
        let open = fs::Permissions::from_mode(0o666);
        fs::set_permissions(store.path(), open).unwrap();
        let error = store.read().unwrap_err().to_string();
        assert!(
            error.contains("by others") && error.contains("trust.toml"),
            "{error}"
        );
        let other = folder.path().join("other");
        fs::rename(store.path(), &other).unwrap();
        symlink(&other, store.path()).unwrap();
        assert!(store.read().is_err());
        fs::remove_file(store.path()).unwrap();
        fs::write(store.path(), "[[file]]\nroot = 1\n").unwrap();
        assert!(store.read().unwrap_err().to_string().contains("not right"));
        assert!(
            store.decide(&[]).is_err(),
            "a broken file is not overwritten"
        );
    }

    #[test]
    fn two_who_decide_at_once_lose_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let store = TrustStore::new(folder.path());
        std::thread::scope(|scope| {
            for number in 0..8 {
                let store = &store;
                scope.spawn(move || {
                    let root = format!("/{number}");
                    store
                        .decide(&[verdict(&root, "01", TrustVerdict::Trusted)])
                        .unwrap();
                });
            }
        });
        assert_eq!(store.read().unwrap().len(), 8);
    }
}
