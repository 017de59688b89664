//! What the tests of this crate share: a world in a folder of its own, a journal that
//! remembers, an approver that answers by plan, and tools that do as they are told.

#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::call::{
    Allowed, Answer, Approver, Call, CallContext, CallJournal, CallResult, Escalate, Failure,
    Fault, FileChange, Location, Output, Question, Tool,
};
use crate::definition::{Approval, Concurrency, Definition, Kind, Replay};
use crate::floor::Floor;
use crate::gate::Policy;
use crate::pipeline::Pipeline;
use crate::table::Table;
use crate::world::editor::{EditorError, EditorFiles};
use crate::world::jobs::{Job, JobId};
use crate::world::text;
use crate::world::{World, WorldSettings};

/// A machine lacks what a test needs. The harness can ignore no test that has begun, so this
/// is said where the harness does not catch it; where everything is to be there, as in
/// `.ci/run`, the test fails.
pub(crate) fn lacking(what: &str) {
    use std::io::Write as _;
    let is_set = |name, wanted: &[&str]| {
        std::env::var(name).is_ok_and(|value| wanted.contains(&value.as_str()))
    };
    assert!(
        !is_set("TERRET_REQUIRE_CLIENTS", &["1"]) && !is_set("CI", &["1", "true"]),
        "{what}: a test needs it, and with `CI` or `TERRET_REQUIRE_CLIENTS=1` nothing may be missing"
    );
    let current = std::thread::current();
    let test = current.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "NOT TRIED: {test}: {what}");
}

/// A world in a folder of its own, and all that calls run with.
pub(crate) struct Bench {
    pub(crate) folder: TempDir,
    pub(crate) world: Arc<World>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) approver: Arc<Answers>,
    pub(crate) policy: Arc<RwLock<Arc<Policy>>>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut WorldSettings)) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let mut settings = WorldSettings {
            cwd: folder.path().to_owned(),
            ..WorldSettings::default()
        };
        change(&mut settings);
        let world = Arc::new(World::new(settings).expect("a world"));
        let journal = Arc::new(Journal::default());
        let approver = Arc::new(Answers::new(Arc::clone(&journal)));
        let policy = Policy {
            floor: Floor::new(["*"]),
            ..Policy::default()
        };
        Self {
            folder,
            world,
            journal,
            approver,
            policy: Arc::new(RwLock::new(Arc::new(policy))),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a folder");
        }
        std::fs::write(path, bytes).expect("a file");
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).expect("a file")
    }

    pub(crate) fn context(&self) -> CallContext {
        CallContext {
            call_id: "c1".to_owned(),
            world: Arc::clone(&self.world),
            journal: self.journal.clone(),
            escalate: Arc::new(NoEscalation),
            cancel: CancellationToken::new(),
        }
    }

    /// Runs a tool without the pipeline, on arguments that fit its schema.
    pub(crate) async fn run(&self, tool: &dyn Tool, args: Value) -> Result<Output, Failure> {
        tool.run(&self.context(), args).await
    }

    pub(crate) fn pipeline(&self, table: Table) -> Pipeline {
        Pipeline {
            table: Arc::new(table),
            world: Arc::clone(&self.world),
            journal: self.journal.clone(),
            approver: self.approver.clone(),
            policy: Arc::clone(&self.policy),
            hooks: Vec::new(),
        }
    }

    pub(crate) fn set_policy(&self, change: impl FnOnce(&mut Policy)) {
        set_policy(&self.policy, change);
    }
}

pub(crate) fn set_policy(policy: &RwLock<Arc<Policy>>, change: impl FnOnce(&mut Policy)) {
    let mut guard = policy.write().unwrap_or_else(PoisonError::into_inner);
    let mut next = Policy::clone(&guard);
    change(&mut next);
    *guard = Arc::new(next);
}

pub(crate) fn call(id: &str, name: &str, args: Value) -> Call {
    Call {
        id: id.to_owned(),
        name: name.to_owned(),
        args: Ok(args),
    }
}

/// A journal that remembers, as short lines: `called c1`, `started c1`, `finished c1 …`.
#[derive(Default)]
pub(crate) struct Journal {
    lines: Mutex<Vec<String>>,
    results: Mutex<Vec<(String, CallResult)>>,
    seen: Mutex<BTreeMap<PathBuf, String>>,
    changes: Mutex<Vec<FileChange>>,
    output: Mutex<String>,
    /// What was collected of each job, and whether to its end.
    jobs: Mutex<BTreeMap<JobId, (u64, bool)>>,
    /// Fails the next event whose line begins so.
    pub(crate) fault_at: Mutex<Option<String>>,
}

