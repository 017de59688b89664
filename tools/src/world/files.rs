//! Reading and writing files as a session may.
//!
//! Each operation resolves the path, asks the hooks, and opens the file without following
//! links. Where the editor offers its buffers, a buffer that differs from the disk wins
//! (R125).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::editor::{EditorError, EditorFiles};
use super::paths::{self, PathError, Root};
use super::place::{self, Place, as_document, blocking, whole};
use super::protection;
use super::replace::{self, ReplaceError, Stamp};
use super::text::{self, Document, LineEnd, NotText, Unencodable};
use super::window::{self, Window, WindowRequest};
use crate::call::Failure;
use crate::pipeline::Veto;

/// The largest file that is edited or replaced, in bytes. What is larger is read by window.
pub const MAX_WHOLE: u64 = 16 * 1024 * 1024;
/// How long the editor may take to give or take a buffer.
const EDITOR_PATIENCE: Duration = Duration::from_secs(10);
/// Longer, since an editor may run a formatter before it saves, and to write the file beside
/// an editor that still saves it would lose one of the two.
const EDITOR_WRITE_PATIENCE: Duration = Duration::from_secs(35);
/// What is to be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileOperation {
    Read,
    Write,
}

/// An operation on a real path, as a hook sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileAccess {
    pub operation: FileOperation,
    pub path: PathBuf,
}

/// Decides on file operations (`Terret spec §5.5`, check 129). Called on every one, so it
/// must not wait.
pub trait FileHook: Send + Sync {
    /// A veto's reason becomes the refusal. A changed path in the answer is ignored: what
    /// was authorised is what is opened.
    ///
    /// # Errors
    /// The veto.
    fn authorize(&self, access: FileAccess) -> Result<FileAccess, Veto>;

    /// Whether it could veto anything now. A search asks nobody about each of its files
    /// while no hook is active.
    fn active(&self) -> bool {
        true
    }
}

/// Why a file was not read or written, in words for the model.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{} is outside the granted workspace", path.display())]
    Outside { path: PathBuf },
    #[error("{} belongs to Terret itself and is out of reach", path.display())]
    Ours { path: PathBuf },
    #[error("{} cannot be used: {reason}", path.display())]
    Denied { path: PathBuf, reason: String },
    #[error("there is no file {}", path.display())]
    Missing { path: PathBuf },
    #[error("{} is a folder, not a file; list it with Glob, for example with the pattern `{}/*`", path.display(), path.display())]
    Folder { path: PathBuf },
    #[error("{} is a {kind}, not a file with content; it is neither read nor written", path.display())]
    Special { path: PathBuf, kind: &'static str },
    #[error("{} has {size} bytes, and at most {MAX_WHOLE} can be edited; change it with a command", path.display())]
    TooLarge { path: PathBuf, size: u64 },
    #[error("{} was not touched: {reason}", path.display())]
    NotText { path: PathBuf, reason: NotText },
    #[error("{} was not touched: {reason}", path.display())]
    Unencodable { path: PathBuf, reason: Unencodable },
    #[error("{} changed while it was being edited and was left as it is; Read it again", path.display())]
    Changed { path: PathBuf },
    #[error("{}: {source}", path.display())]
    System {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::new(error.to_string())
    }
}

/// Where a file's content was taken from, and so where a change goes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Disk,
    /// The editor's text differs from the disk. The document of the disk is kept for when
    /// the editor does not take the change.
    Buffer,
}

/// A whole text file, to be changed.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub path: PathBuf,
    pub document: Document,
    /// What the model should know about where the text came from.
    pub remarks: Vec<String>,
    source: Source,
    stamp: Option<Stamp>,
    disk: Option<Document>,
}

/// A file's window, or what stands in its place.
#[derive(Debug)]
pub enum Content {
    Text {
        window: Window,
        remarks: Vec<String>,
    },
    Image {
        mime_type: &'static str,
        bytes: Vec<u8>,
        hash: String,
    },
    /// What it is, in words.
    Binary {
        description: String,
        hash: Option<String>,
    },
}

/// The files of one session.
pub struct Files {
    roots: RwLock<Arc<[Root]>>,
    scratch: PathBuf,
    denied: Vec<PathBuf>,
    editor: Option<Arc<dyn EditorFiles>>,
    hooks: Vec<Arc<dyn FileHook>>,
}

impl Loaded {
    /// The hash by which a later change is noticed.
    pub fn hash(&self) -> String {
        text::hash(self.document.bytes())
    }

