//! Makes a stream of events from an async function, without a task: the function runs
//! only while the stream is polled and ends where it stands when the stream is dropped.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use futures::future::BoxFuture;
use tokio::sync::mpsc;

use crate::provider::{ModelError, ModelStream, StreamEvent};

/// Events that wait for the reader; a reader that is slow stops the request's reading.
const QUEUE: usize = 64;

/// The way into the stream.
pub(crate) struct Emitter(mpsc::Sender<StreamEvent>);

impl Emitter {
    /// Hands on one event, and waits while the queue is full.
    pub(crate) async fn send(&self, event: StreamEvent) {
        // The receiver lives beside the future that calls this, so it cannot be closed.
        let _ = self.0.send(event).await;
    }

    pub(crate) async fn send_all(&self, events: &mut Vec<StreamEvent>) {
        for event in events.drain(..) {
            self.send(event).await;
        }
    }
}

/// The stream of what `run` emits, then its error if it has one.
pub(crate) fn stream<F, R>(run: F) -> ModelStream
where
    F: FnOnce(Emitter) -> R,
    R: Future<Output = Result<(), ModelError>> + Send + 'static,
{
    let (sender, events) = mpsc::channel(QUEUE);
    Box::pin(Emitting {
        events,
        run: Some(Box::pin(run(Emitter(sender)))),
        error: None,
    })
}

struct Emitting {
    events: mpsc::Receiver<StreamEvent>,
    run: Option<BoxFuture<'static, Result<(), ModelError>>>,
    error: Option<ModelError>,
}

impl Stream for Emitting {
    type Item = Result<StreamEvent, ModelError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match self.events.poll_recv(context) {
                Poll::Ready(Some(event)) => return Poll::Ready(Some(Ok(event))),
                Poll::Ready(None) => return Poll::Ready(self.error.take().map(Err)),
                Poll::Pending => {}
            }
            let Some(run) = self.run.as_mut() else {
                // The sender is gone, so nothing is waited for: a queue that says pending has
                // been stopped by the task's budget, and what it holds must not be lost.
                return Poll::Ready(match self.events.try_recv() {
                    Ok(event) => Some(Ok(event)),
                    Err(_) => self.error.take().map(Err),
                });
            };
            match run.as_mut().poll(context) {
                Poll::Ready(result) => {
                    self.error = result.err();
                    self.run = None;
                }
                // What the queue holds is handed on here: `poll_recv` says pending, too, when
                // the task has used up its budget, and asking it again would spin for ever.
                Poll::Pending => {
                    return match self.events.try_recv() {
                        Ok(event) => Poll::Ready(Some(Ok(event))),
                        Err(_) => Poll::Pending,
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;

    /// A reader that never yields uses up its task's budget at some point of the stream.
    #[tokio::test]
    async fn no_event_is_lost_wherever_the_budget_of_the_task_ends() {
        for count in 1..400_usize {
            let all = tokio::spawn(async move {
                let mut events = stream(move |emit| async move {
                    for number in 0..count {
                        emit.send(StreamEvent::Text(number.to_string())).await;
                    }
                    Ok(())
                });
                let mut read = 0;
                while let Some(event) = events.next().await {
                    assert!(event.is_ok());
                    read += 1;
                }
                read
            });
            assert_eq!(all.await.ok(), Some(count));
        }
    }
}
