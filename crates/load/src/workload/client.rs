//! One connection of a load: the part that all kinds share.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidewire::{
    Closed, Conns, Cx, Dial, Input, Instant, Link, LoopHandle, Next, Origin, Peer, Protocol,
    Refusal, Service, Turn,
};

use super::failure::Failure;
use super::fault::{Fault, Wrong};
use super::findings::Moved;
use super::stage::{Desk, Phase, Stage};

/// One kind of load on one connection. A driver sends at most one batch at a time: the connection's
/// marks are set so that [`Link::full`] is true until the kernel has taken all output, and then
/// [`Driver::send`] is called again.
pub(super) trait Driver: Sized + Send + 'static {
    /// The connection is there; nothing that counts may be sent before [`Driver::send`].
    fn greet(&mut self, link: &mut Link<'_>) {
        let _ = link;
    }

    /// Sends the next batch if it is time for it and nothing is queued.
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk);

    /// Checks the received bytes. Returns how much of it is dealt with.
    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong>;

    /// The connection's timer has expired.
    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong>;

    /// The server sends nothing more on this connection.
    fn finished(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong> {
        let _ = (link, desk);
        Ok(())
    }

    /// The server has closed the connection. If the protocol allows that here, the load continues on another
    /// connection, on which the next [`Driver::send`] begins with what is still owed.
    fn moves(&mut self, why: Closed) -> Option<Moved> {
        let _ = why;
        None
    }

    /// The connection is lost, and the user wants the load to go on over another one: forgets what was owed, and says how
    /// many messages that were. `None` if this load cannot.
    fn abandon(&mut self, desk: &mut Desk) -> Option<u64> {
        let _ = desk;
        None
    }

    /// Tells the connection that no new message is to be sent.
    fn end(&mut self, link: &mut Link<'_>, desk: &mut Desk);

    /// Everything is sent and answered, or, if nothing is ever answered, the connection has only to
    /// be closed in order.
    fn is_done(&self) -> bool;

    /// The server owes something: if nothing moves, it has stalled.
    fn is_waiting(&self) -> bool;

    /// A part of a reply has come, and the rest has not.
    fn is_in_a_reply(&self) -> bool {
        false
    }

    /// The connection has ended at `now`, as planned, because its work is done. Returns when the
    /// request of the next connection is due, perhaps in the past; `None` if none follows.
    fn follows(&self, now: Instant) -> Option<Instant> {
        let _ = now;
        None
    }

    /// The replies that the server still owes, for the message when a connection is lost.
    fn owed(&self) -> String;
}

/// How long a connection waits for each useless connection before it.
const BARREN_PAUSE: Duration = Duration::from_millis(10);

/// How long a connection that was refused waits for the next try, where the load is to go on.
const REFUSED_PAUSE: Duration = Duration::from_millis(20);

/// Whether the peer has ended the connection, in order or not.
pub(super) fn is_lost_by_peer(why: Closed) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    match why {
        Closed::Finished | Closed::LingerExpired | Closed::Reset => true,
        Closed::ByProtocol(why) => why == tidewire_tls::CUT,
        Closed::Failed(kind) => {
            matches!(
                kind,
                BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected
            )
        }
        _ => false,
    }
}

/// Drivers between two connections, by their numbers, and since when they are.
type Parked<D> = Arc<Mutex<BTreeMap<u64, (D, Instant)>>>;

/// One connection.
pub(super) struct Client<D> {
    driver: D,
    parked: Parked<D>,
    token: u64,
    /// The route by which the connection is dialled again.
    route: Route,
    /// Answers never come: that the server has everything shows when it closes in order.
    silent: bool,
    began: bool,
    ended: bool,
    /// The stage knows that this connection is done, or why it never will be.
    reported: bool,
}

