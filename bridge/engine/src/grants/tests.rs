#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![expect(clippy::disallowed_methods, reason = "a test makes its own files")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use proptest::prelude::*;
use tempfile::TempDir;

use super::splice::{self, Place};
use super::*;

struct Files {
    folder: TempDir,
}

impl Files {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn user(&self, text: &str) -> RuleFile {
        let path = self.folder.path().join("config.toml");
        fs::write(&path, text).unwrap();
        RuleFile::user(path)
    }

    fn project(&self) -> RuleFile {
        RuleFile::project(
            &self.folder.path().join("state"),
            Path::new("/some/project"),
        )
    }
}

fn text_of(file: &RuleFile) -> String {
    fs::read_to_string(file.path()).unwrap()
}

fn granted(effect: Effect, text: &str) -> StoredRule {
    StoredRule {
        added: Some(1_798_761_600_000),
        origin: Some("approval a12 of session s1".to_owned()),
        ..StoredRule::new(effect, text)
    }
}

fn texts(rules: &[StoredRule]) -> Vec<(Effect, &str)> {
    rules
        .iter()
        .map(|rule| (rule.effect, rule.text.as_str()))
        .collect()
}

#[test]
fn a_file_that_is_not_there_has_no_rules_and_gets_a_private_one() {
    let files = Files::new();
    let file = files.project();
    assert_eq!(file.read().unwrap(), []);
    assert_eq!(file.stamp(), None);
    assert!(!file.remove(Effect::Allow, "Bash(ls)").unwrap());
    assert!(!file.path().exists(), "a removal makes no file");

    file.add(&granted(Effect::Allow, "Bash(cargo test)"))
        .unwrap();
    assert_eq!(
        text_of(&file),
        "# Rules for one project; `terret rules` lists them and takes them back.\n\
         path = \"/some/project\"\n\n\
         allow = [\n    { rule = \"Bash(cargo test)\", added = 2027-01-01T00:00:00Z, \
         origin = \"approval a12 of session s1\" },\n]\n"
    );
    assert_eq!(
        file.read().unwrap(),
        [granted(Effect::Allow, "Bash(cargo test)")]
    );
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(file.path()), 0o600);
    let folder = file.path().parent().unwrap();
    assert_eq!(mode(folder), 0o700);
    assert_eq!(mode(folder.parent().unwrap()), 0o700);
}

#[test]
fn comments_and_order_are_kept_on_add_and_remove() {
    let files = Files::new();
    let before = "# mine\nmodel = \"a:b\" # the good one\n\n[policy]\n# what may run\nallow = [\n    \
                  # looking\n    \"Bash(ls)\", # always\n    # tests\n    'Bash(cargo test:*)' , # often\n]\n\
                  deny = [\"Bash(rm:*)\"]  # never\n\n[web]\nprivate = false\n";
    let file = files.user(before);
    file.add(&StoredRule::new(Effect::Allow, "Bash(make)"))
        .unwrap();
    file.add(&StoredRule::new(
        Effect::Deny,
        "WebFetch(domain:example.com)",
    ))
    .unwrap();
    file.add(&StoredRule::new(Effect::Ask, "Read(//etc/hosts)"))
        .unwrap();
    let after = text_of(&file);
    assert_eq!(
        after,
        before
            .replace("# often\n", "# often\n    \"Bash(make)\",\n")
            .replace(
                "[\"Bash(rm:*)\"]",
                "[\"Bash(rm:*)\", \"WebFetch(domain:example.com)\"]"
            )
            .replace(
                "[policy]\n",
                "[policy]\nask = [\n    \"Read(//etc/hosts)\",\n]\n"
            )
    );
    // A line that goes takes what is said about it, and nothing else.
    assert!(file.remove(Effect::Allow, "Bash(ls)").unwrap());
    assert_eq!(
        text_of(&file),
        after.replace("    \"Bash(ls)\", # always\n", "")
    );
    assert!(!file.remove(Effect::Allow, "Bash(ls)").unwrap());
}

#[test]
fn the_same_rule_twice_is_one_with_the_newest_origin() {
    let files = Files::new();
    let file = files.user(
        "[policy]\nallow = [{ rule = \"Bash(cargo test:*)\", match = [\"cargo test x\"] }]\n",
    );
    let newer = StoredRule {
        expires: Some(1_898_761_600_000),
        ..granted(Effect::Allow, "Bash(cargo test:*)")
    };
    file.add(&newer).unwrap();
    let rules = file.read().unwrap();
    let [rule] = rules.as_slice() else {
        panic!("it is one: {rules:?}");
    };
    assert_eq!(rule.origin, newer.origin);
    assert_eq!(rule.expires, newer.expires);
    assert_eq!(rule.matches, ["cargo test x"], "examples are kept");
    // The same text of another effect is another rule.
    file.add(&StoredRule::new(Effect::Deny, "Bash(cargo test:*)"))
        .unwrap();
    assert_eq!(file.read().unwrap().len(), 2);
    assert!(file.remove(Effect::Allow, "Bash(cargo test:*)").unwrap());
    assert_eq!(
        texts(&file.read().unwrap()),
        [(Effect::Deny, "Bash(cargo test:*)")]
    );
}

