//! A client that does not read, and output that is larger than any client wants.

use std::time::Duration;

use serde_json::{Value, json};
use terret_faces::acp;
use terret_fixtures::{EditorOptions, Preset, Reply, Script, ScriptedEditor};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

use crate::stage::{self, Setting, Stage, stop_reason, text, updates};

#[tokio::test]
async fn check_169_a_stalled_editor_blocks_nobody_and_loses_nothing() {
    let long = "0123456789abcdef".repeat(16 * 1024);
    let script = Script::new()
        .reply(Reply::on("^long$").say(&long).paced(64, 0))
        .say("quick")
        .say("quick");
    let stage = Stage::new(script);
    // An editor that sends and does not read: 4 KiB of pipe.
    let (ours, theirs) = tokio::io::duplex(4 * 1024);
    let (reader, writer) = tokio::io::split(theirs);
    let served = tokio::spawn(acp::serve(
        stage.engine.clone(),
        stage::face(),
        reader,
        writer,
    ));
    let (output, mut input) = tokio::io::split(ours);
    let mut output = BufReader::new(output).lines();
    let send = |id: u32, method: &str, params: Value| {
        format!(
            "{}\n",
            json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
        )
    };
    input
        .write_all(send(1, "initialize", json!({ "protocolVersion": 1 })).as_bytes())
        .await
        .unwrap();
    output.next_line().await.unwrap();
    let new = json!({ "cwd": stage.workspace.root(), "mcpServers": [] });
    input
        .write_all(send(2, "session/new", new).as_bytes())
        .await
        .unwrap();
    let answer: Value = serde_json::from_str(&output.next_line().await.unwrap().unwrap()).unwrap();
    let stalled = answer["result"]["sessionId"].as_str().unwrap().to_owned();
    let prompt = json!({ "sessionId": stalled, "prompt": [{ "type": "text", "text": "long" }] });
    input
        .write_all(send(3, "session/prompt", prompt).as_bytes())
        .await
        .unwrap();
    // Its turn ends in the engine while nothing is read.
    let handle = stage.engine.session(&stalled.parse().unwrap()).unwrap();
    let mut status = handle.watch_status();
    let started = async {
        status
            .wait_for(|status| *status == terret_engine::AgentStatus::Running)
            .await
            .map(|_| ())
    };
    tokio::time::timeout(Duration::from_secs(10), started)
        .await
        .unwrap()
        .unwrap();
    let ended = async {
        status
            .wait_for(|status| *status == terret_engine::AgentStatus::Idle)
            .await
            .map(|_| ())
    };
    tokio::time::timeout(Duration::from_secs(60), ended)
        .await
        .unwrap()
        .unwrap();
    // Another editor is served meanwhile.
    let session = stage.session().await;
    assert_eq!(
        stop_reason(&stage.editor.prompt(&session, "hi").await.unwrap()),
        "end_turn"
    );
    // Now the first one reads: everything is there, in order, in few frames.
    let mut said = String::new();
    let mut frames = 0;
    loop {
        let frame: Value =
            serde_json::from_str(&output.next_line().await.unwrap().unwrap()).unwrap();
        if frame["id"] == 3 {
            assert_eq!(frame["result"]["stopReason"], "end_turn");
            break;
        }
        if frame["params"]["update"]["sessionUpdate"] == "agent_message_chunk" {
            said.push_str(
                frame["params"]["update"]["content"]["text"]
                    .as_str()
                    .unwrap(),
            );
            frames += 1;
        }
    }
    assert_eq!(said, long);
    assert!(frames < 4096 / 4, "{frames} frames for 4096 pieces");
    input.shutdown().await.unwrap();
    drop(input);
    served.await.unwrap();
    stage.finish().await;
}

