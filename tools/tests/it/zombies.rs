//! No ended child is left unnoticed. Counted in a process of its own, since tests beside
//! this one have children, too.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use terret_tools::helper::members;
use terret_tools::world::process::{End, ProcessSettings, Processes, Program, Watch};
use tokio_util::sync::CancellationToken;

#[test]
fn r092_five_hundred_commands_leave_no_zombie() {
    let output = Command::new("/proc/self/exe")
        .args(["--exact", "zombies::five_hundred", "--ignored"])
        .stdin(Stdio::null())
        .output()
        .expect("this binary");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn children() -> Vec<members::Process> {
    let us = i32::try_from(std::process::id()).expect("a process id");
    let mut children = members::descendants(us);
    children.retain(|child| child.parent == us);
    children
}

#[test]
#[ignore = "the test above starts it as a process"]
fn five_hundred() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let processes = Arc::new(Processes::new(ProcessSettings::default()));
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let processes = Arc::clone(&processes);
            running.spawn(async move {
                for _ in 0..50 {
                    let program = Program {
                        argv: vec!["true".into()],
                        cwd: "/".into(),
                        environment: processes.environment().clone(),
                        input: None,
                        confinement: Default::default(),
                    };
                    let started = processes.start(program, Watch::default()).await;
                    let finished = started
                        .expect("a program")
                        .finish(&CancellationToken::new())
                        .await;
                    assert_eq!(finished.expect("its end").end, End::Exited(0));
                }
            });
        }
        while let Some(done) = running.join_next().await {
            done.expect("all of them ran");
        }
        // A helper ends a moment after its report.
        let begun = Instant::now();
        while !children().is_empty() {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{:?}",
                children()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        processes.shutdown().await;
    });
}
