//! The network between the ends: streams, handshakes, what is under way and when it gets there.
//!
//! The network knows no protocols. The owner of an end, a loop or a [plain](super::plain) peer,
//! calls [`Net`] like a kernel, and finds in its inbox the events that a kernel would report.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::reactor::random::Rng;
use crate::sim::conditions::Conditions;
use crate::sim::pipe::{Fin, Pipe};
use crate::sim::trace::{Event, Trace, What};
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;

/// Time after which an unanswered request to connect is made again.
const RETRY: Duration = Duration::from_secs(1);

/// One end of a stream. Side 0 is the one that connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    pub(super) stream: u32,
    pub(super) side: u8,
}

impl End {
    pub(super) fn other(self) -> End {
        End {
            side: 1 - self.side,
            ..self
        }
    }
}

/// The actor that is told what happens at an end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) actor: usize,
    /// The owner's own name for the end.
    pub(super) conn: u32,
    pub(super) generation: u32,
}

/// The acceptor at an address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listener {
    pub(super) actor: usize,
    pub(super) number: u32,
    /// When so many are in the actor's inbox, no other is answered.
    pub(super) backlog: usize,
}

/// The address of an actor on the simulated network.
pub(super) fn address(actor: usize, port: u16) -> Endpoint {
    let [_, a, b, c] = (actor as u32 + 1).to_be_bytes();
    Endpoint::from(([10, a, b, c], port))
}

/// Where an actor connects to `to` from.
pub(super) fn near(to: &Endpoint, actor: usize, port: u16) -> Endpoint {
    match to {
        Endpoint::Tcp(SocketAddr::V4(_)) => address(actor, port),
        Endpoint::Tcp(SocketAddr::V6(_)) => {
            let [_, a, b, c] = (actor as u32 + 1).to_be_bytes().map(u16::from);
            Endpoint::from(([0xfd00, 0, 0, 0, 0, a, b, c], port))
        }
        _ => Endpoint::Unnamed,
    }
}

/// The notice that an owner finds in its inbox.
#[derive(Debug)]
pub(super) enum Notice {
    Accept {
        end: End,
        listener: Listener,
        from: Endpoint,
    },
    End {
        conn: u32,
        generation: u32,
        news: News,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Connected,
    Refused,
    /// Bytes, the end of input, or an error: reading tells.
    Readable,
    Writable,
}

/// The result of a write.
pub(super) enum Written {
    Took(usize),
    /// News of [`News::Writable`] will follow.
    Blocked,
    Broken(io::ErrorKind),
}

/// The result of a read.
pub(super) enum Read {
    Got(usize),
    End,
    /// News of [`News::Readable`] will follow.
    Nothing,
    Broken(io::ErrorKind),
}

/// The events at the other end that an end which does not read may notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Fine,
    Ended,
    Broken(io::ErrorKind),
}

/// The state of an endpoint.
pub(super) enum Place {
    /// A listener, with room for another connection.
    Room,
    Full,
    /// `ever` if there has been a listener.
    Nobody {
        ever: bool,
    },
}

struct Side {
    owner: Option<Owner>,
    /// Whether the owner has closed the end.
    gone: bool,
    /// Has heard that the other side is closed, which Unix sockets tell apart from its end of output.
    hung_up: bool,
    broken: Option<io::ErrorKind>,
}

struct Stream {
    from: Endpoint,
    to: Endpoint,
    sides: [Side; 2],
    /// `pipes[i]` is written at side `i`.
    pipes: [Pipe; 2],
    /// No data gets through any more.
    lost: bool,
}

/// Something under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    Request {
        stream: u32,
    },
    Refusal {
        stream: u32,
    },
    Acceptance {
        stream: u32,
    },
    /// The last segment of a handshake.
    Established {
        stream: u32,
    },
    Bytes {
        at: End,
        len: usize,
    },
    EndOfOutput {
        at: End,
    },
    Reset {
        at: End,
    },
    /// The other end of a Unix socket is closed.
    HangUp {
        at: End,
    },
    /// The reader at the other end has made room.
    Room {
        at: End,
    },
    /// A writer that was told to wait may go on.
    Patience {
        at: End,
    },
}

