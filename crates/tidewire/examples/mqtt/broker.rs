//! The broker: who has subscribed to what, and how a publication gets there.
//!
//! Each client has a channel of its own, and a publisher sends into those of all that have subscribed, on whatever loop
//! they are. One without room makes the publisher wait: it reads no more of its client, and is told of room. So every publication that was
//! acknowledged is in the channel of each subscriber, and no more is held than the channels hold.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidewire::channel::{self, Receiver, SendError, Sender};
use tidewire::{
    Closed, ConnName, Cx, Handle, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service, Turn,
};

use crate::packet::{self, Packet, Publish, matches};

/// Publications that wait for one subscriber.
const INBOX: usize = 64;
/// Topics of which the last publication is kept.
const RETAINED_MAX: usize = 10_000;
/// Filters of one client.
const FILTERS_MAX: usize = 1_000;

/// Keys of channels: there is something to take, or room for what is owed.
const TAKE: u64 = 1;
const ROOM: u64 = 2;

#[derive(Clone, Default)]
pub(crate) struct Broker(Arc<Mutex<Room>>);

/// What all loops share.
#[derive(Default)]
struct Room {
    guests: BTreeMap<ConnName, Guest>,
    retained: BTreeMap<Box<str>, Delivery>,
}

struct Guest {
    client: Box<str>,
    handle: Handle<Delivery>,
    inbox: Sender<Delivery>,
    /// Each with the highest QoS that is wanted.
    filters: BTreeMap<Box<str>, u8>,
}

/// A publication on its way to one subscriber.
#[derive(Clone)]
pub(crate) struct Delivery {
    topic: Arc<str>,
    payload: Arc<[u8]>,
    retain: bool,
    qos: u8,
}

impl Delivery {
    fn of(publish: &Publish<'_>) -> Delivery {
        Delivery {
            topic: publish.topic.into(),
            payload: publish.payload.into(),
            retain: publish.retain,
            qos: publish.qos,
        }
    }

    fn at_most(&self, qos: u8, retain: bool) -> Delivery {
        let qos = self.qos.min(qos);
        Delivery {
            qos,
            retain,
            ..self.clone()
        }
    }
}

impl Room {
    /// Keeps a publication if that is asked for; all who want it, each with what they are to get.
    fn publish(&mut self, publication: &Delivery) -> Vec<(ConnName, Delivery)> {
        let topic = &publication.topic;
        if publication.retain && publication.payload.is_empty() {
            self.retained.remove(&**topic);
        } else if publication.retain
            && (self.retained.len() < RETAINED_MAX || self.retained.contains_key(&**topic))
        {
            let kept = publication.clone();
            self.retained.insert((&**topic).into(), kept);
        }
        let wanted = |guest: &Guest| {
            let all = guest.filters.iter();
            let fits = all.filter(|(filter, _)| matches(filter, topic));
            fits.map(|(_, qos)| *qos).max()
        };
        let guests = self.guests.iter();
        let all = guests.filter_map(|(name, guest)| Some((*name, wanted(guest)?)));
        all.map(|(name, qos)| (name, publication.at_most(qos, false)))
            .collect()
    }
}

impl Broker {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Client {
    broker: Broker,
    /// The other end of `inbox`, until the client has said who it is.
    own: Option<Sender<Delivery>>,
    inbox: Receiver<Delivery>,
    /// Ends of the channels of those that it has published to.
    outbox: BTreeMap<ConnName, Sender<Delivery>>,
    /// What is left of its last publication, and how to acknowledge that.
    owed: Vec<(ConnName, Delivery)>,
    acknowledges: Option<u16>,
    /// Beside the channel: what was retained, and wills.
    late: VecDeque<Delivery>,
    /// Ids of what it has not acknowledged.
    unacknowledged: BTreeSet<u16>,
    last_id: u16,
    will: Option<Delivery>,
    keep_alive: Duration,
}

impl Client {
    fn handle(&mut self, packet: Packet<'_>, cx: &mut Cx<'_, Self>) -> Result<(), &'static str> {
        match packet {
            Packet::Connect {
                client,
                keep_alive_s,
                will,
            } => {
                let Some(inbox) = self.own.take() else {
                    return Err("a second CONNECT");
                };
                self.will = will.map(|will| Delivery::of(&will));
                self.keep_alive = Duration::from_secs(keep_alive_s.into()) * 3 / 2;
                self.inbox.notify(&cx.handle(), TAKE);
                let guest = Guest {
                    client: client.into(),
                    handle: cx.handle(),
                    inbox,
                    filters: BTreeMap::new(),
                };
                let mut room = self.broker.room();
                for former in room.guests.values() {
                    if !client.is_empty() && *former.client == *client {
                        former.handle.abort();
                    }
                }
                room.guests.insert(cx.name(), guest);
                cx.link.write(&[0x20, 2, 0, 0]);
            }
            _ if self.own.is_some() => return Err("no CONNECT at the beginning"),
            Packet::Publish { publish, id } => {
                self.acknowledges = id;
                self.publish(&Delivery::of(&publish), cx);
            }
            Packet::Acknowledged(id) => {
                self.unacknowledged.remove(&id);
                self.deliver(cx);
            }
            Packet::Subscribe { id, filters } => self.subscribe(id, &filters, cx)?,
            Packet::Unsubscribe { id, filters } => {
                if let Some(guest) = self.broker.room().guests.get_mut(&cx.name()) {
                    for filter in filters {
                        guest.filters.remove(filter);
                    }
                }
                cx.link.write(&[&[0xb0, 2], &id.to_be_bytes()[..]].concat());
            }
            Packet::Ping => cx.link.write(&[0xd0, 0]),
            Packet::Disconnect => {
                self.will = None;
                cx.link.finish();
            }
        }
        if !self.keep_alive.is_zero() {
            cx.link.set_timer(cx.link.now() + self.keep_alive);
        }
        Ok(())
    }

