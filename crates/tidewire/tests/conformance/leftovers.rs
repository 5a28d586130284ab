//! What loops leave behind: no descriptors, no counters that are not added up, no silence.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::{
    Cx, Input, Limits, Listen, LoopHandle, Next, Peer, Protocol, Refusal, Service, Stopper,
    on_input,
};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::hosting::host;
use crate::process::{descriptors, eventually};
use crate::record::ON_PURPOSE;
use crate::roles::Echo;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(handles_do_not_keep_descriptors, alone),
        case!(
            loops_that_cannot_be_set_up_are_counted,
            on = Variant::is_threads
        ),
        case!(
            handles_of_one_service_cost_others_nothing,
            alone,
            on = Variant::is_threads
        ),
        case!(a_stop_is_waited_for),
    ]
}

fn handles_do_not_keep_descriptors(v: Variant) {
    let before = descriptors();
    let server = Setup::on(v).reachable().start(|| Echo);
    let running = descriptors();
    for _ in 0..200 {
        let mut client = server.connect();
        client.send(b"x");
        client.expect(b"x");
    }
    server.record.until("all ends", |r| r.closed() == 200);
    eventually("the connections' descriptors", || descriptors() == running);
    let (running, record) = server.into_parts();
    running.stop(Duration::from_secs(10));
    eventually("the loops' descriptors", || descriptors() == before);
    assert!(
        !record.lock().loops.is_empty(),
        "handles are kept all the time"
    );
}

/// Keeps the handle of each loop that it is hosted on.
struct Keeper(Arc<Mutex<Vec<LoopHandle<()>>>>);

impl Service for Keeper {
    type Conn = Never;
    fn on_loop(&self, at: LoopHandle<()>) {
        self.0.lock().expect("not poisoned").push(at);
    }
    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Never, Refusal> {
        Ok(Never)
    }
}

/// A thread has one service's connection, and hosts no other service: a connection that no thread
/// can reach costs one descriptor, whatever its neighbours keep.
fn handles_of_one_service_cost_others_nothing(v: Variant) {
    const CLIENTS: usize = 20;
    let mut builder = v.builder();
    let kept = Arc::<Mutex<Vec<LoopHandle<()>>>>::default();
    let keeper = builder.service(Keeper(kept.clone()));
    let echo = builder.service(on_input(|input, link| link.forward_all(input)));
    builder.listen(echo, Listen::at("127.0.0.1:0"));
    builder.listen(keeper, Listen::at("127.0.0.1:0"));
    let running = builder.start().expect("the server starts");
    let addr = |i: usize| running.addrs()[i].tcp().expect("TCP");
    let idle = descriptors();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(addr(0))).collect();
    for client in &mut clients {
        client.send(b"x");
        client.expect(b"x");
    }
    assert_eq!(
        descriptors() - idle,
        2 * CLIENTS,
        "both ends of each, no more"
    );
    let loops = || kept.lock().expect("not poisoned").len();
    assert_eq!(loops(), 1, "the acceptor's");
    let reached = Client::connect(addr(1));
    eventually("a thread that can be woken", || {
        loops() == 2 && descriptors() - idle == 2 * CLIENTS + 3
    });
    drop((clients, reached));
    eventually("their ends", || descriptors() == idle);
    running.stop(Duration::from_secs(10));
}

/// Panics wherever it is asked for the state of a loop, but for the first: a server whose first loop
/// cannot be set up does not start.
struct Unborn;

struct Never;

impl Protocol for Never {
    type Local = ();
    type Message = ();
    fn received(&mut self, _: &mut Input<'_>, _: &mut Cx<'_, Never>) -> Next {
        Next::More
    }
}

impl Service for Unborn {
    type Conn = Never;
    fn on_loop(&self, at: LoopHandle<()>) {
        assert!(at.number() == 0, "{ON_PURPOSE}");
    }
    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Never, Refusal> {
        Ok(Never)
    }
}

/// The threads engine makes a loop for each connection, when it comes.
fn loops_that_cannot_be_set_up_are_counted(v: Variant) {
    let server = host(v, Unborn, Limits::default());
    for _ in 0..20 {
        Client::connect_to_be_reset(server.addr());
    }
    eventually("all refused", || {
        server.counters().refused_for(Refusal::Panicked) == 20
    });
    let counters = server.stop(Duration::from_secs(10));
    assert_eq!((counters.accepted, counters.open), (20, 0));
}

fn a_stop_is_waited_for(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    let (running, _record) = server.into_parts();
    let (waiter, stopper): (_, Stopper) = (running.waiter(), running.stopper());
    assert_eq!(waiter.wait_for(Duration::ZERO), None);
    let waits = std::thread::spawn(move || running.wait());
    stopper.stop_now();
    assert_eq!(waits.join().expect("no panic"), Ok(()));
    assert_eq!(waiter.wait(), Ok(()));
    client.expect_reset();
}
