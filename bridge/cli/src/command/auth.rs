//! `terret auth`: the keys that are kept in the encrypted file or in the system keyring.

use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};

use anyhow::{Context as _, bail};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use secrecy::SecretString;

use crate::args::AuthCommand;
use crate::credentials::{Keyring, LockError, Origin, Place, as_key, make_identity};
use crate::inside::refuse_inside;
use crate::output::Output;
use crate::paths::Environment;
use crate::wiring::Setup;

/// Runs one of the `auth` commands.
pub(crate) fn run(
    setup: &Setup,
    environment: &dyn Environment,
    command: &AuthCommand,
    out: &mut Output,
) -> anyhow::Result<()> {
    if !matches!(command, AuthCommand::List) {
        // A key that is stored here is what the agent's own requests are paid with.
        refuse_inside(environment)?;
    }
    match command {
        AuthCommand::Init => init(setup, environment, out),
        AuthCommand::Set { provider, keyring } => {
            let place = if *keyring {
                Place::Keyring
            } else {
                Place::File
            };
            set(setup, environment, provider, place, out)
        }
        AuthCommand::Remove { provider } => remove(setup, environment, provider, out),
        AuthCommand::List => list(setup, environment, out),
    }
}

fn init(setup: &Setup, environment: &dyn Environment, out: &mut Output) -> anyhow::Result<()> {
    let lock = setup.lock(environment);
    if lock.master.is_some() {
        bail!(
            "TERRET_CREDENTIALS_KEY is set and is what opens the stored keys; unset it to make \
             an identity file instead"
        );
    }
    match make_identity(&lock.identity) {
        Ok(()) => {}
        Err(error @ LockError::Exists { .. }) => {
            return Err(anyhow::Error::from(error).context(
                "an identity is there already, and the stored keys can be opened with nothing else",
            ));
        }
        Err(error) => return Err(error.into()),
    }
    out.line(format!("made {}", lock.identity.display()))?;
    out.line("Keys that you store with `terret auth set PROVIDER` are encrypted for it.")?;
    out.line("It protects them in copies and backups of credentials.json alone, and from other")?;
    out.line("users. It does not protect them from a program that runs as you and can read both")?;
    out.line("files. For that, keep the identity elsewhere, or remove it and set a passphrase in")?;
    out.line("TERRET_CREDENTIALS_KEY.")?;
    Ok(())
}

fn set(
    setup: &Setup,
    environment: &dyn Environment,
    provider: &str,
    place: Place,
    out: &mut Output,
) -> anyhow::Result<()> {
    let known = setup.providers(environment);
    if !known.iter().any(|known| known.name == provider) {
        let names: Vec<&str> = known.iter().map(|known| known.name.as_str()).collect();
        bail!(
            "no provider is named `{provider}`: known are {}, or add yours to config.toml under \
             `[providers.NAME]`",
            names.join(", ")
        );
    }
    let (file, keyring) = (setup.credentials(), setup.keyring(environment));
    let before = file.providers()?.get(provider).copied();
    // What cannot work is said before the key is asked for: it would be typed in vain.
    match place {
        Place::File => {
            let lock = setup.lock(environment);
            lock.holder()?;
            let key = read_key(provider)?;
            file.set(provider, &key, &lock)?;
            out.line(format!(
                "the key for {provider} is in {}",
                file.path().display()
            ))?;
        }
        Place::Keyring => {
            keyring.try_out(provider)?;
            let key = read_key(provider)?;
            keyring.set(provider, &key)?;
            file.set_in_keyring(provider)?;
            out.line(format!("the key for {provider} is in the system keyring"))?;
        }
    }
    if (place, before) == (Place::File, Some(Place::Keyring)) {
        remove_from_keyring(&keyring, provider)?;
    }
    if let Some(other) = setup
        .providers(environment)
        .iter()
        .find(|known| known.name == provider)
        .filter(|known| !matches!(known.origin, Origin::File | Origin::Keyring))
    {
        out.line(format!(
            "it is not used yet: {} comes first",
            other
                .origin
                .describe(&setup.credentials(), other.variable.as_deref())
        ))?;
    }
    Ok(())
}

fn remove(
    setup: &Setup,
    environment: &dyn Environment,
    provider: &str,
    out: &mut Output,
) -> anyhow::Result<()> {
    let file = setup.credentials();
    let place = file.providers()?.get(provider).copied();
    file.remove(provider)?;
    if place == Some(Place::Keyring) {
        remove_from_keyring(&setup.keyring(environment), provider)?;
    }
    out.line(format!("the key for {provider} is removed"))?;
    if let Some(known) = setup
        .providers(environment)
        .iter()
        .find(|known| known.name == provider && known.origin.has_key())
    {
        out.line(format!(
            "a key is still there: {}",
            known
                .origin
                .describe(&setup.credentials(), known.variable.as_deref())
        ))?;
    }
    Ok(())
}

/// Takes the key out of the keyring, where nothing of ours names it any more.
fn remove_from_keyring(keyring: &Keyring, provider: &str) -> anyhow::Result<()> {
    keyring.remove(provider).with_context(|| {
        format!(
            "Terret no longer uses the key for {provider} that is in the system keyring, but it \
             is still there: remove the entry `Terret: key for {provider}` with your keyring's \
             own program"
        )
    })
}

fn list(setup: &Setup, environment: &dyn Environment, out: &mut Output) -> anyhow::Result<()> {
    let file = setup.credentials();
    let providers = setup.providers(environment);
    for provider in &providers {
        out.line(format!(
            "{}: {}",
            provider.name,
            provider
                .origin
                .describe(&file, provider.variable.as_deref())
        ))?;
    }
    for name in file.providers()?.into_keys() {
        if !providers.iter().any(|known| known.name == name) {
            out.line(format!(
                "{name}: stored, but no provider of that name is configured"
            ))?;
        }
    }
    Ok(())
}

/// Reads a key from standard input: unseen from a terminal, else all that is piped.
fn read_key(provider: &str) -> anyhow::Result<SecretString> {
    let input = std::io::stdin();
    let mut text = String::new();
    if input.is_terminal() {
        let mut prompt = std::io::stderr();
        write!(prompt, "The key for {provider} (it is not shown): ")?;
        prompt.flush()?;
        let unseen = Unseen::start()?;
        input.lock().read_line(&mut text)?;
        drop(unseen);
        writeln!(prompt)?;
    } else {
        const LONGEST: u64 = 64 * 1024;
        input
            .lock()
            .take(LONGEST)
            .read_to_string(&mut text)
            .context("the key could not be read")?;
    }
    let text = SecretString::from(text);
    as_key(secrecy::ExposeSecret::expose_secret(&text))
        .map_err(|why| anyhow::anyhow!("what was given cannot be a key: {why}; nothing was stored"))
}

/// A terminal that does not show what is typed, until this is dropped.
struct Unseen(Termios);

impl Unseen {
    fn start() -> std::io::Result<Self> {
        let before = tcgetattr(std::io::stdin())?;
        let mut unseen = before.clone();
        unseen.local_modes.remove(LocalModes::ECHO);
        unseen.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(std::io::stdin(), OptionalActions::Flush, &unseen)?;
        Ok(Self(before))
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        // There is nobody to tell when the terminal is gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.0);
    }
}
