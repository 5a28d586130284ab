//! A connection as its future sees it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use tidewire::Peer;

use crate::clock::Clock;
use crate::lease::Lease;
use crate::shared::{Ending, Shared};

/// A connection as its future uses it: the future reads, writes, and closes its side. Clones are
/// the same connection, such as one to read and one to write.
///
/// ```
/// use futures_util::AsyncReadExt;
/// use futures_util::AsyncWriteExt;
/// use tidewire_async::Stream;
///
/// /// Reads all there is, then answers with its length.
/// async fn length(mut stream: Stream) {
///     let mut all = Vec::new();
///     if stream.read_to_end(&mut all).await.is_ok() {
///         let _ = stream.write_all(format!("{}\n", all.len()).as_bytes()).await;
///     }
/// }
/// # use tidewire::{Limits, sim::{Conditions, Sim}};
/// # let mut sim = Sim::under(1, Conditions::calm());
/// # let at = sim.add_loop();
/// # let service = sim.service(at, tidewire_async::serve(length), Limits::default());
/// # let addr = sim.listen(service);
/// # let peer = sim.plain(addr);
/// # sim.send(peer, b"hello");
/// # sim.finish(peer);
/// # sim.run_for(std::time::Duration::from_secs(5));
/// # assert_eq!(sim.received(peer), b"5\n");
/// ```
#[derive(Clone)]
pub struct Stream {
    pub(crate) shared: Shared,
    /// A dialled connection has one, and ends when all its streams were dropped.
    pub(crate) _lease: Option<Arc<Lease>>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({:?})", self.peer().endpoint)
    }
}

impl Stream {
    /// The peer of the connection.
    #[must_use]
    pub fn peer(&self) -> Peer {
        self.shared.lock().peer.clone()
    }

    /// The loop's clock, and timers by it.
    ///
    /// ```
    /// use futures_util::AsyncWriteExt;
    /// use tidewire_async::Stream;
    ///
    /// /// Says who is there, and when it is by the loop's clock.
    /// async fn hello(mut stream: Stream) {
    ///     let text = format!("{} at {} ns", stream.peer().endpoint, stream.clock().now().as_nanos());
    ///     let _ = stream.write_all(text.as_bytes()).await;
    /// }
    /// # use tidewire::{Limits, sim::{Conditions, Sim}};
    /// # let mut sim = Sim::under(1, Conditions::calm());
    /// # let addr = sim.serve(tidewire_async::serve(hello), Limits::default());
    /// # let peer = sim.plain(addr);
    /// # sim.run_for(std::time::Duration::from_secs(5));
    /// # assert!(sim.received(peer).ends_with(b" ns"));
    /// ```
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock::new(self.shared.clone())
    }

    /// Resets the connection, now or as soon as the future has been polled. Reading and writing fail from then on.
    ///
    /// ```
    /// use futures_util::AsyncReadExt;
    /// use tidewire_async::Stream;
    ///
    /// /// Takes nothing but silence.
    /// async fn silence(mut stream: Stream) {
    ///     if let Ok(1..) = stream.read(&mut [0; 1]).await {
    ///         stream.abort();
    ///     }
    /// }
    /// # use tidewire::{Limits, sim::{Conditions, PlainState, Sim}};
    /// # let mut sim = Sim::under(1, Conditions::calm());
    /// # let addr = sim.serve(tidewire_async::serve(silence), Limits::default());
    /// # let peer = sim.plain(addr);
    /// # sim.send(peer, b"a word");
    /// # sim.run_for(std::time::Duration::from_secs(5));
    /// # assert!(matches!(sim.state(peer), PlainState::Failed(_)));
    /// ```
    pub fn abort(&self) {
        self.shared.change(|state| {
            state.end(Ending::Abort);
            state.broken.get_or_insert(io::ErrorKind::ConnectionAborted);
        });
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
    ///     let _ = stream.write_all(b"hello ").await; // a connection is served before it is told of a stop
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
    /// # sim.stop(at, Duration::from_secs(1));
    /// # sim.run_for(Duration::from_secs(1));
    /// # assert_eq!(sim.received(peer), b"hello goodbye");
    /// ```
    pub fn stopping(&self) -> Stopping {
        Stopping {
            shared: self.shared.clone(),
            id: None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.poll_read(cx, |bytes| {
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
        self.shared.poll_write(cx, bytes)
    }

    /// Written is as good as flushed: the loop sends it when the future has been polled.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Half-closes the connection: the peer sees EOF after the written bytes; reading goes on.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.change(|state| state.shut = true);
        Poll::Ready(Ok(()))
    }
}

/// Resolves when the server is about to stop: [`Stream::stopping`].
///
/// ```
/// use futures_util::AsyncWriteExt;
/// use tidewire_async::{Stopping, Stream};
///
/// async fn says_goodbye(mut stream: Stream) {
///     let _ = stream.write_all(b"hello ").await;
///     let stopping: Stopping = stream.stopping();
///     stopping.await;
///     let _ = stream.write_all(b"goodbye").await;
/// }
/// # use tidewire::{Limits, sim::{Conditions, Sim}};
/// # let mut sim = Sim::under(1, Conditions::calm());
/// # let at = sim.add_loop();
/// # let service = sim.service(at, tidewire_async::serve(says_goodbye), Limits::default());
/// # let addr = sim.listen(service);
/// # let peer = sim.plain(addr);
/// # sim.run_for(std::time::Duration::from_secs(1));
/// # sim.stop(at, std::time::Duration::from_secs(1));
/// # sim.run_for(std::time::Duration::from_secs(1));
/// # assert_eq!(sim.received(peer), b"hello goodbye");
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Stopping {
    shared: Shared,
    /// Number of the future's waker among the waiting ones, once the future was polled.
    id: Option<u64>,
}

impl fmt::Debug for Stopping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stopping({})", self.shared.lock().stopping)
    }
}

impl Future for Stopping {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut shared = self.shared.lock();
        shared.minds_stopping = true;
        if shared.stopping {
            return Poll::Ready(());
        }
        let (id, _before) = shared.mind_stop(self.id, cx.waker());
        drop(shared);
        self.id = Some(id);
        Poll::Pending
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        // The waker goes when the lock has been let go of.
        let _waker = self.id.and_then(|id| self.shared.lock().mind_no_stop(id));
    }
}
