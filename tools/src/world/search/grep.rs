//! Searching the text of files for a regular expression.
//!
//! Every file is searched to its end even when no more can be shown, so that the counts of
//! what is left out are exact; what is held in memory is bounded by what can be shown.

mod file;
mod hits;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ignore::types::{Types, TypesBuilder};
use tokio_util::sync::CancellationToken;

use crate::world::World;
use crate::world::search::grep::file::{Place, Search};
use crate::world::search::grep::hits::{LineKind, Sample, Totals};
use crate::world::search::walk::{self, Start};
use crate::world::search::{SearchError, counted, shown};

/// Results given when the call names no number.
pub const RESULTS: usize = 250;
/// Results given at most.
pub const MOST: usize = 10_000;
/// Bytes of text given at most: below what a result may hold, so that the count is exact.
const MOST_TEXT: usize = 240 * 1024;

/// What a search gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    #[default]
    Files,
    Content,
    Count,
}

/// What to search for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GrepRequest {
    pub pattern: String,
    /// A file or a folder; every root when none.
    pub path: Option<String>,
    /// Which files; without a `/` it is compared with the name alone.
    pub glob: Option<String>,
    /// A kind of file that ripgrep knows: `rust`, `js`.
    pub file_type: Option<String>,
    pub mode: Mode,
    /// Lines shown before and after a match.
    pub before: usize,
    pub after: usize,
    pub line_numbers: bool,
    pub ignore_case: bool,
    /// `.` matches line ends too, and matches may span lines.
    pub multiline: bool,
    /// Results given, at most [`MOST`].
    pub limit: usize,
    /// Results passed over.
    pub offset: usize,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grepped {
    /// `path:line:text`, paths, or `path:count`, one a line; empty without a match.
    pub text: String,
    pub remarks: Vec<String>,
}

/// Searches. Blocks: runs on a blocking thread.
///
/// # Errors
/// [`SearchError`]: a bad pattern, glob or type, a path outside, a cancel.
pub fn grep(
    world: &World,
    request: &GrepRequest,
    cancel: &CancellationToken,
) -> Result<Grepped, SearchError> {
    let matcher = matcher(request)?;
    let (prefix, glob) = match request
        .glob
        .as_deref()
        .map(str::trim)
        .filter(|glob| !glob.is_empty())
    {
        Some(glob) => glob_of(glob)?,
        None => (PathBuf::new(), None),
    };
    let types = request.file_type.as_deref().map(types).transpose()?;
    let places = places(world, request.path.as_deref(), &prefix)?;
    let totals = Totals::new(request.offset.saturating_add(request.limit.min(MOST)));
    let mut past_rules = Vec::new();
    let mut unreadable = 0;
    let search = |start| Search {
        world,
        request,
        matcher: &matcher,
        glob: glob.as_ref(),
        types: types.as_ref(),
        totals: &totals,
        start,
        cancel,
    };
    for place in &places {
        match place {
            Found::File(path) => search(Place::File).file(path),
            Found::Folder(start) => {
                let before = totals.searched.load(Ordering::Relaxed);
                let walked = start.walk(&search(Place::Folder(start)), cancel)?;
                unreadable += walked.unreadable;
                if walked.past_rules && totals.searched.load(Ordering::Relaxed) > before {
                    past_rules.push(start.base.as_path());
                }
            }
        }
        if cancel.is_cancelled() {
            return Err(SearchError::Cancelled);
        }
    }
    Ok(Rendered {
        world,
        request,
        totals: totals.finish(),
    }
    .result(&past_rules, unreadable))
}

enum Found {
    File(PathBuf),
    Folder(Start),
}

fn places(world: &World, path: Option<&str>, prefix: &Path) -> Result<Vec<Found>, SearchError> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        if prefix.as_os_str().is_empty() {
            return Ok(walk::roots(world).into_iter().map(Found::Folder).collect());
        }
        if prefix.is_absolute() {
            return Ok(place(world, world.resolve(prefix)?).into_iter().collect());
        }
        // A root that lacks the folder has no matches.
        return Ok(world
            .roots()
            .into_iter()
            .filter_map(|root| world.resolve(root.join(prefix)).ok())
            .filter_map(|real| place(world, real))
            .collect());
    };
    let real = world.resolve(path)?;
    if !real.exists() {
        return Err(SearchError::Missing(PathBuf::from(path)));
    }
    let real = if real.is_dir() {
        world.resolve(real.join(prefix))?
    } else {
        real
    };
    Ok(place(world, real).into_iter().collect())
}

