//! Cases with a process of their own: many connections, few descriptors, memory.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{Domain, Socket, Type};
use tidewire::{
    Closed, Cx, Dial, Input, Limits, Listen, LoopHandle, Next, Peer, Protocol, Refusal, Running,
    Service, TcpOptions,
};

use crate::case::{Case, case};
use crate::child;
use crate::client::{Client, PATIENCE};
use crate::fixture::{Message, Setup};
use crate::record::Event;
use crate::roles::{Echo, Sink, noise};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(crowd_comes_and_goes_without_a_trace, alone),
        case!(descriptor_exhaustion_and_recovery, alone),
        case!(posts_arrive_without_a_descriptor_to_spare, alone),
        case!(peers_that_never_read_cost_bounded_memory, alone),
        case!(tcp_options_reach_both_kinds_of_connections, alone),
        case!(
            idle_connection_costs_at_most_512_bytes,
            alone,
            on | v | !v.is_threads()
        ),
    ]
}

/// How many connections to open, both ends of which are descriptors of this process if `both`.
fn crowd(v: Variant, both: bool) -> usize {
    let wanted = if v.is_threads() { 1000 } else { 9000 };
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = limit.saturating_sub(200) / if both { 2 } else { 1 };
    let n = wanted.min(usize::try_from(room).unwrap_or(usize::MAX));
    if n < wanted {
        eprintln!("{n} connections instead of {wanted}: the limit on descriptors is {limit}");
    }
    n
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

/// Resident memory of a process, in bytes.
fn resident(pid: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("procfs");
    let line = status
        .lines()
        .find(|l| l.starts_with("VmRSS:"))
        .expect("its size");
    let kib: usize = line
        .split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number");
    kib << 10
}

/// Waits until a condition that nobody announces holds.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A connection that echoes and keeps no record, so that only the toolkit's memory is measured.
struct Plain;

impl Protocol for Plain {
    type Local = ();
    type Message = ();
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Plain>) -> Next {
        if cx.link.full() {
            return Next::AfterDrain;
        }
        let n = input.len();
        cx.link.forward(input, n);
        Next::More
    }
}

struct PlainService;

impl Service for PlainService {
    type Conn = Plain;
    fn on_loop(&self, _: LoopHandle<()>) {}
    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Plain, Refusal> {
        Ok(Plain)
    }
}

fn plain_server(v: Variant) -> Running {
    let mut builder = v.builder();
    let limits = Limits {
        idle: Some(Duration::from_secs(600)),
        ..Limits::default()
    };
    let service = builder.service_with(PlainService, limits);
    builder.listen(service, Listen::at(([127, 0, 0, 1], 0).into()));
    builder.start().expect("the server starts")
}

/// Opens, uses and closes `n` connections.
fn visit(server: &Running, n: usize) {
    let addr = server.addrs()[0];
    let mut clients: Vec<Client> = (0..n).map(|_| Client::connect(addr)).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.send(&(i as u32).to_be_bytes());
    }
    for (i, client) in clients.iter_mut().enumerate() {
        client.expect(&(i as u32).to_be_bytes());
    }
    assert_eq!(server.counters().open, n as u64);
    drop(clients);
    eventually("none open", || server.counters().open == 0);
}

fn crowd_comes_and_goes_without_a_trace(v: Variant) {
    let n = crowd(v, true);
    let server = plain_server(v);
    visit(&server, 10);
    // What is kept for good, such as a high-water mark of tables, is there after the first time.
    let (fds, before) = (descriptors(), resident("self"));
    let left: Vec<usize> = (0..4)
        .map(|_| {
            visit(&server, n);
            eventually("the descriptors to be back", || descriptors() <= fds);
            resident("self").saturating_sub(before)
        })
        .collect();
    eprintln!("{n} connections left {left:?} bytes, time after time");
    // The allocator learns from the first time which sizes to keep, and tables grow as connections
    // happen to be spread over loops; after that nothing may grow.
    // The C library keeps up to 40 MiB of threads' stacks.
    let most = if v.is_threads() { 64 << 20 } else { 12 << 20 };
    assert!(left.iter().all(|&bytes| bytes < most), "{left:?}");
    assert!(left[3] < left[1].max(left[2]) + most / 6, "{left:?}");
    let counters = server.stop(Duration::from_secs(10));
    assert_eq!(counters.closed_for(Closed::Finished), 4 * n as u64 + 10);
}

