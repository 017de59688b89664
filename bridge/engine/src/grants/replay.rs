//! Calls of past sessions under other rules: which prompts would not have come, what would
//! have run without being asked for, and what not at all.
//!
//! Logs are read as streams, session by session; what is kept is bounded by the number of
//! different calls that are told of, not by what was logged.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use terret_log::{
    ApprovalStage, Event, Payload, SessionId, SessionRules, Store, StoreError, Verdict,
};
use terret_tools::floor::Floor;
use terret_tools::gate::{Decision, Policy, Ruling};
use terret_tools::mode::Mode;
use terret_tools::rules::{Rule, RuleSet, Scope, shown};
use terret_tools::table::Table;

use super::project_root;
use super::standing::effect_of;
use super::suggest::{Prompt, Suggestion, suggest};
use crate::judge::Judge;

/// The most different calls of each kind that are told apart; beyond it they are counted.
const DISTINCT: usize = 10_000;

/// Bytes of a call's subject that are kept to tell it from others.
const SUBJECT: usize = 4096;

/// What calls are judged by.
pub struct ReplayRules {
    pub floor: Floor,
    /// The mode of sessions that chose none.
    pub mode: Mode,
    /// Whether commands run in an isolating sandbox.
    pub isolated: bool,
    /// The rules that hold everywhere.
    pub everywhere: RuleSet,
    /// The rules that are proposed.
    pub proposed: RuleSet,
    /// The home folder, which is nobody's project.
    pub home: Option<PathBuf>,
    /// Folders that no tool may reach.
    pub denied: Vec<PathBuf>,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    pub sessions: usize,
    /// Sessions whose folder is gone, so that nothing can be said about their paths.
    pub gone: usize,
    pub calls: usize,
    /// Calls of tools that are not there, or with arguments that do not fit.
    pub unjudged: usize,
    /// Calls that a person, or nobody, was asked about.
    pub asked: usize,
    /// Of these, the ones that a person refused.
    pub refused: usize,
    /// Prompts that the rules in force save already.
    pub saved_now: usize,
    /// Prompts that the proposed rules save beyond these.
    pub saved: usize,
    /// Calls that would run unasked with the proposed rules and do not without.
    pub let_through: Told,
    /// Calls that would be asked for with the proposed rules and are not without.
    pub newly_asked: Told,
    /// Calls that would be denied with the proposed rules and are not without.
    pub newly_denied: Told,
    /// Prompts that would still come with the proposed rules.
    pub remaining: usize,
    /// Rules that would have saved the most of these.
    pub suggestions: Vec<Suggestion>,
}

/// Calls of one kind, equal ones told once.
#[derive(Debug, Default)]
pub struct Told {
    pub calls: usize,
    pub different: Vec<ToldCall>,
    places: HashMap<(String, String), usize>,
}

/// A call that is told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldCall {
    pub tool: String,
    /// What rules match of it, or its arguments.
    pub subject: String,
    /// The session that it was last made in.
    pub session: SessionId,
    /// Unix milliseconds.
    pub at: u64,
    pub times: usize,
    /// Whether a person refused one of them.
    pub refused: bool,
    /// Why, in the words of the gate.
    pub why: String,
}

/// Judges the calls of sessions one after the other.
pub struct Replay<'a> {
    store: &'a Store,
    rules: ReplayRules,
    /// The rules of a project, by its root.
    project: &'a dyn Fn(&Path) -> Result<Vec<Rule>, String>,
    projects: HashMap<PathBuf, RuleSet>,
    table: Arc<Table>,
    report: Report,
    prompts: Vec<Prompt>,
    places: HashMap<(String, String, PathBuf), usize>,
}

/// A call that has no result yet.
struct Open {
    at: u64,
    name: String,
    args: Value,
    asked: bool,
    refused: bool,
    request: Option<String>,
}

impl<'a> Replay<'a> {
    /// Of a store's sessions. `project` reads the rules of the project with a root.
    pub fn new(
        store: &'a Store,
        rules: ReplayRules,
        project: &'a dyn Fn(&Path) -> Result<Vec<Rule>, String>,
    ) -> Self {
        Self {
            store,
            rules,
            project,
            projects: HashMap::new(),
            table: Arc::new(Table::standard()),
            report: Report::default(),
            prompts: Vec::new(),
            places: HashMap::new(),
        }
    }

