//! The name of a connection that is valid wherever its server is known.

use std::fmt;

use crate::vocabulary::conn_id::ConnId;

/// Names a connection among all loops and services of a server; no other connection gets the name (until 2^32
/// connections later). For maps that loops share, and for log lines. A name can be sent to any thread.
///
/// A [handle](crate::LoopHandle::handle), which the loop's handle makes from the name, reaches the connection. Within its
/// loop a connection has a shorter name, a [`ConnId`].
///
/// ```
/// use std::collections::BTreeMap;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
/// use tidewire::sim::{Conditions, Sim};
/// use tidewire::*;
///
/// /// Who is there, on whatever loop, and how loops are reached.
/// #[derive(Clone, Default)]
/// struct Room {
///     guests: Arc<Mutex<BTreeMap<ConnName, String>>>,
///     loops: Arc<Mutex<BTreeMap<u32, LoopHandle<String>>>>,
/// }
///
/// struct Guest(Room);
///
/// impl Protocol for Guest {
///     type Local = ();
///     type Message = String;
///
///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
///         let peer = cx.link.peer().endpoint.to_string();
///         self.0.guests.lock().unwrap().insert(cx.name(), peer);
///     }
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
///         input.consume(input.len());
///         Next::More
///     }
///
///     fn posted(&mut self, text: String, cx: &mut Cx<'_, Self>) {
///         cx.link.write(text.as_bytes());
///     }
///
///     fn closed(self, _: Closed, turn: &mut Turn<'_, Self>) {
///         if let Some(name) = turn.name() {
///             self.0.guests.lock().unwrap().remove(&name);
///         }
///     }
/// }
///
/// impl Service for Room {
///     type Conn = Guest;
///
///     fn on_loop(&self, at: LoopHandle<String>) {
///         self.loops.lock().unwrap().insert(at.number(), at);
///     }
///
///     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Guest, Refusal> {
///         Ok(Guest(self.clone()))
///     }
/// }
///
/// let room = Room::default();
/// let mut sim = Sim::under(1, Conditions::calm());
/// let addr = sim.serve(room.clone(), Limits::default());
/// let guest = sim.plain(addr);
/// sim.run_for(Duration::from_secs(1));
/// let name = *room.guests.lock().unwrap().keys().next().unwrap();
/// assert_eq!(ConnName::from_bits(name.to_bits()), name);
/// let handle = room.loops.lock().unwrap()[&name.number()].handle(name).expect("it is of that loop");
/// assert_eq!(handle.name(), name);
/// handle.try_post("hello".into()).unwrap();
/// sim.run_for(Duration::from_secs(1));
/// assert_eq!(sim.received(guest), b"hello");
/// sim.finish(guest);
/// sim.run_for(Duration::from_secs(1));
/// assert!(room.guests.lock().unwrap().is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnName {
    number: u32,
    service: u16,
    id: u64,
}

impl fmt::Debug for ConnName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, generation) = (self.id as u32, self.id >> 32);
        let (number, service) = (self.number, self.service);
        write!(f, "ConnName({number}, {service}, {index}, {generation})")
    }
}

impl ConnName {
    pub(crate) fn new(number: u32, service: u16, id: ConnId) -> ConnName {
        let id = id.to_bits();
        ConnName {
            number,
            service,
            id,
        }
    }

    /// The number of the connection's loop: see [`LoopHandle::number`](crate::LoopHandle::number).
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// The number of the connection's service on that loop.
    pub(crate) fn service(self) -> u16 {
        self.service
    }

    /// The connection's name on that loop.
    pub(crate) fn id(self) -> ConnId {
        ConnId::from_bits(self.id)
    }

    /// The name as a number, of which 16 bits are 0.
    #[must_use]
    pub fn to_bits(self) -> u128 {
        u128::from(self.service) << 96 | u128::from(self.number) << 64 | u128::from(self.id)
    }

    /// The name that [`to_bits`](ConnName::to_bits) gave this number.
    #[must_use]
    pub fn from_bits(bits: u128) -> ConnName {
        ConnName {
            number: (bits >> 64) as u32,
            service: (bits >> 96) as u16,
            id: bits as u64,
        }
    }
}