impl<D: Driver> Client<D> {
    fn obey(&mut self, cx: &mut Cx<'_, Self>) {
        let phase = cx.local.stage.phase();
        if phase >= Phase::Sending && !self.began {
            self.began = true;
            self.driver.send(&mut cx.link, cx.local);
        } else if phase == Phase::Sending && cx.local.stage.rounds().is_some() {
            self.driver.send(&mut cx.link, cx.local);
        }
        if phase == Phase::Ending && !self.ended {
            self.ended = true;
            if cx.local.is_open_loop() {
                // Messages that are due and have room go out: a timer that is late by a moment
                // drops nothing.
                self.driver.send(&mut cx.link, cx.local);
            } else if self.driver.is_waiting() {
                cx.local.owed_at_end();
            }
            self.driver.end(&mut cx.link, cx.local);
        }
        self.report(cx);
    }

    /// Dials the connection that follows this one, in loads in which one follows the other.
    fn follow(&self, turn: &mut Turn<'_, Self>) -> bool {
        let Some(due) = self.driver.follows(turn.now()) else {
            return false;
        };
        if self.driver.is_done() {
            turn.local.stage.done();
            return true;
        }
        turn.local.stage.asleep(self.token, due);
        let pause = due.since(turn.now());
        turn.dial(self.route.dial(self.token).after(pause));
        true
    }

    /// Goes on over another connection.
    fn go_on(self, pause: Duration, turn: &mut Turn<'_, Self>) {
        if self.driver.is_done() {
            return turn.local.stage.done();
        }
        let (token, dial) = (self.token, self.route.dial(self.token).after(pause));
        let parked = self.parked;
        let mut all = parked.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(token, (self.driver, turn.now()));
        drop(all);
        turn.dial(dial);
    }

    fn report(&mut self, cx: &mut Cx<'_, Self>) {
        if self.reported || !self.began || !self.driver.is_done() {
            return;
        }
        if self.silent {
            cx.link.finish();
        } else {
            self.reported = true;
            cx.local.stage.done();
        }
    }

    fn wrong(&mut self, Wrong { fault, what }: Wrong, cx: &mut Cx<'_, Self>) {
        let connection = self.token;
        self.fail(
            Failure::WrongReply {
                connection,
                fault,
                what,
            },
            cx,
        );
    }

    fn fail(&mut self, failure: Failure, cx: &mut Cx<'_, Self>) {
        self.reported = true;
        cx.local.stage.fail(failure);
        cx.link.abort();
    }
}

impl<D: Driver> Protocol for Client<D> {
    type Local = Desk;
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.set_marks(0, 1);
        self.driver.greet(&mut cx.link);
        match cx.local.stage.phase() {
            Phase::Gathering => cx.local.stage.opened(),
            // A connection that follows another one, perhaps too late.
            Phase::Sending | Phase::Ending => cx.local.stage.awake(self.token),
        }
        self.obey(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        match self.driver.received(input.bytes(), &mut cx.link, cx.local) {
            Ok(n) => input.consume(n),
            Err(wrong) => {
                self.wrong(wrong, cx);
                return Next::More;
            }
        }
        self.report(cx);
        Next::More
    }

    fn peer_finished(&mut self, _unread: usize, cx: &mut Cx<'_, Self>) {
        if let Err(wrong) = self.driver.finished(&mut cx.link, cx.local) {
            return self.wrong(wrong, cx);
        }
        self.report(cx);
        cx.link.finish();
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        if self.began {
            self.driver.send(&mut cx.link, cx.local);
        }
        self.report(cx);
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        match self.driver.expired(&mut cx.link, cx.local) {
            Ok(()) => self.report(cx),
            Err(wrong) => self.wrong(wrong, cx),
        }
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        if !self.reported && self.driver.is_waiting() {
            let stalled = Failure::Stalled {
                connection: self.token,
                fault: match self.driver.is_in_a_reply() {
                    true => Fault::ShortReply,
                    false => Fault::NoReply,
                },
                after: self.route.stall,
                owed: self.driver.owed(),
            };
            self.fail(stalled, cx);
        }
    }

