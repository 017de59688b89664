#![expect(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use serde_json::json;

use super::*;
use crate::standard::glob::Glob;
use crate::testing::Bench;

#[tokio::test]
async fn parameters_are_read_as_their_names_say() {
    let bench = Bench::new();
    bench.put("a.rs", "one\nTwo\nthree\n");
    let folder = bench.path("a.rs").to_string_lossy().into_owned();
    let tool = Grep::new();
    let args = json!({"pattern": "two", "output_mode": "content", "-i": true, "-A": 1, "type": "rust", "head_limit": 0});
    let checked = arguments::check("Grep", &tool.definition().parameters, args).unwrap();
    assert!(checked.remarks.is_empty());
    assert_eq!(
        bench.run(&tool, checked.args).await.unwrap().text,
        format!("{folder}:2:Two\n{folder}-3-three\n")
    );
    let args =
        json!({"pattern": "two", "-n": false, "-C": 1, "-i": true, "output_mode": "content"});
    assert_eq!(
        bench.run(&tool, args).await.unwrap().text,
        format!("{folder}-one\n{folder}:Two\n{folder}-three\n")
    );
    assert_eq!(
        bench
            .run(&tool, json!({"pattern": "Two"}))
            .await
            .unwrap()
            .text,
        format!("{folder}\n")
    );
    assert_eq!(
        bench
            .run(&tool, json!({"pattern": "four"}))
            .await
            .unwrap()
            .text,
        "No matches"
    );
    assert_eq!(
        bench
            .run(&tool, json!({"pattern": "o", "output_mode": "count"}))
            .await
            .unwrap()
            .text,
        format!("{folder}:2\n")
    );
    let wrong = arguments::check(
        "Grep",
        &tool.definition().parameters,
        json!({"pattern": "x", "output_mode": "lines"}),
    );
    assert!(wrong.unwrap_err().0.contains("files_with_matches"));
}

#[tokio::test]
async fn check_132_no_file_is_said_in_words() {
    let bench = Bench::new();
    assert_eq!(
        bench
            .run(&Glob::new(), json!({"pattern": "*.none"}))
            .await
            .unwrap()
            .text,
        "No files matched"
    );
    bench.put("a", "");
    bench.put("b", "");
    let text = bench
        .run(&Glob::new(), json!({"pattern": "[a]"}))
        .await
        .unwrap()
        .text;
    assert_eq!(text, bench.path("a").to_string_lossy());
}

#[tokio::test]
async fn a_cancelled_search_fails_as_cancelled() {
    let bench = Bench::new();
    let context = bench.context();
    context.cancel.cancel();
    let failure = Grep::new()
        .run(&context, json!({"pattern": "x"}))
        .await
        .unwrap_err();
    assert!(failure.0.starts_with("cancelled: "));
}

#[test]
fn titles_say_what_is_looked_for() {
    assert_eq!(
        Grep::new().title(&json!({"pattern": "x", "path": "src", "glob": "*.rs"})),
        "Grep x in src (*.rs)"
    );
    assert_eq!(
        Glob::new().title(&json!({"pattern": "*.rs", "path": "src"})),
        "Glob *.rs in src"
    );
    assert_eq!(Grep::new().title(&json!(null)), "Grep");
}
