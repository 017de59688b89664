//! Finding files by name, the newest first.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use globset::{GlobBuilder, GlobMatcher};
use ignore::DirEntry;
use tokio_util::sync::CancellationToken;

use crate::world::World;
use crate::world::search::walk::{self, Start, Visitor, Visitors};
use crate::world::search::{SearchError, counted, shown};

/// Files given at most.
pub const MOST: usize = 1_000;

/// What to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindRequest {
    /// A glob; relative ones are tried in every root, or in `path`.
    pub pattern: String,
    /// The folder to look in.
    pub path: Option<String>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Absolute paths, as the editor names their roots: the newest first, then by name.
    pub paths: Vec<PathBuf>,
    /// How many there are in all.
    pub total: u64,
    pub remarks: Vec<String>,
}

/// Finds files. Blocks: runs on a blocking thread.
///
/// # Errors
/// [`SearchError`]: a path outside, a bad glob, a cancel.
pub fn find(
    world: &World,
    request: &FindRequest,
    cancel: &CancellationToken,
) -> Result<Found, SearchError> {
    let (prefix, rest) = walk::literal_prefix(&request.pattern);
    if request.pattern.trim().is_empty() {
        return Err(bad_glob(&request.pattern, "it is empty"));
    }
    let bases = bases(world, request.path.as_deref(), &prefix)?;
    let mut found = Found::default();
    if rest.is_empty() {
        for base in bases {
            match std::fs::metadata(&base) {
                Ok(data) if data.is_file() => found.paths.push(world.files().as_given(&base)),
                Ok(data) if data.is_dir() => found.remarks.push(format!(
                    "{} is a folder; its files are {}/**",
                    shown(&world.files().as_given(&base)),
                    request.pattern.trim_end_matches('/')
                )),
                _ => {}
            }
        }
        found.total = found.paths.len() as u64;
        return Ok(found);
    }
    let glob = GlobBuilder::new(&rest)
        .literal_separator(true)
        .build()
        .map_err(|error| bad_glob(&request.pattern, &error.kind().to_string()))?
        .compile_matcher();
    let starts: Vec<Start> = bases
        .into_iter()
        .filter(|base| base.is_dir())
        .map(|base| walk::folder(world, base))
        .collect();
    let mut unreadable = 0;
    let mut files = Newest::default();
    let mut past_rules = Vec::new();
    for start in &starts {
        let finder = Finder::new(world, start, &glob);
        let walked = start.walk(&finder, cancel)?;
        unreadable += walked.unreadable;
        if walked.past_rules && finder.total() > 0 {
            past_rules.push(start);
        }
        files.join(finder.newest());
    }
    if files.total == 0 && (walk::names_folder(&rest) || !prefix.as_os_str().is_empty()) {
        for start in &starts {
            let finder = Finder::new(world, start, &glob);
            start.walk_all(&finder, cancel)?;
            if finder.total() > 0 {
                past_rules.push(start);
            }
            files.join(finder.newest());
        }
    }
    found.total = files.total;
    found.paths = files
        .sorted()
        .into_iter()
        .map(|file| world.files().as_given(&file.path))
        .collect();
    found.remarks.extend(remarks(
        world,
        request,
        &found,
        &past_rules,
        unreadable,
        &rest,
    ));
    Ok(found)
}

/// The real folders (or files, when the glob has no wildcard) to begin at.
fn bases(world: &World, path: Option<&str>, prefix: &Path) -> Result<Vec<PathBuf>, SearchError> {
    let place = match path {
        Some(path) => {
            let real = world.resolve(path)?;
            match std::fs::metadata(&real) {
                Ok(data) if data.is_dir() => Some(real),
                Ok(_) => return Err(SearchError::NotAFolder(PathBuf::from(path))),
                Err(_) => return Err(SearchError::Missing(PathBuf::from(path))),
            }
        }
        None if prefix.is_absolute() => Some(PathBuf::from("/")),
        None => None,
    };
    match place {
        Some(folder) => Ok(vec![world.resolve(folder.join(prefix))?]),
        // A root that lacks the folder, or where a link leads outside, has no matches.
        None => {
            let mut found: Vec<PathBuf> = Vec::new();
            let mut refusal = None;
            for root in world.roots() {
                match world.resolve(root.join(prefix)) {
                    Ok(real) if found.contains(&real) => {}
                    Ok(real) => found.push(real),
                    Err(error) => refusal = Some(error),
                }
            }
            match refusal {
                Some(error) if !found.iter().any(|base| base.exists()) => Err(error.into()),
                _ => Ok(found),
            }
        }
    }
}

