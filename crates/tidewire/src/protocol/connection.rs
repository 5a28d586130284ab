//! One connection as the author of a protocol sees it: the trait [`Protocol`], and the contexts of
//! its callbacks. The context of a callback with a connection is [`Cx`], without one [`Turn`].

use std::time::Duration;

use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::reach::home::Home;
use crate::reach::mailbox::{Handle, NoRoom};
use crate::reactor::env::Env;
use crate::reactor::errand::Errand;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::conn_name::ConnName;
use crate::vocabulary::dial::Dial;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;

/// One connection: bytes in, bytes out, and nothing else. A protocol opens no socket, reads no
/// clock, starts no thread, waits for nothing; [`Cx::link`] is its only way out.
///
/// # Contract
///
/// * `opened` comes first, `closed` last, each exactly once.
/// * No callback runs inside another one of the same loop.
/// * After [`Link::finish`] or [`Link::abort`], or a panic, only `closed` follows.
/// * The split of the stream into calls of `received` carries no meaning.
///
/// # Example
///
/// A protocol that answers every line with its length:
///
/// ```
/// use tidewire::codec::Lines;
/// use tidewire::{Cx, Input, Next, Protocol};
///
/// struct LineLength(Lines);
///
/// impl Protocol for LineLength {
///     type Local = ();
///     type Message = ();
///
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
///         while !cx.link.full() {
///             match self.0.take(input) {
///                 Ok(Some(line)) => cx.link.write(format!("{}\n", line.len()).as_bytes()),
///                 Ok(None) => return Next::More,
///                 Err(_) => {
///                     cx.link.finish_because("a line too long");
///                     return Next::More;
///                 }
///             }
///         }
///         Next::AfterDrain
///     }
/// }
/// ```
pub trait Protocol: Sized + 'static {
    /// State shared by the service's connections on one loop.
    type Local: 'static;
    /// Messages that any thread posts to a connection, or that connections of one loop
    /// [send](Cx::tell) each other. If the type is [`Send`], handles can be taken to other threads.
    /// A message that carries a [`Chunk`](crate::Chunk) is not `Send`, and stays on its loop.
    type Message: 'static;

    /// Whether [`look_ahead`](Protocol::look_ahead) is to be called. The call costs something only
    /// where this is true.
    const LOOKS_AHEAD: bool = false;

    /// `input` will be offered to [`received`](Protocol::received) in this turn of the loop, behind
    /// carried bytes. Called for each of the connections that have become readable together, up to
    /// [`LOOK_AHEAD_MAX`](crate::LOOK_AHEAD_MAX) of them and one piece of each, before `received` is
    /// called for any: a service that will look things up in memory can begin to load all of them into
    /// the cache.
    ///
    /// The call is only a hint. If only one connection is readable, its bytes are not announced. Another connection
    /// may close or pause an announced one before `received`. So there is no [`Cx`] here: nothing may be written, set
    /// or dialled.
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol};
    ///
    /// /// Sends the value of each byte it gets.
    /// struct Lookup;
    ///
    /// struct Table {
    ///     values: Vec<[u8; 64]>,
    ///     touched: u64,
    /// }
    ///
    /// impl Protocol for Lookup {
    ///     type Local = Table;
    ///     type Message = ();
    ///     const LOOKS_AHEAD: bool = true;
    ///
    ///     fn look_ahead(&self, input: &[u8], table: &mut Table) {
    ///         for &key in input.iter().take(4) {
    ///             // The misses of one connection overlap those of the next.
    ///             table.touched += u64::from(table.values[usize::from(key)][0]);
    ///         }
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         for &key in input.bytes() {
    ///             cx.link.write(&cx.local.values[usize::from(key)]);
    ///         }
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    /// }
    /// ```
    fn look_ahead(&self, input: &[u8], local: &mut Self::Local) {
        let _ = (input, local);
    }

    /// The connection is established.
    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// Bytes have come: bytes left unconsumed before, followed by new ones. Bytes that are left
    /// unconsumed now are carried to the next call; the result says when the next call should be.
    /// After [`Next::AfterDrain`] the input may be empty.
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next;

    /// Output had been full and has fallen to the low mark. If `received` returned
    /// [`Next::AfterDrain`], it is called again right after this, also where no input is left: so a reply that is longer than
    /// a link takes may go on there. The peer's end is told when `received` has returned something else, and not before. A protocol that fills its link here
    /// whenever it may, without an end, takes its input also while the link is [full](Link::full): else it would never
    /// take any.
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol, service_fn, sim::chunking::collect};
    ///
    /// /// Sends ten thousand lines, as fast as they are read.
    /// struct Count(u32);
    ///
    /// impl Count {
    ///     fn go_on(&mut self, cx: &mut Cx<'_, Self>) {
    ///         while !cx.link.full() {
    ///             if self.0 == 10_000 {
    ///                 return cx.link.finish();
    ///             }
    ///             cx.link.write(b"one more\n");
    ///             self.0 += 1;
    ///         }
    ///     }
    /// }
    ///
    /// impl Protocol for Count {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         self.go_on(cx);
    ///     }
    ///
    ///     fn writable(&mut self, cx: &mut Cx<'_, Self>) {
    ///         self.go_on(cx);
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     // A peer that says nothing more still reads.
    ///     fn peer_finished(&mut self, _unread: usize, _: &mut Cx<'_, Self>) {}
    /// }
    ///
    /// assert_eq!(collect(service_fn(|_| Count(0)), b"", &[], true).output.len(), 90_000);
    /// ```
    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// The peer has finished sending, and all its bytes were offered to `received`; `unread` bytes
    /// were left unconsumed. Default: finish too.
    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        let _ = unread;
        cx.link.finish();
    }

    /// The peer has finished sending, without the farewell by which the outer layer tells a
    /// complete stream from a cut one: TLS, for example, has such a farewell. Called in place of
    /// [`peer_finished`](Protocol::peer_finished), also after all received bytes were offered to
    /// `received`. Default: finish with this reason, which sends the replies. A protocol whose
    /// requests mark their own ends may do here what it does in `peer_finished`.
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol};
    ///
    /// /// Answers each line, some of them later: whatever comes behind the last one changes nothing.
    /// struct Answers {
    ///     owed: usize,
    /// }
    ///
    /// impl Protocol for Answers {
    ///     type Local = ();
    ///     type Message = String;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         self.owed += input.bytes().iter().filter(|byte| **byte == b'\n').count();
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn posted(&mut self, answer: String, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(answer.as_bytes());
    ///         self.owed -= 1;
    ///     }
    ///
    ///     fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
    ///         if self.owed == 0 {
    ///             cx.link.finish();
    ///         }
    ///     }
    ///
    ///     fn cut_short(&mut self, unread: usize, _: &'static str, cx: &mut Cx<'_, Self>) {
    ///         self.peer_finished(unread, cx);
    ///     }
    /// }
    /// # use tidewire::{service_fn, sim::chunking::collect};
    /// # collect(service_fn(|_| Answers { owed: 0 }), b"", &[], true);
    /// ```
    fn cut_short(&mut self, unread: usize, why: &'static str, cx: &mut Cx<'_, Self>) {
        let _ = unread;
        cx.link.finish_because(why);
    }

    /// The peer finished sending while reading was paused by [`Link::pause`], perhaps with bytes
    /// unread: it may have gone for good. For connections that wait on another's behalf. Called at
    /// most once; `peer_finished` still follows when reading is resumed. Default: nothing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
    ///
    /// /// Has something looked up that takes long, and hears meanwhile of who does not wait for it.
    /// struct Asks;
    ///
    /// impl Protocol for Asks {
    ///     type Local = ();
    ///     type Message = String;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         cx.link.pause(); // until the answer is posted
    ///         Next::More
    ///     }
    ///
    ///     fn posted(&mut self, answer: String, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(answer.as_bytes());
    ///         cx.link.resume();
    ///     }
    ///
    ///     fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.abort_because("the client waits for no answer");
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let at = sim.add_loop();
    /// let service = sim.service(at, service_fn(|_| Asks), Limits::default());
    /// let addr = sim.listen(service);
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"?");
    /// sim.finish(peer);
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.counters(at).closed_because("the client waits for no answer"), 1);
    /// ```
    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// The timer has expired.
    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// Something that this connection waits for has moved on, which it knows by this key: a [channel](crate::channel) has room,
    /// or something in it.
    ///
    /// ```
    /// use tidewire::channel::Sender;
    /// use tidewire::{Cx, Input, Next, Protocol};
    ///
    /// /// Hands everything on, at the pace of the receiver.
    /// struct HandsOn(Sender<Vec<u8>>);
    ///
    /// impl Protocol for HandsOn {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         self.0.notify(&cx.handle(), 0);
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         if self.0.try_send(input.bytes().to_vec()).is_err() {
    ///             return Next::Paused;
    ///         }
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn notified(&mut self, _: u64, cx: &mut Cx<'_, Self>) {
    ///         cx.link.resume();
    ///     }
    /// }
    /// ```
    fn notified(&mut self, key: u64, cx: &mut Cx<'_, Self>) {
        let _ = (key, cx);
    }

    /// The timer of this key has expired (see [`Link::set_keyed_timer`]).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::{Cx, Input, Next, Protocol};
    ///
    /// /// Asks the questions that are posted to it, each again after every second in which it was not answered.
    /// struct Asks;
    ///
    /// impl Protocol for Asks {
    ///     type Local = ();
    ///     type Message = u64;
    ///
    ///     fn posted(&mut self, question: u64, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(&question.to_be_bytes());
    ///         cx.link.set_keyed_timer_after(question, Duration::from_secs(1));
    ///     }
    ///
    ///     fn timer_expired(&mut self, question: u64, cx: &mut Cx<'_, Self>) {
    ///         self.posted(question, cx);
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         while let Some(answered) = input.bytes().first_chunk() {
    ///             cx.link.clear_keyed_timer(u64::from_be_bytes(*answered));
    ///             input.consume(8);
    ///         }
    ///         Next::AtLeast(8)
    ///     }
    /// }
    /// ```
    fn timer_expired(&mut self, key: u64, cx: &mut Cx<'_, Self>) {
        let _ = (key, cx);
    }

    /// Nothing was received or sent for [`Limits::idle`](crate::Limits::idle). Default: finish.
    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.finish();
    }

    /// The peer has said nothing within [`Limits::first_byte`](crate::Limits::first_byte), or has not completed a request within
    /// [`Limits::request`](crate::Limits::request). Default: the connection is cut for it ([`Closed::FirstByteLate`],
    /// [`Closed::RequestLate`]). A protocol may write a reply and [finish](Link::finish) instead; the recorded reason is then
    /// also one of these. If the protocol goes on, the peer has the full time again, counted from the next bytes that it sends.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
    ///
    /// /// Takes questions of two bytes, and has words for those who take too long.
    /// #[derive(Default)]
    /// struct Polite {
    ///     asked: bool,
    /// }
    ///
    /// impl Protocol for Polite {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.set_timer_after(Duration::from_secs(20));
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len() / 2 * 2);
    ///         Next::AtLeast(2)
    ///     }
    ///
    ///     fn overdue(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(b"half a question");
    ///         cx.link.finish();
    ///     }
    ///
    ///     fn idle(&mut self, cx: &mut Cx<'_, Self>) {
    ///         match std::mem::replace(&mut self.asked, true) {
    ///             false => cx.link.write(b"still there?"),
    ///             true => cx.link.finish(),
    ///         }
    ///     }
    ///
    ///     fn expired(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.finish_because("twenty seconds are enough");
    ///     }
    /// }
    ///
    /// let second = Some(Duration::from_secs(1));
    /// let limits = Limits { idle: second, request: second, ..Limits::default() };
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(service_fn(|_| Polite::default()), limits);
    /// let (silent, slow) = (sim.plain(&addr), sim.plain(&addr));
    /// sim.send(slow, b"?");
    /// sim.run_for(Duration::from_secs(10));
    /// assert_eq!(sim.received(silent), b"still there?");
    /// assert!(sim.received(slow).ends_with(b"half a question"));
    /// ```
    fn overdue(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.cut();
    }

    /// A message was posted through a [`Handle`], or another connection of this loop
    /// [told](Cx::tell) it.
    fn posted(&mut self, message: Self::Message, cx: &mut Cx<'_, Self>) {
        let _ = (message, cx);
    }

    /// A message that this connection [told](Cx::tell) another comes back, because that one is not
    /// open (any more). Default: drop it; it is counted.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{ConnId, Cx, Input, Limits, Next, Protocol, service_fn};
    ///
    /// /// The second who comes talks to the first.
    /// #[derive(Default)]
    /// struct Talks {
    ///     to: Option<ConnId>,
    /// }
    ///
    /// impl Protocol for Talks {
    ///     type Local = Option<ConnId>; // who came first
    ///     type Message = Vec<u8>;
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         self.to = cx.local.replace(cx.link.id());
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         let said = input.bytes().to_vec();
    ///         input.consume(said.len());
    ///         if let Some(to) = self.to
    ///             && cx.tell(to, said).is_err()
    ///         {
    ///             cx.link.write(b"too much at once\n");
    ///         }
    ///         Next::More
    ///     }
    ///
    ///     fn posted(&mut self, said: Vec<u8>, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(&said);
    ///     }
    ///
    ///     fn undelivered(&mut self, _: ConnId, _: Vec<u8>, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(b"no connection has it\n");
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(service_fn(|_| Talks::default()), Limits::default());
    /// let first = sim.plain(&addr);
    /// sim.run_for(Duration::from_secs(1));
    /// let second = sim.plain(&addr);
    /// sim.send(second, b"hello");
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.received(first), b"hello");
    /// sim.close(first, true);
    /// sim.run_for(Duration::from_secs(1));
    /// sim.send(second, b"hello?");
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.received(second), b"no connection has it\n");
    /// ```
    fn undelivered(&mut self, to: ConnId, message: Self::Message, cx: &mut Cx<'_, Self>) {
        let _ = (to, message, cx);
    }

    /// The loops are stopping, or the connection has been open for as long as [it may](crate::Limits::lifetime). All requests
    /// that arrived before were offered. An accepted connection that has consumed and sent nothing is told later: when it has, or
    /// when the stop no longer waits for it ([`Running::limit_unserved`](crate::Running::limit_unserved)). The client of such a
    /// connection was told that it is connected, and may be about to send. Default: finish; a protocol that still owes replies
    /// may finish later, within the stop's deadline or, at the end of its lifetime, [`Limits::linger`](crate::Limits::linger).
    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.finish();
    }

    /// The connection is gone.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Closed, Cx, Input, Limits, Next, Protocol, Turn, service_fn};
    ///
    /// /// Says goodbye at a stop, and leaves word of how it went.
    /// struct Clerk;
    ///
    /// impl Protocol for Clerk {
    ///     type Local = Vec<&'static str>;
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         cx.link.forward_all(input)
    ///     }
    ///
    ///     fn draining(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(b"we are closing");
    ///         cx.link.finish();
    ///     }
    ///
    ///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
    ///         turn.local.push(why.name());
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let at = sim.add_loop();
    /// let service = sim.service(at, service_fn(|_| Clerk), Limits::default());
    /// let addr = sim.listen(service);
    /// let (early, late) = (sim.plain(&addr), sim.plain(&addr));
    /// sim.send(late, b"hello, ");
    /// sim.run_for(Duration::from_secs(1));
    /// sim.close(early, true);
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(*sim.local(service), ["reset"]);
    /// sim.stop(at, Duration::from_secs(5));
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!(sim.received(late), b"hello, we are closing");
    /// ```
    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        let _ = (why, turn);
    }
}

