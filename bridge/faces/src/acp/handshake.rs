//! `initialize` and `authenticate`: what the client can do, and what we say of ourselves.

use serde_json::Value;
use terret_acp::schema::ProtocolVersion;
use terret_acp::schema::v1;
use terret_acp::{RawParams, RpcError, params};
use terret_engine::Engine;

use super::FaceSettings;
use super::clients::{self, Habits};

/// The id of the way to sign in that always is there.
pub(crate) const KEY_METHOD: &str = "api-key";
/// The id of the way to sign in through the client's terminal.
pub(crate) const TERMINAL_METHOD: &str = "terminal";

/// What a client said of itself, and what we know of it.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub habits: Habits,
    pub reads_files: bool,
    pub writes_files: bool,
    /// `plan_update` in the place of `plan` (`ACP plan operations`).
    pub plan_updates: bool,
    pub notices: bool,
    /// Runs a program in a terminal for signing in.
    pub auth_terminal: bool,
    /// Nobody is there to answer a question (our own headless client says so).
    pub unattended: bool,
    /// Shows forms (`ACP elicitation/create`).
    pub forms: bool,
    /// Shows `_meta.terminal_output` as a terminal (Zed's convention).
    pub terminal_output: bool,
    /// Runs programs in terminals, and config lets commands be shown there.
    pub terminals: bool,
}

impl Client {
    /// Reads `initialize` as leniently as real clients need (R116): nothing but the version
    /// is required, and a capability of a wrong type is one that is not there.
    ///
    /// # Errors
    /// -32602 when the version is missing or no number.
    pub(crate) fn read(raw: &RawParams) -> Result<Self, RpcError> {
        params::protocol_version(raw)?;
        let said = raw.to_value()?;
        let name = said.pointer("/clientInfo/name").and_then(Value::as_str);
        let flag = |path: &str| said.pointer(path).and_then(Value::as_bool).unwrap_or(false);
        let marker = |path: &str| said.pointer(path).is_some_and(Value::is_object);
        let habits = clients::habits(name);
        Ok(Self {
            habits,
            reads_files: flag("/clientCapabilities/fs/readTextFile"),
            writes_files: flag("/clientCapabilities/fs/writeTextFile"),
            plan_updates: marker("/clientCapabilities/plan") && habits.reads_plan_updates,
            notices: marker("/clientCapabilities/session/notices"),
            auth_terminal: flag("/clientCapabilities/auth/terminal"),
            unattended: flag("/clientCapabilities/_meta/terret/unattended"),
            forms: marker("/clientCapabilities/elicitation/form"),
            terminal_output: flag("/clientCapabilities/_meta/terminal_output"),
            terminals: flag("/clientCapabilities/terminal"),
        })
    }
}

/// The answer to `initialize`. The version is always ours: a client that asks for another
/// one decides whether it can go on (`ACP-INIT-003`). Nothing is promised that does not work.
pub(crate) fn response(
    engine: &Engine,
    client: &Client,
    settings: &FaceSettings,
) -> v1::InitializeResponse {
    let sessions = v1::SessionCapabilities::new()
        .list(v1::SessionListCapabilities::new())
        .delete(v1::SessionDeleteCapabilities::new())
        .resume(v1::SessionResumeCapabilities::new())
        .close(v1::SessionCloseCapabilities::new())
        .additional_directories(v1::SessionAdditionalDirectoriesCapabilities::new());
    let capabilities = v1::AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(
            v1::PromptCapabilities::new()
                .image(engine.takes_images())
                .embedded_context(true),
        )
        .session_capabilities(sessions);
    v1::InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(capabilities)
        .auth_methods(auth_methods(client, settings))
        .agent_info(
            v1::Implementation::new("terret", settings.version.clone()).title("Terret".to_owned()),
        )
}

/// At least one valid entry, whatever the client can do: registries refuse an agent without.
fn auth_methods(client: &Client, settings: &FaceSettings) -> Vec<v1::AuthMethod> {
    let key =
        v1::AuthMethodAgent::new(KEY_METHOD, "API key").description(settings.key_hint.clone());
    let mut methods = vec![v1::AuthMethod::Agent(key)];
    if client.auth_terminal
        && let Some(arguments) = &settings.sign_in_arguments
    {
        let terminal = v1::AuthMethodTerminal::new(TERMINAL_METHOD, "Set up in a terminal")
            .args(arguments.clone())
            .description("Choose a provider and store its key".to_owned());
        methods.push(v1::AuthMethod::Terminal(terminal));
    }
    methods
}

/// `authenticate`: keys are not given through the protocol, so this checks that one is there.
///
/// # Errors
/// -32602 for a way that was not offered, -32000 with the line that helps when no key is there.
pub(crate) fn authenticate(
    engine: &Engine,
    raw: &RawParams,
) -> Result<v1::AuthenticateResponse, RpcError> {
    let request: v1::AuthenticateRequest = raw.parse()?;
    if request.method_id.0.as_ref() != KEY_METHOD {
        return Err(RpcError::invalid_params(format!(
            "`methodId` must be `{KEY_METHOD}`"
        )));
    }
    match engine.ready() {
        Ok(()) => Ok(v1::AuthenticateResponse::new()),
        Err(error) => Err(RpcError::auth_required(error.to_string())),
    }
}
