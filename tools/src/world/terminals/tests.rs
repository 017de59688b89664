#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::call::{Failure, Output, Tool};
use crate::standard::terminal_close::TerminalClose;
use crate::standard::terminal_input::TerminalInput;
use crate::standard::terminal_open::TerminalOpen;
use crate::standard::terminal_read::TerminalRead;
use crate::table::Table;
use crate::testing::{Bench, call, lacking};
use crate::world::terminals::{MOST, TerminalSettings};

const PATIENCE: Duration = Duration::from_secs(30);

/// A model at its terminals.
struct Desk {
    bench: Bench,
}

impl Desk {
    fn new() -> Self {
        Self {
            bench: Bench::with(|settings| {
                // What a person's own start-up files would say is not what is tested.
                settings.environment.set.insert("PS1".into(), "$ ".into());
                settings
                    .environment
                    .set
                    .insert("LESS".into(), String::new());
            }),
        }
    }

    async fn open(&self, name: &str, argv: &[&str]) -> Result<Output, Failure> {
        let args = json!({"name": name, "argv": argv});
        self.bench.run(&TerminalOpen::new(), args).await
    }

    async fn opened(&self, name: &str, argv: &[&str]) -> i32 {
        let text = self.open(name, argv).await.unwrap().text;
        let pid = text
            .strip_prefix(&format!("Opened terminal {name} (pid "))
            .and_then(|rest| rest.strip_suffix(')'));
        pid.expect(&text).parse().unwrap()
    }

    async fn input(&self, name: &str, text: &str) -> Result<Output, Failure> {
        let args = json!({"name": name, "text": text});
        self.bench.run(&TerminalInput::new(), args).await
    }

    async fn typed(&self, name: &str, text: &str) -> Output {
        self.input(name, text).await.unwrap()
    }

    async fn read_for(&self, name: &str, timeout: u64) -> Result<Output, Failure> {
        let args = json!({"name": name, "timeout": timeout});
        self.bench.run(&TerminalRead::new(), args).await
    }

    /// Reads until the text of all reads holds this.
    async fn read_until(&self, name: &str, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        let mut all = String::new();
        while !all.contains(wanted) {
            assert!(
                Instant::now() < deadline,
                "{wanted:?} never came; there was: {all}"
            );
            let output = self.read_for(name, 1000).await.unwrap();
            if output.text != "(nothing to read)" {
                all.push_str(&output.render());
                all.push('\n');
            }
        }
        all
    }

    /// Reads until one read holds this, and gives that one.
    async fn screen_with(&self, name: &str, wanted: &str) -> Output {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let output = self.read_for(name, 1000).await.unwrap();
            if output.text.contains(wanted) {
                return output;
            }
            assert!(
                Instant::now() < deadline,
                "{wanted:?} never came; there was: {}",
                output.text
            );
        }
    }

    /// Ends what runs. A helper that is left to the end of the runtime would stay a zombie
    /// of this process, which other tests count.
    async fn leave(self) {
        self.bench.world.shutdown().await;
    }

    async fn close(&self, name: &str) -> String {
        let args = json!({"name": name});
        self.bench
            .run(&TerminalClose::new(), args)
            .await
            .unwrap()
            .text
    }
}

fn is_there(program: &str) -> bool {
    ["/bin", "/usr/bin", "/usr/local/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists())
}

/// A program that is missing is said to be, by the tool itself.
async fn is_missing(desk: &Desk, program: &str) -> bool {
    if is_there(program) {
        return false;
    }
    let refused = desk.open("missing", &[program]).await.unwrap_err().0;
    assert!(refused.contains("no folder of PATH"), "{refused}");
    lacking(&format!("`{program}` is not installed"));
    true
}

fn is_alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim().starts_with('Z'))
}

