//! Unix sockets, listened on and dialled: what differs from TCP must not show.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::{Builder, Closed, Dial, Endpoint, Input, Limits, Listen, Next, Peer};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::listener::Listener;
use crate::probe::{Context, Message};
use crate::record::Event;
use crate::roles::{Echo, Receives, Sink, noise};
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(unix_sockets_serve_by_path_and_by_abstract_name),
        case!(unix_bulk_is_paced_and_complete),
        case!(unix_peers_are_known),
        case!(unix_input_before_a_close_is_read_after_a_pause),
        case!(unix_closed_peers_do_not_make_a_loop_spin),
        case!(unix_connections_that_wait_at_a_stop_are_served),
        case!(unix_dials_and_their_errors),
        case!(unix_dial_to_a_full_backlog_is_tried_again),
        case!(unix_files_of_the_dead_are_replaced_and_ours_removed),
        case!(places_that_cannot_be_listened_on_say_why),
    ]
}

/// A directory for sockets, removed in the end.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tw-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("a directory");
        Place(dir)
    }

    fn sock(&self) -> PathBuf {
        self.0.join("s")
    }

    /// In the abstract namespace, as unlikely to be used by another program.
    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn exchange(client: &mut Client, bytes: &[u8]) {
    client.send(bytes);
    client.expect(bytes);
}

