//! Reads a command's output on a thread of the blocking pool: reading, cleaning and writing
//! the kept file must not hold up the runtime.

use std::io::{PipeReader, PipeWriter, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::world::process::capture::Capture;
use crate::world::process::live::{Live, LiveSink};

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// Read after the end of the leader, from a pipe that others still hold.
const LAST_DRAIN: usize = 1 << 20;

/// The running reader. Dropping it tells the thread to drain and end.
pub(super) struct Pump {
    stop: Option<PipeWriter>,
    thread: tokio::task::JoinHandle<()>,
}

impl Pump {
    /// Starts reading; ends at the end of the output or at [`Pump::stop`].
    ///
    /// # Errors
    /// When the system gives no pipe.
    pub(super) fn start(
        output: PipeReader,
        capture: Arc<Mutex<Capture>>,
        sink: Option<LiveSink>,
    ) -> std::io::Result<Self> {
        rustix::io::ioctl_fionbio(&output, true)?;
        let (stopped, stop) = std::io::pipe()?;
        let thread = tokio::task::spawn_blocking(move || {
            let mut reader = Reader {
                output,
                capture,
                live: sink.map(Live::new),
                buffer: vec![0; CHUNK],
            };
            if let Err(error) = reader.run(&stopped) {
                tracing::warn!(%error, "the output of a command cannot be read to its end");
            }
        });
        Ok(Self {
            stop: Some(stop),
            thread,
        })
    }

    /// Waits until everything was read: every holder of the pipe is gone.
    pub(super) async fn ended(&mut self) {
        if !self.thread.is_finished() {
            let _ = (&mut self.thread).await;
        }
    }

    /// Takes what is there and does not wait for more.
    pub(super) async fn stop(mut self) {
        self.stop = None;
        self.ended().await;
    }
}

struct Reader {
    output: PipeReader,
    capture: Arc<Mutex<Capture>>,
    live: Option<Live>,
    buffer: Vec<u8>,
}

impl Reader {
    fn run(&mut self, stopped: &PipeReader) -> std::io::Result<()> {
        loop {
            let timeout = self.until_due();
            let mut fds = [
                PollFd::new(&self.output, PollFlags::IN),
                PollFd::from_borrowed_fd(std::os::fd::AsFd::as_fd(stopped), PollFlags::IN),
            ];
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [output, stop] = fds;
            let readable = !output.revents().is_empty();
            let stop = !stop.revents().is_empty();
            if stop {
                self.drain(LAST_DRAIN)?;
                break;
            }
            if readable && !self.drain(CHUNK)? {
                break;
            }
            self.flush(false);
        }
        self.flush(true);
        Ok(())
    }

    /// Reads up to `most` bytes without waiting; false at the end of the output.
    fn drain(&mut self, most: usize) -> std::io::Result<bool> {
        let mut taken = 0;
        while taken < most {
            match self.output.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => {
                    taken += read;
                    let mut capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
                    let fresh = capture.push(self.buffer.get(..read).unwrap_or_default());
                    if let Some(live) = &mut self.live {
                        live.push(fresh);
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn until_due(&self) -> Option<Timespec> {
        let live = self.live.as_ref()?;
        let capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let due = live.due(capture.unfinished(), now)?;
        let wait = due
            .saturating_duration_since(now)
            .max(Duration::from_millis(1));
        Some(Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        })
    }

    fn flush(&mut self, last: bool) {
        let Some(live) = &mut self.live else { return };
        let unfinished = {
            let capture = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
            capture.unfinished().to_owned()
        };
        let now = Instant::now();
        if last || live.due(&unfinished, now).is_some_and(|due| due <= now) {
            live.flush(&unfinished, now);
        }
    }
}
