//! Looking ahead: what has come for several connections is announced before any of it is offered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidewire::sim::{Conditions, KernelFaults};
use tidewire::{
    Closed, Cx, Handle, Input, LOOK_AHEAD_MAX, Limits, LoopHandle, Next, Peer, Protocol, Refusal,
    Service,
};

use crate::case::{Case, case};
use crate::client::{Client, PATIENCE};
use crate::hosting::{Loops, host};
use crate::process::eventually;
use crate::record::ON_PURPOSE;
use crate::roles::{Rng, noise};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(
            what_comes_together_is_announced_before_any_of_it,
            on = |v| v.is_one_loop()
        ),
        case!(streams_are_whole_when_they_are_announced),
        case!(
            connection_that_goes_after_it_was_announced,
            on = |v| v.is_one_loop()
        ),
        case!(
            panic_while_looking_ahead_ends_one_connection,
            on = |v| v.is_one_loop()
        ),
    ]
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    Ahead(u8),
    Received(u8),
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    handles: Mutex<HashMap<u8, Handle<u8>>>,
    blocked: AtomicBool,
    release: AtomicBool,
}

/// Sends back what it gets. The first byte names the connection.
struct Announced(Arc<Shared>);

const PANICS: u8 = 200;
/// Told by the first of a batch, to the last.
const ABORT: u8 = 201;

struct Conn {
    shared: Arc<Shared>,
    name: Option<u8>,
}

impl Service for Announced {
    type Conn = Conn;
    fn on_loop(&self, _: LoopHandle<u8>) {}
    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> {
        Ok(Conn {
            shared: self.0.clone(),
            name: None,
        })
    }
}

impl Protocol for Conn {
    type Local = ();
    type Message = u8;
    const LOOKS_AHEAD: bool = true;

