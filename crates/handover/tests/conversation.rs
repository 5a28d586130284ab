//! A running server and its successor, each step of the way, over a real control socket.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tidewire_handover::{
    Broken, Claim, ClaimError, Control, Handed, Hello, Offer, Released, Session, Word,
};

const PATIENCE: Duration = Duration::from_secs(30);

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("control.sock")
    }
}

fn hello() -> Hello {
    Hello {
        version: "test".into(),
        pid: 42,
        forget: false,
        takes_connections: true,
    }
}

fn offer() -> Offer {
    Offer {
        version: "test".into(),
        pid: 41,
        logs: vec!["/data".into()],
        stores: Vec::new(),
        release_ms: 1000,
        packets: 0,
    }
}

fn wait(fd: &impl std::os::fd::AsFd) {
    let most = Timespec::try_from(PATIENCE).unwrap();
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&most)).unwrap(), 1, "nothing comes");
}

fn accept(control: &Control) -> Session {
    wait(control);
    control.accept().unwrap().expect("somebody asks")
}

fn word(session: &mut Session) -> Result<Word, Broken> {
    wait(session);
    session.hear().map(|word| word.expect("a word"))
}

/// `copies` sockets of one place, as if for loops.
fn listener(service: &str, copies: usize) -> Handed {
    let socket = OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
    let at = TcpListener::from(socket.try_clone().unwrap())
        .local_addr()
        .unwrap()
        .into();
    let sockets = (0..copies).map(|_| socket.try_clone().unwrap());
    Handed {
        service: service.into(),
        at,
        is_given: false,
        owns_file: false,
        sockets: sockets.collect(),
    }
}

/// A successor that does all, on a thread.
fn successor(path: &Path) -> thread::JoinHandle<Result<Vec<Handed>, ClaimError>> {
    let path = path.to_owned();
    thread::spawn(move || {
        let (claim, offer, all) = Claim::ask(&path, hello())?;
        if !offer.logs.is_empty() {
            assert_eq!(claim.take(PATIENCE)?, Released::InOrder);
        }
        claim.serving()?;
        Ok(all)
    })
}

#[test]
fn sockets_arrive_with_their_names_and_work() {
    let place = Place::new();
    let control = Control::listen(&place.path()).unwrap();
    let mode = std::fs::metadata(place.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let theirs = successor(&place.path());
    let mut session = accept(&control);
    assert_eq!(word(&mut session).unwrap(), Word::Hello(hello()));
    // More than one packet holds, and more than one service.
    let all = [
        listener("echo", 1),
        listener("kv/resp", 300),
        control.hand().unwrap(),
    ];
    session.offer(offer(), &all).unwrap();
    assert_eq!(word(&mut session).unwrap(), Word::Take);
    session.released().unwrap();
    assert_eq!(word(&mut session).unwrap(), Word::Serving);
    session.go(false).unwrap();
    let got = theirs.join().unwrap().unwrap();
    let shown = |all: &[Handed]| -> Vec<(String, String, usize)> {
        let shown = |h: &Handed| (h.service.clone(), h.at.to_string(), h.sockets.len());
        all.iter().map(shown).collect()
    };
    assert_eq!(shown(&got), shown(&all));
    assert!(got[2].owns_file && !got[0].owns_file);
    // Both sockets are one open file description: a client is accepted there.
    let mut client = TcpStream::connect(got[0].at.tcp().unwrap()).unwrap();
    let mut got = got.into_iter();
    let socket = got.next().unwrap().sockets.pop().unwrap();
    let (mut server, _) = TcpListener::from(socket).accept().unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0]).unwrap();
    // The successor's is the same control socket, and its file stays.
    let mut theirs = Control::inherit(got.next_back().unwrap()).unwrap();
    control.leave();
    theirs.adopt();
    assert!(place.path().exists());
    let next = successor(&place.path());
    let session = accept(&theirs);
    session.refuse("enough");
    let refused = next.join().unwrap().unwrap_err();
    assert_eq!(refused.to_string(), "the running server refuses: enough");
    drop(theirs);
    assert!(!place.path().exists(), "the last one removes it");
}

