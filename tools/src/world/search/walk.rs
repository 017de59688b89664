//! Walking a folder with the rules that decide what is searched.
//!
//! A walk always begins at the root, even when a call names a folder below it, and takes
//! only the way to that folder: so the ignore files above it hold, and a folder that the
//! walk never reaches is one that they exclude. Naming it is then taken as wanting it, and
//! it is walked once more without rules (R127).

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ignore::{DirEntry, ParallelVisitor, ParallelVisitorBuilder, WalkBuilder, WalkState};
use tokio_util::sync::CancellationToken;

use crate::world::World;
use crate::world::search::SearchError;

/// More threads gain nothing on a warm disk cache and take them from others.
const MOST_THREADS: usize = 4;

/// Where a walk begins.
#[derive(Debug, Clone)]
pub(super) struct Start {
    /// A real root.
    pub(super) root: PathBuf,
    /// A real folder at or below it.
    pub(super) base: PathBuf,
    /// Folders below that are not entered: ours, and roots that are walked by themselves.
    closed: Arc<HashSet<PathBuf>>,
}

/// Whether ignore files hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    Honoured,
    /// The call names a place that they exclude.
    Off,
}

/// What a walk met besides files.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Folders and files that could not be looked at.
    pub(super) unreadable: u64,
    /// The base, or all of it, is excluded by ignore files, and was walked without them.
    pub(super) past_rules: bool,
}

/// Takes the files and links of one thread's share.
pub(super) trait Visitor: Send {
    fn visit(&mut self, entry: &DirEntry);
}

/// Makes a visitor for each thread.
pub(super) trait Visitors: Sync {
    type One<'a>: Visitor
    where
        Self: 'a;

    fn visitor(&self) -> Self::One<'_>;
}

/// A walk of every root.
pub(super) fn roots(world: &World) -> Vec<Start> {
    world
        .roots()
        .into_iter()
        .map(|root| Start::new(world, root.clone(), root))
        .collect()
}

/// A walk of one real folder that the session may read.
pub(super) fn folder(world: &World, base: PathBuf) -> Start {
    let root = world
        .roots()
        .into_iter()
        .filter(|root| base.starts_with(root))
        .max_by_key(|root| root.components().count())
        .unwrap_or_else(|| base.clone());
    Start::new(world, root, base)
}

impl Start {
    fn new(world: &World, root: PathBuf, base: PathBuf) -> Self {
        let closed = world
            .files()
            .denied()
            .iter()
            .cloned()
            .chain(world.roots())
            .filter(|folder| folder != &root && folder.starts_with(&root))
            .collect();
        Self {
            root,
            base,
            closed: Arc::new(closed),
        }
    }

    /// Walks, past the rules when they exclude the base.
    pub(super) fn walk<V: Visitors>(
        &self,
        visitors: &V,
        cancel: &CancellationToken,
    ) -> Result<Walked, SearchError> {
        let (reached, mut unreadable) = self.walk_with(Rules::Honoured, visitors, cancel);
        let past_rules = !reached && !cancel.is_cancelled();
        if past_rules {
            unreadable += self.walk_with(Rules::Off, visitors, cancel).1;
        }
        if cancel.is_cancelled() {
            Err(SearchError::Cancelled)
        } else {
            Ok(Walked {
                unreadable,
                past_rules,
            })
        }
    }

    /// Walks without any rules.
    pub(super) fn walk_all<V: Visitors>(
        &self,
        visitors: &V,
        cancel: &CancellationToken,
    ) -> Result<Walked, SearchError> {
        let (_, unreadable) = self.walk_with(Rules::Off, visitors, cancel);
        if cancel.is_cancelled() {
            Err(SearchError::Cancelled)
        } else {
            Ok(Walked {
                unreadable,
                past_rules: true,
            })
        }
    }

