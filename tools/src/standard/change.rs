//! What Write, Edit and MultiEdit share: the file must be known as it is, the change is
//! told to the log before it is made, and the result shows it.

use std::path::Path;
use std::sync::Arc;

use crate::call::{CallContext, Failure, FileChange, Output};
use crate::standard::matching::{self, Applied, Replacement};
use crate::standard::shown;
use crate::world::files::{FileOperation, Loaded};
use crate::world::text::{self, Document};

/// A change that is worked out and not made yet.
pub(super) struct Change {
    pub(super) path: std::path::PathBuf,
    pub(super) loaded: Option<Loaded>,
    pub(super) after: Vec<u8>,
    /// Both views, for the lines that a result shows.
    pub(super) views: (String, String),
}

impl Change {
    pub(super) fn as_file_change(&self) -> FileChange {
        FileChange {
            path: self.path.clone(),
            before: self
                .loaded
                .as_ref()
                .map(|loaded| Arc::clone(loaded.document.bytes())),
            after: Some(self.after.as_slice().into()),
        }
    }

    /// Logs the change and makes it. `done` is the result's first line.
    pub(super) async fn make(self, context: &CallContext, done: String) -> Result<Output, Failure> {
        let mut remarks = self
            .loaded
            .as_ref()
            .map_or_else(Vec::new, |loaded| loaded.remarks.clone());
        let same = self
            .loaded
            .as_ref()
            .is_some_and(|loaded| loaded.document.bytes()[..] == self.after[..]);
        let hash = text::hash(&self.after);
        if same {
            remarks.push("the file had this content already".to_owned());
        } else {
            let told = context
                .journal
                .file_changing(&context.call_id, &self.as_file_change())
                .await;
            told.map_err(|fault| Failure::new(format!("nothing was changed: {fault}")))?;
            remarks.extend(
                context
                    .world
                    .files()
                    .store(&self.path, self.loaded.as_ref(), self.after)
                    .await?,
            );
        }
        context
            .journal
            .file_seen(&context.call_id, &self.path, &hash);
        let mut text = done;
        if self.loaded.is_some() && !same {
            let (before, after) = self.views;
            let shown =
                tokio::task::spawn_blocking(move || shown::changed_lines(&before, &after)).await;
            if let Ok((lines, left_out)) = shown {
                text = format!("{text}\n{lines}");
                if left_out > 0 {
                    remarks.push(format!(
                        "{left_out} more changed lines are not shown; Read the file to see them"
                    ));
                }
            }
        }
        Ok(Output {
            text,
            remarks,
            ..Output::default()
        })
    }
}

/// The file as it is now, when this session has seen it so; none when there is no file.
pub(super) async fn known(context: &CallContext, path: &str) -> Result<Option<Loaded>, Failure> {
    let files = context.world.files();
    let Some(loaded) = files.load(Path::new(path), FileOperation::Write).await? else {
        return Ok(None);
    };
    match context.journal.seen(&loaded.path) {
        None => Err(Failure::new(format!(
            "{} exists and was not read in this session; Read it first, so that nothing in it is lost",
            loaded.path.display()
        ))),
        Some(seen) if !loaded.is(&seen) => Err(Failure::new(format!(
            "{} changed since it was read in this session; Read it again before changing it",
            loaded.path.display()
        ))),
        Some(_) => Ok(Some(loaded)),
    }
}

/// Works out the replacements in a file. `each` words what failed with its number.
pub(super) async fn replacements(
    context: &CallContext,
    path: &str,
    replacements: Vec<Replacement>,
    numbered: bool,
) -> Result<(Change, Vec<usize>), Failure> {
    let files = context.world.files();
    let Some(loaded) = known(context, path).await? else {
        return creation(context, path, &replacements).await;
    };
    // An empty file has no text to be found, so an empty `old_string` names all of it.
    if let ([only], "") = (replacements.as_slice(), loaded.document.view())
        && only.old.is_empty()
    {
        let change = overwrite(context, path, Some(loaded), &only.new).await?;
        return Ok((change, vec![1]));
    }
    let document = loaded.document.clone();
    let worked = tokio::task::spawn_blocking(move || matching::apply(&document, &replacements))
        .await
        .map_err(|_| Failure::new("the edit could not be worked out; nothing was changed"))?;
    let Applied { document, counts } = worked.map_err(|(number, error)| {
        let name = files.relative(&loaded.path);
        Failure::new(if numbered {
            format!("{name}, edit {number}: {error}")
        } else {
            format!("{name}: {error}")
        })
    })?;
    let views = (
        loaded.document.view().to_owned(),
        document.view().to_owned(),
    );
    let after = document.bytes().to_vec();
    Ok((
        Change {
            path: loaded.path.clone(),
            loaded: Some(loaded),
            after,
            views,
        },
        counts,
    ))
}

/// A file that an edit with an empty `old_string` makes.
async fn creation(
    context: &CallContext,
    path: &str,
    replacements: &[Replacement],
) -> Result<(Change, Vec<usize>), Failure> {
    match replacements {
        [only] if only.old.is_empty() => {
            Ok((overwrite(context, path, None, &only.new).await?, vec![1]))
        }
        _ => Err(Failure::new(format!(
            "there is no file {path}; make it with Write"
        ))),
    }
}

/// Works out a whole new content.
pub(super) async fn overwrite(
    context: &CallContext,
    path: &str,
    loaded: Option<Loaded>,
    content: &str,
) -> Result<Change, Failure> {
    let files = context.world.files();
    let real = files.resolve(Path::new(path), FileOperation::Write)?;
    let (after, before_view) = match &loaded {
        Some(loaded) => {
            let bytes = loaded.document.overwrite(content).map_err(|error| {
                Failure::new(format!(
                    "{} was not touched: {error}",
                    loaded.path.display()
                ))
            })?;
            (bytes, loaded.document.view().to_owned())
        }
        None => {
            let end = if content.contains("\r\n") {
                text::LineEnd::Lf
            } else {
                files.neighbours_line_end(Path::new(path)).await
            };
            (
                text::with_line_end(content, end).into_owned().into_bytes(),
                String::new(),
            )
        }
    };
    let after_view = match &loaded {
        Some(loaded) => Document::with_encoding(after.clone(), loaded.document.encoding())
            .map_or_else(
                |_| content.to_owned(),
                |document| document.view().to_owned(),
            ),
        None => String::new(),
    };
    Ok(Change {
        path: real,
        loaded,
        after,
        views: (before_view, after_view),
    })
}
