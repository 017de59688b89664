//! Tests of Edit, MultiEdit and Write on real files.
#![expect(
    clippy::disallowed_methods,
    reason = "tests make and look at what the product acts on"
)]
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Edit;
use crate::call::{Output, Tool};
use crate::standard::multi_edit::MultiEdit;
use crate::standard::read::Read;
use crate::standard::write::Write;
use crate::testing::{Bench, Editor};
use crate::world::editor::EditorError;

async fn read(bench: &Bench, path: &str) -> Output {
    bench
        .run(&Read::new(), json!({"file_path": path}))
        .await
        .expect("read")
}

async fn run(bench: &Bench, tool: &dyn Tool, args: Value) -> Result<String, String> {
    bench
        .run(tool, args)
        .await
        .map(|output| output.render())
        .map_err(|failure| failure.0)
}

async fn edit(bench: &Bench, path: &str, old: &str, new: &str) -> Result<String, String> {
    run(
        bench,
        &Edit::new(),
        json!({"file_path": path, "old_string": old, "new_string": new}),
    )
    .await
}

async fn write(bench: &Bench, path: &str, content: &str) -> Result<String, String> {
    run(
        bench,
        &Write::new(),
        json!({"file_path": path, "content": content}),
    )
    .await
}

/// A bench whose file was read.
async fn with(name: &str, bytes: &[u8]) -> Bench {
    let bench = Bench::new();
    bench.put(name, bytes);
    read(&bench, name).await;
    bench
}

#[tokio::test]
async fn the_result_names_the_path_and_shows_the_changed_lines() {
    let bench = with("a.txt", b"one\ntwo\nthree\nfour\n").await;
    let path = bench.path("a.txt").canonicalize().expect("real");
    let text = edit(&bench, "a.txt", "three", "3").await.expect("edited");
    assert_eq!(
        text,
        format!(
            "Edited {}\n     1\tone\n     2\ttwo\n     3\t3\n     4\tfour",
            path.display()
        )
    );
}

#[tokio::test]
async fn check_131_zero_and_two_matches_are_refused_with_the_count() {
    let bench = with("a.txt", b"one\ntwo\ntwo\n").await;
    let none = edit(&bench, "a.txt", "zzz", "x")
        .await
        .expect_err("a refusal");
    assert!(
        none.starts_with("a.txt: `old_string` matches 0 times"),
        "{none}"
    );
    let two = edit(&bench, "a.txt", "two", "x")
        .await
        .expect_err("a refusal");
    assert!(
        two.starts_with("a.txt: `old_string` matches 2 times, at lines 2, 3"),
        "{two}"
    );
    assert_eq!(bench.bytes("a.txt"), b"one\ntwo\ntwo\n");
}

#[tokio::test]
async fn r048_two_matches_are_refused_and_replace_all_reports_the_count() {
    let bench = with("a.txt", b"dev {\n  url\n}\nprod {\n  url\n}\n").await;
    let error = edit(&bench, "a.txt", "  url", "  uri")
        .await
        .expect_err("a refusal");
    assert!(error.contains("lines 2, 5"), "{error}");
    let args = json!({"file_path": "a.txt", "old_string": "url", "new_string": "uri", "replace_all": true});
    let text = run(&bench, &Edit::new(), args).await.expect("edited");
    assert!(
        text.lines()
            .next()
            .expect("a line")
            .ends_with("a.txt, 2 places"),
        "{text}"
    );
    assert_eq!(bench.bytes("a.txt"), b"dev {\n  uri\n}\nprod {\n  uri\n}\n");
}

#[tokio::test]
async fn r045_an_edit_of_a_crlf_file_keeps_every_other_byte() {
    let bench = with("a.txt", b"one\r\ntwo\r\nthree\nfour\r\n").await;
    edit(&bench, "a.txt", "one\ntwo", "one\nmore\nTWO")
        .await
        .expect("edited");
    assert_eq!(
        bench.bytes("a.txt"),
        b"one\r\nmore\r\nTWO\r\nthree\nfour\r\n"
    );
}

