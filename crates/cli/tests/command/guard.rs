//! Safe by default: which clients of other hosts are let in, and that no port leads past a secret.
//!
//! What other hosts may do is tried in a network namespace of the test's own, whose loopback interface
//! has one more address that is no loopback address.

use crate::common;
use crate::common::pki;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{PATIENCE, Running, addr, run, stderr, stdout, tidewire};
use rustix::process::Signal;

/// Says something to a server and returns all that it says until it closes.
fn ask(to: SocketAddr, bytes: &[u8]) -> String {
    let mut client = TcpStream::connect(to).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = client.write_all(bytes);
    let _ = client.shutdown(std::net::Shutdown::Write);
    let mut all = Vec::new();
    // A reset is an answer too.
    let _ = client.read_to_end(&mut all);
    String::from_utf8_lossy(&all).into_owned()
}

fn stop(server: Running) -> String {
    server.signal(Signal::TERM);
    let output = server.end();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stderr(&output)
}

fn refused(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{args:?}: {}",
        stdout(&output)
    );
    stderr(&output)
}

fn secret(place: &Path) -> String {
    let path = place.join("secret");
    fs::write(&path, "s3cret\n").unwrap();
    path.to_str().unwrap().to_owned()
}

/// Starts a server of which one `listening` line is expected for each of `kinds`.
fn listening(mut command: Command, kinds: &[&str]) -> (Running, Vec<SocketAddr>) {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Running::from(command.spawn().unwrap());
    let mut addrs = Vec::new();
    for kind in kinds {
        let line = server.line();
        assert!(line.contains(kind), "{line:?}, not {kind}");
        addrs.push(addr(&line));
    }
    (server, addrs)
}

#[test]
fn a_password_leaves_the_binary_port_out() {
    let mut command = tidewire(&["serve", "kv/resp", "kv", "--listen", "kv/resp=0"]);
    command.env("TIDEWIRE_KV_PASSWORD", "s3cret");
    let (server, addrs) = listening(command, &["mode=resp"]);
    assert!(ask(addrs[0], b"GET k\r\n").starts_with("-NOAUTH"));
    assert_eq!(ask(addrs[0], b"AUTH s3cret\r\nGET k\r\n"), "+OK\r\n$-1\r\n");
    stop(server);
}

#[test]
fn the_binary_port_beside_a_password_is_opened_on_purpose_only() {
    let place = tempfile::tempdir().unwrap();
    let file = secret(place.path());
    let args = [
        "serve",
        "--listen",
        "kv/binary=0",
        "--listen",
        "kv/resp=0",
        "--kv-password-file",
        &file,
        "kv",
    ];
    for more in [&[][..], &["--open=kv/resp"], &["--open=echo,ingest"]] {
        let message = refused(&[&args[..], more].concat());
        assert!(message.contains("--open=kv/binary"), "{message}");
    }
    for open in ["--open", "--open=kv", "--open=kv/binary"] {
        let command = tidewire(&[&args[..], &[open]].concat());
        let (server, addrs) = listening(command, &["mode=binary", "mode=resp"]);
        // READ of a key that is not there.
        assert_eq!(ask(addrs[0], b"\x01\x00\x02\x01k"), "\x03\0");
        assert!(ask(addrs[1], b"GET k\r\n").starts_with("-NOAUTH"));
        stop(server);
    }
}

#[test]
fn tokens_are_not_led_past_by_the_classic_ports() {
    let place = tempfile::tempdir().unwrap();
    let file = secret(place.path());
    let data = place.path().join("data");
    let args = [
        "serve",
        "ingest",
        "--listen",
        "ingest=0",
        "--listen",
        "ack/sync=0",
        "--ack-level",
        "durable",
        "--ingest-token-file",
        &file,
        "--data",
        data.to_str().unwrap(),
    ];
    let message = refused(&args);
    assert!(message.contains("--open=ack"), "{message}");
    let command = tidewire(&[&args[..], &["--open=ack/sync"]].concat());
    let (server, _) = listening(command, &["service=ingest", "service=ack"]);
    stop(server);
}