#[test]
fn a_successor_that_goes_is_noticed_at_every_step() {
    for step in 0..4 {
        let place = Place::new();
        let control = Control::listen(&place.path()).unwrap();
        let path = place.path();
        let theirs = thread::spawn(move || {
            if step == 0 {
                return drop(raw(&path));
            }
            let (claim, ..) = Claim::ask(&path, hello()).unwrap();
            match step {
                1 => drop(claim),
                2 => claim.refuse("no room"),
                _ => drop(claim.take(PATIENCE)),
            }
        });
        let mut session = accept(&control);
        let gone = 'gone: {
            match word(&mut session) {
                Ok(Word::Hello(_)) => session.offer(offer(), &[listener("echo", 1)]).unwrap(),
                other => break 'gone other,
            }
            match word(&mut session) {
                Ok(Word::Take) => session.released().unwrap(),
                other => break 'gone other,
            }
            word(&mut session)
        };
        match (step, gone.unwrap_err()) {
            (2, Broken::Refused(why)) => assert_eq!(why, "no room"),
            (_, Broken::Gone) => {}
            (step, other) => panic!("step {step}: {other}"),
        }
        theirs.join().unwrap();
    }
}

#[test]
fn a_server_that_goes_is_noticed_at_every_step() {
    for step in 0..3 {
        let place = Place::new();
        let control = Control::listen(&place.path()).unwrap();
        let path = place.path();
        let theirs = thread::spawn(move || {
            let (claim, ..) = Claim::ask(&path, hello())?;
            let released = claim.take(PATIENCE)?;
            claim.serving()?;
            Ok::<Released, ClaimError>(released)
        });
        let mut session = accept(&control);
        word(&mut session).unwrap();
        if step > 0 {
            session.offer(offer(), &[listener("echo", 1)]).unwrap();
            word(&mut session).unwrap();
        }
        if step > 1 {
            session.released().unwrap();
            word(&mut session).unwrap();
        }
        drop(session);
        let result = theirs.join().unwrap();
        match step {
            0 => assert!(matches!(result, Err(ClaimError::Broken(Broken::Gone)))),
            // The process that has the sockets goes on with them.
            1 => assert_eq!(result.unwrap(), Released::ItHasGone),
            _ => assert_eq!(result.unwrap(), Released::InOrder),
        }
    }
}

/// A connection without the client's code.
fn raw(path: &Path) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    socket
}

