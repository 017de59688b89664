//! Keeps one job (`design.md §4 Jobs`): has its tree in charge, writes what it says into
//! the spool, and answers whoever connects to the socket in its folder. It outlives the
//! engine; without an owner it ends the job after a grace of running time.
//!
//! The state file says `spawning` before the program starts and `running` after it, so
//! that whoever finds the folder knows whether the command can have run. The lock on the
//! folder is held to the end of this process and by nothing else.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::net::SendFlags;

use crate::helper::charge::Charge;
use crate::helper::link::{Lines, Status, Streams, line_of, take_order, tell};
use crate::helper::{Role, begin};
use crate::world::jobs::JobNote;
use crate::world::jobs::folder::{CONTROL, Folder};
use crate::world::jobs::record::{Phase, Record, millis, unix_millis};
use crate::world::jobs::spool::SpoolWriter;
use crate::world::jobs::wire::{Order, Report, Request, Started};

/// Output is told at most this often, unless somebody waits for it.
const REPORT: Duration = Duration::from_secs(1);
/// What the pipe of the output holds: fewer turns for a job that writes fast.
const PIPE: usize = 256 * 1024;
/// More than so many connections are nobody of ours.
const PEERS: usize = 16;
/// Disk space that is set aside for the last state file, besides its size now.
const RESERVE: usize = 8 * 1024;
/// The file that sets it aside.
const RESERVE_FILE: &str = "reserve";

/// Runs the keeper to its end, which is the job's.
pub(super) fn main() -> u8 {
    match keep() {
        Ok(()) => 0,
        // Nobody is left to be told.
        Err(_) => 1,
    }
}

