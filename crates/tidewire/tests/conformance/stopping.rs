//! Stopping: in order, within a deadline, at once.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use tidewire::{Closed, Dial, Input, Listen, Listening, Next, Phase, Placement};

use crate::case::{Case, case};
use crate::client::{Client, PATIENCE, lonely};
use crate::fixture::{Server, Setup};
use crate::listener::nobody;
use crate::probe::{Context, Message, Role};
use crate::record::Event;
use crate::roles::{Echo, echo, noise};
use crate::variant::Variant;
use crate::world::{self, Moment};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(stop_without_connections),
        case!(stop_finishes_idle_connections),
        case!(stop_finishes_streams_that_have_gone_quiet),
        case!(stop_serves_who_waits_to_be_accepted),
        case!(stop_loses_no_client_that_has_just_connected),
        case!(stop_under_load_loses_no_reply),
        case!(stop_flushes_what_a_slow_peer_is_owed),
        case!(stop_tells_half_closed_connections),
        case!(stop_tells_paused_connections),
        case!(stop_lets_a_protocol_finish_later),
        case!(stop_does_not_wait_for_a_flood),
        case!(stop_deadline_cuts),
        case!(second_stop_ends_at_once),
        case!(dropping_ends_at_once),
        case!(stop_gives_up_dialling),
        case!(the_address_refuses_after_a_stop),
        case!(a_stop_leaves_listeners_that_others_have_as_they_were),
        case!(successor_takes_over_who_waits),
        case!(successor_takes_over_a_unix_socket, on = |v| v.is_plain()),
        case!(listeners_that_no_successor_took_change_nothing),
        case!(successors_differ_in_their_loops),
        case!(a_lone_client_is_not_forgotten_between_two_servers),
        case!(a_drain_shows_what_it_waits_for),
        case!(a_drain_tells_lingering_connections),
        case!(dropping_a_drain_ends_at_once),
    ]
}

/// A deadline that no case that ends in order comes near.
const AMPLE: Duration = Duration::from_secs(30);

/// Longer than any orderly stop takes, far shorter than the deadline: for "did not wait for it".
const SOON: Duration = Duration::from_secs(15);

fn stop_without_connections(v: Variant) {
    let began = Moment::now();
    Setup::on(v).start(|| Echo).stop_within(AMPLE);
    assert!(began.elapsed() < SOON);
}

fn stop_finishes_idle_connections(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut clients: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(b"x");
        client.expect(b"x");
    }
    let ends: Vec<_> = clients
        .into_iter()
        .map(|mut c| world::spawn(move || c.expect_end()))
        .collect();
    let record = server.record.clone();
    let began = Moment::now();
    let counters = server.stop_within(AMPLE);
    assert!(began.elapsed() < SOON);
    for end in ends {
        end.join().expect("an orderly end");
    }
    assert_eq!(counters.closed_for(Closed::Stopped), 20);
    assert_eq!(record.lock().count(&Event::Draining), 20);
}

/// A connection that has sent much is read in another way than one that has sent little.
fn stop_finishes_streams_that_have_gone_quiet(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    let much = noise(1, 1 << 20);
    for piece in much.chunks(32 << 10) {
        client.send(piece);
        client.expect(piece);
    }
    let end = world::spawn(move || client.expect_end());
    let began = Moment::now();
    let counters = server.stop_within(AMPLE);
    assert!(began.elapsed() < SOON);
    end.join().expect("an orderly end");
    assert_eq!(counters.closed_for(Closed::Stopped), 1);
}

/// A client that the kernel has connected is served, though the loops have not met it.
fn stop_serves_who_waits_to_be_accepted(v: Variant) {
    for _ in 0..10 {
        let server = Setup::on(v).start(|| Echo);
        let mut clients: Vec<Client> = (0..30).map(|_| server.connect()).collect();
        for client in &mut clients {
            client.send(b"in time");
        }
        let checks = world::spawn(move || {
            for client in &mut clients {
                client.expect(b"in time");
                client.expect_end();
            }
        });
        let began = Moment::now();
        let counters = server.stop_within(AMPLE);
        checks.join().expect("all were served");
        assert!(began.elapsed() < SOON);
        assert_eq!(counters.accepted, 30);
    }
}

