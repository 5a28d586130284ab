//! Which clients `serve` lets in, and what refused clients hear: over real sockets, from many
//! addresses.

use crate::common::pki;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::common::{PATIENCE, Running, addr, engines, resident, run, stderr};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::Signal;

/// Starts a server that has an admin listener; its lines, the admin's last.
fn serve(args: &[&str]) -> (Running, Vec<String>) {
    let admin = ["--admin", "127.0.0.1:0", "--log-format", "logfmt"];
    let mut server = Running::start(&[&["serve"], args, &admin].concat());
    let mut lines = vec![server.line()];
    while !lines.last().unwrap().contains("service=admin") {
        assert!(
            !lines.last().unwrap().is_empty(),
            "{}",
            stderr(&server.end())
        );
        lines.push(server.line());
    }
    (server, lines)
}

fn stop(server: Running) -> String {
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output)
}

/// A client with an address of its own, 127.88.x.y.
fn from(host: u16, to: SocketAddr) -> io::Result<TcpStream> {
    let [high, low] = host.to_be_bytes();
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let here = SocketAddr::from((Ipv4Addr::new(127, 88, high, low), 0));
    rustix::net::bind(&socket, &here)?;
    rustix::net::connect(&socket, &to)?;
    let socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// What a refused client hears; `None` for a reset. What he sends first must not change it.
fn hears(host: u16, to: SocketAddr, says: &[u8]) -> Option<Vec<u8>> {
    let mut heard = Vec::new();
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    let reset = |e: &io::Error| matches!(e.kind(), ConnectionReset | BrokenPipe);
    let told = from(host, to).and_then(|mut socket| {
        // A reset that comes first is told here, and the end is all that is left of it then.
        let said = socket.write_all(says);
        socket.read_to_end(&mut heard)?;
        if heard.is_empty() { said } else { Ok(()) }
    });
    match told {
        Ok(()) => Some(heard),
        Err(e) => {
            assert!(reset(&e) && heard.is_empty(), "{e}");
            None
        }
    }
}

fn ask(socket: &mut TcpStream, question: &[u8], answer: &[u8]) {
    socket.write_all(question).unwrap();
    let mut said = vec![0; answer.len()];
    socket.read_exact(&mut said).unwrap();
    assert_eq!(said, answer, "{:?}", String::from_utf8_lossy(&said));
}

fn get(at: SocketAddr, path: &str) -> String {
    let mut socket = from(1, at).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// The value of a metric of one service and reason.
fn refused(page: &str, service: &str, reason: &str) -> u64 {
    let labels =
        format!("tidewire_connections_refused_total{{service=\"{service}\",reason=\"{reason}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&labels));
    line.map_or(0, |n| n.parse().unwrap())
}

const PING: (&[u8], &[u8]) = (b"PING\r\n", b"+PONG\r\n");
const GET: (&[u8], &[u8]) = (
    b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n",
);
const ECHO: (&[u8], &[u8]) = (b"hello", b"hello");
const READ: (&[u8], &[u8]) = (b"\x01\x00\x02\x01k", b"\x03\0");
const ACK: (&[u8], &[u8]) = (
    b"\x07\0\0\0\0\0\0\0\x01\0\0\0x",
    b"\x07\0\0\0\0\0\0\0\0\0\0\0",
);
/// A hello of a producer that has not said all.
const HELLO: &[u8] = b"TIDE\x01\x01\x00\x00";
/// A whole one, at level received, and the kind of the welcome.
const PRODUCE: (&[u8], &[u8]) = (
    b"TIDE\x01\x01\x1b\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"\x01",
);

/// The service, its listener, what it is asked and answers, and what a refused client hears first.
type Served = (
    &'static str,
    (&'static [u8], &'static [u8]),
    Option<&'static [u8]>,
);

const SERVICES: [Served; 5] = [
    ("echo", ECHO, None),
    ("ack/sync", ACK, None),
    (
        "kv/resp",
        PING,
        Some(b"-ERR max number of clients reached\r\n"),
    ),
    ("kv/binary", READ, None),
    ("http", GET, Some(b"HTTP/1.1 503 Service Unavailable\r\n")),
];

#[test]
fn a_client_too_many_hears_it_and_the_log_says_so() {
    for engine in engines() {
        let mut args = vec![
            "--engine",
            engine,
            "--workers",
            "2",
            "--max-connections",
            "2",
        ];
        let listen: Vec<String> = SERVICES
            .iter()
            .map(|(service, ..)| format!("{service}=0"))
            .collect();
        args.extend(SERVICES.iter().map(|(service, ..)| *service));
        listen
            .iter()
            .for_each(|listen| args.extend(["--listen", listen]));
        let (server, lines) = serve(&args);
        let mut within = Vec::new();
        for ((service, (question, answer), words), line) in SERVICES.iter().zip(&lines) {
            let to = addr(line);
            for _ in 0..2 {
                let mut client = from(2, to).unwrap();
                ask(&mut client, question, answer);
                within.push((client, question, answer));
            }
            for _ in 0..3 {
                let heard = hears(3, to, question);
                let first = heard
                    .as_ref()
                    .map(|heard| &heard[..words.map_or(0, <[u8]>::len)]);
                assert_eq!(first, *words, "{engine} {service}");
            }
        }
        // Present clients are served as before.
        for (client, question, answer) in within
            .iter_mut()
            .filter(|(_, question, _)| *question != &GET.0)
        {
            ask(client, question, answer);
        }
        let page = get(addr(lines.last().unwrap()), "/metrics");
        for (service, ..) in SERVICES {
            assert_eq!(
                refused(&page, service, "connection_limit"),
                3,
                "{engine} {service}"
            );
        }
        drop(within);
        let said = stop(server);
        let line = said
            .lines()
            .find(|line| line.contains("connection refused"));
        let line = line.unwrap_or_else(|| panic!("{engine}: no line about it: {said}"));
        assert!(
            line.contains("level=warn") && line.contains("reason=connection_limit"),
            "{line}"
        );
        assert!(
            line.contains("service=echo") && line.contains("peer=127.88.0.3:"),
            "{line}"
        );
    }
}

#[test]
fn an_ingest_client_is_told_when_to_come_again() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().to_str().unwrap();
    for engine in engines() {
        let (server, lines) = serve(&[
            "ingest",
            "--data",
            data,
            "--listen",
            "ingest=0",
            "--engine",
            engine,
            "--max-per-address",
            "1",
        ]);
        let to = addr(&lines[0]);
        let within = from(4, to).unwrap();
        let heard = {
            let begin = Instant::now();
            loop {
                // The first may not have been counted yet: then this one is, and goes again.
                assert!(begin.elapsed() < PATIENCE);
                match hears(4, to, HELLO) {
                    Some(heard) if heard.get(16) == Some(&4) => break heard,
                    _ => continue,
                }
            }
        };
        // Kind 3, flag 1; id 0, reason 4 (over quota), then when to come again.
        assert_eq!((heard[0], heard[1]), (3, 1), "{engine}");
        assert_eq!(heard[8..18], [0, 0, 0, 0, 0, 0, 0, 0, 4, 0]);
        assert_ne!(heard[20..24], [0; 4]);
        // The stop would wait for clients that stay.
        drop(within);
        stop(server);
    }
}

/// A flood from four hundred addresses in two networks: each may have two connections and four
/// attempts, each network fifty; clients from elsewhere are served on, old and new, and what is
/// counted adds up.
#[test]
fn a_flood_from_many_addresses_takes_no_more_than_it_may() {
    const HOSTS: u16 = 400;
    const TRIES: u16 = 5;
    for engine in engines() {
        // The discard service answers nothing: the counters show that no other client was refused.
        let more: [Served; 2] = [("ingest", PRODUCE, None), ("discard", (b"x", b""), None)];
        for (service, (question, answer), _) in SERVICES.into_iter().chain(more) {
            let listen = format!("{service}=0");
            let place = tempfile::tempdir().unwrap();
            let log = [String::from("--data"), place.path().display().to_string()];
            let log = log.iter().map(String::as_str);
            let args = [
                service,
                "--listen",
                &listen,
                "--engine",
                engine,
                "--max-per-address",
                "2",
                "--max-per-prefix",
                "50",
                "--accept-rate-per-address",
                "4/h",
                "--idle",
                "60",
            ];
            let log = log.filter(|_| service == "ingest");
            let (server, lines) = serve(&args.into_iter().chain(log).collect::<Vec<_>>());
            let to = addr(&lines[0]);
            let mut before = from(0x7001, to).unwrap();
            ask(&mut before, question, answer);
            let memory = resident(server.pid());
            let flood = std::thread::spawn(move || {
                let mut held = Vec::new();
                for n in 0..HOSTS * TRIES {
                    held.extend(from(1024 + n / TRIES, to));
                }
                held
            });
            let mut served: u16 = 0;
            while served < 10 || !flood.is_finished() {
                served = served.wrapping_add(1).max(1);
                // Each from an address, and mostly a network, of its own.
                let mut new = from(0x7100 + served % 4000 * 8, to).unwrap();
                ask(&mut new, question, answer);
                if ![GET.0, PRODUCE.0].contains(&question) {
                    ask(&mut before, question, answer);
                }
            }
            let held = flood.join().unwrap();
            let begin = Instant::now();
            let expected = u64::from(HOSTS * TRIES) - 2 * 50;
            let counted =
                |why| refused(&get(addr(lines.last().unwrap()), "/metrics"), service, why);
            loop {
                let all = ["prefix_limit", "address_limit", "address_rate"].map(counted);
                if all.iter().sum::<u64>() == expected {
                    assert!(all[0] > 0 && all[1] > 0, "{all:?}");
                    break;
                }
                assert!(begin.elapsed() < PATIENCE, "{engine} {service} {all:?}");
            }
            // A thread has touched seven or eight pages of its stack and 64 to 96 KiB of a heap, where in a loop a
            // connection has less than one; and the C library keeps up to eighty stacks of threads that have ended.
            let established = 2 * 50 + 2;
            let most = match engine {
                "threads" => established * (160 << 10) + 80 * (32 << 10) + (4 << 20),
                _ => 16 << 20,
            };
            let grown = resident(server.pid()).saturating_sub(memory);
            assert!(
                grown < most,
                "{engine} {service}: memory has grown by {grown}"
            );
            drop((held, before));
            stop(server);
        }
    }
}

#[test]
fn behind_tls_a_refused_client_is_reset_and_a_proxys_client_hears() {
    let files = pki::Files::new();
    let tls = files.serve();
    for engine in engines() {
        let mut args = vec![
            "kv/resp",
            "--listen",
            "kv/resp=0",
            "--listen",
            "kv/resp=plain:0",
            "--engine",
            engine,
            "--max-per-address",
            "kv=1",
            "--proxy-from",
            "127.88.0.9",
            "--deny",
            "198.51.100.0/24",
            "--open=kv",
        ];
        args.extend(tls.iter().copied());
        let (server, lines) = serve(&args);
        let (secure, plain) = (addr(&lines[0]), addr(&lines[1]));
        let mut within = from(5, plain).unwrap();
        ask(&mut within, PING.0, PING.1);
        let full: &[u8] = b"-ERR max number of clients reached\r\n";
        assert_eq!(hears(5, plain, b"").as_deref(), Some(full));
        assert_eq!(
            hears(5, secure, b""),
            None,
            "its words would have to be encrypted"
        );
        let header =
            |client: &str| format!("PROXY TCP4 {client} 192.0.2.1 5 6\r\nPING\r\n").into_bytes();
        let mut through = from(9, plain).unwrap();
        ask(&mut through, &header("192.0.2.7"), PING.1);
        let mut other = from(9, plain).unwrap();
        ask(&mut other, &header("192.0.2.8"), PING.1);
        assert_eq!(hears(9, plain, &header("192.0.2.7")).as_deref(), Some(full));
        assert_eq!(hears(9, plain, &header("198.51.100.7")), None);
        drop((within, through, other));
        let said = stop(server);
        assert!(
            said.contains("client=198.51.100.7:5 reason=denied"),
            "{said}"
        );
    }
}

#[test]
fn a_unix_socket_has_the_mode_and_the_owner_that_are_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let group = rustix::process::getgid().as_raw();
    let path = place.path().join("echo.sock");
    let at = format!("echo=unix:{}?mode=0640&owner=:{group}", path.display());
    for engine in engines() {
        let (server, lines) = serve(&["echo", "--listen", &at, "--engine", engine]);
        assert!(
            lines[0].contains(&format!("addr=unix:{} ", path.display())),
            "{}",
            lines[0]
        );
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let mut socket = UnixStream::connect(&path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(b"hello").unwrap();
        socket.read_exact(&mut [0; 5]).unwrap();
        drop(socket);
        stop(server);
        assert!(!path.exists());
    }
    let wrong = format!("echo=unix:{}?mode=rw", path.display());
    let output = run(&["serve", "echo", "--listen", &wrong]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("octal digits"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn the_file_has_rules_for_all_for_services_and_for_a_listener() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("tidewire.toml");
    let text = "services = ['echo', 'discard']\nworkers = 2\nplacement = 'least-connections'\n\
                [admission]\nmax-connections = ['all=3', 'echo=2']\naccept-rate = '600/m'\nprefix-v4 = 16\n\
                [[listen]]\nservice = 'echo'\nat = '127.0.0.1:0'\ndeny = '127.88.1.0/24'\n\
                [[listen]]\nservice = 'echo'\nat = '127.0.0.1:0'\nmax-connections = 1\n\
                [[listen]]\nservice = 'discard'\nat = '127.0.0.1:0'\n";
    std::fs::write(&file, text).unwrap();
    let (server, lines) = serve(&["--config", file.to_str().unwrap()]);
    let to: Vec<SocketAddr> = lines.iter().map(|line| addr(line)).collect();
    assert_eq!(hears(0x0101, to[0], b""), None);
    let served = |at: SocketAddr| {
        let mut client = from(0x0101, at).unwrap();
        ask(&mut client, ECHO.0, ECHO.1);
        client
    };
    let mut within = vec![served(to[1])];
    assert_eq!(hears(0x0101, to[1], b""), None, "one at this listener");
    within.push(from(2, to[0]).unwrap());
    ask(&mut within[1], ECHO.0, ECHO.1);
    assert_eq!(hears(2, to[0], b""), None, "two of echo");
    within.push(from(2, to[2]).unwrap());
    let begin = Instant::now();
    // The discard service answers nothing, so it does not say when it is there.
    while refused(&get(to[3], "/metrics"), "discard", "connection_limit") == 0 {
        assert!(begin.elapsed() < PATIENCE, "three in all");
        let mut late = from(2, to[2]).unwrap();
        late.set_read_timeout(Some(std::time::Duration::from_millis(200)))
            .unwrap();
        let _ = late.read(&mut [0]);
    }
    let config = get(to[3], "/config");
    for shown in [
        "\"max-connections\": 3",
        "\"600/m\"",
        "127.88.1.0/24",
        "least-connections",
    ] {
        assert!(config.contains(shown), "{shown}: {config}");
    }
    drop(within);
    stop(server);

    std::fs::write(&file, "[admission]\nmax-per-address = 0\n").unwrap();
    let output = run(&[
        "serve",
        "echo",
        "--listen",
        "echo=0",
        "--config",
        file.to_str().unwrap(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("per_address"),
        "{}",
        stderr(&output)
    );
}
