#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::find::{FindRequest, Found, find};
use super::grep::{GrepRequest, Grepped, Mode, grep};
use super::*;
use crate::pipeline::Veto;
use crate::testing::Bench;
use crate::world::files::{FileAccess, FileHook};

fn glob(bench: &Bench, pattern: &str) -> Found {
    glob_in(bench, pattern, None).unwrap()
}

fn glob_in(bench: &Bench, pattern: &str, path: Option<&str>) -> Result<Found, SearchError> {
    let request = FindRequest {
        pattern: pattern.to_owned(),
        path: path.map(str::to_owned),
    };
    find(&bench.world, &request, &CancellationToken::new())
}

fn names(bench: &Bench, found: &Found) -> Vec<String> {
    let mut names: Vec<String> = found
        .paths
        .iter()
        .map(|path| {
            path.strip_prefix(bench.folder.path())
                .unwrap_or(path)
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    names.sort();
    names
}

fn content(pattern: &str) -> GrepRequest {
    GrepRequest {
        pattern: pattern.to_owned(),
        mode: Mode::Content,
        line_numbers: true,
        limit: 250,
        ..GrepRequest::default()
    }
}

fn files(pattern: &str) -> GrepRequest {
    GrepRequest {
        mode: Mode::Files,
        ..content(pattern)
    }
}

fn search(bench: &Bench, request: &GrepRequest) -> Grepped {
    grep(&bench.world, request, &CancellationToken::new()).unwrap()
}

/// The text with the folder's own path taken out.
fn text(bench: &Bench, request: &GrepRequest) -> String {
    let folder = format!("{}/", bench.folder.path().display());
    search(bench, request).text.replace(&folder, "")
}

fn repository() -> Bench {
    let bench = Bench::new();
    bench.put(".git/config", "needle");
    bench.put(".git/HEAD", "x");
    bench
}

#[test]
fn check_132_glob_covers_every_root_and_drops_links_that_lead_nowhere_or_outside() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret.txt"), "x").unwrap();
    let second = tempfile::tempdir().unwrap();
    std::fs::write(second.path().join("two.txt"), "x").unwrap();
    let bench = Bench::with(|settings| {
        settings
            .additional_directories
            .push(second.path().to_owned())
    });
    bench.put("one.txt", "x");
    symlink("one.txt", bench.path("inside.txt")).unwrap();
    symlink(outside.path().join("secret.txt"), bench.path("escape.txt")).unwrap();
    symlink("nowhere", bench.path("dangling.txt")).unwrap();
    symlink("loop.txt", bench.path("loop.txt")).unwrap();
    symlink(outside.path(), bench.path("folder")).unwrap();
    let found = glob(&bench, "**/*.txt");
    let mut expected = vec![
        "inside.txt".to_owned(),
        "one.txt".to_owned(),
        second.path().join("two.txt").to_string_lossy().into_owned(),
    ];
    expected.sort();
    assert_eq!(names(&bench, &found), expected);
    assert!(found.paths.iter().all(|path| path.is_absolute()));
    assert!(matches!(
        glob_in(&bench, "folder/*.txt", None),
        Err(SearchError::File(_))
    ));
    assert!(matches!(
        glob_in(&bench, "*", Some("folder")),
        Err(SearchError::File(_))
    ));
    assert!(matches!(
        glob_in(&bench, "../*", None),
        Err(SearchError::File(_))
    ));
    let absolute = format!("{}/*", outside.path().display());
    assert!(matches!(
        glob_in(&bench, &absolute, None),
        Err(SearchError::File(_))
    ));
}

#[test]
fn glob_gives_the_newest_first_and_says_what_is_left_out() {
    let bench = Bench::new();
    for number in 0..1_203_u64 {
        bench.put(&format!("f{number:04}"), "x");
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + number / 2);
        std::fs::File::open(bench.path(&format!("f{number:04}")))
            .unwrap()
            .set_modified(changed)
            .unwrap();
    }
    let found = glob(&bench, "*");
    assert_eq!((found.paths.len(), found.total), (1_000, 1_203));
    let first: Vec<PathBuf> = ["f1202", "f1200", "f1201"]
        .iter()
        .map(|name| bench.path(name))
        .collect();
    assert_eq!(
        found.paths.iter().take(3).cloned().collect::<Vec<_>>(),
        first
    );
    assert!(
        found
            .remarks
            .first()
            .unwrap()
            .starts_with("the 1000 newest of 1203 files are shown, 203 older")
    );
}

