//! The behaviour of connections under exploration: each role echoes what it receives, in a way of
//! its own.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use crate::memory::buffer::Chunk;
use crate::protocol::connection::{Cx, Protocol, Turn};
use crate::protocol::input::Input;
use crate::protocol::service::Service;
use crate::reach::mailbox::LoopHandle;
use crate::sim::explore::peers::byte_at;
use crate::sim::explore::record::{Job, Record};
use crate::sim::explore::role::{Message, Role};
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// The first byte that a dialled connection receives.
const GREETING: &[u8] = b"!";

/// The service under exploration. The connections of the service look ahead, or (`AHEAD` false) do
/// not.
pub(super) struct Explored<const AHEAD: bool> {
    pub(super) record: Record,
    /// Roles are drawn from this and the peer's address.
    pub(super) seed: u64,
    /// Descriptors are few: no peer may keep one for ever.
    pub(super) is_scarce: bool,
}

pub(super) enum Conn<const AHEAD: bool> {
    Server(Box<Server>),
    Client(Box<Client>),
}

pub(super) struct Server {
    record: Record,
    of: Endpoint,
    role: Role,
    open: bool,
    consumed: usize,
    kept: VecDeque<Chunk>,
    marks: u64,
    timer: Option<Instant>,
    /// An answer is awaited.
    asked: bool,
    ended: bool,
    is_over: bool,
    /// Says a word before the peer does.
    greets: bool,
}

/// Sends a stream, in pieces, and looks at what comes back.
pub(super) struct Client {
    record: Record,
    token: u64,
    total: usize,
    sent: usize,
    back: usize,
    every: Duration,
    piece: usize,
    /// Whether the connection writes nothing before its peer has written.
    is_shy: bool,
    greeted: bool,
    /// Whether the connection may have ended without all of its bytes.
    is_over: bool,
}

impl<const AHEAD: bool> Service for Explored<AHEAD> {
    type Conn = Conn<AHEAD>;

    fn on_loop(&self, _: LoopHandle<Message>) {}

    fn accept(&self, peer: &Peer, (): &mut ()) -> Result<Conn<AHEAD>, Refusal> {
        if let Origin::Dialled(token) = peer.origin {
            let n = crate::sim::explore::peers::mix(self.seed ^ token);
            return Ok(Conn::Client(Box::new(Client {
                record: self.record.clone(),
                token,
                total: 1 + (n % 3000) as usize,
                sent: 0,
                back: 0,
                every: Duration::from_micros(1 + (n >> 20) % 2000),
                piece: 1 + ((n >> 40) % 900) as usize,
                is_shy: n >> 63 == 0,
                greeted: false,
                is_over: false,
            })));
        }
        let of = peer.endpoint.clone();
        let n =
            crate::sim::explore::peers::mix(self.seed ^ crate::sim::explore::peers::number(&of));
        let mut role = Role::drawn(n, ((n >> 8) % 300) as usize);
        let dialled = of
            .tcp()
            .is_some_and(|at| at.ip() == std::net::Ipv4Addr::new(10, 0, 0, 1));
        if (dialled || self.is_scarce) && matches!(role, Role::Wait | Role::Deaf) {
            // A dialled connection may fill a window that is not read, with its end behind.
            role = Role::Write;
        }
        self.record.seen(&of, |seen| seen.role = Some(role));
        Ok(Conn::Server(Box::new(Server {
            record: self.record.clone(),
            of,
            role,
            open: false,
            consumed: 0,
            kept: VecDeque::new(),
            marks: 0,
            timer: None,
            asked: false,
            ended: false,
            is_over: false,
            greets: dialled,
        })))
    }

    fn dial_failed(&self, token: u64, _: &io::Error, _: &mut Turn<'_, Conn<AHEAD>>) {
        self.record.dialled(token, |dialled| dialled.failed += 1);
    }
}

type C<'a, const AHEAD: bool> = Cx<'a, Conn<AHEAD>>;

