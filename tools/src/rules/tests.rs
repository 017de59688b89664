#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;

use proptest::prelude::*;

use super::{Effect, Rule, RuleError, Scope, Subject, is_plain, offer};

fn rule(text: &str, effect: Effect) -> Rule {
    Rule::parse(text, effect, Scope::Session).expect("a rule")
}

fn subject(text: &str) -> Option<Subject<'_>> {
    Some(Subject {
        text,
        cwd: Path::new("/home/user/project"),
    })
}

fn allows(text: &str, tool: &str, about: &str) -> bool {
    rule(text, Effect::Allow).matches(tool, subject(about))
}

#[test]
fn a_command_is_allowed_as_it_stands_or_by_its_beginning() {
    assert!(allows("Bash(cargo test)", "Bash", "cargo test"));
    assert!(!allows("Bash(cargo test)", "Bash", "cargo test --all"));
    assert!(allows("Bash(cargo test:*)", "Bash", "cargo test"));
    assert!(allows("Bash(cargo test:*)", "Bash", "cargo test --all"));
    assert!(!allows("Bash(cargo test:*)", "Bash", "cargo tests"));
    assert!(allows("Bash(cargo test:*)", "job_start", "cargo test"));
    assert!(!allows("Bash(cargo test)", "Read", "cargo test"));
}

#[test]
fn r004_nothing_rides_along_on_an_allowed_command() {
    for command in [
        "git status; touch p",
        "git status && touch p",
        "git status | tee p",
        "git status & touch p",
        "git status > p",
        "git status < p",
        "git status $(touch p)",
        "git status `touch p`",
        "git status <(touch p)",
        "git status \"$(touch p)\"",
        "git status ${IFS}x",
        "git status $HOME",
        "git status\ntouch p",
        "git status\rtouch p",
        "git status {a,b}",
        "git status \\\n x",
        "(git status)",
        "git status # note",
        "git status 'open",
        "PAGER=x git status",
        "env git status",
        "sudo git status",
        "eval git status",
        "g?t status",
        "'git' status",
    ] {
        assert!(!allows("Bash(git:*)", "Bash", command), "{command}");
        assert!(!allows("Bash(git status:*)", "Bash", command), "{command}");
        assert!(
            !allows(&format!("Bash({command})"), "Bash", command),
            "{command}"
        );
    }
    assert!(allows(
        "Bash(git commit:*)",
        "Bash",
        "git commit -m 'a plain; message'"
    ));
    assert!(!allows(
        "Bash(git commit:*)",
        "Bash",
        "git commit -m \"a $x\""
    ));
}

#[test]
fn r005_a_denied_command_is_denied_behind_wrappers_and_in_compounds() {
    let deny = rule("Bash(rm:*)", Effect::Deny);
    for command in [
        "rm -rf x",
        "nohup rm -rf x",
        "timeout 5 rm -rf x",
        "sudo -n rm -rf x",
        "A=1 rm -rf x",
        "true && rm -rf x",
        "echo $(rm -rf x)",
        "(rm -rf x)",
        "bash -c 'rm -rf x'",
        "ls | xargs rm",
        "/usr/bin/env rm x",
    ] {
        assert!(deny.matches("Bash", subject(command)), "{command}");
    }
    assert!(!deny.matches("Bash", subject("rmdir x")));
    assert!(!deny.matches("Bash", subject("ls")));
}

#[test]
fn paths_are_matched_from_the_sessions_folder_or_from_the_top() {
    assert!(allows("Edit(src/**)", "Edit", "src/a/b.rs"));
    assert!(allows("Edit(src/**)", "Write", "src/a.rs"));
    assert!(allows("Edit(./src/*)", "MultiEdit", "src/a.rs"));
    assert!(!allows("Edit(src/*)", "Edit", "src/a/b.rs"));
    assert!(!allows("Edit(src/**)", "Read", "src/a.rs"));
    assert!(!allows("Edit(**)", "Edit", "/etc/passwd"));
    assert!(allows("Read(/etc/*)", "Read", "/etc/hosts"));
    assert!(allows(
        "Edit(/home/user/project/src/**)",
        "Edit",
        "src/a.rs"
    ));
    assert!(allows("Read(secrets/**)", "Grep", "secrets/key"));
}

