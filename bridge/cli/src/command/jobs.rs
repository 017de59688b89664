//! `terret jobs`: the background jobs of all sessions, through their keepers and files, so
//! that it works with a running Terret and without one.

use std::io::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::json;
use terret_engine::room::tools::world::jobs::listing::{self, Listed};
use terret_engine::room::tools::world::jobs::{Job, JobError};
use terret_engine::room::tools::world::process::GRACE;
use terret_engine::{command_words, duration_words, ended_words, outcome_of};

use crate::args::JobsCommand;
use crate::inside::refuse_inside;
use crate::output::{Output, printable};
use crate::paths::{Environment, Paths};

/// Bytes of output that are read at once.
const PIECE: usize = 256 * 1024;
/// Between two looks at a job that is followed.
const PAUSE: Duration = Duration::from_millis(500);

/// Runs one of the `jobs` commands; none means `list`.
pub(crate) fn run(
    paths: &Paths,
    environment: &dyn Environment,
    command: Option<JobsCommand>,
    out: &mut Output,
) -> anyhow::Result<()> {
    match command.unwrap_or(JobsCommand::List { json: false }) {
        JobsCommand::List { json } => list(paths, json, out),
        JobsCommand::Tail { id, bytes, follow } => tail(paths, &id, bytes, follow, out),
        JobsCommand::Stop { id } => {
            refuse_inside(environment)?;
            stop(paths, &id, out)
        }
    }
}

fn list(paths: &Paths, json: bool, out: &mut Output) -> anyhow::Result<()> {
    let all = listing::list(&paths.jobs())?;
    for listed in &all {
        let job = &listed.job;
        if json {
            out.line(row(listed).to_string())?;
            continue;
        }
        out.line(format!("{}  {}", job.id, printable(&words(job))))?;
        out.line(format!("    {}", printable(&command_words(&job.command))))?;
        let keep = if job.keep { ", outlives it" } else { "" };
        out.line(format!("    of session {}{keep}", listed.session))?;
        for note in &job.notes {
            out.line(format!("    {}", printable(&note.to_string())))?;
        }
    }
    if all.is_empty() && !json {
        out.line("There are no background jobs.")?;
    }
    Ok(())
}

/// A job for a program to read.
fn row(listed: &Listed) -> serde_json::Value {
    let job = &listed.job;
    json!({
        "session": listed.session,
        "id": job.id.as_str(),
        "call_id": job.call_id,
        "command": job.command,
        "description": job.description,
        "keep": job.keep,
        "running": job.state.is_running(),
        "outcome": outcome_of(&job.state),
        "started_at": job.started_at,
        "ended_at": job.ended_at,
        "ran_for_ms": job.ran_for,
        "written": job.written,
        "dropped": job.dropped,
        "notes": job.notes.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn tail(
    paths: &Paths,
    name: &str,
    bytes: u64,
    follow: bool,
    out: &mut Output,
) -> anyhow::Result<()> {
    let root = paths.jobs();
    let Listed { job, .. } = find(paths, name)?;
    let id = job.id;
    let mut from = job.written.saturating_sub(bytes);
    let mut held = Vec::new();
    loop {
        let piece = match listing::read(&root, &id, from, PIECE) {
            // Its session let go of it meanwhile.
            Err(JobError::NoSuchJob(_)) if follow => return Ok(()),
            other => other.with_context(|| format!("the output of `{id}` cannot be read"))?,
        };
        if piece.missing > 0 {
            out.line(format!("[... {} bytes were not kept ...]", piece.missing))?;
        }
        from = piece.upto;
        held.extend_from_slice(&piece.bytes);
        let over = !piece.job.state.is_running() && piece.upto >= piece.job.written;
        print(&mut held, over, out)?;
        if over && follow {
            out.flush()?;
            out.line(format!("{id} {}", printable(&words(&piece.job))))?;
        }
        if over || (!follow && (piece.bytes.is_empty() || piece.upto >= piece.job.written)) {
            return Ok(());
        }
        if piece.bytes.is_empty() {
            out.flush()?;
            std::thread::sleep(PAUSE);
        }
    }
}

/// Prints what is whole of it; a character may be cut at the end of a piece.
fn print(held: &mut Vec<u8>, all: bool, out: &mut Output) -> anyhow::Result<()> {
    let whole = match std::str::from_utf8(held) {
        Err(error) if !all && error.error_len().is_none() => error.valid_up_to(),
        _ => held.len(),
    };
    let piece: Vec<u8> = held.drain(..whole).collect();
    out.write_all(printable(&String::from_utf8_lossy(&piece)).as_bytes())?;
    Ok(())
}

fn stop(paths: &Paths, name: &str, out: &mut Output) -> anyhow::Result<()> {
    let Listed { job, .. } = find(paths, name)?;
    if !job.state.is_running() {
        out.line(format!(
            "over already: {} {}",
            job.id,
            printable(&words(&job))
        ))?;
        return Ok(());
    }
    let stopped = listing::stop(&paths.jobs(), &job.id, GRACE)
        .with_context(|| format!("`{}` was not stopped", job.id))?;
    out.line(format!("{} {}", stopped.id, printable(&words(&stopped))))?;
    Ok(())
}

/// The one job that a person named by its id or a beginning of it.
fn find(paths: &Paths, name: &str) -> anyhow::Result<Listed> {
    let all = listing::list(&paths.jobs())?;
    let fits = |listed: &&Listed| {
        let id = listed.job.id.as_str();
        let short = id.strip_prefix("job-").unwrap_or(id);
        !name.is_empty() && (id.starts_with(name) || short.starts_with(name))
    };
    let mut found: Vec<&Listed> = all.iter().filter(fits).collect();
    match (found.pop(), found.len()) {
        (Some(one), 0) => Ok(one.clone()),
        (None, _) => bail!("there is no job `{name}`; `terret jobs` lists what there is"),
        (Some(_), others) => bail!("`{name}` fits {} jobs; write more of it", others + 1),
    }
}

fn words(job: &Job) -> String {
    match outcome_of(&job.state) {
        Some(outcome) => format!(
            "{}, {} bytes of output",
            ended_words(&outcome, job.ran_for),
            job.written
        ),
        None => format!(
            "runs for {}, {} bytes of output",
            duration_words(job.ran_for),
            job.written
        ),
    }
}
