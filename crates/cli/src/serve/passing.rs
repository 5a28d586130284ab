//! Connections of which nothing was read go from a server that ends to its successor.

use std::os::fd::AsFd;
use std::time::Duration;

use tidewire::{Drain, Endpoint, Inbound, NotInbound, Unserved};
use tidewire_handover::{Broken, CONNECTIONS_MAX, Following, Session};

use super::kind::Named;
use super::settings::Settings;

/// How soon a loop without room is asked again, and how often.
const AGAIN: (Duration, u32) = (Duration::from_millis(5), 1000);

/// The server that ends: what it passes connections on by, and those that wait for the successor to have room.
pub(crate) struct Passing {
    session: Option<Session>,
    /// Where each listener is, its port included where any was asked for.
    places: Vec<Endpoint>,
    waiting: Vec<Unserved>,
}

impl Passing {
    /// Nothing is passed on without a session.
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

    /// Passes on what the loops have let go of. Called again and again until they have ended.
    pub(crate) fn go_on(&mut self, drain: &Drain, settings: &Settings) {
        let Some(session) = &self.session else { return };
        self.waiting.append(&mut drain.take_unserved());
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
            let endpoint = &settings.endpoints[listener as usize];
            let service = Named(vec![endpoint.kind]).to_string();
            let passed = session.pass_on(&service, &self.places[listener as usize], &sockets);
            let n = sockets.len();
            match passed {
                Ok(()) => {
                    tracing::info!(
                        service,
                        connections = n,
                        "connections of which nothing was read go to the successor"
                    );
                    self.waiting.drain(..n);
                }
                // Its queue is full.
                Err(Broken::Silent) => return,
                Err(error) => {
                    let connections = self.waiting.len();
                    tracing::warn!(%error, connections, "the successor takes no connections: they are closed");
                    self.waiting.clear();
                    self.session = None;
                    return;
                }
            }
        }
    }
}

/// The successor: lets in what follows, on a thread of its own, until the other server has ended.
pub(crate) fn take_in(mut following: Following, inbound: Inbound, settings: &Settings) {
    let endpoints = settings.endpoints.iter();
    let places: Vec<_> = endpoints
        .map(|endpoint| {
            (
                Named(vec![endpoint.kind]).to_string(),
                endpoint.place.clone(),
            )
        })
        .collect();
    let receive = move || {
        loop {
            match following.next() {
                Ok(None) => return,
                Err(error) => {
                    tracing::warn!(%error, "connections of the server before this one are lost");
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
        tracing::warn!(%error, "no thread to receive connections of the server before this one: they are lost");
    }
}

/// Has the loops let these in, and waits for room if they have none.
pub(crate) fn let_in(inbound: &Inbound, connections: Vec<Unserved>) {
    for mut one in connections {
        let (pause, tries) = AGAIN;
        for left in (0..tries).rev() {
            if left == 0 {
                tracing::warn!(
                    "a connection of the server before this one is closed: the loops have no room for it"
                );
                break;
            }
            one = match inbound.accept(one) {
                Err(NotInbound::NoRoom(back)) => back,
                Ok(()) => break,
                Err(error) => {
                    tracing::warn!(%error, "a connection of the server before this one is lost");
                    break;
                }
            };
            std::thread::sleep(pause);
        }
    }
}
