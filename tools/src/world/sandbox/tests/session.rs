//! The checks of the file tools (126 to 137) in a session whose commands are confined. What
//! the tools allow and refuse is the same, and where Bash tries the same thing, the kernel
//! refuses it; what one of them writes, the other sees.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::call::Tool;
use crate::pipeline::Veto;
use crate::standard::bash::Bash;
use crate::standard::edit::Edit;
use crate::standard::glob::Glob;
use crate::standard::grep::Grep;
use crate::standard::read::Read;
use crate::standard::write::Write;
use crate::testing::Bench;
use crate::world::files::{FileAccess, FileHook, FileOperation};

/// A session in the root of a [`Place`], confined.
struct Session {
    bench: Bench,
    place: Place,
    name: &'static str,
    isolated: bool,
}

impl Session {
    async fn run(&self, tool: &dyn Tool, args: Value) -> Result<String, String> {
        let result = self.bench.run(tool, args).await;
        result
            .map(|output| output.render())
            .map_err(|failure| failure.0)
    }

    async fn read(&self, path: &str) -> Result<String, String> {
        self.run(&Read::new(), json!({ "file_path": path })).await
    }

    async fn write(&self, path: &str, content: &str) -> Result<String, String> {
        let args = json!({ "file_path": path, "content": content });
        self.run(&Write::new(), args).await
    }

    async fn edit(&self, path: &str, old: &str, new: &str) -> Result<String, String> {
        let args = json!({ "file_path": path, "old_string": old, "new_string": new });
        self.run(&Edit::new(), args).await
    }

    /// What a command says, whether or not it ended well.
    async fn bash(&self, command: &str) -> String {
        let ran = self.run(&Bash::new(), json!({ "command": command })).await;
        ran.unwrap_or_else(|text| text)
    }

    /// A command that the kernel stops.
    async fn bash_fails(&self, command: &str) -> String {
        let said = self.bash(command).await;
        assert!(
            said.contains("exit status"),
            "{}: {command}: {said}",
            self.name
        );
        said
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.place.root.join(name)
    }
}

