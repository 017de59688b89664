//! A key from a command of the person's own, such as a password manager's.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::SecretString;

use super::as_key;

/// A password manager may ask for a finger on a sensor.
const DEADLINE: Duration = Duration::from_secs(60);

/// More than this, in bytes, is no key.
const LONGEST: u64 = 64 * 1024;

/// How often the end is looked for once the output has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Runs a command and takes what it prints as the key. Blocks. The variables `hidden` are
/// kept from it.
///
/// # Errors
/// The program and how it ended; never what it said, which may be half a key.
pub(super) fn run(command: &[String], hidden: &[String]) -> Result<SecretString, String> {
    run_within(command, hidden, DEADLINE)
}

#[expect(
    clippy::disallowed_methods,
    reason = "a command that the operator configured, outside of any session"
)]
fn run_within(
    command: &[String],
    hidden: &[String],
    deadline: Duration,
) -> Result<SecretString, String> {
    let (program, arguments) = command
        .split_first()
        .ok_or("`key_command` is empty; name a program")?;
    let failed = |how: &str| {
        format!("the command `{program}` of `key_command` {how}; run it in a terminal to see why")
    };
    let mut run = Command::new(program);
    run.args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // It may ask there, or print what is private: neither belongs into an editor's log.
        .stderr(Stdio::null())
        .process_group(0);
    for name in hidden {
        run.env_remove(name);
    }
    let mut child = run
        .spawn()
        .map_err(|error| failed(&format!("could not be started ({error})")))?;
    let end_all = |child: &mut std::process::Child| {
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _gone = kill_process_group(group, Signal::KILL);
        }
        let _reaped = child.wait();
    };
    let (sender, output) = mpsc::channel();
    if let Some(mut pipe) = child.stdout.take().map(|pipe| pipe.take(LONGEST)) {
        // Ends with the pipe: at the latest when the group is killed.
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = pipe.read_to_end(&mut bytes).map(|_| bytes);
            let _gone = sender.send(read);
        });
    }
    let until = Instant::now() + deadline;
    let too_long = || failed(&format!("did not end within {} s", deadline.as_secs()));
    let bytes = match output.recv_timeout(deadline) {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(_)) => {
            end_all(&mut child);
            return Err(failed("could not be read"));
        }
        Err(_) => {
            end_all(&mut child);
            return Err(too_long());
        }
    };
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            _ => {
                end_all(&mut child);
                return Err(too_long());
            }
        }
    };
    if !status.success() {
        return Err(failed(&format!("failed ({status})")));
    }
    let text = String::from_utf8(bytes).map_err(|_| failed("printed what is no text"))?;
    as_key(&text).map_err(|why| failed(&format!("printed what cannot be a key: {why}")))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    fn shell(script: &str, deadline: Duration) -> Result<SecretString, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        run_within(&command, &["HIDDEN_ONE".to_owned()], deadline)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn its_output_is_trimmed() {
        let key = shell("printf '  a-key\\n\\n'", LONG).unwrap();
        assert_eq!(key.expose_secret(), "a-key");
    }

    #[test]
    fn a_failure_names_program_and_status_and_not_what_was_said() {
        let error = shell("echo half-a-key; echo half-a-key >&2; exit 3", LONG).unwrap_err();
        assert!(error.contains("`sh`") && error.contains('3'), "{error}");
        assert!(!error.contains("half"), "{error}");
        let error = shell("printf 'half a key'", LONG).unwrap_err();
        assert!(
            error.contains("space") && !error.contains("half"),
            "{error}"
        );
        let error = run(&["/no/such/program".to_owned()], &[]).unwrap_err();
        assert!(error.contains("/no/such/program"), "{error}");
    }

    #[test]
    fn one_that_hangs_is_ended_with_all_that_it_started() {
        let start = Instant::now();
        let error = shell("sleep 60 & sleep 60", Duration::from_millis(200)).unwrap_err();
        assert!(error.contains("did not end"), "{error}");
        assert!(start.elapsed() < LONG);
    }
}
