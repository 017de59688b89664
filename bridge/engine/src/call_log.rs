//! The pipeline's journal over a session's log.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use terret_log::{Allowance, ImageRef, Payload};
use terret_tools::call::{Allowed, Call, CallJournal, CallResult, Fault, FileChange, ImageBytes};
use terret_tools::definition::{Definition, Replay};
use terret_tools::mode::Mode;
use terret_tools::world::jobs::{Job, JobId, Jobs};

use crate::approvals::stored_change;
use crate::core::Core;
use crate::jobs::{ended_event, started_event};
use crate::policy::{SessionPolicy, mode_of};

pub(crate) struct CallLog {
    pub(crate) core: Arc<Core>,
    pub(crate) jobs: Arc<dyn Jobs>,
    pub(crate) policy: Arc<SessionPolicy>,
}

#[async_trait]
impl CallJournal for CallLog {
    async fn called(&self, call: &Call) -> Result<(), Fault> {
        // A resumed call may have been announced before the crash (check 67).
        let announced = self.core.state(|state| {
            state.turn.open.as_ref().is_some_and(|open| {
                open.owed
                    .iter()
                    .any(|owed| owed.id == call.id && owed.announced)
            })
        });
        if announced {
            return Ok(());
        }
        self.core.append(Payload::ToolCall {
            id: call.id.clone(),
            name: call.name.clone(),
            // What did not parse is told in the result; the log holds JSON alone.
            args: call.args.clone().unwrap_or_else(|_| serde_json::json!({})),
        })?;
        Ok(())
    }

    async fn started(
        &self,
        call: &Call,
        definition: &Definition,
        allowed: &Allowed,
    ) -> Result<(), Fault> {
        let payload = Payload::ToolStarted {
            id: call.id.clone(),
            allowed: Some(match allowed {
                Allowed::Rule(rule) => Allowance::Rule {
                    layer: rule.scope.name().to_owned(),
                    rule: rule.text().to_owned(),
                },
                Allowed::Approval => Allowance::Approval,
                Allowed::Mode(mode) => Allowance::Mode {
                    mode: mode.name().to_owned(),
                },
                Allowed::Tool => Allowance::Tool,
                Allowed::Hook => Allowance::Hook,
            }),
        };
        self.core.append_for_call(&call.id, payload)?;
        if definition.replay != Replay::Safe {
            // A power cut must not forget that an effect which cannot be repeated began.
            durable(&self.core).await?;
        }
        Ok(())
    }

    fn mode(&self) -> Mode {
        let settings = self.policy.settings();
        self.core.state(|state| mode_of(&settings, state))
    }

    fn output(&self, call_id: &str, text: &str) {
        if let Err(fault) = self.core.append_output(call_id, text) {
            // When the log is at fault, the next append of the turn fails too, and ends it.
            tracing::warn!(%fault, "live output was not logged");
        }
    }

    fn file_seen(&self, call_id: &str, path: &Path, hash: &str) {
        let payload = Payload::FileSeen {
            call_id: call_id.to_owned(),
            path: path.to_string_lossy().into_owned(),
            hash: hash.to_owned(),
        };
        if let Err(fault) = self.core.append_for_call(call_id, payload) {
            tracing::warn!(%fault, "a read was not logged");
        }
    }

    fn seen(&self, path: &Path) -> Option<String> {
        let path = path.to_string_lossy();
        let path = self.core.scrubber().place(&path);
        self.core
            .state(|state| state.seen_files.get(path.as_ref()).cloned())
    }

    async fn file_changing(&self, call_id: &str, change: &FileChange) -> Result<(), Fault> {
        let (core, change) = (Arc::clone(&self.core), change.clone());
        let stored = tokio::task::spawn_blocking(move || stored_change(&core, &change))
            .await
            .map_err(|error| {
                Fault(format!("keeping a file's content was interrupted: {error}"))
            })??;
        let payload = Payload::FileChanged {
            call_id: call_id.to_owned(),
            change: stored,
        };
        self.core.append_for_call(call_id, payload)?;
        Ok(())
    }

    async fn job_started(&self, call_id: &str, job: &Job) -> Result<(), Fault> {
        // Whoever repeats a call finds its job, which was logged before the crash.
        let known = self
            .core
            .state(|state| state.jobs.get(job.id.as_str()).is_some());
        if !known {
            let payload = started_event(call_id, job);
            self.core.append_for_call(call_id, payload)?;
        }
        durable(&self.core).await
    }

    fn job_cursor(&self, id: &JobId) -> u64 {
        self.core.state(|state| state.jobs.cursor(id.as_str()))
    }

    fn job_collected_out(&self, id: &JobId) -> bool {
        self.core
            .state(|state| state.jobs.collected_out(id.as_str()))
    }

    async fn job_collecting(
        &self,
        call_id: &str,
        id: &JobId,
        upto: u64,
        ended: bool,
    ) -> Result<(), Fault> {
        let payload = Payload::JobCollected {
            call_id: call_id.to_owned(),
            id: id.as_str().to_owned(),
            upto,
            ended,
        };
        self.core.append_for_call(call_id, payload)?;
        Ok(())
    }

    async fn finished(&self, call: &Call, result: &CallResult) -> Result<(), Fault> {
        let (content, error, images) = match &result.content {
            Ok(output) => (Some(output.render()), None, output.images.as_slice()),
            Err(text) => (None, Some(text.clone()), &[][..]),
        };
        let payload = Payload::ToolResult {
            id: call.id.clone(),
            content,
            error,
            images: kept_images(&self.core, images).await?,
        };
        let collected = self.core.state(|state| state.jobs.collecting_out(&call.id));
        self.core.append_for_call(&call.id, payload)?;
        if result.content.is_ok() {
            self.forget(collected).await?;
        }
        Ok(())
    }
}

impl CallLog {
    /// Lets go of jobs that were collected to their ends: the log has all that was theirs.
    async fn forget(&self, collected: Vec<String>) -> Result<(), Fault> {
        if collected.is_empty() {
            return Ok(());
        }
        let jobs = self.jobs.list().await.unwrap_or_default();
        for job in jobs
            .iter()
            .filter(|job| collected.iter().any(|id| id == job.id.as_str()))
        {
            // Its end may have been collected before it was heard of.
            self.core.append_if(|state| ended_event(state, job))?;
            self.jobs.forget(&job.id).await;
        }
        Ok(())
    }
}

async fn durable(core: &Core) -> Result<(), Fault> {
    core.syncer()
        .sync()
        .await
        .map_err(|error| Fault(format!("the log could not be made durable: {error}")))
}

/// Keeps the images of a result as blobs, off the runtime.
async fn kept_images(core: &Core, images: &[ImageBytes]) -> Result<Vec<ImageRef>, Fault> {
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let (blobs, images) = (core.store().blobs().clone(), images.to_vec());
    let kept = tokio::task::spawn_blocking(move || {
        images
            .into_iter()
            .map(|image| {
                let blob = blobs.put(&image.bytes)?;
                Ok(ImageRef {
                    mime_type: image.mime_type,
                    blob,
                })
            })
            .collect::<Result<Vec<_>, terret_log::BlobError>>()
    })
    .await
    .map_err(|error| Fault(format!("keeping an image was interrupted: {error}")))?;
    kept.map_err(|error| Fault(format!("an image could not be kept: {error}")))
}
