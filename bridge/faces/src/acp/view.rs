//! What one client is shown of one session: from the items of the log's editor fold to
//! `session/update`s, in log order (`ACP session/update`).
//!
//! The view holds what a card needs while its call is open, and nothing that a restart
//! would miss: it is made anew from the log at each attach.

mod content;

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use terret_acp::schema::v1;
use terret_engine::room::log::editor::EditorItem;
use terret_engine::room::log::{
    ApprovalStage, Event, FileChange, ImageRef, Payload, PlanEntry, PlanStatus, PromptBlock,
    Severity, UsageTotals, Verdict,
};
use terret_engine::trust::QUESTION;
use terret_engine::{Engine, SessionHandle};
use tokio::time::Instant;

use self::content::plan_text;
use super::asks::Ask;
use super::card::{self, Card};
use super::handshake::Client;
use super::job_card::{self, Ended};
use super::options;
use super::terminals::OpenTerminals;
use crate::text::{encoded_len, ends, front, line, pieces};
use crate::time::iso;

/// Encoded bytes of text in one frame.
const CHUNK: usize = 32 * 1024;
/// The tool whose calls are the plan.
const PLAN_TOOL: &str = "TodoWrite";
/// The plan that is the session's own list.
const PLAN_ID: &str = "todo";
const PLAN_BYTES: usize = 32 * 1024;
const NOTICE_TITLE: usize = 200;

/// One thing for the follower to do, in order.
pub(crate) enum Out {
    Update(v1::SessionUpdate),
    /// The card before this holds the call's terminal.
    Terminal(String),
    /// A person is to be asked; the call's card stands before this.
    Ask(Ask),
    /// A question was decided, here or elsewhere.
    Decided(String),
}

/// How items are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The past, for a client that knows it or does not want it: nothing is sent.
    Silent,
    /// The past, to be shown.
    Replay,
    Live,
}

pub(crate) struct View {
    engine: Engine,
    client: Client,
    session: SessionHandle,
    terminals: OpenTerminals,
    cwd: String,
    phase: Phase,
    cards: HashMap<String, Card>,
    /// Questions of the past that may still wait.
    open_asks: Vec<(String, Asked)>,
    /// The last event was a slash command, so the notice that follows is its answer.
    command_ran: bool,
    out: Vec<Out>,
}

impl View {
    pub(crate) fn new(
        engine: Engine,
        client: Client,
        session: SessionHandle,
        terminals: OpenTerminals,
        phase: Phase,
    ) -> Self {
        let cwd = session.world().cwd().to_string_lossy().into_owned();
        Self {
            engine,
            client,
            session,
            terminals,
            cwd,
            phase,
            cards: HashMap::new(),
            open_asks: Vec::new(),
            command_ran: false,
            out: Vec::new(),
        }
    }