    /// Judges all calls of one session. What of its log cannot be read is passed over.
    ///
    /// # Errors
    /// [`StoreError`] when there is no log; why the rules of its project cannot be read.
    pub fn session(&mut self, id: &SessionId) -> Result<(), ReplayError> {
        let events = self.store.read(id, 0)?;
        self.report.sessions += 1;
        let mut place: Option<Place> = None;
        let mut open: HashMap<String, Open> = HashMap::new();
        for event in events.filter_map(Result::ok) {
            let Event { at, payload, .. } = &event;
            match payload {
                Payload::SessionCreated {
                    cwd,
                    additional_directories,
                    ..
                } => {
                    place = self.place(Path::new(cwd), additional_directories)?;
                    if place.is_none() {
                        self.report.gone += 1;
                        return Ok(());
                    }
                }
                Payload::RootsSet {
                    additional_directories,
                } => {
                    if let Some(place) = &mut place {
                        let cwd = place.judge.cwd();
                        match self.judge(&cwd, additional_directories) {
                            Some(judge) => place.judge = judge,
                            None => return Ok(()),
                        }
                    }
                }
                Payload::OptionSet { option, value, .. } if option == "mode" => {
                    if let (Some(place), Some(mode)) = (&mut place, Mode::named(value)) {
                        place.mode = mode;
                        place.changed = true;
                    }
                }
                Payload::RuleAdded { .. } | Payload::RuleRemoved { .. } => {
                    if let Some(place) = &mut place {
                        place.own.apply(&event);
                        place.changed = true;
                    }
                }
                Payload::ToolCall { id, name, args } => {
                    let call = Open {
                        at: *at,
                        name: name.clone(),
                        args: args.clone(),
                        asked: false,
                        refused: false,
                        request: None,
                    };
                    open.insert(id.clone(), call);
                }
                Payload::ApprovalRequested {
                    id: request,
                    call_id,
                    stage: ApprovalStage::Call,
                    ..
                } => {
                    if let Some(call) = open.get_mut(call_id) {
                        call.asked = true;
                        call.request = Some(request.clone());
                    }
                }
                Payload::ApprovalResolved {
                    id: request,
                    call_id,
                    verdict: Verdict::Denied,
                    by,
                    ..
                } => {
                    if let Some(call) = open.get_mut(call_id)
                        && call.request.as_ref() == Some(request)
                        && by != "nobody"
                    {
                        call.refused = true;
                    }
                }
                Payload::ToolResult { id: call_id, .. } => {
                    if let (Some(call), Some(place)) = (open.remove(call_id), &mut place) {
                        self.call(id, place, call);
                    }
                }
                _ => {}
            }
        }
        let mut left: Vec<Open> = open.into_values().collect();
        left.sort_by_key(|call| call.at);
        if let Some(place) = &mut place {
            for call in left {
                self.call(id, place, call);
            }
        }
        Ok(())
    }

    /// What came of all of them, with rules that would have saved the most.
    pub fn finish(mut self, most: usize) -> Report {
        self.report.suggestions = suggest(&self.prompts, most);
        self.report
    }

    fn judge(&self, cwd: &Path, further: &[String]) -> Option<Judge> {
        let further: Vec<PathBuf> = further
            .iter()
            .map(PathBuf::from)
            .filter(|folder| folder.is_dir())
            .collect();
        Judge::new(&self.table, cwd, &further, &self.rules.denied).ok()
    }

    fn place(&mut self, cwd: &Path, further: &[String]) -> Result<Option<Place>, ReplayError> {
        let Some(judge) = self.judge(cwd, further) else {
            return Ok(None);
        };
        let root = project_root(cwd, self.rules.home.as_deref());
        let known = match self.projects.get(&root) {
            Some(known) => known.clone(),
            None => {
                let rules = (self.project)(&root).map_err(ReplayError::Project)?;
                let set = self.rules.everywhere.with(rules);
                self.projects.insert(root.clone(), set.clone());
                set
            }
        };
        let policy = Arc::new(Policy::default());
        Ok(Some(Place {
            judge,
            mode: self.rules.mode,
            own: SessionRules::default(),
            known,
            changed: true,
            before: Arc::clone(&policy),
            after: policy,
        }))
    }

