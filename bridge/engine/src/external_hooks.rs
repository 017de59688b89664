//! The user's own hooks: programs that are told of a call before it runs and after it, and
//! may refuse, rewrite, ask for or allow it (`design.md §4 Tools`), in the form that people
//! have them from other agents.
//!
//! A hook of the user's acts for the user: it runs outside of the sandbox, in the session's
//! folder, with the scrubbed environment. One that a project brings and the user trusts runs
//! in the sandbox and allows nothing. What it says stands before rules and floor, and
//! those after it ([`terret_tools::pipeline`]). Hooks run one after another in the order
//! in which they are configured, so that each sees what those before it made of the call;
//! the first that refuses ends that.

mod answer;
mod setting;

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};
use terret_log::{Payload, Severity};
use terret_tools::call::{Call, CallResult, Fault};
use terret_tools::mode::Mode;
use terret_tools::pipeline::{Admission, CallHook, HookSays, Next, Veto};
use terret_tools::world::World;
use terret_tools::world::process::Program;
use terret_tools::world::process::exchange::{Answered, Exchange};
use terret_tools::world::sandbox::Confinement;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::policy::{SessionPolicy, mode_of};

use answer::{Said, Verdict, understand};
pub use setting::{
    ExternalHook, HookCommand, HookEntry, HookError, HookEvent, HookOrigin, Matcher, OnFailure,
};

/// Bytes of an answer. Beyond it there is no answer.
const MOST_OUTPUT: usize = 1 << 20;
/// Bytes of errors; what refuses gives its reason there.
const MOST_ERRORS: usize = 64 * 1024;
/// Bytes of a result that a hook is shown.
const SHOWN_RESULT: usize = 256 * 1024;
/// Bytes of new arguments that the result tells of.
const SHOWN_ARGUMENTS: usize = 2048;
/// Different failures that a session's person is told of.
const TOLD: usize = 32;

/// The hooks of one session.
pub(crate) struct ExternalHooks {
    core: Arc<Core>,
    world: Arc<World>,
    policy: Arc<SessionPolicy>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Calls whose arguments a hook changed, until their result tells of it.
    rewritten: HashSet<String>,
    /// What the person was told of hooks that failed, so that nothing is told at each call.
    told: HashSet<String>,
    /// Stops the calls that run now.
    calls: CancellationToken,
    /// Why a hook wants the turn to end.
    stop: Option<String>,
}

/// What came of one hook.
enum Outcome {
    Said(Said),
    /// It failed, and failing refuses.
    Failed(String),
    /// It failed and is passed over.
    PassedOver,
}

impl ExternalHooks {
    pub(crate) fn new(core: Arc<Core>, world: Arc<World>, policy: Arc<SessionPolicy>) -> Self {
        Self {
            core,
            world,
            policy,
            state: Mutex::default(),
        }
    }

    /// The calls of a message are about to run; `token` stops them.
    pub(crate) fn calls_begin(&self, token: &CancellationToken) {
        let mut state = self.state();
        state.calls = token.clone();
        state.stop = None;
        state.rewritten.clear();
    }

