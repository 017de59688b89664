//! The smallest set of rules that would have saved the most prompts: a greedy cover of the
//! prompts that came, by rules that say no more than a person could have agreed to.
//!
//! A candidate is the exact rule that the prompt offered, or one for all commands that begin
//! with the same words. Such a prefix is proposed only for the programs and subcommands of
//! [`PREFIXES`], where the words say what is done whatever comes behind them. So none is ever
//! proposed for a shell, an interpreter or a wrapper (`bash:*`, `python:*`, `sudo:*`,
//! `env:*`, `xargs:*`), which run whatever they are given; for what removes, overwrites or
//! sends (`rm:*`, `curl:*`); or for the name of a program alone that does both (`git:*`
//! covers `git push --force`). A rule that covers a call that was refused is not proposed.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use terret_tools::rules::{Effect, Rule, Scope, Subject};

/// A call that was asked about, equal ones once.
#[derive(Debug, Clone)]
pub(super) struct Prompt {
    pub(super) tool: String,
    /// What rules match of it.
    pub(super) subject: String,
    pub(super) cwd: PathBuf,
    /// The rule that the prompt offered; none where no rule alone would do.
    pub(super) offered: Option<String>,
    pub(super) times: usize,
    /// Whether a person refused one of them, so that no rule may be proposed for it.
    pub(super) refused: bool,
}

/// A rule that would have saved prompts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    pub rule: String,
    /// Prompts that it saves beyond the suggestions before it.
    pub saved: usize,
    /// Different calls among them.
    pub different: usize,
}

/// Beginnings of commands that build, test or look, by what they are for.
const PREFIXES: &[(&str, &[&str])] = &[
    (
        "builds and tests what the project is",
        &[
            "cargo build",
            "cargo check",
            "cargo test",
            "cargo nextest run",
            "cargo clippy",
            "cargo fmt",
            "cargo doc",
            "cargo bench",
            "go build",
            "go test",
            "go vet",
            "go fmt",
            "npm test",
            "npm run",
            "pnpm test",
            "pnpm run",
            "yarn test",
            "yarn run",
            "bun test",
            "deno test",
            "deno check",
            "deno lint",
            "make",
            "just",
            "ninja",
            "cmake --build",
            "ctest",
            "meson compile",
            "meson test",
            "bazel build",
            "bazel test",
            "mvn test",
            "mvn compile",
            "gradle build",
            "gradle test",
            "./gradlew build",
            "./gradlew test",
            "dotnet build",
            "dotnet test",
            "swift build",
            "swift test",
            "zig build",
            "mix test",
            "mix compile",
            "bundle exec rspec",
            "rake test",
            "pytest",
            "tox",
            "uv run pytest",
            "poetry run pytest",
            "jest",
            "vitest",
            "rspec",
            "phpunit",
            "stack test",
            "cabal test",
        ],
    ),
    (
        "checks and formats the project's sources",
        &[
            "ruff check",
            "ruff format",
            "mypy",
            "pyright",
            "black",
            "isort",
            "flake8",
            "eslint",
            "prettier",
            "tsc",
            "biome check",
            "rustfmt",
            "gofmt",
            "golangci-lint run",
            "clang-format",
            "shellcheck",
            "shfmt",
            "terraform fmt",
            "terraform validate",
        ],
    ),
    (
        "looks, and changes nothing",
        &[
            "git status",
            "git log",
            "git diff",
            "git show",
            "git blame",
            "git ls-files",
            "git rev-parse",
            "git describe",
            "git shortlog",
            "git grep",
            "cargo tree",
            "cargo metadata",
            "go list",
            "go doc",
            "npm ls",
            "npm outdated",
            "pip list",
            "pip show",
            "kubectl get",
            "kubectl describe",
            "docker ps",
            "docker images",
            "gh pr view",
            "gh pr list",
            "gh issue view",
            "gh issue list",
            "gh run view",
        ],
    ),
    (
        "records work in the repository, where it can be taken back",
        &["git add", "git commit", "git stash list", "git fetch"],
    ),
];

/// Words of a command that are looked at for a prefix.
const WORDS: usize = 3;

struct Candidate {
    rule: Rule,
    /// Indexes of the prompts that it covers.
    covers: Vec<usize>,
    exact: bool,
}

