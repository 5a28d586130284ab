//! Servers in memory, and a network that loses connections and delays everything.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use fastrand::Rng;
use tidewire_ship::{Ended, Lane, Matter, Network, Stand};

use crate::files::Life;

/// Most bytes of a message.
pub(crate) const PAYLOAD_MAX: u32 = 40;
/// Messages that a lane holds.
const BUFFER: usize = 7;

pub(crate) struct Stored {
    pub(crate) id: u64,
    pub(crate) payload: Vec<u8>,
    /// Place of the message among all that was stored anywhere.
    pub(crate) place: u64,
}

#[derive(Default)]
pub(crate) struct Server {
    pub(crate) is_down: bool,
    /// What begins so is a producer that was forgotten.
    pub(crate) forgotten: Option<String>,
    /// Most producers, if there is a limit.
    pub(crate) most: Option<usize>,
    pub(crate) producers: BTreeMap<String, Vec<Stored>>,
}

struct Connection {
    server: usize,
    /// The server that was asked first, which has said whose the producer is.
    named: usize,
    producer: String,
    opened: bool,
    ended: bool,
    /// What its end is, if that is not its connection's.
    why: Option<(&'static str, Matter)>,
    /// The process that had it has gone; what is under way may still arrive.
    orphan: bool,
    settled: Option<u64>,
    outbox: VecDeque<(u64, Vec<u8>)>,
    unacknowledged: VecDeque<u64>,
}

impl Server {
    fn is_crowded(&self, producer: &str) -> bool {
        let is_new = !self.producers.contains_key(producer);
        is_new && self.most.is_some_and(|most| self.producers.len() >= most)
    }
}

impl Connection {
    fn refuse(&mut self, why: &'static str, matter: Matter) {
        (self.ended, self.why) = (true, Some((why, matter)));
    }
}

#[derive(Default)]
pub(crate) struct Net {
    pub(crate) servers: Vec<Server>,
    /// The servers share producers out among them: each names the right one.
    pub(crate) is_fleet: bool,
    connections: Vec<Rc<RefCell<Connection>>>,
    place: u64,
}

impl Net {
    pub(crate) fn orphan_all(&mut self) {
        for connection in &self.connections {
            connection.borrow_mut().orphan = true;
        }
    }

    /// The servers have ended, with all that was under way.
    pub(crate) fn end_all(&mut self) {
        for connection in &self.connections {
            connection.borrow_mut().ended = true;
        }
    }

    /// Where the messages of a producer go that asks `named`.
    fn owner(&self, named: usize, producer: &str) -> usize {
        let hash: usize = producer.bytes().map(usize::from).sum();
        match self.is_fleet {
            true => hash % self.servers.len(),
            false => named,
        }
    }

    /// Something happens on some connection.
    pub(crate) fn turn(&mut self, rng: &mut Rng, breaks: f64) {
        self.connections
            .retain(|connection| !connection.borrow().ended);
        for at in 0..self.connections.len() {
            let connection = self.connections[at].clone();
            let mut this = connection.borrow_mut();
            if this.ended {
                continue;
            }
            if rng.f64() < breaks || (this.orphan && rng.f64() < 0.2) {
                this.ended = true;
                continue;
            }
            let is_named_down = !this.opened && self.servers[this.named].is_down;
            if is_named_down || self.servers[this.server].is_down {
                this.ended |= rng.f64() < 0.3;
                continue;
            }
            if !this.opened {
                let forgotten = self.servers[this.server].forgotten.as_ref();
                if forgotten.is_some_and(|start| this.producer.starts_with(start)) {
                    this.refuse("it was forgotten", Matter::Producer);
                } else if self.servers[this.server].is_crowded(&this.producer) {
                    this.refuse("too many", Matter::Crowded);
                } else if rng.bool() {
                    self.welcome(&mut this);
                }
                continue;
            }
            for _ in 0..rng.usize(0..4) {
                self.deliver(&mut this);
            }
            for _ in 0..rng.usize(0..4) {
                if let Some(id) = this.unacknowledged.pop_front() {
                    this.settled = this.settled.max(Some(id));
                }
            }
        }
    }

    fn welcome(&mut self, this: &mut Connection) {
        for other in &self.connections {
            // The session's own cell is borrowed: it is not among the older sessions.
            if let Ok(mut other) = other.try_borrow_mut()
                && other.opened
                && other.server == this.server
                && other.producer == this.producer
            {
                other.ended = true;
            }
        }
        let stored = self.servers[this.server].producers.get(&this.producer);
        this.settled = stored.and_then(|stored| stored.last()).map(|last| last.id);
        this.opened = true;
    }

    fn deliver(&mut self, this: &mut Connection) {
        let Some((id, payload)) = this.outbox.pop_front() else {
            return;
        };
        let server = &mut self.servers[this.server];
        let stored = server.producers.entry(this.producer.clone()).or_default();
        if stored.last().is_none_or(|last| last.id < id) {
            self.place += 1;
            stored.push(Stored {
                id,
                payload,
                place: self.place,
            });
        }
        this.unacknowledged.push_back(id);
    }
}

#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) net: Rc<RefCell<Net>>,
    pub(crate) life: Life,
}

pub(crate) struct Session {
    connection: Rc<RefCell<Connection>>,
    life: Life,
}

impl Network for Wire {
    type Lane = Session;

    fn open(&mut self, server: &str, producer: &str) -> Result<Session, Ended> {
        let named = server.parse().unwrap();
        let connection = Connection {
            server: self.net.borrow().owner(named, producer),
            named,
            producer: producer.into(),
            opened: false,
            why: None,
            ended: !self.life.acts(),
            orphan: false,
            settled: None,
            outbox: VecDeque::new(),
            unacknowledged: VecDeque::new(),
        };
        let connection = Rc::new(RefCell::new(connection));
        self.net.borrow_mut().connections.push(connection.clone());
        let life = self.life.clone();
        Ok(Session { connection, life })
    }
}

impl Lane for Session {
    fn stand(&self) -> Stand {
        let this = self.connection.borrow();
        if this.ended {
            let (why, matter) = this.why.unwrap_or(("it broke", Matter::Passing));
            let why = why.into();
            return Stand::Ended(Ended { why, matter });
        }
        match this.opened {
            false => Stand::Connecting(None),
            true => Stand::Open {
                settled: this.settled,
                forgotten: false,
                payload_max: PAYLOAD_MAX,
                trouble: None,
            },
        }
    }

    fn offer(&mut self, messages: &mut dyn Iterator<Item = (u64, &[u8])>) -> usize {
        let mut this = self.connection.borrow_mut();
        let mut taken = 0;
        if this.ended || this.orphan {
            return 0;
        }
        while this.outbox.len() + this.unacknowledged.len() < BUFFER && self.life.acts() {
            let Some((id, payload)) = messages.next() else {
                break;
            };
            assert!(payload.len() <= PAYLOAD_MAX as usize);
            this.outbox.push_back((id, payload.to_vec()));
            taken += 1;
        }
        taken
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut this = self.connection.borrow_mut();
        // A connection that is closed in order has nothing under way that matters; a connection
        // whose process was killed has.
        this.orphan = true;
    }
}