impl<const AHEAD: bool> Protocol for Conn<AHEAD> {
    type Local = ();
    type Message = Message;
    const LOOKS_AHEAD: bool = AHEAD;

    fn look_ahead(&self, input: &[u8], (): &mut ()) {
        if let Conn::Server(server) = self
            && (input.is_empty() || !server.open || server.is_over)
        {
            server.wrong("announced input that is none, or when it is not open");
        }
    }

    fn opened(&mut self, cx: &mut C<'_, AHEAD>) {
        match self {
            Conn::Server(server) => {
                server.open = true;
                server.record.seen(&server.of, |seen| seen.opened += 1);
                if server.greets {
                    cx.link.write(GREETING);
                }
                if server.role == Role::Goodbye {
                    server.is_over = true;
                    cx.link.finish();
                }
            }
            Conn::Client(client) => {
                client.record.dialled(client.token, |d| d.opened += 1);
                client.go_on(cx);
            }
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut C<'_, AHEAD>) -> Next {
        match self {
            Conn::Server(server) => server.received(input, cx),
            Conn::Client(client) => client.received(input, cx),
        }
    }

    fn writable(&mut self, cx: &mut C<'_, AHEAD>) {
        if let Conn::Client(client) = self {
            client.go_on(cx);
        }
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut C<'_, AHEAD>) {
        match self {
            Conn::Server(server) => server.peer_finished(unread, cx),
            Conn::Client(client) => client.peer_finished(cx),
        }
    }

    fn hung_up(&mut self, cx: &mut C<'_, AHEAD>) {
        if let Conn::Server(server) = self
            && server.role == Role::Wait
        {
            server.is_over = true;
            cx.link.finish();
        }
    }

    fn expired(&mut self, cx: &mut C<'_, AHEAD>) {
        match self {
            Conn::Server(server) => server.expired(cx),
            Conn::Client(client) => client.go_on(cx),
        }
    }

    fn posted(&mut self, message: Message, cx: &mut C<'_, AHEAD>) {
        match self {
            Conn::Server(server) => server.answered(message, cx),
            Conn::Client(_) => unreachable!("the client is unknown"),
        }
    }

    fn undelivered(&mut self, _: ConnId, _: Message, _: &mut C<'_, AHEAD>) {
        if let Conn::Server(server) = self {
            server
                .record
                .wrong("what it told itself was not delivered".into());
        }
    }

    fn draining(&mut self, cx: &mut C<'_, AHEAD>) {
        match self {
            Conn::Server(server) => {
                server.is_over = true;
                server.record.seen(&server.of, |seen| seen.drained = true);
            }
            Conn::Client(client) => client.is_over = true,
        }
        cx.link.finish();
    }

    fn closed(self, why: Closed, _: &mut Turn<'_, Conn<AHEAD>>) {
        match self {
            Conn::Server(server) => server.record.seen(&server.of, |seen| {
                seen.closed.push(why);
                seen.consumed = server.consumed;
            }),
            Conn::Client(client) => client.record.dialled(client.token, |dialled| {
                dialled.closed.push(why);
            }),
        }
    }
}

impl Server {
    fn wrong(&self, what: &str) {
        let Server { of, role, .. } = self;
        self.record.wrong(format!("{of}, {role:?}: {what}"));
    }

    fn received<const A: bool>(&mut self, input: &mut Input<'_>, cx: &mut C<'_, A>) -> Next {
        if !self.open || self.is_over {
            self.wrong("offered input when it is not open");
        }
        if self.asked {
            self.wrong("offered input although it is paused");
        }
        let before = input.len();
        let next = self.answer(input, cx);
        self.consumed += before - input.len();
        next
    }

