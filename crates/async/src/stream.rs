//! A connection as its future sees it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use tidewire::Peer;

use crate::clock::Clock;
use crate::shared::Shared;

/// A connection as its future sees it: it reads, writes, and closes its side. Clones are the same
/// connection, such as one to read and one to write.
#[derive(Clone)]
pub struct Stream {
    pub(crate) shared: Shared,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.peer().endpoint)
    }
}

impl Stream {
    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.shared.lock().peer.clone()
    }

    /// The loop's clock, and timers by it.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock::new(self.shared.clone())
    }

    /// Resolves when the server is about to stop. From its first poll on, a stop no longer finishes
    /// the connection by itself: the future is expected to return within the stop's deadline.
    ///
    /// ```
    /// use std::pin::pin;
    /// use futures_util::AsyncWriteExt;
    /// use tidewire_async::Stream;
    ///
    /// async fn says_goodbye(mut stream: Stream) {
    ///     stream.stopping().await;
    ///     let _ = stream.write_all(b"goodbye").await;
    /// }
    /// # use std::time::Duration;
    /// # use tidewire::{Limits, sim::{Conditions, Sim}};
    /// # let mut sim = Sim::under(1, Conditions::calm());
    /// # let at = sim.add_loop();
    /// # let service = sim.service(at, tidewire_async::serve(says_goodbye), Limits::default());
    /// # let addr = sim.listen(service);
    /// # let peer = sim.plain(addr);
    /// # sim.run_for(Duration::from_secs(1));
    /// # assert_eq!(sim.received(peer), b"");
    /// # sim.stop(at, Duration::from_secs(1));
    /// # sim.run_for(Duration::from_secs(1));
    /// # assert_eq!(sim.received(peer), b"goodbye");
    /// ```
    pub fn stopping(&self) -> Stopping {
        Stopping(self.shared.clone())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.lock().poll_read(cx, |bytes| {
            let n = bytes.len().min(buffer.len());
            buffer[..n].copy_from_slice(&bytes[..n]);
            n
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.lock().poll_write(cx, bytes)
    }

    /// Written is as good as flushed: the loop sends it when the future has been polled.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Half-closes: the peer sees the end of what it is sent; reading goes on.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().shut = true;
        Poll::Ready(Ok(()))
    }
}

/// Resolves when the server is about to stop: [`Stream::stopping`].
#[must_use = "futures do nothing unless polled"]
pub struct Stopping(Shared);

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stopping({})", self.0.lock().stopping)
    }
}

impl Future for Stopping {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.0.lock();
        shared.minds_stopping = true;
        if shared.stopping {
            return Poll::Ready(());
        }
        shared.stopper = Some(cx.waker().clone());
        Poll::Pending
    }
}
