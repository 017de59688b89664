//! Open buffers of the editor.

use serde_json::json;
use terret_fixtures::{Preset, Reply, Script};

use crate::stage::{Setting, Stage, stop_reason};

fn edit() -> Script {
    let read = json!({ "file_path": "notes.txt" });
    let args = json!({ "file_path": "notes.txt", "old_string": "two", "new_string": "2" });
    Script::new()
        .reply(Reply::new().call("Read", read))
        .reply(Reply::new().call("Edit", args))
        .say("Done.")
}

#[tokio::test]
async fn quirk_03_a_dirty_buffer_is_read_and_written_and_null_is_an_answer() {
    let stage = Stage::new(Setting::from(edit()).editor(Preset::toad()));
    let session = stage.session().await;
    let path = stage.path("notes.txt");
    stage.editor.set_buffer(&path, "unsaved\ntwo\nthree\n");
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "edit").await.unwrap()),
        "end_turn"
    );
    assert_eq!(stage.editor.buffer(&path).unwrap(), "unsaved\n2\nthree\n");
    let seen = stage.finish().await;
    assert!(seen.requests_of_agent("fs/read_text_file").count() >= 1);
    assert_eq!(seen.requests_of_agent("fs/write_text_file").count(), 1);
}

#[tokio::test]
async fn quirk_04_a_final_newline_that_the_client_drops_stays_in_the_file() {
    let stage = Stage::new(Setting::from(edit()).editor(Preset::avante()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "edit").await.unwrap();
    assert_eq!(
        std::fs::read_to_string(stage.path("notes.txt")).unwrap(),
        "one\n2\nthree\n"
    );
    stage.finish().await;
}

#[tokio::test]
async fn quirk_10_a_client_without_files_is_never_asked_for_them() {
    let stage = Stage::new(Setting::from(edit()).editor(Preset::hrns()));
    let session = stage.session().await;
    stage.editor.prompt(&session, "edit").await.unwrap();
    let seen = stage.finish().await;
    assert_eq!(seen.requests_of_agent("fs/read_text_file").count(), 0);
    assert_eq!(seen.requests_of_agent("fs/write_text_file").count(), 0);
}