#[test]
fn glob_stars_stay_in_their_folder_and_say_how_to_look_deeper() {
    let bench = Bench::new();
    bench.put("src/deep/a.rs", "");
    bench.put("src/b.rs", "");
    assert_eq!(names(&bench, &glob(&bench, "src/*.rs")), ["src/b.rs"]);
    assert_eq!(
        names(&bench, &glob(&bench, "**/*.rs")),
        ["src/b.rs", "src/deep/a.rs"]
    );
    assert_eq!(
        names(&bench, &glob(&bench, "./src/**/{a,c}.rs")),
        ["src/deep/a.rs"]
    );
    let none = glob(&bench, "*.rs");
    assert!(none.paths.is_empty() && none.remarks.first().unwrap().contains("`**/*.rs`"));
    assert!(matches!(
        glob_in(&bench, "[", None),
        Err(SearchError::Glob { .. })
    ));
    assert!(matches!(
        glob_in(&bench, "*", Some("none")),
        Err(SearchError::Missing(_))
    ));
    assert!(matches!(
        glob_in(&bench, "*", Some("src/b.rs")),
        Err(SearchError::NotAFolder(_))
    ));
}

#[test]
fn r053_hidden_files_are_searched_and_git_is_not() {
    let bench = repository();
    bench.put(".github/workflows/ci.yml", "needle");
    bench.put(".env.example", "needle");
    bench.put("plain", "needle");
    let all = [".env.example", ".github/workflows/ci.yml", "plain"];
    assert_eq!(names(&bench, &glob(&bench, "**/*")), all);
    assert_eq!(
        text(&bench, &files("needle")).lines().collect::<Vec<_>>(),
        all
    );
    assert_eq!(
        names(&bench, &glob(&bench, ".github/**")),
        [".github/workflows/ci.yml"]
    );
    let below = GrepRequest {
        path: Some(".github".to_owned()),
        ..files("needle")
    };
    assert_eq!(text(&bench, &below), ".github/workflows/ci.yml\n");
    let named = GrepRequest {
        path: Some(".git".to_owned()),
        ..files("needle")
    };
    assert_eq!(text(&bench, &named), ".git/config\n");
    assert_eq!(
        names(&bench, &glob(&bench, ".git/*")),
        [".git/HEAD", ".git/config"]
    );
}

#[test]
fn r127_a_pattern_that_names_an_ignored_place_finds_it() {
    for bench in [Bench::new(), repository()] {
        bench.put(".gitignore", "dist/\nnode_modules\n*.log\nbuild/**\n");
        for file in [
            "dist/app.js",
            "node_modules/x/package.json",
            "node_modules/x/lib/i.js",
            "a.log",
            "build/out/o.js",
            "src/i.js",
        ] {
            bench.put(file, "needle");
        }
        assert_eq!(names(&bench, &glob(&bench, "**/*.js")), ["src/i.js"]);
        for named in ["dist/app.js", "node_modules/x/package.json", "a.log"] {
            assert_eq!(names(&bench, &glob(&bench, named)), [named]);
            let request = GrepRequest {
                path: Some(named.to_owned()),
                ..files("needle")
            };
            assert_eq!(text(&bench, &request), format!("{named}\n"));
            let request = GrepRequest {
                glob: Some(named.to_owned()),
                ..files("needle")
            };
            if named.contains('/') {
                assert_eq!(text(&bench, &request), format!("{named}\n"));
            }
        }
        assert_eq!(names(&bench, &glob(&bench, "dist/*.js")), ["dist/app.js"]);
        assert_eq!(
            names(&bench, &glob(&bench, "build/**/*.js")),
            ["build/out/o.js"]
        );
        assert_eq!(
            names(&bench, &glob(&bench, "node_modules/x/**/*.js")),
            ["node_modules/x/lib/i.js"]
        );
        let found = glob(&bench, "**/node_modules/*/package.json");
        assert_eq!(names(&bench, &found), ["node_modules/x/package.json"]);
        assert!(
            found
                .remarks
                .first()
                .unwrap()
                .contains("since the pattern names them")
        );
        let request = GrepRequest {
            path: Some("node_modules/x".to_owned()),
            ..files("needle")
        };
        assert_eq!(
            text(&bench, &request),
            "node_modules/x/lib/i.js\nnode_modules/x/package.json\n"
        );
        let request = GrepRequest {
            glob: Some("dist/**".to_owned()),
            ..files("needle")
        };
        let searched = search(&bench, &request);
        assert!(searched.text.ends_with("dist/app.js\n"));
        assert!(
            searched
                .remarks
                .first()
                .unwrap()
                .starts_with("ignored files below")
        );
    }
}

