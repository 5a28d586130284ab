//! The door of a service: its own limit on connections, the rules that stand in the way of its
//! listeners, and what it says to refused clients.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::admission::{Admission, Part};
use crate::contained::contained;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// A service's part in handling connections that are not its own yet, or are refused.
pub(crate) trait Face: Send + Sync {
    fn refusal_reply(&self, why: Refusal, from: &Peer) -> Option<Cow<'static, [u8]>>;
    fn speaks_for_others(&self, from: &Peer) -> bool;
}

/// Rules, and the listener that they are for; all of a service's if there is none.
pub(crate) type Gate = (Option<u32>, Admission);

/// Shared by all loops of a service.
pub(crate) struct Door {
    name: Arc<str>,
    face: Arc<dyn Face>,
    /// How many connections may be open at once, and how many are open. An accepted connection counts from its
    /// acceptance on, a dialled connection once it is established.
    most: usize,
    open: AtomicUsize,
    /// The listeners' gates first, the gates of all services last.
    gates: Vec<Gate>,
}

impl Door {
    /// A door without rules.
    pub(crate) fn new(name: Arc<str>, face: Arc<dyn Face>, most: usize) -> Door {
        Door {
            name,
            face,
            most,
            open: AtomicUsize::new(0),
            gates: Vec::new(),
        }
    }

    /// Another door of the service. The listeners' gates come first.
    pub(crate) fn again(&self, name: Arc<str>, gates: Vec<Gate>) -> Door {
        Door {
            gates,
            ..Door::new(name, self.face.clone(), self.most)
        }
    }

    /// Lets a connection in that was accepted at this listener.
    pub(crate) fn admit(
        self: &Arc<Self>,
        listener: u32,
        from: &Endpoint,
        now: Instant,
    ) -> Result<Permit, Refusal> {
        let from = Peer::new(from.clone(), Origin::Accepted(listener));
        // First, because a denied client is to learn nothing else.
        self.look_up(&from, &from.endpoint)?;
        self.enter()?;
        match self.pass_gates(&from, now) {
            Ok(part) => Ok(Permit {
                door: Some(self.clone()),
                from,
                part,
            }),
            Err(why) => {
                self.open.fetch_sub(1, Relaxed);
                Err(why)
            }
        }
    }

    /// Counts a connection, if the rules admit it.
    pub(crate) fn enter(&self) -> Result<(), Refusal> {
        if self.open.fetch_add(1, Relaxed) >= self.most {
            self.open.fetch_sub(1, Relaxed);
            return Err(Refusal::ConnectionLimit);
        }
        Ok(())
    }

    /// The service's name, for logs.
    pub(crate) fn service(&self) -> &str {
        &self.name
    }

    /// The bytes with which a refused client is answered; `None` if the service panicked when asked
    /// for them.
    pub(crate) fn reply(&self, why: Refusal, from: &Peer) -> Option<Option<Cow<'static, [u8]>>> {
        contained(|| self.face.refusal_reply(why, from))
    }

    /// Counts the client that a proxy has named. `known` are the facts about the connection that
    /// were known before.
    pub(crate) fn count_named(
        &self,
        known: &Peer,
        told: &Peer,
        now: Instant,
    ) -> Result<(), Refusal> {
        let (before, after) = (known.original(), told.original());
        if before == after {
            return Ok(());
        }
        if let Some(named) = after {
            self.look_up(known, named)?;
            self.pass(Part::Named, known, named, now)?;
        }
        if let Some(named) = before {
            self.leave(Part::Named, known, named);
        }
        Ok(())
    }

    /// Takes a closed connection out of the counts.
    pub(crate) fn gone(&self, peer: &Peer, part: Part) {
        self.open.fetch_sub(1, Relaxed);
        if matches!(peer.origin, Origin::Accepted(_)) && !self.gates.is_empty() {
            self.leave(part, peer, &peer.endpoint);
            if let Some(named) = peer.original() {
                self.leave(Part::Named, peer, named);
            }
        }
    }

    /// Counts a connection by the rules, if there are any; what counts of it. The service is asked
    /// here and never again: the client that leaves must be the one that came.
    fn pass_gates(&self, from: &Peer, now: Instant) -> Result<Part, Refusal> {
        if self.gates.is_empty() {
            return Ok(Part::Whole);
        }
        // A proxy's own address says nothing of the clients that it speaks for.
        let part = match contained(|| self.face.speaks_for_others(from)) {
            Some(true) => Part::Nameless,
            Some(false) => Part::Whole,
            None => return Err(Refusal::Panicked),
        };
        self.pass(part, from, &from.endpoint, now)?;
        Ok(part)
    }

    fn of_listener<'a>(&'a self, peer: &Peer) -> impl Iterator<Item = &'a Admission> + use<'a> {
        let origin = peer.origin;
        let stands = move |gate: &&Gate| match (gate.0, origin) {
            (Some(listener), origin) => origin == Origin::Accepted(listener),
            (None, _) => true,
        };
        self.gates.iter().filter(stands).map(|(_, rules)| rules)
    }

    fn look_up(&self, peer: &Peer, from: &Endpoint) -> Result<(), Refusal> {
        match self.of_listener(peer).all(|gate| gate.allows(from)) {
            true => Ok(()),
            false => Err(Refusal::Denied),
        }
    }

    fn pass(&self, part: Part, peer: &Peer, from: &Endpoint, now: Instant) -> Result<(), Refusal> {
        for (passed, gate) in self.of_listener(peer).enumerate() {
            if let Err(why) = gate.count(part, from, now) {
                let before = self.of_listener(peer).take(passed);
                before.for_each(|gate| gate.discount(part, from, true));
                return Err(why);
            }
        }
        Ok(())
    }

    fn leave(&self, part: Part, peer: &Peer, from: &Endpoint) {
        for gate in self.of_listener(peer) {
            gate.discount(part, from, false);
        }
    }
}

/// The place of a connection that was let in, until a loop has it. Given back when dropped.
pub(crate) struct Permit {
    door: Option<Arc<Door>>,
    from: Peer,
    part: Part,
}

impl Permit {
    /// Keeps the place; the connection's loop gives it back later with [`Door::gone`].
    #[must_use]
    pub(crate) fn keep(mut self) -> Part {
        self.door = None;
        self.part
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({})", self.from.endpoint)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(door) = self.door.take() {
            door.gone(&self.from, self.part);
        }
    }
}
