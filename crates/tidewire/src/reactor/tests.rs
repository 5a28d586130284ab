//! What loops have in common and only their inside can show.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::build::engine::{self, Engine};
use crate::driver::completion as uring;
use crate::kernel::clock::Clock;
use crate::protocol::connection::{Cx, Protocol};
use crate::protocol::service::Service;
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::core::{Core, Plan};
use crate::reactor::host::host_of;
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::{LoopSetup, Spread};
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;
use crate::{Input, Limits, LoopHandle, Refusal, TcpOptions};

/// The core of a loop without services.
pub(super) fn core() -> Core {
    let plan = Plan {
        throttles: Arc::default(),
        log_connections: false,
        made: MakeShares::default(),
        shares: SendShares::default(),
        received: ReceiveShares::default(),
        memory: Arc::default(),
        hosts: Vec::new(),
        chunk: 4 << 10,
        buffers: 1,
    };
    let waker = Arc::new(Waker::new());
    Core::new(
        &plan,
        waker,
        Arc::default(),
        Clock::System,
        Rng::from_seed(1),
    )
}

struct Echo;

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

struct EchoService;

impl Service for EchoService {
    type Conn = Echo;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Echo, Refusal> {
        Ok(Echo)
    }
}

/// The acceptor ends before the loops are told to stop, but what it has sent may not have been
/// looked at by then.
#[test]
fn a_connection_handed_over_just_before_a_stop_is_served() {
    for engine in [Engine::Epoll, Engine::Uring] {
        if engine == Engine::Uring
            && let Err(why) = uring::works()
        {
            eprintln!("uring skipped: {why}");
            continue;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let patience = Some(Duration::from_secs(20));
        client.set_read_timeout(patience).unwrap();
        client.write_all(b"hello").unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let (socket, peer) = listener.accept().unwrap();
        let hosted = host_of(EchoService, Limits::default());
        let permit = hosted.door.admit(0, &peer.into(), Instant::default());
        let permit = permit.unwrap();
        let setup = LoopSetup {
            plan: Arc::new(Plan {
                throttles: Arc::default(),
                log_connections: false,
                made: MakeShares::default(),
                shares: SendShares::default(),
                received: ReceiveShares::default(),
                memory: Arc::default(),
                hosts: vec![hosted],
                chunk: 4 << 10,
                buffers: 4,
            }),
            dial_options: Arc::new(TcpOptions::default()),
            names: Arc::default(),
            busy_poll: Duration::ZERO,
            direct: false,
            clock: Arc::default(),
            registry: Arc::default(),
            inbox: 64,
            listeners: Vec::new(),
            spread: Spread::Here,
            cpu: None,
        };
        let waker = Arc::new(Waker::new());
        setup.clock.set(Duration::from_secs(10));
        let adopt = Command::Adopt {
            socket: OwnedFd::from(socket).into(),
            listener: 0,
            service: 0,
            peer: peer.into(),
            permit,
        };
        waker.send(adopt).unwrap();
        waker.stop(Stop::Graceful);
        let (ready, _readied) = mpsc::channel();
        engine::run(engine, setup, waker, Arc::default(), &ready).unwrap();
        let mut back = String::new();
        client.read_to_string(&mut back).unwrap();
        assert_eq!(back, "hello", "on {engine}");
    }
}
