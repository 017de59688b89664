//! The search for a provider, with real programs, as root and as somebody else.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::world::sandbox::report::report;
use crate::world::sandbox::testing::Place;

fn settings(place: &Place, provider: Choice) -> SandboxSettings {
    SandboxSettings {
        provider,
        ground: place.ground.clone(),
        folder: place.folder.path().join("ours"),
        docker: DockerSettings::default(),
    }
}

#[test]
fn every_name_leads_to_its_choice() {
    for choice in Choice::ALL {
        assert_eq!(Choice::named(choice.name()), Some(choice));
    }
    assert_eq!(Choice::named("chroot"), None);
}

#[test]
fn the_strongest_that_works_is_taken() {
    let place = Place::new();
    let found = provider(&settings(&place, Choice::Auto));
    let expected = if place.bwrap().is_some() {
        "bwrap"
    } else if landlock_version() > 0 {
        "landlock"
    } else {
        "none"
    };
    assert_eq!(found.name(), expected);
    assert_eq!(found.isolated(), expected == "bwrap");
}

#[test]
fn a_named_provider_that_is_not_there_starts_nothing() {
    let place = Place::new();
    let mut settings = settings(&place, Choice::Bwrap);
    settings.ground.path.clear();
    let found = provider(&settings);
    assert!(!found.isolated());
    let refused = found
        .wrap(SandboxRequest {
            argv: vec!["true".into()],
            cwd: "/".into(),
            reach: Reach::default(),
            tty: false,
        })
        .unwrap_err();
    assert!(refused.0.contains("not installed"), "{refused}");
}

#[test]
fn what_is_enforced_is_found_by_trying() {
    let place = Place::new();
    for choice in [Choice::Bwrap, Choice::Landlock] {
        let settings = settings(&place, choice);
        let sandbox = provider(&settings);
        if sandbox.name() != choice.name() || sandbox.wrap(request()).is_err() {
            continue;
        }
        let report = report(&settings, sandbox.as_ref());
        assert_eq!(report.broken, Vec::<String>::new(), "{report:?}");
        assert_eq!(report.works.len(), 2, "{report:?}");
        let is_bwrap = choice == Choice::Bwrap;
        assert_eq!(report.isolated, is_bwrap);
        let does_not_hold = report
            .open
            .iter()
            .filter(|line| line.contains(".git/config") || line.contains("not replaced"))
            .count();
        // Landlock cannot protect a file in a folder that may be written.
        assert_eq!(does_not_hold, if is_bwrap { 0 } else { 2 }, "{report:?}");
    }
    let settings = settings(&place, Choice::None);
    let report = report(&settings, provider(&settings).as_ref());
    assert!(report.enforced.is_empty() && !report.open.is_empty());
}

fn request() -> SandboxRequest {
    SandboxRequest {
        argv: vec!["true".into()],
        cwd: "/".into(),
        reach: Reach::default(),
        tty: false,
    }
}
