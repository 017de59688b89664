//! A live session: one task that owns its turns, and the handle that faces hold.
//!
//! The task waits for the next of a closed set of events and handles it without ever
//! awaiting a person, a model or a tool, so a cancel is handled at once. The turn is
//! another task that this one owns; a panic there closes the turn as failed and goes
//! no further.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use terret_log::{Payload, SessionId, SessionState, Severity, TurnStatus};
use terret_tools::call::Fault;
use terret_tools::world::World;
use terret_tools::world::editor::EditorFiles;
use terret_tools::world::editor_terminal::EditorTerminals;
use terret_tools::world::jobs::Jobs;
use terret_tools::world::sandbox::Sandbox;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::approvals::{Approvals, Decision};
use crate::commands;
use crate::core::Core;
use crate::editor_slot::EditorSlot;
use crate::error::{ApprovalError, EngineError, OptionError};
use crate::follow::Follower;
use crate::input::{Claim, Input, InputBlock};
use crate::job_commands;
use crate::job_watch::JobWatch;
use crate::options;
use crate::policy::SessionPolicy;
use crate::rule_commands;
use crate::settings::Settings;
use crate::status::{AgentStatus, TurnOutcome};
use crate::title;
use crate::turn::{self, Stop, TurnParts};

/// Commands that may wait for the session's task.
const MAILBOX: usize = 256;

/// A handle on a live session. Cheap to clone.
#[derive(Clone)]
pub struct SessionHandle(Arc<Session>);

pub(crate) struct Session {
    core: Arc<Core>,
    approvals: Arc<Approvals>,
    policy: Arc<SessionPolicy>,
    world: Arc<World>,
    editor: Arc<EditorSlot>,
    parts: Arc<TurnParts>,
    commands: mpsc::Sender<Command>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

/// What makes a session.
pub(crate) struct SessionParts {
    pub turn: TurnParts,
    pub world: Arc<World>,
    pub editor: Arc<EditorSlot>,
    pub jobs: JobWatch,
}

/// The answer that a prompt will get.
pub struct PromptAnswer(oneshot::Receiver<TurnOutcome>);

enum Command {
    Prompt {
        input: Input,
        answer: oneshot::Sender<TurnOutcome>,
    },
    /// Runs a turn on what waits in the inbox.
    Wake {
        answer: oneshot::Sender<TurnOutcome>,
    },
    Cancel {
        reason: String,
    },
    /// Ends the session: its turn closes as cancelled.
    Close,
    /// Stops what runs and leaves the turn open, to be resumed.
    Suspend,
}

impl SessionHandle {
    pub(crate) fn start(parts: SessionParts) -> Self {
        let (commands, mailbox) = mpsc::channel(MAILBOX);
        let turn = Arc::new(parts.turn);
        let session = Session {
            core: Arc::clone(&turn.core),
            approvals: Arc::clone(&turn.approvals),
            policy: Arc::clone(&turn.policy),
            world: parts.world,
            editor: parts.editor,
            parts: Arc::clone(&turn),
            commands,
            task: Mutex::new(None),
        };
        let mut watches = JoinSet::new();
        watches.spawn(parts.jobs.run());
        watches.spawn(follow_rules(
            Arc::clone(&turn.policy),
            Arc::clone(&turn.approvals),
        ));
        let task = SessionTask {
            jobs: Arc::clone(session.world.jobs()),
            parts: turn,
            _watches: watches,
            mailbox,
            turn: JoinSet::new(),
            running: None,
            housekeeping: JoinSet::new(),
            queue: VecDeque::new(),
        };
        *session.task.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(tokio::spawn(task.run()));
        Self(Arc::new(session))
    }

    /// The session's id.
    pub fn id(&self) -> &SessionId {
        self.0.core.id()
    }

    /// Sends a prompt. It starts a turn, steers the one that runs, or is a slash command
    /// that the engine answers itself. The answer comes when that turn ends.
    ///
    /// # Errors
    /// When the session is closed or an attached image cannot be kept.
    pub async fn prompt(&self, blocks: Vec<InputBlock>) -> Result<PromptAnswer, EngineError> {
        let core = Arc::clone(&self.0.core);
        let images = self.takes_images();
        let input = tokio::task::spawn_blocking(move || {
            Input::from_blocks(blocks, core.store().blobs(), images)
        })
        .await
        .map_err(|error| EngineError::Fault(error.to_string()))?
        .map_err(|error| EngineError::Fault(error.to_string()))?;
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Prompt {
            input,
            answer: sender,
        })
        .await?;
        Ok(PromptAnswer(receiver))
    }