#[tokio::test]
async fn r046_a_byte_order_mark_is_hidden_and_kept() {
    let bench = with("a.ps1", b"\xEF\xBB\xBFa\r\nb\r\n").await;
    assert_eq!(read(&bench, "a.ps1").await.text, "     1\ta\n     2\tb");
    edit(&bench, "a.ps1", "a\n", "A\n").await.expect("edited");
    assert_eq!(bench.bytes("a.ps1"), b"\xEF\xBB\xBFA\r\nb\r\n");
    let edits = json!({"file_path": "a.ps1", "edits": [
        {"old_string": "A", "new_string": "1"}, {"old_string": "b", "new_string": "2"}
    ]});
    run(&bench, &MultiEdit::new(), edits).await.expect("edited");
    assert_eq!(bench.bytes("a.ps1"), b"\xEF\xBB\xBF1\r\n2\r\n");
    write(&bench, "a.ps1", "new\n").await.expect("written");
    assert_eq!(bench.bytes("a.ps1"), b"\xEF\xBB\xBFnew\r\n");
}

#[tokio::test]
async fn r047_bytes_that_are_no_utf8_survive_an_edit_elsewhere() {
    let bench = with("a.js", b"x = 1\n// caf\xe9\n").await;
    edit(&bench, "a.js", "x = 1", "x = 2")
        .await
        .expect("edited");
    assert_eq!(bench.bytes("a.js"), b"x = 2\n// caf\xe9\n");
    // What cannot be told is refused with the bytes, and left alone.
    bench.put("b.js", b"x = 1\n// 20\xb0C\n");
    let context = bench.context();
    let refused = Read::new()
        .run(&context, json!({"file_path": "b.js"}))
        .await
        .expect_err("a refusal")
        .0;
    assert!(refused.contains("at byte 11 (b0 43 0a)"), "{refused}");
    bench
        .journal
        .see(&bench.path("b.js"), b"x = 1\n// 20\xb0C\n");
    let refused = edit(&bench, "b.js", "x = 1", "x = 2")
        .await
        .expect_err("a refusal");
    assert!(refused.contains("at byte 11"), "{refused}");
    assert_eq!(bench.bytes("b.js"), b"x = 1\n// 20\xb0C\n");
}

#[tokio::test]
async fn utf16_is_edited_in_place() {
    let utf16 = |text: &str| -> Vec<u8> {
        std::iter::once(0xFEFF)
            .chain(text.encode_utf16())
            .flat_map(u16::to_le_bytes)
            .collect()
    };
    let bench = with("a.txt", &utf16("eins\r\nzwei\r\n")).await;
    edit(&bench, "a.txt", "zwei", "drei").await.expect("edited");
    assert_eq!(bench.bytes("a.txt"), utf16("eins\r\ndrei\r\n"));
}

#[tokio::test]
async fn check_137_a_file_that_was_not_read_or_changed_since_is_refused() {
    let bench = Bench::new();
    bench.put("a.txt", "one\n");
    for refused in [
        edit(&bench, "a.txt", "one", "x").await,
        write(&bench, "a.txt", "x").await,
    ] {
        assert!(
            refused
                .expect_err("a refusal")
                .contains("was not read in this session")
        );
    }
    read(&bench, "a.txt").await;
    bench.put("a.txt", "one\nmore\n");
    for refused in [
        edit(&bench, "a.txt", "one", "x").await,
        write(&bench, "a.txt", "x").await,
    ] {
        assert!(
            refused
                .expect_err("a refusal")
                .contains("changed since it was read")
        );
    }
    assert_eq!(bench.bytes("a.txt"), b"one\nmore\n");
    read(&bench, "a.txt").await;
    edit(&bench, "a.txt", "one", "x").await.expect("edited");
    // What the session wrote itself it has seen.
    edit(&bench, "a.txt", "x", "y").await.expect("edited");
    write(&bench, "a.txt", "z\n").await.expect("written");
}

#[tokio::test]
async fn r051_a_whole_file_write_does_not_undo_what_another_process_wrote() {
    let bench = with("f", b"mine\n").await;
    bench.put("f", "theirs\n");
    let refused = write(&bench, "f", "overwritten\n")
        .await
        .expect_err("a refusal");
    assert!(refused.contains("Read it again"), "{refused}");
    assert_eq!(bench.bytes("f"), b"theirs\n");
    assert!(
        bench.journal.changes().is_empty(),
        "a change was told that was not made"
    );
}

#[tokio::test]
async fn check_134_the_replacement_is_literal() {
    let bench = with("a", b"x\n").await;
    edit(&bench, "a", "x", r"\0 \1 $1 \\")
        .await
        .expect("edited");
    assert_eq!(
        bench.bytes("a"),
        br"\0 \1 $1 \\"
            .iter()
            .copied()
            .chain([b'\n'])
            .collect::<Vec<u8>>()
    );
}

