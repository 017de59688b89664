//! Helpers as real processes: this test binary, called by another name.
#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

use std::io::Read;
use std::os::fd::AsFd;
use std::time::Instant;

use super::link::{Lines, Order, Report, Request, Status, Step, Streams, Word};
use super::*;

struct Supervised {
    helper: Helper,
    lines: Lines,
    output: std::io::PipeReader,
}

fn order(argv: &[&str]) -> Order {
    let word = |text: &str| Word::Text(text.to_owned());
    Order {
        program: None,
        argv: argv.iter().map(|text| word(text)).collect(),
        cwd: word("/tmp"),
        environment: vec![(word("PATH"), word("/usr/local/bin:/usr/bin:/bin"))],
        streams: Streams::Output,
    }
}

impl Supervised {
    fn start(order: &Order) -> Self {
        let (output, writer) = std::io::pipe().unwrap();
        let helper = HelperProgram::Ourselves
            .start(Role::Supervisor, order, &[writer.as_fd()])
            .unwrap();
        helper
            .link
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self {
            helper,
            lines: Lines::default(),
            output,
        }
    }

    fn bash(script: &str) -> Self {
        Self::start(&order(&["bash", "--norc", "-c", script]))
    }

    /// The next report; none at the end of the link.
    fn report(&mut self) -> Option<Report> {
        loop {
            if let Some(report) = self.lines.next().unwrap() {
                return Some(report);
            }
            if !self.lines.fill(&mut &self.helper.link).unwrap() {
                return None;
            }
        }
    }

    fn pid(&mut self) -> i32 {
        match self.report() {
            Some(Report::Started { pid }) => pid,
            other => panic!("{other:?}"),
        }
    }

    fn end(&self, grace: Duration) {
        let grace_ms = grace.as_millis().try_into().unwrap();
        link::tell(&self.helper.link, &Request::End { grace_ms }).unwrap();
    }

    /// One line of the output, with the process id in it.
    fn line(&mut self) -> i32 {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.output.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap().parse().unwrap()
    }

    fn rest(mut self) -> String {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        self.helper.child.wait().unwrap();
        text
    }
}

fn until_gone(pid: i32) {
    let begun = Instant::now();
    while members::look(pid).is_some_and(|process| !process.dead) {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{pid} still runs"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_tree_is_told_from_start_to_end() {
    let mut tree = Supervised::bash("echo out; echo err >&2; exit 7");
    assert!(tree.pid() > 1);
    assert_eq!(
        tree.report(),
        Some(Report::Ended {
            status: Status::Exited(7)
        })
    );
    assert_eq!(tree.report(), Some(Report::Gone));
    assert_eq!(tree.report(), None);
    assert_eq!(tree.rest(), "out\nerr\n");
}

#[test]
fn what_cannot_start_is_told_with_the_step() {
    let mut order = order(&["no-such-program"]);
    let mut tree = Supervised::start(&order);
    let missing = rustix::io::Errno::NOENT.raw_os_error();
    assert_eq!(
        tree.report(),
        Some(Report::Failed {
            step: Step::Program,
            errno: missing
        })
    );
    tree.rest();
    order.cwd = Word::Text("/no/such/folder".to_owned());
    let mut tree = Supervised::start(&order);
    assert_eq!(
        tree.report(),
        Some(Report::Failed {
            step: Step::Folder,
            errno: missing
        })
    );
    tree.rest();
}

/// An order is far longer than a socket's buffer, and need not be text.
#[test]
fn a_huge_order_arrives_whole() {
    let mut order = order(&[
        "bash",
        "--norc",
        "-c",
        "echo ${#A0} ${#A15}; printf %s \"$ODD\"",
    ]);
    for number in 0..16 {
        order.environment.push((
            Word::Text(format!("A{number}")),
            Word::Text("é".repeat(50_000)),
        ));
    }
    order.environment.push((
        Word::Text("ODD".to_owned()),
        Word::Bytes(vec![b'a', 0xff, b'b']),
    ));
    let mut tree = Supervised::start(&order);
    tree.pid();
    let mut bytes = Vec::new();
    tree.output.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"100000 100000\na\xffb");
    tree.rest();
}

/// It sheds everything that a tree could be known by but its descent.
const ESCAPE: &str = "env -i setsid bash -c '(exec >/dev/null 2>&1; sleep 600) & echo $!' & wait";

#[test]
fn what_sheds_everything_but_its_descent_ends_with_the_link() {
    let mut tree = Supervised::bash(&format!("{ESCAPE}; exec >/dev/null 2>&1; sleep 600"));
    let leader = tree.pid();
    let escaped = tree.line();
    assert!(members::look(escaped).is_some_and(|process| !process.dead));
    tree.helper.link.shutdown(std::net::Shutdown::Both).unwrap();
    until_gone(escaped);
    until_gone(leader);
    tree.helper.child.wait().unwrap();
}

#[test]
fn leftovers_are_named_and_ended() {
    let mut tree = Supervised::bash(ESCAPE);
    tree.pid();
    let escaped = tree.line();
    assert!(matches!(tree.report(), Some(Report::Ended { .. })));
    let Some(Report::Left { members: left }) = tree.report() else {
        panic!("leftovers come next");
    };
    assert!(
        left.iter()
            .any(|left| left.pid == escaped && left.command.contains("sleep")),
        "{left:?}"
    );
    assert_eq!(tree.report(), Some(Report::Gone));
    until_gone(escaped);
    tree.rest();
}

#[test]
fn check_146_what_ignores_the_request_is_killed_after_the_grace() {
    let mut tree = Supervised::bash("trap '' TERM HUP INT; echo $$; while :; do sleep 600; done");
    let leader = tree.pid();
    assert_eq!(tree.line(), leader);
    let begun = Instant::now();
    tree.end(Duration::from_millis(300));
    assert_eq!(
        tree.report(),
        Some(Report::Ended {
            status: Status::Signalled(9)
        })
    );
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(tree.report(), Some(Report::Gone));
    tree.rest();
}

/// The leader goes with its supervisor; what else there is has to be found by the engine.
#[test]
fn a_killed_supervisor_takes_the_leader_along() {
    let mut tree = Supervised::bash("sleep 600; echo never");
    let leader = tree.pid();
    tree.helper.child.kill().unwrap();
    assert_eq!(tree.report(), None);
    until_gone(leader);
    tree.helper.child.wait().unwrap();
}

#[test]
fn only_the_three_streams_reach_a_program() {
    let leaked = rustix::io::dup(std::fs::File::open("/dev/null").unwrap()).unwrap();
    let mut tree = Supervised::start(&order(&["ls", "/proc/self/fd"]));
    tree.pid();
    // The fourth is the folder that it reads.
    assert_eq!(tree.rest(), "0\n1\n2\n3\n");
    drop(leaked);
}

#[test]
fn a_program_that_does_not_dispatch_is_refused_as_a_helper() {
    assert!(ANSWERS.load(Ordering::Relaxed), "this binary does");
    assert_eq!(Role::named(OsStr::new("terret")), None);
    assert_eq!(
        Role::named(OsStr::new("terret-supervisor")),
        Some(Role::Supervisor)
    );
}