impl Journal {
    fn push(&self, line: String) -> Result<(), Fault> {
        let mut fault = self.fault_at.lock().unwrap_or_else(PoisonError::into_inner);
        if fault
            .as_ref()
            .is_some_and(|begin| line.starts_with(begin.as_str()))
        {
            *fault = None;
            return Err(Fault("the log is full".to_owned()));
        }
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(line);
        Ok(())
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, (u64, bool)>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All live output.
    pub(crate) fn live(&self) -> String {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn changes(&self) -> Vec<FileChange> {
        self.changes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn result(&self, id: &str) -> CallResult {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = results
            .iter()
            .filter(|(call, _)| call == id)
            .map(|(_, result)| result.clone());
        let result = found.next().unwrap_or_else(|| panic!("no result for {id}"));
        assert!(found.next().is_none(), "two results for {id}");
        result
    }

    pub(crate) fn error(&self, id: &str) -> String {
        self.result(id).content.expect_err("an error result")
    }

    pub(crate) fn output(&self, id: &str) -> Output {
        self.result(id).content.expect("a success")
    }

    pub(crate) fn see(&self, path: &Path, bytes: &[u8]) {
        let path = path.canonicalize().expect("a real path");
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path, text::hash(bytes));
    }
}

#[async_trait]
impl CallJournal for Journal {
    async fn called(&self, call: &Call) -> Result<(), Fault> {
        self.push(format!("called {}", call.id))
    }

    async fn started(
        &self,
        call: &Call,
        _definition: &Definition,
        _allowed: &Allowed,
    ) -> Result<(), Fault> {
        self.push(format!("started {}", call.id))
    }

    fn output(&self, _call_id: &str, text: &str) {
        self.output
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_str(text);
    }

    fn file_seen(&self, _call_id: &str, path: &Path, hash: &str) {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path.to_owned(), hash.to_owned());
    }

    fn seen(&self, path: &Path) -> Option<String> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(path)
            .cloned()
    }

    async fn file_changing(&self, call_id: &str, change: &FileChange) -> Result<(), Fault> {
        self.push(format!("changing {call_id}"))?;
        self.changes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(change.clone());
        Ok(())
    }

    async fn job_started(&self, call_id: &str, job: &Job) -> Result<(), Fault> {
        self.push(format!("job {} of {call_id}", job.id))
    }

    fn job_cursor(&self, id: &JobId) -> u64 {
        self.jobs().get(id).map_or(0, |(upto, _)| *upto)
    }

    fn job_collected_out(&self, id: &JobId) -> bool {
        self.jobs().get(id).is_some_and(|(_, ended)| *ended)
    }

    /// Takes effect at once, unlike in a log.
    async fn job_collecting(
        &self,
        call_id: &str,
        id: &JobId,
        upto: u64,
        ended: bool,
    ) -> Result<(), Fault> {
        self.push(format!("collecting {id} for {call_id}"))?;
        self.jobs().insert(id.clone(), (upto, ended));
        Ok(())
    }

    async fn finished(&self, call: &Call, result: &CallResult) -> Result<(), Fault> {
        self.push(format!("finished {}", call.id))?;
        self.results
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((call.id.clone(), result.clone()));
        Ok(())
    }
}

/// Nobody is asked by a call that runs without the pipeline.
pub(crate) struct NoEscalation;

#[async_trait]
impl Escalate for NoEscalation {
    async fn ask(&self, _reason: String) -> Result<Answer, Fault> {
        Ok(Answer::Denied {
            reason: "no reason given".to_owned(),
        })
    }
}

/// Answers questions: by call id where planned, else when [`Answers::answer`] is called.
pub(crate) struct Answers {
    journal: Arc<Journal>,
    planned: Mutex<BTreeMap<String, VecDeque<Answer>>>,
    questions: Mutex<Vec<Question>>,
    changed: Notify,
}