    /// Whether the content is what a session saw under this hash. A buffer that was saved
    /// meanwhile is the same text in other bytes, and no change.
    pub fn is(&self, seen: &str) -> bool {
        let view = self.document.view();
        seen == self.hash()
            || seen == text::hash(view.as_bytes())
            || view
                .strip_suffix('\n')
                .is_some_and(|text| seen == text::hash(text.as_bytes()))
            || self.disk.as_ref().is_some_and(|disk| {
                disk.same_text(&self.document) && seen == text::hash(disk.bytes())
            })
    }

    /// Whether it has unsaved changes in the editor.
    pub fn is_dirty(&self) -> bool {
        self.source == Source::Buffer
    }
}

impl Files {
    pub(super) fn new(
        roots: Vec<Root>,
        scratch: PathBuf,
        denied: &[PathBuf],
        editor: Option<Arc<dyn EditorFiles>>,
        hooks: Vec<Arc<dyn FileHook>>,
    ) -> Self {
        let denied = denied
            .iter()
            .map(|path| paths::real(path).unwrap_or_else(|_| path.clone()))
            .collect();
        Self {
            roots: RwLock::new(roots.into()),
            scratch,
            denied,
            editor,
            hooks,
        }
    }

    pub(super) fn set_roots(&self, roots: Vec<Root>) {
        *self.roots.write().unwrap_or_else(PoisonError::into_inner) = roots.into();
    }

