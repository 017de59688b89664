//! Standard input and output as the runtime's own streams.
//!
//! Editors give an agent pipes or a socket pair. Both are read and written without a
//! helper thread, which saves two thread switches for each message; anything else, a
//! terminal or a file, goes the ordinary way.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;

use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// What frames are read from.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
/// What frames are written to.
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input. Nothing else may read it afterwards.
fn input() -> io::Result<Input> {
    let stdin = io::stdin();
    Ok(match kind(&stdin)? {
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(duplicate(&stdin)?)?),
        FileType::Socket => Box::new(socket(duplicate(&stdin)?)?),
        _ => Box::new(tokio::io::stdin()),
    })
}

/// Standard output. Nothing else may write it afterwards.
fn output() -> io::Result<Output> {
    let stdout = io::stdout();
    Ok(match kind(&stdout)? {
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(duplicate(&stdout)?)?),
        FileType::Socket => Box::new(socket(duplicate(&stdout)?)?),
        _ => Box::new(tokio::io::stdout()),
    })
}

fn kind(stream: &impl AsFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(stream)?.st_mode))
}

fn duplicate(stream: &impl AsFd) -> io::Result<OwnedFd> {
    stream.as_fd().try_clone_to_owned()
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

/// Both. When two streams are one socket, as some editors make them, each gets a
/// descriptor of its own.
pub(crate) fn open() -> io::Result<(Input, Output)> {
    Ok((input()?, output()?))
}

/// Waits until nobody can read standard output any more (R035). A write would tell as
/// well, but a long command that prints nothing has nothing to write. Only a pipe tells;
/// the other kinds never end this.
///
/// # Errors
/// When the pipe cannot be watched.
pub(crate) async fn reader_is_gone() -> io::Result<()> {
    let stdout = io::stdout();
    if kind(&stdout)? != FileType::Fifo {
        std::future::pending::<()>().await;
    }
    let pipe = pipe::Sender::from_owned_fd(duplicate(&stdout)?)?;
    pipe.ready(Interest::ERROR).await?;
    Ok(())
}