async fn is_gone(pid: i32) {
    let deadline = Instant::now() + PATIENCE;
    while Path::new(&format!("/proc/{pid}")).exists() {
        assert!(Instant::now() < deadline, "process {pid} is still there");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_is_typed_is_read_back() {
    let desk = Desk::new();
    desk.opened("echo", &["cat"]).await;
    let typed = desk.typed("echo", "hello\n").await;
    assert_eq!(typed.text, "Typed 6 bytes into terminal echo");
    // Once by the terminal and once by the program.
    assert_eq!(
        desk.read_until("echo", "hello\nhello").await,
        "hello\nhello\n"
    );
    let nothing = desk.read_for("echo", 0).await.unwrap();
    assert_eq!(nothing.text, "(nothing to read)");
    assert_eq!(desk.close("echo").await, "Closed terminal echo");
    assert_eq!(desk.close("echo").await, "No terminal named echo was open");
    desk.leave().await;
}

#[tokio::test]
async fn a_shell_lives_between_calls() {
    let desk = Desk::new();
    desk.opened("sh", &["bash", "--norc", "--noprofile"]).await;
    desk.read_until("sh", "$ ").await;
    desk.typed("sh", "X=4; cd /; stty size; echo $TERM [$TERRET_INSIDE]\n")
        .await;
    let text = desk.read_until("sh", "[1]").await;
    assert!(text.contains("\n24 80\nxterm [1]\n"), "{text}");
    desk.typed("sh", "echo \"$((X + 1))\" \"$PWD\"\n").await;
    desk.read_until("sh", "\n5 /\n").await;
    // What is running is interrupted by its key.
    // It says so itself, since a key that comes while the shell is still starting it is
    // the shell's. The quotes keep the echo of the line apart from the output.
    desk.typed("sh", "sh -c 'echo go\"\"ing; exec sleep 600'\n")
        .await;
    desk.read_until("sh", "\ngoing").await;
    let typed = desk.typed("sh", "<C-c>").await;
    assert_eq!(typed.remarks, ["read as keys: <C-c>"]);
    desk.read_until("sh", "^C").await;
    desk.typed("sh", "exit 3\n").await;
    let text = desk.read_until("sh", "has ended").await;
    assert!(
        text.contains("(the program in terminal sh has ended with exit status 3)"),
        "{text}"
    );
    desk.leave().await;
}

#[tokio::test]
async fn check_147_names_are_per_session_and_the_ninth_is_refused() {
    let desk = Desk::new();
    let other = Desk::new();
    for number in 0..MOST {
        desk.opened(&format!("t{number}"), &["cat"]).await;
    }
    let refused = desk.open("t8", &["cat"]).await.unwrap_err().0;
    assert!(refused.starts_with("8 terminals are open"), "{refused}");
    let refused = other.input("t0", "x").await.unwrap_err();
    let unknown = desk.input("t8", "x").await.unwrap_err();
    assert_eq!(refused.0.replace("t0", "t8"), unknown.0);
    let refused = other.read_for("t0", 0).await.unwrap_err();
    assert_eq!(refused.0.replace("t0", "t8"), unknown.0);
    assert_eq!(other.close("t0").await, "No terminal named t0 was open");
    // The name is another session's to have.
    other.opened("t0", &["cat"]).await;
    let refused = other.open("t0", &["cat"]).await.unwrap_err().0;
    assert!(refused.contains("already a terminal named t0"), "{refused}");
    desk.close("t3").await;
    desk.opened("t8", &["cat"]).await;
    desk.leave().await;
    other.leave().await;
}

#[tokio::test]
async fn check_147_a_dead_terminal_says_so_and_keeps_its_name() {
    let desk = Desk::new();
    desk.opened("once", &["sh", "-c", "echo last words; exit 7"])
        .await;
    let text = desk.read_until("once", "has ended").await;
    assert_eq!(
        text,
        "last words\n(the program in terminal once has ended with exit status 7)\n"
    );
    let again = desk.read_for("once", 10_000).await.unwrap();
    assert_eq!(
        again.text,
        "(the program in terminal once has ended with exit status 7)"
    );
    let refused = desk.input("once", "x").await.unwrap_err().0;
    assert!(
        refused.starts_with("nothing can be typed: the program"),
        "{refused}"
    );
    let refused = desk.open("once", &["cat"]).await.unwrap_err().0;
    assert!(refused.contains("already"), "{refused}");
    assert_eq!(desk.close("once").await, "Closed terminal once");
    desk.opened("once", &["cat"]).await;
    desk.leave().await;
}

#[tokio::test]
async fn check_148_what_cannot_start_is_refused_and_registers_nothing() {
    let desk = Desk::new();
    desk.bench.put("plain", "echo hi\n");
    desk.bench.put("text", "echo hi\n");
    desk.bench.put("lost", "#!/no/such/interpreter\n");
    for name in ["text", "lost"] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(
            desk.bench.path(name),
            std::fs::Permissions::from_mode(0o755),
        )
        .unwrap();
    }
    for (argv, wanted) in [
        (vec![], "`argv` names no program"),
        (vec![""], "`argv` names no program"),
        (vec!["no-such-program"], "no folder of PATH"),
        (vec!["ls -l"], "each argument apart"),
        (vec!["./missing"], "there is no such file"),
        (vec!["./plain"], "permission denied"),
        (vec!["/"], "is a folder"),
        (vec!["./text"], "names no interpreter"),
        (vec!["./lost"], "/no/such/interpreter is not there"),
        (vec!["cat", "a\0b"], "zero byte"),
    ] {
        let refused = desk.open("t", &argv).await.unwrap_err().0;
        assert!(refused.contains(wanted), "{argv:?}: {refused}");
        assert!(!desk.bench.world.terminals().is_open("t"));
    }
    for name in ["", "  ", "a:b", "a\nb", "a\u{202e}b", &"x".repeat(65)] {
        let refused = desk.open(name, &["cat"]).await.unwrap_err().0;
        assert!(refused.starts_with("`name` is"), "{refused}");
    }
    // Elements are looked at before a person is asked.
    let pipeline = desk.bench.pipeline(Table::standard());
    for (id, argv) in [("a", json!(["cat", 3])), ("b", json!({})), ("c", json!(3))] {
        let args = json!({"name": "t", "argv": argv});
        pipeline
            .run_calls(
                vec![call(id, "terminal_open", args)],
                &CancellationToken::new(),
            )
            .await
            .unwrap();
        let refused = desk.bench.journal.error(id);
        assert!(refused.contains("is wanted"), "{refused}");
    }
    assert!(desk.bench.approver.questions().is_empty());
    // A text alone is a program.
    desk.bench.approver.approve("d");
    let args = json!({"name": "t", "argv": "cat"});
    pipeline
        .run_calls(
            vec![call("d", "terminal_open", args)],
            &CancellationToken::new(),
        )
        .await
        .unwrap();
    assert!(
        desk.bench
            .journal
            .output("d")
            .text
            .starts_with("Opened terminal t")
    );
    desk.leave().await;
}

#[tokio::test]
async fn a_failed_start_leaves_room() {
    let desk = Desk::new();
    for _ in 0..2 * MOST {
        desk.open("t", &["no-such-program"]).await.unwrap_err();
    }
    desk.opened("t", &["cat"]).await;
    desk.leave().await;
}

#[tokio::test]
async fn check_151_a_close_ends_all_that_the_program_started() {
    let desk = Desk::new();
    let script = "trap '' HUP TERM; (trap '' HUP TERM; sleep 600) & echo pids $$ $!; wait";
    let shell = desk.opened("tree", &["bash", "-c", script]).await;
    let text = desk.read_until("tree", "pids").await;
    let pids: Vec<i32> = text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    assert_eq!(pids.first(), Some(&shell));
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    assert_eq!(desk.close("tree").await, "Closed terminal tree");
    for pid in pids {
        assert!(!is_alive(pid), "{pid} outlived its terminal");
    }
    desk.leave().await;
}

#[tokio::test]
async fn check_151_terminals_end_with_the_session_and_leave_no_zombie() {
    let desk = Desk::new();
    let mut pids = Vec::new();
    for name in ["a", "b"] {
        pids.push(desk.opened(name, &["cat"]).await);
    }
    desk.bench.world.shutdown().await;
    for pid in pids {
        is_gone(pid).await;
    }
    let refused = desk.open("c", &["cat"]).await.unwrap_err().0;
    assert!(refused.contains("the session has ended"), "{refused}");
}

#[tokio::test]
async fn a_world_that_is_dropped_takes_its_terminals_along() {
    let desk = Desk::new();
    let pid = desk.opened("a", &["cat"]).await;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let mut fields = stat.rsplit(')').next().unwrap().split_whitespace();
    let supervisor = fields.nth(1).unwrap().parse().unwrap();
    drop(desk);
    is_gone(pid).await;
    is_gone(supervisor).await;
}

#[tokio::test]
async fn a_read_waits_for_something_new_and_comes_back_early() {
    let desk = Desk::new();
    desk.opened("slow", &["sh", "-c", "sleep 0.3; echo now; sleep 600"])
        .await;
    let begun = Instant::now();
    let output = desk.read_for("slow", 60_000).await.unwrap();
    assert_eq!(output.text, "now");
    assert!(begun.elapsed() < Duration::from_secs(30));
    let begun = Instant::now();
    let output = desk.read_for("slow", 200).await.unwrap();
    assert_eq!(output.text, "(nothing to read)");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    desk.leave().await;
}

#[tokio::test]
async fn a_cancelled_read_ends_at_once() {
    let desk = Desk::new();
    desk.opened("t", &["cat"]).await;
    let context = desk.bench.context();
    context.cancel.cancel();
    let args = json!({"name": "t", "timeout": 600_000});
    let tool = TerminalRead::new();
    let read = tool.run(&context, args);
    let failure = tokio::time::timeout(Duration::from_secs(20), read)
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(failure.0, "cancelled: nothing was read");
    desk.leave().await;
}

#[tokio::test]
async fn a_flood_is_bounded_and_counted_and_does_not_stop_the_program() {
    let desk = Desk::new();
    let script =
        "i=0; while [ $i -lt 20000 ]; do echo line-$i; i=$((i+1)); done; echo the end; cat";
    desk.opened("flood", &["bash", "-c", script]).await;
    // Nobody reads until it is done.
    let deadline = Instant::now() + PATIENCE;
    let terminals = desk.bench.world.terminals();
    let done = || {
        let terminal = terminals.find("flood").unwrap();
        let rows = terminal.screen().rows();
        rows.iter().any(|row| row == "the end")
    };
    while !done() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let output = desk.read_for("flood", 1000).await.unwrap();
    let shown = output.text.lines().count();
    assert!(output.text.len() < 70_000, "{}", output.text.len());
    assert!(output.text.ends_with("line-19999\nthe end"));
    let first = 20_001 - shown;
    let bytes: usize = (0..first).map(|line| format!("line-{line}\n").len()).sum();
    assert_eq!(
        output.remarks,
        [format!(
            "{bytes} bytes in {first} lines before this were not read in time and are left out"
        )]
    );
    desk.leave().await;
}

/// Such a program has always just written something.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_does_not_wait_for_a_program_that_never_stops_writing() {
    let desk = Desk::new();
    desk.opened("flood", &["yes"]).await;
    desk.read_until("flood", "y").await;
    let begun = Instant::now();
    for _ in 0..4 {
        let output = desk.read_for("flood", 100).await.unwrap();
        assert!(output.text.contains('y'), "{}", output.text);
    }
    // Each settles for 0.3 s. Without a limit they took some seconds, as chance had it, and
    // the end took half a minute.
    desk.leave().await;
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn typing_does_not_wait_for_ever_on_a_program_that_takes_nothing_in() {
    let desk = Desk::new();
    let script = "stty raw -echo; echo ready; sleep 600";
    desk.opened("deaf", &["sh", "-c", script]).await;
    desk.read_until("deaf", "ready").await;
    let mut refused = 0;
    for _ in 0..8 {
        let output = desk.typed("deaf", &"x".repeat(16 * 1024)).await;
        refused += usize::from(!output.remarks.is_empty());
        if refused > 0 {
            assert!(
                output
                    .remarks
                    .iter()
                    .any(|remark| remark.contains("were not typed")),
                "{:?}",
                output.remarks
            );
            break;
        }
    }
    assert_eq!(refused, 1, "the terminal took everything");
    let refused = desk
        .input("deaf", &"x".repeat(17 * 1024))
        .await
        .unwrap_err()
        .0;
    assert!(refused.contains("16384 can be typed"), "{refused}");
    desk.leave().await;
}

#[tokio::test]
async fn a_password_prompt_is_told() {
    let desk = Desk::new();
    let script =
        "printf 'Password: '; stty -echo; read -r word; stty echo; echo; echo got ${#word}";
    desk.opened("ask", &["bash", "-c", script]).await;
    desk.read_until("ask", "Password:").await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = desk.read_for("ask", 0).await.unwrap();
        if output
            .remarks
            .iter()
            .any(|remark| remark.contains("not shown as it is typed"))
        {
            break;
        }
        assert!(Instant::now() < deadline, "{output:?}");
    }
    desk.typed("ask", "word\n").await;
    let text = desk.read_until("ask", "has ended").await;
    assert!(text.contains("got 4") && !text.contains("word"), "{text}");
    desk.leave().await;
}