/// The rules that save the most, each at least two prompts, at most `most` of them.
pub(super) fn suggest(prompts: &[Prompt], most: usize) -> Vec<Suggestion> {
    let mut candidates = candidates(prompts);
    let mut saved = vec![false; prompts.len()];
    let mut suggestions = Vec::new();
    while suggestions.len() < most {
        let gain = |candidate: &Candidate| -> usize {
            let open = candidate
                .covers
                .iter()
                .filter(|index| saved.get(**index).is_some_and(|saved| !saved));
            open.filter_map(|index| prompts.get(*index))
                .map(|prompt| prompt.times)
                .sum()
        };
        // Of two that save the same the one that says less: an exact command, then the
        // longer beginning.
        let best = candidates
            .iter()
            .enumerate()
            .map(|(index, candidate)| {
                let narrow = (candidate.exact, candidate.rule.text().len());
                (
                    (
                        gain(candidate),
                        narrow,
                        std::cmp::Reverse(candidate.rule.text()),
                    ),
                    index,
                )
            })
            .max();
        let Some(((saves, ..), index)) = best else {
            break;
        };
        if saves < 2 {
            break;
        }
        let chosen = candidates.swap_remove(index);
        let mut different = 0;
        for index in &chosen.covers {
            if let Some(saved) = saved.get_mut(*index) {
                different += usize::from(!*saved);
                *saved = true;
            }
        }
        suggestions.push(Suggestion {
            rule: chosen.rule.text().to_owned(),
            saved: saves,
            different,
        });
    }
    suggestions
}

/// All rules that could be proposed, with what each covers; none that covers a call that
/// was refused.
fn candidates(prompts: &[Prompt]) -> Vec<Candidate> {
    let mut texts: BTreeMap<String, bool> = BTreeMap::new();
    for prompt in prompts.iter().filter(|prompt| !prompt.refused) {
        if let Some(offered) = &prompt.offered {
            texts.insert(offered.clone(), true);
        }
        for wider in wider(prompt) {
            texts.entry(wider).or_insert(false);
        }
    }
    // By what a rule can match at all, so that not every rule is held against every call.
    let mut by_tool: HashMap<&str, Vec<usize>> = HashMap::new();
    for (index, prompt) in prompts.iter().enumerate() {
        by_tool.entry(group(&prompt.tool)).or_default().push(index);
    }
    let none = Vec::new();
    texts
        .into_iter()
        .filter_map(|(text, exact)| {
            let rule = Rule::parse(&text, Effect::Allow, Scope::User).ok()?;
            let mut covers = Vec::new();
            for index in by_tool.get(group(rule.tool())).unwrap_or(&none) {
                let prompt = prompts.get(*index)?;
                let subject = Subject {
                    text: &prompt.subject,
                    cwd: &prompt.cwd,
                };
                if rule.matches(&prompt.tool, Some(subject)) {
                    if prompt.refused {
                        return None;
                    }
                    covers.push(*index);
                }
            }
            (!covers.is_empty()).then_some(Candidate {
                rule,
                covers,
                exact,
            })
        })
        .collect()
}

/// Tools that one rule speaks about.
fn group(tool: &str) -> &str {
    match tool {
        "job_start" => "Bash",
        "Write" | "MultiEdit" => "Edit",
        "Glob" | "Grep" => "Read",
        other => other,
    }
}

