//! Shows a command in a terminal that the editor drew: prints what it is told, and ends
//! as the command did.
//!
//! The editor starts it, with the path of a socket as its one argument, because some
//! editors join arguments unquoted. The command itself is not here: it runs where every
//! command does. When this process ends before the command, whoever looks at the terminal
//! has stopped it there.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// A piece of output follows: its length in four bytes, and its bytes.
pub const OUTPUT: u8 = b'o';
/// The end: the exit code in one byte.
pub const END: u8 = b'e';
/// Bytes of a piece.
pub const PIECE: usize = 64 * 1024;

/// The code of a relay that lost its command.
const LOST: u8 = 1;

/// Prints until the end, and gives the exit code.
pub(super) fn main(mut arguments: impl Iterator<Item = OsString>) -> u8 {
    let Some(path) = arguments.next() else {
        return LOST;
    };
    match connect(Path::new(&path)).and_then(|link| show(link, &mut std::io::stdout())) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(
                std::io::stderr(),
                "terret: the command's output ends here: {error}"
            );
            LOST
        }
    }
}

/// Connects to a socket, however long its path is.
fn connect(path: &Path) -> std::io::Result<UnixStream> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(std::io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    UnixStream::connect(Path::new(&format!("/proc/self/fd/{}", folder.as_raw_fd())).join(name))
}

fn show(mut link: impl Read, out: &mut impl Write) -> std::io::Result<u8> {
    let mut piece = vec![0; PIECE];
    loop {
        let mut tag = [0];
        link.read_exact(&mut tag)?;
        match tag {
            [OUTPUT] => {
                let mut length = [0; 4];
                link.read_exact(&mut length)?;
                let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
                let piece = piece
                    .get_mut(..length)
                    .ok_or(std::io::ErrorKind::InvalidData)?;
                link.read_exact(piece)?;
                out.write_all(piece)?;
                out.flush()?;
            }
            [END] => {
                let mut code = [0];
                link.read_exact(&mut code)?;
                let [code] = code;
                return Ok(code);
            }
            _ => return Err(std::io::ErrorKind::InvalidData.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn what_is_told_is_printed_and_the_end_is_the_commands() {
        let mut out = Vec::new();
        let told = [b"o\x03\0\0\0abc".as_slice(), b"o\x01\0\0\0d", b"e\x07"].concat();
        assert_eq!(show(told.as_slice(), &mut out).unwrap(), 7);
        assert_eq!(out, b"abcd");
    }

    #[test]
    fn a_link_that_breaks_is_no_end() {
        for told in [b"".as_slice(), b"o\xff\xff\xff\xff", b"x", b"o\x02\0\0\0a"] {
            assert!(show(told, &mut Vec::new()).is_err(), "{told:?}");
        }
    }
}
