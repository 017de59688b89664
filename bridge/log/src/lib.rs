//! The durable log of a session: events, store, index and the projections that read it.
//!
//! A session is one append-only file of JSON lines bound by a hash chain ([`Store`],
//! [`SessionLog`]). What the model sees, what the editor sees, the plan, usage and
//! pending approvals are folds of it ([`SessionState`], [`editor::EditorFold`]) that
//! take one event at a time, so that a step costs the same at any length of the log.

pub mod blob;
pub mod catalogue;
mod clock;
mod error;
pub mod event;
mod fork;
mod hex;
pub mod id;
mod index;
mod layer;
mod line;
mod lock;
mod open;
mod platform;
pub mod projection;
mod reader;
mod refs;
mod scrub;
mod session_log;
mod store;
pub mod strict_json;
mod sync;
mod transfer;
mod verify;

pub use blob::{BlobId, Blobs, MAX_BLOB_BYTES};
pub use catalogue::{PayloadError, catalogue, events_page};
pub use clock::{Clock, SystemClock, moment};
pub use error::{AppendError, BlobError, StoreError};
pub use event::{
    Allowance, ApprovalStage, Event, FileChange, GrantScope, ImageRef, InjectedBy, JobOutcome,
    Part, Payload, PromptBlock, RuleEffect, Severity, StepUsage, ToolSchema, TurnStatus, Verdict,
};
pub use id::{BadSessionId, SessionId};
pub use index::{Index, JobRow, Page, PendingRow, RuleUse, SearchHit, SessionFilter, SessionRow};
pub use layer::{FileLayer, RealFiles};
pub use line::{FORMAT_VERSION, MAX_LINE_BYTES};
pub use projection::editor::{self, EditorFold, EditorItem};
pub use projection::{
    Created, FrameContent, History, HistoryMessage, HistoryPart, HistoryRole, JobEnd, JobRecord,
    Jobs, OpenTurn, OwedCall, PendingApproval, PendingApprovals, Plan, PlanEntry, PlanStatus,
    RecordedVerdict, RequestFrame, SessionRule, SessionRules, SessionState, TurnState, UsageTotals,
};
pub use reader::EventReader;
pub use scrub::{BadPattern, REPLACEMENT, SHORTEST_SECRET, Scrubber, TextStream};
pub use session_log::SessionLog;
pub use store::Store;
pub use sync::Syncer;
pub use transfer::{Exported, Imported};
pub use verify::{Problem, Report};
