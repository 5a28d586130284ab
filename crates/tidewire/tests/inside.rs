//! A server is stopped, dropped and waited for inside its own callbacks: the call returns, and the loops end.
#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]

#[path = "shared/every_engine.rs"]
mod every_engine;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use every_engine::on_every_engine;
use tidewire::{
    Builder, Closed, ConnId, Conns, Cx, Dial, Drain, Input, Limits, LoopHandle, Next, Origin, Peer,
    Protocol, Refusal, Running, Service, Turn, Waiter, service_fn,
};

const PATIENCE: Duration = Duration::from_secs(30);

type Shared = Arc<Mutex<Option<Running>>>;
type Act = fn(Running) -> String;

/// Does something with the server that it is part of, at the first byte; then answers with that byte.
struct Acts {
    running: Shared,
    act: Act,
    said: Sender<String>,
}

impl Protocol for Acts {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let running = self.running.lock().unwrap().take();
        if let Some(running) = running {
            self.said.send((self.act)(running)).unwrap();
        }
        cx.link.forward_all(input)
    }
}

/// On every engine: the server does `act` in a callback, which says `expected`, and then ends; in order if it `answers`.
fn inside(act: Act, answers: bool, expected: &str) {
    let running = Shared::default();
    let (said, says) = channel();
    let theirs = running.clone();
    let build = move |builder: &mut Builder| {
        let (running, said) = (theirs.clone(), said.clone());
        let acts = move |_: &tidewire::Peer| Acts {
            running: running.clone(),
            act,
            said: said.clone(),
        };
        builder.serve("127.0.0.1:0", service_fn(acts));
    };
    on_every_engine(build, |started| {
        let engine = started.engine();
        let waiter: Waiter = started.waiter();
        let at = started.addrs()[0].tcp().unwrap();
        *running.lock().unwrap() = Some(started);
        let mut client = TcpStream::connect(at).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"x").unwrap();
        let said = says.recv_timeout(PATIENCE).expect("the call returns");
        assert_eq!(said, expected, "{engine}");
        let mut back = Vec::new();
        let end = client.read_to_end(&mut back);
        assert!(!answers || end.is_ok() && back == b"x", "{engine}: {end:?}");
        drop(client);
        assert_eq!(waiter.wait_for(PATIENCE), Some(Ok(())), "{engine}");
    });
}

#[test]
fn a_stop_inside_a_callback_returns_and_is_graceful() {
    inside(
        |running| running.stop(PATIENCE).accepted.to_string(),
        true,
        "1",
    );
}

#[test]
fn a_server_may_be_dropped_inside_a_callback() {
    fn dropped(running: Running) -> String {
        drop(running);
        "dropped".into()
    }
    inside(dropped, false, "dropped");
}

#[test]
fn a_wait_inside_a_callback_says_what_is_wrong() {
    fn waits(running: Running) -> String {
        let why = running.wait().unwrap_err();
        assert_eq!(running.waiter().wait_for(PATIENCE), None);
        let drain = running.drain(PATIENCE);
        assert!(!drain.wait_for(PATIENCE));
        drain.wait();
        why.to_string().split_once(" cannot ").unwrap().1.to_owned()
    }
    inside(
        waits,
        true,
        "be waited for: this is one of its own callbacks",
    );
}

/// The callbacks in which it is done.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Accept,
    Opened,
    Received,
    Writable,
    PeerFinished,
    HungUp,
    Expired,
    Idle,
    Overdue,
    Posted,
    Undelivered,
    Closed,
    Woken,
    ServiceExpired,
    DialFailed,
    DialledOpened,
    DialledClosed,
}

const WHEN: [When; 17] = [
    When::Accept,
    When::Opened,
    When::Received,
    When::Writable,
    When::PeerFinished,
    When::HungUp,
    When::Expired,
    When::Idle,
    When::Overdue,
    When::Posted,
    When::Undelivered,
    When::Closed,
    When::Woken,
    When::ServiceExpired,
    When::DialFailed,
    When::DialledOpened,
    When::DialledClosed,
];

