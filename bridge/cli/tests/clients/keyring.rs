//! A real keyring behind a bus of its own: the key is stored, used against a server that
//! sees it, and removed, and is in no file of ours.

#![expect(
    clippy::disallowed_methods,
    reason = "starts the programs of a desktop, and looks at what they wrote"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;

pub(crate) const NAME: &str = "gnome_keyring_keeps_a_key";

const PROGRAMS: [&str; 2] = ["dbus-daemon", "gnome-keyring-daemon"];

/// The first of the programs that is not there.
pub(crate) fn missing() -> Option<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    PROGRAMS
        .into_iter()
        .find(|program| !std::env::split_paths(&path).any(|folder| folder.join(program).exists()))
}

/// Ended with its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Desktop<'a> {
    home: &'a Path,
    address: String,
}

impl Desktop<'_> {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home)
            .env("XDG_RUNTIME_DIR", self.home)
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program with its input, and gives all that it said.
    fn terret(&self, arguments: &[&str], input: &str) -> Result<(bool, String), Failed> {
        let mut child = self
            .command(env!("CARGO_BIN_EXE_terret"))
            .arg("--home")
            .arg(self.home.join("terret"))
            .args(arguments)
            .spawn()?;
        // It may end without reading.
        let _ = child
            .stdin
            .take()
            .map(|mut to| to.write_all(input.as_bytes()));
        let output = child.wait_with_output()?;
        let said = [output.stdout, output.stderr].concat();
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    }
}

/// Drives the program against a real keyring.
///
/// # Errors
/// What did not hold.
pub(crate) fn stored_and_read() -> Result<(), Failed> {
    if let Some(program) = missing() {
        return Err(Failed::from(format!("{program} is not installed")));
    }
    let folder = tempfile::tempdir()?;
    let mut bus = Running(
        Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--print-address=1"])
            .arg(format!(
                "--address=unix:path={}/bus",
                folder.path().display()
            ))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?,
    );
    let mut address = String::new();
    let out = bus.0.stdout.take().ok_or("it has no output")?;
    BufReader::new(out).read_line(&mut address)?;
    let desktop = Desktop {
        home: folder.path(),
        address: address.trim().to_owned(),
    };
    let mut keyring = Running(
        desktop
            .command("gnome-keyring-daemon")
            .args(["--foreground", "--unlock", "--components=secrets"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?,
    );
    // Its passphrase ends where its input does.
    let mut passphrase = keyring.0.stdin.take().ok_or("it has no input")?;
    passphrase.write_all(b"a phrase of words")?;
    drop(passphrase);

    let key = format!("{}+{}", "Zx9".repeat(6), "k4".repeat(4));
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let (stored, said) = desktop.terret(&["auth", "set", "--keyring", "anthropic"], &key)?;
        if stored {
            break;
        }
        // It takes its name on the bus when it is ready.
        if Instant::now() > deadline {
            return Err(Failed::from(format!("it was never stored: {said}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let (_, listed) = desktop.terret(&["auth", "list"], "")?;
    holds(
        listed.contains("anthropic: key from the system keyring"),
        &listed,
    )?;

    let server = TcpListener::bind("127.0.0.1:0")?;
    let base = format!("http://{}", server.local_addr()?);
    let asked = std::thread::spawn(move || -> std::io::Result<String> {
        let (mut from, _) = server.accept()?;
        let mut head = Vec::new();
        let mut piece = [0; 4096];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = from.read(&mut piece)?;
            if read == 0 {
                break;
            }
            head.extend(piece.iter().take(read));
        }
        from.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")?;
        Ok(String::from_utf8_lossy(&head).into_owned())
    });
    let mut run = desktop.command(env!("CARGO_BIN_EXE_terret"));
    run.env("ANTHROPIC_BASE_URL", base)
        .current_dir(folder.path())
        .arg("--home")
        .arg(folder.path().join("terret"))
        .args(["--model", "anthropic:m", "run", "hello"]);
    let ran = run.spawn()?.wait_with_output()?;
    let said = format!("{ran:?}");
    holds(!said.contains(&key), "it said the key")?;
    let head = asked.join().map_err(|_| "the server ended")??;
    holds(head.contains(&key), "the server was not given the key")?;
    nowhere(&folder.path().join("terret"), &key)?;

    let (removed, said) = desktop.terret(&["auth", "remove", "anthropic"], "")?;
    holds(removed, &said)?;
    let (_, listed) = desktop.terret(&["auth", "list"], "")?;
    holds(listed.contains("ANTHROPIC_API_KEY is not set"), &listed)
}

fn holds(truth: bool, said: &str) -> Result<(), Failed> {
    if truth {
        Ok(())
    } else {
        Err(Failed::from(said.to_owned()))
    }
}

fn nowhere(folder: &Path, key: &str) -> Result<(), Failed> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            nowhere(&entry.path(), key)?;
        } else if entry.file_type()?.is_file() {
            let bytes = std::fs::read(entry.path())?;
            let found = bytes.windows(key.len()).any(|part| part == key.as_bytes());
            holds(!found, &format!("{} holds the key", entry.path().display()))?;
        }
    }
    Ok(())
}