fn place(world: &World, real: PathBuf) -> Option<Found> {
    let data = std::fs::metadata(&real).ok()?;
    if data.is_dir() {
        Some(Found::Folder(walk::folder(world, real)))
    } else {
        data.is_file().then_some(Found::File(real))
    }
}

fn matcher(request: &GrepRequest) -> Result<RegexMatcher, SearchError> {
    let mut builder = RegexMatcherBuilder::new();
    builder
        .multi_line(true)
        .case_insensitive(request.ignore_case);
    if request.multiline {
        builder.dot_matches_new_line(true);
    } else {
        builder.line_terminator(Some(b'\n'));
    }
    builder.build(&request.pattern).map_err(|error| {
        let mut reason = error.to_string();
        if reason.contains("not allowed in a regex") {
            reason.push_str("; set `multiline` to search across lines");
        }
        SearchError::Pattern(reason)
    })
}

/// A glob as the folder it names and the rest. Without a `/` it is about names in every
/// folder.
fn glob_of(glob: &str) -> Result<(PathBuf, Option<Filter>), SearchError> {
    let (excludes, positive) = match glob.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, glob),
    };
    let by_name = !positive.contains('/');
    let (prefix, rest) = if by_name || excludes {
        (PathBuf::new(), positive.to_owned())
    } else {
        walk::literal_prefix(positive)
    };
    if rest.is_empty() {
        return Ok((prefix, None));
    }
    let matcher = GlobBuilder::new(rest.trim_start_matches('/'))
        .literal_separator(true)
        .build()
        .map_err(|error| SearchError::Glob {
            glob: glob.to_owned(),
            reason: error.kind().to_string(),
        })?
        .compile_matcher();
    Ok((
        prefix,
        Some(Filter {
            matcher,
            by_name,
            excludes,
        }),
    ))
}

/// Which files a glob lets through.
pub(super) struct Filter {
    matcher: GlobMatcher,
    by_name: bool,
    excludes: bool,
}

impl Filter {
    fn lets(&self, relative: &Path) -> bool {
        let matches = if self.by_name {
            relative
                .file_name()
                .is_some_and(|name| self.matcher.is_match(Path::new(name)))
        } else {
            self.matcher.is_match(relative)
        };
        matches != self.excludes
    }
}

fn types(name: &str) -> Result<Types, SearchError> {
    let mut builder = TypesBuilder::new();
    builder.add_defaults();
    builder.select(name);
    builder.build().map_err(|_| {
        let definitions = builder.definitions();
        let mut near: Vec<(usize, &str)> = definitions
            .iter()
            .map(|known| {
                (
                    strsim::damerau_levenshtein(known.name(), name),
                    known.name(),
                )
            })
            .filter(|(distance, known)| {
                *distance <= 1
                    || (known.len() >= 3 && (known.starts_with(name) || name.starts_with(known)))
            })
            .collect();
        near.sort_unstable();
        let near: Vec<&str> = near.into_iter().take(5).map(|(_, known)| known).collect();
        let hint = if near.is_empty() {
            String::new()
        } else {
            format!("; there is {}", near.join(", "))
        };
        SearchError::Type(format!(
            "there is no file type `{name}`{hint}; a `glob` such as *.ext does the same"
        ))
    })
}

struct Rendered<'a> {
    world: &'a World,
    request: &'a GrepRequest,
    totals: hits::Finished,
}

