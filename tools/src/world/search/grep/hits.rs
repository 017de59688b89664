//! What a search has found so far: exact counts, and as many results, in the order of
//! their paths, as can be shown.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One line of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) kind: LineKind,
    pub(super) number: Option<u64>,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineKind {
    Match,
    Context,
    /// Lines were left out here; not a result itself.
    Break,
}

/// The results of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Hits {
    pub(super) matches: u64,
    /// Results in the file; `lines` may hold fewer.
    pub(super) results: u64,
    pub(super) lines: Vec<Line>,
}

/// Files that something was wrong with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) count: u64,
    /// The first of them by name.
    pub(super) first: Option<PathBuf>,
}

impl Sample {
    fn add(&mut self, path: &Path) {
        self.count += 1;
        if self
            .first
            .as_ref()
            .is_none_or(|first| path < first.as_path())
        {
            self.first = Some(path.to_owned());
        }
    }
}

/// Shared by the threads of a search.
pub(super) struct Totals {
    /// Results that can be shown, counted from the first.
    pub(super) needed: usize,
    pub(super) searched: AtomicU64,
    pub(super) binary: AtomicU64,
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    files: BTreeMap<PathBuf, Hits>,
    held: usize,
    results: u64,
    matches: u64,
    matched_files: u64,
    not_text: Sample,
    cut_short: Sample,
    unreadable: Sample,
}

/// All that a search found.
pub(super) struct Finished {
    pub(super) files: BTreeMap<PathBuf, Hits>,
    pub(super) results: u64,
    pub(super) matches: u64,
    pub(super) matched_files: u64,
    pub(super) searched: u64,
    pub(super) binary: u64,
    pub(super) not_text: Sample,
    pub(super) cut_short: Sample,
    pub(super) unreadable: Sample,
}

impl Totals {
    pub(super) fn new(needed: usize) -> Self {
        Self {
            needed,
            searched: AtomicU64::new(0),
            binary: AtomicU64::new(0),
            rest: Mutex::default(),
        }
    }

    /// Takes the results of a file; what sorts past all that can be shown is counted only.
    pub(super) fn add(&self, path: &Path, hits: Hits) {
        let mut rest = self.lock();
        rest.results += hits.results;
        rest.matches += hits.matches;
        rest.matched_files += 1;
        let size = size(&hits);
        if rest.held >= self.needed
            && rest
                .files
                .last_key_value()
                .is_none_or(|(last, _)| path > last.as_path())
        {
            return;
        }
        rest.held += size;
        rest.files.insert(path.to_owned(), hits);
        while let Some(last) = rest.files.last_entry() {
            let size = self::size(last.get());
            if rest.held - size < self.needed {
                break;
            }
            rest.files.pop_last();
            rest.held -= size;
        }
    }

    pub(super) fn not_text(&self, path: &Path) {
        self.lock().not_text.add(path);
    }

    pub(super) fn cut_short(&self, path: &Path) {
        self.lock().cut_short.add(path);
    }

    pub(super) fn unreadable(&self, path: &Path) {
        self.lock().unreadable.add(path);
    }

    pub(super) fn finish(self) -> Finished {
        let rest = self
            .rest
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        Finished {
            files: rest.files,
            results: rest.results,
            matches: rest.matches,
            matched_files: rest.matched_files,
            searched: self.searched.load(Ordering::Relaxed),
            binary: self.binary.load(Ordering::Relaxed),
            not_text: rest.not_text,
            cut_short: rest.cut_short,
            unreadable: rest.unreadable,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Results held, as [`Totals::needed`] counts them.
fn size(hits: &Hits) -> usize {
    usize::try_from(hits.results)
        .unwrap_or(usize::MAX)
        .min(hits.lines.len().max(1))
}