    fn publish(&mut self, publication: &Delivery, cx: &mut Cx<'_, Self>) {
        let mut room = self.broker.room();
        self.owed = room.publish(publication);
        if self.outbox.len() > room.guests.len() {
            self.outbox.retain(|name, _| room.guests.contains_key(name));
        }
        for (name, _) in &self.owed {
            self.outbox.entry(*name).or_insert_with(|| {
                let mut end = room.guests[name].inbox.clone();
                end.notify(&cx.handle(), ROOM);
                end
            });
        }
        drop(room);
        self.send_owed(cx);
    }

    /// Sends what there is room for, and acknowledges when that was all.
    fn send_owed(&mut self, cx: &mut Cx<'_, Self>) {
        for (name, delivery) in std::mem::take(&mut self.owed) {
            let Some(end) = self.outbox.get_mut(&name) else {
                continue;
            };
            match end.try_send(delivery) {
                Ok(()) => {}
                Err(SendError::NoRoom(delivery)) => self.owed.push((name, delivery)),
                Err(_) => drop(self.outbox.remove(&name)),
            }
        }
        if self.owed.is_empty()
            && let Some(id) = self.acknowledges.take()
        {
            cx.link.write(&[&[0x40, 2], &id.to_be_bytes()[..]].concat());
        }
    }

    fn subscribe(
        &mut self,
        id: u16,
        filters: &[(&str, u8)],
        cx: &mut Cx<'_, Self>,
    ) -> Result<(), &'static str> {
        let len = 2 + filters.len();
        let mut answer = vec![0x90];
        match len {
            0..=0x7f => answer.push(len as u8),
            0x80..=0x3fff => answer.extend([len as u8 | 0x80, (len >> 7) as u8]),
            _ => return Err("too many filters"),
        }
        answer.extend(id.to_be_bytes());
        let mut late = Vec::new();
        let mut room = self.broker.room();
        for &(filter, qos) in filters {
            let qos = qos.min(1);
            let Some(guest) = room.guests.get_mut(&cx.name()) else {
                return Err("not connected");
            };
            guest.filters.insert(filter.into(), qos);
            if guest.filters.len() > FILTERS_MAX {
                return Err("too many filters");
            }
            answer.push(qos);
            let retained = room.retained.iter();
            let meant = retained.filter(|(topic, _)| matches(filter, topic));
            late.extend(meant.map(|(_, publication)| publication.at_most(qos, true)));
        }
        drop(room);
        self.late.extend(late);
        if self.late.len() > 2 * RETAINED_MAX {
            return Err("too much is owed");
        }
        cx.link.write(&answer);
        self.deliver(cx);
        Ok(())
    }

    /// Gives the client what waits for it, for as long as it takes some.
    fn deliver(&mut self, cx: &mut Cx<'_, Self>) {
        while !cx.link.full() && self.unacknowledged.len() < usize::from(u16::MAX) {
            let next = self.late.pop_front().or_else(|| self.inbox.take());
            let Some(next) = next else { return };
            let id = (next.qos > 0).then(|| self.fresh_id());
            let packet = packet::publish(&next.topic, &next.payload, next.retain, id);
            cx.link.write(&packet);
        }
    }

    fn fresh_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1).max(1);
            if self.unacknowledged.insert(self.last_id) {
                return self.last_id;
            }
        }
    }
}

impl Protocol for Client {
    type Local = ();
    type Message = Delivery;

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        while !cx.link.full() {
            let done = match packet::first(input.bytes()) {
                Ok(None) => return Next::More,
                Ok(Some((packet, len))) => self.handle(packet, cx).map(|()| len),
                Err(why) => Err(why),
            };
            match done {
                Ok(len) => input.consume(len),
                Err(why) => cx.link.abort_because(why),
            }
            if cx.link.is_closing() {
                return Next::More;
            }
            if !self.owed.is_empty() {
                return Next::Paused; // until there is room
            }
        }
        Next::AfterDrain
    }

    fn notified(&mut self, key: u64, cx: &mut Cx<'_, Self>) {
        if key == TAKE {
            return self.deliver(cx);
        }
        self.send_owed(cx);
        if self.owed.is_empty() {
            cx.link.resume();
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.deliver(cx);
    }

    /// A will.
    fn posted(&mut self, will: Delivery, cx: &mut Cx<'_, Self>) {
        if self.late.len() < 2 * RETAINED_MAX {
            self.late.push_back(will);
            self.deliver(cx);
        }
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link
            .abort_because("no packet within the keep-alive time");
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        self.will = None;
        cx.link.finish();
    }

    fn closed(self, _: Closed, turn: &mut Turn<'_, Self>) {
        let mut room = self.broker.room();
        if let Some(name) = turn.name() {
            room.guests.remove(&name);
        }
        let Some(will) = self.will else { return };
        for (name, will) in room.publish(&will) {
            // There is no connection any more that could wait for room.
            let _ = room.guests[&name].handle.try_post(will);
        }
    }
}

impl Service for Broker {
    type Conn = Client;

    fn on_loop(&self, _: LoopHandle<Delivery>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Client, Refusal> {
        let (own, inbox) = channel::bounded(INBOX);
        Ok(Client {
            broker: self.clone(),
            own: Some(own),
            inbox,
            outbox: BTreeMap::new(),
            owed: Vec::new(),
            acknowledges: None,
            late: VecDeque::new(),
            unacknowledged: BTreeSet::new(),
            last_id: 0,
            will: None,
            keep_alive: Duration::ZERO,
        })
    }
}