impl Rendered<'_> {
    fn result(self, past_rules: &[&Path], unreadable_folders: u64) -> Grepped {
        let (text, given) = self.text();
        let mut remarks = self.left_out(given);
        let totals = &self.totals;
        if totals.results == 0 {
            remarks.push(match totals.searched {
                0 => {
                    "no file was searched: none fits `path`, `glob` and `type`, ignored files aside"
                        .to_owned()
                }
                searched => format!("{} searched", counted(searched, "file was", "files were")),
            });
        }
        for base in past_rules {
            remarks.push(format!(
                "ignored files below {} are included, since the call names it",
                shown(&self.world.files().as_given(base))
            ));
        }
        if totals.binary > 0 {
            remarks.push(format!(
                "{} skipped",
                counted(totals.binary, "binary file was", "binary files were")
            ));
        }
        remarks.extend(self.sample(
            &totals.not_text,
            "is not UTF-8 text and was skipped",
            "are not UTF-8 text and were skipped",
        ));
        remarks.extend(self.sample(
            &totals.cut_short,
            "was searched up to binary data only",
            "were searched up to binary data only",
        ));
        remarks.extend(self.sample(
            &totals.unreadable,
            "could not be searched",
            "could not be searched",
        ));
        if unreadable_folders > 0 {
            remarks.push(format!(
                "{} could not be read",
                counted(unreadable_folders, "folder", "folders")
            ));
        }
        Grepped { text, remarks }
    }

    fn sample(&self, sample: &Sample, one: &str, many: &str) -> Option<String> {
        let first = sample.first.as_ref()?;
        let first = shown(&self.world.files().as_given(first));
        Some(match sample.count {
            1 => format!("{first} {one}"),
            count => format!("{count} files {many}, {first} among them"),
        })
    }

    /// The text, and how many results it holds.
    fn text(&self) -> (String, usize) {
        let mut text = String::new();
        let mut passed = 0;
        let mut given = 0;
        let groups = self.request.mode == Mode::Content
            && (self.request.before > 0 || self.request.after > 0);
        for (path, hits) in &self.totals.files {
            let name = shown(&self.world.files().as_given(path));
            match self.request.mode {
                Mode::Files | Mode::Count => {
                    if passed < self.request.offset {
                        passed += 1;
                        continue;
                    }
                    if !self.has_room(given, &text) {
                        return (text, given);
                    }
                    given += 1;
                    text.push_str(&name);
                    if self.request.mode == Mode::Count {
                        text.push_str(&format!(":{}", hits.matches));
                    }
                    text.push('\n');
                }
                Mode::Content => {
                    let mut separate = groups && given > 0;
                    for line in &hits.lines {
                        if line.kind == LineKind::Break {
                            separate = groups && given > 0;
                            continue;
                        }
                        if passed < self.request.offset {
                            passed += 1;
                            continue;
                        }
                        if !self.has_room(given, &text) {
                            return (text, given);
                        }
                        if std::mem::take(&mut separate) {
                            text.push_str("--\n");
                        }
                        given += 1;
                        let mark = if line.kind == LineKind::Match {
                            ':'
                        } else {
                            '-'
                        };
                        text.push_str(&name);
                        text.push(mark);
                        if let Some(number) = line.number {
                            text.push_str(&format!("{number}{mark}"));
                        }
                        text.push_str(&line.text);
                        text.push('\n');
                    }
                }
            }
        }
        (text, given)
    }

    fn has_room(&self, given: usize, text: &str) -> bool {
        given < self.request.limit.min(MOST) && text.len() < MOST_TEXT
    }

    fn left_out(&self, given: usize) -> Vec<String> {
        let total = self.totals.results;
        let Self { request, .. } = self;
        let what = match request.mode {
            Mode::Files | Mode::Count => "files",
            Mode::Content => "lines",
        };
        let matches = match request.mode {
            Mode::Files => String::new(),
            Mode::Content | Mode::Count => {
                format!(
                    " ({} in {})",
                    counted(self.totals.matches, "matching line", "matching lines"),
                    counted(self.totals.matched_files, "file", "files")
                )
            }
        };
        let next = request.offset.saturating_add(given);
        if total > 0 && given == 0 {
            return vec![format!(
                "there are {total} {what}{matches}, and `offset` {} is past them",
                request.offset
            )];
        }
        if (given as u64) < total {
            let mut remark = format!(
                "{what} {} to {next} of {total} are shown{matches}",
                request.offset + 1
            );
            if (next as u64) < total {
                remark.push_str(&format!(
                    "; the {} after them come with `offset` {next}, or narrow the search with `path`, `glob` or `type`",
                    total - next as u64
                ));
            }
            return vec![remark];
        }
        Vec::new()
    }
}
