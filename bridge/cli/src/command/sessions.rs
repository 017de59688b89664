//! `terret sessions`: look at, move and check sessions. Reads the files; a live engine
//! may go on writing them meanwhile.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};
use terret_engine::room::log::{
    EditorFold, EditorItem, Index, PlanStatus, PromptBlock, SessionFilter, SessionId, SessionRow,
    Store, SystemClock, TurnStatus, editor, moment,
};

use crate::args::SessionsCommand;
use crate::output::{Output, printable};
use crate::paths::{Environment, Paths};
use crate::wiring::Setup;

/// Runs one of the `sessions` commands.
pub(crate) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    command: SessionsCommand,
    out: &mut Output,
) -> anyhow::Result<()> {
    let paths = &setup.paths;
    let store = Store::open(paths.state.clone(), std::sync::Arc::new(SystemClock))?
        .with_scrubber(setup.scrubber.clone());
    match command {
        SessionsCommand::List { cwd, json, limit } => {
            list(paths, store, cwd.as_deref(), json, limit, out)
        }
        SessionsCommand::Show { id, json } => {
            let id = find(&store, &id)?;
            if json {
                show_events(&store, &id, out)
            } else {
                show(&store, &id, out)
            }
        }
        SessionsCommand::Search { text, limit } => search(paths, store, &text, limit, out),
        SessionsCommand::Export { id, output } => {
            let id = find(&store, &id)?;
            setup.redaction()?;
            setup.learn_keys(environment);
            let exported = match output {
                Some(path) => {
                    let mut file = new_file(&path).with_context(|| {
                        format!("could not make `{}`; it must not exist yet", path.display())
                    })?;
                    let exported = store.export(&id, &mut file)?;
                    file.sync_all()?;
                    out.line(format!("{id} is in {}", path.display()))?;
                    exported
                }
                None => store.export(&id, out)?,
            };
            if exported.scrubbed > 0 {
                crate::complain(&format!(
                    "terret: {} events held a secret and are redacted in the export",
                    exported.scrubbed
                ));
            }
            if exported.withheld > 0 {
                crate::complain(&format!(
                    "terret: {} contents of files hold a secret and are not in the export",
                    exported.withheld
                ));
            }
            Ok(())
        }
        SessionsCommand::Import { file } => {
            setup.redaction()?;
            setup.learn_keys(environment);
            import(&store, &file, out)
        }
        SessionsCommand::Verify { id } => verify(&store, id.as_deref(), out),
    }
}