    /// Whether a hook wants the turn to end, now that its calls are over. The person is told
    /// why.
    pub(crate) fn calls_ended(&self) -> Result<bool, Fault> {
        let Some(reason) = self.state().stop.take() else {
            return Ok(false);
        };
        self.notice(
            Severity::Warning,
            format!("A hook ended the turn: {reason}"),
        )?;
        Ok(true)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn matching(&self, event: HookEvent, tool: &str) -> Vec<ExternalHook> {
        let hooks = self.policy.hooks();
        let matching = hooks
            .iter()
            .filter(|hook| hook.event == event && hook.matcher.matches(tool));
        matching.cloned().collect()
    }

    /// Runs one hook and does with its answer all that is not about the call.
    async fn consult(
        &self,
        hook: &ExternalHook,
        call: &Call,
        result: Option<&CallResult>,
    ) -> Outcome {
        let said = match self.run(hook, call, result).await {
            Ok(answered) => understand(hook.event, &answered),
            Err(error) => Err(format!("could not be run: {error}")),
        };
        let said = match said {
            Ok(said) => said,
            Err(why) => {
                tracing::warn!(event = ?hook.event, "a hook failed");
                let failed = format!("the hook `{}` {why}", hook.name());
                self.tell_failure(hook, &failed);
                return match hook.on_failure {
                    OnFailure::Deny => Outcome::Failed(failed),
                    OnFailure::Run => Outcome::PassedOver,
                };
            }
        };
        if let Some(message) = &said.message {
            self.say(Severity::Info, message.clone());
        }
        if let Some(reason) = &said.stop {
            let mut state = self.state();
            state.stop.get_or_insert_with(|| reason.clone());
            state.calls.cancel();
        }
        Outcome::Said(said)
    }

    async fn run(
        &self,
        hook: &ExternalHook,
        call: &Call,
        result: Option<&CallResult>,
    ) -> Result<Answered, terret_tools::world::process::ProcessError> {
        let cwd = self.world.cwd();
        let processes = self.world.processes();
        let mut environment = processes.environment().clone();
        for name in ["TERRET_PROJECT_DIR", "CLAUDE_PROJECT_DIR"] {
            environment.insert(name.into(), cwd.clone().into());
        }
        let program = Program {
            argv: hook.argv.iter().map(OsString::from).collect(),
            cwd,
            environment,
            input: None,
            confinement: match hook.origin {
                HookOrigin::User => Confinement::Outside,
                HookOrigin::Project => Confinement::default(),
            },
        };
        let told = self.told(hook.event, call, result);
        let exchange = Exchange {
            input: told.to_string().into_bytes(),
            timeout: hook.timeout,
            most_output: MOST_OUTPUT,
            most_errors: MOST_ERRORS,
        };
        processes.exchange(program, exchange).await
    }

    /// What a hook reads from its standard input.
    fn told(&self, event: HookEvent, call: &Call, result: Option<&CallResult>) -> Value {
        let settings = self.policy.settings();
        let mode = self.core.state(|state| mode_of(&settings, state));
        let mut told = json!({
            "session_id": self.core.id().as_str(),
            "cwd": self.world.cwd().to_string_lossy(),
            "permission_mode": known_mode(mode),
            "hook_event_name": match event {
                HookEvent::PreToolUse => "PreToolUse",
                HookEvent::PostToolUse => "PostToolUse",
            },
            "tool_name": call.name,
            "tool_input": call.args.clone().unwrap_or_else(|_| json!({})),
            "tool_use_id": call.id,
        });
        if let (Some(result), Some(object)) = (result, told.as_object_mut()) {
            let (text, is_error) = match &result.content {
                Ok(output) => (output.render(), false),
                Err(text) => (text.clone(), true),
            };
            let end = text.floor_char_boundary(SHOWN_RESULT);
            let shown = text.get(..end).unwrap_or_default();
            let response = json!({ "output": shown, "is_error": is_error });
            object.insert("tool_response".to_owned(), response);
        }
        told
    }

    fn tell_failure(&self, hook: &ExternalHook, failed: &str) {
        let mut state = self.state();
        let is_new = state.told.len() < TOLD && state.told.insert(failed.to_owned());
        drop(state);
        if is_new {
            let then = match (hook.on_failure, hook.event) {
                (OnFailure::Deny, HookEvent::PreToolUse) => {
                    "the call was refused; see to the hook, or let calls run with `on_failure = \"run\"`"
                }
                (OnFailure::Deny, HookEvent::PostToolUse) => {
                    "the model is told that the call's result is not good; see to the hook"
                }
                (OnFailure::Run, _) => "it was passed over, as its `on_failure` says",
            };
            self.say(Severity::Warning, format!("{failed}: {then}"));
        }
    }

    fn say(&self, severity: Severity, text: String) {
        if let Err(fault) = self.notice(severity, text) {
            // The next append of the turn fails, too, and ends it.
            tracing::warn!(%fault, "a hook's words were not logged");
        }
    }

    fn notice(&self, severity: Severity, text: String) -> Result<(), Fault> {
        self.core
            .append(Payload::NoticeShown { severity, text })
            .map(drop)
    }

    /// What the hooks after a call say of its result.
    async fn review(&self, call: &Call, mut result: CallResult) -> CallResult {
        for hook in self.matching(HookEvent::PostToolUse, &call.name) {
            match self.consult(&hook, call, Some(&result)).await {
                Outcome::Said(said) => {
                    if said.verdict == Some(Verdict::Block) {
                        let reason = said.reason.as_deref().unwrap_or("no reason given");
                        result = with_remark(result, format!("a hook objects: {reason}"));
                    }
                    if let Some(context) = said.context {
                        result = with_remark(result, format!("a hook adds: {context}"));
                    }
                    if said.stop.is_some() {
                        return result;
                    }
                }
                Outcome::Failed(failed) => {
                    let text = format!("{failed}; the call had run, and its result is held back");
                    return CallResult::error(text);
                }
                Outcome::PassedOver => {}
            }
        }
        result
    }
}

#[async_trait]
impl CallHook for ExternalHooks {
    async fn before(&self, call: Call) -> Result<Admission, Veto> {
        let mut call = call;
        let mut says: Option<HookSays> = None;
        if call.args.is_err() {
            // It will not run; there is nothing to look at.
            return Ok(call.into());
        }
        for hook in self.matching(HookEvent::PreToolUse, &call.name) {
            let said = match self.consult(&hook, &call, None).await {
                Outcome::Said(said) => said,
                Outcome::Failed(failed) => {
                    return Err(Veto(format!("{} was not run: {failed}", call.name)));
                }
                Outcome::PassedOver => continue,
            };
            let refusal = match (said.verdict, &said.stop) {
                (Some(Verdict::Block), _) => Some(said.reason.as_ref()),
                (_, Some(reason)) => Some(said.reason.as_ref().or(Some(reason))),
                _ => None,
            };
            if let Some(reason) = refusal {
                let reason = reason.map_or("no reason given", String::as_str);
                return Err(Veto(format!("{} denied by a hook: {reason}", call.name)));
            }
            if let Some(input) = said.input
                && call.args.as_ref() != Ok(&input)
            {
                call.args = Ok(input);
                self.state().rewritten.insert(call.id.clone());
            }
            let heard = match said.verdict {
                // To allow is the user's own.
                Some(Verdict::Allow) if hook.origin == HookOrigin::Project => continue,
                Some(Verdict::Allow) => HookSays::Allow,
                Some(Verdict::Ask) => HookSays::Ask(match said.reason {
                    Some(reason) => format!("a hook asks for it: {reason}"),
                    None => "a hook asks for it".to_owned(),
                }),
                Some(Verdict::Block) | None => continue,
            };
            says = Some(match says {
                Some(before) => before.and(heard),
                None => heard,
            });
        }
        Ok(Admission { call, says })
    }

