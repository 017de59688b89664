//! What a confined program may read: the system, the toolchains that are here, and the
//! little of a home folder that tools need to work, never the keys that lie beside it.
//!
//! An allow list, since nobody can list all places where keys are kept: what is not named
//! here is not there for the program. What is named is taken apart around every path that
//! holds a key or is ours ([`carve`]), so that naming a folder too many gives no key away.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// What a provider must know of the machine and of the person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ground {
    /// The person's home folder.
    pub home: Option<PathBuf>,
    /// Folders of programs, as `PATH` has them.
    pub path: Vec<PathBuf>,
    /// Where variables say that toolchains lie, such as `CARGO_HOME`.
    pub toolchains: Vec<(&'static str, PathBuf)>,
    /// Our own folders: state, configuration, cache, runtime. Never readable.
    pub hidden: Vec<PathBuf>,
    /// What config adds, to read.
    pub read: Vec<PathBuf>,
    /// What config adds, to write.
    pub write: Vec<PathBuf>,
}

/// The system, to read and execute. What is missing is passed over.
const SYSTEM: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/nix/var/nix/profiles",
    "/gnu/store",
    "/snap",
    "/home/linuxbrew/.linuxbrew",
    "/var/lib/dpkg/status",
    "/var/cache/fontconfig",
    "/var/lib/ca-certificates",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    // Where `/etc/resolv.conf` and the system's own programs may point to.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager/resolv.conf",
    "/run/current-system",
    "/run/opengl-driver",
];

/// Keys and passwords of the system, which root could read.
const SYSTEM_SECRETS: &[&str] = &[
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/ssh/ssh_host_rsa_key",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/NetworkManager/system-connections",
    "/etc/rancher",
    "/etc/kubernetes",
    "/etc/docker/key.json",
    "/etc/letsencrypt",
    "/etc/openvpn",
];

/// Below a home folder, to read: toolchains and settings without keys.
const HOME: &[&str] = &[
    ".asdf",
    ".bun/bin",
    ".bun/install/global",
    ".cabal/bin",
    ".cabal/packages",
    ".cargo/bin",
    ".cargo/config",
    ".cargo/config.toml",
    ".cargo/env",
    ".conda/envs",
    ".config/fish/completions",
    ".config/git/attributes",
    ".config/git/config",
    ".config/git/ignore",
    ".config/pip/pip.conf",
    ".config/yarn/global",
    ".deno/bin",
    ".dotnet",
    ".editorconfig",
    ".elan",
    ".fnm",
    ".ghcup",
    ".gem/ruby",
    ".gitattributes",
    ".gitconfig",
    ".gitignore",
    ".gitignore_global",
    ".goenv",
    ".gradle/caches",
    ".gradle/wrapper",
    ".jdks",
    ".jenv",
    ".juliaup",
    ".local/bin",
    ".local/lib",
    ".local/pipx",
    ".local/share/fnm",
    ".local/share/mise",
    ".local/share/pipx",
    ".local/share/pnpm",
    ".local/share/rtx",
    ".local/share/uv",
    ".local/share/virtualenv",
    ".m2/repository",
    ".m2/wrapper",
    ".n",
    ".nodenv",
    ".npmrc",
    ".npm-global",
    ".nvm",
    ".opam",
    ".phpenv",
    ".pip/pip.conf",
    ".plenv",
    ".pnpm-store",
    ".pub-cache",
    ".pyenv",
    ".rbenv",
    ".rustup",
    ".rvm",
    ".sbt",
    ".sdkman",
    ".stack/programs",
    ".volta",
    ".yarn/bin",
    ".yarnrc",
    ".yarnrc.yml",
    "anaconda3",
    "go",
    "miniconda3",
    "miniforge3",
    "sdk",
];

/// Caches of downloads below a home folder: to read, and also to write while a call has
/// the network, since what is fetched has to be kept somewhere.
const DOWNLOADS: &[&str] = &[
    ".bun/install/cache",
    ".cache/deno",
    ".cache/go-build",
    ".cache/node",
    ".cache/pip",
    ".cache/pnpm",
    ".cache/pypoetry",
    ".cache/uv",
    ".cache/yarn",
    ".cargo/git",
    ".cargo/registry",
    ".cargo/.package-cache",
    ".cargo/.package-cache-mutate",
    ".gradle/caches",
    ".local/share/pnpm/store",
    ".m2/repository",
    ".npm/_cacache",
    ".pub-cache",
    "go/pkg",
];