pub(super) struct Net {
    pub(super) conditions: Conditions,
    pub(super) trace: Trace,
    /// Notices for each actor.
    pub(super) inboxes: Vec<VecDeque<Notice>>,
    /// The client hears of a connection before the listener does.
    pub(super) slow_handshakes: bool,
    now: Rc<Cell<u64>>,
    rng: Rng,
    streams: Vec<Stream>,
    listeners: BTreeMap<Endpoint, Listener>,
    /// Where a listener has ever been on a Unix socket: its file stays.
    places: BTreeSet<Endpoint>,
    /// Time, and a number that keeps what falls on the same time in order.
    under_way: BinaryHeap<Reverse<(u64, u64, Arrival)>>,
    departures: u64,
}

impl Net {
    pub(super) fn new(now: Rc<Cell<u64>>, rng: Rng, conditions: Conditions) -> Net {
        conditions.check();
        Net {
            conditions,
            trace: Trace::default(),
            inboxes: Vec::new(),
            slow_handshakes: false,
            now,
            rng,
            streams: Vec::new(),
            listeners: BTreeMap::new(),
            places: BTreeSet::new(),
            under_way: BinaryHeap::new(),
            departures: 0,
        }
    }

    // ---- What owners do ----

    pub(super) fn listen(&mut self, at: Endpoint, listener: Listener) {
        if at.is_unix() {
            self.places.insert(at.clone());
        }
        self.listeners.insert(at, listener);
    }

    pub(super) fn stop_listening_at(&mut self, at: &Endpoint) {
        self.listeners.remove(at);
    }

    /// Unless another listens there by now.
    pub(super) fn stop_listening(&mut self, at: &Endpoint, actor: usize) {
        if self.listeners.get(at).is_some_and(|l| l.actor == actor) {
            self.stop_listening_at(at);
        }
    }

    /// No client is answered there any more.
    pub(super) fn turn_deaf(&mut self, at: &Endpoint) {
        if let Some(listener) = self.listeners.get_mut(at) {
            listener.backlog = 0;
        }
    }

    fn is_full(&self, listener: Listener) -> bool {
        self.inboxes[listener.actor].len() >= listener.backlog
    }

    /// Starts to connect. News of `Connected` or `Refused` will follow.
    pub(super) fn connect(&mut self, owner: Owner, from: Endpoint, to: Endpoint) -> End {
        let stream = u32::try_from(self.streams.len()).expect("fewer than 2^32 streams");
        let (send, receive) = (self.conditions.send_buffer, self.conditions.receive_buffer);
        let side = |owner| Side {
            owner,
            gone: false,
            hung_up: false,
            broken: None,
        };
        self.trace.stream(&from, &to);
        self.streams.push(Stream {
            from,
            to,
            sides: [side(Some(owner)), side(None)],
            pipes: [Pipe::new(send, receive), Pipe::new(send, receive)],
            lost: false,
        });
        let end = End { stream, side: 0 };
        self.note(What::Dialled, end, 0);
        let at = self.soon();
        self.depart(at, Arrival::Request { stream });
        end
    }

    /// Takes over an end from the inbox.
    pub(super) fn accept(&mut self, end: End, owner: Owner) {
        self.side(end).owner = Some(owner);
        self.note(What::Accepted, end, 0);
    }