#[test]
fn r128_nested_ignore_files_hold_and_binary_files_are_counted() {
    for bench in [Bench::new(), repository()] {
        bench.put(".gitignore", "/vendor\n*.min.js\n");
        bench.put(".ignore", "generated/\n");
        bench.put("web/.gitignore", "cache\n!keep.min.js\n");
        for file in [
            "vendor/v.js",
            "a.min.js",
            "generated/g.js",
            "web/cache/c.js",
            "web/keep.min.js",
            "web/vendor/w.js",
            "main.js",
        ] {
            bench.put(file, "needle\n");
        }
        let mut binary = vec![b'x'; 5 << 20];
        binary.splice(0..7, *b"needle\n");
        binary.splice(100..101, [0]);
        bench.put("data.bin", &binary);
        bench.put("lines.txt", "needle\n".repeat(10_000));
        let expected = ["main.js", "web/keep.min.js", "web/vendor/w.js"];
        let found = text(
            &bench,
            &GrepRequest {
                glob: Some("*.js".to_owned()),
                ..files("needle")
            },
        );
        assert_eq!(found.lines().collect::<Vec<_>>(), expected);
        let all = search(&bench, &content("needle"));
        assert_eq!(all.text.lines().count(), 250);
        assert_eq!(
            all.remarks,
            [
                "lines 1 to 250 of 10003 are shown (10003 matching lines in 4 files); the 9753 after them come with \
                 `offset` 250, or narrow the search with `path`, `glob` or `type`",
                "1 binary file was skipped",
            ]
        );
    }
}

#[test]
fn r128_global_excludes_hold() {
    const INNER: &str = "R128_INNER_HOME";
    if std::env::var_os(INNER).is_some() {
        let bench = repository();
        bench.put("mine.swp", "needle");
        bench.put("yours.txt", "needle");
        assert_eq!(text(&bench, &files("needle")), "yours.txt\n");
        return;
    }
    // The home folder is the environment's, so this needs a process of its own.
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(home.path().join("git")).unwrap();
    std::fs::write(home.path().join("git/ignore"), "*.swp\n").unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "world::search::tests::r128_global_excludes_hold"])
        .env(INNER, "1")
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path())
        .env_remove("GIT_CONFIG_GLOBAL")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

#[test]
fn an_ignore_file_above_the_root_is_about_something_else() {
    let above = tempfile::tempdir().unwrap();
    std::fs::write(above.path().join(".gitignore"), "*\n").unwrap();
    std::fs::create_dir(above.path().join("root")).unwrap();
    std::fs::write(above.path().join("root/a"), "x").unwrap();
    let bench = Bench::with(|settings| settings.cwd = above.path().join("root"));
    assert_eq!(glob(&bench, "*").total, 1);
    std::fs::create_dir(above.path().join(".git")).unwrap();
    assert_eq!(
        glob(&bench, "*").total,
        0,
        "in a repository it is about this"
    );
}

#[test]
fn check_133_grep_gives_path_line_text_and_honours_the_glob() {
    let bench = Bench::new();
    bench.put("a.rs", "one\r\ntwo needle\r\n");
    bench.put("b.txt", "needle at end");
    bench.put("latin.txt", b"caf\xe9 needle\n");
    assert_eq!(
        text(&bench, &content("needle")),
        "a.rs:2:two needle\nb.txt:1:needle at end\n"
    );
    let request = GrepRequest {
        glob: Some("*.rs".to_owned()),
        ..content("needle")
    };
    assert_eq!(text(&bench, &request), "a.rs:2:two needle\n");
    let request = GrepRequest {
        glob: Some("!*.rs".to_owned()),
        ..content("needle")
    };
    assert_eq!(text(&bench, &request), "b.txt:1:needle at end\n");
    let remarks = search(&bench, &content("needle")).remarks;
    assert!(
        remarks
            .first()
            .unwrap()
            .ends_with("latin.txt is not UTF-8 text and was skipped"),
        "{remarks:?}"
    );
    assert_eq!(search(&bench, &content("absent")).text, "");
}