/// Below a home folder, never to read, whatever else allows it: keys, tokens, passwords,
/// histories and other agents' conversations.
const HOME_SECRETS: &[&str] = &[
    ".1password",
    ".anthropic",
    ".ansible/vault",
    ".authinfo",
    ".authinfo.gpg",
    ".aws",
    ".azure",
    ".bash_history",
    ".bundle/config",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude",
    ".claude.json",
    ".codex",
    ".composer/auth.json",
    ".config/1Password",
    ".config/Bitwarden",
    ".config/BraveSoftware",
    ".config/Code",
    ".config/Slack",
    ".config/age",
    ".config/anthropic",
    ".config/chromium",
    ".config/containers/auth.json",
    ".config/doctl",
    ".config/fly",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/glab-cli",
    ".config/google-chrome",
    ".config/helm",
    ".config/heroku",
    ".config/hub",
    ".config/netlify",
    ".config/op",
    ".config/pypoetry/auth.toml",
    ".config/rclone",
    ".config/sops",
    ".config/stripe",
    ".config/terret",
    ".config/vercel",
    ".docker",
    ".doctl",
    ".dotnet/corefx",
    ".electrum",
    ".fly",
    ".gem/credentials",
    ".gemini",
    ".git-credentials",
    ".gnupg",
    ".gradle/gradle.properties",
    ".heroku",
    ".kube",
    ".local/share/keyrings",
    ".local/share/pnpm/auth.ini",
    ".local/share/terret",
    ".local/share/uv/credentials",
    ".local/state/terret",
    ".m2/settings-security.xml",
    ".m2/settings.xml",
    ".mozilla",
    ".my.cnf",
    ".mylogin.cnf",
    ".netrc",
    ".nuget/NuGet/NuGet.Config",
    ".oci",
    ".opam/plugins/opam-publish",
    ".openai",
    ".password-store",
    ".pgpass",
    ".psql_history",
    ".pub-cache/credentials.json",
    ".putty",
    ".pypirc",
    ".python_history",
    ".s3cfg",
    ".sbt/.credentials",
    ".sbt/credentials",
    ".ssh",
    ".subversion/auth",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".thunderbird",
    ".vault-token",
    ".vscode-server/data",
    ".yarn/credentials",
    ".zsh_history",
];

/// Settings that may hold a token: read by us first, and given only when they hold none.
const MAY_HOLD: &[&str] = &[
    ".cargo/config",
    ".cargo/config.toml",
    ".config/git/config",
    ".config/pip/pip.conf",
    ".gitconfig",
    ".npmrc",
    ".pip/pip.conf",
    ".yarnrc",
    ".yarnrc.yml",
];

/// Words that a setting with a token has.
const TOKEN_WORDS: &[&str] = &[
    "_auth",
    "authtoken",
    "authident",
    "password",
    "extraheader",
    "token",
    "secret",
];

/// Variables that say where a toolchain lies, with what of it is given.
const VARIABLES: &[(&str, &[&str])] = &[
    ("ASDF_DATA_DIR", &[""]),
    ("BUN_INSTALL", &["bin", "install"]),
    (
        "CARGO_HOME",
        &["bin", "env", "config", "config.toml", "git", "registry"],
    ),
    ("CONDA_PREFIX", &[""]),
    ("DENO_DIR", &[""]),
    ("DOTNET_ROOT", &[""]),
    ("FNM_DIR", &[""]),
    ("GOMODCACHE", &[""]),
    ("GOPATH", &["bin", "pkg", "src"]),
    ("GOROOT", &[""]),
    ("GHCUP_INSTALL_BASE_PREFIX", &[".ghcup"]),
    ("JAVA_HOME", &[""]),
    ("MISE_DATA_DIR", &[""]),
    ("NODENV_ROOT", &[""]),
    ("NVM_DIR", &[""]),
    ("PNPM_HOME", &[""]),
    ("PYENV_ROOT", &[""]),
    ("RBENV_ROOT", &[""]),
    ("RUSTUP_HOME", &[""]),
    ("SDKMAN_DIR", &[""]),
    ("VIRTUAL_ENV", &[""]),
    ("VOLTA_HOME", &[""]),
];