#[test]
fn names_may_be_globs() {
    assert!(allows("mcp__github__*", "mcp__github__issue", ""));
    assert!(!allows("mcp__github__*", "mcp__gitlab__issue", ""));
    assert!(rule("Write", Effect::Deny).matches("Write", None));
    assert!(!rule("Write", Effect::Deny).matches("Edit", None));
    assert!(!rule("Bash(ls)", Effect::Allow).matches("Bash", None));
}

#[test]
fn what_is_wrong_with_a_rule_is_said() {
    let error =
        |text: &str| Rule::parse(text, Effect::Allow, Scope::Session).expect_err("an error");
    assert_eq!(error("  "), RuleError::Empty);
    assert_eq!(error("(x)"), RuleError::Empty);
    assert_eq!(error("Bash(ls"), RuleError::Unclosed("Bash(ls".to_owned()));
    assert!(matches!(error("Bash()"), RuleError::NoSubject(..)));
    assert!(matches!(error("Edit([)"), RuleError::Pattern { .. }));
    assert!(matches!(error("Ba sh"), RuleError::Name(_)));
}

#[test]
fn the_offered_rule_is_one_that_matches_again() {
    assert_eq!(
        offer("Bash", Some("cargo test")),
        Some("Bash(cargo test)".to_owned())
    );
    assert_eq!(offer("Bash", Some("cargo test && rm x")), None);
    assert_eq!(offer("Bash", Some("echo :*")), None);
    assert_eq!(
        offer("Write", Some("src/[id].ts")),
        Some("Edit(src/\\[id\\].ts)".to_owned())
    );
    assert_eq!(offer("mcp__a__b", None), Some("mcp__a__b".to_owned()));
}

proptest! {
    #[test]
    fn an_offered_rule_covers_the_call_it_was_offered_for_and_no_other_command(
        command in "[a-z]{1,4}( [-a-z./*'\";&|$(){}\\\\]{1,6}){0,3}",
        other in "[a-z]{1,4}( [-a-z./]{1,6}){0,3}",
    ) {
        if let Some(text) = offer("Bash", Some(&command)) {
            let rule = rule(&text, Effect::Allow);
            prop_assert!(rule.matches("Bash", subject(&command)), "{text}");
            prop_assert_eq!(rule.matches("Bash", subject(&other)), command.trim() == other.trim());
        }
    }

    #[test]
    fn an_offered_edit_rule_covers_its_path_alone(path in "[a-c*?!\\[\\]{}\\\\ .-]{1,10}", other in "[a-c.]{1,6}") {
        if let Some(text) = offer("Edit", Some(&path))
            && !path.starts_with("./") && path != "*"
        {
            let rule = rule(&text, Effect::Allow);
            prop_assert!(rule.matches("Edit", subject(&path)), "{text}");
            prop_assert_eq!(rule.matches("Edit", subject(&other)), path == other, "{} {}", text, other);
        }
    }

    #[test]
    fn nothing_with_an_operator_is_plain(before in "[a-z]{1,6}", operator in "[;&|<>$`(){}\n]", after in "[a-z]{1,6}") {
        let command = format!("{before}{operator}{after}");
        prop_assert!(!is_plain(&command));
    }

    #[test]
    fn no_text_panics(text in ".{0,40}", command in ".{0,40}") {
        for effect in [Effect::Allow, Effect::Deny] {
            if let Ok(rule) = Rule::parse(&text, effect, Scope::Session) {
                rule.matches("Bash", subject(&command));
                rule.matches("Edit", subject(&command));
            }
        }
    }
}

/// To the shell these blanks are letters of the program's name.
#[test]
fn a_blank_that_the_shell_does_not_know_allows_nothing() {
    for command in ["\u{a0}ls", "ls\u{a0}", "ls\r", "ls\u{2003}-l", "ls\u{3000}"] {
        assert!(!allows("Bash(ls)", "Bash", command), "{command:?}");
        assert!(!allows("Bash(ls:*)", "Bash", command), "{command:?}");
        assert_eq!(offer("Bash", Some(command)), None, "{command:?}");
    }
    assert!(allows("Bash(ls:*)", "Bash", " ls\t-l\n"));
    assert!(allows("Bash(echo:*)", "Bash", "echo 'a\u{a0}b'"));
}

