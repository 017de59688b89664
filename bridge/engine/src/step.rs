//! One step: the request, its stream, and the message that comes of it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use terret_log::{Part, Payload, Severity, StepUsage, TextStream};
use terret_models::{
    BadToolCall, ModelError, ModelName, Provider, Registry, Request, StopReason, StreamEvent,
    ThinkingLevel, ToolSpec, Usage,
};
use terret_tools::call::{Call, Fault};
use terret_tools::table::Table;
use tokio_util::sync::CancellationToken;

use crate::core::Core;
use crate::policy::SessionPolicy;
use crate::request::{check_invariant, conversation, logged_schemas};
use crate::system_prompt::system_prompt;
use crate::turn::TurnParts;

/// A call whose name no provider would take back is stored under this one (case R057).
const INVALID_NAME: &str = "invalid_tool_name";

/// Repeats of a call id that get a small number behind it.
const FEW_REPEATS: u64 = 10;

/// What to do when no model is configured.
pub(crate) const NO_MODEL: &str = "set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name a model in config.toml as `model = \"provider:model\"`";

/// The models that a session can reach.
pub(crate) struct Models {
    pub registry: Arc<std::sync::RwLock<Arc<Registry>>>,
    pub tools: Arc<[ToolSpec]>,
}

/// A model that was found, with its full name.
pub(crate) struct Resolved {
    pub name: ModelName,
    pub provider: Arc<dyn Provider>,
}

/// How a step ended, before its tools ran.
pub(crate) enum StepEnd {
    Calls {
        calls: Vec<Call>,
        usage: Option<StepUsage>,
    },
    Answered {
        usage: Option<StepUsage>,
    },
    OutputLimit {
        usage: Option<StepUsage>,
    },
    Refused {
        usage: Option<StepUsage>,
    },
    Cancelled {
        usage: Option<StepUsage>,
    },
    Failed {
        reason: String,
    },
}

impl Models {
    /// The specs of a table's tools, as models are shown them.
    pub(crate) fn specs(table: &Table) -> Arc<[ToolSpec]> {
        table
            .specs()
            .into_iter()
            .map(|spec| ToolSpec {
                name: spec.name,
                description: spec.description,
                parameters: spec.parameters,
            })
            .collect()
    }

    /// The session's model of this moment.
    pub(crate) fn resolve(
        &self,
        core: &Core,
        policy: &SessionPolicy,
    ) -> Result<Resolved, ModelError> {
        let name = model_of(core, policy).ok_or_else(|| ModelError::NoModel {
            way_out: NO_MODEL.to_owned(),
        })?;
        let registry = Arc::clone(
            &self
                .registry
                .read()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        Ok(Resolved {
            provider: registry.resolve(&name)?,
            name,
        })
    }
}

/// The model that a session uses: its own choice, else the configured one.
pub(crate) fn model_of(core: &Core, policy: &SessionPolicy) -> Option<ModelName> {
    core.state(|state| {
        state
            .options
            .get("model")
            .and_then(|name| name.parse().ok())
    })
    .or_else(|| policy.settings().model.clone())
}

/// The thinking level that a session uses.
pub(crate) fn thinking_of(core: &Core, policy: &SessionPolicy) -> ThinkingLevel {
    core.state(|state| {
        state
            .options
            .get("thinking")
            .and_then(|level| ThinkingLevel::named(level))
    })
    .unwrap_or(policy.settings().thinking)
}

/// Makes the request, follows its stream into the log, and says what it asks for.
pub(crate) async fn run(
    parts: &TurnParts,
    model: &Resolved,
    cancel: &CancellationToken,
) -> Result<StepEnd, Fault> {
    let request = match cancel.run_until_cancelled(prepare(parts, model)).await {
        Some(Ok(request)) => request,
        Some(Err(PrepareError::Fault(fault))) => return Err(fault),
        Some(Err(PrepareError::Refused(reason))) => return Ok(StepEnd::Failed { reason }),
        None => return Ok(StepEnd::Cancelled { usage: None }),
    };
    let mut stream = model.provider.stream(request);
    let mut message = Assembler::new(&model.name.provider, parts.core.scrubber().stream());
    loop {
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                drop(stream);
                let usage = message.keep_partial(&parts.core)?;
                return Ok(StepEnd::Cancelled { usage });
            }
            event = stream.next() => event,
        };
        match event {
            Some(Ok(StreamEvent::Stop(stop))) => return message.finish(&parts.core, stop),
            Some(Ok(event)) => message.take(&parts.core, event)?,
            Some(Err(error)) => {
                message.keep_partial(&parts.core)?;
                return Ok(StepEnd::Failed {
                    reason: error.to_string(),
                });
            }
            None => {
                message.keep_partial(&parts.core)?;
                let reason = format!(
                    "the stream of `{}` ended without its end mark",
                    model.name.provider
                );
                return Ok(StepEnd::Failed { reason });
            }
        }
    }
}

