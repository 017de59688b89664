use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;

use super::*;

#[derive(Default)]
struct Counting {
    handled: AtomicUsize,
}

#[async_trait]
impl Service for Counting {
    async fn notification(&self, method: String, _: RawParams) {
        self.handled.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
        assert_ne!(method, "panic");
    }
}

fn notification(method: &str) -> Work {
    Work::Notification {
        method: method.to_owned(),
        params: RawParams::NULL,
    }
}

#[tokio::test]
async fn lanes_leave_nothing_behind() {
    let service = Arc::new(Counting::default());
    let lanes = Arc::new(Lanes::new(
        service.clone(),
        &Options::agent(),
        CancellationToken::new(),
    ));
    for round in 0..3 {
        for n in 0..1000 {
            let lane = match n % 10 {
                0 => Lane::Connection,
                1 => Lane::Immediate,
                2 => Lane::Interrupt("s".to_owned()),
                _ => Lane::Session(format!("{}", n % 100)),
            };
            let method = if n % 7 == 0 { "panic" } else { "fine" };
            assert!(lanes.push(lane, notification(method)).is_ok());
        }
        assert!(!lanes.lock().queues.is_empty());
        lanes.idle().await;
        let table = lanes.lock();
        assert!(table.queues.is_empty(), "idle lanes are gone");
        assert_eq!((table.bytes, table.immediate, table.opening), (0, 0, false));
        drop(table);
        assert_eq!(service.handled.load(Ordering::Relaxed), (round + 1) * 1000);
    }
}

#[tokio::test]
async fn sessions_keep_behind_the_connection_until_it_is_idle_for_the_first_time() {
    let lanes = Arc::new(Lanes::new(
        Arc::new(Counting::default()),
        &Options::agent(),
        CancellationToken::new(),
    ));
    let push = |lane: Lane| assert!(lanes.push(lane, notification("fine")).is_ok());
    push(Lane::Connection);
    push(Lane::Session("a".to_owned()));
    assert_eq!(lanes.lock().queues.len(), 1);
    lanes.idle().await;
    push(Lane::Connection);
    push(Lane::Session("a".to_owned()));
    assert_eq!(lanes.lock().queues.len(), 2);
    lanes.idle().await;
}

#[tokio::test]
async fn killed_lanes_end_in_the_middle_of_a_handler() {
    struct Stuck;
    #[async_trait]
    impl Service for Stuck {
        async fn notification(&self, _: String, _: RawParams) {
            std::future::pending::<()>().await;
        }
    }
    let kill = CancellationToken::new();
    let lanes = Arc::new(Lanes::new(Arc::new(Stuck), &Options::agent(), kill.clone()));
    assert!(lanes.push(Lane::Immediate, notification("a")).is_ok());
    assert!(lanes.push(Lane::Connection, notification("b")).is_ok());
    tokio::task::yield_now().await;
    kill.cancel();
    lanes.idle().await;
}