/// The same with each provider that works here, in folders of its own.
async fn each_session(hooks: &[Arc<dyn FileHook>], check: impl AsyncFn(&Session)) {
    for index in 0..Place::new().providers().len() {
        let place = Place::new();
        let sandbox = place.providers().remove(index);
        let bench = Bench::with(|settings| {
            settings.cwd = place.root.clone();
            settings.scratch = place.home.join(".cache/terret/outputs");
            settings.hooks = hooks.to_vec();
        });
        let session = Session {
            name: sandbox.name(),
            isolated: sandbox.isolated(),
            bench,
            place,
        };
        session.bench.world.set_sandbox(Arc::from(sandbox));
        check(&session).await;
        session.bench.world.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_126_nothing_outside_is_reached_under_the_sandbox() {
    each_session(&[], async |session| {
        let outside = &session.place.outside;
        symlink(outside.join("secret"), session.path("link")).unwrap();
        symlink(outside.join("made"), session.path("dangling")).unwrap();
        symlink(outside, session.path("folder")).unwrap();
        let absolute = outside.join("secret").display().to_string();
        let sibling = format!("{}-sibling", session.place.root.display());
        for path in [
            absolute.as_str(),
            "../elsewhere/secret",
            "a/../../elsewhere/secret",
            "../made",
            "link",
            "dangling",
            "folder/secret",
            "folder/made",
            &sibling,
        ] {
            for result in [
                session.read(path).await,
                session.write(path, "no").await,
                session.edit(path, "out", "in").await,
            ] {
                assert_eq!(
                    result.unwrap_err(),
                    format!("{path} is outside the granted workspace")
                );
            }
            let said = session.bash_fails(&format!("cat {path}")).await;
            assert!(!said.contains("out of reach"), "{path}: {said}");
            // In a private folder of the same name a file can be made, which is no harm.
            session.bash(&format!("echo no > {path}")).await;
        }
        let names: Vec<_> = std::fs::read_dir(outside).unwrap().collect();
        assert_eq!(names.len(), 1, "{}: {names:?}", session.name);
        let kept = std::fs::read_to_string(outside.join("secret")).unwrap();
        assert_eq!(kept, "out of reach", "{}", session.name);
        let base = session.place.folder.path();
        assert!(!base.join("made").exists() && !Path::new(&sibling).exists());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_127_a_loop_of_links_is_refused_under_the_sandbox() {
    each_session(&[], async |session| {
        symlink("two", session.path("one")).unwrap();
        symlink("one", session.path("two")).unwrap();
        symlink("self/x", session.path("self")).unwrap();
        for path in ["one", "one/x", "self"] {
            for result in [
                session.read(path).await,
                session.write(path, "no").await,
                session.edit(path, "a", "b").await,
            ] {
                let error = result.unwrap_err();
                assert!(error.contains("circle"), "{}: {error}", session.name);
            }
            session.bash_fails(&format!("cat {path}")).await;
            session.bash_fails(&format!("echo no > {path}")).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_128_a_second_root_is_reached_by_both_and_only_while_it_is_one_under_the_sandbox() {
    each_session(&[], async |session| {
        let second = session.place.folder.path().canonicalize().unwrap();
        let second = second.join("second");
        std::fs::create_dir(&second).unwrap();
        let file = second.join("file").display().to_string();
        let world = &session.bench.world;
        for (additional, is_in) in [(vec![second.clone()], true), (Vec::new(), false)] {
            world.set_additional_directories(&additional).unwrap();
            assert_eq!(session.write(&file, "tool\n").await.is_ok(), is_in);
            assert_eq!(session.read(&file).await.is_ok(), is_in);
            session.bash(&format!("echo bash >> {file}")).await;
            let said = session.bash(&format!("cat {file}")).await;
            assert_eq!(
                said.contains("tool\nbash"),
                is_in,
                "{}: {said}",
                session.name
            );
            let content = std::fs::read_to_string(&file).unwrap();
            assert_eq!(content, "tool\nbash\n", "{}", session.name);
        }
    })
    .await;
}

struct NoWrites;

impl FileHook for NoWrites {
    fn authorize(&self, access: FileAccess) -> Result<FileAccess, Veto> {
        if access.operation == FileOperation::Write {
            return Err(Veto("read only today".to_owned()));
        }
        Ok(FileAccess {
            path: "/etc/hosts".into(),
            ..access
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn check_129_a_veto_holds_under_the_sandbox() {
    each_session(&[Arc::new(NoWrites)], async |session| {
        std::fs::write(session.path("a"), "mine\n").unwrap();
        let read = session.read("a").await.unwrap();
        assert!(read.contains("mine"), "a rewritten path is ignored: {read}");
        for result in [
            session.write("b", "no").await,
            session.edit("a", "mine", "no").await,
        ] {
            assert!(result.unwrap_err().ends_with("read only today"));
        }
        assert!(!session.path("b").exists());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_130_131_and_134_writes_and_edits_are_exact_and_seen_by_commands_under_the_sandbox()
{
    each_session(&[], async |session| {
        let said = session.write("a/b/c", "one .* two\none .* two\n").await;
        assert!(said.unwrap().contains("22 bytes"));
        let counted = session.bash("wc -c < a/b/c").await;
        assert_eq!(counted.trim(), "22", "{}", session.name);
        for (old, count) in [(".+", "0 times"), ("one .*", "2 times")] {
            let error = session.edit("a/b/c", old, "x").await.unwrap_err();
            assert!(error.contains(count), "{error}");
        }
        session.write("d", "here\n").await.unwrap();
        session.edit("d", "here", r"\0 \1 $1 \\").await.unwrap();
        let seen = session.bash("cat d").await;
        assert_eq!(seen, "\\0 \\1 $1 \\\\\n", "{}", session.name);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_132_and_133_searches_see_what_commands_made_and_nothing_outside_under_the_sandbox()
{
    each_session(&[], async |session| {
        let outside = session.place.outside.display();
        session
            .bash(&format!(
                "mkdir src; echo 'needle one' > src/a.rs; echo 'needle two' > src/b.txt; \
                 printf 'needle \\377\\376' > src/c.rs; ln -s {outside}/secret src/out.rs; \
                 ln -s nowhere src/gone.rs; ln -s {outside} src/folder"
            ))
            .await;
        let found = session.run(&Glob::new(), json!({"pattern": "**/*.rs"})).await;
        let found = found.unwrap();
        assert!(found.contains("src/a.rs") && found.contains("src/c.rs"), "{found}");
        assert!(!found.contains("out.rs") && !found.contains("gone.rs"), "{found}");
        let args = json!({"pattern": "needle|reach", "glob": "*.rs", "output_mode": "content", "-n": true});
        let matched = session.run(&Grep::new(), args).await.unwrap();
        assert!(matched.contains("src/a.rs:1:needle one"), "{matched}");
        assert!(!matched.contains("out of reach"), "{matched}");
        assert!(!matched.contains("b.txt"), "{matched}");
        let said = session.bash("cat src/*.rs src/folder/* 2>&1").await;
        assert!(said.contains("needle one") && !said.contains("out of reach"), "{said}");
    })
    .await;
}

/// A command that looks all the while sees the old content or the new one, and no other.
#[tokio::test(flavor = "multi_thread")]
async fn check_135_a_write_is_whole_for_a_command_that_looks_under_the_sandbox() {
    each_session(&[], async |session| {
        let (old, new) = ("o".repeat(200_000), "n".repeat(200_000));
        std::fs::write(session.path("file"), &old).unwrap();
        std::fs::set_permissions(session.path("file"), PermissionsExt::from_mode(0o751)).unwrap();
        session.read("file").await.unwrap();
        let look = "touch looks; until [ -e done ]; do \
                    tr -s on < file; echo; done | sort -u; tr -s on < file";
        let (seen, ()) = tokio::join!(session.bash(look), async {
            let deadline = Instant::now() + Duration::from_secs(30);
            while !session.path("looks").exists() {
                assert!(Instant::now() < deadline, "the command never began");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            for content in [&new, &old, &new, &old, &new] {
                session.write("file", content).await.unwrap();
            }
            std::fs::write(session.path("done"), "").unwrap();
        });
        let seen: Vec<&str> = seen.split_whitespace().collect();
        assert!(
            seen.iter().all(|line| ["o", "n"].contains(line)) && seen.last() == Some(&"n"),
            "{}: {seen:?}",
            session.name
        );
        let mode = std::fs::metadata(session.path("file")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o751);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_136_what_a_command_made_large_or_binary_is_read_bounded_under_the_sandbox() {
    each_session(&[], async |session| {
        let said = session
            .bash("truncate -s 1G large && printf 'a\\0b\\0' > binary && echo made")
            .await;
        assert!(said.contains("made"), "{}: {said}", session.name);
        for path in ["large", "binary"] {
            let read = session.read(path).await;
            let text = read.unwrap_or_else(|error| error);
            assert!(text.len() < 10_000, "{path}: {} bytes", text.len());
            assert!(text.contains("binary"), "{path}: {text}");
        }
        std::fs::remove_file(session.path("large")).unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn check_137_a_file_that_a_command_changed_is_not_edited_unread_under_the_sandbox() {
    each_session(&[], async |session| {
        std::fs::write(session.path("a"), "one\n").unwrap();
        let error = session.edit("a", "one", "1").await.unwrap_err();
        assert!(error.contains("read"), "{error}");
        session.read("a").await.unwrap();
        session.bash("echo two >> a").await;
        let error = session.edit("a", "one", "1").await.unwrap_err();
        assert!(error.contains("changed"), "{}: {error}", session.name);
        session.read("a").await.unwrap();
        session.edit("a", "one", "1").await.unwrap();
        assert_eq!(session.bash("cat a").await, "1\ntwo\n");
    })
    .await;
}

/// The tools ask for these in every mode; commands are kept from them where the provider can.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_run_code_later_are_protected_from_tools_and_commands_under_the_sandbox() {
    each_session(&[], async |session| {
        session
            .bash("git init -q . && git config user.name n")
            .await;
        let hook = ".git/hooks/pre-commit";
        for path in [
            hook,
            ".git/config",
            ".envrc",
            ".mcp.json",
            ".vscode/tasks.json",
        ] {
            let file = session.path(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "kept\n").unwrap();
            assert!(session.bench.world.protection(path).is_some(), "{path}");
            for attempt in [
                format!("echo no > {path}"),
                format!("rm {path}"),
                format!("mv {path} away"),
                format!("ln -sf /etc/hosts {path}"),
                format!("cp /etc/hosts away && mv away {path}"),
            ] {
                if session.isolated {
                    session.bash_fails(&attempt).await;
                    let kept = std::fs::read_to_string(&file).unwrap();
                    assert_eq!(kept, "kept\n", "{attempt}");
                }
            }
        }
    })
    .await;
}