enum PrepareError {
    Fault(Fault),
    Refused(String),
}

impl From<Fault> for PrepareError {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

async fn prepare(parts: &TurnParts, model: &Resolved) -> Result<Request, PrepareError> {
    let core = &parts.core;
    let settings = parts.policy.settings();
    let (system, tools) = scrubbed_frame(
        core,
        system_prompt(core, &parts.pipeline.world, &parts.policy),
        &parts.models.tools,
    );
    let digest = terret_models::frame_digest(&system, &tools);
    if core.state(|state| state.frame.as_ref().map(|frame| frame.digest)) != Some(digest) {
        core.append(Payload::RequestFrame {
            system: system.to_string(),
            tools: logged_schemas(&tools),
        })?;
    }
    let conversation = conversation(core).await?;
    let mut request = Request {
        model: model.name.model.clone(),
        system,
        tools,
        conversation,
        thinking: thinking_of(core, &parts.policy),
        max_output: settings.limits.max_output,
    };
    for hook in &parts.hooks {
        request = hook.before_request(request).await;
    }
    core.state(|state| check_invariant(&request, state))
        .map_err(|violation| PrepareError::Refused(violation.to_string()))?;
    Ok(request)
}

/// The frame as the log will hold it, so that the model is sent nothing else.
fn scrubbed_frame(
    core: &Core,
    system: String,
    tools: &Arc<[ToolSpec]>,
) -> (Arc<str>, Arc<[ToolSpec]>) {
    let scrubber = core.scrubber();
    let system = scrubber.text(&system).into();
    let clean = |tool: &ToolSpec| ToolSpec {
        name: scrubber.text(&tool.name).into_owned(),
        description: scrubber.text(&tool.description).into_owned(),
        parameters: scrubber.value(&tool.parameters),
    };
    let clean: Vec<ToolSpec> = tools.iter().map(clean).collect();
    if clean[..] == tools[..] {
        (system, Arc::clone(tools))
    } else {
        (system, clean.into())
    }
}

/// Builds the assistant message while its pieces are logged.
struct Assembler<'a> {
    provider: &'a str,
    parts: Vec<Part>,
    /// Holds back what may become a secret, of the text or the thinking that is open.
    scrubbed: TextStream,
    text: String,
    thinking: String,
    /// Whether it is thinking that is open.
    thinks: bool,
    calls: Vec<Call>,
    usage: Option<Usage>,
}

impl<'a> Assembler<'a> {
    fn new(provider: &'a str, scrubbed: TextStream) -> Self {
        Self {
            provider,
            parts: Vec::new(),
            scrubbed,
            text: String::new(),
            thinking: String::new(),
            thinks: false,
            calls: Vec::new(),
            usage: None,
        }
    }

    fn take(&mut self, core: &Core, event: StreamEvent) -> Result<(), Fault> {
        match event {
            StreamEvent::Text(text) => {
                if text.is_empty() {
                    return Ok(());
                }
                self.close_thinking(core, None)?;
                let text = self.scrubbed.push(&text);
                self.say(core, text)?;
            }
            StreamEvent::Thinking(text) => {
                if text.is_empty() {
                    return Ok(());
                }
                self.close_text(core)?;
                self.thinks = true;
                let text = self.scrubbed.push(&text);
                self.think(core, text)?;
            }
            StreamEvent::ThinkingEnd { signature } => self.close_thinking(core, signature)?,
            StreamEvent::ToolCallStart { .. } | StreamEvent::ToolCallDelta { .. } => {}
            StreamEvent::ToolCallEnd(call) => self.add_call(core, call)?,
            StreamEvent::Usage(usage) => self.usage = Some(usage),
            StreamEvent::Retry {
                attempt,
                delay,
                reason,
            } => {
                core.append(Payload::NoticeShown {
                    severity: Severity::Warning,
                    text: format!(
                        "{reason}; trying again in {} (try {attempt})",
                        seconds(delay)
                    ),
                })?;
            }
            // Ends the loop before it comes here.
            StreamEvent::Stop(_) => {}
        }
        Ok(())
    }

    fn add_call(
        &mut self,
        core: &Core,
        call: Result<terret_models::ToolCall, BadToolCall>,
    ) -> Result<(), Fault> {
        self.close_text(core)?;
        self.close_thinking(core, None)?;
        let (id, name, args) = match call {
            Ok(call) => (call.id, call.name, Ok(call.args)),
            Err(bad) => (bad.id, bad.name, Err(bad.problem)),
        };
        let id = self.unique_id(core, id);
        let (name, args) = if valid_name(&name) {
            (name, args)
        } else {
            (
                INVALID_NAME.to_owned(),
                Err("the tool name is not one that exists".to_owned()),
            )
        };
        self.parts.push(Part::ToolCall {
            id: id.clone(),
            name: name.clone(),
            args: args.clone().unwrap_or_else(|_| serde_json::json!({})),
        });
        self.calls.push(Call { id, name, args });
        Ok(())
    }