fn keep() -> std::io::Result<()> {
    let link = begin(Role::Keeper)?;
    let (order, descriptors) = take_order::<Order>(&link)?;
    // A limit on the size of files, from whoever started the engine, shall not kill us but
    // be counted.
    signal_hook::flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    let mut descriptors = descriptors.into_iter();
    let (Some(folder), Some(lock)) = (descriptors.next(), descriptors.next()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let folder = Folder::from_descriptor(folder);
    let (mut record, listener) = match prepare(&folder) {
        Ok(prepared) => prepared,
        Err(error) => {
            return tell(
                &link,
                &Started::Unkept {
                    text: error.to_string(),
                },
            );
        }
    };
    let (output, writer) = std::io::pipe()?;
    rustix::io::ioctl_fionbio(&output, true)?;
    // Where the system's bound for a user is reached, it stays as it is.
    let _ = rustix::pipe::fcntl_setpipe_size(&output, PIPE);
    let mut streams = Vec::from_iter(descriptors.next());
    let mut leader = order.leader;
    leader.streams = if streams.is_empty() {
        Streams::Output
    } else {
        Streams::InputOutput
    };
    streams.push(OwnedFd::from(writer));
    let begun = Instant::now();
    let charge = match Charge::start(leader, streams) {
        Ok(charge) => charge,
        Err(failure) => {
            return tell(
                &link,
                &Started::Failed {
                    step: failure.step,
                    errno: failure.error.raw_os_error().unwrap_or_default(),
                },
            );
        }
    };
    record.phase = Phase::Running { leader: None };
    let mut keeper = Keeper {
        spool: SpoolWriter::new(folder.try_clone()?, record.room),
        folder,
        _lock: lock,
        record,
        charge,
        output: Some(output),
        buffer: vec![0; PIPE],
        listener,
        peers: Vec::new(),
        begun,
        orphan_grace: Duration::from_millis(order.orphan_grace_ms),
        grace: Duration::from_millis(order.grace_ms),
        alone: Some(begun),
        is_stopped: false,
        reported: None,
        told: 0,
    };
    keeper.write();
    // Whether it is still there or not: the job goes on.
    let _ = tell(&link, &Started::Running);
    drop(link);
    keeper.run();
    Ok(())
}

/// All that can fail before anything runs.
fn prepare(folder: &Folder) -> std::io::Result<(Record, UnixListener)> {
    let mut record = Record::read(folder).map_err(std::io::Error::other)?;
    let listener = UnixListener::bind(folder.socket(CONTROL))?;
    folder.make_private(CONTROL)?;
    listener.set_nonblocking(true)?;
    let ballast = vec![b' '; record.command.len() + RESERVE];
    std::io::Write::write_all(&mut folder.make_file(RESERVE_FILE)?, &ballast)?;
    record.phase = Phase::Spawning;
    record.write(folder)?;
    Ok((record, listener))
}

struct Keeper {
    folder: Folder,
    _lock: OwnedFd,
    record: Record,
    charge: Charge,
    /// None after its end.
    output: Option<std::io::PipeReader>,
    buffer: Vec<u8>,
    spool: SpoolWriter,
    listener: UnixListener,
    peers: Vec<Peer>,
    begun: Instant,
    orphan_grace: Duration,
    grace: Duration,
    /// Since when there is no owner. This clock stands still while the machine sleeps.
    alone: Option<Instant>,
    /// We ended it.
    is_stopped: bool,
    /// When output was last told.
    reported: Option<Instant>,
    /// Bytes that were told.
    told: u64,
}

/// Somebody at the socket.
struct Peer {
    stream: UnixStream,
    lines: Lines,
    owns: bool,
    awaits: Option<u64>,
    /// The rest of a line that did not fit.
    unsent: Vec<u8>,
    /// There is something newer than what it was told last.
    is_behind: bool,
    is_gone: bool,
}

impl Keeper {
    fn run(&mut self) {
        loop {
            let had_leader = self.charge.status().is_none();
            let mut wait = self.charge.tick();
            if self.charge.is_gone() {
                self.finish();
                return;
            }
            if had_leader && let Some(status) = self.charge.status() {
                self.record.phase = Phase::Running {
                    leader: Some(match status {
                        Status::Exited(code) => code,
                        Status::Signalled(signal) => 128 + signal,
                    }),
                };
                self.write();
                self.report_all();
            }
            if self.charge.was_asked_to_end() && !self.is_stopped {
                self.stop(self.grace);
                wait = Some(Duration::ZERO);
            }
            for limit in [self.orphaned(), self.due()].into_iter().flatten() {
                wait = Some(wait.map_or(limit, |wait| wait.min(limit)));
            }
            self.wait(wait);
        }
    }

    /// Ends the job when nobody was there for too long; else how long it may still take.
    fn orphaned(&mut self) -> Option<Duration> {
        let alone = self.alone.filter(|_| !self.charge.is_ending())?;
        let left = self.orphan_grace.saturating_sub(alone.elapsed());
        if !left.is_zero() {
            return Some(left);
        }
        // Nobody can ever come to a job whose folder is gone, kept or not.
        if self.record.keep && !self.folder.is_removed() {
            self.alone = Some(Instant::now());
            return Some(self.orphan_grace);
        }
        self.record.notes.push(JobNote::Orphaned {
            after_ms: millis(self.orphan_grace),
        });
        self.stop(self.grace);
        Some(Duration::ZERO)
    }

    /// Tells of output when it is time; else how long until then.
    fn due(&mut self) -> Option<Duration> {
        if self.spool.written() == self.told || self.peers.is_empty() {
            return None;
        }
        let left = self
            .reported
            .map_or(Duration::ZERO, |at| REPORT.saturating_sub(at.elapsed()));
        if left.is_zero() {
            self.report_all();
            return None;
        }
        Some(left)
    }

    fn stop(&mut self, grace: Duration) {
        self.is_stopped = true;
        self.charge.end(grace);
    }

    fn wait(&mut self, wait: Option<Duration>) {
        let timeout = wait.map(|wait| Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        let mut fds = Vec::with_capacity(3 + self.peers.len());
        fds.push(PollFd::from_borrowed_fd(self.charge.woken(), PollFlags::IN));
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        for peer in &self.peers {
            let mut flags = PollFlags::IN;
            if !peer.unsent.is_empty() {
                flags |= PollFlags::OUT;
            }
            fds.push(PollFd::new(&peer.stream, flags));
        }
        if let Some(output) = &self.output {
            fds.push(PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN));
        }
        // Interrupted is woken, too.
        let _ = poll(&mut fds, timeout.as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let is_ready = |at: usize| ready.get(at).copied().unwrap_or(false);
        if is_ready(2 + self.peers.len()) {
            self.read();
        }
        for at in 0..self.peers.len() {
            if is_ready(2 + at) {
                self.hear(at);
            }
        }
        self.peers.retain(|peer| !peer.is_gone);
        if is_ready(1) {
            self.accept();
        }
        self.count_owners();
    }

    /// Reads output once. False when there was none.
    fn read(&mut self) -> bool {
        let Some(output) = &mut self.output else {
            return false;
        };
        match output.read(&mut self.buffer) {
            Ok(0) => self.output = None,
            Ok(count) => {
                self.spool
                    .push(self.buffer.get(..count).unwrap_or_default());
                let written = self.spool.written();
                for at in 0..self.peers.len() {
                    let awaits = self.peers.get(at).and_then(|peer| peer.awaits);
                    if awaits.is_some_and(|beyond| written > beyond) {
                        self.report(at);
                    }
                }
                return true;
            }
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted
                ) => {}
            Err(_) => self.output = None,
        }
        false
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.peers.len() >= PEERS || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.peers.push(Peer {
                stream,
                lines: Lines::default(),
                owns: false,
                awaits: None,
                unsent: Vec::new(),
                is_behind: false,
                is_gone: false,
            });
            self.spool.look();
            self.report(self.peers.len() - 1);
        }
    }

    fn hear(&mut self, at: usize) {
        let Some(peer) = self.peers.get_mut(at) else {
            return;
        };
        peer.flush();
        if !peer.lines.fill(&mut peer.stream).unwrap_or(false) {
            peer.is_gone = true;
        }
        let mut requests = Vec::new();
        loop {
            match peer.lines.next::<Request>() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                // Nobody who speaks otherwise is of ours.
                Err(_) => {
                    peer.is_gone = true;
                    break;
                }
            }
        }
        let is_behind = std::mem::take(&mut peer.is_behind);
        if is_behind {
            self.report(at);
        }
        for request in requests {
            self.obey(at, request);
        }
    }

    fn obey(&mut self, at: usize, request: Request) {
        match request {
            Request::Own => {
                if let Some(peer) = self.peers.get_mut(at) {
                    peer.owns = true;
                }
            }
            Request::Stop { grace_ms } => self.stop(Duration::from_millis(grace_ms)),
            Request::Release { keep } => {
                self.record.keep = keep;
                self.write();
                self.report_all();
            }
            Request::Await { beyond } => {
                let written = self.spool.written();
                if let Some(peer) = self.peers.get_mut(at) {
                    // Several may wait over there.
                    peer.awaits = Some(peer.awaits.map_or(beyond, |other| other.min(beyond)));
                    if written > beyond {
                        self.report(at);
                    }
                }
            }
        }
    }

    fn count_owners(&mut self) {
        if self.peers.iter().any(|peer| peer.owns) {
            self.alone = None;
        } else if self.alone.is_none() {
            self.alone = Some(Instant::now());
        }
    }

    fn report_all(&mut self) {
        self.spool.look();
        self.reported = Some(Instant::now());
        self.told = self.spool.written();
        for at in 0..self.peers.len() {
            self.report(at);
        }
    }

    fn report(&mut self, at: usize) {
        self.count();
        let report = Report {
            phase: self.record.phase.clone(),
            keep: self.record.keep,
            ended_at: self.record.ended_at,
            ran_for: self.record.ran_for,
            written: self.record.written,
            dropped: self.record.dropped,
            notes: self.record.notes.clone(),
        };
        if let Some(peer) = self.peers.get_mut(at) {
            peer.awaits = None;
            peer.tell(&report);
        }
    }

    /// Brings the numbers and notes up to date.
    fn count(&mut self) {
        self.record.ran_for = millis(self.begun.elapsed());
        self.record.written = self.spool.written();
        self.record.dropped = self.spool.dropped();
        let room = self.record.room;
        let held = self.spool.held();
        self.record
            .notes
            .retain(|note| matches!(note, JobNote::Orphaned { .. }));
        if self.spool.is_full() {
            self.record.notes.push(JobNote::Full { room });
        } else if held > room / 5 * 4 {
            self.record.notes.push(JobNote::Filling { held, room });
        }
        if let Some(why) = self.spool.trouble() {
            self.record.notes.push(JobNote::Unkept {
                why: why.to_owned(),
            });
        }
    }

    /// Writes the state file. Without it the job goes on, and whoever is connected is told
    /// all the same.
    fn write(&mut self) -> bool {
        self.count();
        self.record.write(&self.folder).is_ok()
    }

    fn finish(&mut self) {
        // What ended has said all that it will say, but not all of it was read. Somebody
        // else may hold the pipe, so that it has no end.
        let most = self.spool.written() + 4 * PIPE as u64;
        while self.spool.written() < most && self.read() {}
        self.spool.look();
        self.record.ended_at = Some(unix_millis());
        self.record.phase = match self.charge.status() {
            _ if self.is_stopped => Phase::Stopped,
            Some(Status::Exited(status)) => Phase::Exited { status },
            Some(Status::Signalled(signal)) => Phase::Signalled { signal },
            None => Phase::Lost {
                why: "its end was not seen".to_owned(),
            },
        };
        if !self.write() {
            // The disk is full, and that the job has ended matters more than its output.
            let _ = self.folder.remove(RESERVE_FILE);
            while !self.write() && self.spool.give_back() {}
        }
        for at in 0..self.peers.len() {
            self.report(at);
        }
        let _ = self.folder.remove(CONTROL);
        let _ = self.folder.remove(RESERVE_FILE);
    }
}

impl Peer {
    fn tell(&mut self, report: &Report) {
        if !self.unsent.is_empty() {
            // It reads slowly; it gets what is newest then.
            self.is_behind = true;
            return;
        }
        match line_of(report) {
            Ok(line) => self.unsent = line,
            Err(_) => self.is_gone = true,
        }
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.stream, &self.unsent, SendFlags::NOSIGNAL) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    self.is_gone = true;
                    return;
                }
            }
        }
    }
}