    fn look_ahead(&self, input: &[u8], _: &mut ()) {
        assert!(!input.is_empty());
        assert!(input[0] != PANICS, "{ON_PURPOSE}");
        if let Some(name) = self.name {
            self.shared
                .seen
                .lock()
                .expect("seen")
                .push(Seen::Ahead(name));
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        match self.name {
            None => {
                let name = input.bytes()[0];
                let handle = cx.handle();
                let mut handles = self.shared.handles.lock().expect("handles");
                handles.insert(name, handle);
                self.name = Some(name);
            }
            Some(name) => {
                let mut seen = self.shared.seen.lock().expect("seen");
                seen.push(Seen::Received(name));
            }
        }
        if input.bytes()[0] == ABORT {
            let (handles, me) = (self.shared.handles.lock().expect("handles"), cx.link.id());
            for handle in handles.values().filter(|h| h.id() != me) {
                assert!(cx.tell(handle.id(), ABORT).is_ok());
            }
        }
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }

    fn posted(&mut self, message: u8, cx: &mut Cx<'_, Self>) {
        if message == ABORT {
            return cx.link.abort();
        }
        // Keeps the loop busy.
        self.shared.blocked.store(true, SeqCst);
        let end = Instant::now() + PATIENCE;
        while !self.shared.release.load(SeqCst) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn start(v: Variant) -> (Loops<Announced>, Arc<Shared>) {
    if world::is_simulated() {
        // What has come together is heard of together, and buffers are as plenty as on this machine.
        world::with(|sim| {
            let usual = sim.conditions().clone();
            sim.set_conditions(Conditions {
                buffers: 64,
                kernel: KernelFaults::none(),
                ..usual
            });
        });
    }
    let shared = Arc::new(Shared::default());
    let loops = host(v, Announced(shared.clone()), Limits::default());
    (loops, shared)
}

/// Connections of one loop, to all of which something is sent while the loop is busy elsewhere.
fn crowd(server: &Loops<Announced>, shared: &Shared, say: impl Fn(u8) -> u8) -> Vec<Client> {
    const CROWD: u8 = 8;
    let mut blocker = server.connect();
    blocker.send(&[100]);
    blocker.expect(&[100]);
    let mut clients: Vec<Client> = (0..CROWD)
        .map(|name| {
            let mut client = server.connect();
            client.send(&[name]);
            client.expect(&[name]);
            client
        })
        .collect();
    let busy = shared.handles.lock().expect("handles").remove(&100);
    let hold = server.hold();
    if hold.is_none() {
        assert!(busy.expect("named").try_post(0).is_ok());
        while !shared.blocked.load(SeqCst) {
            std::thread::yield_now();
        }
    }
    for (name, client) in clients.iter_mut().enumerate() {
        client.send(&[say(name as u8)]);
    }
    shared.release.store(true, SeqCst);
    drop(hold);
    clients
}

fn what_comes_together_is_announced_before_any_of_it(v: Variant) {
    let (server, shared) = start(v);
    let mut clients = crowd(&server, &shared, |name| name);
    for (name, client) in clients.iter_mut().enumerate() {
        client.expect(&[name as u8]);
    }
    let seen = shared.seen.lock().expect("seen").clone();
    let ahead = |s: &&Seen| matches!(s, Seen::Ahead(_));
    let first = seen.iter().take_while(ahead).count();
    assert!((2..=LOOK_AHEAD_MAX).contains(&first), "{seen:?}");
    for name in 0..clients.len() as u8 {
        let count = |what: Seen| seen.iter().filter(|s| **s == what).count();
        assert_eq!(count(Seen::Received(name)), 1, "{seen:?}");
        assert!(count(Seen::Ahead(name)) <= 1, "{seen:?}");
    }
    drop(clients);
    server.stop(PATIENCE);
}

/// Many streams at once, in pieces of all sizes, with readers that stop and peers that reset.
fn streams_are_whole_when_they_are_announced(v: Variant) {
    let (server, _) = start(v);
    let streams: Vec<_> = (0..24)
        .map(|seed| {
            let mut client = server.connect();
            world::spawn(move || {
                let mut rng = Rng(seed);
                let sent = noise(seed, rng.between(1, 1 << 20));
                // Not one of the bytes that mean something.
                let sent: Vec<u8> = sent.into_iter().map(|b| b % 100).collect();
                if seed % 6 == 5 {
                    client.send(&sent[..sent.len().min(3000)]);
                    return client.reset();
                }
                let (mut writer, bytes) = (client.second(), sent.clone());
                let sender = world::spawn(move || {
                    let mut rest = &bytes[..];
                    while !rest.is_empty() {
                        let n = rng.between(1, 40_000).min(rest.len());
                        writer.send(&rest[..n]);
                        rest = &rest[n..];
                    }
                    writer.finish();
                });
                assert!(client.rest() == sent, "seed {seed}");
                sender.join().expect("the sender");
            })
        })
        .collect();
    for stream in streams {
        stream.join().expect("a whole stream");
    }
    let counters = server.stop(PATIENCE);
    assert_eq!(counters.closed_for(Closed::Panicked), 0, "{counters}");
}

/// The first whose turn it is aborts all others that were announced with it.
fn connection_that_goes_after_it_was_announced(v: Variant) {
    let (server, shared) = start(v);
    let clients = crowd(&server, &shared, |_| ABORT);
    eventually("all others to be gone", || {
        server.counters().closed_for(Closed::Aborted) == clients.len() as u64 - 1
    });
    drop(clients);
    let mut next = server.connect();
    next.send(b"hello");
    next.expect(b"hello");
    drop(next);
    server.stop(PATIENCE);
}

fn panic_while_looking_ahead_ends_one_connection(v: Variant) {
    let (server, shared) = start(v);
    let mut clients = crowd(
        &server,
        &shared,
        |name| if name == 3 { PANICS } else { name },
    );
    for (name, client) in clients.iter_mut().enumerate() {
        match name {
            3 => client.expect_reset(),
            _ => client.expect(&[name as u8]),
        }
    }
    drop(clients);
    let counters = server.stop(PATIENCE);
    assert_eq!(counters.closed_for(Closed::Panicked), 1, "{counters}");
}
