//! Searching one file. Each thread keeps its searcher and its buffers.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};
use ignore::DirEntry;
use ignore::types::Types;
use rustix::fs::{Mode as FileMode, OFlags, ResolveFlags, openat2};
use tokio_util::sync::CancellationToken;

use crate::world::World;
use crate::world::search::grep::hits::{Hits, Line, LineKind, Totals};
use crate::world::search::grep::{Filter, GrepRequest, Mode};
use crate::world::search::walk::{Start, Visitor, Visitors};

/// Bytes shown of a line.
const LINE: usize = 500;
/// Bytes a searcher may hold: a file with longer lines, or a longer one when matches span
/// lines, cannot be searched.
const HEAP: usize = 64 * 1024 * 1024;
/// A zero byte before this makes a file binary; one after it ends the search there.
const HEAD: usize = 64 * 1024;

/// Where a search looks.
pub(super) enum Place<'a> {
    File,
    Folder(&'a Start),
}

/// One search, shared by its threads.
pub(super) struct Search<'a> {
    pub(super) world: &'a World,
    pub(super) request: &'a GrepRequest,
    pub(super) matcher: &'a RegexMatcher,
    pub(super) glob: Option<&'a Filter>,
    pub(super) types: Option<&'a Types>,
    pub(super) totals: &'a Totals,
    pub(super) start: Place<'a>,
    pub(super) cancel: &'a CancellationToken,
}

impl Search<'_> {
    /// Searches a file that the call names: its kind and name do not matter.
    pub(super) fn file(&self, path: &Path) {
        let mut thread = self.visitor();
        let opened = match path.parent() {
            Some(folder) => folder_at(folder)
                .and_then(|folder| open(&folder, Path::new(path.file_name().unwrap_or_default()))),
            None => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        thread.search(path, opened);
    }
}

impl Visitors for Search<'_> {
    type One<'b>
        = Thread<'b>
    where
        Self: 'b;

    fn visitor(&self) -> Self::One<'_> {
        let request = self.request;
        let (before, after) = match request.mode {
            Mode::Content => (request.before, request.after),
            Mode::Files | Mode::Count => (0, 0),
        };
        let searcher = SearcherBuilder::new()
            .line_number(request.mode == Mode::Content && request.line_numbers)
            .multi_line(request.multiline)
            .before_context(before)
            .after_context(after)
            .heap_limit(Some(HEAP))
            .binary_detection(BinaryDetection::quit(0))
            .build();
        let root = match &self.start {
            Place::Folder(start) => folder_at(&start.root).ok(),
            Place::File => None,
        };
        Thread {
            search: self,
            searcher,
            matcher: self.matcher.clone(),
            head: vec![0; HEAD],
            root,
        }
    }
}

/// One thread of a search.
pub(super) struct Thread<'a> {
    search: &'a Search<'a>,
    searcher: Searcher,
    matcher: RegexMatcher,
    /// The beginning of the file at hand.
    head: Vec<u8>,
    root: Option<OwnedFd>,
}

impl Visitor for Thread<'_> {
    fn visit(&mut self, entry: &DirEntry) {
        // What a link leads to is searched where it really is.
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            return;
        }
        let path = entry.path();
        let Place::Folder(start) = &self.search.start else {
            return;
        };
        if let Some(glob) = self.search.glob
            && !path
                .strip_prefix(&start.base)
                .is_ok_and(|relative| glob.lets(relative))
        {
            return;
        }
        if self
            .search
            .types
            .is_some_and(|types| !types.matched(path, false).is_whitelist())
        {
            return;
        }
        let files = self.search.world.files();
        if files.has_hooks() && !files.may_read(path) {
            return;
        }
        let opened = match (&self.root, path.strip_prefix(&start.root)) {
            (Some(root), Ok(relative)) => open(root, relative),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        self.search(path, opened);
    }
}

impl Thread<'_> {
    /// Reads the beginning of a file; all of it when less than [`HEAD`] comes.
    fn fill(&mut self, file: &mut File) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(room) = self.head.get_mut(filled..).filter(|room| !room.is_empty()) {
            match file.read(room) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn search(&mut self, path: &Path, opened: io::Result<File>) {
        let totals = self.search.totals;
        let mut begun = match opened.and_then(|mut file| Ok((self.fill(&mut file)?, file))) {
            Ok(begun) => begun,
            // Gone since the walk saw it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                tracing::debug!(%error, "a file cannot be searched");
                totals.unreadable(path);
                return;
            }
        };
        let (filled, file) = (begun.0, &mut begun.1);
        let head = self.head.get(..filled).unwrap_or_default();
        // UTF-16 is full of zero bytes, and the searcher decodes it.
        let is_wide = head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]);
        if !is_wide && head.contains(&0) {
            totals.binary.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut sink = Collector {
            mode: self.search.request.mode,
            needed: totals.needed,
            matcher: &self.matcher,
            hits: Hits::default(),
            not_text: false,
            cut_short: false,
        };
        let result = if filled < HEAD {
            self.searcher.search_slice(&self.matcher, head, &mut sink)
        } else {
            let reader = Content {
                head,
                file,
                cancel: self.search.cancel,
            };
            self.searcher
                .search_reader(&self.matcher, reader, &mut sink)
        };
        let Collector {
            hits,
            not_text,
            cut_short,
            ..
        } = sink;
        totals.searched.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = result {
            if !self.search.cancel.is_cancelled() {
                tracing::debug!(%error, "a file cannot be searched to its end");
                totals.unreadable(path);
            }
            return;
        }
        if not_text {
            totals.not_text(path);
            return;
        }
        if cut_short {
            totals.cut_short(path);
        }
        if hits.matches > 0 {
            totals.add(path, hits);
        }
    }
}