/// A new file, which is as private as the folder that its content comes from.
#[expect(
    clippy::disallowed_methods,
    reason = "the file that the person named on the command line"
)]
fn new_file(path: &Path) -> std::io::Result<File> {
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// The session that `text` names: its id, or the beginning of just one.
pub(crate) fn find(store: &Store, text: &str) -> anyhow::Result<SessionId> {
    if let Ok(id) = text.parse::<SessionId>()
        && store.exists(&id)
    {
        return Ok(id);
    }
    let matching: Vec<SessionId> = store
        .ids()?
        .into_iter()
        .filter(|id| id.as_str().starts_with(text))
        .collect();
    match matching.as_slice() {
        [id] => Ok(id.clone()),
        [] => bail!("there is no session `{text}`; `terret sessions list` shows which there are"),
        several => bail!(
            "`{text}` begins {} sessions; write more of the id",
            several.len()
        ),
    }
}

fn list(
    paths: &Paths,
    store: Store,
    cwd: Option<&Path>,
    json: bool,
    limit: u32,
    out: &mut Output,
) -> anyhow::Result<()> {
    let index = index(paths, store)?;
    let cwd = cwd.map(std::path::absolute).transpose()?;
    let filter = SessionFilter {
        cwd: cwd.map(|path| path.to_string_lossy().into_owned()),
        limit: limit as usize,
        ..SessionFilter::default()
    };
    let page = index.list(&filter)?;
    if json {
        for row in &page.sessions {
            out.line(row_json(row).to_string())?;
        }
        return Ok(());
    }
    if page.sessions.is_empty() {
        out.line(match &filter.cwd {
            Some(cwd) => format!("No sessions in {}.", printable(cwd)),
            None => "No sessions yet.".to_owned(),
        })?;
    }
    for row in &page.sessions {
        let title = row
            .title
            .as_deref()
            .or(row.first_text.as_deref())
            .unwrap_or("(nothing said yet)");
        let first_line = title.lines().next().unwrap_or_default();
        let mut notes = Vec::new();
        if row.open_turn {
            notes.push("turn open".to_owned());
        }
        if row.pending_approvals > 0 {
            notes.push(format!("{} waiting in the inbox", row.pending_approvals));
        }
        if let Some(problem) = &row.problem {
            notes.push(format!("damaged: {problem}"));
        }
        let notes = if notes.is_empty() {
            String::new()
        } else {
            format!("  [{}]", notes.join("; "))
        };
        out.line(format!(
            "{}  {}  {}{notes}",
            row.id,
            moment(row.updated_at),
            printable(first_line)
        ))?;
        out.line(format!("    {}", printable(&row.cwd)))?;
    }
    if page.next_cursor.is_some() {
        out.line("More follow; raise --limit to see them.")?;
    }
    Ok(())
}

fn row_json(row: &SessionRow) -> serde_json::Value {
    serde_json::json!({
        "id": row.id.as_str(),
        "cwd": row.cwd,
        "title": row.title,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "events": row.events,
        "turns": row.turns,
        "open_turn": row.open_turn,
        "pending_approvals": row.pending_approvals,
        "prompt_tokens": row.usage.prompt_tokens,
        "completion_tokens": row.usage.completion_tokens,
        "problem": row.problem,
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "prints the log's own lines, as they are"
)]
fn show_events(store: &Store, id: &SessionId, out: &mut Output) -> anyhow::Result<()> {
    // The file is the truth and is JSON lines already.
    let path = store.log_path(id);
    let mut file = BufReader::new(
        File::open(&path).with_context(|| format!("could not read {}", path.display()))?,
    );
    std::io::copy(&mut file, out)?;
    Ok(())
}

fn show(store: &Store, id: &SessionId, out: &mut Output) -> anyhow::Result<()> {
    let mut fold = EditorFold::new(editor::Mode::Replay);
    let mut items = Vec::new();
    let mut damage = None;
    for event in store.read(id, 0)? {
        match event {
            Ok(event) => fold.apply(&event, &mut items),
            // What is whole is shown to its end before it is said where it breaks.
            Err(error) => {
                damage = Some(error);
                break;
            }
        }
        for item in items.drain(..) {
            show_item(&item, out)?;
        }
    }
    fold.finish(&mut items);
    for item in items.drain(..) {
        show_item(&item, out)?;
    }
    out.flush()?;
    damage.map_or(Ok(()), |error| Err(error.into()))
}

fn show_item(item: &EditorItem, out: &mut Output) -> anyhow::Result<()> {
    match item {
        EditorItem::UserText { blocks, .. } => {
            out.line("")?;
            for block in blocks {
                match block {
                    PromptBlock::Text { text } => {
                        out.line(format!("> {}", printable(text).replace('\n', "\n> ")))?
                    }
                    PromptBlock::ResourceLink { uri, .. } | PromptBlock::Resource { uri, .. } => {
                        out.line(format!("> @{}", printable(uri)))?;
                    }
                    PromptBlock::Image { image } => {
                        out.line(format!("> [image, {}]", image.mime_type))?
                    }
                }
            }
            out.line("")?;
        }
        EditorItem::AgentText { text, .. } => out.line(printable(text))?,
        EditorItem::ToolCall { name, args, .. } => {
            let args: String = args.to_string().chars().take(160).collect();
            out.line(format!("* {name} {}", printable(&args)))?;
        }
        EditorItem::ToolResult { content, error, .. } => {
            let text = error.as_deref().or(content.as_deref()).unwrap_or_default();
            let mark = if error.is_some() { "!" } else { " " };
            for line in printable(text).lines().take(8) {
                out.line(format!("  {mark} {line}"))?;
            }
            let more = text.lines().count().saturating_sub(8);
            if more > 0 {
                out.line(format!("    ({more} more lines; --json shows them)"))?;
            }
        }
        EditorItem::ApprovalResolved {
            verdict,
            reason,
            by,
            ..
        } => {
            let reason = reason
                .as_ref()
                .map(|reason| format!(": {}", printable(reason)))
                .unwrap_or_default();
            let verdict = serde_json::to_value(verdict)?;
            out.line(format!(
                "  ? {} by {by}{reason}",
                verdict.as_str().unwrap_or_default()
            ))?;
        }
        EditorItem::Plan(entries) => {
            for entry in entries {
                let mark = match entry.status {
                    PlanStatus::Pending => " ",
                    PlanStatus::InProgress => "~",
                    PlanStatus::Completed => "x",
                };
                out.line(format!("  [{mark}] {}", printable(&entry.content)))?;
            }
        }
        EditorItem::Notice { text, .. } => out.line(format!("({})", printable(text)))?,
        EditorItem::TurnEnded { status, reason } if *status != TurnStatus::Completed => {
            let status = serde_json::to_value(status)?;
            let reason = reason
                .as_ref()
                .map(|reason| format!(": {}", printable(reason)))
                .unwrap_or_default();
            out.line(format!(
                "(turn {}{reason})",
                status.as_str().unwrap_or_default()
            ))?;
        }
        _ => {}
    }
    Ok(())
}

fn search(
    paths: &Paths,
    store: Store,
    text: &str,
    limit: u32,
    out: &mut Output,
) -> anyhow::Result<()> {
    let index = index(paths, store)?;
    let hits = index.search(text, limit as usize)?;
    if hits.is_empty() {
        out.line("Nothing found.")?;
    }
    for hit in hits {
        let title = hit.title.as_deref().unwrap_or("(untitled)");
        out.line(format!(
            "{} #{}  {}  {}",
            hit.session,
            hit.seq,
            moment(hit.at),
            printable(title)
        ))?;
        out.line(format!(
            "    {}: {}",
            hit.role,
            printable(&hit.snippet).replace('\n', " ")
        ))?;
    }
    Ok(())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the file that the person named on the command line"
)]
fn import(store: &Store, file: &Path, out: &mut Output) -> anyhow::Result<()> {
    let imported = if file == Path::new("-") {
        store.import_report(&mut std::io::stdin().lock())?
    } else {
        let open =
            File::open(file).with_context(|| format!("could not read {}", file.display()))?;
        store.import_report(&mut BufReader::new(open))?
    };
    if imported.withheld > 0 {
        crate::complain(&format!(
            "terret: the export lacks {} contents of files that held a secret; diffs cannot show them",
            imported.withheld
        ));
    }
    out.line(imported.id.to_string())?;
    Ok(())
}

fn verify(store: &Store, id: Option<&str>, out: &mut Output) -> anyhow::Result<()> {
    let mut ids = match id {
        Some(id) => vec![find(store, id)?],
        None => store.ids()?,
    };
    if ids.is_empty() {
        out.line("No sessions yet.")?;
    }
    // Ids begin with their time, so this is the order of their making.
    ids.sort_unstable();
    let mut damaged = 0;
    for id in &ids {
        let report = store.verify(id)?;
        let torn = match report.torn_bytes {
            0 => String::new(),
            bytes => format!(", and {bytes} bytes of a line that was not finished"),
        };
        if report.is_sound() {
            let head = report.head.as_deref().unwrap_or("none");
            out.line(format!(
                "{id}: {} events are whole{torn}; head {head}",
                report.events
            ))?;
        } else {
            damaged += 1;
            for problem in &report.problems {
                out.line(format!("{id}: event {}: {}", problem.seq, problem.why))?;
            }
        }
    }
    out.flush()?;
    if damaged > 0 {
        bail!(
            "{damaged} of {} logs are damaged; what is whole of them can still be read",
            ids.len()
        );
    }
    Ok(())
}

fn index(paths: &Paths, store: Store) -> anyhow::Result<Index> {
    let mut index = Index::open(paths.state.join("index.sqlite"), store)?;
    index.refresh()?;
    Ok(index)
}
