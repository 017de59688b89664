//! Why a program did not start, in words that help: the folder that is gone, the `PATH`
//! that was looked through, the interpreter that is missing (`R136`).

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::helper::link::{Order, Step, Word};
use crate::world::process::ProcessError;

/// The error for a failed start. Looks at files, so it may block.
pub(super) fn spawn_failure(order: &Order, step: Step, errno: i32) -> ProcessError {
    let program: OsString = order
        .program
        .clone()
        .or_else(|| order.argv.first().cloned())
        .map(OsString::from)
        .unwrap_or_default();
    let cwd = PathBuf::from(OsString::from(order.cwd.clone()));
    let system = std::io::Error::from_raw_os_error(errno);
    let kind = system.kind();
    let words = match (step, Errno::from_raw_os_error(errno)) {
        (Step::Folder, Errno::NOENT) => "the folder is gone".to_owned(),
        (Step::Folder, _) => format!("the folder cannot be entered: {system}"),
        (Step::Program, Errno::NOENT) => missing(&program, &cwd, path_of(order)),
        (Step::Program, Errno::TOOBIG) => {
            "its arguments and environment are larger than the system takes; write what is \
             long to a file"
                .to_owned()
        }
        (Step::Program, _) => system.to_string(),
    };
    ProcessError::Spawn {
        program,
        cwd,
        source: std::io::Error::new(kind, words),
    }
}

fn path_of(order: &Order) -> Option<OsString> {
    let name = Word::Text("PATH".to_owned());
    order
        .environment
        .iter()
        .find(|(variable, _)| *variable == name)
        .map(|(_, value)| value.clone().into())
}

fn missing(program: &OsStr, cwd: &Path, path: Option<OsString>) -> String {
    let interpreter = |file: &Path| {
        format!(
            "{} is there, but the interpreter that it names is not",
            file.display()
        )
    };
    if Path::new(program).components().count() > 1 {
        let file = cwd.join(program);
        return if file.exists() {
            interpreter(&file)
        } else {
            "there is no such file".to_owned()
        };
    }
    let Some(path) = path else {
        return "no PATH is set to look for it".to_owned();
    };
    match std::env::split_paths(&path)
        .map(|folder| cwd.join(folder).join(program))
        .find(|file| file.is_file())
    {
        Some(file) => interpreter(&file),
        None => format!(
            "it is in no folder of PATH, which is {}; install it, or name it by its path",
            path.to_string_lossy()
        ),
    }
}
