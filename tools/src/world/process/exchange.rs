//! A program that is given some bytes and answers with some, such as a hook of the user's:
//! its input, output and errors are apart, nothing of it is cleaned, and each is bounded in
//! memory however much it writes. What it leaves running ends with it.

use std::time::Duration;

use rustix::fd::OwnedFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::oneshot;

use crate::helper::link::Streams;
use crate::world::process::tree::Strays;
use crate::world::process::{End, ProcessError, Processes, Program};

/// How long outputs are read after the tree's end: what is in the pipes is there already,
/// and only something that does not end although it was killed keeps them open.
const LAST_READ: Duration = Duration::from_secs(1);

/// What a program is given, and how much of its answer is kept.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Standard input, whole; one that does not read it may end without.
    pub input: Vec<u8>,
    /// Wall time until the tree is ended.
    pub timeout: Duration,
    /// Bytes kept of standard output.
    pub most_output: usize,
    /// Bytes kept of standard error.
    pub most_errors: usize,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub end: End,
    pub output: Kept,
    pub errors: Kept,
}

/// The beginning of what was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    pub bytes: Vec<u8>,
    /// Bytes that followed and were dropped.
    pub dropped: u64,
}

impl Processes {
    /// Runs a program to the end of its tree. [`Program::input`] is not used. A dropped
    /// future ends the tree, too. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`ProcessError`] when nothing ran, or its supervisor was lost.
    pub async fn exchange(
        &self,
        program: Program,
        exchange: Exchange,
    ) -> Result<Answered, ProcessError> {
        let stop = self.closing.child_token();
        let _stop = stop.clone().drop_guard();
        let mut prepared = self.prepare(program, false).await?;
        prepared.order.streams = Streams::Separate;
        let failed = |source| ProcessError::Supervisor { source };
        let (theirs_in, ours_in) = std::io::pipe().map_err(failed)?;
        let (ours_out, theirs_out) = std::io::pipe().map_err(failed)?;
        let (ours_err, theirs_err) = std::io::pipe().map_err(failed)?;
        let input = Sender::from_owned_fd(ours_in.into()).map_err(failed)?;
        let output = Receiver::from_owned_fd(ours_out.into()).map_err(failed)?;
        let errors = Receiver::from_owned_fd(ours_err.into()).map_err(failed)?;
        let strays = Strays {
            mark: prepared.mark,
            pipe: None,
        };
        let theirs: Vec<OwnedFd> = vec![theirs_in.into(), theirs_out.into(), theirs_err.into()];
        let launch = self.launch(prepared.order, theirs, strays, stop);
        let (tell, finished) = oneshot::channel();
        let timeout = exchange.timeout;
        self.keepers.spawn(async move {
            let mut owner = match launch.start().await {
                Ok(owner) => owner,
                Err(error) => {
                    let _ = tell.send(Err(error));
                    return;
                }
            };
            let outcome = owner.watch(Some(timeout), |_| {}).await;
            let _ = tell.send(outcome.map(|outcome| outcome.end));
            owner.rest().await;
        });
        let mut kept = (Kept::default(), Kept::default());
        let end = {
            let streams = async {
                tokio::join!(
                    give(input, &exchange.input),
                    keep(output, exchange.most_output, &mut kept.0),
                    keep(errors, exchange.most_errors, &mut kept.1),
                )
            };
            tokio::pin!(streams, finished);
            tokio::select! {
                end = &mut finished => {
                    let _read = tokio::time::timeout(LAST_READ, streams).await;
                    end
                }
                _closed = &mut streams => finished.await,
            }
        };
        let end = end.map_err(|_| ProcessError::Lost)??;
        let (output, errors) = kept;
        Ok(Answered {
            end,
            output,
            errors,
        })
    }
}

/// A program that does not want its input is no failure.
async fn give(mut pipe: Sender, bytes: &[u8]) {
    let _unread = pipe.write_all(bytes).await;
}

/// Reads to the end, so that the program never stands still, and keeps the beginning.
async fn keep(mut pipe: Receiver, most: usize, kept: &mut Kept) {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let read = match pipe.read(&mut chunk).await {
            Ok(0) | Err(_) => return,
            Ok(read) => read,
        };
        let fresh = chunk.get(..read).unwrap_or_default();
        let room = most.saturating_sub(kept.bytes.len()).min(read);
        kept.bytes
            .extend_from_slice(fresh.get(..room).unwrap_or_default());
        kept.dropped += (read - room) as u64;
    }
}

#[cfg(test)]
mod tests;