    pub(super) fn write(&mut self, end: End, slices: &[IoSlice<'_>]) -> Written {
        if let Some(kind) = self.side(end).broken {
            return Written::Broken(kind);
        }
        if self.side(end).hung_up {
            return Written::Broken(io::ErrorKind::BrokenPipe);
        }
        let most = draw(&mut self.rng, self.conditions.accept_max);
        let pipe = &mut self.streams[end.stream as usize].pipes[end.side as usize];
        if pipe.writer_waits {
            return Written::Blocked;
        }
        let mut left = most.min(pipe.room());
        let mut took = 0;
        for slice in slices {
            let bytes = &slice[..slice.len().min(left)];
            pipe.write(bytes);
            self.trace.contents(end.stream, end.side, bytes);
            (took, left) = (took + bytes.len(), left - bytes.len());
        }
        let full = pipe.room() == 0;
        if took < slices.iter().map(|s| s.len()).sum() {
            pipe.writer_waits = true;
            if !full {
                pipe.writer_held = true;
                let at = self.soon();
                self.depart(at, Arrival::Patience { at: end });
            }
        }
        if took == 0 {
            return Written::Blocked;
        }
        self.note(What::Sent, end, took);
        self.transmit(end);
        Written::Took(took)
    }

    /// Reads into a part of `into`.
    pub(super) fn read(&mut self, end: End, into: &mut [u8]) -> Read {
        let most = draw(&mut self.rng, self.conditions.receive_max).min(into.len());
        let stream = &mut self.streams[end.stream as usize];
        let pipe = &mut stream.pipes[end.other().side as usize];
        let got = pipe.read(&mut into[..most]);
        if got > 0 {
            let tell = !pipe.room_told;
            pipe.room_told = true;
            self.note(What::Received, end, got);
            if tell {
                let at = self.soon();
                self.depart(at, Arrival::Room { at: end.other() });
            }
            return Read::Got(got);
        }
        match self.status(end) {
            Status::Broken(kind) => Read::Broken(kind),
            Status::Ended => Read::End,
            Status::Fine => Read::Nothing,
        }
    }

    pub(super) fn status(&self, end: End) -> Status {
        let stream = &self.streams[end.stream as usize];
        match stream.sides[end.side as usize].broken {
            Some(kind) => Status::Broken(kind),
            None if stream.pipes[end.other().side as usize].fin == Fin::Arrived => Status::Ended,
            None => Status::Fine,
        }
    }

    /// Half-closes.
    pub(super) fn finish(&mut self, end: End) {
        let pipe = self.written_by(end);
        if pipe.fin == Fin::No {
            pipe.fin = Fin::Waiting;
            self.note(What::Finished, end, 0);
            self.transmit(end);
        }
    }

    /// The owner lets go of its end. Unread input means a reset, as it does in TCP.
    pub(super) fn close(&mut self, end: End, reset: bool) {
        let unread = self.written_by(end.other()).arrived() > 0;
        let side = self.side(end);
        let broken = side.broken.is_some();
        (side.owner, side.gone) = (None, true);
        if (reset || unread) && !broken {
            self.reset_from(end);
        } else if !broken {
            let said = self.has_said_all(end);
            self.finish(end);
            if said {
                self.hang_up(end);
            }
        }
        self.note(What::Closed, end, 0);
        let stream = &mut self.streams[end.stream as usize];
        if stream.sides.iter().all(|s| s.gone) {
            stream.pipes.iter_mut().for_each(Pipe::drop_all);
        }
    }

    /// The network loses a stream: both ends will see a reset.
    pub(super) fn lose(&mut self, stream: u32) {
        if std::mem::replace(&mut self.streams[stream as usize].lost, true) {
            return;
        }
        let end = End { stream, side: 0 };
        self.note(What::Lost, end, 0);
        for at in [end, end.other()] {
            let when = self.soon();
            self.depart(when, Arrival::Reset { at });
        }
    }

    /// Bytes that may be read at this end.
    pub(super) fn unread(&self, end: End) -> usize {
        self.streams[end.stream as usize].pipes[end.other().side as usize].arrived()
    }

    /// Bytes written at this end that have not arrived at the other end.
    pub(super) fn untaken(&self, end: End) -> usize {
        self.streams[end.stream as usize].pipes[end.side as usize].not_arrived()
    }

    /// Whether a write at this end would take something.
    pub(super) fn takes(&self, end: End) -> bool {
        let pipe = &self.streams[end.stream as usize].pipes[end.side as usize];
        !pipe.writer_waits && pipe.room() > 0
    }

    /// Whether the other side of a Unix socket is closed, and this end knows.
    pub(super) fn is_hung_up(&self, end: End) -> bool {
        self.streams[end.stream as usize].sides[end.side as usize].hung_up
    }

    /// The state of an endpoint.
    pub(super) fn place(&self, at: &Endpoint) -> Place {
        match self.listeners.get(at) {
            Some(&listener) if self.is_full(listener) => Place::Full,
            Some(_) => Place::Room,
            None => Place::Nobody {
                ever: self.places.contains(at),
            },
        }
    }

    /// How many streams there have been.
    pub(super) fn streams(&self) -> u32 {
        self.streams.len() as u32
    }

    // ---- What happens under way ----

    /// The time of the next arrival.
    pub(super) fn next_arrival(&self) -> Option<Instant> {
        let Reverse((at, ..)) = self.under_way.peek()?;
        Some(Instant::from_nanos(*at))
    }

    /// The next thing arrives, at the time that it is now.
    pub(super) fn arrive(&mut self) {
        let Some(Reverse((_, _, arrival))) = self.under_way.pop() else {
            return;
        };
        match arrival {
            Arrival::Request { stream } => self.request_arrives(stream),
            Arrival::Refusal { stream } => {
                let end = End { stream, side: 0 };
                self.note(What::Refused, end, 0);
                self.tell(end, News::Refused);
            }
            Arrival::Acceptance { stream } => {
                let end = End { stream, side: 0 };
                self.note(What::Connected, end, 0);
                self.tell(end, News::Connected);
            }
            Arrival::Established { stream } => self.established(stream),
            Arrival::Bytes { at, len } => self.bytes_arrive(at, len),
            Arrival::EndOfOutput { at } => {
                self.written_by(at.other()).fin = Fin::Arrived;
                self.note(What::EndArrived, at, 0);
                self.tell(at, News::Readable);
            }
            Arrival::Reset { at } => self.reset_arrives(at),
            Arrival::HangUp { at } => {
                self.side(at).hung_up = true;
                self.tell(at, News::Readable);
            }
            Arrival::Room { at } => {
                self.written_by(at).room_told = false;
                self.transmit(at);
            }
            Arrival::Patience { at } => {
                self.written_by(at).writer_held = false;
                self.tell_of_room(at);
            }
        }
    }

    fn request_arrives(&mut self, stream: u32) {
        let s = &self.streams[stream as usize];
        let (from, to) = (s.from.clone(), s.to.clone());
        let end = End { stream, side: 1 };
        if s.sides[0].gone {
            return;
        }
        let at = self.soon();
        let unlucky = one_in(&mut self.rng, self.conditions.refuse_one_in);
        match self.listeners.get(&to).copied().filter(|_| !unlucky) {
            Some(listener) if self.is_full(listener) => {
                // No answer comes; TCP sends the segment again.
                let again = self.now.get() + RETRY.as_nanos() as u64;
                self.depart(again, Arrival::Request { stream });
            }
            Some(listener) => {
                // The acceptor's bytes may not overtake its consent.
                self.streams[stream as usize].pipes[1].last_arrival = at;
                self.depart(at, Arrival::Acceptance { stream });
                if self.slow_handshakes {
                    let last = at + self.soon() - self.now.get();
                    self.streams[stream as usize].pipes[1].last_arrival = last;
                    return self.depart(last, Arrival::Established { stream });
                }
                let notice = Notice::Accept {
                    end,
                    listener,
                    from,
                };
                self.inboxes[listener.actor].push_back(notice);
            }
            _ => self.depart(at, Arrival::Refusal { stream }),
        }
    }

    /// A handshake is over: the client waits to be accepted, if the listener is still there.
    fn established(&mut self, stream: u32) {
        let end = End { stream, side: 1 };
        let s = &self.streams[stream as usize];
        let Some(&listener) = self.listeners.get(&s.to) else {
            return self.close(end, true);
        };
        let from = s.from.clone();
        let notice = Notice::Accept {
            end,
            listener,
            from,
        };
        self.inboxes[listener.actor].push_back(notice);
    }

    fn bytes_arrive(&mut self, at: End, len: usize) {
        let stream = &mut self.streams[at.stream as usize];
        if stream.sides[at.side as usize].gone {
            // No socket is there to take them: the kernel over there says so.
            return self.reset_from(at);
        }
        if stream.sides[at.side as usize].broken.is_some() {
            return;
        }
        stream.pipes[at.other().side as usize].arrive(len);
        self.note(What::Arrived, at, len);
        self.tell(at, News::Readable);
    }

    fn reset_arrives(&mut self, at: End) {
        // Some systems still show the bytes that had arrived before a reset, others do not.
        let forgets = self.rng.below(2) == 0;
        let side = self.side(at);
        if side.gone || side.broken.is_some() {
            return;
        }
        side.broken = Some(io::ErrorKind::ConnectionReset);
        if forgets {
            self.written_by(at.other()).drop_arrived();
        }
        self.note(What::ResetArrived, at, 0);
        self.tell(at, News::Readable);
    }

    /// A reset leaves `end`, behind what is in flight already.
    fn reset_from(&mut self, end: End) {
        if std::mem::replace(&mut self.streams[end.stream as usize].lost, true) {
            return;
        }
        self.note(What::Reset, end, 0);
        let last = self.written_by(end).last_arrival;
        let at = self.soon().max(last);
        self.depart(at, Arrival::Reset { at: end.other() });
    }

    /// Sends what the receive buffer has room for.
    fn transmit(&mut self, writer: End) {
        loop {
            let stream = &mut self.streams[writer.stream as usize];
            if stream.lost {
                return;
            }
            let pipe = &mut stream.pipes[writer.side as usize];
            let sendable = pipe.sendable();
            if sendable == 0 {
                break;
            }
            let len = draw(&mut self.rng, self.conditions.segment_max).min(sendable);
            pipe.depart(len);
            let at = self.arrival_behind(writer);
            let reader = writer.other();
            self.depart(at, Arrival::Bytes { at: reader, len });
            if one_in(&mut self.rng, self.conditions.reset_one_in) {
                return self.lose(writer.stream);
            }
        }
        let pipe = self.written_by(writer);
        if pipe.fin == Fin::Waiting && pipe.unsent() == 0 {
            pipe.fin = Fin::InFlight;
            let at = self.arrival_behind(writer);
            self.depart(at, Arrival::EndOfOutput { at: writer.other() });
            self.hang_up(writer);
        }
        self.tell_of_room(writer);
    }

    /// A Unix socket that is closed tells the other end so, behind the end of its output.
    fn hang_up(&mut self, closed: End) {
        let stream = &self.streams[closed.stream as usize];
        if stream.to.is_tcp() || !stream.sides[closed.side as usize].gone {
            return;
        }
        let at = self.arrival_behind(closed);
        self.depart(at, Arrival::HangUp { at: closed.other() });
    }

    fn tell_of_room(&mut self, writer: End) {
        let pipe = self.written_by(writer);
        if pipe.writer_waits && !pipe.writer_held && pipe.room() > 0 {
            pipe.writer_waits = false;
            self.tell(writer, News::Writable);
        }
    }

    // ---- Inside ----

    fn side(&mut self, end: End) -> &mut Side {
        &mut self.streams[end.stream as usize].sides[end.side as usize]
    }

    fn written_by(&mut self, end: End) -> &mut Pipe {
        &mut self.streams[end.stream as usize].pipes[end.side as usize]
    }

    /// Whether the end of its output has left.
    fn has_said_all(&mut self, end: End) -> bool {
        matches!(self.written_by(end).fin, Fin::InFlight | Fin::Arrived)
    }

    fn arrival_behind(&mut self, writer: End) -> u64 {
        let soon = self.soon();
        let pipe = self.written_by(writer);
        pipe.last_arrival = pipe.last_arrival.max(soon);
        pipe.last_arrival
    }

    /// A latency from now; nanoseconds.
    fn soon(&mut self) -> u64 {
        let latency = &self.conditions.latency;
        let (least, most) = (latency.start().as_nanos(), latency.end().as_nanos());
        let spread = (most - least) as u64;
        self.now.get() + least as u64 + self.rng.below(spread + 1)
    }

    fn depart(&mut self, at: u64, arrival: Arrival) {
        self.departures += 1;
        self.under_way.push(Reverse((at, self.departures, arrival)));
    }

    fn tell(&mut self, end: End, news: News) {
        if let Some(owner) = self.side(end).owner {
            self.inboxes[owner.actor].push_back(Notice::End {
                conn: owner.conn,
                generation: owner.generation,
                news,
            });
        }
    }

    fn note(&mut self, what: What, end: End, len: usize) {
        self.trace.note(Event {
            at: Instant::from_nanos(self.now.get()),
            what,
            stream: end.stream,
            side: end.side,
            len: len as u64,
        });
    }
}

/// 1 to `most`; the largest number stands for no limit, and for no chance.
fn draw(rng: &mut Rng, most: usize) -> usize {
    match most {
        usize::MAX => usize::MAX,
        _ => 1 + rng.below(most as u64) as usize,
    }
}

fn one_in(rng: &mut Rng, n: u64) -> bool {
    n > 0 && rng.below(n) == 0
}
