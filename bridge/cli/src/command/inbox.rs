//! `terret inbox`: what waits for a person, in any running Terret of this user.

use anyhow::{Context as _, bail};
use terret_engine::room::log::{Index, Store, SystemClock, moment};
use terret_faces::control::{ControlClient, PendingItem, VerdictWord};

use crate::args::InboxCommand;
use crate::inside::refuse_inside;
use crate::output::{Output, printable};
use crate::paths::{Environment, Paths};
use crate::runtime;

/// How what a session at rest asked is decided: a load alone runs nothing and asks nothing.
const AT_REST: &str = "load it in an editor and send a prompt; you are asked again then";

/// Runs one of the `inbox` commands; none means `list`.
pub(crate) fn run(
    paths: &Paths,
    environment: &dyn Environment,
    command: Option<InboxCommand>,
    out: &mut Output,
) -> anyhow::Result<()> {
    let runtime = runtime::start()?;
    runtime.block_on(async {
        match command.unwrap_or(InboxCommand::List { json: false }) {
            InboxCommand::List { json } => list(paths, json, out).await,
            InboxCommand::Approve {
                id,
                session,
                project,
            } => {
                let verdict = match (session, project) {
                    (_, true) => VerdictWord::AllowForProject,
                    (true, false) => VerdictWord::AllowForSession,
                    (false, false) => VerdictWord::AllowOnce,
                };
                decide(paths, environment, &id, verdict, None, out).await
            }
            InboxCommand::Reject { id, reason, stop } => {
                let verdict = if stop {
                    VerdictWord::RejectAndWait
                } else {
                    VerdictWord::Reject
                };
                decide(paths, environment, &id, verdict, reason, out).await
            }
        }
    })
}

async fn list(paths: &Paths, json: bool, out: &mut Output) -> anyhow::Result<()> {
    let waiting = waiting(paths).await?;
    for (_, item) in &waiting {
        if json {
            out.line(serde_json::to_string(item)?)?;
        } else {
            out.line(format!(
                "{}/{}  {}",
                item.session_id,
                item.id,
                printable(&item.title)
            ))?;
            out.line(format!("    {}", printable(&item.reason)))?;
            if let Some(rule) = &item.offered_rule {
                out.line(format!(
                    "    --session or --project would allow `{}`",
                    printable(rule)
                ))?;
            }
        }
    }
    if json {
        return Ok(());
    }
    let resting = resting(paths, &waiting)?;
    for row in &resting {
        out.line(format!(
            "{}/{}  {}",
            row.session,
            row.id,
            printable(&row.title)
        ))?;
        out.line(format!(
            "    asked {}; its session is not running: {AT_REST}",
            moment(row.requested_at)
        ))?;
    }
    if waiting.is_empty() && resting.is_empty() {
        out.line("Nothing waits.")?;
    }
    Ok(())
}

async fn decide(
    paths: &Paths,
    environment: &dyn Environment,
    id: &str,
    verdict: VerdictWord,
    reason: Option<String>,
    out: &mut Output,
) -> anyhow::Result<()> {
    refuse_inside(environment)?;
    let waiting = waiting(paths).await?;
    let named: Vec<&(ControlClient, PendingItem)> = waiting
        .iter()
        .filter(|(_, item)| names(id, &item.session_id, &item.id))
        .collect();
    let (client, item) = match named.as_slice() {
        [one] => one,
        [] => {
            let resting = resting(paths, &waiting)?;
            if resting
                .iter()
                .any(|row| names(id, row.session.as_str(), &row.id))
            {
                bail!("`{id}` cannot be decided now, since its session is not running: {AT_REST}");
            }
            bail!("nothing that waits is named `{id}`; `terret inbox` lists what waits")
        }
        several => bail!(
            "`{id}` fits {} of what waits; write more of it",
            several.len()
        ),
    };
    client
        .decide(&item.session_id, &item.id, verdict, reason)
        .await
        .with_context(|| format!("`{id}` was not decided"))?;
    let (done, but) = match verdict {
        VerdictWord::AllowForSession if item.offered_rule.is_some() => {
            ("allowed for this session", "")
        }
        VerdictWord::AllowForProject if item.offered_rule.is_some() => {
            ("allowed for this project", "")
        }
        VerdictWord::AllowForSession | VerdictWord::AllowForProject => (
            "allowed once",
            " (no rule can cover this call, so the next one is asked for again)",
        ),
        VerdictWord::AllowOnce => ("allowed once", ""),
        VerdictWord::Reject => ("rejected", ""),
        VerdictWord::RejectAndWait => ("rejected; its turn ends", ""),
    };
    out.line(format!("{done}: {}{but}", printable(&item.title)))?;
    Ok(())
}

/// Whether what a person wrote names this approval.
fn names(text: &str, session: &str, id: &str) -> bool {
    let full = format!("{session}/{id}");
    full == text || id == text || full.starts_with(text)
}

/// What waits in live engines, each with a connection to its own.
async fn waiting(paths: &Paths) -> anyhow::Result<Vec<(ControlClient, PendingItem)>> {
    let mut waiting = Vec::new();
    for client in ControlClient::connect_all(&paths.runtime).await? {
        let items = match client.inbox().await {
            Ok(items) => items,
            Err(error) => {
                tracing::warn!(%error, "an engine did not answer");
                continue;
            }
        };
        for item in items {
            // A connection an item: they are few, and each is then used alone.
            let own = ControlClient::connect(client.path()).await?;
            waiting.push((own, item));
        }
    }
    Ok(waiting)
}

/// What waits in sessions that no live engine holds.
fn resting(
    paths: &Paths,
    live: &[(ControlClient, PendingItem)],
) -> anyhow::Result<Vec<terret_engine::room::log::PendingRow>> {
    if !paths.state.exists() {
        return Ok(Vec::new());
    }
    let store = Store::open(paths.state.clone(), std::sync::Arc::new(SystemClock))?;
    let mut index = Index::open(paths.state.join("index.sqlite"), store)?;
    index.refresh()?;
    let mut rows = index.pending_approvals()?;
    rows.retain(|row| {
        !live
            .iter()
            .any(|(_, item)| item.session_id == row.session.as_str() && item.id == row.id)
    });
    Ok(rows)
}