/// What one client has met that connects again and again, with a request each time.
#[derive(Default)]
struct Met {
    served: u64,
    /// Connected, and no reply came.
    lost: Vec<std::io::Error>,
}

fn connect_again_and_again(to: SocketAddr, stopped: &AtomicBool) -> Met {
    let mut met = Met::default();
    while !stopped.load(SeqCst) {
        // Refused, or unheard for as long as a process listens: it was never connected.
        let Ok(mut client) = Client::try_connect_within(to, Duration::from_millis(250)) else {
            continue;
        };
        let asked = client
            .write_all(b"x")
            .and_then(|()| client.read_exact(&mut [0]));
        match asked {
            Ok(()) => met.served += 1,
            Err(e) => met.lost.push(e),
        }
    }
    met
}

/// Every connected client is answered, at whatever moment of the stop it came. `STOPS` says how
/// often that is tried.
fn stop_loses_no_client_that_has_just_connected(v: Variant) {
    let stops = std::env::var("STOPS").map_or(5, |n| n.parse().expect("a number of stops"));
    let (mut served, mut lost, mut spoilt) = (0, 0, 0);
    for _ in 0..stops {
        let server = Setup::on(v)
            .tune(|b| {
                b.loops(4 * v.loops);
            })
            .at(lonely())
            .start(|| Echo);
        let (to, stopped) = (server.addr(), Arc::new(AtomicBool::new(false)));
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let stopped = stopped.clone();
                world::spawn(move || connect_again_and_again(to, &stopped))
            })
            .collect();
        server.until("a crowd", |c| c.accepted > 200);
        server.stop_within(AMPLE);
        stopped.store(true, SeqCst);
        let mut of_this = 0;
        for client in clients {
            let met = client.join().expect("a client");
            for e in &met.lost {
                eprintln!("{v}: connected, and then {e}");
            }
            served += met.served;
            of_this += met.lost.len();
        }
        lost += of_this;
        spoilt += usize::from(of_this > 0);
    }
    if stops > 5 || lost > 0 {
        eprintln!("{v}: {spoilt} of {stops} stops lost {lost} connections; {served} were served");
    }
    assert_eq!(lost, 0, "connections lost in {spoilt} of {stops} stops");
}

/// Everything that was received in full before the stop is answered; after that, the end.
fn stop_under_load_loses_no_reply(v: Variant) {
    const REQUEST: usize = 100;
    let server = Setup::on(v).start(|| Echo);
    let loads: Vec<_> = (0..8u64)
        .map(|i| {
            let mut client = server.connect();
            world::spawn(move || {
                let request = noise(i, REQUEST);
                let (mut sent, mut back) = (0, Vec::new());
                let mut buffer = vec![0; 65536];
                // Keeps up to 50 requests in flight until the server ends it.
                loop {
                    if sent * REQUEST - back.len() < 50 * REQUEST {
                        // A write may fail once the server has ended and gone.
                        if client.write_all(&request).is_ok() {
                            sent += 1;
                            continue;
                        }
                    }
                    match client.read(&mut buffer) {
                        Ok(0) => break,
                        Ok(n) => back.extend_from_slice(&buffer[..n]),
                        Err(e) => panic!("{e} after {} bytes", back.len()),
                    }
                }
                for (i, byte) in back.iter().enumerate() {
                    assert_eq!(*byte, request[i % REQUEST], "byte {i}");
                }
                back.len() as u64
            })
        })
        .collect();
    server.until("some load", |c| c.bytes_in > 1 << 20);
    let record = server.record.clone();
    let counters = server.stop_within(AMPLE);
    let back: u64 = loads.into_iter().map(|l| l.join().expect("a client")).sum();
    assert_eq!(
        back,
        record.consumed(),
        "every request that was seen is answered"
    );
    assert_eq!(counters.closed_for(Closed::Stopped), 8);
}