#[test]
fn unknown_keys_and_wrong_values_are_refused_by_name_and_place() {
    for (text, wanted) in [
        (
            "[policy]\nallow = [\n  { rule = \"Bash(ls)\", expire = 2027-01-31 },\n]\n",
            ["expire", "line 3"],
        ),
        (
            "[policy]\nallow = [\n  { expires = 2027-01-31 },\n]\n",
            ["rule", "line 3"],
        ),
        (
            "[policy]\nallow = [\n  { rule = \"Bash(ls)\", expires = \"soon\" },\n]\n",
            ["soon", "line 3"],
        ),
        (
            "[policy]\nallow = [\n  { rule = \"Bash(ls)\", expires = 2027-01-31T08:00:00 },\n]\n",
            ["offset", "line 3"],
        ),
        ("[policy]\nallow = [7]\n", ["rule", "line 2"]),
        (
            "[policy]\ndeny = [\n  'Bash(ls)',\n  'Bash(rm',\n]\n",
            ["Bash(rm", "line 4"],
        ),
    ] {
        let files = Files::new();
        let file = files.user(text);
        let error = file.read().unwrap_err().to_string();
        for word in wanted {
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(error.contains("config.toml"), "{error}");
        // Nothing is added to a file that is not understood, and nothing is lost of it.
        file.add(&StoredRule::new(Effect::Allow, "Bash(make)"))
            .unwrap_err();
        assert_eq!(text_of(&file), text);
    }
}

#[test]
fn a_project_file_of_another_path_is_refused() {
    let files = Files::new();
    let file = files.project();
    file.add(&StoredRule::new(Effect::Allow, "Bash(ls)"))
        .unwrap();
    let text = text_of(&file).replace("/some/project", "/other/project");
    fs::write(file.path(), &text).unwrap();
    let error = file.read().unwrap_err();
    assert!(
        matches!(&error, RuleFileError::OtherProject { found, wanted, .. }
            if found == "/other/project" && wanted == "/some/project"),
        "{error}"
    );
    file.add(&StoredRule::new(Effect::Allow, "Bash(make)"))
        .unwrap_err();
    assert_eq!(text_of(&file), text);
    fs::write(file.path(), "allow = [\"Bash\"]\n").unwrap();
    assert!(
        file.read().is_err(),
        "a file that names no path is nobody's"
    );
}

#[test]
fn a_link_in_the_project_files_place_is_refused_and_a_persons_own_is_followed() {
    let files = Files::new();
    let file = files.project();
    fs::create_dir_all(file.path().parent().unwrap()).unwrap();
    let elsewhere = files.folder.path().join("elsewhere.toml");
    fs::write(&elsewhere, "path = \"/some/project\"\nallow = [\"Bash\"]\n").unwrap();
    symlink(&elsewhere, file.path()).unwrap();
    for error in [
        file.read().unwrap_err(),
        file.add(&StoredRule::new(Effect::Allow, "Bash(ls)"))
            .unwrap_err(),
        file.remove(Effect::Allow, "Bash").unwrap_err(),
    ] {
        assert!(matches!(error, RuleFileError::Link { .. }), "{error}");
    }

    let kept = files.folder.path().join("dotfiles.toml");
    fs::write(&kept, "model = \"a:b\"\n").unwrap();
    let config = files.folder.path().join("config.toml");
    symlink(&kept, &config).unwrap();
    let user = RuleFile::user(config.clone());
    user.add(&StoredRule::new(Effect::Allow, "Bash(ls)"))
        .unwrap();
    assert!(fs::symlink_metadata(&config).unwrap().is_symlink());
    assert!(fs::read_to_string(&kept).unwrap().contains("Bash(ls)"));
    fs::remove_file(&kept).unwrap();
    let error = user
        .add(&StoredRule::new(Effect::Allow, "Bash(ls)"))
        .unwrap_err();
    assert!(matches!(error, RuleFileError::Io { .. }), "{error}");
}

#[test]
fn r074_a_store_that_cannot_be_written_names_path_and_error() {
    let files = Files::new();
    // Its folder cannot be made: root may write everywhere, so a file stands in the way.
    let file = files.project();
    fs::write(files.folder.path().join("state"), "").unwrap();
    let error = file
        .add(&StoredRule::new(Effect::Allow, "Bash(ls)"))
        .unwrap_err();
    let said = error.to_string();
    assert!(said.contains(&file.path().display().to_string()), "{said}");
    assert!(said.contains("Not a directory"), "{said}");

    let user = files.user("model = \"a:b\"\n");
    fs::set_permissions(user.path(), fs::Permissions::from_mode(0o444)).unwrap();
    let error = user
        .add(&StoredRule::new(Effect::Allow, "Bash(ls)"))
        .unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("config.toml") && said.contains("read-only"),
        "{said}"
    );
    assert_eq!(text_of(&user), "model = \"a:b\"\n");

    let folder = files.folder.path().join("there");
    fs::create_dir(&folder).unwrap();
    let error = RuleFile::user(folder).read().unwrap_err();
    assert!(matches!(error, RuleFileError::NoFile { .. }), "{error}");
}

