use std::os::unix::fs::symlink;

use super::*;

struct Project {
    _folder: tempfile::TempDir,
    root: PathBuf,
}

impl Project {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("work");
        let project = Self {
            _folder: folder,
            root,
        };
        project.put(".terret/config.toml", config);
        project
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn look(&self) -> Result<Option<Brought>, Unusable> {
        Source::Config.look(&self.root)
    }

    fn brought(&self) -> Brought {
        self.look().unwrap().unwrap()
    }
}

fn texts(rules: &[Rule]) -> Vec<(Effect, &str)> {
    rules
        .iter()
        .map(|rule| (rule.effect, rule.text()))
        .collect()
}

#[test]
fn what_narrows_holds_at_once_and_the_rest_waits() {
    let project = Project::new(
        "[policy]\nallow = [\"Bash(make:*)\"]\nask = [\"WebFetch\"]\ndeny = [\"Read(secret)\"]\n\
         [[hooks]]\nevent = \"PreToolUse\"\nmatcher = \"Bash\"\ncommand = \"./check.sh --now\"\n",
    );
    let brought = project.brought();
    assert_eq!(
        brought.would,
        [
            "allow `Bash(make:*)` without asking",
            "run before calls of `Bash`: ./check.sh --now",
        ]
    );
    assert_eq!(brought.problems, [] as [&str; 0]);
    let narrow = [(Effect::Deny, "Read(secret)"), (Effect::Ask, "WebFetch")];
    assert_eq!(texts(&brought.rules(false, 0)), narrow);
    let all = [narrow[0], narrow[1], (Effect::Allow, "Bash(make:*)")];
    assert_eq!(texts(&brought.rules(true, 0)), all);
    assert_eq!(brought.hooks[0].origin, HookOrigin::Project);
    let only_narrow = Project::new("[policy]\ndeny = [\"Bash(rm:*)\"]\n");
    assert!(!only_narrow.brought().widens());
}

#[test]
fn what_is_not_a_repositorys_to_say_is_refused_by_name() {
    let project = Project::new(
        "model = \"a:b\"\n[policy]\nfloor = [\"*\"]\ndeny = [\"Read(secret)\"]\n[providers.x]\nkind = \"openai\"\nbase_url = \"http://a\"\n",
    );
    let brought = project.brought();
    for key in ["model", "policy.floor", "providers"] {
        assert!(
            brought
                .problems
                .iter()
                .any(|why| why.starts_with(&format!("`{key}` is not taken from a repository"))),
            "{:?}",
            brought.problems
        );
    }
    assert_eq!(
        texts(&brought.rules(false, 0)),
        [(Effect::Deny, "Read(secret)")]
    );
}

#[test]
fn one_wrong_rule_or_hook_takes_nothing_from_the_others() {
    let project = Project::new(
        "[policy]\nallow = [\"Bash(\"]\ndeny = [\"Read(secret)\"]\n\
         [[hooks]]\nevent = \"PreToolUse\"\ncommand = \"\"\n",
    );
    let brought = project.brought();
    assert_eq!(brought.problems.len(), 2);
    assert!(!brought.widens());
    assert_eq!(
        texts(&brought.rules(false, 0)),
        [(Effect::Deny, "Read(secret)")]
    );
}

#[test]
fn the_hash_is_of_the_bytes_and_of_the_scripts_that_hooks_name() {
    let project = Project::new("[policy]\nallow = [\"Bash(make:*)\"]\n");
    let hash = project.brought().hash;
    let bytes = std::fs::read(project.root.join(".terret/config.toml")).unwrap();
    assert_eq!(hash, hex(&Sha256::digest(bytes)));
    for command in [
        "./scripts/check.sh",
        "sh scripts/check.sh",
        "exec \\\"$CLAUDE_PROJECT_DIR/scripts/check.sh\\\" x",
    ] {
        let project = Project::new(&format!(
            "[[hooks]]\nevent = \"PreToolUse\"\ncommand = \"{command}\"\n"
        ));
        let missing = project.brought().hash;
        project.put("scripts/check.sh", "exit 0\n");
        let there = project.brought();
        assert_ne!(there.hash, missing, "{command}");
        let stamps = Source::Config.stamps(&project.root, Some(&there));
        project.put("scripts/check.sh", "exit 0 # changed\n");
        assert_ne!(project.brought().hash, there.hash, "{command}");
        assert_ne!(Source::Config.stamps(&project.root, Some(&there)), stamps);
    }
}

#[test]
fn a_hook_that_keeps_a_record_stays_the_same() {
    let project =
        Project::new("[[hooks]]\nevent = \"PostToolUse\"\ncommand = \"cat >>log; date >log2\"\n");
    let hash = project.brought().hash;
    project.put("log", "something");
    project.put("log2", "something");
    assert_eq!(project.brought().hash, hash);
}

#[test]
fn what_leads_out_of_the_project_or_is_no_file_is_not_used() {
    let project = Project::new("");
    let config = project.root.join(".terret/config.toml");
    std::fs::remove_file(&config).unwrap();
    assert!(project.look().unwrap().is_none());
    let outside = project.root.join("../outside.toml");
    std::fs::write(&outside, "[policy]\ndeny = [\"Read(a)\"]\n").unwrap();
    symlink(&outside, &config).unwrap();
    assert!(project.look().unwrap_err().why.contains("leads out"));
    std::fs::remove_file(&config).unwrap();
    std::fs::create_dir(&config).unwrap();
    assert!(project.look().unwrap_err().why.contains("no file"));
    std::fs::remove_dir(&config).unwrap();
    std::fs::write(&config, vec![b'#'; 300_000]).unwrap();
    assert!(project.look().unwrap_err().why.contains("larger"));
    std::fs::write(&config, [0xff]).unwrap();
    assert!(project.look().unwrap_err().why.contains("UTF-8"));
    std::fs::write(&config, "[policy\n").unwrap();
    assert!(project.look().unwrap_err().why.contains("line 1"));
}

#[test]
fn what_would_deceive_is_shown_as_what_it_is() {
    let project = Project::new(
        "[[hooks]]\nevent = \"PostToolUse\"\ncommand = \"echo a\\u202Eb\\nrm -rf ~\"\n",
    );
    assert_eq!(
        project.brought().would,
        ["run after every call: echo a\\u{202e}b\\nrm -rf ~"]
    );
}

#[test]
fn settings_of_another_agent_are_rules_of_the_project() {
    let project = Project::new("");
    project.put(
        ".claude/settings.json",
        r#"{"permissions":{"allow":["Bash(make:*)"],"deny":["Read(secret)"],"ask":[3]},"hooks":{}}"#,
    );
    let source = Source::ClaudeSettings(".claude/settings.json".to_owned());
    let brought = source.look(&project.root).unwrap().unwrap();
    assert_eq!(brought.would, ["allow `Bash(make:*)` without asking"]);
    assert_eq!(
        texts(&brought.rules(false, 0)),
        [(Effect::Deny, "Read(secret)")]
    );
    assert_eq!(brought.problems.len(), 1);
}
