//! Tries and waits, in paused time.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test may panic"
)]

use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use tokio::task::JoinSet;

use super::*;
use crate::emit;

const IN_FLIGHT: Duration = Duration::from_millis(5);

fn overloaded() -> ModelError {
    ModelError::Status {
        provider: "p".to_owned(),
        status: 529,
        message: "overloaded".to_owned(),
    }
}

/// A source that repeats the same few numbers.
fn jitter(numbers: &'static [f64]) -> Jitter {
    let next = AtomicU64::new(0);
    Arc::new(move || {
        let at = next.fetch_add(1, Ordering::Relaxed) as usize;
        numbers.get(at % numbers.len()).copied().unwrap_or_default()
    })
}

fn backoff(jitter: Jitter) -> Arc<Backoff> {
    Arc::new(Backoff::new(RetryPolicy {
        jitter,
        ..RetryPolicy::default()
    }))
}

/// Runs a request that fails while `fails` says so; gives its tries' times since `start`,
/// the announced retries, and its end.
async fn request(
    backoff: Arc<Backoff>,
    start: Instant,
    fails: impl Fn(usize) -> Option<Failure> + Send + Sync + 'static,
) -> (Vec<Duration>, Vec<StreamEvent>, Option<ModelError>) {
    let tries = Arc::new(Mutex::new(Vec::new()));
    let noted = tries.clone();
    let mut stream = emit::stream(move |emit| async move {
        backoff
            .run(&emit, || {
                let number = {
                    let mut tries = noted.lock().unwrap();
                    tries.push(start.elapsed());
                    tries.len()
                };
                let failure = fails(number);
                async move {
                    // An answer takes its time, in which others ask as well.
                    tokio::time::sleep(IN_FLIGHT).await;
                    failure.map_or(Ok(()), Err)
                }
            })
            .await
    });
    let mut retries = Vec::new();
    let mut error = None;
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => retries.push(event),
            Err(failed) => error = Some(failed),
        }
    }
    let tries = tries.lock().unwrap().clone();
    (tries, retries, error)
}

fn passing(after: Option<Duration>) -> Option<Failure> {
    Some(Failure::Passing {
        error: overloaded(),
        after,
    })
}

