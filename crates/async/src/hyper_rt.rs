//! The traits of `hyper::rt`: [`Stream`] is a connection, [`Clock`] a timer.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_io::AsyncWrite;
use hyper::rt::{self, ReadBufCursor};

use crate::clock::{Clock, Sleep};
use crate::stream::Stream;

impl rt::Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.shared.poll_read(cx, |bytes| {
            let n = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..n]);
            n
        });
        read.map_ok(drop)
    }
}

impl rt::Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_close(self, cx)
    }
}

impl rt::Sleep for Sleep {}

impl rt::Timer for Clock {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Clock::sleep(self, duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn rt::Sleep>> {
        let after = deadline.saturating_duration_since(self.zero);
        let at = tidewire::Instant::from_nanos(0) + after;
        Box::pin(Clock::sleep_until(self, at))
    }

    fn now(&self) -> Instant {
        self.zero + Duration::from_nanos(Clock::now(self).as_nanos())
    }
}
