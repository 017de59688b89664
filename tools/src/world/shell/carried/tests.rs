#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use proptest::prelude::*;

use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
    pairs
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect()
}

fn report(pairs: &[(&str, &str)]) -> Report {
    Report {
        cwd: PathBuf::from("/"),
        exported: map(pairs),
    }
}

#[test]
fn a_report_that_is_not_whole_is_none() {
    assert_eq!(
        Report::parse(b"/a\0X=1\0=end\0").unwrap().exported,
        map(&[("X", "1")])
    );
    for torn in [
        &b""[..],
        b"/a\0",
        b"/a\0X=1\0",
        b"/a\0X=1\0=en",
        b"relative\0=end\0",
        b"/a\0noequals\0=end\0",
        b"/a\0=x\0=end\0",
    ] {
        assert_eq!(
            Report::parse(torn),
            None,
            "{:?}",
            String::from_utf8_lossy(torn)
        );
    }
}

#[test]
fn check_138_only_what_changed_is_carried() {
    let base = map(&[("HOME", "/h"), ("GONE", "1"), ("PATH", "/bin")]);
    let mut carried = Carried::default();
    let end = report(&[
        ("HOME", "/h"),
        ("NEW", "a b\nc"),
        ("PATH", "/bin"),
        ("PWD", "/x"),
        ("_", "y"),
        ("SHLVL", "3"),
    ]);
    assert!(carried.update(end, &base, &base).is_empty());
    let mut next = base.clone();
    carried.apply(&mut next);
    assert_eq!(
        next,
        map(&[("HOME", "/h"), ("NEW", "a b\nc"), ("PATH", "/bin")])
    );
}

#[test]
fn a_variable_that_takes_over_later_commands_is_not_carried() {
    let mut carried = Carried::default();
    let evil = [
        ("LD_PRELOAD", "/x.so"),
        ("LD_LIBRARY_PATH", "/x"),
        ("BASH_ENV", "/x"),
        ("ENV", "/x"),
        ("BASH_FUNC_ls%%", "() { :; }"),
        ("TERRET_INSIDE", "0"),
        ("IFS", "x"),
        ("PS4", "$(x)"),
        ("PROMPT_COMMAND", "x"),
        ("SHELLOPTS", "xtrace"),
    ];
    carried.update(report(&evil), &BTreeMap::new(), &BTreeMap::new());
    assert!(carried.set.is_empty(), "{:?}", carried.set);
}

#[test]
fn a_path_that_puts_a_writable_folder_first_is_not_carried() {
    let folder = tempfile::tempdir().unwrap();
    let own = folder.path().to_str().unwrap();
    let base = map(&[("PATH", "/usr/bin:/bin")]);
    let mut carried = Carried::default();
    let remarks = carried.update(
        report(&[("PATH", &format!("{own}:bin:/usr/bin:/bin"))]),
        &base,
        &base,
    );
    assert!(carried.set.is_empty());
    assert!(remarks.first().unwrap().contains(own));
    let appended = format!("/usr/bin:/bin:{own}");
    assert!(
        carried
            .update(report(&[("PATH", &appended)]), &base, &base)
            .is_empty()
    );
    assert_eq!(carried.set, map(&[("PATH", &appended)]));
}

#[test]
fn a_variable_that_is_set_back_is_no_longer_carried() {
    let base = map(&[("EDITOR", "x")]);
    let mut carried = Carried::default();
    carried.update(report(&[]), &base, &base);
    assert!(carried.unset.contains(OsStr::new("EDITOR")));
    carried.update(report(&[("EDITOR", "x")]), &BTreeMap::new(), &base);
    assert_eq!((carried.unset.len(), carried.set.len()), (0, 0));
}

proptest! {
    #[test]
    fn no_report_breaks_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Report::parse(&bytes);
    }
}