fn say(socket: &OwnedFd, text: &[u8]) {
    rustix::net::send(socket, text, rustix::net::SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn what_is_not_expected_ends_the_conversation() {
    let long = format!(r#"{{"handover":1,"hello":"{}"}}"#, "x".repeat(70 << 10));
    let cases: [(&[u8], &str); 6] = [
        (b"hello", "an unexpected message: hello"),
        (br#"{"handover":2,"hello":{}}"#, "speaks version 2"),
        (br#"{"handover":1,"take":{}}"#, "when Silent"),
        (br#"{"handover":1,"serving":{}}"#, "when Silent"),
        (
            br#"{"handover":1,"hello":{"pid":-1}}"#,
            "unexpected message",
        ),
        (long.as_bytes(), "too long"),
    ];
    let place = Place::new();
    let control = Control::listen(&place.path()).unwrap();
    for (text, shown) in cases {
        let theirs = raw(&place.path());
        let mut session = accept(&control);
        assert_eq!(session.hear().unwrap(), None, "nothing yet");
        say(&theirs, text);
        let e = word(&mut session).unwrap_err().to_string();
        assert!(e.contains(shown), "{e}");
    }
}

/// An old server, or a newer one, says in its own words that it will not, and the words
/// are shown.
#[test]
fn a_server_of_another_version_is_understood() {
    let place = Place::new();
    let control = Control::listen(&place.path()).unwrap();
    let answers: [(&[u8], &str); 3] = [
        (
            br#"{"handover":7,"refuse":{"why":"I speak 7, not 1"}}"#,
            "the running server refuses: I speak 7, not 1",
        ),
        (br#"{"handover":7,"offer":{}}"#, "speaks version 7"),
        (br#"{"handover":1,"go":{}}"#, "unexpected message"),
    ];
    for (answer, shown) in answers {
        let path = place.path();
        let theirs = thread::spawn(move || Claim::ask(&path, hello()).map(drop));
        wait(&control);
        let socket = rustix::net::accept(&control).unwrap();
        say(&socket, answer);
        let e = theirs.join().unwrap().unwrap_err().to_string();
        assert!(e.contains(shown), "{e}");
    }
}

/// Sockets that come unasked are closed, and fill nothing.
#[test]
fn sockets_that_were_not_asked_for_are_closed() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let place = Place::new();
    let control = Control::listen(&place.path()).unwrap();
    let theirs = raw(&place.path());
    let mut session = accept(&control);
    let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
    let fds = [std::os::fd::AsFd::as_fd(&there)];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
    let text = serde_json_hello();
    let parts = [std::io::IoSlice::new(text.as_bytes())];
    sendmsg(&theirs, &parts, &mut beside, SendFlags::NOSIGNAL).unwrap();
    word(&mut session).unwrap();
    drop(there);
    here.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!((&here).read(&mut [0]).unwrap(), 0, "nobody has it any more");
}

fn serde_json_hello() -> String {
    r#"{"handover":1,"hello":{"version":"x","pid":1,"forget":false}}"#.into()
}

#[test]
fn a_missing_server_is_said_with_the_path() {
    let place = Place::new();
    let nobody = Claim::ask(&place.path(), hello()).unwrap_err().to_string();
    assert!(nobody.contains(place.path().to_str().unwrap()), "{nobody}");
}

#[test]
fn a_dead_servers_file_is_replaced_and_a_living_ones_is_not() {
    let place = Place::new();
    let dead = Control::listen(&place.path()).unwrap();
    let handed = dead.hand().unwrap();
    dead.leave();
    // A server listens still.
    let living = Control::listen(&place.path()).unwrap_err();
    assert_eq!(living.kind(), std::io::ErrorKind::AddrInUse);
    drop(handed);
    let again = Control::listen(&place.path()).unwrap();
    drop(again);
    assert!(!place.path().exists());
}

/// A silent peer does not hold the place for ever.
#[test]
fn silence_is_an_end() {
    let place = Place::new();
    let control = Control::listen(&place.path()).unwrap();
    let _theirs = raw(&place.path());
    let mut session = accept(&control);
    let began = Instant::now();
    let mut seen = BTreeSet::new();
    let end = loop {
        assert!(began.elapsed() < PATIENCE);
        match session.hear() {
            Ok(word) => drop(seen.insert(word.is_some())),
            Err(e) => break e,
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert!(matches!(end, Broken::Silent) && !seen.contains(&true));
}

/// Where the other process is of another namespace, as one outside of a container is, it has no
/// number here, but its user is known. It was not heard: `the control socket cannot be read: no
/// successor is heard error="Success (os error 0)"`.
#[test]
fn a_successor_outside_of_the_servers_namespace_is_heard() {
    const INSIDE: &str = "TIDEWIRE_TEST_CONTROL_INSIDE";
    if let Some(path) = std::env::var_os(INSIDE) {
        let control = Control::listen(Path::new(&path)).unwrap();
        wait(&control);
        let session = control.accept().unwrap().expect("somebody has asked");
        return session.refuse("heard");
    }
    let place = Place::new();
    let this = std::env::current_exe().unwrap();
    let mut inside = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child"])
        .arg(this)
        .args([
            "--exact",
            "a_successor_outside_of_the_servers_namespace_is_heard",
        ])
        .env(INSIDE, place.path())
        .spawn()
        .expect("util-linux");
    let begin = Instant::now();
    let refused = loop {
        match Claim::ask(&place.path(), hello()) {
            Err(ClaimError::Nobody { .. }) if inside.try_wait().unwrap().is_none() => {
                assert!(begin.elapsed() < PATIENCE);
                thread::sleep(Duration::from_millis(10));
            }
            Err(ClaimError::Nobody { .. }) => {
                eprintln!("skipped: no namespace of processes can be made here (root)");
                return;
            }
            asked => break asked.expect_err("a refusal").to_string(),
        }
    };
    assert!(refused.contains("heard"), "{refused}");
    assert!(inside.wait().unwrap().success());
}

#[test]
fn connections_follow_a_successor_that_takes_them() {
    let place = Place::new();
    let control = Control::listen(&place.path()).unwrap();
    let path = place.path();
    let theirs = thread::spawn(move || {
        let (claim, _, _) = Claim::ask(&path, hello()).unwrap();
        let mut following = claim.serving().unwrap().expect("some follow");
        let mut all = Vec::new();
        while let Some(some) = following.next().unwrap() {
            assert_eq!(
                (&*some.service, &*some.at.to_string()),
                ("http", "127.0.0.1:80")
            );
            all.extend(some.sockets);
        }
        all
    });
    let mut session = accept(&control);
    assert!(matches!(word(&mut session), Ok(Word::Hello(_))));
    let all = [listener("http", 1)];
    session.offer(offer(), &all).unwrap();
    assert_eq!(word(&mut session).unwrap(), Word::Serving);
    session.go(true).unwrap();
    let accepting = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = "127.0.0.1:80".parse().unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(accepting.local_addr().unwrap()).unwrap());
        let (accepted, _) = accepting.accept().unwrap();
        let fd = std::os::fd::AsFd::as_fd(&accepted);
        session.pass_on("http", &at, &[fd]).unwrap();
    }
    drop(session);
    let taken = theirs.join().unwrap();
    for (client, socket) in clients.iter_mut().zip(taken) {
        TcpStream::from(socket).write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
    }
}