#[test]
fn users_come_from_a_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("users").to_str().unwrap().to_owned();
    let serve = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--kv-acl-file",
        &file,
    ];
    let message = refused(&serve);
    assert!(message.contains("the ACL file"), "{message}");
    fs::write(&file, "user default on >s3cret ~* &* +@nope\n").unwrap();
    let message = refused(&serve);
    assert!(message.contains(":1: Unknown command"), "{message}");
    assert!(!message.contains("s3cret"), "{message}");
    let users = "user default on >s3cret ~* &* +@all\nuser bob on nopass ~b +get\n";
    fs::write(&file, users).unwrap();
    let (server, addrs) = listening(tidewire(&serve), &["mode=resp"]);
    assert!(ask(addrs[0], b"GET b\r\n").starts_with("-NOAUTH"));
    let got = ask(addrs[0], b"AUTH bob x\r\nGET b\r\nGET c\r\n");
    assert!(got.starts_with("+OK\r\n$-1\r\n-NOPERM"), "{got}");
    stop(server);
}

#[test]
fn secrets_come_from_files_and_the_environment() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let serve = ["serve", "kv/resp", "--listen", "kv/resp=0"];
    let message = refused(&[&serve[..], &["--kv-password-file", &path("none")]].concat());
    assert!(message.contains("cannot read the secret"), "{message}");
    fs::write(path("empty"), "\n").unwrap();
    let message = refused(&[&serve[..], &["--kv-password-file", &path("empty")]].concat());
    assert!(message.contains("one line"), "{message}");
    fs::write(
        path("config"),
        "[kv]\npassword = 'a'\npassword-file = 'b'\n",
    )
    .unwrap();
    let message = refused(&[&serve[..], &["--config", &path("config")]].concat());
    assert!(message.contains("two secrets"), "{message}");
    // The environment goes before the file.
    fs::write(path("config"), "[kv]\npassword = 'older'\n").unwrap();
    let mut command = tidewire(&[&serve[..], &["--config", &path("config")]].concat());
    command.env("TIDEWIRE_KV_PASSWORD", "newer");
    let (server, addrs) = listening(command, &["mode=resp"]);
    assert_eq!(ask(addrs[0], b"AUTH newer\r\n"), "+OK\r\n");
    assert!(ask(addrs[0], b"AUTH older\r\n").starts_with("-WRONGPASS"));
    let said = stop(server);
    assert!(!said.contains("newer") && !said.contains("older"), "{said}");
}

#[test]
fn a_secret_that_others_may_read_is_warned_of() {
    let place = tempfile::tempdir().unwrap();
    let file = secret(place.path());
    let args = [
        "serve",
        "kv/resp",
        "--listen",
        "kv/resp=0",
        "--kv-password-file",
        &file,
    ];
    for (mode, warned) in [(0o644, true), (0o600, false)] {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let (server, _) = listening(tidewire(&args), &["mode=resp"]);
        let said = stop(server);
        assert_eq!(
            said.contains("other users may read this secret"),
            warned,
            "{said}"
        );
    }
}

/// An address that is the host's own and no loopback address: to a server, another host.
const ELSEWHERE: &str = "10.99.0.1";

/// Set in the copy of a test that runs in a namespace of its own.
const INSIDE: &str = "TIDEWIRE_TEST_IN_NAMESPACE";

/// Runs the test of this name again in a network namespace with an address [`ELSEWHERE`]; true if
/// this is that run. Says why where no namespace can be made.
fn in_namespace(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let prepare = format!("ip link set lo up && ip addr add {ELSEWHERE}/32 dev lo");
    let unshare = |script: &str, args: &[&str]| -> std::io::Result<Output> {
        Command::new("unshare")
            .args(["--net", "--map-root-user", "sh", "-c", script, "sh"])
            .args(args)
            .env(INSIDE, "1")
            .output()
    };
    match unshare(&prepare, &[]) {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!("skipped: no network namespace: {}", stderr(&output));
            return false;
        }
        Err(error) => {
            eprintln!("skipped: no network namespace: unshare: {error}");
            return false;
        }
    }
    let this = std::env::current_exe().unwrap();
    let (_, here) = module_path!().split_once("::").unwrap();
    let test = format!("{here}::{test}");
    let args = [this.to_str().unwrap(), "--exact", &test, "--nocapture"];
    let output = unshare(&format!("{prepare} && exec \"$@\""), &args).unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        stdout(&output),
        stderr(&output)
    );
    assert!(stdout(&output).contains("1 passed"), "{}", stdout(&output));
    false
}

/// One port, reached from this host and from elsewhere.
fn both(port: SocketAddr) -> [SocketAddr; 2] {
    ["127.0.0.1", ELSEWHERE].map(|ip| SocketAddr::new(ip.parse().unwrap(), port.port()))
}

const BINARY_READ: &[u8] = b"\x01\x00\x02\x01k";