/// The server's own handle, and what is done with it in which callback.
#[derive(Clone)]
struct Doing {
    when: When,
    running: Shared,
    act: Act,
    said: Sender<String>,
    /// A place to dial.
    elsewhere: SocketAddr,
}

impl Doing {
    fn is_now(&self, when: When) {
        if when == self.when
            && let Some(running) = self.running.lock().unwrap().take()
        {
            self.said.send((self.act)(running)).unwrap();
        }
    }
}

/// Brings about the callback that is wanted.
struct Anywhere {
    doing: Doing,
    is_dialled: bool,
}

impl Protocol for Anywhere {
    type Local = ();
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        if self.is_dialled {
            self.doing.is_now(When::DialledOpened);
            return cx.link.finish();
        }
        self.doing.is_now(When::Opened);
        match self.doing.when {
            When::Expired => cx.link.set_timer_after(Duration::from_millis(1)),
            When::Posted => assert!(cx.handle().try_post(()).is_ok()),
            When::Woken | When::ServiceExpired => cx.wake_service(),
            When::DialFailed => cx.dial(Dial::to("127.0.0.1:1").attempts(1)),
            When::DialledOpened | When::DialledClosed => cx.dial(Dial::to(self.doing.elsewhere)),
            // The others come when the client says something, or nothing.
            _ => {}
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        self.doing.is_now(When::Received);
        match self.doing.when {
            When::Overdue => return Next::AtLeast(2),
            When::HungUp => return Next::Paused,
            When::Writable => {
                input.consume(input.len());
                while !cx.link.full() {
                    cx.link.write(&[7; 1 << 10]);
                }
                return Next::More;
            }
            When::Undelivered => {
                let nobody = ConnId::from_bits(u64::MAX);
                assert!(cx.tell(nobody, ()).is_ok());
            }
            _ => {}
        }
        cx.link.forward_all(input)
    }

    fn writable(&mut self, _: &mut Cx<'_, Self>) {
        self.doing.is_now(When::Writable);
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.doing.is_now(When::PeerFinished);
        cx.link.finish();
    }

    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        self.doing.is_now(When::HungUp);
        cx.link.finish();
    }

    fn expired(&mut self, _: &mut Cx<'_, Self>) {
        self.doing.is_now(When::Expired);
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        self.doing.is_now(When::Idle);
        cx.link.finish();
    }

    fn overdue(&mut self, cx: &mut Cx<'_, Self>) {
        self.doing.is_now(When::Overdue);
        cx.link.finish();
    }

    fn posted(&mut self, (): (), _: &mut Cx<'_, Self>) {
        self.doing.is_now(When::Posted);
    }

    fn undelivered(&mut self, _: ConnId, (): (), _: &mut Cx<'_, Self>) {
        self.doing.is_now(When::Undelivered);
    }

    fn closed(self, _: Closed, _: &mut Turn<'_, Self>) {
        self.doing.is_now(match self.is_dialled {
            true => When::DialledClosed,
            false => When::Closed,
        });
    }
}

impl Service for Doing {
    type Conn = Anywhere;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, from: &Peer, (): &mut ()) -> Result<Anywhere, Refusal> {
        self.is_now(When::Accept);
        Ok(Anywhere {
            doing: self.clone(),
            is_dialled: matches!(from.origin, Origin::Dialled(_)),
        })
    }

    fn woken(&self, (): &mut (), all: &mut Conns<'_, Anywhere>) {
        self.is_now(When::Woken);
        all.set_timer_after(Duration::from_millis(1));
    }

    fn expired(&self, (): &mut (), _: &mut Conns<'_, Anywhere>) {
        self.is_now(When::ServiceExpired);
    }

    fn dial_failed(&self, _: u64, _: &io::Error, _: &mut Turn<'_, Anywhere>) {
        self.is_now(When::DialFailed);
    }
}