fn stop_flushes_what_a_slow_peer_is_owed(v: Variant) {
    let server = Setup::on(v).small_buffers().start(|| Echo);
    let mut client = server.connect();
    let mut writer = client.second();
    let sent = noise(6, 12 << 20);
    let bytes = sent.clone();
    let sender = world::spawn(move || {
        // The stop may cut it short.
        let _ = writer.write_all(&bytes);
    });
    server.until("a full pipe", |c| c.output_pauses > 0);
    let reader = world::spawn(move || {
        world::sleep(Duration::from_millis(100));
        client.rest()
    });
    let record = server.record.clone();
    server.stop_within(AMPLE);
    sender.join().expect("the sender");
    let back = reader.join().expect("the reader");
    assert_eq!(
        back.len() as u64,
        record.consumed(),
        "all that was read is answered"
    );
    assert!(back == sent[..back.len()]);
}

/// Waits for something else when its peer has finished, or when it is told to drain.
struct Owes {
    told: Arc<AtomicBool>,
    on_drain: fn(&mut Context<'_>),
}

impl Role for Owes {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if input.bytes()[0] == b'p' {
            input.consume(input.len());
            cx.link.write(b"p");
            return Next::Paused;
        }
        echo(input, cx)
    }
    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        cx.link.write(b"wait");
    }
    fn draining(&mut self, cx: &mut Context<'_>) {
        self.told.store(true, SeqCst);
        (self.on_drain)(cx);
    }
    fn expired(&mut self, cx: &mut Context<'_>) {
        cx.link.write(b"paid");
        cx.link.finish();
    }
}

fn owes(v: Variant, on_drain: fn(&mut Context<'_>)) -> (Server, Arc<AtomicBool>) {
    let told = Arc::new(AtomicBool::new(false));
    let theirs = told.clone();
    let server = Setup::on(v).start(move || Owes {
        told: theirs.clone(),
        on_drain,
    });
    (server, told)
}

fn stop_tells_half_closed_connections(v: Variant) {
    let (server, told) = owes(v, |cx| cx.link.finish());
    let mut client = server.connect();
    client.finish();
    client.expect(b"wait");
    let end = world::spawn(move || client.expect_end());
    let began = Moment::now();
    server.stop_within(AMPLE);
    assert!(told.load(SeqCst) && began.elapsed() < SOON);
    end.join().expect("an orderly end");
}

fn stop_tells_paused_connections(v: Variant) {
    let (server, told) = owes(v, |cx| cx.link.finish());
    let mut client = server.connect();
    client.send(b"p");
    client.expect(b"p");
    client.send(b"unseen");
    let end = world::spawn(move || client.expect_end());
    let began = Moment::now();
    server.stop_within(AMPLE);
    assert!(told.load(SeqCst) && began.elapsed() < SOON);
    end.join().expect("an orderly end");
}

fn stop_lets_a_protocol_finish_later(v: Variant) {
    let (server, _) = owes(v, |cx| cx.link.set_timer_after(Duration::from_millis(50)));
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    let end = world::spawn(move || {
        client.expect(b"paid");
        client.expect_end();
    });
    let counters = server.stop_within(AMPLE);
    end.join().expect("an orderly end");
    assert_eq!(counters.closed_for(Closed::Finished), 1);
}

/// A peer that never stops sending cannot keep the stop from being told to its connection.
fn stop_does_not_wait_for_a_flood(v: Variant) {
    let server = Setup::on(v).start(|| crate::roles::Sink);
    let over = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let mut client = server.connect();
            let over = over.clone();
            world::spawn(move || {
                let piece = vec![1; 1 << 20];
                while !over.load(SeqCst) && client.write_all(&piece).is_ok() {}
            })
        })
        .collect();
    server.until("a flood", |c| c.bytes_in > 64 << 20);
    let record = server.record.clone();
    let stopping = world::spawn(move || server.stop_within(AMPLE));
    record.until("both told", |r| r.count(&Event::Draining) == 2);
    over.store(true, SeqCst);
    stopping.join().expect("the stop");
    for flood in floods {
        flood.join().expect("a flood");
    }
}