impl Answers {
    fn new(journal: Arc<Journal>) -> Self {
        Self {
            journal,
            planned: Mutex::default(),
            questions: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn answer(&self, id: &str, answer: Answer) {
        self.planned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(id.to_owned())
            .or_default()
            .push_back(answer);
        self.changed.notify_waiters();
    }

    pub(crate) fn approve(&self, id: &str) {
        self.answer(id, Answer::Approved);
    }

    pub(crate) fn questions(&self) -> Vec<Question> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until so many questions stand or stood.
    pub(crate) async fn asked(&self, count: usize) {
        loop {
            let changed = self.changed.notified();
            if self.questions().len() >= count {
                return;
            }
            changed.await;
        }
    }

    fn take(&self, id: &str) -> Option<Answer> {
        self.planned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(id)?
            .pop_front()
    }
}

#[async_trait]
impl Approver for Answers {
    async fn ask(&self, question: Question, cancel: &CancellationToken) -> Result<Answer, Fault> {
        let id = question.call.id.clone();
        self.journal.push(format!("asked {id}"))?;
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(question);
        self.changed.notify_waiters();
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(answer) = self.take(&id) {
                return Ok(answer);
            }
            tokio::select! {
                () = changed => {}
                () = cancel.cancelled() => {
                    self.journal.push(format!("withdrawn {id}"))?;
                    return Ok(Answer::Cancelled);
                }
            }
        }
    }
}

/// What a [`Puppet`] does when it runs.
type Action = dyn Fn(CallContext, Value) -> futures::future::BoxFuture<'static, Result<Output, Failure>>
    + Send
    + Sync;

/// A tool for tests of the pipeline.
pub(crate) struct Puppet {
    pub(crate) definition: Definition,
    action: Box<Action>,
}

impl Puppet {
    pub(crate) fn new<F>(
        name: &'static str,
        concurrency: Concurrency,
        action: impl Fn(CallContext, Value) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Output, Failure>> + Send + 'static,
    {
        let definition = Definition {
            name,
            description: "A puppet.".to_owned(),
            parameters: json!({"type": "object", "properties": {
                "text": {"type": "string"}, "number": {"type": "integer"}, "file_path": {"type": "string"}
            }}),
            mutating: false,
            approval: Approval::Never,
            concurrency,
            replay: Replay::Safe,
            kind: Kind::Other,
        };
        Self {
            definition,
            action: Box::new(move |context, args| Box::pin(action(context, args))),
        }
    }

    /// One that answers with its `text`.
    pub(crate) fn echo(name: &'static str, concurrency: Concurrency) -> Self {
        Self::new(name, concurrency, |_, args| async move {
            Ok(Output::text(
                args.get("text").and_then(Value::as_str).unwrap_or_default(),
            ))
        })
    }

    /// One that a person is asked about.
    pub(crate) fn gated(mut self) -> Self {
        self.definition.mutating = true;
        self.definition.approval = Approval::Policy;
        self
    }

    pub(crate) fn table(puppets: impl IntoIterator<Item = Self>) -> Table {
        let mut table = Table::new();
        for puppet in puppets {
            table.add(Arc::new(puppet)).expect("names differ");
        }
        table
    }
}

#[async_trait]
impl Tool for Puppet {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn title(&self, _args: &Value) -> String {
        self.definition.name.to_owned()
    }

    fn locations(&self, world: &World, args: &Value) -> Vec<Location> {
        args.get("file_path")
            .and_then(Value::as_str)
            .map(|path| Location {
                path: world.cwd().join(path),
                line: None,
            })
            .into_iter()
            .collect()
    }

    fn rule_subject(&self, _world: &World, args: &Value) -> Option<String> {
        args.get("text").and_then(Value::as_str).map(str::to_owned)
    }

    async fn run(&self, context: &CallContext, args: Value) -> Result<Output, Failure> {
        (self.action)(context.clone(), args).await
    }
}

/// An editor with buffers.
#[derive(Default)]
pub(crate) struct Editor {
    pub(crate) buffers: Mutex<BTreeMap<PathBuf, String>>,
    pub(crate) written: Mutex<Vec<(PathBuf, String)>>,
    pub(crate) read_error: Mutex<Option<EditorError>>,
    pub(crate) write_error: Mutex<Option<EditorError>>,
}

impl Editor {
    pub(crate) fn open(&self, path: &Path, text: &str) {
        self.buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(path.to_owned(), text.to_owned());
    }

    pub(crate) fn written(&self) -> Vec<(PathBuf, String)> {
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[async_trait]
impl EditorFiles for Editor {
    async fn read_text(&self, path: &Path) -> Result<Option<String>, EditorError> {
        if let Some(error) = self
            .read_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
        {
            return Err(error);
        }
        Ok(self
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(path)
            .cloned())
    }

    async fn write_text(&self, path: &Path, content: &str) -> Result<(), EditorError> {
        if let Some(error) = self
            .write_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
        {
            return Err(error);
        }
        self.written
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((path.to_owned(), content.to_owned()));
        self.open(path, content);
        Ok(())
    }
}
