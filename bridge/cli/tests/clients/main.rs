//! The real binary driven by clients that other people wrote.
//!
//! A client that is not installed is reported as ignored with the reason, since a test
//! that returns early would count as passed; `TERRET_REQUIRE_CLIENTS=1` makes it a failure.

#[cfg(feature = "keyring")]
mod keyring;

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use terret_fixtures::clients::{self, Client, Outcome, Scenario};

#[expect(
    clippy::disallowed_methods,
    reason = "the person who runs the tests sets it"
)]
fn main() -> ExitCode {
    let required = std::env::var_os("TERRET_REQUIRE_CLIENTS").is_some_and(|value| value == "1");
    // The command lines first: they wait most, and the others then run beside them.
    let clients = Client::ALL
        .into_iter()
        .rev()
        .flat_map(|client| {
            client
                .scenarios()
                .iter()
                .map(move |scenario| (client, *scenario))
        })
        .map(|(client, scenario)| {
            let name = scenario.test_name(client);
            match clients::installed(client) {
                // The list of tests has no other place for the reason.
                Err(reason) if !required => {
                    Trial::test(format!("{name} ({reason})"), || Ok(())).with_ignored_flag(true)
                }
                _ => Trial::test(name, move || drive(client, scenario)),
            }
        });
    #[cfg(feature = "keyring")]
    let clients = clients.chain([match keyring::missing() {
        Some(program) if !required => {
            let name = format!("{} ({program} is not installed)", keyring::NAME);
            Trial::test(name, || Ok(())).with_ignored_flag(true)
        }
        _ => Trial::test(keyring::NAME, keyring::stored_and_read),
    }]);
    let trials = clients.collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn drive(client: Client, scenario: Scenario) -> Result<(), Failed> {
    match clients::run(client, scenario, Path::new(env!("CARGO_BIN_EXE_terret"))) {
        Outcome::Passed => Ok(()),
        Outcome::Missing(text) | Outcome::Failed(text) => Err(Failed::from(text)),
    }
}