fn remarks(
    world: &World,
    request: &FindRequest,
    found: &Found,
    past_rules: &[&Start],
    unreadable: u64,
    rest: &str,
) -> Vec<String> {
    let mut remarks = Vec::new();
    let missing = found.total.saturating_sub(found.paths.len() as u64);
    if missing > 0 {
        remarks.push(format!(
            "the {} newest of {} files are shown, {missing} older ones are not; narrow the pattern or name a folder \
             in `path` to see them",
            found.paths.len(),
            found.total
        ));
    }
    for start in past_rules {
        remarks.push(format!(
            "ignored files below {} are included, since the pattern names them",
            shown(&world.files().as_given(&start.base))
        ));
    }
    if found.total == 0 && !rest.contains('/') {
        remarks.push(format!(
            "`{}` looks at one folder; `**/{rest}` looks at every folder below",
            request.pattern
        ));
    }
    if unreadable > 0 {
        remarks.push(format!(
            "{} could not be read",
            counted(unreadable, "folder", "folders")
        ));
    }
    remarks
}

fn bad_glob(glob: &str, reason: &str) -> SearchError {
    SearchError::Glob {
        glob: glob.to_owned(),
        reason: reason.to_owned(),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    changed: SystemTime,
    path: PathBuf,
}

/// The newest [`MOST`] files of any number.
#[derive(Default)]
struct Newest {
    files: Vec<File>,
    total: u64,
}

impl Newest {
    fn push(&mut self, file: File) {
        self.total += 1;
        self.files.push(file);
        if self.files.len() >= 2 * MOST {
            self.cut();
        }
    }

    fn join(&mut self, mut other: Self) {
        self.total += other.total;
        self.files.append(&mut other.files);
        self.cut();
    }

    fn cut(&mut self) {
        self.files.sort_unstable_by(|one, other| {
            other
                .changed
                .cmp(&one.changed)
                .then_with(|| one.path.cmp(&other.path))
        });
        self.files.truncate(MOST);
    }

    fn sorted(mut self) -> Vec<File> {
        self.cut();
        self.files
    }
}

struct Finder<'a> {
    world: &'a World,
    base: &'a Path,
    glob: &'a GlobMatcher,
    total: AtomicU64,
    newest: Mutex<Newest>,
}

struct FinderThread<'a> {
    finder: &'a Finder<'a>,
    own: Newest,
}

impl<'a> Finder<'a> {
    fn new(world: &'a World, start: &'a Start, glob: &'a GlobMatcher) -> Self {
        Self {
            world,
            base: &start.base,
            glob,
            total: AtomicU64::new(0),
            newest: Mutex::default(),
        }
    }

    fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    fn newest(self) -> Newest {
        self.newest
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitors for Finder<'_> {
    type One<'b>
        = FinderThread<'b>
    where
        Self: 'b;

    fn visitor(&self) -> Self::One<'_> {
        FinderThread {
            finder: self,
            own: Newest::default(),
        }
    }
}

impl Visitor for FinderThread<'_> {
    fn visit(&mut self, entry: &DirEntry) {
        let path = entry.path();
        let Ok(relative) = path.strip_prefix(self.finder.base) else {
            return;
        };
        if !self.finder.glob.is_match(relative) {
            return;
        }
        let is_link = entry.file_type().is_some_and(|kind| kind.is_symlink());
        if is_link && !walk::leads_to_file(self.finder.world, path) {
            return;
        }
        let changed = entry
            .metadata()
            .ok()
            .and_then(|data| data.modified().ok())
            .unwrap_or(SystemTime::UNIX_EPOCH);
        self.own.push(File {
            changed,
            path: path.to_owned(),
        });
    }
}

impl Drop for FinderThread<'_> {
    fn drop(&mut self) {
        self.finder
            .total
            .fetch_add(self.own.total, Ordering::Relaxed);
        let own = std::mem::take(&mut self.own);
        self.finder
            .newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join(own);
    }
}