#[tokio::test]
async fn check_172_a_cancel_is_heard_while_the_queue_is_full() {
    let script = Script::new()
        .reply(
            Reply::on("^long$")
                .say(&"x".repeat(1024 * 1024))
                .paced(64, 1),
        )
        .say("x");
    let stage = Stage::new(script);
    let (ours, theirs) = tokio::io::duplex(1024);
    let (reader, writer) = tokio::io::split(theirs);
    let options = terret_acp::Options {
        queue_bytes: 16 * 1024,
        ..terret_acp::Options::agent()
    };
    let served = tokio::spawn(acp::serve_with(
        stage.engine.clone(),
        stage::face(),
        reader,
        writer,
        options,
    ));
    let (from_agent, to_agent) = tokio::io::split(ours);
    // This editor reads, but only once it is told to.
    let (gate, opened) = tokio::sync::oneshot::channel::<()>();
    let (mut relay, relayed) = tokio::io::duplex(1024);
    let pump = tokio::spawn(async move {
        let mut lines = BufReader::new(from_agent);
        let mut opened = Some(opened);
        let mut line = Vec::new();
        let mut count = 0;
        while lines.read_until(b'\n', &mut line).await.unwrap() > 0 {
            count += 1;
            if count == 6
                && let Some(opened) = opened.take()
            {
                opened.await.unwrap();
            }
            if relay.write_all(&line).await.is_err() {
                return;
            }
            line.clear();
        }
    });
    let editor = ScriptedEditor::connect(relayed, to_agent, EditorOptions::from(Preset::bare()));
    editor.initialize().await.unwrap();
    let session = editor.new_session(stage.workspace.root()).await.unwrap();
    let prompt = editor.start_prompt(&session, "long").await.unwrap();
    editor.wait_update(0, "agent_message_chunk").await.unwrap();
    editor.cancel(&session).await.unwrap();
    let handle = stage.engine.session(&session.parse().unwrap()).unwrap();
    let mut status = handle.watch_status();
    let idle = async {
        status
            .wait_for(|status| *status == terret_engine::AgentStatus::Idle)
            .await
            .map(|_| ())
    };
    tokio::time::timeout(Duration::from_secs(2), idle)
        .await
        .unwrap()
        .unwrap();
    gate.send(()).unwrap();
    assert_eq!(
        stop_reason(&editor.response(prompt).await.unwrap()),
        "cancelled"
    );
    editor.close_input().await;
    editor.wait_closed().await.unwrap();
    served.await.unwrap();
    drop(editor);
    pump.await.unwrap();
    stage.finish().await;
}

#[tokio::test(start_paused = true)]
async fn live_output_is_shown_by_its_end_and_never_again_and_again() {
    let pieces: Vec<String> = (0..2000)
        .map(|n| format!("line {n} {}\n", "x".repeat(90)))
        .collect();
    let script = Script::new()
        .reply(Reply::on("^go$").call("Hold", json!({ "say": pieces })))
        .reply(Reply::on("").say("Done."));
    let stage = Stage::new(Setting::from(script).editor(Preset::jetbrains()));
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage
        .editor
        .wait_for("the last line", |frame| {
            frame.line.contains("line 1999").then_some(())
        })
        .await
        .unwrap();
    stage.gate.add_permits(1);
    stage.editor.response(prompt).await.unwrap();
    let seen = stage.finish().await;
    let shown: usize = updates(&seen, "tool_call_update")
        .iter()
        .map(|update| update.to_string().len())
        .sum();
    assert!(shown < 64 * 1024, "{shown} bytes for 200 KB of output");
}

#[tokio::test]
async fn a_client_with_terminals_by_meta_gets_all_output_once() {
    let pieces: Vec<String> = (0..200).map(|n| format!("line {n}\n")).collect();
    let all = pieces.concat();
    let script = Script::new()
        .reply(Reply::on("^go$").call_as("h1", "Hold", json!({ "say": pieces })))
        .reply(Reply::on("").say("Done."));
    let stage = Stage::new(Setting::from(script).editor(Preset::zed()));
    let session = stage.session().await;
    stage.gate.add_permits(1);
    stage.editor.prompt(&session, "go").await.unwrap();
    stage
        .editor
        .load_session(&session, stage.workspace.root())
        .await
        .unwrap();
    let seen = stage.finish().await;
    let calls = updates(&seen, "tool_call");
    assert_eq!(calls[0]["_meta"]["terminal_info"]["terminal_id"], "h1");
    assert_eq!(
        calls[0]["content"][0],
        json!({ "type": "terminal", "terminalId": "h1" })
    );
    // A replay names no terminal that the client does not have any more.
    assert!(
        calls[1].get("_meta").is_none() && calls[1].get("content").is_none(),
        "{}",
        calls[1]
    );
    let output: String = updates(&seen, "tool_call_update")
        .iter()
        .map(|update| {
            update["_meta"]["terminal_output"]["data"]
                .as_str()
                .unwrap_or_default()
        })
        .collect();
    assert_eq!(output, all);
    let exits = updates(&seen, "tool_call_update");
    assert!(
        exits
            .iter()
            .any(|update| update["_meta"]["terminal_exit"]["exit_code"] == 0)
    );
    assert_eq!(text(&seen, "user_message_chunk"), "go");
}

#[tokio::test]
async fn long_texts_are_cut_into_frames_and_come_whole() {
    let long = "é\u{2028}\"\n\u{1}".repeat(20_000);
    let stage = Stage::new(Script::new().reply(Reply::new().say(&long).paced(200_000, 0)));
    let session = stage.session().await;
    stage.editor.prompt(&session, &long).await.unwrap();
    let said = text(&stage.editor.transcript(), "agent_message_chunk");
    assert_eq!(said, long);
    stage
        .editor
        .load_session(&session, stage.workspace.root())
        .await
        .unwrap();
    let seen = stage.finish().await;
    assert_eq!(text(&seen, "user_message_chunk"), long);
}
