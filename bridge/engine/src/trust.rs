//! One gate for what a repository brings that runs code or lets more through: until a person
//! has trusted exactly this content, it does nothing (`design.md §4 Permissions`).
//!
//! What only narrows, such as a rule that denies, holds at once. The rest is one question in
//! the editor, before the first request of a turn; its answer is remembered by the content's
//! hash, so that another content is asked for again. A kind of file is a [`Source`].

mod brought;
mod store;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};
use terret_log::{ApprovalStage, Payload, Severity};
use terret_tools::call::{Answer, Approver as _, Call, Fault, Question, Stage};
use terret_tools::definition::Kind;
use terret_tools::rules::{Effect, Rule, shown};
use tokio_util::sync::CancellationToken;

use crate::external_hooks::ExternalHook;
use crate::grants::StoredRule;
use crate::settings::Settings;
use crate::turn::TurnParts;

pub use brought::{Brought, Source, Unusable};
use store::FileStamp;
pub use store::{Decided, TrustError, TrustStore, TrustVerdict};

/// The name of the question, which no tool bears.
pub const QUESTION: &str = "trust";
/// Bytes of all that a question says; a person must be able to read it where it is asked.
const READABLE: usize = 8 * 1024;

/// A file that a project brings, with what was decided about its content.
#[derive(Debug, Clone)]
pub struct Judged {
    pub brought: Brought,
    pub verdict: Option<TrustVerdict>,
}

/// All that a project brings, as it is now.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    pub files: Vec<Judged>,
    pub unusable: Vec<Unusable>,
}

impl Judged {
    /// Its rules, each with whether it holds: one that allows does once the file is trusted.
    pub fn rules(&self) -> impl Iterator<Item = (&StoredRule, bool)> {
        let is_trusted = self.verdict == Some(TrustVerdict::Trusted);
        let rules = self.brought.rules.iter();
        rules.map(move |rule| (rule, is_trusted || rule.effect != Effect::Allow))
    }
}

impl Survey {
    /// Looks at the files and at what was decided about them. Blocks.
    ///
    /// # Errors
    /// [`TrustError`] when the verdicts cannot be read.
    pub fn of(root: &Path, sources: &[Source], store: &TrustStore) -> Result<Self, TrustError> {
        Ok(Self::judged(root, sources, &store.read()?))
    }

    fn judged(root: &Path, sources: &[Source], decided: &[Decided]) -> Self {
        let mut survey = Self::default();
        for source in sources {
            match source.look(root) {
                Ok(None) => {}
                Ok(Some(brought)) => {
                    let about = |known: &&Decided| {
                        known.root == root
                            && known.file == brought.file
                            && known.sha256 == brought.hash
                    };
                    let verdict = decided.iter().rfind(about).map(|known| known.verdict);
                    survey.files.push(Judged { brought, verdict });
                }
                Err(unusable) => survey.unusable.push(unusable),
            }
        }
        survey
    }

    /// Those that would do more than narrow and that nobody has decided about.
    pub fn undecided(&self) -> impl Iterator<Item = &Brought> {
        self.files
            .iter()
            .filter(|judged| judged.verdict.is_none() && judged.brought.widens())
            .map(|judged| &judged.brought)
    }
}

/// The gate of one session.
pub(crate) struct ProjectTrust {
    store: TrustStore,
    root: PathBuf,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    sources: Vec<Source>,
    /// Of all that the survey was made from.
    stamps: Vec<Option<FileStamp>>,
    survey: Arc<Survey>,
    /// What the person was told, so that it is said once.
    told: Vec<String>,
}

impl ProjectTrust {
    /// Looks at nothing yet: nothing is trusted before the first look.
    pub(crate) fn new(state: &Path, root: PathBuf) -> Self {
        Self {
            store: TrustStore::new(state),
            root,
            held: Mutex::default(),
        }
    }