fn folder_at(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(
        path,
        OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC,
        FileMode::empty(),
    )?)
}

/// Opens a file below a folder without following any link, so that a folder which was
/// swapped for a link since the walk saw it leads nowhere.
fn open(folder: &OwnedFd, relative: &Path) -> io::Result<File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(folder, relative, flags, FileMode::empty(), resolve) {
        Ok(file) => Ok(File::from(file)),
        // An older kernel, or a container that does not know the call.
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            step_by_step(folder, relative, flags)
        }
        Err(error) => Err(error.into()),
    }
}

fn step_by_step(folder: &OwnedFd, relative: &Path, flags: OFlags) -> io::Result<File> {
    let mut here = folder.try_clone()?;
    let name = relative
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    let step = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for part in relative.parent().unwrap_or(Path::new("")) {
        here = rustix::fs::openat(&here, part, step, FileMode::empty())?;
    }
    Ok(File::from(rustix::fs::openat(
        &here,
        name,
        flags,
        FileMode::empty(),
    )?))
}

/// A file's bytes, as long as nobody cancels.
struct Content<'a> {
    /// What was read already.
    head: &'a [u8],
    file: &'a mut File,
    cancel: &'a CancellationToken,
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            return Err(io::Error::other("cancelled"));
        }
        if self.head.is_empty() {
            self.file.read(buffer)
        } else {
            self.head.read(buffer)
        }
    }
}

/// Collects the results of one file.
struct Collector<'a> {
    mode: Mode,
    needed: usize,
    matcher: &'a RegexMatcher,
    hits: Hits,
    not_text: bool,
    cut_short: bool,
}

impl Collector<'_> {
    fn line(&mut self, kind: LineKind, number: Option<u64>, bytes: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.not_text = true;
            return false;
        };
        self.hits.results += 1;
        if self.hits.results <= self.needed as u64 {
            let text = text.trim_end_matches(['\n', '\r']);
            let at = if kind == LineKind::Match && text.len() > LINE {
                self.matcher
                    .find(text.as_bytes())
                    .ok()
                    .flatten()
                    .map_or(0, |found| found.start())
            } else {
                0
            };
            self.hits.lines.push(Line {
                kind,
                number,
                text: window(text, at),
            });
        }
        true
    }
}

impl Sink for Collector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        match self.mode {
            Mode::Files => {
                self.not_text = std::str::from_utf8(found.bytes()).is_err();
                self.hits.matches = 1;
                self.hits.results = 1;
                Ok(false)
            }
            Mode::Count => {
                self.not_text = std::str::from_utf8(found.bytes()).is_err();
                self.hits.results = 1;
                self.hits.matches += found.lines().count() as u64;
                Ok(!self.not_text)
            }
            Mode::Content => {
                for (index, bytes) in found.lines().enumerate() {
                    self.hits.matches += 1;
                    let number = found.line_number().map(|number| number + index as u64);
                    if !self.line(LineKind::Match, number, bytes) {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    fn context(&mut self, _searcher: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        Ok(self.line(LineKind::Context, context.line_number(), context.bytes()))
    }

    fn context_break(&mut self, _searcher: &Searcher) -> io::Result<bool> {
        if self.hits.results < self.needed as u64 {
            self.hits.lines.push(Line {
                kind: LineKind::Break,
                number: None,
                text: String::new(),
            });
        }
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> io::Result<bool> {
        self.cut_short = true;
        Ok(false)
    }
}

/// At most [`LINE`] bytes of a line, around what matched, with what is left out counted.
/// Control characters other than tabs are dropped.
fn window(text: &str, at: usize) -> String {
    let (from, to) = if text.len() <= LINE {
        (0, text.len())
    } else {
        let from = text.floor_char_boundary(at.saturating_sub(LINE / 4).min(text.len() - LINE));
        (from, text.floor_char_boundary(from + LINE))
    };
    let kept = text.get(from..to).unwrap_or_default();
    let mut line = String::with_capacity(kept.len() + 60);
    if from > 0 {
        line.push_str(&format!("[... {from} bytes ...]"));
    }
    if kept.contains(|character: char| character.is_control() && character != '\t') {
        line.extend(
            kept.chars()
                .filter(|character| !character.is_control() || *character == '\t'),
        );
    } else {
        line.push_str(kept);
    }
    if to < text.len() {
        line.push_str(&format!("[... {} bytes ...]", text.len() - to));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_around_the_match() {
        let text = "a".repeat(1_000) + "needle" + &"b".repeat(1_000);
        let cut = window(&text, 1_000);
        assert!(
            cut.starts_with("[... 875 bytes ...]aaa") && cut.contains("needlebbb"),
            "{cut}"
        );
        assert!(cut.ends_with("b[... 631 bytes ...]"), "{cut}");
        assert_eq!(window("short\u{1b}[0m\tend", 0), "short[0m\tend");
        let wide = "€".repeat(1_000);
        assert!(
            window(&wide, 2_999).starts_with("[... 2499 bytes ...]€")
                || window(&wide, 2_999).starts_with("[... 2500")
        );
    }
}