fn unix_sockets_serve_by_path_and_by_abstract_name(v: Variant) {
    let place = Place::new();
    let named: Endpoint = format!("unix:@{}", place.name()).parse().expect("a name");
    let server = match world::is_simulated() {
        true => Setup::on(v).at(place.sock()).at(named),
        false => Setup::on(v)
            .listen(Listen::at(place.sock()).mode(0o600))
            .at(named),
    };
    let server = server.start(|| Echo);
    if !world::is_simulated() {
        let file = std::fs::metadata(place.sock()).expect("its file");
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
    let addrs = server.addrs();
    assert_eq!(addrs[0].path(), Some(&*place.sock()));
    assert_eq!(addrs[1].to_string(), format!("unix:@{}", place.name()));
    let mut clients: Vec<Client> = (0..20)
        .map(|i| Client::connect_unix(&addrs[i % 2]))
        .collect();
    for round in 0..3 {
        for (i, client) in clients.iter_mut().enumerate() {
            exchange(client, format!("hello {round} {i}").as_bytes());
        }
    }
    for client in &mut clients {
        client.finish();
        client.expect_end();
    }
    drop(clients);
    server.record.until("all ends", |r| r.closed() == 20);
    let counters = server.stop();
    assert_eq!(
        (counters.accepted, counters.closed_for(Closed::Finished)),
        (20, 20)
    );
    if !world::is_simulated() {
        assert!(!place.sock().exists(), "removed at the stop");
    }
}

fn unix_bulk_is_paced_and_complete(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v)
        .limits(|l| (l.output_low, l.output_high) = (16 << 10, 64 << 10))
        .at(place.sock())
        .start(|| Echo);
    let mut client = Client::connect_unix(&server.addrs()[0]);
    let bytes = noise(1, 3 << 20);
    let mut writer = client.second();
    let sent = bytes.clone();
    let writes = world::spawn(move || {
        writer.send(&sent);
        writer.finish();
    });
    // Nothing can be read before the pipes are full: what was written by then waits there.
    server.until("a pause", |c| c.output_pauses > 0);
    assert!(client.rest() == bytes);
    writes.join().expect("written");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn unix_peers_are_known(v: Variant) {
    let place = Place::new();
    let seen: Arc<Mutex<Vec<Peer>>> = Arc::default();
    let theirs = seen.clone();
    let server = Setup::on(v).at(place.sock()).start_with(move |peer| {
        theirs.lock().expect("not poisoned").push(peer.clone());
        Ok(Box::new(Echo))
    });
    exchange(&mut Client::connect_unix(&server.addrs()[0]), b"x");
    server.record.why_closed(0);
    let listener = Listener::at(place.0.join("other"));
    server.dial(Dial::to(place.0.join("other")));
    drop(listener.accept());
    server.record.why_closed(1);
    server.stop();
    let seen = seen.lock().expect("not poisoned");
    assert_eq!(seen[0].endpoint, Endpoint::Unnamed);
    assert_eq!(seen[1].endpoint, place.0.join("other").into());
    for peer in &*seen {
        let process = peer.identity().process.expect("the kernel knows");
        assert_eq!(process.pid, Some(std::process::id()));
        assert_eq!(process.uid, rustix::process::geteuid().as_raw());
        assert_eq!(process.gid, rustix::process::getegid().as_raw());
    }
}

/// The close of a Unix socket's peer is reported at once as the end of both directions, which for
/// TCP means a reset; what the peer said before is there all the same.
fn unix_input_before_a_close_is_read_after_a_pause(v: Variant) {
    const SAID: usize = 100_000;
    let place = Place::new();
    let server = Setup::on(v).reachable().at(place.sock()).start(|| {
        let mut paused = false;
        Receives(move |input: &mut Input<'_>, _: &mut Context<'_>| {
            if !std::mem::replace(&mut paused, true) {
                return Next::Paused;
            }
            input.consume(input.len());
            Next::More
        })
    });
    let mut client = Client::connect_unix(&server.addrs()[0]);
    client.send(&noise(2, SAID));
    server
        .record
        .until("the pause", |_| server.record.calls() == 1);
    drop(client);
    server
        .record
        .until("the news", |r| r.has(0, &Event::HungUp));
    assert_eq!(server.counters().open, 1, "not taken for a reset");
    let resume = Message::run(|cx| cx.link.resume());
    server.record.handle(0).try_post(resume).ok().expect("room");
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    assert_eq!(server.record.consumed(), SAID as u64);
    server.stop();
}

fn unix_closed_peers_do_not_make_a_loop_spin(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v)
        .reachable()
        .at(place.sock())
        .start(|| Receives(|_: &mut Input<'_>, _: &mut Context<'_>| Next::Paused));
    let mut client = Client::connect_unix(&server.addrs()[0]);
    client.send(b"x");
    server
        .record
        .until("the pause", |_| server.record.calls() == 1);
    drop(client);
    server
        .record
        .until("the news", |r| r.has(0, &Event::HungUp));
    // Ten deadlines pass while the connection stands as it is: a few turns for each.
    let before = server.counters().turns;
    for n in 0..10 {
        let tick = Message::run(|cx| cx.link.set_timer_after(Duration::from_millis(2)));
        server.record.handle(0).try_post(tick).ok().expect("room");
        server
            .record
            .until("the tick", |r| r.count(&Event::Expired) == n + 1);
    }
    let turns = server.counters().turns - before;
    assert!(turns < 500, "{turns} turns while nothing happened");
    let end = Message::run(|cx| cx.link.finish());
    server.record.handle(0).try_post(end).ok().expect("room");
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn unix_connections_that_wait_at_a_stop_are_served(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v).at(place.sock()).start(|| Echo);
    let at = server.addrs()[0].clone();
    let mut clients: Vec<Client> = (0..30).map(|_| Client::connect_unix(&at)).collect();
    for client in &mut clients {
        client.send(b"now");
    }
    let checks = world::spawn(move || {
        for client in &mut clients {
            assert_eq!(client.rest(), b"now");
        }
    });
    server.stop();
    checks.join().expect("all are served");
}

fn unix_dials_and_their_errors(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v).start(|| Echo);
    let named: Endpoint = format!("unix:@{}", place.name()).parse().expect("a name");
    let listeners = [Listener::at(place.sock()), Listener::at(named.clone())];
    server.dial(Dial::to(place.sock()));
    server.dial(Dial::to(named));
    for listener in &listeners {
        exchange(&mut listener.accept(), &noise(3, 100_000));
    }
    drop(listeners);
    let failing = [
        (Dial::to(place.sock()), "refused"),
        (Dial::to(place.0.join("nothing")), "No such file"),
        (Dial::to("unix:"), "without a name"),
        (Dial::to("nonsense"), "no endpoint"),
        (Dial::to(place.sock()).from("127.0.0.1:0"), "only TCP"),
        (Dial::to(format!("unix:/{}", "x".repeat(200))), "107 fit"),
    ];
    for (token, (dial, _)) in failing.iter().enumerate() {
        server.dial(dial.clone().token(token as u64));
    }
    let failed = |r: &crate::record::Inner| r.dials_failed.len() == failing.len();
    server.record.until("all errors", failed);
    for (token, error) in &server.record.lock().dials_failed {
        let expected = failing[*token as usize].1;
        assert!(error.contains(expected), "{error:?} without {expected:?}");
    }
    server.record.until("both ends", |r| r.closed() == 2);
    assert_eq!(server.stop().dial_failures, failing.len() as u64);
}

