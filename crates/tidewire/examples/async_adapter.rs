//! A connection driven by an `async fn`: the adapter in miniature.
//!
//! No runtime, no waker: a future that waits for its connection can only go on when the connection
//! has something for it, and those are exactly the protocol's callbacks. So each callback puts what
//! it has into a mailbox that the future shares, polls the future once, and sends what it wrote. A
//! library such as an HTTP implementation with `async` readers and writers runs this way on every
//! engine.

mod common;

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use tidewire::{Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service};

/// Input that the future has not read; beyond it the connection is paused.
const UNREAD_MAX: usize = 256 << 10;

/// What the future sees of its connection.
#[derive(Clone, Default)]
struct Stream(Rc<RefCell<Shared>>);

#[derive(Default)]
struct Shared {
    unread: Vec<u8>,
    ended: bool,
    written: Vec<u8>,
    /// The connection takes no more output for now.
    full: bool,
}

impl Stream {
    /// The next line without its end; `None` once the peer has finished.
    async fn line(&self) -> Option<String> {
        poll_fn(|_| {
            let mut shared = self.0.borrow_mut();
            match shared.unread.iter().position(|&b| b == b'\n') {
                Some(end) => {
                    let line: Vec<u8> = shared.unread.drain(..=end).collect();
                    Poll::Ready(Some(String::from_utf8_lossy(&line[..end]).into_owned()))
                }
                None if shared.ended || shared.unread.len() > UNREAD_MAX => Poll::Ready(None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Writes, waiting first if the peer is slow to read.
    async fn write(&self, bytes: &[u8]) {
        poll_fn(|_| {
            if self.0.borrow().full {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        })
        .await;
        self.0.borrow_mut().written.extend_from_slice(bytes);
    }
}

/// Straight-line code, the reason for adapters.
async fn conversation(stream: Stream) {
    stream.write(b"what is your name?\n").await;
    let Some(name) = stream.line().await else {
        return;
    };
    stream
        .write(format!("hello, {name}; numbers, please\n").as_bytes())
        .await;
    let mut sum = 0i64;
    while let Some(line) = stream.line().await {
        match line.trim().parse::<i64>() {
            Ok(n) => {
                sum = sum.wrapping_add(n);
                stream.write(format!("{sum}\n").as_bytes()).await;
            }
            Err(_) => return stream.write(b"that is no number\n").await,
        }
    }
}

/// Runs a future as a protocol.
struct Async {
    stream: Stream,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

impl Async {
    fn poll(&mut self, cx: &mut Cx<'_, Self>) {
        loop {
            self.stream.0.borrow_mut().full = cx.link.full();
            let done = self
                .future
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_ready();
            let written = std::mem::take(&mut self.stream.0.borrow_mut().written);
            cx.link.write(&written);
            if done {
                return cx.link.finish();
            }
            if written.is_empty() || cx.link.full() {
                break;
            }
        }
        match self.stream.0.borrow().unread.len() > UNREAD_MAX {
            true => cx.link.pause(),
            false => cx.link.resume(),
        }
    }
}

impl Protocol for Async {
    type Local = ();
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.poll(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        self.stream
            .0
            .borrow_mut()
            .unread
            .extend_from_slice(input.bytes());
        input.consume(input.len());
        self.poll(cx);
        Next::More
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.poll(cx);
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.stream.0.borrow_mut().ended = true;
        self.poll(cx);
    }
}

struct Conversations;

impl Service for Conversations {
    type Conn = Async;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Async, Refusal> {
        let stream = Stream::default();
        Ok(Async {
            future: Box::pin(conversation(stream.clone())),
            stream,
        })
    }
}

fn main() {
    let args = common::args();
    let (running, _) = common::start(&args, Conversations);
    if args.self_test {
        let mut client = TcpStream::connect(&running.addrs()[0]).expect("connect");
        for piece in ["A", "da\n1", "2\n30\n-2", "\n"] {
            client.write_all(piece.as_bytes()).expect("write");
        }
        client
            .shutdown(std::net::Shutdown::Write)
            .expect("half-close");
        let mut told = String::new();
        client.read_to_string(&mut told).expect("read");
        assert_eq!(
            told,
            "what is your name?\nhello, Ada; numbers, please\n12\n42\n40\n"
        );
    }
    common::end(&args, running);
}
