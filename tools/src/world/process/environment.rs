//! What a spawned program sees of our environment: everything but secrets, so that
//! toolchains work, and never a key (checks 152, `Terret spec §5.7`).
//!
//! A name is enough to be dropped, and so is a value that looks like a credential, because
//! people keep keys under names of their own. A name that config keeps passes whatever it
//! holds.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::world::Environment;

/// Set in everything we spawn, so that our own command line refuses to decide from inside.
pub const INSIDE: &str = "TERRET_INSIDE";

/// Carries the id of one spawned tree, so that members which left its session are found.
pub const TREE: &str = "TERRET_CALL";

/// Parts of a name, between underscores, that mark a secret.
const SECRET_PARTS: &[&str] = &[
    "TOKEN",
    "TOKENS",
    "SECRET",
    "SECRETS",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "PASS",
    "PWD",
    "CREDENTIAL",
    "CREDENTIALS",
    "APIKEY",
    "PAT",
    "AUTH",
    "JWT",
    "COOKIE",
];

/// Ends of a name that mark a secret.
const SECRET_ENDS: &[&str] = &[
    "_KEY",
    "_KEYS",
    "_API_KEY_ID",
    "ACCESSKEY",
    "APIKEY",
    "TOKEN",
    "SECRET",
    "PASSWORD",
    "_DSN",
    "_CREDS",
];

/// Beginnings of a name that belong to a vendor's or our own configuration.
const SECRET_STARTS: &[&str] = &[
    "AWS_",
    "AZURE_",
    "TERRET_",
    "ANTHROPIC_",
    "OPENAI_",
    "OPENROUTER_",
    "GEMINI_",
];

/// Names that match a rule above and hold no secret.
const HARMLESS: &[&str] = &[
    "PWD",
    "OLDPWD",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PAGER",
    "SSH_AUTH_SOCK",
    "XAUTHORITY",
];

/// Names that change how a shell starts, or ask a person somewhere we are not.
const NEVER: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PROMPT_COMMAND",
    "PS4",
    "IFS",
    "SUDO_ASKPASS",
    "SSH_ASKPASS",
    "GPG_TTY",
    "OLDPWD",
];

/// Beginnings of values that are credentials under any name.
const SECRET_VALUES: &[&str] = &[
    "sk-",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xapp-",
    "AKIA",
    "ASIA",
    "AIza",
    "hf_",
    "npm_",
    "pypi-",
    "-----BEGIN",
];

/// The environment for a spawned program: `inherited` without secrets, then what config
/// sets, then the mark of being inside.
pub fn scrubbed(
    inherited: impl IntoIterator<Item = (OsString, OsString)>,
    environment: &Environment,
) -> BTreeMap<OsString, OsString> {
    let mut clean: BTreeMap<OsString, OsString> = inherited
        .into_iter()
        .filter(|(name, value)| {
            environment.keep.iter().any(|keep| name == OsStr::new(keep))
                || !(is_kept_back(name, value)
                    || environment.hide.iter().any(|hide| name == OsStr::new(hide)))
        })
        .collect();
    clean.extend(
        environment
            .set
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value))),
    );
    clean.insert(INSIDE.into(), "1".into());
    clean
}

/// Whether a variable stays with us.
pub fn is_kept_back(name: &OsStr, value: &OsStr) -> bool {
    // A name that is no text cannot be judged, and no toolchain needs one.
    let Some(name) = name.to_str() else {
        return true;
    };
    let name = name.to_ascii_uppercase();
    if NEVER.contains(&name.as_str()) || name.starts_with("BASH_FUNC_") {
        return true;
    }
    let value = value.to_string_lossy();
    if SECRET_VALUES
        .iter()
        .any(|start| value.starts_with(start) && value.len() >= 16)
    {
        return true;
    }
    if HARMLESS.contains(&name.as_str()) {
        return false;
    }
    SECRET_STARTS.iter().any(|start| name.starts_with(start))
        || SECRET_ENDS.iter().any(|end| name.ends_with(end))
        || name.split('_').any(|part| SECRET_PARTS.contains(&part))
        || has_password(&value)
}

/// An address with a user and a password in it.
fn has_password(value: &str) -> bool {
    let Some((_, rest)) = value.split_once("://") else {
        return false;
    };
    let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| {
        user.split_once(':')
            .is_some_and(|(_, word)| !word.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(inherited: &[(&str, &str)], keep: &[&str]) -> Vec<String> {
        let environment = Environment {
            keep: keep.iter().map(|name| (*name).to_owned()).collect(),
            ..Environment::default()
        };
        scrubbed(
            inherited
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value))),
            &environment,
        )
        .into_keys()
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
    }

    #[test]
    fn check_152_secrets_stay_with_us() {
        let secret = [
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "openrouter_api_key",
            "TERRET_CREDENTIALS_KEY",
            "TERRET_HOME",
            "GITHUB_TOKEN",
            "GH_TOKEN",
            "NPM_TOKEN",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "DB_PASSWORD",
            "PGPASSWORD",
            "SECRET_KEY_BASE",
            "MY_SECRET",
            "STRIPE_KEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "VAULT_TOKEN_FILE",
            "BASH_ENV",
            "ENV",
            "BASH_FUNC_ls%%",
            "SUDO_ASKPASS",
            "SENTRY_DSN",
        ];
        let inherited: Vec<(&str, &str)> = secret.iter().map(|name| (*name, "value")).collect();
        assert_eq!(names(&inherited, &[]), ["TERRET_INSIDE"]);
    }

    #[test]
    fn check_152_a_name_that_config_keeps_passes() {
        let inherited = [("GITHUB_TOKEN", "one"), ("GH_TOKEN", "two")];
        assert_eq!(
            names(&inherited, &["GITHUB_TOKEN"]),
            ["GITHUB_TOKEN", "TERRET_INSIDE"]
        );
    }

    #[test]
    fn what_toolchains_need_passes() {
        let inherited = [
            ("CARGO_HOME", "/c"),
            ("HOME", "/h"),
            ("KEYBOARD", "us"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/bin"),
            ("PWD", "/p"),
            ("SSH_AUTH_SOCK", "/s"),
        ];
        let expected: Vec<&str> = inherited
            .iter()
            .map(|(name, _)| *name)
            .chain(["TERRET_INSIDE"])
            .collect();
        assert_eq!(names(&inherited, &[]), expected);
    }

    #[test]
    fn a_credential_under_an_innocent_name_is_seen_by_its_value() {
        assert!(is_kept_back(
            OsStr::new("WORK"),
            OsStr::new(&format!("ghp_{}", "x".repeat(36)))
        ));
        assert!(is_kept_back(
            OsStr::new("DATABASE_URL"),
            OsStr::new("postgres://me:word@host/db")
        ));
        assert!(!is_kept_back(
            OsStr::new("DATABASE_URL"),
            OsStr::new("postgres://me@host/db")
        ));
        assert!(!is_kept_back(
            OsStr::new("HTTP_PROXY"),
            OsStr::new("http://proxy:3128")
        ));
    }
}