fn stop_deadline_cuts(v: Variant) {
    let (server, told) = owes(v, |_| {});
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    // Time enough for a thread of a busy machine to be told before it is cut.
    let counters = server.stop_within(Duration::from_secs(2));
    assert!(told.load(SeqCst), "told first");
    client.expect_reset();
    assert_eq!(counters.closed_for(Closed::StopDeadline), 1);
}

fn second_stop_ends_at_once(v: Variant) {
    let (server, told) = owes(v, |_| {});
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    let (stopper, record) = (server.stopper(), server.record.clone());
    let began = Moment::now();
    let stopping = world::spawn(move || server.stop_within(AMPLE));
    record.until("the first stop", |_| told.load(SeqCst));
    stopper.stop_now();
    let counters = stopping.join().expect("the stop");
    assert!(began.elapsed() < SOON);
    client.expect_reset();
    assert_eq!(counters.closed_for(Closed::StopDeadline), 1);
}

fn dropping_ends_at_once(v: Variant) {
    let (server, _) = owes(v, |_| {});
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    let (running, record) = server.into_parts();
    let began = Moment::now();
    drop(running);
    assert!(began.elapsed() < SOON);
    client.expect_reset();
    record.check();
}

fn stop_gives_up_dialling(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    // No process listens there; it would be tried for ever.
    let patient = Dial::to(nobody())
        .token(9)
        .attempts(u32::MAX)
        .backoff(Duration::from_secs(60), Duration::from_secs(60));
    server.dial(patient);
    server.until("the first failure", |c| c.dial_failures >= 1);
    let record = server.record.clone();
    let began = Moment::now();
    server.stop_within(AMPLE);
    assert!(began.elapsed() < SOON);
    let failed = record.lock().dials_failed.clone();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, 9);
}

fn the_address_refuses_after_a_stop(v: Variant) {
    let server = Setup::on(v).reachable().at(lonely()).start(|| Echo);
    let addr = server.addr();
    let client = server.connect();
    let handle = server.record.handle(0);
    drop(client);
    server.stop();
    assert!(Client::try_connect(addr).is_err());
    // Handles outlive the loops harmlessly.
    let _ = handle.try_post(Message::Note(1));
    handle.abort();
}

/// Another process that has a listener too, given away or inherited, can go on with it.
fn a_stop_leaves_listeners_that_others_have_as_they_were(v: Variant) {
    let given = Setup::on(v).start(|| Echo);
    let to = given.addr();
    let listeners = given.running().listeners().expect("descriptors");
    given.stop();
    drop(Client::connect(to));
    let mut taken = Setup::on(v);
    for listening in &listeners {
        let copy = listening.socket.try_clone().expect("a descriptor");
        taken = taken.listen(Listen::inherited(copy));
    }
    taken.start(|| Echo).stop();
    drop(Client::connect(to));
}

/// The listeners of a server, as its successor inherits them.
fn inherit(v: Variant, listeners: Vec<Listening>) -> Setup {
    let owns_file = listeners.iter().any(|listening| listening.owns_file);
    let sockets = listeners.into_iter().map(|listening| {
        assert_eq!(listening.number, 0);
        listening.socket
    });
    let listen = Listen::inherited_group(sockets);
    Setup::on(v).listen(if owns_file {
        listen.owning_file()
    } else {
        listen
    })
}