#[tokio::test]
async fn check_130_write_makes_folders_and_reports_the_bytes() {
    let bench = Bench::new();
    let text = write(&bench, "a/b/c.txt", "é\n").await.expect("written");
    let path = bench.path("a/b/c.txt").canonicalize().expect("real");
    assert_eq!(text, format!("Wrote 3 bytes to {}", path.display()));
    assert_eq!(bench.bytes("a/b/c.txt"), "é\n".as_bytes());
}

#[tokio::test]
async fn r126_a_final_newline_stays_as_it_is() {
    for (before, old, new, after) in [
        ("a\nb\n", "b", "c", "a\nc\n"),
        ("a\nb", "b", "c", "a\nc"),
        ("a\nb\n", "b\n", "b\nc\n", "a\nb\nc\n"),
        ("a\nb", "b", "b\nc", "a\nb\nc"),
    ] {
        let bench = with("f", before.as_bytes()).await;
        edit(&bench, "f", old, new).await.expect("edited");
        assert_eq!(bench.bytes("f"), after.as_bytes());
    }
    // A file made by Edit has what was given, to the byte.
    let bench = Bench::new();
    edit(&bench, "new", "", "no newline").await.expect("made");
    assert_eq!(bench.bytes("new"), b"no newline");
    let refused = edit(&bench, "other", "x", "y")
        .await
        .expect_err("a refusal");
    assert!(refused.contains("there is no file other"), "{refused}");
}

#[tokio::test]
async fn new_files_take_the_line_ends_of_their_neighbours() {
    let bench = Bench::new();
    bench.put("win/a.cs", "a\r\nb\r\n");
    bench.put("win/b.cs", "a\r\nb\r\n");
    bench.put("win/notes.md", "a\nb\n");
    write(&bench, "win/c.cs", "x\ny\n").await.expect("written");
    assert_eq!(bench.bytes("win/c.cs"), b"x\r\ny\r\n");
    write(&bench, "unix/c.cs", "x\ny\n").await.expect("written");
    assert_eq!(bench.bytes("unix/c.cs"), b"x\ny\n");
}

#[tokio::test]
async fn r124_mode_bits_and_hard_links_stay() {
    let bench = with("run.sh", b"#!/bin/sh\necho 1\n").await;
    std::fs::set_permissions(bench.path("run.sh"), std::fs::Permissions::from_mode(0o755))
        .expect("mode");
    edit(&bench, "run.sh", "echo 1", "echo 2")
        .await
        .expect("edited");
    assert_eq!(
        std::fs::metadata(bench.path("run.sh"))
            .expect("metadata")
            .mode()
            & 0o777,
        0o755
    );
    std::fs::hard_link(bench.path("run.sh"), bench.path("other.sh")).expect("linked");
    edit(&bench, "run.sh", "echo 2", "echo 3")
        .await
        .expect("edited");
    assert_eq!(bench.bytes("other.sh"), b"#!/bin/sh\necho 3\n");
}

#[tokio::test]
async fn a_link_inside_the_workspace_is_written_through() {
    let bench = with("real.txt", b"one\n").await;
    symlink("real.txt", bench.path("link.txt")).expect("linked");
    edit(&bench, "link.txt", "one", "two")
        .await
        .expect("edited");
    assert_eq!(bench.bytes("real.txt"), b"two\n");
    assert!(
        bench
            .path("link.txt")
            .symlink_metadata()
            .expect("metadata")
            .is_symlink()
    );
}

#[tokio::test]
async fn check_126_nothing_outside_is_read_or_written_or_made() {
    let outside = TempDir::new().expect("a folder");
    std::fs::write(outside.path().join("secret"), "s").expect("written");
    let bench = Bench::new();
    let parent = bench
        .folder
        .path()
        .file_name()
        .expect("a name")
        .to_string_lossy()
        .into_owned();
    symlink(outside.path().join("secret"), bench.path("link")).expect("linked");
    symlink(outside.path().join("new"), bench.path("dangling")).expect("linked");
    symlink(outside.path(), bench.path("folder")).expect("linked");
    let absolute = outside.path().join("secret").to_string_lossy().into_owned();
    let sibling = format!("../{parent}-sibling/x");
    for path in [
        absolute.as_str(),
        "../x",
        "a/../../x",
        "link",
        "dangling",
        "folder/new",
        "folder/secret",
        &sibling,
    ] {
        for result in [
            run(&bench, &Read::new(), json!({"file_path": path})).await,
            write(&bench, path, "x").await,
            edit(&bench, path, "s", "x").await,
        ] {
            assert_eq!(
                result.expect_err("a refusal"),
                format!("{path} is outside the granted workspace")
            );
        }
    }
    assert_eq!(std::fs::read_dir(outside.path()).expect("list").count(), 1);
    assert_eq!(
        std::fs::read(outside.path().join("secret")).expect("read"),
        b"s"
    );
}