    fn call(&mut self, session: &SessionId, place: &mut Place, call: Open) {
        place.renew(&self.rules);
        self.report.calls += 1;
        let under = |policy: &Arc<Policy>| {
            place.judge.set_policy(Arc::clone(policy));
            place.judge.ruling(&call.name, call.args.clone())
        };
        let (Ok(before), Ok(after)) = (under(&place.before), under(&place.after)) else {
            self.report.unjudged += 1;
            return;
        };
        let subject = place.judge.subject(&call.name, &call.args);
        let report = &mut self.report;
        report.asked += usize::from(call.asked);
        report.refused += usize::from(call.refused);
        let (ran, runs) = (runs(&before), runs(&after));
        if call.asked && ran {
            report.saved_now += 1;
        } else if call.asked && runs {
            report.saved += 1;
        }
        let told = match (&before.decision, &after.decision) {
            (Decision::Run, Decision::Ask { .. }) => Some(&mut report.newly_asked),
            (Decision::Ask { .. } | Decision::Forbid { .. }, Decision::Run) => {
                Some(&mut report.let_through)
            }
            (Decision::Run | Decision::Ask { .. }, Decision::Forbid { .. }) => {
                Some(&mut report.newly_denied)
            }
            _ => None,
        };
        if let Some(told) = told {
            told.add(session, &call, subject.as_deref(), &after.why);
        }
        if let Decision::Ask { offered_rule, .. } = &after.decision {
            self.report.remaining += usize::from(call.asked);
            if call.asked
                && let Some(subject) = subject
            {
                self.prompt(place, &call, subject, offered_rule.as_deref());
            }
        }
    }

    fn prompt(&mut self, place: &Place, call: &Open, subject: String, offered: Option<&str>) {
        let cwd = place.judge.cwd();
        let key = (call.name.clone(), subject, cwd);
        match self.places.get(&key) {
            Some(index) => {
                if let Some(prompt) = self.prompts.get_mut(*index) {
                    prompt.times += 1;
                    prompt.refused |= call.refused;
                }
            }
            None if self.prompts.len() < DISTINCT => {
                self.places.insert(key.clone(), self.prompts.len());
                let (tool, subject, cwd) = key;
                self.prompts.push(Prompt {
                    tool,
                    subject,
                    cwd,
                    offered: offered.map(str::to_owned),
                    times: 1,
                    refused: call.refused,
                });
            }
            None => {}
        }
    }
}

/// Where the calls of one session are judged, and by what.
struct Place {
    judge: Judge,
    mode: Mode,
    /// The session's own rules at this point of its log.
    own: SessionRules,
    known: RuleSet,
    changed: bool,
    before: Arc<Policy>,
    after: Arc<Policy>,
}

impl Place {
    /// Derives both policies again when the log said something that they depend on.
    fn renew(&mut self, rules: &ReplayRules) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let own = self.own.iter().filter_map(|rule| {
            Rule::parse(&rule.rule, effect_of(rule.effect), Scope::Session).ok()
        });
        let known = self.known.with(own.collect());
        let policy = |rules: RuleSet, from: &ReplayRules| {
            Arc::new(Policy {
                floor: from.floor.clone(),
                mode: self.mode,
                rules,
                isolated: from.isolated,
                ..Policy::default()
            })
        };
        self.after = policy(known.and(&rules.proposed), rules);
        self.before = policy(known, rules);
    }
}

impl Told {
    fn add(&mut self, session: &SessionId, call: &Open, subject: Option<&str>, why: &str) {
        self.calls += 1;
        let mut subject = subject.map_or_else(|| call.args.to_string(), str::to_owned);
        subject.truncate(subject.floor_char_boundary(SUBJECT));
        let key = (call.name.clone(), subject);
        if let Some(known) = self.places.get(&key) {
            if let Some(told) = self.different.get_mut(*known) {
                told.times += 1;
                told.refused |= call.refused;
                told.session = session.clone();
                told.at = call.at;
            }
        } else if self.different.len() < DISTINCT {
            self.places.insert(key.clone(), self.different.len());
            let (tool, subject) = key;
            self.different.push(ToldCall {
                tool,
                subject,
                session: session.clone(),
                at: call.at,
                times: 1,
                refused: call.refused,
                why: shown(why),
            });
        }
    }
}

/// A session could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Project(String),
}

fn runs(ruling: &Ruling) -> bool {
    ruling.decision == Decision::Run
}