#[tokio::test]
async fn a_pager_is_read_as_its_screen() {
    let desk = Desk::new();
    if is_missing(&desk, "less").await {
        return;
    }
    let lines: Vec<String> = (1..=200).map(|line| format!("row {line}")).collect();
    desk.bench.put("long.txt", lines.join("\n"));
    desk.opened("less", &["less", "long.txt"]).await;
    let page = desk.screen_with("less", "row 23").await;
    assert!(page.text.starts_with("row 1\nrow 2\n"), "{}", page.text);
    assert!(
        page.remarks
            .iter()
            .any(|remark| remark.contains("24 rows and 80 columns")),
        "{:?}",
        page.remarks
    );
    desk.typed("less", "<End>").await;
    let page = desk.screen_with("less", "row 200").await;
    assert!(!page.text.contains("row 100\n"), "{}", page.text);
    assert!(!page.text.contains('\u{1b}'));
    desk.typed("less", "q").await;
    desk.read_until("less", "has ended with exit status 0")
        .await;
    desk.leave().await;
}

#[tokio::test]
async fn an_editor_is_read_as_its_screen_and_saves_what_is_typed() {
    let desk = Desk::new();
    if is_missing(&desk, "vi").await {
        return;
    }
    desk.opened("vi", &["vi", "new.txt"]).await;
    desk.screen_with("vi", "~").await;
    desk.typed("vi", "ihello <lt>Up> world<Esc>").await;
    let screen = desk.screen_with("vi", "hello <Up> world").await;
    assert!(
        screen.text.starts_with("hello <Up> world\n~\n"),
        "{}",
        screen.text
    );
    desk.typed("vi", ":wq<Enter>").await;
    desk.read_until("vi", "has ended with exit status 0").await;
    assert_eq!(desk.bench.bytes("new.txt"), b"hello <Up> world\n");
    desk.leave().await;
}