/// A listener whose queue takes one.
fn tiny(place: &Place) -> Listener {
    let at = Endpoint::from(place.sock());
    if world::is_simulated() {
        return Listener::simulated(at, 1);
    }
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
    let socket = socket.expect("a socket");
    let addr = socket2::SockAddr::unix(place.sock()).expect("a path");
    socket.bind(&addr).expect("bound");
    socket.listen(0).expect("listening");
    Listener::adopt(socket.into(), at)
}

fn unix_dial_to_a_full_backlog_is_tried_again(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v).start(|| Sink);
    let listener = tiny(&place);
    let _first = Client::connect_unix(&place.sock().into());
    let dial = Dial::to(place.sock())
        .attempts(u32::MAX)
        .backoff(Duration::from_millis(1), Duration::from_millis(5));
    server.dial(dial);
    server.until("a failed attempt", |c| c.dial_failures > 0);
    drop(listener.accept());
    drop(listener.accept());
    server.record.why_closed(0);
    assert!(server.record.lock().dials_failed.is_empty());
    server.stop();
}

fn start(v: Variant, listen: Listen) -> Result<tidewire::Running, tidewire::StartError> {
    let mut builder: Builder = v.builder();
    let probes = crate::probe::Probes::new(Arc::default(), || Echo);
    let service = builder.service_with(probes, Limits::default());
    builder.listen(service, listen);
    builder.start()
}

fn unix_files_of_the_dead_are_replaced_and_ours_removed(v: Variant) {
    let place = Place::new();
    drop(UnixListener::bind(place.sock()).expect("bound")); // its file stays
    let running = start(v, Listen::at(place.sock())).expect("the dead one is replaced");
    let error = start(v, Listen::at(place.sock())).expect_err("it is taken");
    let said = error.to_string();
    assert!(
        said.contains("another process listens") && said.contains("unix:/"),
        "{said}"
    );
    exchange(
        &mut Client::connect_unix(&running.addrs()[0]),
        b"still there",
    );
    // A successor takes the name while the old one is at work: the old one leaves it alone.
    std::fs::remove_file(place.sock()).expect("removed by hand");
    let successor = start(v, Listen::at(place.sock())).expect("the name is free");
    running.stop(Duration::from_secs(10));
    exchange(
        &mut Client::connect_unix(&successor.addrs()[0]),
        b"the successor",
    );
    drop(successor);
    assert!(!place.sock().exists(), "removed when dropped, too");
    let gone = UnixStream::connect(place.sock()).expect_err("nobody is there");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

fn places_that_cannot_be_listened_on_say_why(v: Variant) {
    let place = Place::new();
    std::fs::write(place.sock(), b"precious").expect("written");
    for (listen, why) in [
        (
            Listen::at("localhost:80"),
            "names of hosts are not looked up",
        ),
        (Listen::at("unix:"), "without a name"),
        (Listen::at(place.sock()), "something else than a socket"),
        (Listen::at("127.0.0.1:0").mode(0o600), "a mode or an owner"),
        (
            Listen::at("unix:@x").owner(None, Some(0)),
            "a mode or an owner",
        ),
        (
            Listen::at(place.0.join("no/such/directory")),
            "No such file",
        ),
    ] {
        let error = start(v, listen).expect_err("it cannot be").to_string();
        assert!(error.contains(why), "{error:?} without {why:?}");
    }
    assert_eq!(std::fs::read(place.sock()).expect("there"), b"precious");
}
