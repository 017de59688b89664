use std::time::Instant;
use terret_engine::room::log::Severity;
use crate::harness::{Harness, complete, events};

#[tokio::test(flavor = "multi_thread")]
async fn zz_perf() {
    let mut harness = Harness::new("{\"match\":\"loop\",\"calls\":[{\"id\":\"c\",\"name\":\"TodoWrite\",\"args\":{\"todos\":[]}}],\"say\":\"loop loop\"}\n{\"match\":\".\",\"say\":\"ok\"}");
    harness.settings.floor = vec!["*".to_owned()];
    let (_engine, session) = harness.session().await;
    let measure = |n: usize| {
        let session = session.clone();
        async move {
            let t = Instant::now();
            for _ in 0..n { complete(&session, "hello").await; }
            t.elapsed() / n as u32
        }
    };
    println!("turn at {}: {:?}", session.next_seq(), measure(50).await);
    let t = Instant::now();
    for n in 0..50_000 { session.notice(Severity::Info, &format!("note {n}")).unwrap(); }
    println!("50k appends: {:?} = {:.0}/s", t.elapsed(), 50_000.0 / t.elapsed().as_secs_f64());
    println!("turn at {}: {:?}", session.next_seq(), measure(50).await);
    for _ in 0..6 {
        let t = Instant::now();
        for _ in 0..1000 { complete(&session, "hello").await; }
        println!("turn at {} ({} messages): {:?}", session.next_seq(), session.state(|s| s.history.messages().len()), t.elapsed()/1000);
    }
    let t = Instant::now();
    let all = events(&session).await;
    println!("follow all {} events: {:?}", all.len(), t.elapsed());
}
