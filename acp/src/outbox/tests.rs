#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use super::*;

/// Counts writes and flushes.
#[derive(Default, Clone)]
struct Counted {
    writes: Arc<AtomicUsize>,
    flushes: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl AsyncWrite for Counted {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(buffer.len(), Ordering::Relaxed);
        Poll::Ready(Ok(buffer.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn waiting_frames_leave_in_few_writes() {
    let outbox = Outbox::new(1024, 8 << 20);
    for _ in 0..1000 {
        outbox.send(Bytes::from(vec![b'x'; 100])).await.unwrap();
    }
    outbox.finish();
    let counted = Counted::default();
    outbox.write_to(counted.clone(), 256).await.unwrap();
    assert_eq!(counted.bytes.load(Ordering::Relaxed), 100_000);
    assert_eq!(counted.flushes.load(Ordering::Relaxed), 4);
    assert_eq!(counted.writes.load(Ordering::Relaxed), 4);
}

#[tokio::test]
async fn room_comes_back_when_frames_are_written() {
    let outbox = Outbox::new(4, 4000);
    for _ in 0..4 {
        outbox.try_send(Bytes::from_static(b"x\n")).unwrap();
    }
    assert_eq!(
        outbox.try_send(Bytes::from_static(b"x\n")),
        Err(NotifyError::Full)
    );
    outbox.force(Bytes::from_static(b"must\n")).unwrap();
    outbox.finish();
    outbox.write_to(Counted::default(), 256).await.unwrap();
    assert_eq!(outbox.room.available_permits(), 4000);
}

#[tokio::test]
async fn a_send_that_is_dropped_while_it_waits_queues_nothing_and_holds_nothing() {
    let outbox = Outbox::new(1, 100);
    outbox.try_send(Bytes::from_static(b"1\n")).unwrap();
    {
        let sending = outbox.send(Bytes::from_static(b"2\n"));
        tokio::pin!(sending);
        assert!(futures::poll!(sending.as_mut()).is_pending());
    }
    outbox.finish();
    let counted = Counted::default();
    outbox.write_to(counted.clone(), 256).await.unwrap();
    assert_eq!(counted.bytes.load(Ordering::Relaxed), 2);
    assert_eq!(outbox.room.available_permits(), 100);
}

#[tokio::test]
async fn closing_wakes_whoever_waits() {
    let outbox = Outbox::new(1, 100);
    outbox.try_send(Bytes::from_static(b"1\n")).unwrap();
    let (sent, flushed, ()) = tokio::join!(
        outbox.send(Bytes::from_static(b"2\n")),
        outbox.flushed(),
        async {
            tokio::task::yield_now().await;
            outbox.close();
        }
    );
    assert_eq!((sent, flushed), (Err(Closed), Err(Closed)));
    assert_eq!(outbox.force(Bytes::from_static(b"3\n")), Err(Closed));
}