    /// The granted folders.
    pub fn roots(&self) -> Arc<[Root]> {
        Arc::clone(&self.roots.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The folders that no tool may reach.
    pub(super) fn denied(&self) -> &[PathBuf] {
        &self.denied
    }

    /// Whether each file that is read has to be asked for.
    pub(super) fn has_hooks(&self) -> bool {
        self.hooks.iter().any(|hook| hook.active())
    }

    pub(super) fn cwd(&self) -> PathBuf {
        self.roots()
            .first()
            .map_or_else(|| PathBuf::from("/"), |root| root.real.clone())
    }

    pub(super) fn given_cwd(&self) -> PathBuf {
        self.roots()
            .first()
            .map_or_else(|| PathBuf::from("/"), |root| root.given.clone())
    }

    /// The real path behind a named one, when the session may do this there.
    ///
    /// # Errors
    /// [`FileError::Outside`] and the other refusals.
    pub fn resolve(&self, path: &Path, operation: FileOperation) -> Result<PathBuf, FileError> {
        let real = self.contain(path, operation)?;
        for hook in &self.hooks {
            // What the hook answers is not used: it may refuse, and not send us elsewhere.
            hook.authorize(FileAccess {
                operation,
                path: real.clone(),
            })
            .map_err(|veto| FileError::Denied {
                path: path.to_owned(),
                reason: veto.0,
            })?;
        }
        Ok(real)
    }

    /// As [`Files::resolve`], for a path that a walk of ours found. True when it may be read.
    pub fn may_read(&self, path: &Path) -> bool {
        self.resolve(path, FileOperation::Read).is_ok()
    }

    /// Why writing here is always asked for, if it is.
    pub fn protection(&self, path: &Path) -> Option<&'static str> {
        let real = self.contain(path, FileOperation::Write).ok()?;
        let roots = self.roots();
        let root = Self::root_of(&roots, &real)?;
        protection::reason(real.strip_prefix(&root.real).ok()?)
    }

    /// Relative to the session's folder when inside it, else absolute.
    pub fn relative(&self, path: &Path) -> String {
        let absolute = paths::absolute(&self.cwd(), path);
        let real = paths::real(&absolute).unwrap_or(absolute);
        match real.strip_prefix(self.cwd()) {
            Ok(inside) if !inside.as_os_str().is_empty() => inside.to_string_lossy().into_owned(),
            _ => real.to_string_lossy().into_owned(),
        }
    }

    /// A real path in the words in which the editor named its root.
    pub fn as_given(&self, real: &Path) -> PathBuf {
        let roots = self.roots();
        Self::root_of(&roots, real)
            .and_then(|root| Some(root.given.join(real.strip_prefix(&root.real).ok()?)))
            .unwrap_or_else(|| real.to_owned())
    }

    /// The part of a file that a request names, never more of it in memory.
    ///
    /// # Errors
    /// [`FileError`] when there is no such file, or nothing of it to show.
    pub async fn window(
        &self,
        path: &Path,
        request: WindowRequest,
        cancel: &CancellationToken,
    ) -> Result<Content, FileError> {
        let real = self.resolve(path, FileOperation::Read)?;
        let (buffer, mut remarks) = self.buffer(&real).await;
        let place = self.place(&real)?;
        let cancel = cancel.clone();
        blocking(move || {
            let disk = match place.read() {
                Ok(file) => Some(file),
                Err(FileError::Missing { .. }) if buffer.is_some() => None,
                Err(error) => return Err(error),
            };
            let Some((mut file, size)) = disk else {
                let document = as_document(&place.path, buffer.unwrap_or_default().into_bytes())?;
                remarks.push(
                    "this is the editor's unsaved buffer: there is no such file on disk yet"
                        .to_owned(),
                );
                return Ok(Content::Text {
                    window: window::of_document(&document, &request),
                    remarks,
                });
            };
            if let Some(buffer) = buffer
                && size <= MAX_WHOLE
                && let Ok(disk) = Document::decode(whole(&mut file, &place.path)?)
            {
                let open = as_document(&place.path, buffer.into_bytes())?;
                let window = if disk.same_text(&open) || disk.lost_in(&open) {
                    window::of_document(&disk, &request)
                } else {
                    remarks.push(UNSAVED.to_owned());
                    window::of_document(&open, &request)
                };
                return Ok(Content::Text { window, remarks });
            }
            let (file, size) = place.read()?;
            window::of_file(file, size, &place.path, &request, &cancel, remarks)
        })
        .await
    }

    /// A whole file for a change; none when there is none yet.
    ///
    /// # Errors
    /// [`FileError`]; a file that is no text, or too large, is refused.
    pub async fn load(
        &self,
        path: &Path,
        operation: FileOperation,
    ) -> Result<Option<Loaded>, FileError> {
        let real = self.resolve(path, operation)?;
        let (buffer, mut remarks) = self.buffer(&real).await;
        let place = self.place(&real)?;
        blocking(move || {
            let (disk, stamp) = match place.read() {
                Ok((mut file, size)) => {
                    if size > MAX_WHOLE {
                        return Err(FileError::TooLarge {
                            path: place.path,
                            size,
                        });
                    }
                    let stamp = Stamp::of(&file).map_err(|source| place.system(source))?;
                    let bytes = whole(&mut file, &place.path)?;
                    (Some(as_document(&place.path, bytes)?), Some(stamp))
                }
                Err(FileError::Missing { .. }) => (None, None),
                Err(error) => return Err(error),
            };
            let Some(buffer) = buffer else {
                return Ok(disk.map(|document| Loaded {
                    path: place.path,
                    document,
                    remarks,
                    source: Source::Disk,
                    stamp,
                    disk: None,
                }));
            };
            let open = as_document(&place.path, buffer.into_bytes())?;
            let loaded = match disk {
                Some(disk) if disk.same_text(&open) || disk.lost_in(&open) => Loaded {
                    path: place.path,
                    document: disk,
                    remarks,
                    source: Source::Disk,
                    stamp,
                    disk: None,
                },
                disk => {
                    remarks.push(UNSAVED.to_owned());
                    Loaded {
                        path: place.path,
                        document: open,
                        remarks,
                        source: Source::Buffer,
                        stamp,
                        disk,
                    }
                }
            };
            Ok(Some(loaded))
        })
        .await
    }

    /// Puts new bytes in the place of what was loaded, or makes a new file. Gives remarks.
    ///
    /// # Errors
    /// [`FileError::Changed`] when the file is not what was loaded any more.
    pub async fn store(
        &self,
        path: &Path,
        loaded: Option<&Loaded>,
        bytes: Vec<u8>,
    ) -> Result<Vec<String>, FileError> {
        let real = self.resolve(path, FileOperation::Write)?;
        let mut remarks = Vec::new();
        let mut bytes = bytes;
        if let (Some(loaded), Some(editor)) =
            (loaded.filter(|loaded| loaded.is_dirty()), &self.editor)
        {
            let text = String::from_utf8(bytes).map_err(|_| FileError::NotText {
                path: real.clone(),
                reason: NotText::Binary,
            })?;
            let written = tokio::time::timeout(
                EDITOR_WRITE_PATIENCE,
                editor.write_text(&self.as_given(&real), &text),
            )
            .await;
            let reason = match written {
                Ok(Ok(())) => return Ok(remarks),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "it did not answer".to_owned(),
            };
            remarks.push(format!(
                "the editor did not take the text ({reason}): the file on disk was written instead, from the open buffer with this change; the editor may ask to reload it"
            ));
            bytes = match &loaded.disk {
                Some(disk) => disk
                    .overwrite(&text)
                    .map_err(|reason| FileError::Unencodable {
                        path: real.clone(),
                        reason,
                    })?,
                None => text.into_bytes(),
            };
        }
        let stamp = loaded.and_then(|loaded| loaded.stamp);
        let place = self.place(&real)?;
        blocking(move || {
            replace::replace(&place.root, &place.relative, &bytes, stamp).map_err(|error| {
                match error {
                    ReplaceError::Changed => FileError::Changed {
                        path: place.path.clone(),
                    },
                    ReplaceError::NotRegular => FileError::Special {
                        path: place.path.clone(),
                        kind: "special file",
                    },
                    ReplaceError::System(source) => place.system(source),
                }
            })
        })
        .await?;
        Ok(remarks)
    }

    /// What most lines of the files beside a new one end with.
    pub async fn neighbours_line_end(&self, path: &Path) -> LineEnd {
        let Ok(real) = self.resolve(path, FileOperation::Write) else {
            return LineEnd::Lf;
        };
        let Ok(place) = self.place(&real) else {
            return LineEnd::Lf;
        };
        tokio::task::spawn_blocking(move || place::neighbours(&place))
            .await
            .unwrap_or(LineEnd::Lf)
    }

    fn contain(&self, path: &Path, operation: FileOperation) -> Result<PathBuf, FileError> {
        let outside = || FileError::Outside {
            path: path.to_owned(),
        };
        if path.as_os_str().is_empty() {
            return Err(FileError::Denied {
                path: path.to_owned(),
                reason: "the path is empty".to_owned(),
            });
        }
        let roots = self.roots();
        if roots.is_empty() {
            return Err(outside());
        }
        let absolute = paths::absolute(&self.cwd(), path);
        let real = paths::real(&absolute).map_err(|error| match error {
            PathError::Loop => FileError::Denied {
                path: path.to_owned(),
                reason: error.to_string(),
            },
            PathError::System(source) => FileError::System {
                path: path.to_owned(),
                source,
            },
        })?;
        if operation == FileOperation::Read
            && real.starts_with(&self.scratch)
            && !self.scratch.as_os_str().is_empty()
        {
            return Ok(real);
        }
        if Self::root_of(&roots, &real).is_none() {
            return Err(outside());
        }
        if self.denied.iter().any(|ours| real.starts_with(ours)) {
            return Err(FileError::Ours {
                path: path.to_owned(),
            });
        }
        Ok(real)
    }

    fn root_of<'a>(roots: &'a [Root], real: &Path) -> Option<&'a Root> {
        roots
            .iter()
            .filter(|root| real.starts_with(&root.real))
            .max_by_key(|root| root.real.components().count())
    }

    fn place(&self, real: &Path) -> Result<Place, FileError> {
        let roots = self.roots();
        let root = Self::root_of(&roots, real)
            .map(|root| root.real.clone())
            .or_else(|| {
                real.starts_with(&self.scratch)
                    .then(|| self.scratch.clone())
            })
            .ok_or_else(|| FileError::Outside {
                path: real.to_owned(),
            })?;
        let relative = real.strip_prefix(&root).unwrap_or(real).to_owned();
        Ok(Place {
            path: real.to_owned(),
            root,
            relative,
        })
    }

    /// The editor's text of a file, and what to say when it could not be had. What is no
    /// text is not asked for.
    async fn buffer(&self, real: &Path) -> (Option<String>, Vec<String>) {
        let Some(editor) = &self.editor else {
            return (None, Vec::new());
        };
        if real.starts_with(&self.scratch) && !self.scratch.as_os_str().is_empty() {
            return (None, Vec::new());
        }
        let Ok(place) = self.place(real) else {
            return (None, Vec::new());
        };
        let may_be_text = tokio::task::spawn_blocking(move || match place.read() {
            Ok((_, size)) if size > MAX_WHOLE => false,
            Ok((file, _)) => window::may_be_text(file),
            Err(error) => matches!(error, FileError::Missing { .. }),
        });
        if !may_be_text.await.unwrap_or(false) {
            return (None, Vec::new());
        }
        match tokio::time::timeout(EDITOR_PATIENCE, editor.read_text(&self.as_given(real))).await {
            Ok(Ok(text)) => (text, Vec::new()),
            Ok(Err(EditorError::Unsupported)) => (
                None,
                vec!["read from disk: the editor does not offer its buffers".to_owned()],
            ),
            Ok(Err(EditorError::Failed(reason))) => (
                None,
                vec![format!(
                    "read from disk: the editor did not give its buffer ({reason})"
                )],
            ),
            Err(_) => (
                None,
                vec!["read from disk: the editor did not answer".to_owned()],
            ),
        }
    }
}

const UNSAVED: &str = "this is the editor's buffer with unsaved changes, not the file on disk";

#[cfg(test)]
mod tests;