fn descriptor_exhaustion_and_recovery(v: Variant) {
    const CLIENTS: usize = 30;
    let sockets: Vec<Socket> = (0..CLIENTS)
        .map(|_| Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket"))
        .collect();
    // Before the server starts: an accept operation keeps the limit that it was started with.
    let limit = getrlimit(Resource::Nofile);
    let most = descriptors() + 60;
    let scarce = Rlimit {
        current: Some(most as u64),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, scarce).expect("a lower limit");
    let server = Setup::on(v).start(|| Echo);
    let mut early = server.connect();
    early.send(b"early");
    early.expect(b"early");
    // The clients have their sockets; the server may have a few more.
    let mut fill = Vec::new();
    while descriptors() + CLIENTS / 3 < most {
        fill.push(std::fs::File::open("/dev/null").expect("a descriptor"));
    }
    let mut clients: Vec<Client> = sockets
        .into_iter()
        .map(|socket| {
            socket
                .connect(&server.addr().into())
                .expect("the queue has room");
            Client::adopt(socket.into()).expect("socket options")
        })
        .collect();
    for client in &mut clients {
        client.send(b"x");
    }
    server.until("accepting pauses", |c| c.accept_pauses > 0);
    let before = server.counters();
    std::thread::sleep(Duration::from_millis(500));
    let after = server.counters();
    assert!(
        after.accepted < CLIENTS as u64 + 1,
        "there were not enough for all"
    );
    let turns = after.turns - before.turns;
    assert!(turns < 200, "{turns} turns in half a second: it spins");
    assert!(after.accept_pauses - before.accept_pauses < 50, "{after}");
    early.send(b"served");
    early.expect(b"served");
    // Whoever is answered leaves, which makes room for the others, on whichever loop they wait.
    for client in &clients {
        client.0.set_nonblocking(true).expect("an option");
    }
    eventually("an answer to each", || {
        clients.retain_mut(|client| match client.0.read(&mut [0]) {
            Ok(n) => {
                assert_eq!(n, 1, "answered before the end");
                false
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
                true
            }
        });
        clients.is_empty()
    });
    drop(fill);
    let mut late = server.connect();
    late.send(b"late");
    late.expect(b"late");
    drop((early, late));
    server.until("all ends", |c| c.open == 0);
    assert_eq!(server.stop().accepted, CLIENTS as u64 + 2);
}

/// The last descriptor goes to the connection itself, so none is left to wake it with.
fn posts_arrive_without_a_descriptor_to_spare(v: Variant) {
    let server = Setup::on(v).reachable().start(|| Sink);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: Some(descriptors() as u64 + 40),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, most).expect("a lower limit");
    let mut fill = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        fill.push(file);
    }
    fill.pop();
    socket
        .connect(&server.addr().into())
        .expect("the queue has room");
    let handle = server.record.handle(0);
    for n in 0..3 {
        assert!(handle.try_post(Message::Note(n)).is_ok());
        let note = Event::Posted(n);
        server.record.until("the note", |r| r.has(0, &note));
    }
    drop((fill, socket));
    server.record.why_closed(0);
    server.stop();
}

fn peers_that_never_read_cost_bounded_memory(v: Variant) {
    const PEERS: usize = 40;
    let server = Setup::on(v).start(|| Echo);
    let mut first = server.connect();
    first.send(b"x");
    first.expect(b"x");
    let piece = noise(20, 64 << 10);
    let before = resident("self");
    let mut stuck: Vec<Client> = (0..PEERS).map(|_| server.connect()).collect();
    for client in &mut stuck {
        client.0.set_nonblocking(true).expect("an option");
    }
    // Until nobody's kernel buffers take any more.
    let mut quiet = 0;
    while quiet < 10 {
        let mut sent = 0;
        for client in &mut stuck {
            while let Ok(n) = client.0.write(&piece) {
                sent += n;
            }
        }
        quiet = if sent == 0 { quiet + 1 } else { 0 };
        std::thread::sleep(Duration::from_millis(10));
    }
    let counters = server.counters();
    assert!(counters.output_pauses >= PEERS as u64, "{counters}");
    let grown = resident("self").saturating_sub(before);
    // The high mark, a chunk more that was on its way, and the receive buffers of all loops.
    eprintln!("{grown} bytes for {PEERS} peers that do not read");
    let most = PEERS * (512 << 10) + v.loops * (10 << 20);
    assert!(
        grown < most,
        "{grown} bytes for {PEERS} peers that do not read"
    );
    first.send(b"y");
    first.expect(b"y");
    server.cut();
}