impl Ground {
    /// From the environment that programs start with.
    pub fn of(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let folder = |name: &str| {
            variable(name)
                .map(PathBuf::from)
                .filter(|at| at.is_absolute())
        };
        Self {
            home: folder("HOME"),
            path: variable("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
            toolchains: VARIABLES
                .iter()
                .filter_map(|(name, _)| Some((*name, folder(name)?)))
                .collect(),
            ..Self::default()
        }
    }

    /// All that may be read besides roots and temporary folders: real paths that exist,
    /// none below another. [`Self::secrets`] may lie below them.
    pub fn readable(&self) -> Vec<PathBuf> {
        outermost(self.named().iter().filter_map(real))
    }

    /// The links on the way to what may be read and to the home folder, outside of what
    /// may be read: each with where it points.
    pub fn links(&self, readable: &[PathBuf]) -> BTreeMap<PathBuf, PathBuf> {
        let mut links = BTreeMap::new();
        for path in self.named().iter().chain(&self.home) {
            follow(path, &mut links);
        }
        links.retain(|link, _| !readable.iter().any(|path| link.starts_with(path)));
        links
    }

    fn named(&self) -> Vec<PathBuf> {
        let mut named: Vec<PathBuf> = SYSTEM.iter().map(PathBuf::from).collect();
        named.extend(self.path.iter().filter_map(|folder| self.prefix(folder)));
        for (name, base) in &self.toolchains {
            let parts = VARIABLES.iter().find(|(known, _)| known == name);
            for part in parts.map_or(&[] as &[&str], |(_, parts)| parts) {
                named.push(base.join(part));
            }
        }
        for name in HOME.iter().chain(DOWNLOADS) {
            named.extend(self.in_home(name));
        }
        named.retain(|path| !self.is_too_much(path));
        named.extend(self.read.iter().cloned());
        named
    }

    /// The caches of downloads that are here, which a call with the network may fill.
    pub fn downloads(&self) -> Vec<PathBuf> {
        outermost(
            DOWNLOADS
                .iter()
                .filter_map(|name| self.in_home(name))
                .filter_map(|path| real(&path)),
        )
    }

    /// What config lets programs write besides the roots.
    pub fn writable(&self) -> Vec<PathBuf> {
        outermost(self.write.iter().filter_map(real))
    }

    /// What no program may read, whatever allows it; real paths that exist.
    pub fn secrets(&self) -> Vec<PathBuf> {
        let system = SYSTEM_SECRETS.iter().map(PathBuf::from);
        let named = HOME_SECRETS.iter().filter_map(|name| self.in_home(name));
        let settings = MAY_HOLD
            .iter()
            .filter_map(|name| self.in_home(name))
            .filter(|path| holds_token(path));
        let cargo = self
            .toolchains
            .iter()
            .filter(|(name, _)| *name == "CARGO_HOME")
            .flat_map(|(_, base)| [base.join("credentials"), base.join("credentials.toml")]);
        let all = system
            .chain(named)
            .chain(settings)
            .chain(cargo)
            .chain(self.hidden.iter().cloned());
        outermost(all.filter_map(|path| real(&path)))
    }

    fn in_home(&self, name: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join(name))
    }

    /// A folder of programs needs what lies beside it: `lib`, `share`, `versions`.
    fn prefix(&self, folder: &Path) -> Option<PathBuf> {
        if !folder.is_absolute() {
            return None;
        }
        let is_part = folder
            .file_name()
            .is_some_and(|name| ["bin", "sbin", "shims"].iter().any(|part| name == *part));
        let parent = folder.parent().filter(|_| is_part);
        Some(
            parent
                .filter(|parent| !self.is_too_much(parent) && !self.is_shared(parent))
                .unwrap_or(folder)
                .to_owned(),
        )
    }

    /// `~/.local` holds more than programs, and so does `~/.config`.
    fn is_shared(&self, path: &Path) -> bool {
        self.home.as_ref().is_some_and(|home| {
            path.parent() == Some(home)
                && [".local", ".config", ".cache", "Library"]
                    .iter()
                    .any(|name| path.file_name() == Some(OsStr::new(name)))
        })
    }

