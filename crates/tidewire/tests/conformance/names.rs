//! Names of connections that are valid on every loop: handles are made from them, and `closed` is told them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidewire::{
    Closed, ConnName, Cx, Handle, Input, Layered, Limits, LoopHandle, Next, Peer, Protocol,
    Refusal, Service, Turn,
};

use crate::case::{Case, case};
use crate::hosting::{Loops, host};
use crate::layers::{Inverts, inverted};
use crate::process::eventually;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(names_reach_their_connections_from_anywhere),
        case!(names_inside_a_layer_reach_their_connections),
    ]
}

/// What a shared room knows: loops by their numbers, and who is there.
#[derive(Default)]
struct Room {
    loops: BTreeMap<u32, LoopHandle<u8>>,
    /// Each with the byte that it has said.
    guests: BTreeMap<ConnName, u8>,
    /// Guests that have gone.
    gone: Vec<ConnName>,
}

#[derive(Clone, Default)]
struct Rooms(Arc<Mutex<Room>>);

impl Rooms {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.0.lock().expect("not poisoned")
    }

    /// As others make it, who know a name alone.
    fn handle(&self, name: ConnName) -> Option<Handle<u8>> {
        self.room().loops.get(&name.number())?.handle(name)
    }
}

struct Guest(Rooms);

impl Protocol for Guest {
    type Local = ();
    type Message = u8;

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let name = cx.name();
        assert_eq!(cx.handle().name(), name);
        assert_eq!(name.number(), cx.number());
        assert_eq!(ConnName::from_bits(name.to_bits()), name);
        self.0.room().guests.insert(name, input.bytes()[0]);
        cx.link.forward_all(input)
    }

    fn posted(&mut self, byte: u8, cx: &mut Cx<'_, Self>) {
        cx.link.write(&[byte]);
    }

    fn closed(self, _: Closed, turn: &mut Turn<'_, Self>) {
        self.0.room().gone.extend(turn.name());
    }
}

impl Service for Rooms {
    type Conn = Guest;

    fn on_loop(&self, at: LoopHandle<u8>) {
        self.room().loops.insert(at.number(), at);
    }

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Guest, Refusal> {
        Ok(Guest(self.clone()))
    }
}

/// Each of several connections, on any loop, is reached by its name; when it has gone, its name reaches none, also where
/// another connection has its place.
fn are_reached(rooms: &Rooms, loops: &Loops<impl Service>, wire: fn(&[u8]) -> Vec<u8>) {
    const GUESTS: u8 = 8;
    let mut clients: Vec<_> = (0..GUESTS)
        .map(|n| {
            let mut client = loops.connect();
            client.send(&wire(&[n]));
            client.expect(&wire(&[n]));
            client
        })
        .collect();
    let guests = rooms.room().guests.clone();
    assert_eq!(guests.len(), usize::from(GUESTS), "no name is given twice");
    for (&name, &n) in &guests {
        let handle = rooms.handle(name).expect("its loop runs");
        assert!(handle.try_post(100 + n).is_ok());
        // Another loop knows that it is none of its connections.
        let others: Vec<_> = rooms.room().loops.values().cloned().collect();
        for other in others.iter().filter(|at| at.number() != name.number()) {
            assert!(other.handle(name).is_none());
        }
    }
    for (client, n) in clients.iter_mut().zip(0..) {
        client.expect(&wire(&[100 + n]));
    }
    drop(clients);
    eventually("all to go", || rooms.room().gone.len() == guests.len());
    let mut gone = std::mem::take(&mut rooms.room().gone);
    gone.sort_unstable();
    assert!(gone.iter().eq(guests.keys()));
    // Other connections have the places now.
    let mut later: Vec<_> = (0..GUESTS).map(|_| loops.connect()).collect();
    for (client, n) in later.iter_mut().zip(50..) {
        client.send(&wire(&[n]));
        client.expect(&wire(&[n]));
    }
    for &name in guests.keys() {
        if let Some(handle) = rooms.handle(name) {
            let _ = handle.try_post(200);
        }
    }
    for (client, n) in later.iter_mut().zip(50..) {
        client.send(&wire(&[n]));
        client.expect(&wire(&[n]));
    }
    assert_eq!(rooms.room().guests.len(), 2 * guests.len());
}

fn names_reach_their_connections_from_anywhere(v: Variant) {
    let rooms = Rooms::default();
    let loops = host(v, rooms.clone(), Limits::default());
    are_reached(&rooms, &loops, <[u8]>::to_vec);
    loops.stop(Duration::ZERO);
}

fn names_inside_a_layer_reach_their_connections(v: Variant) {
    let rooms = Rooms::default();
    let layered = Layered::new(Inverts, rooms.clone());
    let loops = host(v, layered, Limits::default());
    are_reached(&rooms, &loops, inverted);
    loops.stop(Duration::ZERO);
}
