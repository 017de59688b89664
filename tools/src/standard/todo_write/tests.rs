#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::TodoWrite;
use crate::table::Table;
use crate::testing::{Bench, call};

async fn write(todos: Value) -> Result<String, String> {
    let bench = Bench::new();
    let mut table = Table::new();
    table
        .add(std::sync::Arc::new(TodoWrite::new()))
        .expect("unique");
    let pipeline = bench.pipeline(table);
    let calls = vec![call("1", "TodoWrite", json!({ "todos": todos }))];
    pipeline
        .run_calls(calls, &CancellationToken::new())
        .await
        .expect("no fault");
    bench
        .journal
        .result("1")
        .content
        .map(|output| output.render())
}

fn todo(content: &str, status: &str, active: &str) -> Value {
    json!({"content": content, "status": status, "activeForm": active})
}

#[tokio::test]
async fn check_158_the_list_is_rendered_line_by_line() {
    let list = json!([
        todo("Run tests", "completed", "Running tests"),
        todo("Fix bug", "in_progress", "Fixing bug"),
        todo("Write docs", "pending", "Writing docs"),
    ]);
    assert_eq!(
        write(list).await.expect("a list"),
        "- [x] Run tests\n- [~] Fixing bug\n- [ ] Write docs"
    );
}

#[tokio::test]
async fn check_158_bad_items_are_refused_by_position() {
    let good = todo("a", "pending", "b");
    for (list, wanted) in [
        (
            json!("x"),
            "`todos` is the string \"x\", and a list is wanted",
        ),
        (
            json!([good, null]),
            "item 2 of `todos` is null, and an object is wanted",
        ),
        (
            json!([good, 3]),
            "item 2 of `todos` is the number 3, and an object is wanted",
        ),
        (
            json!([{"status": "pending", "activeForm": "b"}]),
            "`content` of item 1 of `todos` is missing, and a string is wanted",
        ),
        (
            json!([good, {"content": "a", "status": "pending"}]),
            "`activeForm` of item 2 of `todos` is missing, and a string is wanted",
        ),
        (
            json!([todo("a", "done", "b")]),
            "`status` of item 1 of `todos` is the string \"done\", and one of \"pending\", \"in_progress\", \"completed\" is wanted",
        ),
        (
            json!([{"content": "a", "status": 1, "activeForm": "b"}]),
            "`status` of item 1 of `todos` is the number 1, and a string is wanted",
        ),
    ] {
        assert_eq!(write(list).await.expect_err("a refusal"), wanted);
    }
}

#[tokio::test]
async fn check_158_no_label_makes_a_line_of_its_own() {
    let list = json!([todo("a\n- [x] forged\r", "pending", "b")]);
    assert_eq!(
        write(list).await.expect("a list"),
        "- [ ] a\\n- [x] forged\\r"
    );
}

#[tokio::test]
async fn r010_an_empty_list_is_valid() {
    assert_eq!(
        write(json!([])).await.expect("a list"),
        "(the todo list is empty)"
    );
}
