//! The two traits that everything is written against: a [`Protocol`] is one connection, a
//! [`Service`] makes them.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use crate::build::dial::Dial;
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::protocol::turn::Turn;
use crate::reach::home::Home;
use crate::reach::mailbox::{Handle, LoopHandle, NoRoom};
use crate::reach::woken::Conns;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;

/// One connection: bytes in, bytes out, and nothing else. It opens no socket, reads no clock,
/// starts no thread, waits for nothing; [`Cx::link`] is its only way out.
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
    /// What others may post to a connection, or connections of one loop [tell](Cx::tell) each other.
    /// Handles can be taken to other threads if it is [`Send`]. One that carries a
    /// [`Chunk`](crate::Chunk) is not, and stays on its loop.
    type Message: 'static;

    /// Whether [`look_ahead`](Protocol::look_ahead) is to be called. It costs something only where this
    /// is true.
    const LOOKS_AHEAD: bool = false;

    /// These bytes will be offered to [`received`](Protocol::received) in this turn of the loop, behind
    /// those carried. Called for each of the connections that have become readable together, up to
    /// [`LOOK_AHEAD_MAX`](crate::LOOK_AHEAD_MAX) of them and one piece of each, before `received` is
    /// called for any: a service that will look things up in memory can begin to bring all of them into
    /// the cache. A hint and no more: what comes alone is not announced, and an announced connection
    /// may be closed or paused by another one first.
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

    /// Bytes have come: those left unconsumed before, followed by new ones. What is left
    /// unconsumed is carried to the next call; the result says when that should be.
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next;

    /// Output had been full and has fallen to the low mark. If `received` returned
    /// [`Next::AfterDrain`], it is called again right after this.
    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// The peer has finished sending, and all that it sent has been offered to `received`; `unread`
    /// bytes of it were left unconsumed. Default: finish too.
    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        let _ = unread;
        cx.link.finish();
    }

    /// The peer finished sending while reading was paused by [`Link::pause`], perhaps with bytes
    /// unread: it may have gone for good. For connections that wait on somebody's behalf. Called at
    /// most once; `peer_finished` still follows when reading is resumed. Default: nothing.
    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// The timer has expired.
    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// Nothing was received or sent for [`Limits::idle`](crate::Limits::idle). Default: finish.
    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.finish();
    }

    /// The peer has said nothing within [`Limits::first_byte`](crate::Limits::first_byte), or has not
    /// completed a request within [`Limits::request`](crate::Limits::request). Default: the connection
    /// is cut for it ([`Closed::FirstByteLate`], [`Closed::RequestLate`]). A protocol may say something
    /// and [finish](Link::finish) instead, which is recorded as the same. One that goes on gives the peer as much time again from where more of it comes.
    fn overdue(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.cut();
    }

    /// Somebody posted a message through a [`Handle`], or another connection of this loop
    /// [told](Cx::tell) it.
    fn posted(&mut self, message: Self::Message, cx: &mut Cx<'_, Self>) {
        let _ = (message, cx);
    }

    /// A message that this connection [told](Cx::tell) another comes back, because that one is not
    /// open (any more). Default: drop it; it is counted.
    fn undelivered(&mut self, to: ConnId, message: Self::Message, cx: &mut Cx<'_, Self>) {
        let _ = (to, message, cx);
    }

    /// The loops are stopping, or the connection has been open for as long as
    /// [it may](crate::Limits::lifetime). All requests received before have been offered. Default: finish; a
    /// protocol that still owes replies may finish later, within the stop's deadline or, at the end of
    /// its lifetime, [`Limits::linger`](crate::Limits::linger).
    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.finish();
    }

    /// The connection is gone.
    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        let _ = (why, turn);
    }
}