#[tokio::test]
async fn a_repl_answers() {
    let desk = Desk::new();
    if is_missing(&desk, "python3").await {
        return;
    }
    desk.opened("py", &["python3", "-i", "-q"]).await;
    desk.read_until("py", ">>> ").await;
    desk.typed("py", "x = 20\n").await;
    desk.read_until("py", ">>> ").await;
    desk.typed("py", "print('sum', x + 22)\n").await;
    desk.read_until("py", "sum 42").await;
    desk.typed("py", "<C-d>").await;
    desk.read_until("py", "has ended").await;
    desk.leave().await;
}

#[tokio::test]
async fn an_interactive_rebase_is_done() {
    let desk = Desk::new();
    if is_missing(&desk, "vi").await || is_missing(&desk, "git").await {
        return;
    }
    let script = "set -e; export GIT_CONFIG_GLOBAL=/dev/null HOME=$PWD GIT_EDITOR=vi; git init -q r; cd r; \
                  git config user.name n; git config user.email e@x; \
                  for i in 1 2 3; do git commit -q --allow-empty -m c$i; done; exec git rebase -i --root --keep-empty";
    desk.opened("git", &["bash", "-c", script]).await;
    let screen = desk.screen_with("git", "pick").await;
    assert!(screen.text.contains(" c1"), "{}", screen.text);
    desk.typed("git", "dd:wq<Enter>").await;
    desk.read_until("git", "has ended with exit status 0").await;
    desk.close("git").await;
    desk.opened(
        "git",
        &["git", "-C", "r", "--no-pager", "log", "--format=%s"],
    )
    .await;
    let text = desk.read_until("git", "has ended").await;
    assert!(text.starts_with("c3\nc2\n"), "{text}");
    desk.leave().await;
}