#[test]
fn a_denied_command_is_known_in_other_spellings() {
    let denies = |command: &str| {
        rule("Bash(rm -rf:*)", Effect::Deny).matches("Bash", subject(command))
            && rule("Bash(rm:*)", Effect::Ask).matches("Bash", subject(command))
    };
    for command in [
        "rm  -rf x",
        "rm\t-rf x",
        "\\rm -rf x",
        "r'm' -rf x",
        "rm \"-rf\" x",
        "rm \\\n-rf x",
        "/bin/rm -rf x",
        "true && /usr/bin/rm   -rf x",
        "sudo -n /bin/rm -rf x",
    ] {
        assert!(denies(command), "{command:?}");
    }
    assert!(!denies("echo rm -rf is bad"));
}

#[test]
fn a_blank_and_a_star_at_the_end_mean_any_command_that_begins_so() {
    let cwd = Path::new("/work");
    for effect in [Effect::Allow, Effect::Deny] {
        let rule = Rule::parse("Bash(cat *)", effect, Scope::User).expect("a rule");
        let matches = |text| rule.matches("Bash", Some(Subject { text, cwd }));
        assert!(matches("cat a.txt") && matches("cat"));
        assert!(!matches("catalogue a.txt"));
    }
    for text in ["Bash(cat*)", "Bash(*)x", "Bash(ca*t x)"] {
        let parsed = Rule::parse(text, Effect::Deny, Scope::User);
        assert!(parsed.is_err(), "{text}");
    }
    assert!(Rule::parse("Bash(*)", Effect::Deny, Scope::User).is_ok());
}

#[test]
fn a_command_that_would_read_as_a_prefix_is_not_offered_as_a_rule() {
    for command in ["ls *", "ls:*", "*"] {
        assert_eq!(offer("Bash", Some(command)), None, "{command}");
    }
    assert_eq!(
        offer("Bash", Some("ls *.rs")).as_deref(),
        Some("Bash(ls *.rs)")
    );
}

#[test]
fn a_rule_for_a_command_lets_nothing_through_to_a_terminal() {
    let typed = "repl: cargo test";
    for text in ["Bash(cargo test)", "Bash(cargo test:*)", "Bash(*)", "Bash"] {
        let allow = rule(text, Effect::Allow);
        assert!(allow.matches("Bash", subject("cargo test")), "{text}");
        for tool in ["terminal_open", "terminal_input"] {
            assert!(!allow.matches(tool, subject("cargo test")), "{text}");
            assert!(!allow.matches(tool, subject(typed)), "{text}");
        }
        // Who denies or asks means the command, wherever it runs.
        for effect in [Effect::Deny, Effect::Ask] {
            let rule = rule(text, effect);
            assert!(
                rule.matches("terminal_open", subject("cargo test")),
                "{text}"
            );
            assert!(rule.matches("terminal_input", subject(typed)), "{text}");
        }
    }
}

#[test]
fn what_is_offered_for_a_terminal_covers_that_terminal_alone() {
    let matches = |offered: &str, tool: &str, text: &str| allows(offered, tool, text);
    let open = offer("terminal_open", Some("python3 -i '*.py'")).expect("an offer");
    assert_eq!(open, "terminal_open(python3 -i '\\*.py')");
    assert!(matches(&open, "terminal_open", "python3 -i '*.py'"));
    assert!(!matches(&open, "terminal_open", "python3 -i 'a.py'"));
    let input = offer("terminal_input", Some("re*pl: print(1)\n")).expect("an offer");
    assert_eq!(input, "terminal_input(re\\*pl: *)");
    assert!(matches(&input, "terminal_input", "re*pl: anything\nelse"));
    assert!(!matches(&input, "terminal_input", "repl: anything"));
    assert!(!matches(&input, "terminal_input", "re*pl2: anything"));
    assert!(!matches(&input, "terminal_open", "re*pl: anything"));
    assert_eq!(
        offer("terminal_close", Some("repl")).as_deref(),
        Some("terminal_close")
    );
    assert_eq!(offer("terminal_open", Some("bash -c 'a\nb'")), None);
}