    /// Runs a turn on what waits in the inbox, without a prompt. With nothing there the
    /// turn closes as empty (check 36); while a turn runs, the answer is that turn's.
    ///
    /// # Errors
    /// When the session is closed.
    pub async fn wake(&self) -> Result<PromptAnswer, EngineError> {
        let (sender, receiver) = oneshot::channel();
        self.send(Command::Wake { answer: sender }).await?;
        Ok(PromptAnswer(receiver))
    }

    /// Cancels the running turn. On an idle session nothing happens, now or later
    /// (check 63, case R104).
    ///
    /// # Errors
    /// When the session is closed.
    pub async fn cancel(&self, reason: &str) -> Result<(), EngineError> {
        self.send(Command::Cancel {
            reason: reason.to_owned(),
        })
        .await
    }

    /// Follows the session's events from `seq` on.
    pub fn follow(&self, seq: u64) -> Follower {
        Follower::new(Arc::clone(&self.0.core), seq)
    }

    /// The seq that the next event will have.
    pub fn next_seq(&self) -> u64 {
        self.0.core.next_seq()
    }

    /// Looks at the state folded from the log.
    pub fn state<R>(&self, look: impl FnOnce(&SessionState) -> R) -> R {
        self.0.core.state(look)
    }

    /// A blob of the session's log, such as one side of a file change.
    pub fn blobs(&self) -> &terret_log::Blobs {
        self.0.core.store().blobs()
    }

    /// What the agent is doing.
    pub fn status(&self) -> AgentStatus {
        self.0.core.status()
    }

    /// Follows what the agent is doing.
    pub fn watch_status(&self) -> watch::Receiver<AgentStatus> {
        self.0.core.watch_status()
    }

    /// Where the session works.
    pub fn world(&self) -> &World {
        &self.0.world
    }

    /// The tools that the session's model is offered.
    pub fn table(&self) -> &terret_tools::table::Table {
        &self.0.parts.pipeline.table
    }

    /// Decides a waiting approval; the first decision wins. `by` is who decided.
    ///
    /// # Errors
    /// When no such approval waits.
    pub fn decide(
        &self,
        approval: &str,
        decision: Decision,
        by: &str,
    ) -> Result<(), ApprovalError> {
        self.0.approvals.decide(approval, decision, by)
    }

    /// Sets `mode`, `model` or `thinking` for this session, durably.
    ///
    /// # Errors
    /// When there is no such option or value.
    pub fn set_option(&self, option: &str, value: &str, by: &str) -> Result<(), OptionError> {
        options::set(&self.0.parts, option, value, by)
    }

    /// The options as they stand, for a face to offer.
    pub fn options(&self) -> options::Options {
        options::current(&self.0.parts)
    }

    /// Narrows what may run in this session to these tool name patterns, in force at the
    /// very next call (`policy/updated`, check 83).
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn set_policy(&self, patterns: Vec<String>) -> Result<(), EngineError> {
        self.0
            .core
            .append(Payload::PolicyUpdated { patterns })
            .map_err(|fault| EngineError::Fault(fault.0))?;
        self.0.policy.refresh();
        Ok(())
    }

    /// A face is there to ask a person, with its way to open buffers.
    pub fn attach(&self, editor: Option<Arc<dyn EditorFiles>>) {
        self.0.editor.set(editor);
        self.0.approvals.set_attended(true);
    }

    /// A face is there, and no person behind it: what needs an approval is denied, saying
    /// so, and a turn ends at the ceiling of unattended ones.
    pub fn attach_unattended(&self, editor: Option<Arc<dyn EditorFiles>>) {
        self.0.editor.set(editor);
        self.0.approvals.set_attended(false);
    }

    /// Commands are shown in the face's terminals from now on.
    pub fn attach_terminals(&self, terminals: Arc<dyn EditorTerminals>) {
        self.0.editor.set_terminals(Some(terminals));
    }

    /// The face has gone.
    pub fn detach(&self) {
        self.0.editor.set(None);
        self.0.editor.set_terminals(None);
    }