    /// The whole disk, the home folder or what holds it.
    fn is_too_much(&self, path: &Path) -> bool {
        path.parent().is_none()
            || [Some(path.to_owned()), real(path)]
                .iter()
                .flatten()
                .any(|path| {
                    self.home
                        .iter()
                        .flat_map(|home| [Some(home.clone()), real(home)])
                        .flatten()
                        .any(|home| home.starts_with(path))
                })
    }
}

/// A path without the holes in it: itself when it holds none, else its entries, those that
/// hold one taken apart the same way. What is made beside a hole later is not in it.
pub fn carve(path: &Path, holes: &[PathBuf]) -> Vec<PathBuf> {
    if holes.iter().any(|hole| path.starts_with(hole)) {
        return Vec::new();
    }
    if !holes.iter().any(|hole| hole.starts_with(path)) {
        return vec![path.to_owned()];
    }
    entries(path)
        .iter()
        .filter_map(real)
        // A link could lead out of the folder that was allowed, or into a hole.
        .filter(|entry| entry.starts_with(path))
        .flat_map(|entry| carve(&entry, holes))
        .collect()
}

/// The paths that none of the others holds, in order.
pub fn outermost(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let sorted: BTreeSet<PathBuf> = paths.into_iter().collect();
    let mut kept: Vec<PathBuf> = Vec::with_capacity(sorted.len());
    // A folder sorts right before what it holds, since paths compare by parts.
    for path in sorted {
        if !kept.last().is_some_and(|last| path.starts_with(last)) {
            kept.push(path);
        }
    }
    kept
}

/// Notes the links on the way to a path, and on the way to where they point.
#[expect(
    clippy::disallowed_methods,
    reason = "where links of the read list point, never what is there"
)]
fn follow(path: &Path, links: &mut BTreeMap<PathBuf, PathBuf>) {
    let mut rest: Vec<OsString> = path
        .components()
        .map(|part| part.as_os_str().to_owned())
        .collect();
    rest.reverse();
    let mut at = PathBuf::new();
    // The kernel gives up after as many.
    let mut left = 40;
    while let Some(part) = rest.pop() {
        at.push(part);
        let Ok(target) = std::fs::read_link(&at) else {
            continue;
        };
        if left == 0 {
            return;
        }
        left -= 1;
        links.insert(at.clone(), target.clone());
        at.pop();
        for part in target.components().rev() {
            match part {
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
                _ => rest.push(part.as_os_str().to_owned()),
            }
        }
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        // `..` in a link means the folder above the link's own.
        while rest.last().is_some_and(|part| part == "..") {
            rest.pop();
            at.pop();
        }
    }
}

fn real(path: impl AsRef<Path>) -> Option<PathBuf> {
    path.as_ref().canonicalize().ok()
}

#[expect(
    clippy::disallowed_methods,
    reason = "names of a folder on the read list, never its contents"
)]
fn entries(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .collect()
}

/// Whether a file of settings speaks of a token, or has an address with a password. One
/// that cannot be read or is very long counts as one that does.
#[expect(
    clippy::disallowed_methods,
    reason = "the person's own settings, looked through for tokens and not kept"
)]
fn holds_token(path: &Path) -> bool {
    const LONG: u64 = 256 * 1024;
    match std::fs::metadata(path) {
        Err(_) => return false,
        Ok(found) if !found.is_file() || found.len() > LONG => return true,
        Ok(_) => {}
    }
    let Ok(bytes) = std::fs::read(path) else {
        return true;
    };
    let text = String::from_utf8_lossy(&bytes).to_lowercase();
    text.lines()
        .map(str::trim)
        .filter(|line| !line.starts_with(['#', ';']))
        .any(|line| {
            TOKEN_WORDS.iter().any(|word| line.contains(word))
                || line.split_once("://").is_some_and(|(_, rest)| {
                    let authority = rest.split(['/', '"', ' ']).next().unwrap_or_default();
                    authority
                        .rsplit_once('@')
                        .is_some_and(|(user, _)| user.contains(':'))
                })
        })
}

#[cfg(test)]
mod tests;