#[test]
fn utf_16_is_searched_as_text() {
    let bench = Bench::new();
    let wide: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain("needle\n".encode_utf16().flat_map(u16::to_le_bytes))
        .collect();
    bench.put("wide.txt", wide);
    assert_eq!(text(&bench, &content("needle")), "wide.txt:1:needle\n");
}

#[test]
fn context_groups_and_offsets_are_exact() {
    let bench = Bench::new();
    let lines: String = (1..=20)
        .map(|n| {
            if n % 8 == 0 {
                "needle\n".to_owned()
            } else {
                format!("line {n}\n")
            }
        })
        .collect();
    bench.put("a", &lines);
    bench.put("b", "x\nneedle\n");
    let request = GrepRequest {
        before: 1,
        after: 1,
        ..content("needle")
    };
    let whole = "a-7-line 7\na:8:needle\na-9-line 9\n--\na-15-line 15\na:16:needle\na-17-line 17\n--\nb-1-x\nb:2:needle\n";
    assert_eq!(text(&bench, &request), whole);
    let without: Vec<&str> = whole.lines().filter(|line| *line != "--").collect();
    for limit in 1..=9 {
        let mut pages = Vec::new();
        for offset in (0..8).step_by(limit) {
            let page = text(
                &bench,
                &GrepRequest {
                    limit,
                    offset,
                    ..request.clone()
                },
            );
            pages.extend(page.lines().filter(|line| *line != "--").map(str::to_owned));
        }
        assert_eq!(pages, without, "pages of {limit}");
    }
    let past = search(
        &bench,
        &GrepRequest {
            offset: 50,
            ..request
        },
    );
    assert_eq!(
        past.remarks,
        ["there are 8 lines (3 matching lines in 2 files), and `offset` 50 is past them"]
    );
}

#[test]
fn modes_flags_and_types() {
    let bench = Bench::new();
    bench.put("a.rs", "Needle\nneedle needle\n");
    bench.put("b.py", "needle\n");
    bench.put("c.rs", "fn a() {\n}\n");
    let count = GrepRequest {
        mode: Mode::Count,
        ..content("needle")
    };
    assert_eq!(text(&bench, &count), "a.rs:1\nb.py:1\n");
    assert_eq!(
        text(
            &bench,
            &GrepRequest {
                ignore_case: true,
                ..count
            }
        ),
        "a.rs:2\nb.py:1\n"
    );
    let typed = GrepRequest {
        file_type: Some("rust".to_owned()),
        ..files("needle")
    };
    assert_eq!(text(&bench, &typed), "a.rs\n");
    let bare = GrepRequest {
        line_numbers: false,
        path: Some("b.py".to_owned()),
        ..content("needle")
    };
    assert_eq!(text(&bench, &bare), "b.py:needle\n");
    let spanning = GrepRequest {
        multiline: true,
        ..content(r"\{.\}")
    };
    assert_eq!(text(&bench, &spanning), "c.rs:1:fn a() {\nc.rs:2:}\n");
}

#[test]
fn what_cannot_be_searched_for_is_said_plainly() {
    let bench = Bench::new();
    bench.put("a", "x");
    let error = |request| {
        grep(&bench.world, &request, &CancellationToken::new())
            .unwrap_err()
            .to_string()
    };
    assert!(error(content("(")).contains("unclosed group"));
    assert!(error(content("a\\nb")).contains("set `multiline`"));
}

#[test]
fn an_unknown_type_names_its_neighbours() {
    let bench = Bench::new();
    let request = GrepRequest {
        file_type: Some("rusty".to_owned()),
        ..content("x")
    };
    let error = grep(&bench.world, &request, &CancellationToken::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no file type `rusty`; there is rust"),
        "{error}"
    );
}