/// What a callback is given.
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
    /// The same for a protocol inside, whose link this is too.
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
    #[must_use]
    pub fn handle(&self) -> Handle<P::Message> {
        Handle::new(self.link.state.id, self.home.mail.clone())
    }

    /// Has [`Service::woken`] called on this loop after this callback, once however often asked.
    /// This is how a connection reaches the others of its loop.
    pub fn wake_service(&mut self) {
        self.home.mail.signal_from_loop();
        self.link.env.self_signalled = true;
    }

    /// Tells another connection of this service on this loop something: its
    /// [`posted`](Protocol::posted) is called in this turn of the loop, after this callback has
    /// returned. Takes no lock and wakes nobody, and the message may carry what cannot leave the loop,
    /// such as a [`Chunk`](crate::Chunk) for the other to write without a copy. Messages arrive in the
    /// order in which they were told.
    ///
    /// If the other is not open when the message is to be delivered, the message comes back to
    /// [`undelivered`](Protocol::undelivered) and is counted. Names are not used again, so it never
    /// reaches a wrong one. Two connections that tell each other something all the time give others
    /// their turn.
    ///
    /// # Errors
    /// [`NoRoom`] with the message when [`TELLS_MAX`](crate::TELLS_MAX) of the service wait on this loop.
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
        self.link.env.told = true;
        self.home.tell(to, Some(self.link.state.id), message)
    }

    /// Makes an outgoing connection of this service on this loop, when the callback has returned. If
    /// it cannot be made, [`Service::dial_failed`] is called. The threads engine runs it on this
    /// connection's thread, so that the two can [tell](Cx::tell) each other things.
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
        self.link.env.dials.push((self.home.mail.service(), dial));
    }

    /// The loop's number: see [`LoopHandle::number`].
    #[must_use]
    pub fn number(&self) -> u32 {
        self.home.mail.waker.number()
    }
}