#[tokio::test(start_paused = true)]
async fn check_164_four_tries_with_growing_waits_then_the_error() {
    let (tries, retries, error) =
        request(backoff(jitter(&[1.0])), Instant::now(), |_| passing(None)).await;
    let seconds: Vec<u64> = tries.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds, [0, 1, 3, 7]);
    assert_eq!(retries.len(), 3);
    let text = error.unwrap().to_string();
    assert!(
        text.contains("529") && text.contains("tried 4 times"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn check_164_what_will_not_pass_is_not_tried_again() {
    let (tries, retries, error) = request(backoff(jitter(&[0.5])), Instant::now(), |_| {
        Some(Failure::Final(overloaded()))
    })
    .await;
    assert_eq!((tries.len(), retries.len(), error.is_some()), (1, 0, true));
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_was_asked_for_is_kept_and_too_long_a_one_ends_the_request() {
    let asked = Duration::from_secs(7);
    let (tries, retries, error) = request(backoff(jitter(&[0.0])), Instant::now(), move |number| {
        (number == 1).then(|| passing(Some(asked))).flatten()
    })
    .await;
    assert_eq!(
        tries.iter().map(Duration::as_secs).collect::<Vec<_>>(),
        [0, 7]
    );
    assert!(error.is_none());
    assert!(
        matches!(retries.first(), Some(StreamEvent::Retry { attempt: 2, delay, reason })
            if delay.as_secs() == 7 && reason.contains("529"))
    );
    let (tries, _, error) = request(backoff(jitter(&[0.0])), Instant::now(), |_| {
        passing(Some(Duration::from_secs(3600)))
    })
    .await;
    assert_eq!(tries.len(), 1);
    assert!(error.unwrap().to_string().contains("3600 s"));
}

#[tokio::test(start_paused = true)]
async fn r130_agents_side_by_side_do_not_come_back_in_lockstep() {
    const RECOVERS: Duration = Duration::from_secs(3);
    // All jitter alike: what keeps them apart must hold without luck.
    for (children, jitter) in [
        (3, jitter(&[0.0])),
        (3, jitter(&[1.0])),
        (8, jitter(&[0.3])),
    ] {
        for after in [None, Some(Duration::from_secs(1))] {
            let backoff = backoff(jitter.clone());
            let start = Instant::now();
            let mut set = JoinSet::new();
            for _ in 0..children {
                set.spawn(request(backoff.clone(), start, move |_| {
                    (start.elapsed() < RECOVERS)
                        .then(|| passing(after))
                        .flatten()
                }));
            }
            let mut again = Vec::new();
            while let Some(done) = set.join_next().await {
                let (tries, _, error) = done.unwrap();
                assert!(error.is_none(), "{error:?} after {tries:?}");
                assert!(tries.len() > 1, "all asked before the first was refused");
                again.extend(tries.into_iter().skip(1));
            }
            again.sort();
            for pair in again.windows(2) {
                let gap = pair[1] - pair[0];
                assert!(gap >= Duration::from_millis(40), "{again:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r130_a_crowd_before_a_provider_that_stays_down_gives_up_together() {
    let backoff = backoff(jitter(&[0.5]));
    let start = Instant::now();
    let mut set = JoinSet::new();
    for _ in 0..64 {
        set.spawn(request(backoff.clone(), start, |_| passing(None)));
    }
    while let Some(done) = set.join_next().await {
        let (tries, retries, error) = done.unwrap();
        assert_eq!(tries.len(), 4);
        assert!(retries.len() <= 8 && error.is_some());
    }
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn r130_a_new_request_waits_with_the_others_and_a_success_lifts_it_for_all() {
    let backoff = backoff(jitter(&[0.0]));
    let start = Instant::now();
    let told = tokio::spawn(request(backoff.clone(), start, |number| {
        (number == 1)
            .then(|| passing(Some(Duration::from_secs(5))))
            .flatten()
    }));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (tries, retries, _) = request(backoff.clone(), start, |_| None).await;
    assert!(tries.iter().all(|time| time.as_secs() == 5), "{tries:?}");
    assert!(matches!(
        retries.as_slice(),
        [StreamEvent::Retry { attempt: 1, .. }]
    ));
    told.await.unwrap();
    let now = start.elapsed();
    let (tries, retries, _) = request(backoff, start, |_| None).await;
    assert_eq!((tries, retries), (vec![now], vec![]));
}

#[tokio::test(start_paused = true)]
async fn r130_one_who_waits_less_waits_on_when_another_is_told_more() {
    let backoff = backoff(jitter(&[0.0]));
    let start = Instant::now();
    let first = tokio::spawn(request(backoff.clone(), start, |number| {
        (number == 1).then(|| passing(None)).flatten()
    }));
    tokio::time::sleep(Duration::from_millis(10)).await;
    // Its try was in flight before the first was told to wait.
    backoff.failed(1, Some(Duration::from_secs(9)));
    let (tries, retries, error) = first.await.unwrap();
    assert_eq!(tries.last().map(Duration::as_secs), Some(9), "{tries:?}");
    assert_eq!((retries.len(), error.is_none()), (2, true));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_stream_ends_the_wait() {
    let backoff = backoff(jitter(&[0.0]));
    let tried = Arc::new(AtomicU64::new(0));
    let counted = tried.clone();
    let mut stream = emit::stream(move |emit| async move {
        backoff
            .run(&emit, || {
                counted.fetch_add(1, Ordering::Relaxed);
                async { passing(None).map_or(Ok(()), Err) }
            })
            .await
    });
    assert!(stream.next().await.is_some());
    drop(stream);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(tried.load(Ordering::Relaxed), 1);
}

#[test]
fn jitter_is_a_fraction_and_not_a_constant() {
    let numbers: Vec<f64> = (0..100).map(|_| random_fraction()).collect();
    assert!(numbers.iter().all(|number| (0.0..=1.0).contains(number)));
    assert!(numbers.windows(2).any(|pair| pair[0] != pair[1]));
}