    /// Tells the person something that is no model text.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn notice(&self, severity: Severity, text: &str) -> Result<(), EngineError> {
        self.0
            .core
            .append(Payload::NoticeShown {
                severity,
                text: text.to_owned(),
            })
            .map(|_| ())
            .map_err(|fault| EngineError::Fault(fault.0))
    }

    pub(crate) async fn set_additional_directories(
        &self,
        paths: &[PathBuf],
    ) -> Result<(), EngineError> {
        let directories: Vec<String> = paths
            .iter()
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        let (world, paths) = (Arc::clone(&self.0.world), paths.to_vec());
        tokio::task::spawn_blocking(move || world.set_additional_directories(&paths))
            .await
            .map_err(|error| EngineError::Fault(error.to_string()))?
            .map_err(|error| EngineError::BadFolder {
                path: directories.join(", "),
                why: error.to_string(),
            })?;
        let same = self
            .0
            .core
            .state(|state| state.additional_directories == directories);
        if !same {
            self.0
                .core
                .append(Payload::RootsSet {
                    additional_directories: directories,
                })
                .map_err(|fault| EngineError::Fault(fault.0))?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn turn_parts(&self) -> Arc<TurnParts> {
        Arc::clone(&self.0.parts)
    }

    pub(crate) fn reconfigure(
        &self,
        settings: Arc<Settings>,
        sandbox: Arc<dyn Sandbox>,
    ) -> Result<(), Fault> {
        if !Arc::ptr_eq(&self.0.world.processes().sandbox(), &sandbox) {
            // Nothing runs unasked on the word of a sandbox that is not in force any more:
            // what the new one is, is found out with the next command.
            self.0.policy.set_isolated(false);
            self.0.world.set_sandbox(sandbox);
        }
        self.0.world.web().reconfigure(settings.web.clone());
        self.0.policy.reconfigure(settings);
        self.0.approvals.settle_covered("config")
    }

    /// Ends the session's task and waits for it: the turn closes as cancelled, and what
    /// it ran is gone.
    pub(crate) async fn close(&self) {
        self.end(Command::Close).await;
    }

    /// Stops what runs and leaves the turn and its approvals open in the log.
    pub(crate) async fn suspend(&self) {
        self.end(Command::Suspend).await;
    }

    async fn end(&self, command: Command) {
        let _closed = self.send(command).await;
        let task = self
            .0
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(task) = task
            && let Err(error) = task.await
        {
            // Not with a panic's message, which may quote what the session holds.
            tracing::error!(
                panicked = error.is_panic(),
                "a session's task did not end well"
            );
        }
        // Dropping the turn asks its processes to end; only this waits until they are gone.
        let (world, jobs) = (&self.0.world, self.0.world.jobs());
        tokio::join!(world.shutdown(), jobs.close());
        JobWatch::settle(&self.0.core, jobs.as_ref()).await;
        self.0.approvals.finish().await;
        if let Err(error) = self.0.core.syncer().sync().await {
            tracing::error!(%error, "a session's log could not be made durable");
        }
        self.0.core.release();
        self.0.core.change_status(|_| AgentStatus::Done);
    }

    async fn send(&self, command: Command) -> Result<(), EngineError> {
        self.0
            .commands
            .send(command)
            .await
            .map_err(|_| EngineError::Closed {
                id: self.id().clone(),
            })
    }

    fn takes_images(&self) -> bool {
        let parts = &self.0.parts;
        parts
            .models
            .resolve(&parts.core, &parts.policy)
            .is_ok_and(|model| model.provider.capabilities(&model.name.model).images)
    }
}

/// Takes up what other sessions and processes make of the project's rules.
async fn follow_rules(policy: Arc<SessionPolicy>, approvals: Arc<Approvals>) {
    let mut changes = policy.project().subscribe();
    while changes.changed().await.is_ok() {
        policy.refresh();
        if let Err(fault) = approvals.settle_covered("rule:project") {
            tracing::error!(%fault, "what a rule covers could not be settled");
        }
    }
}

impl PromptAnswer {
    /// Waits for the end of the turn. None when the session was stopped and its turn
    /// left open.
    pub async fn outcome(self) -> Option<TurnOutcome> {
        self.0.await.ok()
    }
}

/// The session's task.
struct SessionTask {
    jobs: Arc<dyn Jobs>,
    parts: Arc<TurnParts>,
    /// Follow the jobs and the project's rules as long as the session lives.
    _watches: JoinSet<()>,
    mailbox: mpsc::Receiver<Command>,
    turn: JoinSet<Result<TurnOutcome, Fault>>,
    running: Option<Running>,
    /// Work that nobody waits for, such as the disk's sync after an answer.
    housekeeping: JoinSet<()>,
    /// Prompts that came too late for the turn that was ending.
    queue: VecDeque<Queued>,
}

/// A prompt that waits for the turn before it to be over.
struct Queued {
    input: Input,
    answer: oneshot::Sender<TurnOutcome>,
    /// A cancel came after it: its own turn ends before it begins. As a cancel reaches
    /// all that wait, those it reached stand in front.
    cancelled: Option<String>,
}

/// The turn that runs, and who waits for its end.
struct Running {
    stop: Stop,
    answers: Vec<oneshot::Sender<TurnOutcome>>,
}

enum Next {
    Command(Option<Command>),
    TurnEnded(Result<Result<TurnOutcome, Fault>, tokio::task::JoinError>),
}

impl SessionTask {
    async fn run(mut self) {
        loop {
            match self.next_event().await {
                Next::Command(Some(Command::Prompt { input, answer })) => {
                    self.prompt(input, answer)
                }
                Next::Command(Some(Command::Wake { answer })) => match &mut self.running {
                    Some(running) => running.answers.push(answer),
                    None => self.start_turn(None, answer, None),
                },
                Next::Command(Some(Command::Cancel { reason })) => self.cancel(&reason),
                Next::Command(Some(Command::Close) | None) => return self.close().await,
                Next::Command(Some(Command::Suspend)) => {
                    return self.suspend().await;
                }
                Next::TurnEnded(ended) => self.turn_ended(ended),
            }
        }
    }

    async fn next_event(&mut self) -> Next {
        tokio::select! {
            biased;
            Some(ended) = self.turn.join_next() => Next::TurnEnded(ended),
            command = self.mailbox.recv() => Next::Command(command),
        }
    }

    fn prompt(&mut self, input: Input, answer: oneshot::Sender<TurnOutcome>) {
        if let Some(command) = commands::parse(input.first_text()) {
            let text = input.first_text().to_owned();
            let (job_command, rule_command) =
                (job_commands::of(&command), rule_commands::of(&command));
            if let Some(rule_command) = rule_command {
                let parts = Arc::clone(&self.parts);
                while self.housekeeping.try_join_next().is_some() {}
                self.housekeeping.spawn(async move {
                    let said = rule_commands::run(&parts, &rule_command).await;
                    let _gone = answer.send(commands::log(&parts, &text, said));
                });
                return;
            }
            let Some(job_command) = job_command else {
                let outcome = commands::run(&self.parts, &command, &text);
                let _gone = answer.send(outcome);
                return;
            };
            let (parts, jobs) = (Arc::clone(&self.parts), Arc::clone(&self.jobs));
            // Ending a job takes its grace, and this task waits for nothing.
            while self.housekeeping.try_join_next().is_some() {}
            self.housekeeping.spawn(async move {
                let said = job_commands::run(&parts, jobs.as_ref(), &job_command).await;
                let _gone = answer.send(commands::log(&parts, &text, said));
            });
            return;
        }
        let Some(running) = &mut self.running else {
            return self.start_turn(Some(input), answer, None);
        };
        // What was sent after a cancel is no part of what the cancel ends (check 63).
        let pushed = if running.stop.token.is_cancelled() {
            Err(input)
        } else {
            self.parts.inbox.push(input)
        };
        match pushed {
            Ok(()) => running.answers.push(answer),
            Err(input) => self.queue.push_back(Queued {
                input,
                answer,
                cancelled: None,
            }),
        }
    }

    fn start_turn(
        &mut self,
        input: Option<Input>,
        answer: oneshot::Sender<TurnOutcome>,
        cancelled: Option<String>,
    ) {
        let stop = Stop::default();
        let mut status = AgentStatus::Running;
        if let Some(reason) = cancelled {
            let _first = stop.reason.set(reason);
            stop.token.cancel();
            status = AgentStatus::Stopping;
        }
        self.running = Some(Running {
            stop: stop.clone(),
            answers: vec![answer],
        });
        self.parts.inbox.open();
        self.parts.core.change_status(|_| status);
        let parts = Arc::clone(&self.parts);
        self.turn.spawn(async move {
            if parts.core.state(|state| state.turn.open.is_some()) {
                turn::resume(&parts, input, &stop).await
            } else {
                turn::run(&parts, input, &stop).await
            }
        });
    }

    fn cancel(&mut self, reason: &str) {
        let Some(running) = &self.running else {
            return;
        };
        for queued in &mut self.queue {
            queued.cancelled.get_or_insert_with(|| reason.to_owned());
        }
        let _already = running.stop.reason.set(reason.to_owned());
        self.parts.core.change_status(|status| match status {
            AgentStatus::Running | AgentStatus::WaitingApproval | AgentStatus::WaitingInput => {
                AgentStatus::Stopping
            }
            other => other,
        });
        running.stop.token.cancel();
    }

    fn turn_ended(&mut self, ended: Result<Result<TurnOutcome, Fault>, tokio::task::JoinError>) {
        let Some(running) = self.running.take() else {
            return;
        };
        let parts = &self.parts;
        let outcome = match ended {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(fault)) => self.broken(fault.0),
            Err(error) => {
                // Not with its message, which may quote what the session holds.
                tracing::error!(panicked = error.is_panic(), "a turn's task ended early");
                let reason = "an internal error ended the turn; what was done before it is kept";
                turn::finish(
                    parts,
                    TurnStatus::Failed,
                    Some(reason.to_owned()),
                    &running.stop,
                )
                .unwrap_or_else(|fault| self.broken(fault.0))
            }
        };
        // Before the answer, so that whoever lists sessions after it finds the title.
        title::after_turn(&parts.core);
        for answer in running.answers {
            let _gone = answer.send(outcome.clone());
        }
        // Off the answer's path: the person has the answer while the disk catches up.
        let syncer = parts.core.syncer().clone();
        while self.housekeeping.try_join_next().is_some() {}
        self.housekeeping.spawn(async move {
            if let Err(error) = syncer.sync().await {
                tracing::error!(%error, "a turn's log could not be made durable");
            }
        });
        self.start_next();
    }

    /// Starts the turn of the prompt that waited longest. Those behind it join it, unless
    /// it was cancelled meanwhile.
    fn start_next(&mut self) {
        let Some(next) = self.queue.pop_front() else {
            return;
        };
        let joined = next.cancelled.is_none();
        self.start_turn(Some(next.input), next.answer, next.cancelled);
        if joined {
            for queued in std::mem::take(&mut self.queue) {
                self.prompt(queued.input, queued.answer);
            }
        }
    }

    /// Stops what runs. Dropping the turn's future ends its stream and its processes; the
    /// log keeps the turn open, and with it what was sent to it and not read yet.
    async fn suspend(&mut self) {
        self.turn.abort_all();
        while let Some(ended) = self.turn.join_next().await {
            // It may have come to its end just before.
            if let (Ok(Ok(outcome)), Some(running)) = (ended, self.running.take()) {
                for answer in running.answers {
                    let _gone = answer.send(outcome.clone());
                }
            }
        }
        self.parts.approvals.forget();
        if !self.parts.core.state(|state| state.turn.is_open()) {
            return;
        }
        let queued = self.queue.drain(..).map(|queued| queued.input);
        for input in self.parts.inbox.close_and_drain().into_iter().chain(queued) {
            if let Err(fault) = self
                .parts
                .core
                .append(Claim::Injected(input).into_payload())
            {
                tracing::error!(%fault, "input was not logged");
                return;
            }
        }
    }

    /// The log cannot be written: the turn is over all the same, and says why.
    fn broken(&self, reason: String) -> TurnOutcome {
        self.parts.inbox.close();
        self.parts.approvals.forget();
        self.parts.core.change_status(|_| AgentStatus::Idle);
        TurnOutcome {
            status: TurnStatus::Failed,
            reason: Some(reason),
            end: self.parts.core.next_seq(),
        }
    }

    async fn close(&mut self) {
        self.cancel("the session was closed");
        while let Some(ended) = self.turn.join_next().await {
            self.turn_ended(ended);
            self.cancel("the session was closed");
        }
    }
}

/// Shared cell of what the engine may swap while sessions live.
pub(crate) type Shared<T> = Arc<RwLock<Arc<T>>>;