#[test]
fn r006_a_rule_made_from_an_exact_command_is_stored_as_that_command() {
    let files = Files::new();
    for command in [
        "grep 'a*' f",
        "grep \"it's\" f",
        "grep 'a\\b' \"c\"",
        "echo 'ä' \u{202e}x",
    ] {
        let file = files.project();
        let Some(text) = terret_tools::rules::offer("Bash", Some(command)) else {
            continue;
        };
        file.add(&granted(Effect::Allow, &text)).unwrap();
        let there = file.read().unwrap();
        let rule = there.iter().find(|rule| rule.text == text).unwrap();
        let rule = rule.rule(Scope::Project).unwrap();
        let covers = |line: &str| {
            rule.matches(
                "Bash",
                Some(terret_tools::rules::Subject {
                    text: line,
                    cwd: Path::new("/"),
                }),
            )
        };
        assert!(covers(command), "{command}");
        for other in [
            "grep 'a; rm -rf x' f",
            "grep 'abc' g",
            "grep 'abc' f",
            "grep aa f",
        ] {
            assert!(!covers(other), "{command} covers {other}");
        }
        // What could not be seen in an editor is not in the file as it is.
        assert!(!text_of(&file).contains('\u{202e}'));
    }
}

#[test]
fn r079_reading_leaves_the_file_as_it_is() {
    let files = Files::new();
    let file = files.project();
    file.add(&granted(Effect::Allow, "Bash(ls)")).unwrap();
    let (text, stamp) = (fs::read(file.path()).unwrap(), file.stamp());
    for _ in 0..3 {
        file.read().unwrap();
    }
    assert!(!file.remove(Effect::Deny, "Bash(ls)").unwrap());
    assert_eq!(fs::read(file.path()).unwrap(), text);
    assert_eq!(file.stamp(), stamp, "not even written again");
    file.add(&granted(Effect::Allow, "Bash(pwd)")).unwrap();
    assert_ne!(file.stamp(), stamp);
}

#[test]
fn all_who_add_at_once_are_kept() {
    let files = Files::new();
    let file = files.project();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for turn in 0..8 {
                    let text = format!("Bash(make t{worker}x{turn})");
                    file.add(&StoredRule::new(Effect::Allow, text)).unwrap();
                }
            });
        }
    });
    assert_eq!(file.read().unwrap().len(), 32);
    let left: Vec<_> = fs::read_dir(file.path().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left.len(), 2, "no temporary file is left: {left:?}");
}

#[test]
fn expiry_is_told_and_not_acted_on() {
    let rule = StoredRule {
        expires: Some(1000),
        ..StoredRule::new(Effect::Allow, "Bash(ls)")
    };
    assert!(!rule.is_expired(1000));
    assert!(rule.is_expired(1001));
    assert!(!StoredRule::new(Effect::Allow, "Bash(ls)").is_expired(u64::MAX));
}

/// Ways to write a file, `N` standing for the line's end.
const USER_FILES: &[&str] = &[
    "",
    "model = \"a:b\"N",
    "# only a remarkN",
    "NN",
    "[policy]N",
    "[policy] # mineN[web]Nprivate = trueN",
    "[policy]Nallow = []N",
    "[policy]Nallow = [ ]N",
    "[policy]Nallow = [N]N",
    "[policy]Nallow = [N    # nothing yetN]N",
    "[policy]Nallow = ['Bash(ls)']N",
    "[policy]Nallow = ['Bash(ls)', ]N",
    "[policy]Nallow = ['Bash(ls)', 'Bash(pwd)'] # twoN",
    "[policy]Nallow = [ # mineN  'Bash(ls)', # lookN  'Bash(pwd)' # whereN] # endN",
    "[policy]Nallow = [N  'Bash(ls)',N  'Bash(pwd)',N  # last wordsN]Ndeny = []N",
    "[policy]Nallow = [N\t'Bash(ls)'N\t, # lateN\t'Bash(pwd)'N]N",
    "[policy]Nallow = [N  'Bash(ls)',N  'Bash(pwd)', ]N",
    "[policy]Nallow = [N  'Bash(ls)',N  'Bash(pwd)']N",
    "[policy]Nallow = ['Bash(ls)',N  'Bash(pwd)' # whereN]N",
    "[policy]Nallow = [{ rule = 'Bash(ls)', match = ['ls'] }]Nfloor = ['*']N",
    "policy.floor = ['*']Nmodel = 'a:b'N",
    "model = 'a:b'Npolicy.allow = ['Bash(ls)']N",
    "policy = { allow = ['Bash(ls)'] }N",
    "[web]Nprivate = true",
    "[policy]",
    "[policy]Nfloor = ['*']",
];

