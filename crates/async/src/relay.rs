//! Passing on between two streams.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use crate::shared::Shared;
use crate::stream::Stream;

/// Passes on all that comes of one stream to the other, both ways, until both have ended; an end of sending is passed on alone. Bytes are
/// moved from one connection's input to the other's output; a side that its peer does not empty has the other wait.
///
/// # Errors
/// One of the two has failed: both are [aborted](Stream::abort) then.
///
/// ```
/// use futures_util::AsyncReadExt;
/// use tidewire::Dial;
/// use tidewire_async::{Stream, relay, serve};
///
/// /// The first byte says which server is wanted.
/// async fn choose(mut client: Stream) {
///     let mut which = [0];
///     if client.read_exact(&mut which).await.is_ok()
///         && let Ok(server) = client.dial(Dial::to(([192, 0, 2, which[0]], 7))).await
///     {
///         let _ = relay(&client, &server).await;
///     }
/// }
/// # let mut builder = tidewire::Builder::new();
/// # builder.service(serve(choose));
/// ```
pub async fn relay(one: &Stream, other: &Stream) -> io::Result<()> {
    let (mut there, mut back) = (false, false);
    let passed = poll_fn(|cx| {
        for (is_over, from, to) in [
            (&mut there, &one.shared, &other.shared),
            (&mut back, &other.shared, &one.shared),
        ] {
            if !*is_over && let Poll::Ready(result) = pass(from, to, cx) {
                result?;
                *is_over = true;
            }
        }
        match there && back {
            true => Poll::Ready(Ok(())),
            false => Poll::Pending,
        }
    });
    let result = passed.await;
    if result.is_err() {
        one.abort();
        other.abort();
    }
    result
}

/// Passes on one way for as long as there is something, and room for it.
fn pass(from: &Shared, to: &Shared, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    loop {
        if to.poll_room(cx).is_pending() {
            return Poll::Pending;
        }
        let mut written = Ok(());
        let read = from.poll_read(cx, |bytes| match to.write(bytes) {
            Ok(n) => n,
            Err(e) => {
                written = Err(e);
                0
            }
        });
        let Poll::Ready(read) = read else {
            // What has nothing more to say is not read from, and may fail all the same.
            return to.poll_failure(cx).map(Err);
        };
        let n = read?;
        written?;
        if n == 0 {
            to.change(|state| state.shut = true);
            return Poll::Ready(Ok(()));
        }
    }
}