#[tokio::test]
async fn a_size_of_its_own() {
    let bench = Bench::with(|settings| {
        settings.terminals = TerminalSettings {
            rows: 50,
            columns: 132,
            ..TerminalSettings::default()
        };
    });
    let desk = Desk { bench };
    desk.opened("t", &["sh", "-c", "stty size"]).await;
    desk.read_until("t", "50 132").await;
    desk.leave().await;
}

/// What the thread has used of a processor, in nanoseconds.
fn used() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or_default()
}

#[tokio::test]
async fn r068_silent_terminals_cost_nothing() {
    let desk = Desk::new();
    desk.opened("quiet", &["cat"]).await;
    // Its side of the terminal is closed by all that held it.
    desk.opened("shut", &["sh", "-c", "echo x; exec sleep 600 <&- >&- 2>&-"])
        .await;
    desk.read_until("shut", "x").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = used();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let spent = Duration::from_nanos(used() - before);
    assert!(spent < Duration::from_millis(50), "{spent:?} in a second");
    desk.leave().await;
}

#[tokio::test]
async fn check_144_a_terminal_passes_the_sandbox_and_asks_for_a_tty() {
    use std::sync::{Arc, Mutex};

    use crate::world::sandbox::{Sandbox, SandboxRefusal, SandboxRequest, Wrapped};

    struct Recording(Mutex<Vec<SandboxRequest>>);
    impl Sandbox for Recording {
        fn name(&self) -> &'static str {
            "recording"
        }
        fn wrap(&self, request: SandboxRequest) -> Result<Wrapped, SandboxRefusal> {
            self.0.lock().unwrap().push(request.clone());
            if request.argv.last().is_some_and(|last| last == "refused") {
                return Err(SandboxRefusal("not this".to_owned()));
            }
            Ok(Wrapped::unchanged(request.argv))
        }
        fn isolated(&self) -> bool {
            true
        }
    }
    let recording = Arc::new(Recording(Mutex::default()));
    let bench = Bench::with(|settings| settings.sandbox = Some(recording.clone() as _));
    let desk = Desk { bench };
    desk.opened("t", &["cat"]).await;
    let asked = recording.0.lock().unwrap().pop().unwrap();
    assert!(asked.tty);
    assert_eq!(asked.argv, ["cat"]);
    let refused = desk.open("u", &["echo", "refused"]).await.unwrap_err().0;
    assert_eq!(refused, "the sandbox refuses: not this");
    assert!(!desk.bench.world.terminals().is_open("u"));
    desk.leave().await;
}

#[tokio::test]
async fn a_program_cannot_write_the_ledger() {
    let desk = Desk::new();
    desk.opened("t", &["sh", "-c", "echo '--- terret ---'; echo forged"])
        .await;
    let text = desk.read_until("t", "has ended").await;
    assert!(text.starts_with("| --- terret ---\nforged\n"), "{text}");
    desk.leave().await;
}

#[test]
fn titles_show_what_is_typed() {
    let title = |args: Value| TerminalInput::new().title(&args);
    assert_eq!(
        title(json!({"name": "py", "text": "quit()\n\u{3}"})),
        "Type into terminal py: quit()⏎<C-c>"
    );
    assert_eq!(title(json!({"name": 3})), "Type into terminal");
    let open = TerminalOpen::new();
    assert_eq!(
        open.title(&json!({"name": "py", "argv": ["python3", "-i"]})),
        "Open terminal py: python3 -i"
    );
}
