//! The engine: all live sessions of a process, and the way to those at rest.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use terret_log::{
    Clock, Index, Page, Payload, Scrubber, SessionFilter, SessionId, SessionLog, SessionState,
    Store,
};
use terret_models::Registry;
use terret_tools::call::Tool;
use terret_tools::pipeline::{CallHook, Pipeline};
use terret_tools::table::Table;
use terret_tools::world::jobs::{JobsSettings, listing};
use terret_tools::world::sandbox::Sandbox;
use terret_tools::world::sandbox::choice::{self, SandboxSettings};
use terret_tools::world::{Environment, World, WorldSettings};

use crate::approvals::{Approvals, NobodyAsked};
use crate::call_log::CallLog;
use crate::core::Core;
use crate::denied_files::DeniedFiles;
use crate::editor_slot::EditorSlot;
use crate::error::EngineError;
use crate::external_hooks::ExternalHooks;
use crate::grants::project_root;
use crate::hooks::TurnHook;
use crate::inbox::Inbox;
use crate::job_watch::JobWatch;
use crate::policy::SessionPolicy;
use crate::project_rules::Projects;
use crate::session::{SessionHandle, SessionParts, Shared};
use crate::settings::{Places, Settings};
use crate::step::Models;
use crate::trust::ProjectTrust;
use crate::turn::TurnParts;

/// What an engine is made of.
pub struct EngineParts {
    pub places: Places,
    pub settings: Settings,
    pub registry: Registry,
    pub clock: Arc<dyn Clock>,
    /// Keeps secrets out of all that sessions store and show.
    pub scrubber: Scrubber,
    pub table: Table,
    pub call_hooks: Vec<Arc<dyn CallHook>>,
    pub turn_hooks: Vec<Arc<dyn TurnHook>>,
}

/// An engine. Cheap to clone; [`Engine::shutdown`] ends it.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    places: Places,
    clock: Arc<dyn Clock>,
    scrubber: Scrubber,
    settings: RwLock<Arc<Settings>>,
    /// The sandbox of all sessions, with what it was made from.
    sandbox: Mutex<(SandboxSettings, Arc<dyn Sandbox>)>,
    registry: Shared<Registry>,
    table: Arc<Table>,
    tools: Arc<[terret_models::ToolSpec]>,
    call_hooks: Vec<Arc<dyn CallHook>>,
    turn_hooks: Vec<Arc<dyn TurnHook>>,
    sessions: Mutex<Sessions>,
    projects: Projects,
    /// Opened at the first use: starting up costs no look at the disk.
    store: Mutex<Option<Store>>,
    index: Mutex<Option<Index>>,
}

#[derive(Default)]
struct Sessions {
    live: HashMap<SessionId, SessionHandle>,
    /// One opening, closing or deleting at a time for each session: nobody opens one
    /// twice, or one whose log is still being given free.
    passages: HashMap<SessionId, Arc<tokio::sync::Mutex<()>>>,
    closed: bool,
}

/// The right to open or close one session.
struct Passage<'a> {
    engine: &'a Engine,
    id: SessionId,
    lock: Arc<tokio::sync::Mutex<()>>,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut sessions = self.engine.sessions();
        // The map's and this one: nobody waits, and nobody can come while it is locked.
        if Arc::strong_count(&self.lock) <= 2 {
            sessions.passages.remove(&self.id);
        }
    }
}