#[tokio::test]
async fn multi_edit_makes_all_or_none_and_says_which_failed() {
    let bench = with("a", b"one two\n").await;
    let edits = |second: &str| {
        json!({"file_path": "a", "edits": [
            {"old_string": "one", "new_string": "1"}, {"old_string": second, "new_string": "2"}
        ]})
    };
    let error = run(&bench, &MultiEdit::new(), edits("zzz"))
        .await
        .expect_err("a refusal");
    assert!(
        error.starts_with("a, edit 2: `old_string` matches 0 times"),
        "{error}"
    );
    assert_eq!(bench.bytes("a"), b"one two\n");
    run(&bench, &MultiEdit::new(), edits("two"))
        .await
        .expect("edited");
    assert_eq!(bench.bytes("a"), b"1 2\n");
}

#[tokio::test]
async fn the_preview_shows_both_sides_and_changes_nothing() {
    let bench = with("a", b"one\r\n").await;
    let args = json!({"file_path": "a", "old_string": "one", "new_string": "two"});
    let preview = Edit::new()
        .preview(&bench.context(), &args)
        .await
        .expect("a preview");
    let [change] = preview.as_slice() else {
        unreachable!("one file")
    };
    assert_eq!(change.before.as_deref(), Some(&b"one\r\n"[..]));
    assert_eq!(change.after.as_deref(), Some(&b"two\r\n"[..]));
    assert_eq!(bench.bytes("a"), b"one\r\n");
    let new = json!({"file_path": "b", "content": "x"});
    let preview = Write::new()
        .preview(&bench.context(), &new)
        .await
        .expect("a preview");
    assert_eq!(preview.first().expect("a change").before, None);
    assert!(!bench.path("b").exists());
}

#[tokio::test]
async fn the_change_is_told_before_it_is_made() {
    let bench = with("a", b"one\n").await;
    *bench.journal.fault_at.lock().expect("a lock") = Some("changing".to_owned());
    let error = edit(&bench, "a", "one", "two")
        .await
        .expect_err("a refusal");
    assert!(error.contains("nothing was changed"), "{error}");
    assert_eq!(bench.bytes("a"), b"one\n");
    edit(&bench, "a", "one", "two").await.expect("edited");
    assert_eq!(bench.journal.changes().len(), 1);
}

fn with_editor(editor: &Arc<Editor>) -> Bench {
    let editor = Arc::clone(editor);
    Bench::with(|settings| settings.editor = Some(editor))
}

#[tokio::test]
async fn r125_a_dirty_buffer_is_read_and_written_instead_of_the_disk() {
    let editor = Arc::new(Editor::default());
    let bench = with_editor(&editor);
    bench.put("a.txt", "disk\r\n");
    editor.open(&bench.path("a.txt"), "buffer\r\nunsaved\r\n");
    let output = read(&bench, "a.txt").await;
    assert_eq!(output.text, "     1\tbuffer\n     2\tunsaved");
    assert!(
        output
            .remarks
            .iter()
            .any(|remark| remark.contains("unsaved changes"))
    );
    edit(&bench, "a.txt", "buffer", "edited")
        .await
        .expect("edited");
    // R045 by this way too: the other bytes are the client's own.
    assert_eq!(
        editor.written(),
        [(bench.path("a.txt"), "edited\r\nunsaved\r\n".to_owned())]
    );
    assert_eq!(
        bench.bytes("a.txt"),
        b"disk\r\n",
        "the disk is the editor's to write"
    );
}