const PROJECT_FILES: &[&str] = &[
    "path = '/some/project'",
    "path = '/some/project'N",
    "path = '/some/project'Nallow = ['Bash(ls)']N",
    "# mineNpath = '/some/project'NNallow = [N  'Bash(ls)',N]N",
    "path = '/some/project'NNask = [N  'Bash(ls)',N]NN# the endN",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]
    #[test]
    fn what_is_added_and_removed_leaves_the_same_bytes(
        (place, text) in prop_oneof![
            prop::sample::select(USER_FILES).prop_map(|text| (Place::Policy, text)),
            prop::sample::select(PROJECT_FILES).prop_map(|text| (Place::Top, text)),
        ],
        crlf in any::<bool>(),
        cut in any::<bool>(),
        rules in prop::collection::vec(
            ("[ -~äß\u{202e}\t\n]{1,12}", prop::sample::select(&[Effect::Allow, Effect::Ask, Effect::Deny][..]), any::<bool>()),
            1..4,
        ),
    ) {
        let mut before = text.replace('N', if crlf { "\r\n" } else { "\n" });
        if cut {
            before.truncate(before.trim_end_matches(['\r', '\n']).len());
        }
        let mut texts = vec![before.clone()];
        let mut added: Vec<(Effect, String)> = Vec::new();
        for (number, (rule, effect, known)) in rules.iter().enumerate() {
            // Each is another one; a `#` and a quote are text in it.
            let text = format!("Bash({number}{rule}#'\",)");
            let rule = if *known { granted(*effect, &text) } else { StoredRule::new(*effect, text.clone()) };
            let after = match splice::add(texts.last().unwrap(), place, &rule) {
                // No line of its own could be put into such a table; it is told.
                Err(error) if before.starts_with("policy = {") => {
                    prop_assert_eq!(error, splice::SpliceError::Form);
                    continue;
                }
                after => after.unwrap(),
            };
            let parsed: toml::Table = after.parse().unwrap();
            prop_assert!(parsed.len() <= 4);
            prop_assert!(crlf || !after.contains('\r'));
            prop_assert!(!crlf || before.matches('\n').count() == 0 || after.matches('\n').count() == after.matches("\r\n").count());
            texts.push(after);
            added.push((*effect, text));
        }
        // Taken back in the other order, each step is the one before.
        while let Some((effect, rule)) = added.pop() {
            let after = texts.pop().unwrap();
            let undone = splice::remove(&after, place, effect, &rule).unwrap().unwrap();
            prop_assert_eq!(&undone, texts.last().unwrap());
        }
    }
}

#[test]
fn removing_any_element_leaves_the_others() {
    for text in USER_FILES.iter().chain(PROJECT_FILES) {
        for newline in ["\n", "\r\n"] {
            let text = text.replace('N', newline);
            let place = if text.contains("path") {
                Place::Top
            } else {
                Place::Policy
            };
            let rules = |text: &str| -> Vec<String> {
                let table: toml::Table = text.parse().unwrap();
                let table = match place {
                    Place::Top => table,
                    Place::Policy => table
                        .get("policy")
                        .and_then(toml::Value::as_table)
                        .cloned()
                        .unwrap_or_default(),
                };
                let rule = |value: &toml::Value| match value {
                    toml::Value::Table(fields) => fields["rule"].as_str().unwrap().to_owned(),
                    other => other.as_str().unwrap().to_owned(),
                };
                table
                    .get("allow")
                    .and_then(toml::Value::as_array)
                    .map(|rules| rules.iter().map(rule).collect())
                    .unwrap_or_default()
            };
            let all = rules(&text);
            for gone in &all {
                let after = splice::remove(&text, place, Effect::Allow, gone)
                    .unwrap()
                    .unwrap();
                let left: Vec<String> = all.iter().filter(|rule| *rule != gone).cloned().collect();
                assert_eq!(rules(&after), left, "{text}");
            }
        }
    }
}