    fn answer<const A: bool>(&mut self, input: &mut Input<'_>, cx: &mut C<'_, A>) -> Next {
        let len = input.len();
        let soon = Duration::from_micros(1 + cx.link.random() % 3000);
        match self.role {
            Role::Forward => cx.link.forward_all(input),
            Role::Write => write_all(input, cx),
            Role::Keep => {
                let n = input.len();
                self.kept.push_back(input.take(n));
                self.arm(soon, cx);
                if self.kept.len() > 3 {
                    return Next::Paused;
                }
                Next::More
            }
            Role::Frames(size) => {
                while input.len() >= size && !cx.link.full() {
                    cx.link.forward(input, size);
                }
                if input.len() >= size {
                    return Next::AfterDrain;
                }
                Next::AtLeast(size)
            }
            Role::Ask | Role::AskReserved => {
                let bytes = input.bytes().to_vec();
                input.consume(len);
                let message = Message {
                    of: self.of.clone(),
                    bytes,
                };
                let job = if self.role == Role::Ask {
                    Job::Post(cx.handle(), message)
                } else {
                    match cx.handle().reserve() {
                        Ok(permit) => Job::Reserved(permit, message),
                        Err(_) => Job::Post(cx.handle(), message),
                    }
                };
                let of = self.of.clone();
                self.record.seen(&of, |seen| seen.posted += 1);
                self.record.lock().jobs.push((of, job));
                self.asked = true;
                Next::Paused
            }
            Role::LockStep => {
                let most = if self.consumed < 200 { 1 } else { len };
                cx.link.forward(input, most.min(len));
                Next::AfterDrain
            }
            Role::Nap => {
                let n = 1 + (cx.link.random() % len as u64) as usize;
                cx.link.forward(input, n);
                self.arm(soon, cx);
                Next::Paused
            }
            Role::Doze => {
                input.consume(len);
                if cx.link.random().is_multiple_of(2) {
                    return Next::More;
                }
                self.arm(soon, cx);
                Next::Paused
            }
            Role::Hold => {
                let next = self.write_held(input, cx);
                self.arm(soon, cx);
                next
            }
            Role::Tell => {
                let bytes = input.bytes().to_vec();
                input.consume(len);
                let of = self.of.clone();
                self.record.seen(&of, |seen| seen.posted += 1);
                let me = cx.link.id();
                if cx.tell(me, Message { of, bytes }).is_err() {
                    self.wrong("no room to tell itself");
                }
                Next::More
            }
            Role::FallSilent(most) => {
                let n = most.saturating_sub(self.consumed).min(len);
                if n > 0 {
                    cx.link.forward(input, n);
                }
                if self.consumed + len >= most {
                    cx.link.finish_writing();
                }
                input.consume(input.len());
                Next::More
            }
            Role::Abort(most) => {
                if self.consumed + len >= most {
                    self.is_over = true;
                    cx.link.abort();
                    input.consume(len);
                    return Next::More;
                }
                write_all(input, cx)
            }
            Role::Finish(most) => {
                let n = most.saturating_sub(self.consumed).min(len);
                if n > 0 {
                    cx.link.forward(input, n);
                }
                if self.consumed + len >= most {
                    self.is_over = true;
                    cx.link.finish();
                }
                Next::More
            }
            Role::Wait | Role::Deaf | Role::Goodbye => {
                input.consume(len);
                Next::Paused
            }
            Role::Panic(most) => {
                if self.consumed + len >= most {
                    self.is_over = true;
                    std::panic::resume_unwind(Box::new("as it was told to"));
                }
                write_all(input, cx)
            }
        }
    }

    fn write_held<const A: bool>(&mut self, input: &mut Input<'_>, cx: &mut C<'_, A>) -> Next {
        while !input.is_empty() {
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let n = input.len().min(200);
            self.marks += 1;
            cx.link.hold_until(self.marks);
            cx.link.write(&input.bytes()[..n]);
            input.consume(n);
        }
        Next::More
    }

    fn arm<const A: bool>(&mut self, after: Duration, cx: &mut C<'_, A>) {
        // A timer that is set may be moved, to later only.
        if self.timer.is_none() || cx.link.random().is_multiple_of(4) {
            let at = cx.link.now() + after;
            let at = self.timer.map_or(at, |before| at.max(before));
            self.timer = Some(at);
            cx.link.set_timer(at);
        }
    }