    fn walk_with<V: Visitors>(
        &self,
        rules: Rules,
        visitors: &V,
        cancel: &CancellationToken,
    ) -> (bool, u64) {
        let mut way: Vec<_> = match self.base.strip_prefix(&self.root) {
            Ok(below) => below.iter().map(ToOwned::to_owned).collect(),
            Err(_) => Vec::new(),
        };
        let mut builder = match rules {
            Rules::Honoured => WalkBuilder::new(&self.root),
            Rules::Off => {
                way.clear();
                WalkBuilder::new(&self.base)
            }
        };
        // Outside a repository `.gitignore` still says what people do not want to see, but
        // one in a folder above the root is about something else.
        let in_repository = self
            .root
            .ancestors()
            .any(|folder| folder.join(".git").exists());
        builder
            .standard_filters(rules == Rules::Honoured)
            .hidden(false)
            .follow_links(false)
            .require_git(in_repository)
            .parents(rules == Rules::Honoured && in_repository)
            .current_dir(&self.root)
            .threads(
                std::thread::available_parallelism()
                    .map_or(1, usize::from)
                    .min(MOST_THREADS),
            );
        let names_git = self.base.iter().any(|name| name == ".git");
        let closed = Arc::clone(&self.closed);
        let below = way.len();
        builder.filter_entry(move |entry| {
            let depth = entry.depth();
            if depth == 0 {
                return true;
            }
            if let Some(wanted) = way.get(depth - 1) {
                return entry.file_name() == wanted && !closed.contains(entry.path());
            }
            if entry.file_name() == ".git" && !names_git {
                return false;
            }
            closed.is_empty() || !closed.contains(entry.path())
        });
        let state = Shared {
            visitors,
            cancel,
            below,
            reached: AtomicBool::new(below == 0),
            unreadable: AtomicU64::new(0),
        };
        builder
            .build_parallel()
            .visit(&mut Builder { shared: &state });
        (
            state.reached.load(Ordering::Relaxed),
            state.unreadable.load(Ordering::Relaxed),
        )
    }
}

struct Shared<'s, V: Visitors> {
    visitors: &'s V,
    cancel: &'s CancellationToken,
    /// How many steps the base is below the walk's beginning.
    below: usize,
    /// The base was seen, and where it is below the root, something in it.
    reached: AtomicBool,
    unreadable: AtomicU64,
}

struct Builder<'s, V: Visitors> {
    shared: &'s Shared<'s, V>,
}

struct One<'s, V: Visitors + 's> {
    shared: &'s Shared<'s, V>,
    visitor: V::One<'s>,
}

impl<'s, V: Visitors> ParallelVisitorBuilder<'s> for Builder<'s, V> {
    fn build(&mut self) -> Box<dyn ParallelVisitor + 's> {
        Box::new(One {
            shared: self.shared,
            visitor: self.shared.visitors.visitor(),
        })
    }
}

impl<'s, V: Visitors> ParallelVisitor for One<'s, V> {
    fn visit(&mut self, entry: Result<DirEntry, ignore::Error>) -> WalkState {
        if self.shared.cancel.is_cancelled() {
            return WalkState::Quit;
        }
        match entry {
            Ok(entry) => {
                // `build/**` excludes all of a folder and not the folder.
                if entry.depth() > self.shared.below {
                    self.shared.reached.store(true, Ordering::Relaxed);
                }
                if entry.depth() >= self.shared.below
                    && entry
                        .file_type()
                        .is_some_and(|kind| kind.is_file() || kind.is_symlink())
                {
                    self.visitor.visit(&entry);
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a search passes over something");
                self.shared.unreadable.fetch_add(1, Ordering::Relaxed);
            }
        }
        WalkState::Continue
    }
}

/// The folders that a glob names before its first wildcard, and the rest of it. The rest
/// is empty when there is no wildcard at all.
pub(super) fn literal_prefix(glob: &str) -> (PathBuf, String) {
    let glob = glob.trim_start_matches("./");
    let parts: Vec<&str> = glob.split('/').collect();
    let wild = parts
        .iter()
        .position(|part| is_wild(part))
        .unwrap_or(parts.len());
    let (prefix, rest) = parts.split_at(wild);
    let mut prefix = prefix.join("/");
    if prefix.is_empty() && glob.starts_with('/') {
        prefix.push('/');
    }
    (PathBuf::from(prefix), rest.join("/"))
}

/// Whether a wildcard stands before a folder that is named: `**/node_modules/**`.
pub(super) fn names_folder(rest: &str) -> bool {
    let mut parts = rest.split('/').rev();
    parts.next();
    parts.any(|part| !part.is_empty() && !is_wild(part))
}

fn is_wild(part: &str) -> bool {
    part.contains(['*', '?', '[', '{', '\\'])
}

/// Whether a link leads to a regular file that may be read.
pub(super) fn leads_to_file(world: &World, link: &Path) -> bool {
    world.files().may_read(link) && std::fs::metadata(link).is_ok_and(|data| data.is_file())
}
