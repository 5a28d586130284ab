//! One connection of a load: what is the same for every kind.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tidewire::{
    Closed, Conns, Cx, Dial, Input, Instant, Link, LoopHandle, Next, Origin, Peer, Protocol,
    Refusal, Service, Turn,
};

use super::failure::Failure;
use super::fault::{Fault, Wrong};
use super::stage::{Desk, Phase, Stage};

/// One kind of load on one connection. It sends at most one batch at a time: the connection's
/// marks are set so that [`Link::full`] is true until the kernel has taken all that was written,
/// and then [`Driver::send`] is called again.
pub(super) trait Driver: Sized + 'static {
    /// The connection is there; nothing that counts may be sent before [`Driver::send`].
    fn greet(&mut self, link: &mut Link<'_>) {
        let _ = link;
    }

    /// Sends the next batch if it is time for it and nothing is queued.
    fn send(&mut self, link: &mut Link<'_>, desk: &mut Desk);

    /// Checks what came. Returns how much of it is dealt with.
    fn received(
        &mut self,
        bytes: &[u8],
        link: &mut Link<'_>,
        desk: &mut Desk,
    ) -> Result<usize, Wrong>;

    /// Its timer has expired.
    fn expired(&mut self, link: &mut Link<'_>, desk: &mut Desk) -> Result<(), Wrong>;

    /// Nothing new is to be sent.
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

    /// The connection has ended, at `now`, as one of this load does when its work is done: when the
    /// request of the one that follows it is due, perhaps long ago, if one does.
    fn follows(&self, now: Instant) -> Option<Instant> {
        let _ = now;
        None
    }

    /// What the server owes, for the message when a connection is lost.
    fn owed(&self) -> String;
}

/// One connection.
pub(super) struct Client<D> {
    driver: D,
    token: u64,
    /// How it is dialled again.
    route: Route,
    /// Answers never come: that the server has everything shows when it closes in order.
    silent: bool,
    began: bool,
    ended: bool,
    /// The stage knows that this one is done, or why it never will be.
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
                // What is due and has room goes out: a timer that is late by a moment drops nothing.
                self.driver.send(&mut cx.link, cx.local);
            }
            self.driver.end(&mut cx.link, cx.local);
        }
        self.report(cx);
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
            // One that follows another one, perhaps too late.
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

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        if self.reported {
            return;
        }
        if why == Closed::Finished
            && let Some(due) = self.driver.follows(turn.now())
        {
            if self.driver.is_done() {
                return turn.local.stage.done();
            }
            turn.local.stage.asleep(self.token, due);
            let pause = due.since(turn.now());
            return turn.dial(self.route.dial(self.token).after(pause));
        }
        let desk = &turn.local;
        if self.silent && self.driver.is_done() && why == Closed::Finished {
            return desk.stage.done();
        }
        desk.stage.fail(Failure::Lost {
            connection: self.token,
            why: why.to_string(),
            owed: self.driver.owed(),
        });
    }
}

/// Where connections go, and from where.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) to: SocketAddr,
    /// How many addresses of this host they come from: 127.0.0.1 and those behind it. 1 leaves it
    /// to the system.
    pub(super) sources: u32,
    /// How long nothing may move on a connection that is owed something.
    pub(super) stall: Duration,
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
        Ok(Client {
            driver: (self.make)(token),
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
        // Both are asked: each remembers what connections were told.
        let (round, news) = (desk.is_new_round(), desk.is_news());
        if round || news {
            all.each(desk, |client, cx| client.obey(cx));
        }
    }

    fn dial_failed(&self, _: u64, error: &io::Error, turn: &mut Turn<'_, Client<D>>) {
        let error = error.to_string();
        turn.local.stage.fail(Failure::Connect { error });
    }
}