/// The socket of this process that is connected to `peer`, found among all its descriptors.
fn socket_towards(peer: SocketAddr) -> Option<Socket> {
    let me = rustix::process::pidfd_open(
        rustix::process::getpid(),
        rustix::process::PidfdFlags::empty(),
    );
    let me = me.ok()?;
    for entry in std::fs::read_dir("/proc/self/fd").expect("procfs") {
        let name = entry.expect("procfs").file_name();
        let number: i32 = name.to_str()?.parse().ok()?;
        let flags = rustix::process::PidfdGetfdFlags::empty();
        if let Ok(fd) = rustix::process::pidfd_getfd(&me, number, flags) {
            let socket = Socket::from(fd);
            let towards = socket.peer_addr().ok().and_then(|a| a.as_socket());
            if towards == Some(peer) {
                return Some(socket);
            }
        }
    }
    None
}

fn tcp_options_reach_both_kinds_of_connections(v: Variant) {
    for nodelay in [true, false] {
        let options = TcpOptions {
            nodelay,
            keepalive: Some(Duration::from_secs(77)),
            congestion: Some("reno".into()),
            ..TcpOptions::default()
        };
        let here = Listen::at(([127, 0, 0, 1], 0).into());
        let server = Setup::on(v)
            .listen(here.options(options.clone()))
            .tune(|b| {
                b.dial_options(options);
            })
            .start(|| Echo);
        let mut client = server.connect();
        client.send(b"x");
        client.expect(b"x");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let there = listener.local_addr().expect("bound");
        server.dial(Dial::to(there));
        let (dialled, _) = listener.accept().expect("dialled");
        server.until("both open", |c| c.open == 2);
        for peer in [client.0.local_addr().expect("bound"), there] {
            let Some(theirs) = socket_towards(peer) else {
                return eprintln!("not allowed to look at the descriptors of this process");
            };
            assert_eq!(theirs.tcp_nodelay().expect("an option"), nodelay);
            assert!(theirs.keepalive().expect("an option"));
            let idle = theirs.tcp_keepalive_time().expect("an option");
            assert_eq!(idle, Duration::from_secs(77));
            let congestion = theirs.tcp_congestion().expect("an option");
            assert!(congestion.starts_with(b"reno"), "{congestion:?}");
        }
        drop((client, dialled));
        server.until("both ends", |c| c.open == 0);
        server.stop();
    }
}

/// A server in another process.
struct Other {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
    addr: SocketAddr,
}

impl Other {
    fn start(v: Variant) -> Other {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .env(child::SERVER, v.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let ask = child.stdin.take().expect("was piped");
        let mut answers = BufReader::new(child.stdout.take().expect("was piped"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("an address");
        Other {
            addr: line.trim().parse().expect("an address"),
            child,
            ask,
            answers,
        }
    }

    /// Its resident memory, once `open` connections are open.
    fn resident(&mut self, open: usize) -> usize {
        writeln!(self.ask, "{open}").expect("it listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer");
        line.trim().parse().expect("a number")
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process: says where it listens, then answers each number of connections with its
/// resident memory once so many are open.
pub(crate) fn serve(v: Variant) {
    let server = plain_server(v);
    println!("{}", server.addrs()[0]);
    for line in std::io::stdin().lines() {
        let open: u64 = line.expect("text").trim().parse().expect("a number");
        eventually("that many connections", || server.counters().open == open);
        // Let the loops go back to sleep.
        std::thread::sleep(Duration::from_millis(200));
        println!("{}", resident("self"));
    }
}

fn idle_connection_costs_at_most_512_bytes(v: Variant) {
    let most = crowd(v, false);
    let few = most / 9;
    let mut other = Other::start(v);
    let mut clients = Vec::with_capacity(most);
    let mut fill = |n: usize, addr| {
        while clients.len() < n {
            let mut client = Client::connect(addr);
            client.send(b"x");
            client.expect(b"x");
            clients.push(client);
        }
    };
    fill(few, other.addr);
    let before = other.resident(few);
    fill(most, other.addr);
    let after = other.resident(most);
    let each = after.saturating_sub(before) / (most - few);
    eprintln!("{v}: {each} bytes for each idle connection, from {few} to {most}");
    assert!(each <= 512, "{each} bytes for each idle connection");
}
