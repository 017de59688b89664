//! A project, a home, a scripted model, and the program in front of them.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use terret_fixtures::{
    EditorOptions, PermissionPolicy, Reply, Script, ScriptedEditor, Workspace, process,
};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The program under test.
pub(crate) const TERRET: &str = env!("CARGO_BIN_EXE_terret");

/// A wait that is not itself what a test measures.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the end of the editor may take (design §4 "After a crash"), and what a loaded
/// machine may add to it.
pub(crate) const END: Duration = Duration::from_millis(2000 + 500);

/// What a test works with.
pub(crate) struct Bench {
    pub workspace: Workspace,
    script: PathBuf,
    is_confined: bool,
}

impl Bench {
    /// A project from a text tree, and the replies of its model.
    pub(crate) fn new(tree: &str, script: Script) -> Self {
        let workspace = Workspace::new(tree).unwrap();
        let path = workspace.beside().join("script.jsonl");
        script.write(&path).unwrap();
        Self {
            workspace,
            script: path,
            is_confined: true,
        }
    }

    /// A model that says one thing.
    pub(crate) fn saying(text: &str) -> Self {
        Self::new("", Script::new().reply(Reply::on("").say(text)))
    }

    /// Replaces the model's replies, for the next process.
    pub(crate) fn rescript(&self, script: Script) {
        script.write(&self.script).unwrap();
    }

    pub(crate) fn model(&self) -> String {
        format!("scripted:{}", self.script.display())
    }

    pub(crate) fn home(&self) -> &Path {
        self.workspace.home()
    }

    /// Commands run as we do, where a test needs process ids that mean the same inside and
    /// outside, or a program that no sandbox shows.
    pub(crate) fn unconfined(mut self) -> Self {
        self.is_confined = false;
        self.configure("");
        self
    }

    /// Writes the configuration file.
    pub(crate) fn configure(&self, text: &str) {
        let folder = self.home().join("config");
        std::fs::create_dir_all(&folder).unwrap();
        // In one step, so that a process that watches the file sees it whole.
        let whole = folder.join("config.toml.new");
        let sandbox = if self.is_confined {
            ""
        } else {
            "\n[sandbox]\nprovider = \"none\"\n"
        };
        std::fs::write(&whole, format!("{text}{sandbox}")).unwrap();
        std::fs::rename(whole, folder.join("config.toml")).unwrap();
    }

    /// The program in the project, with this home and nothing of the person's own.
    pub(crate) fn command(&self) -> Command {
        self.command_of(Path::new(TERRET))
    }

    /// As [`Self::command`], by another file of the program.
    pub(crate) fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--home")
            .arg(self.home())
            .current_dir(self.workspace.root())
            .kill_on_drop(true);
        for name in [
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "OPENROUTER_API_KEY",
            "TERRET_HOME",
            "TERRET_CREDENTIALS_KEY",
            "TERRET_INSIDE",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn terret(&self, arguments: &[&str]) -> Finished {
        let mut command = self.command();
        command.args(arguments);
        Finished::of(process::run(command, PATIENCE).await.unwrap())
    }

    /// As [`Self::terret`], with the scripted model.
    pub(crate) async fn terret_with_model(&self, arguments: &[&str]) -> Finished {
        let model = self.model();
        let mut all = vec!["--model", &model];
        all.extend(arguments);
        self.terret(&all).await
    }

    /// Runs a command that reads `input`.
    pub(crate) async fn terret_fed(&self, arguments: &[&str], input: &str) -> Finished {
        let mut command = self.command();
        command
            .args(["--model", &self.model()])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(input.as_bytes()).await.unwrap();
        drop(stdin);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output())
            .await
            .unwrap()
            .unwrap();
        Finished::of(output)
    }

    /// `terret acp` with the scripted model; its stderr is in [`Self::stderr`].
    pub(crate) fn acp(&self) -> Command {
        let mut command = self.command();
        command.args(["--model", &self.model()]).arg("acp");
        self.keep_stderr(&mut command);
        command
    }

    pub(crate) fn keep_stderr(&self, command: &mut Command) {
        let file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.workspace.beside().join("stderr.txt"))
            .unwrap();
        command.stderr(file);
    }

    /// What all of this bench's agents wrote to stderr.
    pub(crate) fn stderr(&self) -> String {
        let bytes = std::fs::read(self.workspace.beside().join("stderr.txt")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// An editor in front of [`Self::acp`], past `initialize`.
    pub(crate) async fn editor(&self, permission: PermissionPolicy) -> ScriptedEditor {
        self.editor_of(self.acp(), permission).await
    }

    pub(crate) async fn editor_of(
        &self,
        command: Command,
        permission: PermissionPolicy,
    ) -> ScriptedEditor {
        let editor = spawn(command, permission);
        editor.initialize().await.unwrap();
        editor
    }

    /// An editor with a session in the project.
    pub(crate) async fn session(&self, permission: PermissionPolicy) -> (ScriptedEditor, String) {
        let editor = self.editor(permission).await;
        let session = editor.new_session(self.workspace.root()).await.unwrap();
        (editor, session)
    }

    /// The events of a session's log, as `terret sessions show --json` gives them.
    pub(crate) async fn events(&self, session: &str) -> Vec<Value> {
        let shown = self.terret(&["sessions", "show", "--json", session]).await;
        assert_eq!(shown.code, Some(0), "{shown:?}");
        shown
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The log file of a session.
    pub(crate) fn log_file(&self, session: &str) -> PathBuf {
        self.home()
            .join("state/sessions")
            .join(format!("{session}.jsonl"))
    }
}

/// A wire with everything that an editor can do, and patience for a loaded machine.
pub(crate) fn spawn(command: Command, permission: PermissionPolicy) -> ScriptedEditor {
    let options = EditorOptions {
        permission,
        limit: PATIENCE,
        ..EditorOptions::default()
    };
    ScriptedEditor::spawn(command, options).unwrap()
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The output of a command that went well.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// How many events have a type.
pub(crate) fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

/// The payload of the last event of a type.
pub(crate) fn last<'a>(events: &'a [Value], kind: &str) -> &'a Value {
    &events
        .iter()
        .rfind(|event| event["type"] == kind)
        .unwrap_or_else(|| panic!("there is no `{kind}` in {events:#?}"))["payload"]
}

/// Waits until a file is there and holds a whole line; gives its text.
pub(crate) async fn file_text(path: &Path) -> String {
    let start = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(path)
            && text.ends_with('\n')
        {
            return text;
        }
        assert!(
            start.elapsed() < PATIENCE,
            "{} was never written",
            path.display()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A model that runs one command and then says that it is done.
pub(crate) fn bash(command: &str) -> Script {
    Script::new()
        .reply(Reply::on("^go$").call_as("b1", "Bash", json!({ "command": command })))
        .reply(Reply::on("").say("done"))
}