    fn closed(mut self, why: Closed, turn: &mut Turn<'_, Self>) {
        if self.reported {
            return;
        }
        if why == Closed::Finished && self.follow(turn) {
            return;
        }
        if self.silent && self.driver.is_done() && why == Closed::Finished {
            return turn.local.stage.done();
        }
        let moved = self.began.then(|| self.driver.moves(why)).flatten();
        if let Some(moved) = moved {
            turn.local.moved(&moved);
            return self.go_on(BARREN_PAUSE * moved.barren, turn);
        }
        let owed = self.driver.owed();
        if self.began
            && self.route.reconnect
            && is_lost_by_peer(why)
            && let Some(lost) = self.driver.abandon(turn.local)
        {
            turn.local.lost(lost);
            if !self.follow(turn) {
                // A server that turns all away is asked a hundred times a second.
                self.go_on(BARREN_PAUSE, turn);
            }
            return;
        }
        turn.local.stage.fail(Failure::Lost {
            connection: self.token,
            why: why.to_string(),
            owed,
        });
    }
}

/// The server's address of a connection, and its own.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) to: SocketAddr,
    /// How many addresses of this host they come from: 127.0.0.1 and the following ones. 1 leaves
    /// it to the system.
    pub(super) sources: u32,
    /// How long nothing may move on a connection that is owed something.
    pub(super) stall: Duration,
    /// A connection that the server closes is made again, whatever it owed.
    pub(super) reconnect: bool,
}

impl Route {
    pub(super) fn dial(&self, token: u64) -> Dial {
        let dial = Dial::to(self.to).token(token);
        if self.sources <= 1 {
            return dial;
        }
        let number = (token % u64::from(self.sources)) as u32;
        let from = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + number);
        dial.from(SocketAddr::from((from, 0)))
    }
}

/// Makes the connections of a load.
pub(super) struct Clients<D> {
    stage: Arc<Stage>,
    route: Route,
    silent: bool,
    make: Box<dyn Fn(u64) -> D + Send + Sync>,
    parked: Parked<D>,
}

impl<D: Driver> Clients<D> {
    /// `make` is given the connection's number, from 0.
    pub(super) fn new(
        stage: &Arc<Stage>,
        route: Route,
        silent: bool,
        make: impl Fn(u64) -> D + Send + Sync + 'static,
    ) -> Clients<D> {
        Clients {
            stage: stage.clone(),
            route,
            silent,
            make: Box::new(make),
            parked: Parked::default(),
        }
    }
}

impl<D> fmt::Debug for Clients<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clients")
    }
}

impl<D: Driver> Service for Clients<D> {
    type Conn = Client<D>;

    fn on_loop(&self, at: LoopHandle<()>) -> Desk {
        Desk::new(&self.stage, at)
    }

    fn accept(&self, from: &Peer, _: &mut Desk) -> Result<Client<D>, Refusal> {
        let Origin::Dialled(token) = from.origin else {
            return Err(Refusal::ByService("a load only dials"));
        };
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = parked.remove(&token);
        drop(parked);
        Ok(Client {
            driver: driver.map_or_else(|| (self.make)(token), |(driver, _)| driver),
            parked: self.parked.clone(),
            token,
            route: self.route.clone(),
            silent: self.silent,
            began: false,
            ended: false,
            reported: false,
        })
    }

    fn loop_ended(&self, desk: Desk) {
        desk.close();
    }

    fn woken(&self, desk: &mut Desk, all: &mut Conns<'_, Client<D>>) {
        desk.show();
        // Both functions are called, because each call notes what connections were told.
        let (round, news) = (desk.is_new_round(), desk.is_news());
        if round || news {
            all.each(desk, |client, cx| client.obey(cx));
        }
    }

    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, Client<D>>) {
        use io::ErrorKind::{ConnectionRefused, ConnectionReset, TimedOut};
        let stage = &turn.local.stage;
        let by_server = matches!(error.kind(), ConnectionRefused | ConnectionReset | TimedOut);
        let parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let since = parked.get(&token).map(|(_, since)| *since);
        drop(parked);
        if let Some(since) = since
            && self.route.reconnect
            && by_server
            && turn.now().since(since) < self.route.stall
        {
            // A server that is starting again takes its time.
            return turn.dial(self.route.dial(token).after(REFUSED_PAUSE));
        }
        let error = error.to_string();
        stage.fail(match stage.phase() {
            // The server took connections before.
            Phase::Sending | Phase::Ending if by_server => Failure::Lost {
                connection: token,
                why: format!("no other connection could be made: {error}"),
                owed: "a load that goes on".into(),
            },
            _ => Failure::Connect { error },
        });
    }
}
