//! The frames of a whole turn, as they stand on the wire: read, edit with its diff and its
//! question, and a plan. The editor has no files of its own: its reads would come between
//! the updates wherever the scheduler puts them.

use serde_json::json;
use terret_fixtures::{EditorOptions, Normaliser, Preset, Reply, Script};

use crate::stage::{Setting, Stage};

#[tokio::test]
async fn a_golden_turn() {
    let plan = json!({ "todos": [
        { "content": "Read the notes", "status": "completed", "activeForm": "Reading the notes" },
        { "content": "Change them", "status": "in_progress", "activeForm": "Changing them" },
    ] });
    let edit = json!({ "file_path": "notes.txt", "old_string": "two", "new_string": "2" });
    let script = Script::new()
        .reply(
            Reply::new()
                .think("I look first.")
                .say("Reading.")
                .call_as("c1", "Read", json!({ "file_path": "notes.txt" }))
                .usage(100, 10),
        )
        .reply(
            Reply::new()
                .say("Planning.")
                .call_as("c2", "TodoWrite", plan)
                .usage(120, 10),
        )
        .reply(
            Reply::new()
                .say("Editing.")
                .call_as("c3", "Edit", edit)
                .usage(140, 10),
        )
        .reply(Reply::new().say("Done.").usage(160, 5));
    let stage = Stage::new(Setting::from(script).editor(EditorOptions::from(Preset::bare())));
    let session = stage.session().await;
    stage
        .editor
        .wait_update(0, "available_commands_update")
        .await
        .unwrap();
    stage
        .editor
        .prompt(&session, "change the notes")
        .await
        .unwrap();
    stage
        .editor
        .wait_update(0, "session_info_update")
        .await
        .unwrap();
    let names = Normaliser::new().path(stage.workspace.root(), "<cwd>");
    let mut seen = stage.finish().await;
    // The title is given after the turn, beside its answer: either may come first.
    seen.frames
        .retain(|frame| frame.update_kind() != Some("session_info_update"));
    insta::assert_snapshot!(names.text(&seen));
}