impl Engine {
    /// Makes an engine. Touches neither disk nor network.
    pub fn new(parts: EngineParts) -> Self {
        let tools = Models::specs(&parts.table);
        Self(Arc::new(Inner {
            places: parts.places,
            clock: parts.clock,
            scrubber: parts.scrubber,
            sandbox: Mutex::new((
                parts.settings.sandbox.clone(),
                choice::provider(&parts.settings.sandbox),
            )),
            settings: RwLock::new(Arc::new(parts.settings)),
            registry: Arc::new(RwLock::new(Arc::new(parts.registry))),
            table: Arc::new(parts.table),
            tools,
            call_hooks: parts.call_hooks,
            turn_hooks: parts.turn_hooks,
            sessions: Mutex::default(),
            projects: Projects::default(),
            store: Mutex::new(None),
            index: Mutex::new(None),
        }))
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(
            &self
                .0
                .settings
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// The models in force.
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(
            &self
                .0
                .registry
                .read()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// Whether the configured model could be asked at all.
    ///
    /// # Errors
    /// When no model is configured or its key is missing, with the way out.
    pub fn ready(&self) -> Result<(), terret_models::ModelError> {
        let settings = self.settings();
        let model = settings
            .model
            .clone()
            .ok_or_else(|| terret_models::ModelError::NoModel {
                way_out: crate::step::NO_MODEL.to_owned(),
            })?;
        self.registry().resolve(&model)?.ready()
    }

    /// Whether the main model takes images.
    pub fn takes_images(&self) -> bool {
        let settings = self.settings();
        settings.model.as_ref().is_some_and(|model| {
            self.registry()
                .resolve(model)
                .is_ok_and(|provider| provider.capabilities(&model.model).images)
        })
    }

    /// New settings and models, in force from the next call and request on (check 86).
    pub fn reconfigure(&self, settings: Settings, registry: Registry) {
        let settings = Arc::new(settings);
        *self
            .0
            .registry
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(registry);
        *self
            .0
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::clone(&settings);
        let before = Arc::clone(
            &self
                .0
                .sandbox
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .1,
        );
        let sandbox = self.sandbox(&settings.sandbox);
        for session in self.live_sessions() {
            if let Err(fault) = session.reconfigure(Arc::clone(&settings), Arc::clone(&sandbox)) {
                tracing::error!(%fault, "a session did not take the new settings");
            }
        }
        if !Arc::ptr_eq(&before, &sandbox)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // A container's end takes seconds; the runtime's own end waits for it.
            runtime.spawn_blocking(move || before.close());
        }
    }

    /// Takes up what other processes made of the rules of projects that have a live
    /// session. Waiting questions that they cover are settled.
    pub async fn freshen_rules(&self) {
        let projects = self.0.projects.live();
        let looked = tokio::task::spawn_blocking(move || {
            for project in projects {
                if let Err(error) = project.load() {
                    tracing::warn!(%error, "a project's rules are not in force");
                }
            }
        });
        if let Err(error) = looked.await {
            tracing::error!(%error, "the rules of projects could not be looked at");
        }
    }

    /// Starts a new session in `cwd`.
    ///
    /// # Errors
    /// When the folder cannot be worked in, the cap is reached, or the log cannot be made.
    pub async fn create_session(
        &self,
        cwd: PathBuf,
        additional_directories: Vec<PathBuf>,
    ) -> Result<SessionHandle, EngineError> {
        self.create_session_with(cwd, additional_directories, Vec::new())
            .await
    }

    /// As [`Engine::create_session`], with tools of the session's own beside those of the
    /// engine. They live as long as the session does and no other session sees them (check
    /// 87); the floor decides about them as about any other.
    ///
    /// # Errors
    /// As there, and when a tool bears a name that is taken.
    pub async fn create_session_with(
        &self,
        cwd: PathBuf,
        additional_directories: Vec<PathBuf>,
        tools: Vec<Arc<dyn Tool>>,
    ) -> Result<SessionHandle, EngineError> {
        self.check_room()?;
        let table = self.table_with(tools)?;
        let engine = self.clone();
        let (core, world, editor, denied) = blocking(move || {
            let editor = Arc::new(EditorSlot::default());
            let denied = Arc::new(DeniedFiles::default());
            let id = SessionId::generate();
            // The folder is checked first: a refused session leaves nothing behind.
            let world = engine.world(&id, &cwd, &additional_directories, &editor, &denied)?;
            let store = engine.store()?;
            let mut log = store.create(id)?;
            let created = log
                .append(Payload::SessionCreated {
                    parent_id: None,
                    root_id: None,
                    depth: 0,
                    call_id: None,
                    cwd: text(&cwd),
                    additional_directories: additional_directories
                        .iter()
                        .map(|path| text(path))
                        .collect(),
                })
                .map_err(|error| EngineError::Fault(error.to_string()))?;
            let mut state = SessionState::default();
            state.apply(&created);
            Ok((engine.core(store, log, state), world, editor, denied))
        })
        .await?;
        let id = core.id().clone();
        let jobs = JobWatch::new(Arc::clone(&core), Arc::clone(world.jobs()));
        let started = self.start(core, world, editor, &denied, table, jobs);
        if started.is_err() {
            // Others took the room meanwhile: a refused session leaves nothing behind.
            let engine = self.clone();
            blocking(move || Ok(engine.store()?.delete(&id)?)).await?;
        }
        started
    }

    /// Opens a session that was made before; a live one is given as it is.
    ///
    /// # Errors
    /// When there is no such session, another process holds it, it works in another
    /// folder, or its log is damaged.
    pub async fn open_session(
        &self,
        id: &SessionId,
        cwd: Option<PathBuf>,
        additional_directories: Option<Vec<PathBuf>>,
    ) -> Result<SessionHandle, EngineError> {
        let _passage = self.passage(id).await;
        let session = match self.session(id) {
            Some(session) => {
                if let Some(cwd) = cwd {
                    let is = session.world().cwd();
                    let id = id.clone();
                    blocking(move || in_folder(&id, &cwd, &is)).await?;
                }
                session
            }
            None => {
                self.open_at_rest(id, cwd, additional_directories.clone())
                    .await?
            }
        };
        if let Some(directories) = additional_directories {
            session.set_additional_directories(&directories).await?;
        }
        Ok(session)
    }

    /// Waits until nobody else opens, closes or deletes the session, and keeps the others
    /// waiting while the answer lives.
    async fn passage(&self, id: &SessionId) -> Passage<'_> {
        let mut passage = Passage {
            engine: self,
            id: id.clone(),
            lock: Arc::clone(self.sessions().passages.entry(id.clone()).or_default()),
            guard: None,
        };
        passage.guard = Some(Arc::clone(&passage.lock).lock_owned().await);
        passage
    }

    /// Opens a session from its files. What is asked of it is checked before it is live: a
    /// refused opening holds neither its log nor a place among the live ones.
    async fn open_at_rest(
        &self,
        id: &SessionId,
        cwd: Option<PathBuf>,
        additional_directories: Option<Vec<PathBuf>>,
    ) -> Result<SessionHandle, EngineError> {
        self.check_room()?;
        let (engine, id) = (self.clone(), id.clone());
        let (core, world, editor, denied) = blocking(move || {
            let store = engine.store()?;
            let (log, state) = store
                .open_writer(&id)
                .map_err(|error| opening_error(&id, error))?;
            if let Some(cwd) = cwd {
                in_folder(&id, &cwd, Path::new(&state.cwd))?;
            }
            let editor = Arc::new(EditorSlot::default());
            let denied = Arc::new(DeniedFiles::default());
            // Those of the last time may be gone; those that are asked for count.
            let directories: Vec<PathBuf> = additional_directories.unwrap_or_else(|| {
                state
                    .additional_directories
                    .iter()
                    .map(PathBuf::from)
                    .collect()
            });
            let world = engine.world(&id, Path::new(&state.cwd), &directories, &editor, &denied)?;
            Ok((engine.core(store, log, state), world, editor, denied))
        })
        .await?;
        // Listens before it looks, so that nothing ends in between unheard.
        let jobs = JobWatch::new(Arc::clone(&core), Arc::clone(world.jobs()));
        jobs.adopt().await;
        self.start(core, world, editor, &denied, self.own_table(), jobs)
    }

    /// A live session.
    pub fn session(&self, id: &SessionId) -> Option<SessionHandle> {
        self.sessions().live.get(id).cloned()
    }

    /// All live sessions.
    pub fn live_sessions(&self) -> Vec<SessionHandle> {
        self.sessions().live.values().cloned().collect()
    }

    /// Ends a live session: its turn closes as cancelled and what it ran is gone. The
    /// log stays.
    ///
    /// # Errors
    /// When there is no such session, live or at rest.
    pub async fn close_session(&self, id: &SessionId) -> Result<(), EngineError> {
        let _passage = self.passage(id).await;
        let session = self.sessions().live.remove(id);
        match session {
            Some(session) => {
                session.close().await;
                Ok(())
            }
            None => {
                let (engine, id) = (self.clone(), id.clone());
                blocking(move || {
                    if engine.store()?.exists(&id) {
                        Ok(())
                    } else {
                        Err(EngineError::UnknownSession(id))
                    }
                })
                .await
            }
        }
    }

    /// Deletes a session with its jobs and the outputs of its commands; one that does not
    /// exist counts as deleted (`ACP session/delete`).
    ///
    /// # Errors
    /// When another process holds it, or its files cannot be removed.
    pub async fn delete_session(&self, id: &SessionId) -> Result<(), EngineError> {
        let _passage = self.passage(id).await;
        let session = self.sessions().live.remove(id);
        if let Some(session) = session {
            session.close().await;
        }
        let (engine, id) = (self.clone(), id.clone());
        blocking(move || {
            engine.store()?.delete(&id)?;
            // Also those of a session that no engine had open, and those to be kept: with
            // their session nobody knows of them any more.
            let jobs = engine.0.places.jobs().join(id.as_str());
            listing::discard(&jobs).map_err(|error| {
                EngineError::Fault(format!(
                    "the session is deleted, but not its jobs in `{}`: {error}",
                    text(&jobs)
                ))
            })?;
            // What its commands said is as private as the session was.
            let outputs = engine.0.places.scratch.join(id.as_str());
            terret_tools::world::discard(&outputs).map_err(|error| {
                EngineError::Fault(format!(
                    "the session is deleted, but not its outputs in `{}`: {error}",
                    text(&outputs)
                ))
            })
        })
        .await
    }

    /// Sessions, newest first, live ones and those at rest.
    ///
    /// # Errors
    /// When the cursor is unknown or the index cannot be read.
    pub async fn list_sessions(&self, filter: SessionFilter) -> Result<Page, EngineError> {
        self.with_index(move |index| index.list(&filter)).await
    }

    /// Runs a query on the index after it has caught up with all logs.
    ///
    /// # Errors
    /// When the index cannot be read.
    pub async fn with_index<R: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Index) -> Result<R, terret_log::StoreError> + Send + 'static,
    ) -> Result<R, EngineError> {
        let engine = self.clone();
        blocking(move || {
            let store = engine.store()?;
            let mut slot = engine
                .0
                .index
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let index = match slot.as_mut() {
                Some(index) => index,
                None => slot.insert(Index::open(
                    engine.0.places.state.join("index.sqlite"),
                    store,
                )?),
            };
            index.refresh()?;
            Ok(query(index)?)
        })
        .await
    }

    /// Stops everything that runs and leaves open turns open, to be resumed. Called when
    /// the editor's pipe ends or a signal comes; what ran is gone afterwards.
    pub async fn shutdown(&self) {
        let sessions: Vec<SessionHandle> = {
            let mut sessions = self.sessions();
            sessions.closed = true;
            sessions.live.drain().map(|(_, session)| session).collect()
        };
        let stops = sessions.iter().map(SessionHandle::suspend);
        futures::future::join_all(stops).await;
        let sandbox = Arc::clone(
            &self
                .0
                .sandbox
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .1,
        );
        if tokio::task::spawn_blocking(move || sandbox.close())
            .await
            .is_err()
        {
            tracing::error!("the sandbox was not ended well");
        }
    }

    /// The sandbox for these settings: the one that is there, or a new one when they say
    /// another. Starts and looks for nothing yet.
    fn sandbox(&self, settings: &SandboxSettings) -> Arc<dyn Sandbox> {
        let mut held = self
            .0
            .sandbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if held.0 != *settings {
            *held = (settings.clone(), choice::provider(settings));
        }
        Arc::clone(&held.1)
    }

    /// The engine's own tools, and what models are told of them.
    fn own_table(&self) -> (Arc<Table>, Arc<[terret_models::ToolSpec]>) {
        (Arc::clone(&self.0.table), Arc::clone(&self.0.tools))
    }

    fn table_with(
        &self,
        tools: Vec<Arc<dyn Tool>>,
    ) -> Result<(Arc<Table>, Arc<[terret_models::ToolSpec]>), EngineError> {
        if tools.is_empty() {
            return Ok(self.own_table());
        }
        let mut table = (*self.0.table).clone();
        for tool in tools {
            table
                .add(tool)
                .map_err(|error| EngineError::Fault(error.to_string()))?;
        }
        let specs = Models::specs(&table);
        Ok((Arc::new(table), specs))
    }

    fn start(
        &self,
        core: Arc<Core>,
        world: Arc<World>,
        editor: Arc<EditorSlot>,
        denied: &DeniedFiles,
        (table, tools): (Arc<Table>, Arc<[terret_models::ToolSpec]>),
        jobs: JobWatch,
    ) -> Result<SessionHandle, EngineError> {
        let settings = self.settings();
        let home = settings.sandbox.ground.home.as_deref();
        let root = project_root(&world.cwd(), home);
        let policy = Arc::new(SessionPolicy::new(
            Arc::clone(&core),
            Arc::clone(&settings),
            self.0.projects.of(&self.0.places.state, &root),
            Arc::new(ProjectTrust::new(&self.0.places.state, root)),
            Arc::clone(&self.0.clock),
        ));
        denied.bind(world.cwd(), policy.shared());
        let judge = Pipeline {
            table,
            world: Arc::clone(&world),
            journal: Arc::new(CallLog {
                core: Arc::clone(&core),
                jobs: Arc::clone(world.jobs()),
                policy: Arc::clone(&policy),
            }),
            approver: Arc::new(NobodyAsked),
            policy: policy.shared(),
            hooks: self.0.call_hooks.clone(),
        };
        let external = Arc::new(ExternalHooks::new(
            Arc::clone(&core),
            Arc::clone(&world),
            Arc::clone(&policy),
        ));
        let approvals = Arc::new(Approvals::new(
            Arc::clone(&core),
            Arc::clone(&policy),
            judge.clone(),
        ));
        let pipeline = Pipeline {
            approver: Arc::clone(&approvals) as _,
            hooks: judge
                .hooks
                .iter()
                .cloned()
                .chain([Arc::clone(&external) as _])
                .collect(),
            ..judge
        };
        let turn = TurnParts {
            core: Arc::clone(&core),
            pipeline,
            approvals,
            external,
            policy,
            inbox: Arc::new(Inbox::default()),
            models: Models {
                registry: Arc::clone(&self.0.registry),
                tools,
            },
            hooks: self.0.turn_hooks.clone(),
        };
        let mut sessions = self.sessions();
        if sessions.closed {
            return Err(EngineError::Closed {
                id: core.id().clone(),
            });
        }
        if let Some(limit) = over_limit(&sessions, &self.settings()) {
            return Err(EngineError::TooManySessions { limit });
        }
        let session = SessionHandle::start(SessionParts {
            turn,
            world,
            editor,
            jobs,
        });
        sessions.live.insert(core.id().clone(), session.clone());
        drop(sessions);
        // New settings may have come in between; a narrower floor must not miss it.
        let now = self.settings();
        if !Arc::ptr_eq(&now, &settings)
            && let Err(fault) = session.reconfigure(Arc::clone(&now), self.sandbox(&now.sandbox))
        {
            tracing::error!(%fault, "a session did not take the new settings");
        }
        Ok(session)
    }

    fn core(&self, store: Store, log: SessionLog, state: SessionState) -> Arc<Core> {
        Arc::new(Core::new(store, log, state))
    }

    fn world(
        &self,
        id: &SessionId,
        cwd: &Path,
        additional_directories: &[PathBuf],
        editor: &Arc<EditorSlot>,
        denied: &Arc<DeniedFiles>,
    ) -> Result<Arc<World>, EngineError> {
        let settings = self.settings();
        World::new(WorldSettings {
            cwd: cwd.to_owned(),
            additional_directories: additional_directories.to_vec(),
            scratch: self.0.places.scratch.join(id.as_str()),
            denied: self.0.places.denied.clone(),
            editor: Some(Arc::clone(editor) as _),
            jobs: Some(JobsSettings {
                limit: settings.jobs.max,
                spool: settings.jobs.spool,
                total: settings.jobs.spool.saturating_mul(settings.jobs.max as u64),
                orphan_grace: settings.jobs.orphan_grace,
                ..JobsSettings::new(self.0.places.jobs().join(id.as_str()))
            }),
            editor_terminals: Some(Arc::clone(editor) as _),
            hooks: vec![Arc::clone(denied) as _],
            environment: Environment {
                keep: settings.environment_allow.clone(),
                hide: settings.environment_hide.clone(),
                ..Environment::default()
            },
            sandbox: Some(self.sandbox(&settings.sandbox)),
            web: settings.web.clone(),
            ..WorldSettings::default()
        })
        .map(Arc::new)
        .map_err(|error| EngineError::BadFolder {
            path: text(cwd),
            why: error.to_string(),
        })
    }

    fn store(&self) -> Result<Store, EngineError> {
        let mut slot = self.0.store.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = slot.as_ref() {
            return Ok(store.clone());
        }
        let store = Store::open(self.0.places.state.clone(), Arc::clone(&self.0.clock))?
            .with_scrubber(self.0.scrubber.clone());
        Ok(slot.insert(store).clone())
    }

    fn check_room(&self) -> Result<(), EngineError> {
        match over_limit(&self.sessions(), &self.settings()) {
            Some(limit) => Err(EngineError::TooManySessions { limit }),
            None => Ok(()),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.0
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn over_limit(sessions: &Sessions, settings: &Settings) -> Option<usize> {
    let limit = settings.limits.max_agents;
    (sessions.live.len() >= limit).then_some(limit)
}

fn opening_error(id: &SessionId, error: terret_log::StoreError) -> EngineError {
    match error {
        terret_log::StoreError::NotFound { .. } => EngineError::UnknownSession(id.clone()),
        terret_log::StoreError::Held { by, .. } => EngineError::Held { id: id.clone(), by },
        other => EngineError::Store(other),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A session is opened in its own folder only. Looks at the disk.
fn in_folder(id: &SessionId, asked: &Path, is: &Path) -> Result<(), EngineError> {
    if asked == is || terret_tools::world::same_folder(asked, is) {
        return Ok(());
    }
    Err(EngineError::OtherFolder {
        id: id.clone(),
        is: text(is),
        asked: text(asked),
    })
}

/// Runs what touches the disk off the runtime.
async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, EngineError> + Send + 'static,
) -> Result<R, EngineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| EngineError::Fault(error.to_string()))?
}
