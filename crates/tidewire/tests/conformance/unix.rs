//! Unix sockets, listened on and dialled: what differs from TCP must not show.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::{Builder, Closed, Dial, Endpoint, Input, Limits, Listen, Next, Peer};

use crate::case::{Case, case, real};
use crate::client::PATIENCE;
use crate::fixture::Setup;
use crate::probe::{Context, Message};
use crate::record::Event;
use crate::roles::{Echo, Receives, Sink, noise};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    real(
        "sockets of the file system",
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
        ],
    )
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

    /// In the abstract namespace, as unlikely to be used by anybody else.
    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn connect(to: &Endpoint) -> UnixStream {
    let stream = match to {
        Endpoint::Unix(path) => UnixStream::connect(path),
        Endpoint::Abstract(name) => {
            let addr = SocketAddr::from_abstract_name(name).expect("a name");
            UnixStream::connect_addr(&addr)
        }
        other => panic!("{other} is no Unix socket"),
    };
    let stream = stream.expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream.set_write_timeout(Some(PATIENCE)).expect("an option");
    stream
}

fn exchange(stream: &mut UnixStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("the server takes input");
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).expect("the server answers");
    assert!(back == bytes, "what came back differs");
}

fn rest(stream: &mut UnixStream) -> Vec<u8> {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("an orderly end");
    rest
}

fn unix_sockets_serve_by_path_and_by_abstract_name(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v)
        .listen(Listen::at(place.sock()).mode(0o600))
        .listen(Listen::at(format!("unix:@{}", place.name())))
        .start(|| Echo);
    let mode = std::fs::metadata(place.sock())
        .expect("its file")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    let addrs = server.running().addrs().to_vec();
    assert_eq!(addrs[0].path(), Some(&*place.sock()));
    assert_eq!(addrs[1].to_string(), format!("unix:@{}", place.name()));
    let mut clients: Vec<UnixStream> = (0..20).map(|i| connect(&addrs[i % 2])).collect();
    for round in 0..3 {
        for (i, client) in clients.iter_mut().enumerate() {
            exchange(client, format!("hello {round} {i}").as_bytes());
        }
    }
    for client in &mut clients {
        client.shutdown(Shutdown::Write).expect("connected");
        assert!(rest(client).is_empty());
    }
    drop(clients);
    server.record.until("all ends", |r| r.closed() == 20);
    let counters = server.stop();
    assert_eq!(
        (counters.accepted, counters.closed_for(Closed::Finished)),
        (20, 20)
    );
    assert!(!place.sock().exists(), "removed at the stop");
}

fn unix_bulk_is_paced_and_complete(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v)
        .limits(|l| (l.output_low, l.output_high) = (16 << 10, 64 << 10))
        .listen(Listen::at(place.sock()))
        .start(|| Echo);
    let mut client = connect(&server.running().addrs()[0]);
    let bytes = noise(1, 3 << 20);
    let mut writer = client.try_clone().expect("a descriptor");
    let sent = bytes.clone();
    let writes = std::thread::spawn(move || {
        writer.write_all(&sent).expect("the server takes input");
        writer.shutdown(Shutdown::Write).expect("connected");
    });
    // Nothing can be read before the pipes are full: what was written by then waits there.
    server.until("a pause", |c| c.output_pauses > 0);
    assert!(rest(&mut client) == bytes);
    writes.join().expect("written");
    drop(client);
    assert_eq!(server.record.why_closed(0), Closed::Finished);
    server.stop();
}

fn unix_peers_are_known(v: Variant) {
    let place = Place::new();
    let seen: Arc<Mutex<Vec<Peer>>> = Arc::default();
    let theirs = seen.clone();
    let server = Setup::on(v)
        .listen(Listen::at(place.sock()))
        .start_with(move |peer| {
            theirs.lock().expect("not poisoned").push(peer.clone());
            Ok(Box::new(Echo))
        });
    exchange(&mut connect(&server.running().addrs()[0]), b"x");
    server.record.why_closed(0);
    let listener = UnixListener::bind(place.0.join("other")).expect("bound");
    server.dial(Dial::to(place.0.join("other")));
    drop(listener.accept().expect("dialled"));
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
    let server = Setup::on(v)
        .reachable()
        .listen(Listen::at(place.sock()))
        .start(|| {
            let mut paused = false;
            Receives(move |input: &mut Input<'_>, _: &mut Context<'_>| {
                if !std::mem::replace(&mut paused, true) {
                    return Next::Paused;
                }
                input.consume(input.len());
                Next::More
            })
        });
    let mut client = connect(&server.running().addrs()[0]);
    client
        .write_all(&noise(2, SAID))
        .expect("the kernel takes it");
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
        .listen(Listen::at(place.sock()))
        .start(|| Receives(|_: &mut Input<'_>, _: &mut Context<'_>| Next::Paused));
    let mut client = connect(&server.running().addrs()[0]);
    client.write_all(b"x").expect("the kernel takes it");
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
    let server = Setup::on(v).listen(Listen::at(place.sock())).start(|| Echo);
    let at = server.running().addrs()[0].clone();
    let mut clients: Vec<UnixStream> = (0..30).map(|_| connect(&at)).collect();
    for client in &mut clients {
        client.write_all(b"now").expect("the kernel takes it");
    }
    let (running, record) = server.into_parts();
    running.stop(Duration::from_secs(10));
    for client in &mut clients {
        assert_eq!(rest(client), b"now");
    }
    record.check();
}

fn unix_dials_and_their_errors(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v).start(|| Echo);
    let name = SocketAddr::from_abstract_name(place.name()).expect("a name");
    let listeners = [
        UnixListener::bind(place.sock()).expect("bound"),
        UnixListener::bind_addr(&name).expect("bound"),
    ];
    server.dial(Dial::to(place.sock()));
    server.dial(Dial::to(format!("unix:@{}", place.name())));
    for listener in &listeners {
        let (mut peer, _) = listener.accept().expect("dialled");
        peer.set_read_timeout(Some(PATIENCE)).expect("an option");
        exchange(&mut peer, &noise(3, 100_000));
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

fn unix_dial_to_a_full_backlog_is_tried_again(v: Variant) {
    let place = Place::new();
    let server = Setup::on(v).start(|| Sink);
    let listener = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
    let listener = listener.expect("a socket");
    let addr = socket2::SockAddr::unix(place.sock()).expect("a path");
    listener.bind(&addr).expect("bound");
    listener.listen(0).expect("listening");
    let _first = UnixStream::connect(place.sock()).expect("the queue takes one");
    let dial = Dial::to(place.sock())
        .attempts(u32::MAX)
        .backoff(Duration::from_millis(1), Duration::from_millis(5));
    server.dial(dial);
    server.until("a failed attempt", |c| c.dial_failures > 0);
    drop(listener.accept().expect("the first"));
    drop(listener.accept().expect("the dialled"));
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
    exchange(&mut connect(&running.addrs()[0]), b"still there");
    // A successor takes the name while the old one is at work: the old one leaves it alone.
    std::fs::remove_file(place.sock()).expect("removed by hand");
    let successor = start(v, Listen::at(place.sock())).expect("the name is free");
    running.stop(Duration::from_secs(10));
    exchange(&mut connect(&successor.addrs()[0]), b"the successor");
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