/// Rules that cover more than the call itself.
fn wider(prompt: &Prompt) -> Vec<String> {
    match group(&prompt.tool) {
        "Bash" => beginnings(&prompt.subject)
            .into_iter()
            .map(|beginning| format!("Bash({beginning}:*)"))
            .collect(),
        "Edit" => folder(&prompt.subject)
            .map(|folder| format!("Edit({folder}/**)"))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

/// The first words of a command that may stand for all that begin so.
fn beginnings(command: &str) -> Vec<String> {
    let words: Vec<&str> = command
        .split_whitespace()
        .take(WORDS)
        .take_while(|word| {
            word.chars()
                .all(|character| character.is_ascii_alphanumeric() || "_-./:".contains(character))
        })
        .collect();
    (1..=words.len())
        .filter_map(|count| words.get(..count))
        .map(|words| words.join(" "))
        .filter(|beginning| is_proposable(beginning))
        .collect()
}

fn is_proposable(beginning: &str) -> bool {
    let mut known = PREFIXES
        .iter()
        .flat_map(|(_, beginnings)| beginnings.iter());
    known.any(|known| match beginning.strip_prefix(known) {
        Some("") => true,
        // One script of the project more, such as `npm run lint`.
        Some(rest) => {
            known.ends_with(" run")
                && rest.starts_with(' ')
                && !rest.trim_start().starts_with(['-', '.', '/'])
        }
        None => false,
    }) && !beginning.ends_with(" run")
}

/// The topmost folder of a path in the project, where all below it may be one thing.
fn folder(path: &str) -> Option<String> {
    let path = Path::new(path);
    let mut parts = path.components();
    let std::path::Component::Normal(first) = parts.next()? else {
        return None;
    };
    parts.next()?;
    let first = first.to_str()?;
    // What begins with a dot is configuration, which is not one thing.
    let plain = first
        .chars()
        .all(|character| character.is_ascii_alphanumeric() || "_-".contains(character));
    plain.then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terret_tools::rules::offer;

    fn prompt(command: &str, times: usize) -> Prompt {
        Prompt {
            tool: "Bash".to_owned(),
            subject: command.to_owned(),
            cwd: PathBuf::from("/p"),
            offered: offer("Bash", Some(command)),
            times,
            refused: false,
        }
    }

    fn texts(suggestions: &[Suggestion]) -> Vec<(&str, usize)> {
        suggestions
            .iter()
            .map(|suggestion| (suggestion.rule.as_str(), suggestion.saved))
            .collect()
    }

    #[test]
    fn the_fewest_rules_that_save_the_most_come_first() {
        let prompts = [
            prompt("cargo test a", 3),
            prompt("cargo test b", 2),
            prompt("cargo build", 4),
            prompt("ls once", 1),
        ];
        let found = suggest(&prompts, 9);
        assert_eq!(
            texts(&found),
            [("Bash(cargo test:*)", 5), ("Bash(cargo build)", 4)]
        );
        assert_eq!(found.first().map(|first| first.different), Some(2));
        assert_eq!(suggest(&prompts, 1).len(), 1);
    }

    #[test]
    fn what_runs_anything_is_never_proposed_as_a_beginning() {
        for program in [
            "bash", "sh", "sudo", "env", "xargs", "python", "python3", "node", "perl", "ruby",
            "git", "rm", "curl", "ssh", "docker", "npx", "npm", "find", "cargo", "timeout",
        ] {
            let prompts: Vec<Prompt> = ["one a", "one b", "two"]
                .iter()
                .map(|rest| format!("{program} {rest}"))
                .filter(|command| offer("Bash", Some(command)).is_some())
                .map(|command| prompt(&command, 5))
                .collect();
            for found in suggest(&prompts, 9) {
                assert!(!found.rule.contains(":*"), "{}", found.rule);
            }
        }
        for beginning in [
            "npm run",
            "git push",
            "cargo run",
            "cargo install",
            "kubectl delete",
            "npm run -s",
            "npm run ../x",
        ] {
            assert!(!is_proposable(beginning), "{beginning}");
        }
        assert!(is_proposable("npm run lint"));
    }

    #[test]
    fn a_rule_that_covers_what_was_refused_is_not_proposed() {
        let prompts = [
            prompt("cargo test a", 3),
            prompt("cargo test b", 2),
            Prompt {
                refused: true,
                ..prompt("cargo test --release", 1)
            },
        ];
        assert_eq!(
            texts(&suggest(&prompts, 9)),
            [("Bash(cargo test a)", 3), ("Bash(cargo test b)", 2)]
        );
    }

    #[test]
    fn edits_of_one_folder_are_one_rule() {
        let edit = |path: &str| Prompt {
            tool: "Edit".to_owned(),
            offered: offer("Edit", Some(path)),
            subject: path.to_owned(),
            ..prompt("x", 1)
        };
        let prompts = [
            edit("src/a.rs"),
            edit("src/b/c.rs"),
            edit(".git/config"),
            edit("a.rs"),
        ];
        assert_eq!(texts(&suggest(&prompts, 9)), [("Edit(src/**)", 2)]);
    }

    #[test]
    fn every_beginning_of_the_table_is_a_rule() {
        for (reason, beginnings) in PREFIXES {
            assert!(!reason.is_empty());
            for beginning in *beginnings {
                let rule = format!("Bash({beginning}:*)");
                assert!(
                    Rule::parse(&rule, Effect::Allow, Scope::User).is_ok(),
                    "{rule}"
                );
            }
        }
    }
}