    /// Everything that is to be sent now.
    pub(crate) fn drain(&mut self) -> std::vec::Drain<'_, Out> {
        self.out.drain(..)
    }

    /// The past is over.
    pub(crate) fn go_live(&mut self) {
        self.phase = Phase::Live;
    }

    /// Whether questions of the past wait to be asked.
    pub(crate) fn has_open_asks(&self) -> bool {
        !self.open_asks.is_empty()
    }

    /// Asks what the past left undecided.
    pub(crate) async fn ask_open(&mut self) {
        for (id, asked) in std::mem::take(&mut self.open_asks) {
            self.ask(id, asked).await;
        }
    }

    /// Takes an item, with the event it came of (none for what a torn log leaves).
    pub(crate) async fn take(&mut self, event: Option<&Event>, item: EditorItem) {
        self.item(event, item).await;
        self.command_ran =
            event.is_some_and(|event| matches!(event.payload, Payload::CommandRun { .. }));
    }

    /// When waiting output may be shown.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.cards.values().filter_map(Card::due).min()
    }

    /// Shows the output that is due.
    pub(crate) fn show_due(&mut self, now: Instant) {
        let due: Vec<String> = self
            .cards
            .iter()
            .filter(|(_, card)| card.due().is_some_and(|due| due <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in due {
            // Output of a past that was not shown comes for a card that is not known yet.
            let shown = self.announce(&id);
            if let Some(card) = self.cards.get_mut(&id) {
                let update = card.show_output(&id, now);
                if shown {
                    self.out.push(Out::Update(update));
                }
            }
        }
    }

    async fn item(&mut self, event: Option<&Event>, item: EditorItem) {
        let at = event.map_or(0, |event| event.at);
        match item {
            EditorItem::UserText { message_id, blocks } => {
                self.user_text(&message_id, blocks).await
            }
            EditorItem::AgentText { message_id, text } => {
                self.chunks(&message_id, &text, v1::SessionUpdate::AgentMessageChunk);
            }
            EditorItem::AgentThought { message_id, text } => {
                self.chunks(&message_id, &text, v1::SessionUpdate::AgentThoughtChunk);
            }
            EditorItem::ToolCall { id, name, args } => self.tool_call(&id, &name, &args),
            EditorItem::ToolStarted { id } => self.tool_started(&id),
            EditorItem::ToolOutput { id, text } => self.tool_output(&id, &text),
            EditorItem::FileChanged { id, change } => self.file_changed(&id, change).await,
            EditorItem::ToolResult {
                id,
                content,
                error,
                images,
            } => {
                self.tool_result(&id, content.as_deref(), error.as_deref(), images)
                    .await;
            }
            EditorItem::JobStarted { id, .. } => self.job_started(&id),
            EditorItem::JobProgress {
                id,
                job,
                tail,
                written,
                notes,
            } => {
                if self.announce(&id) {
                    self.update(job_card::progress(&id, &job, &tail, written, &notes));
                }
            }
            EditorItem::JobEnded {
                id,
                job,
                command,
                outcome,
                ran_for,
                written,
                dropped,
                tail,
                notes,
            } => self.job_ended(
                &id,
                &Ended {
                    job: &job,
                    command: &command,
                    outcome: &outcome,
                    ran_for,
                    written,
                    dropped,
                    tail: &tail,
                    notes: &notes,
                },
            ),
            EditorItem::ApprovalRequested {
                id,
                call_id,
                name,
                args,
                title,
                reason,
                preview,
                offered_rule,
                stage,
            } => {
                let asked = Asked {
                    call_id,
                    name,
                    args,
                    title,
                    reason,
                    preview,
                    offered_rule,
                    stage,
                };
                if self.phase == Phase::Live {
                    self.ask(id, asked).await;
                } else {
                    // Most of the past was decided long ago.
                    self.open_asks.push((id, asked));
                }
            }
            EditorItem::ApprovalResolved {
                id,
                call_id,
                verdict,
                ..
            } => self.decided(id, &call_id, verdict),
            EditorItem::Plan(entries) => self.plan(&entries),
            EditorItem::Title(title) => {
                let info = v1::SessionInfoUpdate::new()
                    .title(line(&title, NOTICE_TITLE))
                    .updated_at(iso(at));
                self.update(v1::SessionUpdate::SessionInfoUpdate(info));
            }
            EditorItem::OptionSet { option, .. } => self.option_set(&option),
            EditorItem::Usage {
                context_tokens,
                totals,
            } => self.usage(context_tokens, totals),
            EditorItem::Notice { severity, text } => self.notice(event, severity, &text),
            EditorItem::StepStarted { .. }
            | EditorItem::TurnStarted
            | EditorItem::TurnEnded { .. } => {}
        }
    }

    fn update(&mut self, update: v1::SessionUpdate) {
        if self.phase != Phase::Silent {
            self.out.push(Out::Update(update));
        }
    }

    // --- messages ----------------------------------------------------------

    /// What the person wrote. Live it is not echoed: every v1 client shows its own prompt,
    /// and would show it twice.
    async fn user_text(&mut self, message_id: &str, blocks: Vec<PromptBlock>) {
        if self.phase != Phase::Replay {
            return;
        }
        for block in blocks {
            match block {
                PromptBlock::Text { text } => {
                    self.chunks(message_id, &text, v1::SessionUpdate::UserMessageChunk)
                }
                PromptBlock::ResourceLink { uri, name } => {
                    let link = v1::ResourceLink::new(front(&name, 1024), front(&uri, CHUNK));
                    self.chunk(
                        message_id,
                        v1::ContentBlock::ResourceLink(link),
                        v1::SessionUpdate::UserMessageChunk,
                    );
                }
                PromptBlock::Resource {
                    uri,
                    mime_type,
                    text,
                } => {
                    let contents = v1::TextResourceContents::new(
                        ends(&text, CHUNK / 2),
                        front(&uri, CHUNK / 4),
                    )
                    .mime_type(mime_type.map(|kind| front(&kind, 200).to_owned()));
                    let resource = v1::EmbeddedResource::new(
                        v1::EmbeddedResourceResource::TextResourceContents(contents),
                    );
                    self.chunk(
                        message_id,
                        v1::ContentBlock::Resource(resource),
                        v1::SessionUpdate::UserMessageChunk,
                    );
                }
                PromptBlock::Image { image } => {
                    let block = self.image(&image).await;
                    self.chunk(message_id, block, v1::SessionUpdate::UserMessageChunk);
                }
            }
        }
    }

    fn chunks(
        &mut self,
        message_id: &str,
        text: &str,
        wrap: fn(v1::ContentChunk) -> v1::SessionUpdate,
    ) {
        if self.phase == Phase::Silent {
            return;
        }
        for piece in pieces(text, CHUNK) {
            self.chunk(
                message_id,
                v1::ContentBlock::Text(v1::TextContent::new(piece)),
                wrap,
            );
        }
    }

    fn chunk(
        &mut self,
        message_id: &str,
        block: v1::ContentBlock,
        wrap: fn(v1::ContentChunk) -> v1::SessionUpdate,
    ) {
        let chunk =
            v1::ContentChunk::new(block).message_id(v1::MessageId::new(message_id.to_owned()));
        self.update(wrap(chunk));
    }

    /// Errors and answers of ours. A client without notices gets them as a message, and a
    /// slash command's answer is a message for everyone: it is what was asked for.
    fn notice(&mut self, event: Option<&Event>, severity: Severity, text: &str) {
        let is_answer = self.command_ran;
        if self.client.notices && !is_answer {
            if self.phase != Phase::Live {
                return;
            }
            let title = line(
                text.lines()
                    .find(|line| !line.trim().is_empty())
                    .unwrap_or("Notice"),
                NOTICE_TITLE,
            );
            let title = if title.is_empty() {
                "Notice".to_owned()
            } else {
                title
            };
            let more = (title != text.trim()).then(|| ends(text, CHUNK));
            let notice = v1::Notice::new(wire_severity(severity), title).description(more);
            self.update(v1::SessionUpdate::Notice(notice));
            return;
        }
        let mark = match severity {
            _ if is_answer => "",
            Severity::Error => "Error: ",
            Severity::Warning => "Note: ",
            Severity::Info => "",
        };
        let message_id =
            event.map_or_else(|| "notice".to_owned(), |event| format!("n{}", event.seq));
        self.chunks(
            &message_id,
            &format!("{mark}{text}\n"),
            v1::SessionUpdate::AgentMessageChunk,
        );
    }

    // --- tool calls --------------------------------------------------------

    fn tool_call(&mut self, id: &str, name: &str, args: &Value) {
        let mut new = Card::new(&self.session, name, args);
        if let Some(known) = self.cards.get_mut(id) {
            let announced = known.announced;
            let update = known.rewritten(id, new);
            if announced {
                self.update(update);
            }
            return;
        }
        new.hidden = name == PLAN_TOOL && self.client.habits.shows_plans;
        self.cards.insert(id.to_owned(), new);
        if self.phase != Phase::Silent {
            self.announce(id);
        }
    }

    /// Makes the card known if it is not yet: an update of an unknown card is shown as a
    /// failure by some clients, and one of a hidden card by all.
    fn announce(&mut self, id: &str) -> bool {
        let terminal = self.client.terminal_output && self.phase == Phase::Live;
        let Some(card) = self.cards.get_mut(id).filter(|card| !card.hidden) else {
            return false;
        };
        if !card.announced && self.phase != Phase::Silent {
            let announcement = card.announce(id, terminal, &self.cwd);
            self.out.push(Out::Update(announcement));
        }
        true
    }

    fn tool_started(&mut self, id: &str) {
        let shown = self.announce(id);
        let Some(card) = self.cards.get_mut(id) else {
            return;
        };
        if self.phase == Phase::Replay {
            // The result follows, or the card stays as the log left it.
            card.started = true;
            return;
        }
        let update = card.start(id);
        if shown {
            self.update(update);
        }
    }

    fn tool_output(&mut self, id: &str, text: &str) {
        let shown = self.announce(id);
        let Some(card) = self.cards.get_mut(id).filter(|_| shown) else {
            return;
        };
        if card.is_in_terminal() {
            return;
        }
        if let Some(terminal) = self.terminals.of(id) {
            let update = card.hold(id, &terminal);
            self.update(update);
            self.out.push(Out::Terminal(id.to_owned()));
            return;
        }
        for update in card.output(id, text) {
            self.update(update);
        }
    }

    async fn file_changed(&mut self, id: &str, change: FileChange) {
        if !self.announce(id) {
            return;
        }
        let budget = self
            .cards
            .get(id)
            .map_or(card::CONTENT, Card::change_budget);
        let contents = self.diffs(vec![change.clone()], budget).await;
        let Some(card) = self.cards.get_mut(id) else {
            return;
        };
        let update = card.changed(id, &change.path, contents);
        if self.phase == Phase::Live {
            self.update(update);
        }
    }

    async fn tool_result(
        &mut self,
        id: &str,
        content: Option<&str>,
        error: Option<&str>,
        images: Vec<ImageRef>,
    ) {
        let shown = self.announce(id);
        if self.cards.get(id).is_some_and(|card| card.job) {
            // The call is over and its job is not, whatever became of the call.
            if shown {
                let text = error.or(content).unwrap_or_default();
                self.update(job_card::goes_on(id, text));
            }
            return;
        }
        let Some(mut card) = self.cards.remove(id) else {
            return;
        };
        if !shown || self.phase == Phase::Silent {
            return;
        }
        if let Some(terminal) = self.terminals.of(id).filter(|_| !card.is_in_terminal()) {
            let update = card.hold(id, &terminal);
            self.update(update);
            self.out.push(Out::Terminal(id.to_owned()));
        }
        let mut blocks = Vec::new();
        for image in images.iter().take(1) {
            let block = self.image(image).await;
            blocks.push(v1::ToolCallContent::Content(v1::Content::new(block)));
        }
        let text;
        let result = match error {
            Some(error) => Err(error),
            None if card.name == PLAN_TOOL => {
                text = plan_text(&card.args);
                Ok(text.as_str())
            }
            None => Ok(content.unwrap_or_default()),
        };
        let replayed = self.phase == Phase::Replay;
        for update in card.finish(id, result, blocks, replayed) {
            self.update(update);
        }
    }

    // --- jobs --------------------------------------------------------------

    fn job_started(&mut self, id: &str) {
        let shown = self.announce(id);
        let Some(card) = self.cards.get_mut(id) else {
            return;
        };
        card.job = true;
        // In a replay nothing else may follow: the log may end here.
        if shown && self.phase == Phase::Replay {
            let update = card.start(id);
            self.update(update);
        }
    }

    /// Also between turns, and for whoever looks elsewhere where the client has a place
    /// for that: as text it would be taken for the model's.
    fn job_ended(&mut self, id: &str, ended: &Ended<'_>) {
        let shown = self.announce(id);
        self.cards.remove(id);
        if shown {
            self.update(job_card::end(id, ended));
        }
        if self.client.notices && self.phase == Phase::Live {
            self.update(job_card::notice(ended));
        }
    }

    // --- approvals ---------------------------------------------------------

    async fn ask(&mut self, id: String, asked: Asked) {
        let call_id = asked.call_id.clone();
        if let Some(card) = self.cards.get_mut(&call_id) {
            // What a person decides about must be seen.
            card.hidden = false;
        } else {
            let card = Card::question(&asked.name, &asked.args, &asked.title);
            self.cards.insert(call_id.clone(), card);
        }
        self.announce(&call_id);
        let contents = self.diffs(asked.preview, card::CONTENT).await;
        let Some(card) = self.cards.get(&call_id) else {
            return;
        };
        let card = card.asking(&call_id, &asked.reason, contents);
        self.out.push(Out::Ask(Ask {
            id,
            card,
            offered_rule: asked.offered_rule,
            stage: asked.stage,
        }));
    }

    fn decided(&mut self, id: String, call_id: &str, verdict: Verdict) {
        self.open_asks.retain(|(known, _)| *known != id);
        let is_question = self
            .cards
            .get(call_id)
            .is_some_and(|card| self.session.table().get(&card.name).is_none());
        if is_question
            && self
                .cards
                .get(call_id)
                .is_some_and(|card| ["continue", QUESTION].contains(&card.name.as_str()))
        {
            // No tool will ever give this card a result.
            let status = match verdict {
                Verdict::Approved => v1::ToolCallStatus::Completed,
                Verdict::Denied | Verdict::Cancelled => v1::ToolCallStatus::Failed,
            };
            self.cards.remove(call_id);
            self.update(card::update(
                call_id,
                v1::ToolCallUpdateFields::new().status(status),
            ));
        }
        // The question showed a call that runs as one that waits.
        let goes_on = self
            .cards
            .get(call_id)
            .is_some_and(|card| card.started && card.announced && !card.hidden);
        if goes_on && self.phase == Phase::Live {
            self.update(card::update(
                call_id,
                v1::ToolCallUpdateFields::new().status(v1::ToolCallStatus::InProgress),
            ));
        }
        self.out.push(Out::Decided(id));
    }

    // --- the session's own state -------------------------------------------

    /// The whole plan, only when it changed: some clients draw every update as a new block.
    fn plan(&mut self, entries: &[PlanEntry]) {
        let mut room = PLAN_BYTES;
        let mut wire = Vec::with_capacity(entries.len());
        for entry in entries {
            let content = line(&entry.content, 500);
            let need = encoded_len(&content) + 120;
            if need > room {
                break;
            }
            room -= need;
            let status = match entry.status {
                PlanStatus::Pending => v1::PlanEntryStatus::Pending,
                PlanStatus::InProgress => v1::PlanEntryStatus::InProgress,
                PlanStatus::Completed => v1::PlanEntryStatus::Completed,
            };
            let mut shown = v1::PlanEntry::new(content, v1::PlanEntryPriority::Medium, status);
            if self.client.plan_updates {
                shown = shown.meta(Map::from_iter([("terret.id".to_owned(), json!(entry.id))]));
            }
            wire.push(shown);
        }
        if self.client.plan_updates {
            let plan = v1::PlanUpdateContent::items(PLAN_ID, wire);
            self.update(v1::SessionUpdate::PlanUpdate(v1::PlanUpdate::new(plan)));
        } else {
            self.update(v1::SessionUpdate::Plan(v1::Plan::new(wire)));
        }
    }

    fn option_set(&mut self, option: &str) {
        if self.phase != Phase::Live {
            // The answer to the load says how they stand.
            return;
        }
        let (modes, all) = options::current(&self.session);
        if option == "mode" {
            self.update(v1::SessionUpdate::CurrentModeUpdate(
                v1::CurrentModeUpdate::new(modes.current_mode_id),
            ));
        }
        self.update(v1::SessionUpdate::ConfigOptionUpdate(
            v1::ConfigOptionUpdate::new(all),
        ));
    }

    /// Only where the size of the model's window is known: the update needs one, and a
    /// guessed one would show a wrong share.
    fn usage(&mut self, context_tokens: Option<u64>, totals: UsageTotals) {
        let Some(size) = options::context_window(&self.engine, &self.session) else {
            return;
        };
        let mut usage = v1::UsageUpdate::new(context_tokens.unwrap_or_default(), size);
        if totals.cost > 0.0 {
            usage = usage.cost(v1::Cost::new(totals.cost, "USD"));
        }
        self.update(v1::SessionUpdate::UsageUpdate(usage));
    }
}

/// What an approval request says.
struct Asked {
    call_id: String,
    name: String,
    args: Value,
    title: String,
    reason: String,
    preview: Vec<FileChange>,
    offered_rule: Option<String>,
    stage: ApprovalStage,
}

fn wire_severity(severity: Severity) -> v1::NoticeSeverity {
    match severity {
        Severity::Info => v1::NoticeSeverity::Info,
        Severity::Warning => v1::NoticeSeverity::Warning,
        Severity::Error => v1::NoticeSeverity::Error,
    }
}
