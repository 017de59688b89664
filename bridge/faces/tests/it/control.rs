//! The control socket over a real socket file.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use terret_faces::control::{
    ControlClient, ControlError, ControlServer, RuntimeError, VerdictWord,
};
use terret_fixtures::{EditorOptions, PermissionPolicy, Preset, Reply, Script};

use crate::stage::{Setting, Stage, stop_reason};

fn asking() -> Stage {
    let args = json!({ "file_path": "x.txt", "content": "x\n" });
    let script = Script::new()
        .reply(Reply::on("^go$").call("Write", args))
        .reply(Reply::on("").say("Done."));
    let options = EditorOptions {
        permission: PermissionPolicy::Never,
        ..Preset::bare().into()
    };
    Stage::new(Setting::from(script).editor(options))
}

#[tokio::test]
async fn an_approval_can_be_seen_and_decided_from_another_terminal() {
    let stage = asking();
    let runtime = stage.workspace.home().join("run/terret");
    let server = ControlServer::start(stage.engine.clone(), &runtime, "1.2.3").unwrap();
    assert_eq!(
        std::fs::metadata(&runtime).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert_eq!(
        std::fs::metadata(server.path())
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    let session = stage.session().await;
    let prompt = stage.editor.start_prompt(&session, "go").await.unwrap();
    stage.editor.wait_permission(0).await.unwrap();
    let clients = ControlClient::connect_all(&runtime).await.unwrap();
    assert_eq!(clients.len(), 1);
    let client = &clients[0];
    let pong = client.ping().await.unwrap();
    assert_eq!(
        (pong.pid, pong.version.as_str()),
        (std::process::id(), "1.2.3")
    );
    let live = client.live_sessions().await.unwrap();
    assert_eq!(
        (
            live[0].session_id.as_str(),
            live[0].status.as_str(),
            live[0].pending
        ),
        (session.as_str(), "waiting_approval", 1)
    );
    let inbox = client.inbox().await.unwrap();
    assert_eq!(inbox.len(), 1);
    assert_eq!(
        (inbox[0].name.as_str(), inbox[0].title.as_str()),
        ("Write", "Write x.txt")
    );
    assert_eq!(inbox[0].args["content"], "x\n");
    let id = inbox[0].id.clone();
    client
        .decide(&session, &id, VerdictWord::AllowOnce, None)
        .await
        .unwrap();
    assert_eq!(
        stop_reason(&stage.editor.response(prompt).await.unwrap()),
        "end_turn"
    );
    assert!(stage.path("x.txt").exists());
    // The first decision won.
    let error = client
        .decide(&session, &id, VerdictWord::Reject, Some("late".into()))
        .await
        .unwrap_err();
    assert!(matches!(&error, ControlError::Request(_)), "{error}");
    assert!(
        client
            .decide("nope", &id, VerdictWord::AllowOnce, None)
            .await
            .is_err()
    );
    let path = server.path().to_owned();
    server.stop().await;
    assert!(!path.exists());
    stage.finish().await;
}

#[tokio::test]
async fn a_process_that_the_engine_started_may_look_and_not_decide() {
    let stage = asking();
    let runtime = stage.workspace.home().join("run");
    let server = ControlServer::start(stage.engine.clone(), &runtime, "1").unwrap();
    let session = stage.session().await;
    stage.editor.start_prompt(&session, "go").await.unwrap();
    stage.editor.wait_permission(0).await.unwrap();
    let id = stage
        .engine
        .session(&session.parse().unwrap())
        .unwrap()
        .state(|state| state.approvals.pending()[0].id.clone());
    let decide = json!({ "jsonrpc": "2.0", "id": 1, "method": "_terret/inbox/decide",
        "params": { "sessionId": session, "id": id, "verdict": "allow_once" } });
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "_terret/inbox/list" });
    // A child of this process, which is the engine's here.
    let Some(python) = terret_fixtures::process::find_program("python3") else {
        panic!("this check needs `python3`, as a program that can speak to a socket");
    };
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
        s.sendall((sys.argv[2]+'\\n'+sys.argv[3]+'\\n').encode())\nf=s.makefile()\nprint(f.readline(),f.readline())";
    let output = tokio::process::Command::new(python)
        .args([
            "-c",
            script,
            server.path().to_str().unwrap(),
            &decide.to_string(),
            &list.to_string(),
        ])
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("-31001") && said.contains("cannot decide"),
        "{said}"
    );
    assert!(said.contains("Write x.txt"), "looking is allowed: {said}");
    assert!(!stage.path("x.txt").exists());
    stage.editor.cancel(&session).await.unwrap();
    server.stop().await;
    stage.engine.shutdown().await;
}

#[tokio::test]
async fn a_runtime_folder_that_others_can_reach_is_refused() {
    let stage = asking();
    let open = stage.workspace.home().join("open");
    std::fs::create_dir(&open).unwrap();
    std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o755)).unwrap();
    let error = ControlServer::start(stage.engine.clone(), &open, "1")
        .err()
        .unwrap();
    assert!(matches!(error, RuntimeError::Unsafe { .. }), "{error}");
    let link = stage.workspace.home().join("link");
    let private = stage.workspace.home().join("private");
    std::fs::create_dir(&private).unwrap();
    std::fs::set_permissions(&private, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&private, &link).unwrap();
    assert!(matches!(
        ControlServer::start(stage.engine.clone(), &link, "1")
            .err()
            .unwrap(),
        RuntimeError::Unsafe { .. }
    ));
}

#[tokio::test]
async fn sockets_of_engines_that_are_gone_are_removed_and_other_files_are_not() {
    let stage = asking();
    let runtime = stage.workspace.home().join("run");
    std::fs::create_dir(&runtime).unwrap();
    let stale = runtime.join("engine-1.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    let file = runtime.join("engine-2.sock");
    std::fs::write(&file, "not a socket").unwrap();
    assert!(
        ControlClient::connect_all(&runtime)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(!stale.exists());
    assert!(file.exists());
    assert!(
        ControlClient::connect_all(&runtime.join("missing"))
            .await
            .unwrap()
            .is_empty()
    );
}