    /// Looks again where something is not as it was; whether anything changed. Blocks.
    ///
    /// # Errors
    /// [`TrustError`]; nothing is trusted then.
    pub(crate) fn load(&self, settings: &Settings) -> Result<bool, TrustError> {
        let sources = &settings.project_sources;
        let (known_sources, known_stamps, survey) = {
            let held = self.lock();
            (
                held.sources.clone(),
                held.stamps.clone(),
                Arc::clone(&held.survey),
            )
        };
        if known_sources == *sources && known_stamps == self.stamps(sources, &survey) {
            return Ok(false);
        }
        let decided = self.store.read();
        let known: &[Decided] = decided.as_deref().unwrap_or_default();
        // Stamped before it is read, so that a change in between is seen as one.
        let before = self.stamps(sources, &Survey::default());
        let survey = Arc::new(Survey::judged(&self.root, sources, known));
        let is_settled = self.stamps(sources, &Survey::default()) == before;
        let stamps = self.stamps(sources, &survey);
        let mut held = self.lock();
        // None, so that it is looked at again.
        held.stamps = if is_settled { stamps } else { Vec::new() };
        held.sources.clone_from(sources);
        held.survey = survey;
        drop(held);
        decided.map(|_| true)
    }

    /// The project's rules that hold at this time, in Unix milliseconds.
    pub(crate) fn rules(&self, now: u64) -> Vec<Rule> {
        let survey = self.survey();
        let rules = survey.files.iter().flat_map(|judged| {
            let is_trusted = judged.verdict == Some(TrustVerdict::Trusted);
            judged.brought.rules(is_trusted, now)
        });
        rules.collect()
    }

    /// The project's hooks, as far as they are trusted.
    pub(crate) fn hooks(&self) -> Vec<ExternalHook> {
        let survey = self.survey();
        let trusted = survey
            .files
            .iter()
            .filter(|judged| judged.verdict == Some(TrustVerdict::Trusted));
        trusted
            .flat_map(|judged| judged.brought.hooks.iter().cloned())
            .collect()
    }

    fn survey(&self) -> Arc<Survey> {
        Arc::clone(&self.lock().survey)
    }

    fn stamps(&self, sources: &[Source], survey: &Survey) -> Vec<Option<FileStamp>> {
        let mut stamps = vec![self.store.stamp()];
        for source in sources {
            let file = survey
                .files
                .iter()
                .map(|judged| &judged.brought)
                .find(|brought| brought.file == source.file());
            stamps.extend(source.stamps(&self.root, file));
        }
        stamps
    }