/// The context of a callback.
///
/// ```
/// use tidewire::{Cx, Input, Next, Protocol};
///
/// struct Counted;
///
/// impl Protocol for Counted {
///     type Local = u64; // messages of all connections on the loop
///     type Message = ();
///
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
///         *cx.local += 1;
///         cx.link.forward_all(input)
///     }
/// }
/// ```
pub struct Cx<'a, P: Protocol> {
    /// The connection's way out.
    pub link: Link<'a>,
    /// The service's state on this loop.
    pub local: &'a mut P::Local,
    pub(crate) home: &'a Home<P::Message>,
}

impl<P: Protocol> Cx<'_, P> {
    /// This context for an inner protocol that writes to this link too.
    pub(crate) fn within<Q>(&mut self) -> Cx<'_, Q>
    where
        Q: Protocol<Local = P::Local, Message = P::Message>,
    {
        Cx {
            link: Link {
                state: &mut *self.link.state,
                env: &mut *self.link.env,
            },
            local: &mut *self.local,
            home: self.home,
        }
    }

    /// A handle by which others, on any thread, reach this connection.
    ///
    /// ```
    /// use std::io::{Read, Write};
    /// use std::net::TcpStream;
    /// use tidewire::{Builder, Cx, Input, Next, Protocol, service_fn};
    ///
    /// /// Has another thread count what comes.
    /// struct Counts;
    ///
    /// impl Protocol for Counts {
    ///     type Local = ();
    ///     type Message = usize;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         let (handle, bytes) = (cx.handle(), input.bytes().to_vec());
    ///         input.consume(bytes.len());
    ///         std::thread::spawn(move || handle.try_post(bytes.len()));
    ///         Next::More
    ///     }
    ///
    ///     fn posted(&mut self, count: usize, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write(format!("{count} on loop {}\n", cx.number()).as_bytes());
    ///     }
    /// }
    ///
    /// let running = Builder::new().serve("127.0.0.1:0", service_fn(|_| Counts)).start()?;
    /// let mut client = TcpStream::connect(&running.addrs()[0])?;
    /// client.write_all(b"hello")?;
    /// let mut answer = [0; 4];
    /// client.read_exact(&mut answer)?;
    /// assert_eq!(&answer, b"5 on");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn handle(&self) -> Handle<P::Message> {
        Handle::new(self.link.state.id, self.home.mail.clone())
    }

    /// The connection's name among those of all loops.
    ///
    /// ```
    /// # use tidewire::{Cx, Protocol};
    /// fn comes<P: Protocol>(cx: &Cx<'_, P>) {
    ///     println!("{:?} has come to loop {}", cx.name(), cx.number());
    /// }
    /// ```
    #[must_use]
    pub fn name(&self) -> ConnName {
        let service = self.home.mail.service();
        ConnName::new(self.number(), service, self.link.state.id)
    }

    /// Has [`Service::woken`](crate::Service::woken) called on this loop after this callback, once, however often a
    /// callback asks for it. In `woken`, a service reaches the other connections of the loop.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::*;
    ///
    /// /// A chat: what one says, all hear.
    /// struct Room;
    ///
    /// struct Guest;
    ///
    /// impl Protocol for Guest {
    ///     type Local = Vec<u8>;
    ///     type Message = ();
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         cx.local.extend_from_slice(input.bytes());
    ///         input.consume(input.len());
    ///         cx.wake_service();
    ///         Next::More
    ///     }
    /// }
    ///
    /// impl Service for Room {
    ///     type Conn = Guest;
    ///
    ///     fn on_loop(&self, _: LoopHandle<()>) -> Vec<u8> {
    ///         Vec::new()
    ///     }
    ///
    ///     fn accept(&self, _: &Peer, _: &mut Vec<u8>) -> Result<Guest, Refusal> {
    ///         Ok(Guest)
    ///     }
    ///
    ///     fn woken(&self, said: &mut Vec<u8>, all: &mut Conns<'_, Guest>) {
    ///         let bytes = std::mem::take(said);
    ///         all.each(said, |_, cx| cx.link.write(&bytes));
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(Room, Limits::default());
    /// let (one, other) = (sim.plain(&addr), sim.plain(&addr));
    /// sim.run_for(Duration::from_secs(1));
    /// sim.send(one, b"hello");
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!((sim.received(one), sim.received(other)), (&b"hello"[..], &b"hello"[..]));
    /// ```
    pub fn wake_service(&mut self) {
        self.home.mail.signal_from_loop();
        self.link.env.self_signalled = true;
    }

    /// Tells another connection of this service on this loop something: its
    /// [`posted`](Protocol::posted) is called in this turn of the loop, after this callback has
    /// returned. Takes no lock and wakes no thread, and the message may carry what cannot leave the
    /// loop, such as a [`Chunk`](crate::Chunk) for the other to write without a copy. Messages
    /// arrive in the order in which they were told.
    ///
    /// If the other is not open when the message is to be delivered, the message comes back to
    /// [`undelivered`](Protocol::undelivered) and is counted. Names are not used again, so it never
    /// reaches a wrong one. Two connections that tell each other something all the time give others
    /// their turn.
    ///
    /// # Errors
    /// [`NoRoom`] with the message when [`TELLS_MAX`](crate::TELLS_MAX) of the service wait on this loop: counted as
    /// `tells_refused`, and logged.
    ///
    /// ```
    /// use tidewire::{Chunk, ConnId, Cx, Input, Next, Protocol};
    ///
    /// /// Hands what it gets to its partner.
    /// struct Half {
    ///     partner: ConnId,
    /// }
    ///
    /// impl Protocol for Half {
    ///     type Local = ();
    ///     type Message = Chunk;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         let chunk = input.take(input.len());
    ///         if cx.tell(self.partner, chunk).is_err() {
    ///             cx.link.abort_because("too much for the partner");
    ///         }
    ///         Next::More
    ///     }
    ///
    ///     fn posted(&mut self, chunk: Chunk, cx: &mut Cx<'_, Self>) {
    ///         cx.link.write_chunk(chunk);
    ///     }
    ///
    ///     fn undelivered(&mut self, _: ConnId, _: Chunk, cx: &mut Cx<'_, Self>) {
    ///         cx.link.abort(); // the partner is gone
    ///     }
    /// }
    /// ```
    pub fn tell(&mut self, to: ConnId, message: P::Message) -> Result<(), NoRoom<P::Message>> {
        self.link.env.tells(self.link.state);
        let told = self.home.tell(to, Some(self.link.state.id), message);
        if told.is_err() {
            let service = self.home.mail.service();
            self.link.env.refuse_messages(service, [0, 0, 1]);
        }
        told
    }

    /// Makes an outgoing connection of this service on this loop, when the callback has returned. If
    /// it cannot be made, [`Service::dial_failed`](crate::Service::dial_failed) is called. The threads engine runs it on this
    /// connection's thread, so that the two can [tell](Cx::tell) each other things.
    ///
    /// Every callback of a connection can dial, so or by its [`Turn`], and callbacks of a service
    /// for all connections ([`Conns::dial`](crate::Conns::dial)); other threads can by a
    /// [`LoopHandle`](crate::LoopHandle). Only [`Service::accept`](crate::Service::accept) and
    /// [`Protocol::look_ahead`] cannot.
    ///
    /// A dial that is [tied](Dial::tied) is given up when this connection ends.
    ///
    /// ```
    /// # use tidewire::{Cx, Dial, Protocol};
    /// fn ask_upstream<P: Protocol>(cx: &mut Cx<'_, P>) {
    ///     let me = cx.link.id();
    ///     // Its `accept` finds `me` in `Origin::Dialled`.
    ///     cx.dial(Dial::to("127.0.0.1:7400").token(me.to_bits()));
    /// }
    /// ```
    pub fn dial(&mut self, dial: Dial) {
        let by = dial.is_tied().then_some(self.link.state.id);
        self.link.env.dial(self.home.mail.service(), dial, by);
    }

    /// Gives up the dials that this connection has made with this token and that are [tied](Dial::tied) to it, as far as they are
    /// under way: for each, [`dial_failed`](crate::Service::dial_failed) is called when the callback has returned. One that is a
    /// connection by then stays one.
    ///
    /// ```
    /// # use tidewire::{Cx, Dial, Protocol};
    /// /// The client wants another server instead.
    /// fn go_elsewhere<P: Protocol>(cx: &mut Cx<'_, P>, elsewhere: Dial) {
    ///     cx.cancel_dial(1);
    ///     cx.dial(elsewhere.token(2).tied());
    /// }
    /// ```
    pub fn cancel_dial(&mut self, token: u64) {
        let by = self.link.state.id;
        self.link.env.errands.push(Errand::Cancel { by, token });
    }

    /// The loop's number: see [`LoopHandle::number`](crate::LoopHandle::number).
    #[must_use]
    pub fn number(&self) -> u32 {
        self.home.mail.waker.number()
    }
}