#[test]
fn a_search_in_no_file_says_so() {
    let bench = Bench::new();
    bench.put("a.rs", "x");
    let request = GrepRequest {
        glob: Some("*.py".to_owned()),
        ..content("x")
    };
    assert!(
        search(&bench, &request)
            .remarks
            .first()
            .unwrap()
            .starts_with("no file was searched")
    );
    assert_eq!(
        search(&bench, &content("absent")).remarks,
        ["1 file was searched"]
    );
}

#[test]
fn grep_stays_inside_by_real_path_and_asks_the_hooks() {
    struct NoSecrets;
    impl FileHook for NoSecrets {
        fn authorize(&self, access: FileAccess) -> Result<FileAccess, Veto> {
            if access.path.ends_with("secret") {
                Err(Veto("secret".to_owned()))
            } else {
                Ok(access)
            }
        }
    }
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("o"), "needle").unwrap();
    let bench = Bench::with(|settings| {
        settings.hooks.push(Arc::new(NoSecrets));
        settings.denied.push(settings.cwd.join("state"));
    });
    symlink(outside.path(), bench.path("link")).unwrap();
    symlink(outside.path().join("o"), bench.path("file")).unwrap();
    bench.put("secret", "needle");
    bench.put("state/log", "needle");
    bench.put("open", "needle");
    assert_eq!(text(&bench, &files("needle")), "open\n");
    for path in ["link", "file", "secret", "state", ".."] {
        let request = GrepRequest {
            path: Some(path.to_owned()),
            ..files("needle")
        };
        assert!(
            grep(&bench.world, &request, &CancellationToken::new()).is_err(),
            "{path}"
        );
    }
    assert_eq!(names(&bench, &glob(&bench, "**")), ["open", "secret"]);
}

#[test]
fn a_kept_output_can_be_searched() {
    let scratch = tempfile::tempdir().unwrap();
    std::fs::write(scratch.path().join("output-1.txt"), "needle").unwrap();
    let bench = Bench::with(|settings| settings.scratch = scratch.path().to_owned());
    let path = scratch
        .path()
        .join("output-1.txt")
        .to_string_lossy()
        .into_owned();
    assert!(
        search(
            &bench,
            &GrepRequest {
                path: Some(path),
                ..files("needle")
            }
        )
        .text
        .ends_with("output-1.txt\n")
    );
}

#[test]
fn a_cancel_stops_a_search() {
    let bench = Bench::new();
    bench.put("a", "x");
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(matches!(
        grep(&bench.world, &content("x"), &cancel),
        Err(SearchError::Cancelled)
    ));
    let request = FindRequest {
        pattern: "*".to_owned(),
        path: None,
    };
    assert!(matches!(
        find(&bench.world, &request, &cancel),
        Err(SearchError::Cancelled)
    ));
}

#[test]
fn a_name_with_a_line_end_stays_one_line() {
    let bench = Bench::new();
    bench.put("a\nb", "needle");
    assert_eq!(text(&bench, &files("needle")), "a\\nb\n");
}

#[test]
fn nested_roots_give_each_file_once() {
    let bench = Bench::new();
    bench.put("inner/a", "needle");
    bench.put("b", "needle");
    bench
        .world
        .set_additional_directories(&[bench.path("inner")])
        .unwrap();
    assert_eq!(names(&bench, &glob(&bench, "**")), ["b", "inner/a"]);
    assert_eq!(text(&bench, &files("needle")), "b\ninner/a\n");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However the threads run and whatever is cut, pages put together are the whole, in order.
    #[test]
    fn pages_put_together_are_the_whole(counts in proptest::collection::vec(0usize..6, 1..20), limit in 1usize..9) {
        let bench = Bench::new();
        let mut expected = Vec::new();
        for (number, count) in counts.iter().enumerate() {
            let name = format!("d{}/f{number:02}", number % 3);
            bench.put(&name, "other\nneedle\n".repeat(*count));
            expected.extend((0..*count).map(|line| format!("{name}:{}:needle", 2 * line + 2)));
        }
        expected.sort_by_key(|line| (line.split(':').next().map(str::to_owned), line.split(':').nth(1).and_then(|n| n.parse::<u32>().ok())));
        let mut pages = Vec::new();
        for offset in (0..expected.len()).step_by(limit) {
            pages.extend(text(&bench, &GrepRequest { limit, offset, ..content("needle") }).lines().map(str::to_owned));
        }
        prop_assert_eq!(pages, expected);
    }
}
