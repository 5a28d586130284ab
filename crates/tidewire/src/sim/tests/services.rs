//! Small protocols that between them use every part of a link.

use std::time::Duration;

use crate::{Closed, Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service, Turn};

/// Implements [`Service`] for a protocol that needs nothing to start from but a value.
macro_rules! service {
    ($conn:ident) => {
        impl Service for $conn {
            type Conn = $conn;
            fn on_loop(&self, _: LoopHandle<()>) {}
            fn accept(&self, _: &Peer, (): &mut ()) -> Result<$conn, Refusal> {
                Ok(self.clone())
            }
        }
    };
}

/// Sends back what it gets.
#[derive(Clone)]
pub(crate) struct Echo;
service!(Echo);

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

/// Frames of a four-byte length and as many bytes; answers each with the sum of its bytes. The
/// length 0 finishes, a length above 1,000 aborts.
#[derive(Clone)]
pub(crate) struct Sums;
service!(Sums);

impl Protocol for Sums {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        while let Some(head) = input.bytes().first_chunk::<4>() {
            let n = u32::from_le_bytes(*head) as usize;
            match n {
                0 => {
                    cx.link.finish();
                    return Next::More;
                }
                1..=1000 => {}
                _ => {
                    cx.link.abort_because("frame too long");
                    return Next::More;
                }
            }
            if input.len() < 4 + n {
                return Next::AtLeast(4 + n);
            }
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let sum: u64 = input.bytes()[4..4 + n].iter().map(|&b| u64::from(b)).sum();
            cx.link.write(&sum.to_le_bytes());
            input.consume(4 + n);
        }
        Next::More
    }
}

/// Answers each byte with a full stop, one at a time and 10 ms after it has come.
#[derive(Clone)]
pub(crate) struct Sleepy;
service!(Sleepy);

pub(crate) const SLEEP: Duration = Duration::from_millis(10);

impl Protocol for Sleepy {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        input.consume(1);
        cx.link.set_timer_after(SLEEP);
        Next::Paused
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.write(b".");
        cx.link.resume();
    }
}

/// What a [`Sender`] did, for all to see.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) replies: Vec<u8>,
    pub(crate) closed: Vec<Closed>,
    pub(crate) dial_failures: Vec<u64>,
}

/// A client that sends so many bytes, numbered, as fast as it may, and finishes when it has got as
/// many back.
pub(crate) struct Sender {
    pub(crate) bytes: usize,
}

pub(crate) struct Sending {
    left: usize,
    awaited: usize,
    got: usize,
}

impl Sending {
    fn fill(&mut self, cx: &mut Cx<'_, Self>) {
        while self.left > 0 && !cx.link.full() {
            let n = self.left.min(1 + cx.link.random() as usize % 300);
            let at = self.awaited - self.left;
            let bytes: Vec<u8> = (at..at + n).map(numbered).collect();
            cx.link.write(&bytes);
            self.left -= n;
        }
    }
}

/// The byte at a place of the stream.
pub(crate) fn numbered(at: usize) -> u8 {
    (at % 251) as u8
}

impl Service for Sender {
    type Conn = Sending;

    fn on_loop(&self, _: LoopHandle<()>) -> Report {
        Report::default()
    }

    fn accept(&self, _: &Peer, _: &mut Report) -> Result<Sending, Refusal> {
        Ok(Sending {
            left: self.bytes,
            awaited: self.bytes,
            got: 0,
        })
    }

    fn dial_failed(&self, token: u64, _: &std::io::Error, turn: &mut Turn<'_, Sending>) {
        turn.local.dial_failures.push(token);
    }
}

impl Protocol for Sending {
    type Local = Report;
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.fill(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        cx.local.replies.extend_from_slice(input.bytes());
        self.got += input.len();
        input.consume(input.len());
        if self.got == self.awaited {
            cx.link.finish();
        }
        Next::More
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.fill(cx);
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        turn.local.closed.push(why);
    }
}

/// Confirms each byte when the mark of its value is released; `.` finishes. A handle to its loop is the
/// local state.
pub(crate) struct Owes;

impl Protocol for Owes {
    type Local = LoopHandle<()>;
    type Message = ();
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        for &byte in input.bytes() {
            if byte == b'.' {
                cx.link.finish();
            }
            cx.link.hold_until(u64::from(byte));
            cx.link.write(&[byte]);
        }
        input.consume(input.len());
        Next::More
    }
}