/// A client that connects while the old server stops is served by one of the two; a client that
/// comes between the old one's end and the new one's start is served by the new one.
fn successor_takes_over_who_waits(v: Variant) {
    let old = Setup::on(v).reachable().start(|| Echo);
    let addr = old.addr();
    let first = old.connect();
    let listeners = old.running().listeners().expect("descriptors");
    assert_eq!(
        listeners.len(),
        if v.placement == Placement::Shared {
            v.loops
        } else {
            1
        }
    );
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let blocks = Message::run(move |cx| {
        let _ = wait.recv_timeout(Duration::from_secs(20));
        cx.link.finish();
    });
    assert!(old.record.handle(0).try_post(blocks).is_ok());
    let mut waiting: Vec<Client> = (0..30).map(|_| Client::connect(addr)).collect();
    waiting.iter_mut().for_each(|c| c.send(b"x"));
    let stopping = world::spawn(move || {
        drop(go);
        old.hand_over()
    });
    drop(first);
    // Clients that the old server took in end with it.
    let mut answered = Vec::new();
    let mut left = Vec::new();
    let mut stopped = None;
    let mut stopping = Some(stopping);
    for mut client in waiting {
        client.patience(Duration::ZERO);
        let mut byte = [0];
        while stopped.is_none() {
            match client.read(&mut byte) {
                Ok(n) => {
                    assert_eq!((n, byte), (1, *b"x"));
                    break;
                }
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => panic!("{e} instead of an answer"),
            }
            if stopping.as_ref().is_some_and(|s| s.is_finished()) {
                stopped = Some(stopping.take().expect("joined once").join());
            }
        }
        client.patience(PATIENCE);
        if byte == *b"x" {
            client.finish();
            answered.push(client);
        } else {
            left.push(client);
        }
    }
    drop(answered);
    if let Some(stopping) = stopping {
        stopping.join().expect("the old server");
    }
    let mut between = Client::connect(addr);
    between.send(b"y");
    let new = inherit(v, listeners).start(|| Echo);
    assert_eq!(new.addr(), addr);
    for client in &mut left {
        client.expect(b"x");
    }
    between.expect(b"y");
    drop((left, between));
    new.stop();
    assert!(Client::try_connect(addr).is_err());
}

fn successor_takes_over_a_unix_socket(v: Variant) {
    let path = std::env::temp_dir().join(format!("tidewire-{}-{v}.sock", std::process::id()));
    let old = Setup::on(v).listen(Listen::at(&*path)).start(|| Echo);
    let listeners = old.running().listeners().expect("descriptors");
    assert_eq!(listeners[0].endpoint.path(), Some(&*path));
    old.hand_over();
    let mut client = std::os::unix::net::UnixStream::connect(&path).expect("the file is there");
    client.write_all(b"x").expect("written");
    let new = inherit(v, listeners).start(|| Echo);
    let mut byte = [0];
    client.read_exact(&mut byte).expect("the successor answers");
    assert_eq!(byte, *b"x");
    drop(client);
    new.stop();
    assert!(!path.exists(), "whoever has it last removes it");
}

/// A successor that did not come to serve leaves nothing behind: the stop is as any other.
fn listeners_that_no_successor_took_change_nothing(v: Variant) {
    let path = std::env::temp_dir().join(format!("tidewire-none-{}-{v}.sock", std::process::id()));
    let server = Setup::on(v)
        .listen(Listen::at(lonely()))
        .listen(Listen::at(&*path))
        .start(|| Echo);
    let addr = server.addr();
    drop(server.running().listeners().expect("descriptors"));
    let mut waiting: Vec<Client> = (0..10).map(|_| Client::connect(addr)).collect();
    waiting.iter_mut().for_each(|c| c.send(b"in time"));
    let checks = world::spawn(move || {
        for client in &mut waiting {
            client.expect(b"in time");
            client.expect_end();
        }
    });
    server.stop_within(AMPLE);
    checks.join().expect("all were served");
    assert!(!path.exists());
}

