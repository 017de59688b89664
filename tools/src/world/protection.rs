//! Files inside the roots that run code later. Writing one is always asked for, whatever
//! rules and mode say (`design: Sandbox`).

use std::path::Path;

/// Shell start-up files, wherever they lie.
pub(super) const START_UP: &[&str] = &[
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
];

/// What people's hooks and permissions are in, of a `.claude` folder.
const CLAUDE: &[&str] = &["settings.json", "settings.local.json", "hooks"];

/// Why a path within a root is protected, if it is. `inside` is relative to that root.
/// Names are compared without regard to case, since some file systems do so.
pub fn reason(inside: &Path) -> Option<&'static str> {
    let names: Vec<String> = inside
        .components()
        .map(|part| part.as_os_str().to_string_lossy().to_lowercase())
        .collect();
    let mut rest = names.as_slice();
    while let [name, after @ ..] = rest {
        let last = after.is_empty();
        match name.as_str() {
            ".git" if last => return Some("it redirects git"),
            ".git" if in_git(after) => return Some("git runs what it says"),
            ".terret" => return Some("it configures Terret"),
            ".mcp.json" if last => return Some("it starts programs as tool servers"),
            ".envrc" if last => return Some("direnv runs it"),
            ".claude" if matches!(after, [name, ..] if CLAUDE.contains(&name.as_str())) => {
                return Some("hooks and permissions of agents lie there");
            }
            ".vscode" if matches!(after, [file] if file == "tasks.json") => {
                return Some("the editor runs its tasks");
            }
            "fish" if matches!(after, [file] if file == "config.fish") => {
                return Some("a shell runs it at start");
            }
            "fish" if matches!(after, [folder, _] if folder == "conf.d") => {
                return Some("a shell runs it at start");
            }
            file if last && START_UP.contains(&file) => return Some("a shell runs it at start"),
            _ => {}
        }
        rest = after;
    }
    None
}

/// Below a git folder: hooks and configuration, those of submodules and worktrees too.
fn in_git(after: &[String]) -> bool {
    after.iter().any(|name| name == "hooks")
        || after
            .last()
            .is_some_and(|name| name == "config" || name == "config.worktree")
}
