//! Catches the panics of a task, poll by poll.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use super::{Panicked, catch};

/// Runs a future whose panic is survivable.
///
/// # Errors
/// [`Panicked`] with the panic's text; the future is dropped.
pub async fn catch_task<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| match catch(|| future.as_mut().poll(context)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_between_two_polls_is_caught() {
        let work = async {
            tokio::task::yield_now().await;
            std::hint::black_box(None::<u32>).unwrap()
        };
        assert!(catch_task(work).await.is_err_and(|p| p.0.contains("None")));
        assert_eq!(catch_task(async { 1 }).await, Ok(1));
    }
}
