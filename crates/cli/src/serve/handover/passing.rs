//! Connections of which nothing was read go from a server that ends to its successor.

use std::os::fd::AsFd;
use std::time::Duration;

use tidewire::{Drain, Endpoint, Inbound, NotInbound, Unserved};
use tidewire_handover::{Broken, CONNECTIONS_MAX, Following, Session};

use crate::serve::settings::frame::Settings;

/// How soon a loop without room is asked again, and how often.
const AGAIN: (Duration, u32) = (Duration::from_millis(5), 1000);

/// The server that ends: the channel for passing connections on, and connections that wait for the
/// successor to have room.
pub(crate) struct Passing {
    session: Option<Session>,
    /// The address of each listener, with its real port where port 0 was asked for.
    places: Vec<Endpoint>,
    waiting: Vec<Unserved>,
}

impl Passing {
    /// Without a session, no connection is passed on.
    pub(crate) fn new(session: Option<Session>, places: &[Endpoint]) -> Passing {
        Passing {
            session,
            places: places.to_vec(),
            waiting: Vec::new(),
        }
    }

    /// Whether connections may still be passed on.
    pub(crate) fn is_open(&self) -> bool {
        self.session.is_some()
    }

    /// Whether connections wait for the successor to have room.
    pub(crate) fn is_awaited(&self) -> bool {
        self.session.is_some() && !self.waiting.is_empty()
    }

    /// Passes connections that the loops have released on to the successor. Call this again until the loops have ended
    /// and the successor has taken everything.
    pub(crate) fn go_on(&mut self, drain: &Drain, settings: &Settings) {
        if self.session.is_some() {
            let service = |listener: u32| settings.endpoints[listener as usize].kind.to_string();
            self.pass_on(drain.take_unserved(), service);
        }
    }

    /// The successor's time is over: closes the connections that still wait.
    pub(crate) fn end(&mut self) -> usize {
        let connections = std::mem::take(&mut self.waiting).len();
        if connections > 0 {
            tracing::warn!(
                connections,
                "the successor has no room for unserved connections: they are closed"
            );
        }
        self.session = None;
        connections
    }

    fn pass_on(&mut self, mut more: Vec<Unserved>, service: impl Fn(u32) -> String) {
        let Some(session) = &self.session else { return };
        self.waiting.append(&mut more);
        self.waiting.sort_by_key(|one| one.listener);
        while let Some(first) = self.waiting.first() {
            let listener = first.listener;
            let some = self
                .waiting
                .iter()
                .take_while(|one| one.listener == listener);
            let sockets: Vec<_> = some
                .take(CONNECTIONS_MAX)
                .map(|one| one.socket.as_fd())
                .collect();
            let service = service(listener);
            let passed = session.pass_on(&service, &self.places[listener as usize], &sockets);
            let n = sockets.len();
            match passed {
                Ok(()) => {
                    tracing::info!(
                        service,
                        connections = n,
                        "unserved connections go to the successor"
                    );
                    self.waiting.drain(..n);
                }
                // The successor's queue is full.
                Err(Broken::Silent) => return,
                Err(error) => {
                    let connections = self.waiting.len();
                    tracing::warn!(%error, connections, "the successor takes no unserved connections: they are closed");
                    self.waiting.clear();
                    self.session = None;
                    return;
                }
            }
        }
    }
}

/// In the successor: takes connections from the other server, on a thread of its own, until the
/// other server has ended.
pub(crate) fn take_in(mut following: Following, inbound: Inbound, settings: &Settings) {
    let endpoints = settings.endpoints.iter();
    let places: Vec<_> = endpoints
        .map(|endpoint| (endpoint.kind.to_string(), endpoint.place.clone()))
        .collect();
    let receive = move || {
        loop {
            match following.next() {
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "connections of the predecessor are lost");
                    return;
                }
                Ok(Some(followed)) => {
                    let is_its = |(service, at): &(String, _)| {
                        *service == followed.service && *at == followed.at
                    };
                    let Some(listener) = places.iter().position(is_its) else {
                        tracing::warn!(
                            service = followed.service,
                            "connections of a service that is not served here are closed"
                        );
                        continue;
                    };
                    let listener = listener as u32;
                    let sockets = followed.sockets.into_iter();
                    let_in(
                        &inbound,
                        sockets
                            .map(|socket| Unserved { listener, socket })
                            .collect(),
                    );
                }
            }
        }
    };
    let thread = std::thread::Builder::new().name("tidewire-inbound".into());
    if let Err(error) = thread.spawn(receive) {
        tracing::warn!(%error, "no thread to receive connections of the predecessor: they are lost");
    }
}

/// Gives these connections to the loops, and waits for room if the loops have none.
pub(crate) fn let_in(inbound: &Inbound, connections: Vec<Unserved>) {
    for mut one in connections {
        let (pause, tries) = AGAIN;
        for left in (0..tries).rev() {
            if left == 0 {
                tracing::warn!(
                    "a connection of the predecessor is closed: the loops have no room for it"
                );
                break;
            }
            one = match inbound.accept(one) {
                Err(NotInbound::NoRoom(back)) => back,
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(%error, "a connection of the predecessor is lost");
                    break;
                }
            };
            std::thread::sleep(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::net::{TcpListener, TcpStream};

    use rustix::net::{
        AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
        socket_with,
    };
    use tidewire_handover::Control;

    use super::*;

    fn echo(_: u32) -> String {
        "echo".into()
    }

    /// A successor that reads when the test does.
    #[test]
    fn connections_wait_for_a_successor_without_room_and_are_then_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("control");
        let control = Control::listen(&path).expect("a control socket");
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let successor = socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("a socket");
        connect(&successor, &SocketAddrUnix::new(&path).expect("a path")).expect("a connection");
        let session = control.accept().expect("accepting").expect("a session");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let mut passing = Passing::new(Some(session), &[at.into()]);
        let mut clients = Vec::new();
        let mut connection = || {
            clients.push(TcpStream::connect(at).expect("a connection"));
            let socket = listener.accept().expect("accepting").0.into();
            vec![Unserved {
                listener: 0,
                socket,
            }]
        };

        // Passes connections until the successor's queue is full.
        while !passing.is_awaited() {
            passing.pass_on(connection(), echo);
        }
        passing.pass_on(connection(), echo);
        assert_eq!(passing.waiting.len(), 2);
        // The successor reads, and has room.
        while passing.is_awaited() {
            let read = recv(&successor, &mut [0; 4096], RecvFlags::DONTWAIT);
            assert!(read.expect("a packet").0 > 0);
            passing.pass_on(Vec::new(), echo);
        }
        // The successor reads no more.
        while !passing.is_awaited() {
            passing.pass_on(connection(), echo);
        }
        assert_eq!(passing.end(), 1);
        assert!(!passing.is_open() && !passing.is_awaited());
        let mut last = clients.pop().expect("it was made");
        match last.read(&mut [0]) {
            Ok(n) => assert_eq!(n, 0),
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::ConnectionReset),
        }
    }
}
