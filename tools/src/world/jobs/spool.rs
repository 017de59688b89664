//! A job's output on the disk: at most `room` bytes of it, the beginning and the end.
//!
//! Files named `output.<offset>`, each a run of bytes from that offset of the whole output
//! on. The first one holds the beginning and stays. The others form a ring: before a new
//! one is begun, the oldest are removed until it fits. What is there tells everything, so
//! that a crash at any point leaves a spool that is right: a byte that is in no file was
//! dropped, because the room or the disk was full or because somebody removed the file.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};

use crate::world::jobs::folder::Folder;

/// Before the offset in a file's name.
const PREFIX: &str = "output.";
/// The ring has about so many files: removing one costs at most this part of the end.
const SEGMENTS: u64 = 8;
/// The share of the room for the beginning.
const HEAD_SHARE: u64 = 4;
/// A listing may miss a file that is made meanwhile; more than this would be a race that
/// no reader can win.
const LOOKS: usize = 10;

/// Writes the spool. Never fails: what cannot be written is counted as dropped.
#[derive(Debug)]
pub(crate) struct SpoolWriter {
    folder: Folder,
    room: u64,
    head: u64,
    segment: u64,
    written: u64,
    /// Bytes that the files hold.
    held: u64,
    segments: VecDeque<Segment>,
    /// The last of `segments`, as long as it takes more.
    current: Option<File>,
    /// Something was dropped because the room was used up.
    is_full: bool,
    trouble: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    start: u64,
    length: u64,
    inode: u64,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Found {
    /// Where `bytes` begin; at the asked place or later.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
    /// What follows `bytes` is gone.
    pub(crate) gap_follows: bool,
}

impl SpoolWriter {
    /// An empty spool of at most `room` bytes.
    pub(crate) fn new(folder: Folder, room: u64) -> Self {
        let head = room / HEAD_SHARE;
        Self {
            folder,
            room,
            head,
            segment: (room - head) / SEGMENTS,
            written: 0,
            held: 0,
            segments: VecDeque::new(),
            current: None,
            is_full: false,
            trouble: None,
        }
    }

    /// Takes the next bytes of the output.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some(space) = self.space() else {
                self.drop_bytes(bytes.len());
                return;
            };
            let part = usize::try_from(space).map_or(bytes.len(), |space| space.min(bytes.len()));
            let (now, rest) = bytes.split_at(part);
            match self.append(now) {
                Ok(done) => bytes = bytes.get(done..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.trouble = Some(error.to_string());
                    self.drop_bytes(now.len());
                    bytes = rest;
                }
            }
        }
    }

    /// Bytes that were given so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Bytes of these that are in no file.
    pub(crate) fn dropped(&self) -> u64 {
        self.written - self.held
    }

    /// Bytes that the files hold.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// Whether something was dropped because the room was used up.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Frees a part of the disk, the oldest first. False when there is nothing to free.
    pub(crate) fn give_back(&mut self) -> bool {
        self.current = None;
        let is_there = !self.segments.is_empty();
        self.forget(usize::from(self.segments.len() > 1));
        is_there
    }

    /// Why bytes could not be written, when some could not.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Notices what somebody removed by hand. Costs a look at each file.
    pub(crate) fn look(&mut self) {
        let folder = &self.folder;
        let held = &mut self.held;
        let before = self.segments.len();
        let last = self.segments.back().map(|segment| segment.start);
        self.segments.retain(|segment| {
            let there = folder
                .stat(&name(segment.start))
                .is_ok_and(|stat| stat.st_ino == segment.inode);
            if !there {
                *held -= segment.length;
            }
            there
        });
        if self.segments.len() < before {
            self.trouble = Some("its files were removed".to_owned());
            if self.segments.back().map(|segment| segment.start) != last {
                // What would be written to it now could not be found.
                self.current = None;
            }
        }
    }

    /// Bytes that the current file still takes; a new one is begun when it is full. None
    /// when no file can take any.
    fn space(&mut self) -> Option<u64> {
        if self.current.is_some()
            && let Some(last) = self.segments.back()
        {
            let limit = if last.start == 0 {
                self.head
            } else {
                self.segment
            };
            if last.length < limit {
                return Some(limit - last.length);
            }
        }
        self.current = None;
        let limit = if self.written == 0 && self.head > 0 {
            self.head
        } else {
            self.segment
        };
        if limit == 0 {
            self.is_full = true;
            return None;
        }
        while self.held + limit > self.room {
            self.is_full = true;
            let at = self
                .segments
                .iter()
                .position(|segment| segment.start != 0)?;
            self.forget(at);
        }
        match self.begin() {
            Ok(()) => Some(limit),
            Err(error) => {
                self.trouble = Some(error.to_string());
                None
            }
        }
    }

    fn begin(&mut self) -> io::Result<()> {
        let file = self.folder.make_file(&name(self.written))?;
        let inode = file.metadata()?.ino();
        self.segments.push_back(Segment {
            start: self.written,
            length: 0,
            inode,
        });
        self.current = Some(file);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (Some(file), Some(last)) = (&mut self.current, self.segments.back_mut()) else {
            return Err(io::Error::other("no file is open"));
        };
        let done = file.write(bytes)?;
        if done == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        last.length += done as u64;
        self.held += done as u64;
        self.written += done as u64;
        Ok(done)
    }

    /// Counts bytes that no file took. What follows them has another offset than the
    /// current file could say.
    fn drop_bytes(&mut self, count: usize) {
        self.current = None;
        if let Some(at) = self.segments.len().checked_sub(1)
            && self.segments.get(at).is_some_and(|last| last.length == 0)
        {
            self.forget(at);
        }
        self.written += count as u64;
    }

    fn forget(&mut self, at: usize) {
        if let Some(segment) = self.segments.remove(at) {
            // One that somebody removed is gone all the same.
            let _ = self.folder.remove(&name(segment.start));
            self.held -= segment.length;
        }
    }
}