/// Makes the connections of one kind. Settings and state shared by all loops live in `self`.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use tidewire::{Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service};
///
/// /// Tells each client the how-manieth it is. State that all loops share is in the service.
/// #[derive(Default)]
/// struct Door {
///     count: AtomicU64,
/// }
///
/// struct Visitor(u64);
///
/// impl Service for Door {
///     type Conn = Visitor;
///
///     fn on_loop(&self, _: LoopHandle<()>) {}
///
///     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Visitor, Refusal> {
///         Ok(Visitor(self.count.fetch_add(1, Relaxed) + 1))
///     }
/// }
///
/// impl Protocol for Visitor {
///     type Local = ();
///     type Message = ();
///
///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
///         cx.link.write(format!("you are number {}\n", self.0).as_bytes());
///     }
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
///         input.consume(input.len());
///         Next::More
///     }
/// }
///
/// let got = tidewire::sim::chunking::collect(Door::default(), b"", &[], true);
/// assert_eq!(got.output, b"you are number 1\n");
/// ```
pub trait Service: Send + Sync + 'static {
    /// One connection.
    type Conn: Protocol;

    /// Makes the state for one loop. `at` reaches the loop from anywhere, for as long as anybody
    /// keeps it. The threads engine has a loop for each connection. When the loop ends its state is handed
    /// to [`loop_ended`](Service::loop_ended).
    fn on_loop(
        &self,
        at: LoopHandle<<Self::Conn as Protocol>::Message>,
    ) -> <Self::Conn as Protocol>::Local;

    /// Makes the protocol for a new connection, accepted or dialled, or turns it away.
    ///
    /// # Errors
    /// A [`Refusal`] ends the connection ([`refusal_reply`](Service::refusal_reply)) and is counted.
    fn accept(
        &self,
        from: &Peer,
        local: &mut <Self::Conn as Protocol>::Local,
    ) -> Result<Self::Conn, Refusal>;

    /// What an accepted connection is told that is turned away, by this service, by a limit or by
    /// [rules](crate::admission): the words of the protocol for "try again later", in a few hundred bytes. They are
    /// sent if the kernel takes them at once, and our side is closed behind them. `None`, the default, resets the
    /// connection, which costs least.
    ///
    /// Called off the loop's connections, mostly before anything is known of `from` but its address.
    ///
    /// ```
    /// use std::borrow::Cow;
    /// # use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = (); type Message = ();
    /// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next { cx.link.forward_all(i) } }
    ///
    /// struct Polite;
    ///
    /// impl Service for Polite {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, _: LoopHandle<()>) {}
    ///
    ///     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> {
    ///         Ok(Conn)
    ///     }
    ///
    ///     fn refusal_reply(&self, why: Refusal, _: &Peer) -> Option<Cow<'static, [u8]>> {
    ///         why.is_temporary().then_some(Cow::Borrowed(b"full, come back later\n"))
    ///     }
    /// }
    ///
    /// # use tidewire::sim::Sim;
    /// let mut sim = Sim::new(1);
    /// let addr = sim.serve(Polite, Limits { connections: 1, ..Limits::default() });
    /// let (_first, second) = (sim.plain(&addr), sim.plain(&addr));
    /// sim.run_for(std::time::Duration::from_secs(1));
    /// assert_eq!(sim.received(second), b"full, come back later\n");
    /// ```
    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>> {
        let _ = (why, from);
        None
    }

    /// Whether this is a proxy, which will say for whom it speaks: then its own address is not counted by
    /// [rules](crate::admission), but that of the client which it names. Default: nobody is; the
    /// [PROXY protocol](crate::proxy)'s layer knows its proxies.
    fn speaks_for_others(&self, from: &Peer) -> bool {
        let _ = from;
        false
    }

    /// Somebody signalled this service on this loop, with [`LoopHandle::signal`] or
    /// [`Cx::wake_service`]; many signals may have become one call.
    fn woken(&self, local: &mut <Self::Conn as Protocol>::Local, all: &mut Conns<'_, Self::Conn>) {
        let _ = (local, all);
    }

    /// The service's timer on this loop has expired: see [`Conns::set_timer`].
    ///
    /// ```
    /// use std::time::Duration;
    /// # use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = (); type Message = ();
    /// #   fn received(&mut self, _: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next { Next::More } }
    ///
    /// /// Says something to everybody once a minute.
    /// struct Announcer;
    ///
    /// impl Service for Announcer {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, at: LoopHandle<()>) {
    ///         at.signal(); // the first call of `woken` sets the timer
    ///     }
    ///
    ///     fn woken(&self, _: &mut (), all: &mut Conns<'_, Conn>) {
    ///         all.set_timer_after(Duration::from_secs(60));
    ///     }
    ///
    ///     fn expired(&self, local: &mut (), all: &mut Conns<'_, Conn>) {
    ///         all.each(local, |_, cx| cx.link.write(b"another minute\n"));
    ///         all.set_timer_after(Duration::from_secs(60));
    ///     }
    /// #   fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> { Ok(Conn) }
    /// }
    /// # use tidewire::sim::{Conditions, Sim};
    /// # let mut sim = Sim::under(1, Conditions::calm());
    /// # let addr = sim.serve(Announcer, Limits { idle: None, ..Limits::default() });
    /// # let peer = sim.plain(addr);
    /// # sim.run_for(Duration::from_secs(200));
    /// # assert_eq!(sim.received(peer).len(), 3 * 15);
    /// ```
    fn expired(
        &self,
        local: &mut <Self::Conn as Protocol>::Local,
        all: &mut Conns<'_, Self::Conn>,
    ) {
        let _ = (local, all);
    }

    /// A dial did not become a connection: all its attempts failed, or the connection was refused
    /// when it stood, by a limit or by [`accept`](Service::accept). Called once for each dial that
    /// was taken and did not become a connection. While the loops stop every dial fails; one that is
    /// made here again and again then is dropped after a while.
    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, Self::Conn>) {
        let _ = (token, error, turn);
    }

    /// A loop has ended, and this is what is left of its state. The counterpart of
    /// [`on_loop`](Service::on_loop): called once for each call of it, on the loop's own thread, when no
    /// connection of the loop is served any more, also where the loop has failed. (It says when, because "off
    /// the loop" means other threads here.)
    fn loop_ended(&self, local: <Self::Conn as Protocol>::Local) {
        drop(local);
    }
}

/// A service that its owner keeps a hold of, to share it or to look at its state.
impl<S: Service> Service for Arc<S> {
    type Conn = S::Conn;

    fn on_loop(
        &self,
        at: LoopHandle<<S::Conn as Protocol>::Message>,
    ) -> <S::Conn as Protocol>::Local {
        (**self).on_loop(at)
    }

    fn accept(
        &self,
        from: &Peer,
        local: &mut <S::Conn as Protocol>::Local,
    ) -> Result<S::Conn, Refusal> {
        (**self).accept(from, local)
    }

    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>> {
        (**self).refusal_reply(why, from)
    }

    fn speaks_for_others(&self, from: &Peer) -> bool {
        (**self).speaks_for_others(from)
    }

    fn woken(&self, local: &mut <S::Conn as Protocol>::Local, all: &mut Conns<'_, S::Conn>) {
        (**self).woken(local, all);
    }

    fn expired(&self, local: &mut <S::Conn as Protocol>::Local, all: &mut Conns<'_, S::Conn>) {
        (**self).expired(local, all);
    }

    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, S::Conn>) {
        (**self).dial_failed(token, error, turn);
    }

    fn loop_ended(&self, local: <S::Conn as Protocol>::Local) {
        (**self).loop_ended(local);
    }
}