/// In every callback, of a connection and of a service: the call returns, and the server ends.
fn anywhere(act: Act) {
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    for when in WHEN {
        let (said, says) = channel();
        let doing = Doing {
            when,
            running: Shared::default(),
            act,
            said,
            elsewhere: elsewhere.local_addr().unwrap(),
        };
        let theirs = doing.clone();
        let build = move |builder: &mut Builder| {
            let mut limits = Limits::default();
            let soon = Some(Duration::from_millis(1));
            match when {
                When::Idle => limits.idle = soon,
                When::Overdue => limits.request = soon,
                _ => {}
            }
            let id = builder.service_with(theirs.clone(), limits);
            builder.listen(id, tidewire::Listen::at("127.0.0.1:0"));
        };
        on_every_engine(build, |started| {
            let what = format!("{when:?} on {}", started.engine());
            let waiter = started.waiter();
            let at = started.addrs()[0].tcp().unwrap();
            *doing.running.lock().unwrap() = Some(started);
            let mut client = TcpStream::connect(at).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            // The server may have ended already.
            let _ = client.write_all(b"x");
            match when {
                When::PeerFinished | When::HungUp | When::Closed => {
                    let _ = client.shutdown(Shutdown::Write);
                }
                _ => {}
            }
            let reads = thread::spawn(move || client.read_to_end(&mut Vec::new()));
            let said = says.recv_timeout(PATIENCE);
            assert_eq!(said.as_deref(), Ok("done"), "{what}");
            assert_eq!(waiter.wait_for(PATIENCE), Some(Ok(())), "{what}");
            // In order or by a reset: it was stopped, or dropped.
            let _ = reads.join().unwrap();
        });
    }
}

#[test]
fn a_server_may_be_stopped_in_any_callback() {
    anywhere(|running| {
        running.stop(Duration::from_millis(50));
        "done".into()
    });
}

#[test]
fn a_server_may_be_dropped_in_any_callback() {
    anywhere(|running| {
        drop(running);
        "done".into()
    });
}

/// Waits for a stop that others have begun, in a callback that the stop makes.
struct Drained {
    wanted: &'static str,
    has_waited: AtomicBool,
    drain: Arc<Mutex<Receiver<Drain>>>,
    said: Sender<&'static str>,
}

impl Drained {
    /// In the first such callback, which waits to be given what it is to wait for.
    fn waits(&self, what: &'static str) {
        if what != self.wanted || self.has_waited.swap(true, Relaxed) {
            return;
        }
        let drain = self.drain.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        assert!(!drain.wait_for(PATIENCE));
        drain.wait();
        self.said.send(what).unwrap();
    }
}

struct Conn(Arc<Drained>);

impl Protocol for Conn {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        cx.link.forward_all(input)
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        self.0.waits("draining");
        cx.link.finish();
    }
}

struct Drains(Arc<Drained>);

impl Service for Drains {
    type Conn = Conn;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Conn, Refusal> {
        Ok(Conn(self.0.clone()))
    }

    fn loop_ended(&self, (): ()) {
        self.0.waits("loop ended");
    }
}

#[test]
fn a_stop_may_be_waited_for_in_the_callbacks_that_it_makes() {
    for wanted in ["draining", "loop ended"] {
        let (give, drain) = channel();
        let (said, says) = channel();
        let drain = Arc::new(Mutex::new(drain));
        let build = move |builder: &mut Builder| {
            let drained = Drained {
                wanted,
                has_waited: AtomicBool::new(false),
                drain: drain.clone(),
                said: said.clone(),
            };
            builder.serve("127.0.0.1:0", Drains(Arc::new(drained)));
        };
        on_every_engine(build, |running| {
            let what = format!("{wanted} on {}", running.engine());
            let waiter = running.waiter();
            let mut client = TcpStream::connect(running.addrs()[0].tcp().unwrap()).unwrap();
            client.set_read_timeout(Some(PATIENCE)).unwrap();
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
            give.send(running.drain(Duration::from_secs(5))).unwrap();
            assert_eq!(says.recv_timeout(PATIENCE), Ok(wanted), "{what}");
            drop(client);
            assert_eq!(waiter.wait_for(PATIENCE), Some(Ok(())), "{what}");
        });
    }
}