    async fn around(&self, call: Call, next: Next<'_>) -> Result<CallResult, Fault> {
        let mut result = next.run(call.clone()).await?;
        let stopped = {
            let mut state = self.state();
            if state.rewritten.remove(&call.id) {
                result = with_remark(result, rewritten_words(&call));
            }
            state.calls.clone()
        };
        // Whoever cancels waits for no hook; the call's own result is there.
        let kept = result.clone();
        let reviewed = stopped
            .run_until_cancelled(self.review(&call, result))
            .await;
        Ok(reviewed.unwrap_or(kept))
    }
}

fn rewritten_words(call: &Call) -> String {
    let args = call.args.clone().unwrap_or_default().to_string();
    let end = args.floor_char_boundary(SHOWN_ARGUMENTS);
    let cut = if end < args.len() { " …" } else { "" };
    let shown = args.get(..end).unwrap_or_default();
    format!("a hook changed the arguments of this call to {shown}{cut}")
}

/// Behind the result, so that a model and a person read it as no part of it.
fn with_remark(mut result: CallResult, remark: String) -> CallResult {
    match &mut result.content {
        Ok(output) => output.remarks.push(remark),
        Err(text) => {
            text.push('\n');
            text.push_str(&remark);
        }
    }
    result
}

/// The word that hooks written for other agents know a mode by.
fn known_mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Plan => "plan",
        Mode::Ask => "default",
        Mode::Edits => "acceptEdits",
        Mode::Auto => "auto",
        Mode::Bypass => "bypassPermissions",
    }
}