    /// True the first time that this is to be said.
    fn is_news(&self, text: &str) -> bool {
        let mut held = self.lock();
        let is_news = !held.told.iter().any(|known| known == text);
        if is_news {
            held.told.push(text.to_owned());
        }
        is_news
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the question before a turn's first request came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    GoOn,
    Cancelled,
}

/// Asks about what the project brings, if there is something to ask, and remembers the
/// answer. A cancel decides nothing.
pub(crate) async fn settle(parts: &TurnParts, stop: &CancellationToken) -> Result<Settled, Fault> {
    parts.policy.freshen().await;
    let trust = parts.policy.trust();
    let survey = trust.survey();
    tell_problems(parts, trust, &survey)?;
    let undecided: Vec<Brought> = survey.undecided().cloned().collect();
    let asked = (!undecided.is_empty()).then(|| question(parts, trust, &undecided));
    // What a crash left standing is asked on when it is still the same.
    parts.approvals.withdraw(
        |request| {
            request.stage == ApprovalStage::Trust
                && asked
                    .as_ref()
                    .is_none_or(|question| question.call.id != request.call_id)
        },
        "changed",
    )?;
    let Some(question) = asked else {
        return Ok(Settled::GoOn);
    };
    let unasked = if !parts.approvals.attended() {
        Some("nobody can be asked here")
    } else if question.reason.len() + question.call.args.as_ref().map_or(0, said) > READABLE {
        Some("it is too much to be read in a question")
    } else {
        None
    };
    if let Some(why) = unasked {
        let files = names(&undecided);
        let text = format!(
            "{files} of this project is not trusted, so what it would allow or run is not in \
             force: {why}. `terret trust show` says what it would do, `terret trust allow` trusts it."
        );
        if trust.is_news(&text) {
            notice(parts, text)?;
        }
        return Ok(Settled::GoOn);
    }
    let verdict = match parts.approvals.ask(question, stop).await? {
        Answer::Approved => TrustVerdict::Trusted,
        Answer::Denied { .. } => TrustVerdict::Refused,
        Answer::Cancelled => return Ok(Settled::Cancelled),
    };
    remember(parts, trust, &undecided, verdict).await?;
    parts.policy.freshen().await;
    Ok(Settled::GoOn)
}

/// Also when it cannot be kept, the turn goes on; nothing is trusted then.
async fn remember(
    parts: &TurnParts,
    trust: &Arc<ProjectTrust>,
    files: &[Brought],
    verdict: TrustVerdict,
) -> Result<(), Fault> {
    let verdicts: Vec<Decided> = files
        .iter()
        .map(|brought| Decided {
            root: trust.root.clone(),
            file: brought.file.clone(),
            sha256: brought.hash.clone(),
            verdict,
            at: parts.policy.now(),
            by: format!("session {}", parts.core.id()),
        })
        .collect();
    let store = trust.store.clone();
    let kept = tokio::task::spawn_blocking(move || store.decide(&verdicts))
        .await
        .map_err(|error| Fault(format!("a verdict was not kept: {error}")))?;
    if let Err(error) = kept {
        notice(parts, format!("{error}. So nothing of it is trusted."))?;
    }
    Ok(())
}

fn tell_problems(parts: &TurnParts, trust: &ProjectTrust, survey: &Survey) -> Result<(), Fault> {
    let problems = survey.files.iter().flat_map(|judged| {
        let file = &judged.brought.file;
        judged
            .brought
            .problems
            .iter()
            .map(move |why| format!("In `{}` of this project: {why}.", shown(file)))
    });
    let unusable = survey.unusable.iter().map(|unusable| {
        let (file, why) = (shown(&unusable.file), &unusable.why);
        format!("`{file}` of this project is not in force: {why}.")
    });
    for text in problems.chain(unusable) {
        if trust.is_news(&text) {
            notice(parts, text)?;
        }
    }
    Ok(())
}

fn notice(parts: &TurnParts, text: String) -> Result<(), Fault> {
    parts
        .core
        .append(Payload::NoticeShown {
            severity: Severity::Warning,
            text,
        })
        .map(drop)
}

/// The question about all of it, as an approval of no call.
fn question(parts: &TurnParts, trust: &ProjectTrust, files: &[Brought]) -> Question {
    let mut digest = Sha256::new();
    for brought in files {
        digest.update(brought.file.as_bytes());
        digest.update([0]);
        digest.update(&brought.hash);
    }
    let digest = digest.finalize();
    let hash = brought::hex(digest.get(..8).unwrap_or_default());
    let args = serde_json::json!({
        "project": trust.root.to_string_lossy(),
        "files": files.iter().map(|brought| serde_json::json!({
            "file": brought.file,
            "sha256": brought.hash,
            "would": brought.would,
        })).collect::<Vec<_>>(),
    });
    let first = files.first().and_then(|brought| brought.would.first());
    let more = files
        .iter()
        .map(|brought| brought.would.len())
        .sum::<usize>();
    let first = first.map(String::as_str).unwrap_or_default();
    let reason = match more.saturating_sub(1) {
        0 => format!("it would {first}"),
        more => format!("it would {first}, and do {more} more such things"),
    };
    let base = format!("trust-{hash}");
    Question {
        call: Call {
            id: call_id(parts, &base),
            name: QUESTION.to_owned(),
            args: Ok(args),
        },
        kind: Kind::Other,
        title: format!("Trust {} of this project?", names(files)),
        reason,
        preview: Vec::new(),
        offered_rule: None,
        stage: Stage::Trust,
        says: None,
    }
}

/// The id of the question that stands, else one that no card bears: what was cancelled and
/// is asked again is another card.
fn call_id(parts: &TurnParts, base: &str) -> String {
    parts.core.state(|state| {
        let standing = state.approvals.pending().iter().find(|request| {
            request.stage == ApprovalStage::Trust
                && request
                    .call_id
                    .rsplit_once('-')
                    .is_some_and(|(known, _)| known == base)
        });
        standing.map_or_else(
            || format!("{base}-{}", state.next_seq()),
            |request| request.call_id.clone(),
        )
    })
}

fn names(files: &[Brought]) -> String {
    let names: Vec<String> = files
        .iter()
        .map(|brought| format!("`{}`", shown(&brought.file)))
        .collect();
    names.join(" and ")
}

/// Bytes of the arguments as they are shown.
fn said(args: &serde_json::Value) -> usize {
    args.to_string().len()
}
