//! Lines as real peers send them, through the real standard streams.

use serde_json::{Value, json};
use terret_fixtures::{EditorError, PermissionPolicy};

use crate::support::{Bench, spawn};

#[tokio::test]
async fn three_requests_in_one_chunk_are_answered_in_order() {
    let bench = Bench::saying("hello");
    let editor = spawn(bench.acp(), PermissionPolicy::AllowOnce);
    // The session's id is not known yet, so that the prompt comes with the list of them.
    let lines = [
        json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": editor.initialize_params()}),
        json!({"jsonrpc": "2.0", "id": "b", "method": "session/new",
               "params": {"cwd": bench.workspace.root(), "mcpServers": []}}),
        json!({"jsonrpc": "2.0", "id": "c", "method": "session/prompt",
               "params": {"sessionId": null, "prompt": []}}),
        json!({"jsonrpc": "2.0", "id": "d", "method": "session/list", "params": {}}),
    ];
    let chunk: String = lines.iter().map(|line| format!("{line}\n")).collect();
    editor.send_bytes(chunk.as_bytes()).await.unwrap();
    let mut answers = Vec::new();
    for id in ["a", "b", "c", "d"] {
        let answer = editor
            .wait_for(id, |frame| {
                let json = frame.json.as_ref()?;
                (frame.is_response() && json["id"] == id).then(|| json.clone())
            })
            .await
            .unwrap();
        answers.push(answer);
    }
    assert_eq!(answers[0]["result"]["protocolVersion"], 1);
    let session = answers[1]["result"]["sessionId"].as_str().unwrap();
    assert_eq!(answers[2]["error"]["code"], -32602);
    assert_eq!(answers[3]["result"]["sessions"][0]["sessionId"], session);
    // A prompt and the end of input in one chunk: the turn is not lost.
    editor.start_prompt(session, "hi").await.unwrap();
    editor.wait_update(0, "agent_message_chunk").await.unwrap();
}

#[tokio::test]
async fn r031_garbage_is_answered_and_the_connection_lives() {
    let bench = Bench::saying("hello");
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    for garbage in [
        &b"\x00\xff\xfe\n"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":7\n",
        b"[]\n",
        b"42\n",
        b"\n\r\n  \n",
        b"Content-Length: 20\r\n\r\n",
        b"{\"jsonrpc\":\"2.0\",\"id\":{\"a\":1},\"method\":\"x\"}\n",
    ] {
        editor.send_bytes(garbage).await.unwrap();
    }
    let answer = editor.prompt(&session, "hi").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
    assert!(!bench.stderr().contains("panicked"), "{}", bench.stderr());
}

#[tokio::test]
async fn a_batch_is_refused_as_a_whole_and_the_connection_lives() {
    let bench = Bench::saying("hello");
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    let mark = editor.mark();
    editor
        .send_line(
            &json!([{"jsonrpc": "2.0", "id": 90, "method": "session/list", "params": {}}])
                .to_string(),
        )
        .await
        .unwrap();
    let code = editor
        .wait_from(mark, "an answer to the batch", |frame| {
            frame.json.as_ref()?.pointer("/error/code").cloned()
        })
        .await
        .unwrap();
    assert_eq!(code, -32600);
    editor.prompt(&session, "hi").await.unwrap();
}

/// Around the limit of a line, 64 MiB.
#[tokio::test]
async fn a_line_of_64_mb_is_taken_and_a_longer_one_is_refused_and_passed_over() {
    const MIB: usize = 1024 * 1024;
    let bench = Bench::saying("hello");
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    // A client may add whatever it likes there, and it costs the line its length alone.
    let padded = |id: i64, size: usize| {
        json!({"jsonrpc": "2.0", "id": id, "method": "session/list",
               "params": {"_meta": {"padding": "x".repeat(size)}}})
        .to_string()
    };
    let error_or_answer = async |mark: usize, id: Value| {
        editor
            .wait_from(mark, "an answer", |frame| {
                let json = frame.json.as_ref()?;
                (frame.is_response() && json["id"] == id).then(|| json.clone())
            })
            .await
            .unwrap()
    };
    let mark = editor.mark();
    editor.send_line(&padded(1001, 63 * MIB)).await.unwrap();
    let answer = error_or_answer(mark, json!(1001)).await;
    assert_eq!(
        answer["result"]["sessions"][0]["sessionId"], session,
        "{answer}"
    );
    let mark = editor.mark();
    editor.send_line(&padded(1002, 65 * MIB)).await.unwrap();
    let answer = error_or_answer(mark, Value::Null).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("MiB") || message.contains("bytes"),
        "{message}"
    );
    let answer = editor.prompt(&session, "hi").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
}

/// More than a session's log takes in one event is an error of that prompt alone.
#[tokio::test]
async fn a_prompt_that_no_log_can_hold_is_refused_and_the_session_lives() {
    let bench = Bench::saying("hello");
    let (editor, session) = bench.session(PermissionPolicy::AllowOnce).await;
    let error = editor
        .prompt(&session, &"x".repeat(40 << 20))
        .await
        .unwrap_err();
    let EditorError::Refused { message, .. } = &error else {
        panic!("{error}");
    };
    assert!(message.contains("limit"), "{message}");
    let answer = editor.prompt(&session, "hi").await.unwrap();
    assert_eq!(answer["stopReason"], "end_turn");
}

#[tokio::test]
async fn nothing_is_done_before_initialize() {
    let bench = Bench::saying("hello");
    let editor = spawn(bench.acp(), PermissionPolicy::AllowOnce);
    let error = editor
        .new_session(bench.workspace.root())
        .await
        .unwrap_err();
    assert!(matches!(error, EditorError::Refused { .. }), "{error}");
    editor.initialize().await.unwrap();
    editor.new_session(bench.workspace.root()).await.unwrap();
}