/// With more loops than before, and with fewer.
fn successors_differ_in_their_loops(v: Variant) {
    for loops in [1, v.loops + 2] {
        let old = Setup::on(v).start(|| Echo);
        let addr = old.addr();
        let listeners = old.running().listeners().expect("descriptors");
        let new = inherit(v, listeners)
            .tune(|b| {
                b.loops(loops);
            })
            .start(|| Echo);
        old.hand_over();
        new.running().accept_waiting();
        // As many as make it certain that every queue had some.
        let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(addr)).collect();
        for client in &mut clients {
            client.send(b"x");
        }
        for client in &mut clients {
            client.expect(b"x");
        }
        drop(clients);
        new.stop();
    }
}

/// One connection, at the moment when the old server gives up accepting: though no later client
/// wakes the new one, it is accepted by one of the two.
fn a_lone_client_is_not_forgotten_between_two_servers(v: Variant) {
    for round in 0..15 {
        let old = Setup::on(v).start(|| Echo);
        let addr = old.addr();
        let listeners = old.running().listeners().expect("descriptors");
        let new = inherit(v, listeners).start(|| Echo);
        let comes = std::thread::spawn(move || {
            // Before, while and after the old one gives up.
            std::thread::sleep(Duration::from_micros(round * 20));
            let mut client = Client::connect(addr);
            // A client that is accepted just before the end may be disconnected before it has
            // asked.
            client.try_send(b"x");
            client.try_finish();
            let back = client.rest();
            assert!(back.is_empty() || back == b"x", "served, or told goodbye");
        });
        old.hand_over();
        new.running().accept_waiting();
        comes.join().expect("the client");
        new.stop();
    }
}

/// What is left can be seen: which connections the drain waits for, and which have been told
/// everything.
fn a_drain_shows_what_it_waits_for(v: Variant) {
    let (server, told) = owes(v, |_| {});
    let mut waits = server.connect();
    waits.send(b"x");
    waits.expect(b"x");
    let (running, record) = server.into_parts();
    let drain = running.drain(AMPLE);
    record.until("it is told, and nobody listens", |_| {
        told.load(SeqCst) && drain.progress().phase == Phase::Finishing
    });
    let progress = drain.progress();
    assert_eq!(progress.open(), 1);
    assert_eq!(progress.services[0].lingering, 0);
    assert!(progress.left > SOON && !drain.wait_for(Duration::ZERO));
    drain.stopper().stop_now();
    assert!(drain.wait_for(AMPLE));
    let progress = drain.progress();
    assert_eq!((progress.phase, progress.open()), (Phase::Over, 0));
    waits.expect_reset();
    let counters = drain.wait();
    assert_eq!(counters.closed_for(Closed::StopDeadline), 1);
    assert_eq!(counters.lingering, 0);
    record.check();
}

/// All is said to this client, and it does not go. A successor that needs what is shared need not
/// wait for it.
fn a_drain_tells_lingering_connections(v: Variant) {
    let server = Setup::on(v).start(|| Echo);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    let (running, record) = server.into_parts();
    // Without a successor a connection between two requests is closed soon.
    let drain = running.hand_over(AMPLE);
    client.expect_end();
    record.until("it lingers", |_| {
        drain.progress().services[0].lingering == 1
    });
    assert_eq!(drain.progress().open(), 1);
    drop(client);
    assert_eq!(drain.wait().lingering, 0);
    record.check();
}

/// A drain that is not waited for ends at once.
fn dropping_a_drain_ends_at_once(v: Variant) {
    let (server, _) = owes(v, |_| {});
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    let (running, record) = server.into_parts();
    let began = Moment::now();
    drop(running.drain(AMPLE));
    assert!(began.elapsed() < SOON);
    client.expect_reset();
    record.check();
}