#[test]
fn other_hosts_are_turned_away_without_a_secret() {
    if !in_namespace("other_hosts_are_turned_away_without_a_secret") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let data = data.to_str().unwrap();
    for engine in common::engines() {
        let args = [
            "serve",
            "--bind",
            "0.0.0.0",
            "--engine",
            engine,
            "--workers",
            "1",
            "--data",
            data,
            "--ack-level",
            "durable",
            "--listen",
            "kv/resp=0",
            "--listen",
            "kv/binary=0",
            "--listen",
            "ack/sync=0",
            "--listen",
            "ingest=0",
            "--listen",
            "echo=0",
        ];
        let kinds = [
            "mode=resp",
            "mode=binary",
            "mode=sync",
            "service=ingest",
            "service=echo",
        ];
        let message: Vec<u8> = [&7u64.to_le_bytes()[..], &1u32.to_le_bytes(), b"x"].concat();
        for open in [false, true] {
            let more: &[&str] = if open { &["--open"] } else { &[] };
            let (server, addrs) = listening(tidewire(&[&args[..], more].concat()), &kinds);
            for (here, to) in [(true, both(addrs[0])[0]), (false, both(addrs[0])[1])] {
                let let_in = here || open;
                let said = ask(to, b"PING\r\n");
                assert_eq!(said == "+PONG\r\n", let_in, "{engine}: {said:?}");
                assert_eq!(said.starts_with("-DENIED "), !let_in, "{engine}: {said:?}");
                let at = |i: usize| both(addrs[i])[usize::from(!here)];
                assert_eq!(
                    ask(at(1), BINARY_READ) == "\x03\0",
                    let_in,
                    "{engine}: binary"
                );
                assert_eq!(ask(at(2), &message).len() == 12, let_in, "{engine}: ack");
                assert_eq!(ask(at(4), b"hello"), "hello", "{engine}");
                let to = at(3).to_string();
                let mut send = tidewire(&["send", "--to", &to, "--retry", "0"]);
                let output = send.stdin(Stdio::null()).output().unwrap();
                let said = stderr(&output);
                assert_eq!(output.status.success(), let_in, "{engine}: {said}");
                assert_eq!(said.contains("own host"), !let_in, "{engine}: {said}");
            }
            let said = stop(server);
            let warned = |service: &str| {
                let says = |line: &&str| {
                    line.contains(" level=warn target=tidewire::serve::listeners::guard ")
                        && line.contains(&format!("service={service} "))
                };
                said.lines().filter(says).count()
            };
            for service in ["kv/resp", "kv/binary", "ack/sync", "ingest", "echo"] {
                assert_eq!(warned(service), usize::from(!open), "{service}: {said}");
            }
        }
    }
}

#[test]
fn certificates_let_other_hosts_in_and_tls_alone_does_not() {
    if !in_namespace("certificates_let_other_hosts_in_and_tls_alone_does_not") {
        return;
    }
    let files = pki::Files::new();
    files
        .issuer
        .write(files.place.path(), "client", &["client"], 4000);
    let own = ["pem", "key"].map(|what| files.place.path().join(format!("client.{what}")));
    let [cert, key] = own.each_ref().map(|path| path.to_str().unwrap());
    let mut args = vec!["serve", "kv", "--bind", "0.0.0.0", "--listen", "kv/resp=0"];
    args.extend(["--listen", "kv/binary=0"]);
    args.extend(files.serve());
    for certificates in [false, true] {
        let mut args = args.clone();
        if certificates {
            args.extend(["--tls-client-ca", files.authority()]);
            // A port that asks for certificates is no side door beside a password.
            args.extend(["kv/binary"]);
        }
        let mut command = tidewire(&args);
        if certificates {
            command.env("TIDEWIRE_KV_PASSWORD", "s3cret");
        }
        let (server, addrs) = listening(command, &["mode=resp", "mode=binary"]);
        let port = addrs[0].port().to_string();
        let mut cli = Command::new("redis-cli");
        cli.args([
            "--no-auth-warning",
            "-a",
            if certificates { "s3cret" } else { "" },
        ]);
        cli.args(["--tls", "--cacert", files.authority(), "--sni", "localhost"]);
        cli.args(["--cert", cert, "--key", key, "-p", &port]);
        let mut ask = |host: &str| Some(stdout(&cli.args(["-h", host, "ping"]).output().ok()?));
        let Some(said) = ask(ELSEWHERE) else {
            eprintln!("skipped: no redis-cli");
            return;
        };
        assert_eq!(said.contains("PONG"), certificates, "{said}");
        let said = stop(server);
        assert_eq!(said.contains("requires no secret"), !certificates, "{said}");
    }
}