/// Reads from byte `from` on, at most `most` bytes, and not across what is gone. Nothing
/// when there is nothing from there on.
pub(crate) fn read(folder: &Folder, from: u64, most: usize) -> io::Result<Found> {
    let mut found = Found {
        at: from,
        ..Found::default()
    };
    if most == 0 {
        return Ok(found);
    }
    let mut looks = 0;
    // The next file that a listing showed beyond a gap. A second listing, begun after that
    // file was there, shows all that is before it.
    let mut beyond: Option<u64> = None;
    loop {
        looks += 1;
        let at = found.at + found.bytes.len() as u64;
        let mut starts: Vec<u64> = starts(folder)?;
        starts.sort_unstable();
        let mut next = None;
        let mut opened = None;
        for start in starts.iter().rev() {
            if *start > at {
                next = Some(*start);
                continue;
            }
            // The last that begins at the place or before it; where it ends, nothing older
            // goes on.
            opened = open(folder, *start)?;
            break;
        }
        if let Some((file, start)) = opened {
            let had = found.bytes.len();
            take(&file, at - start, most, &mut found.bytes)?;
            if found.bytes.len() >= most {
                return Ok(found);
            }
            if found.bytes.len() > had {
                // More may have come in the next file.
                (looks, beyond) = (0, None);
                continue;
            }
        }
        let Some(next) = next else {
            return Ok(found);
        };
        if beyond.is_some_and(|seen| next <= seen) || looks >= LOOKS {
            if !found.bytes.is_empty() {
                found.gap_follows = true;
                return Ok(found);
            }
            found.at = next;
            (looks, beyond) = (0, None);
            continue;
        }
        beyond = Some(next);
    }
}

/// The end of what is there.
pub(crate) fn end(folder: &Folder) -> io::Result<u64> {
    let Some(start) = starts(folder)?.into_iter().max() else {
        return Ok(0);
    };
    Ok(open(folder, start)?
        .map(|(file, start)| Ok::<_, io::Error>(start + file.metadata()?.len()))
        .transpose()?
        .unwrap_or(start))
}

/// Bytes on the disk.
pub(crate) fn held(folder: &Folder) -> io::Result<u64> {
    let mut held = 0;
    for start in starts(folder)? {
        match folder.stat(&name(start)) {
            Ok(stat) => held += u64::try_from(stat.st_size).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(held)
}

/// How many bytes at the end of a text begin a character that is not finished.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=bytes.len().min(3) {
        let Some(byte) = bytes.get(bytes.len() - back) else {
            return 0;
        };
        let length = match byte {
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            // Goes on with a character that begins before.
            0x80..=0xbf => continue,
            _ => return 0,
        };
        return if length > back { back } else { 0 };
    }
    0
}

fn take(file: &File, mut at: u64, most: usize, into: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = vec![0; (most - into.len()).min(256 * 1024)];
    while into.len() < most {
        let want = buffer.len().min(most - into.len());
        let Some(space) = buffer.get_mut(..want) else {
            break;
        };
        match file.read_at(space, at) {
            Ok(0) => break,
            Ok(count) => {
                into.extend_from_slice(space.get(..count).unwrap_or_default());
                at += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// None when it was removed meanwhile.
fn open(folder: &Folder, start: u64) -> io::Result<Option<(File, u64)>> {
    match folder.file(&name(start)) {
        Ok(file) => Ok(Some((file, start))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn starts(folder: &Folder) -> io::Result<Vec<u64>> {
    Ok(folder
        .names()?
        .iter()
        .filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok())
        .collect())
}

/// Sorted by name is sorted by place, for people who look.
fn name(start: u64) -> String {
    format!("{PREFIX}{start:020}")
}

#[cfg(test)]
mod tests;