/// The context of a callback without an open connection: [`Protocol::closed`] and
/// [`Service::dial_failed`](crate::Service::dial_failed).
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Closed, Cx, Dial, Input, Next, Protocol, Turn};
///
/// /// Connects again when its connection is lost.
/// struct Faithful {
///     to: Dial,
/// }
///
/// impl Protocol for Faithful {
///     type Local = ();
///     type Message = ();
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
///         input.consume(input.len());
///         Next::More
///     }
///
///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
///         if why == Closed::Reset {
///             turn.dial(self.to);
///         }
///     }
/// }
/// ```
pub struct Turn<'a, P: Protocol> {
    /// The service's state on this loop.
    pub local: &'a mut P::Local,
    pub(crate) env: &'a mut Env,
    pub(crate) home: &'a Home<P::Message>,
    /// The connection that is gone.
    pub(crate) gone: Option<(ConnId, &'a Peer)>,
}

impl<P: Protocol> Turn<'_, P> {
    /// The name of the closed connection, as [`Link::id`](crate::Link::id) gave it; `None` in
    /// [`dial_failed`](crate::Service::dial_failed), where there was no connection. The name
    /// belongs to no open connection any more.
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Closed, ConnId, Cx, Input, Limits, Next, Protocol, Turn, service_fn};
    ///
    /// /// Is in the list of those of its loop who are there.
    /// struct Guest;
    ///
    /// impl Protocol for Guest {
    ///     type Local = BTreeSet<ConnId>;
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.local.insert(cx.link.id());
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         cx.link.forward_all(input)
    ///     }
    ///
    ///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
    ///         let (Some(id), Some(peer)) = (turn.id(), turn.peer()) else { return };
    ///         println!("{} has left: {why}", peer.endpoint);
    ///         assert!(turn.local.remove(&id));
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let at = sim.add_loop();
    /// let service = sim.service(at, service_fn(|_| Guest), Limits::default());
    /// let addr = sim.listen(service);
    /// let guest = sim.plain(addr);
    /// sim.finish(guest);
    /// sim.run_for(Duration::from_secs(1));
    /// assert_eq!((sim.counters(at).open, sim.counters(at).panics), (0, 0));
    /// ```
    #[must_use]
    pub fn id(&self) -> Option<ConnId> {
        self.gone.map(|(id, _)| id)
    }

    /// The name of the closed connection among the connections of all loops, as [`Cx::name`] gave
    /// it.
    ///
    /// ```
    /// # use tidewire::{Protocol, Turn};
    /// fn goes<P: Protocol>(turn: &Turn<'_, P>) {
    ///     println!("{:?} has gone", turn.name());
    /// }
    /// ```
    #[must_use]
    pub fn name(&self) -> Option<ConnName> {
        let service = self.home.mail.service();
        Some(ConnName::new(self.number(), service, self.id()?))
    }

    /// The peer of the closed connection, as its protocol has known it; `None` in
    /// [`dial_failed`](crate::Service::dial_failed).
    #[must_use]
    pub fn peer(&self) -> Option<&Peer> {
        self.gone.map(|(_, peer)| peer)
    }

    /// The time of this turn of the loop.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.env.now
    }

    /// Time since 1970-01-01T00:00:00Z by the wall clock, which may jump.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.env.clock.wall()
    }

    /// Makes an outgoing connection of this service on this loop, when the callback has returned. If
    /// it cannot be made, [`dial_failed`](crate::Service::dial_failed) is called.
    pub fn dial(&mut self, dial: Dial) {
        self.env.dial(self.home.mail.service(), dial, None);
    }

    /// Tells a connection of this service on this loop something, as [`Cx::tell`](crate::Cx::tell)
    /// does. If it is gone when the message is delivered, that is counted and the message dropped.
    ///
    /// # Errors
    /// [`NoRoom`] when [`TELLS_MAX`](crate::TELLS_MAX) messages wait.
    ///
    /// ```
    /// use tidewire::{Closed, ConnId, Cx, Input, Next, Protocol, Turn};
    ///
    /// /// Tells its partner when it is gone.
    /// struct Half {
    ///     partner: ConnId,
    /// }
    ///
    /// impl Protocol for Half {
    ///     type Local = Vec<String>;
    ///     type Message = String;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
    ///         let line = format!("{} s: {why} on loop {}", turn.wall().as_secs(), turn.number());
    ///         turn.local.push(line.clone());
    ///         let _ = turn.tell(self.partner, line); // one that is gone too needs no word
    ///         turn.wake_service(); // which looks through `Local`
    ///         assert!(turn.now() <= turn.now());
    ///     }
    /// }
    /// # use tidewire::sim::chunking::collect;
    /// # use tidewire::service_fn;
    /// # let half = service_fn(|_| Half { partner: ConnId::from_bits(7) });
    /// # assert_eq!(collect(half, b"", &[], true).closed, Some(Closed::Finished));
    /// ```
    pub fn tell(&mut self, to: ConnId, message: P::Message) -> Result<(), NoRoom<P::Message>> {
        self.env.told = true;
        let told = self.home.tell(to, None, message);
        if told.is_err() {
            self.env
                .refuse_messages(self.home.mail.service(), [0, 0, 1]);
        }
        told
    }

    /// Has [`Service::woken`](crate::Service::woken) called on this loop after this callback.
    pub fn wake_service(&mut self) {
        self.home.mail.signal_from_loop();
        self.env.self_signalled = true;
    }

    /// The loop's number: see [`LoopHandle::number`](crate::LoopHandle::number).
    #[must_use]
    pub fn number(&self) -> u32 {
        self.home.mail.waker.number()
    }

    /// This turn for an inner protocol, in whose layer this turn happens.
    ///
    /// ```
    /// use tidewire::{Closed, Cx, Input, Next, Protocol, Turn};
    ///
    /// /// Drops all input, and tells the protocol inside how it ended.
    /// struct Deaf<P>(P);
    ///
    /// impl<P: Protocol> Protocol for Deaf<P> {
    ///     type Local = P::Local;
    ///     type Message = P::Message;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
    ///         self.0.closed(why, &mut turn.of());
    ///     }
    /// }
    /// ```
    pub fn of<Q>(&mut self) -> Turn<'_, Q>
    where
        Q: Protocol<Local = P::Local, Message = P::Message>,
    {
        Turn {
            local: &mut *self.local,
            env: &mut *self.env,
            home: self.home,
            gone: self.gone,
        }
    }
}