    fn expired<const A: bool>(&mut self, cx: &mut C<'_, A>) {
        match self.timer.take() {
            None => self.wrong("a timer that it has not set expires"),
            Some(at) if at > cx.link.now() => self.wrong("a timer expires early"),
            Some(_) => {}
        }
        match self.role {
            Role::Keep => {
                if let Some(chunk) = self.kept.pop_front() {
                    cx.link.write_chunk(chunk);
                }
                if !self.kept.is_empty() {
                    self.arm(Duration::from_micros(300), cx);
                } else if self.ended {
                    self.is_over = true;
                    return cx.link.finish();
                }
                cx.link.resume();
            }
            Role::Nap | Role::Doze => cx.link.resume(),
            Role::Hold => {
                cx.link.release(self.marks);
            }
            _ => {}
        }
    }

    fn answered<const A: bool>(&mut self, message: Message, cx: &mut C<'_, A>) {
        if message.of != self.of {
            self.wrong("given a message for another connection");
        }
        if self.is_over {
            self.wrong("given a message when it is over");
        }
        self.record.seen(&self.of, |seen| seen.given += 1);
        let (first, rest) = message.bytes.split_at(message.bytes.len() / 2);
        cx.link.write(first);
        cx.link.write_shared(bytes::Bytes::copy_from_slice(rest));
        if self.asked {
            self.asked = false;
            cx.link.resume();
        }
    }

    fn peer_finished<const A: bool>(&mut self, unread: usize, cx: &mut C<'_, A>) {
        if std::mem::replace(&mut self.ended, true) {
            self.wrong("told twice that its peer has finished");
        }
        self.record.seen(&self.of, |seen| seen.unread = unread);
        match self.role {
            Role::Keep if !self.kept.is_empty() => {}
            Role::Hold => {
                cx.link.release(self.marks);
                self.is_over = true;
                cx.link.finish();
            }
            _ => {
                self.is_over = true;
                cx.link.finish();
            }
        }
    }
}

fn write_all<const A: bool>(input: &mut Input<'_>, cx: &mut C<'_, A>) -> Next {
    while !input.is_empty() {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len().min(1 + (cx.link.random() % 700) as usize);
        let bytes = &input.bytes()[..n];
        if cx.link.random().is_multiple_of(4) {
            cx.link.write_shared(bytes::Bytes::copy_from_slice(bytes));
        } else {
            cx.link.write(bytes);
        }
        input.consume(n);
    }
    Next::More
}

impl Client {
    fn go_on<const A: bool>(&mut self, cx: &mut C<'_, A>) {
        let waits = self.is_shy && !self.greeted;
        if waits || self.sent == self.total || cx.link.full() || self.is_over {
            return;
        }
        let n = self.piece.min(self.total - self.sent);
        let bytes: Vec<u8> = (self.sent..self.sent + n)
            .map(|at| byte_at(self.token, at))
            .collect();
        cx.link.write(&bytes);
        self.sent += n;
        if self.sent == self.total {
            cx.link.finish_writing();
        } else {
            cx.link.set_timer_after(self.every);
        }
    }

    fn received<const A: bool>(&mut self, input: &mut Input<'_>, cx: &mut C<'_, A>) -> Next {
        if !std::mem::replace(&mut self.greeted, true) {
            if !input.bytes().starts_with(GREETING) {
                let token = self.token;
                self.record.wrong(format!("dial {token}: not greeted"));
            }
            input.consume(GREETING.len());
            self.go_on(cx);
        }
        for byte in input.bytes() {
            if *byte != byte_at(self.token, self.back) || self.back >= self.sent {
                let (token, at) = (self.token, self.back);
                self.record
                    .wrong(format!("dial {token}: byte {at} came back wrong"));
                break;
            }
            self.back += 1;
        }
        input.consume(input.len());
        Next::More
    }

    fn peer_finished<const A: bool>(&mut self, cx: &mut C<'_, A>) {
        let complete = self.back == self.total;
        self.record.dialled(self.token, |d| d.complete = complete);
        self.is_over = true;
        cx.link.finish();
    }
}