#[tokio::test]
async fn a_clean_buffer_leaves_the_disk_the_truth_for_bytes() {
    let editor = Arc::new(Editor::default());
    let bench = with_editor(&editor);
    bench.put("a.txt", b"\xEF\xBB\xBFone\r\ntwo\r\n");
    // Line ends made one, the mark and the final newline dropped: still the same text.
    editor.open(&bench.path("a.txt"), "one\ntwo");
    assert!(read(&bench, "a.txt").await.remarks.is_empty());
    edit(&bench, "a.txt", "two", "2").await.expect("edited");
    assert!(editor.written().is_empty());
    assert_eq!(bench.bytes("a.txt"), b"\xEF\xBB\xBFone\r\n2\r\n");
}

/// An editor that opened the file in a wrong encoding has lost characters that the disk
/// still has; they must not be written back.
#[tokio::test]
async fn a_buffer_in_a_wrong_encoding_does_not_win_over_the_disk() {
    let editor = Arc::new(Editor::default());
    let bench = with_editor(&editor);
    let latin = b"caf\xE9 \xFCber alles\nna\xEFve r\xE9sum\xE9\none\n";
    bench.put("a.txt", latin);
    editor.open(&bench.path("a.txt"), &String::from_utf8_lossy(latin));
    read(&bench, "a.txt").await;
    edit(&bench, "a.txt", "one", "two").await.expect("edited");
    assert!(editor.written().is_empty());
    assert_eq!(
        bench.bytes("a.txt"),
        b"caf\xE9 \xFCber alles\nna\xEFve r\xE9sum\xE9\ntwo\n"
    );
}

#[tokio::test]
async fn r125_disk_stands_in_only_when_the_editor_cannot_and_it_is_said() {
    let editor = Arc::new(Editor::default());
    let bench = with_editor(&editor);
    bench.put("a.txt", "one\n");
    for error in [
        EditorError::Unsupported,
        EditorError::Failed("gone".to_owned()),
    ] {
        *editor.read_error.lock().expect("a lock") = Some(error);
        let output = read(&bench, "a.txt").await;
        assert_eq!(output.text, "     1\tone");
        assert!(
            output
                .remarks
                .first()
                .expect("a remark")
                .starts_with("read from disk"),
            "{output:?}"
        );
    }
    *editor.read_error.lock().expect("a lock") = None;
    editor.open(&bench.path("a.txt"), "dirty\n");
    read(&bench, "a.txt").await;
    *editor.write_error.lock().expect("a lock") = Some(EditorError::Unsupported);
    let text = edit(&bench, "a.txt", "dirty", "clean")
        .await
        .expect("edited");
    assert!(text.contains("the editor did not take the text"), "{text}");
    assert_eq!(bench.bytes("a.txt"), b"clean\n");
}

#[tokio::test]
async fn a_buffer_that_was_saved_since_it_was_read_is_no_change() {
    let editor = Arc::new(Editor::default());
    let bench = with_editor(&editor);
    bench.put("a.txt", "old\r\n");
    editor.open(&bench.path("a.txt"), "new text");
    read(&bench, "a.txt").await;
    bench.put("a.txt", "new text\r\n");
    edit(&bench, "a.txt", "new", "newer").await.expect("edited");
    assert_eq!(bench.bytes("a.txt"), b"newer text\r\n");
}

#[tokio::test]
async fn a_dirty_buffer_that_changed_since_it_was_read_is_refused() {
    let editor = Arc::new(Editor::default());
    let bench = with_editor(&editor);
    bench.put("a.txt", "old\n");
    editor.open(&bench.path("a.txt"), "typed\n");
    read(&bench, "a.txt").await;
    editor.open(&bench.path("a.txt"), "typed more\n");
    let refused = edit(&bench, "a.txt", "typed", "x")
        .await
        .expect_err("a refusal");
    assert!(refused.contains("changed since"), "{refused}");
    assert!(editor.written().is_empty());
}

/// An editor that never answers.
struct Silent;

#[async_trait::async_trait]
impl crate::world::editor::EditorFiles for Silent {
    async fn read_text(&self, _path: &std::path::Path) -> Result<Option<String>, EditorError> {
        std::future::pending().await
    }

    async fn write_text(&self, _path: &std::path::Path, _content: &str) -> Result<(), EditorError> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn r125_an_editor_that_does_not_answer_is_not_waited_for_for_ever() {
    let bench = Bench::with(|settings| settings.editor = Some(Arc::new(Silent)));
    bench.put("a.txt", "one\n");
    let output = read(&bench, "a.txt").await;
    assert_eq!(output.text, "     1\tone");
    assert_eq!(
        output.remarks,
        ["read from disk: the editor did not answer"]
    );
}