    /// Providers repeat ids, some in each answer; ours are unique in the session, so
    /// that every call, approval and card can be told apart (check 77, 97, 100).
    fn unique_id(&self, core: &Core, id: String) -> String {
        let base = if id.is_empty() { "call".to_owned() } else { id };
        let taken = |id: &str| {
            self.calls.iter().any(|call| call.id == id)
                || core.state(|state| state.call_ids.contains(id))
        };
        if !taken(&base) {
            return base;
        }
        // A few small numbers, then one that can hardly be taken: a provider that calls
        // all its calls alike must not make each cost more than the one before it.
        (2..FEW_REPEATS)
            .chain(core.next_seq()..)
            .map(|n: u64| format!("{base}-{n}"))
            .find(|id| !taken(id))
            .unwrap_or(base)
    }

    /// Takes text that was let go; the message will hold exactly what the chunks did.
    fn say(&mut self, core: &Core, text: String) -> Result<(), Fault> {
        if !text.is_empty() {
            self.text.push_str(&text);
            core.append(Payload::AssistantChunk { text })?;
        }
        Ok(())
    }

    fn think(&mut self, core: &Core, text: String) -> Result<(), Fault> {
        if !text.is_empty() {
            self.thinking.push_str(&text);
            core.append(Payload::AssistantThought { text })?;
        }
        Ok(())
    }

    fn close_text(&mut self, core: &Core) -> Result<(), Fault> {
        // What is held back belongs to the thinking, which is closed on its own.
        if self.thinks {
            return Ok(());
        }
        let rest = self.scrubbed.finish();
        self.scrubbed.take_redacted();
        self.say(core, rest)?;
        if !self.text.is_empty() {
            self.parts.push(Part::Text {
                text: std::mem::take(&mut self.text),
            });
        }
        Ok(())
    }

    fn close_thinking(&mut self, core: &Core, signature: Option<String>) -> Result<(), Fault> {
        if self.thinks {
            let rest = self.scrubbed.finish();
            self.think(core, rest)?;
            self.thinks = false;
        }
        // A signature vouches for the text as it was: a provider would refuse both.
        let signature = signature.filter(|_| !self.scrubbed.take_redacted());
        if !self.thinking.is_empty() || signature.is_some() {
            self.parts.push(Part::Thinking {
                text: std::mem::take(&mut self.thinking),
                signature,
                provider: self.provider.to_owned(),
            });
        }
        Ok(())
    }

    fn finish(mut self, core: &Core, stop: StopReason) -> Result<StepEnd, Fault> {
        self.close_text(core)?;
        self.close_thinking(core, None)?;
        let usage = self.step_usage();
        core.append(Payload::AssistantMessage {
            parts: self.parts,
            partial: false,
        })?;
        Ok(match stop {
            StopReason::Refusal => StepEnd::Refused { usage },
            _ if !self.calls.is_empty() => StepEnd::Calls {
                calls: self.calls,
                usage,
            },
            StopReason::Length => StepEnd::OutputLimit { usage },
            StopReason::End | StopReason::ToolUse => StepEnd::Answered { usage },
        })
    }

    /// Keeps what was said before a cancel or a break. Thinking without its signature
    /// and calls that nobody will run stay out of the history (case R054).
    fn keep_partial(mut self, core: &Core) -> Result<Option<StepUsage>, Fault> {
        self.close_text(core)?;
        self.close_thinking(core, None)?;
        let parts: Vec<Part> = self
            .parts
            .iter()
            .filter(|part| matches!(part, Part::Text { .. }))
            .cloned()
            .collect();
        if !parts.is_empty() {
            core.append(Payload::AssistantMessage {
                parts,
                partial: true,
            })?;
        }
        Ok(self.step_usage())
    }

    fn step_usage(&self) -> Option<StepUsage> {
        self.usage.map(|usage| StepUsage {
            prompt_tokens: usage.input,
            completion_tokens: usage.output,
            cached_read_tokens: usage.cached_read,
            cached_write_tokens: usage.cached_write,
            thought_tokens: usage.thinking,
            cost: usage.cost,
        })
    }
}

/// What every provider takes as a tool's name.
fn valid_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-')
}

fn seconds(delay: Duration) -> String {
    format!("{:.1} s", delay.as_secs_f64())
}
