//! The loops that have subscribers, by channels and patterns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use bytes::Bytes;
use tidewire::LoopHandle;

use super::inbox::{Inbox, Published};
use super::listening::Listening;
use super::names::{Kind, Names};
use super::patterns::Cursor;
use crate::store::events::{BY_EVENT, BY_KEY, Classes};
use crate::store::{Announce, Event};
use crate::types::glob::Glob;

/// An inbox is full: publish later.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InboxFull;

/// Beyond so many patterns that an event may match, its loops find out which: the maker of events
/// holds locks.
const FEW: usize = 32;

/// Bytes that a channel is held against, of its own and for each pattern, from which on that is done
/// [bit by bit](Hub::look_on).
const COSTLY: usize = 1 << 20;
/// Subscriptions of clients that have gone which are ended in one turn of a loop.
pub(super) const TURN: usize = 1000;
/// Steps of matching between two times that others have their turn: about a millisecond.
const STEPS: u64 = 1 << 20;

/// The subscribers of a message, as far as they were found.
pub(crate) struct Audience<M> {
    channel: Box<[u8]>,
    cursor: Cursor,
    /// Inboxes by their addresses; subscribers of the channel's own name are not among them.
    inboxes: BTreeMap<usize, Arc<Inbox<M>>>,
    receivers: usize,
}

impl<M> Audience<M> {
    pub(crate) fn of(channel: &[u8]) -> Audience<M> {
        Audience {
            channel: channel.into(),
            cursor: Cursor::default(),
            inboxes: BTreeMap::new(),
            receivers: 0,
        }
    }

    /// Whether the inbox is that of a channel's messages.
    pub(crate) fn is_of(&self, channel: &[u8]) -> bool {
        *self.channel == *channel
    }
}

impl<M> std::fmt::Debug for Audience<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Audience({})", self.receivers)
    }
}

/// How many subscribers there are on which loops, by the addresses of their inboxes.
struct Places<M>(BTreeMap<usize, (Arc<Inbox<M>>, usize)>);

impl<M> Default for Places<M> {
    fn default() -> Places<M> {
        Places(BTreeMap::new())
    }
}

impl<M> Places<M> {
    fn add(&mut self, inbox: &Arc<Inbox<M>>) {
        let place = self.0.entry(address(inbox));
        place.or_insert_with(|| (inbox.clone(), 0)).1 += 1;
    }

    fn remove(&mut self, inbox: &Arc<Inbox<M>>) {
        if let Some((_, subscribers)) = self.0.get_mut(&address(inbox)) {
            *subscribers -= 1;
            if *subscribers == 0 {
                self.0.remove(&address(inbox));
            }
        }
    }

    fn subscribers(&self) -> usize {
        self.0.values().map(|(_, n)| n).sum()
    }
}

/// A channel or pattern with subscribers.
struct Known<M> {
    names: Names<Places<M>>,
    /// The places of subscribers to any pattern.
    by_pattern: Places<M>,
    /// The subscriptions of clients that have gone. The entries of these subscriptions in the
    /// tables do not count any more.
    departed: Vec<Arc<Listening<M>>>,
}

fn address<M>(inbox: &Arc<Inbox<M>>) -> usize {
    Arc::as_ptr(inbox) as usize
}

/// The subscriptions of all loops.
pub(crate) struct Hub<M> {
    known: RwLock<Known<M>>,
    /// Inboxes that are full.
    full: Arc<AtomicUsize>,
    /// The inboxes of all loops, for INFO.
    inboxes: Mutex<Vec<Weak<Inbox<M>>>>,
}

impl<M> Default for Hub<M> {
    fn default() -> Hub<M> {
        Hub {
            known: RwLock::new(Known {
                names: Names::default(),
                by_pattern: Places::default(),
                departed: Vec::new(),
            }),
            full: Arc::default(),
            inboxes: Mutex::default(),
        }
    }
}

impl<M> Hub<M> {
    /// A client subscribes to a name. The result is the number of the last message that is not for the client; `None`
    /// if the client has gone, or was subscribed to the name before.
    pub(super) fn subscribe(
        &self,
        listening: &Listening<M>,
        kind: Kind,
        name: &Arc<[u8]>,
    ) -> Option<u64> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut these = listening.lock();
        if these.has_left() || !these.add(kind, name) {
            return None;
        }
        let inbox = &listening.inbox;
        if let Some(places) = known.names.entry(kind, name) {
            places.add(inbox);
            if kind == Kind::Pattern {
                known.by_pattern.add(inbox);
            }
        }
        // No message is published while the lock is held.
        Some(inbox.sequence())
    }

    /// A client ends a subscription; false if there was none.
    pub(super) fn unsubscribe(&self, listening: &Listening<M>, kind: Kind, name: &[u8]) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let removed = listening.lock().remove(kind, name);
        if removed == Some(true) {
            known.forget(kind, name, &listening.inbox);
        }
        removed.is_some()
    }

    /// A client has gone: from now on it counts nowhere, whatever of it stands in the tables. The loop of the client
    /// takes the entries out of the tables.
    pub(crate) fn depart(&self, listening: &Arc<Listening<M>>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut these = listening.lock();
        if !these.leave() {
            return;
        }
        for _ in 0..TURN {
            let Some((kind, name)) = these.forget_next() else {
                return;
            };
            known.forget(kind, &name, &listening.inbox);
        }
        known.departed.push(listening.clone());
    }

    /// Ends some subscriptions of a client, and shows which.
    pub(super) fn end_some(
        &self,
        listening: &Arc<Listening<M>>,
        most: usize,
    ) -> Vec<(Kind, Arc<[u8]>)> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let mut these = listening.lock();
        let mut ended = Vec::new();
        while ended.len() < most
            && let Some((kind, name)) = these.first()
        {
            if these.remove(kind, &name) == Some(true) {
                known.forget(kind, &name, &listening.inbox);
            }
            ended.push((kind, name));
        }
        if these.is_empty() {
            known
                .departed
                .retain(|other| !Arc::ptr_eq(other, listening));
        }
        ended
    }

    /// Whether a message has to be held against so much that its audience is to be found out
    /// [bit by bit](Hub::look_on).
    pub(crate) fn is_costly(&self, channel: &[u8]) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let candidates = known.names.patterns.candidates(channel);
        candidates.saturating_mul(channel.len()) > COSTLY
    }

    /// Finds more subscribers of a message, for about a millisecond; whether that is all.
    pub(crate) fn look_on(&self, audience: &mut Audience<M>) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (inboxes, receivers) = (&mut audience.inboxes, &mut audience.receivers);
        let mut steps = STEPS;
        let patterns = &known.names.patterns;
        patterns.match_some(
            &audience.channel,
            &mut audience.cursor,
            &mut steps,
            |name, places| {
                *receivers += known.living(Kind::Pattern, name, places);
                for (&at, (inbox, _)) in &places.0 {
                    inboxes.entry(at).or_insert_with(|| inbox.clone());
                }
            },
        )
    }

    /// The whole audience of a costly message; the lock is let go now and then.
    fn look_for_all(&self, channel: &[u8]) -> Audience<M> {
        let mut audience = Audience::of(channel);
        while !self.look_on(&mut audience) {}
        audience
    }

    /// Sends a message to all subscribers, which hear it when `ticket` has settled; how many
    /// subscriptions it matches.
    ///
    /// # Errors
    /// An error if an inbox is full, unless `overfill`; no message was sent then.
    pub(crate) fn publish(
        &self,
        sharded: bool,
        channel: &[u8],
        payload: &[u8],
        overfill: bool,
        ticket: u64,
    ) -> Result<usize, InboxFull> {
        if !sharded && self.is_costly(channel) {
            let audience = self.look_for_all(channel);
            return self.publish_to(&audience, payload, overfill, ticket);
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let places = known.matching(sharded, channel);
        let places = places.map(|(kind, name, places)| (places, known.living(kind, name, places)));
        let found = (BTreeMap::new(), 0);
        send(places, found, (sharded, channel, payload), overfill, ticket)
    }

    /// Sends a message to an audience that was found out, and to subscribers of the channel by its
    /// name.
    ///
    /// # Errors
    /// As [`publish`](Hub::publish).
    pub(crate) fn publish_to(
        &self,
        audience: &Audience<M>,
        payload: &[u8],
        overfill: bool,
        ticket: u64,
    ) -> Result<usize, InboxFull> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let channel = &*audience.channel;
        let named = known.names.named(false, channel).into_iter();
        let named = named.map(|places| (places, known.living(Kind::Channel, channel, places)));
        let inboxes = audience.inboxes.iter().map(|(&at, inbox)| (at, inbox));
        let found = (inboxes.collect(), audience.receivers);
        let message = (false, channel, payload);
        send(named, found, message, overfill, ticket)
    }

    /// An inbox for a loop.
    pub(crate) fn inbox(&self, at: LoopHandle<M>) -> Arc<Inbox<M>> {
        let inbox = Arc::new(Inbox::new(at, self.full.clone()));
        let mut inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        inboxes.retain(|inbox| inbox.strong_count() > 0);
        inboxes.push(Arc::downgrade(&inbox));
        inbox
    }

    /// Bytes of messages that loops have not handed out yet.
    pub(crate) fn queued_bytes(&self) -> usize {
        let inboxes = self.inboxes.lock().unwrap_or_else(PoisonError::into_inner);
        let inboxes = inboxes.iter().filter_map(Weak::upgrade);
        inboxes.map(|inbox| inbox.bytes()).sum()
    }
    /// Whether any loop has more to hand out than it should: what makes more of it is to wait.
    pub(crate) fn is_crowded(&self) -> bool {
        self.full.load(Relaxed) > 0
    }

    /// Sends what became of a key; false if some loop has too much to hand out already.
    fn tell(&self, channel: &[u8], payload: &[u8], ticket: u64) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let places: Vec<&Places<M>> = match known.names.patterns.candidates(channel) > FEW {
            true => {
                let named = known.names.named(false, channel).into_iter();
                named.chain([&known.by_pattern]).collect()
            }
            false => {
                let matching = known.matching(false, channel);
                matching.map(|(_, _, places)| places).collect()
            }
        };
        let inboxes = places.into_iter().flat_map(|places| &places.0);
        let inboxes: BTreeMap<usize, &Arc<Inbox<M>>> =
            inboxes.map(|(&at, (inbox, _))| (at, inbox)).collect();
        if inboxes.is_empty() {
            return true;
        }
        let message = Arc::new(Published {
            channel: Bytes::copy_from_slice(channel),
            payload: Bytes::copy_from_slice(payload),
            sharded: false,
            ticket,
        });
        let mut all = true;
        for inbox in inboxes.into_values() {
            all &= inbox.push_unless_over(&message);
        }
        all
    }

    /// How many subscriptions a message would match.
    pub(crate) fn receivers(&self, sharded: bool, channel: &[u8]) -> usize {
        if !sharded && self.is_costly(channel) {
            let by_name = self.subscribers(Kind::Channel, channel);
            return self.look_for_all(channel).receivers + by_name;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let places = known.matching(sharded, channel);
        places
            .map(|(kind, name, places)| known.living(kind, name, places))
            .sum()
    }

    /// The channels that have subscribers and match, in order.
    pub(crate) fn channels(&self, sharded: bool, pattern: Option<&Glob>) -> Vec<Box<[u8]>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let kind = Kind::of_channel(sharded);
        let mut names: Vec<Box<[u8]>> = known
            .names
            .channels(sharded)
            .filter(|(name, _)| pattern.is_none_or(|pattern| pattern.matches(name)))
            .filter(|(name, places)| known.living(kind, name, places) > 0)
            .map(|(name, _)| Box::from(name))
            .collect();
        drop(known);
        names.sort_unstable();
        names
    }

    /// How many subscribers a name has.
    pub(crate) fn subscribers(&self, kind: Kind, name: &[u8]) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let places = known.names.get(kind, name);
        places.map_or(0, |places| known.living(kind, name, places))
    }

    /// How many names have subscribers.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_departed: Vec<_> = known.departed.iter().map(|these| these.lock()).collect();
        let unforgotten = of_departed.iter().flat_map(|these| these.unforgotten(kind));
        let unforgotten: BTreeSet<&Arc<[u8]>> = unforgotten.collect();
        let is_dead = |name: &&Arc<[u8]>| {
            let places = known.names.get(kind, name);
            let dead = of_departed
                .iter()
                .filter(|these| these.is_known(kind, name));
            places.is_some_and(|places| places.subscribers() == dead.count())
        };
        known.names.len(kind) - unforgotten.into_iter().filter(is_dead).count()
    }
}

/// Sends a message to the places found already and to more places, each with how many subscribers
/// count there; how many subscriptions it matches.
fn send<'m, M: 'm>(
    places: impl Iterator<Item = (&'m Places<M>, usize)>,
    (mut inboxes, mut receivers): (BTreeMap<usize, &'m Arc<Inbox<M>>>, usize),
    (sharded, channel, payload): (bool, &[u8], &[u8]),
    overfill: bool,
    ticket: u64,
) -> Result<usize, InboxFull> {
    for (places, living) in places {
        receivers += living;
        for (&at, (inbox, _)) in &places.0 {
            inboxes.insert(at, inbox);
        }
    }
    if !overfill && inboxes.values().any(|inbox| inbox.is_full()) {
        return Err(InboxFull);
    }
    if !inboxes.is_empty() {
        let message = Arc::new(Published {
            channel: Bytes::copy_from_slice(channel),
            payload: Bytes::copy_from_slice(payload),
            sharded,
            ticket,
        });
        for inbox in inboxes.into_values() {
            inbox.push(message.clone());
        }
    }
    Ok(receivers)
}

impl<M: Send + 'static> Announce for Hub<M> {
    fn announce(&self, event: &Event, by: Classes, ticket: u64) -> bool {
        let mut all = true;
        if by & BY_KEY != 0 {
            let mut channel = format!("__keyspace@{}__:", event.db).into_bytes();
            channel.extend_from_slice(&event.key);
            all &= self.tell(&channel, event.name.as_bytes(), ticket);
        }
        if by & BY_EVENT != 0 {
            let channel = format!("__keyevent@{}__:{}", event.db, event.name);
            all &= self.tell(channel.as_bytes(), &event.key, ticket);
        }
        all
    }
}

impl<M> Known<M> {
    /// The subscribed names that a message matches, and where their subscribers are.
    fn matching<'m>(
        &'m self,
        sharded: bool,
        channel: &'m [u8],
    ) -> impl Iterator<Item = (Kind, &'m [u8], &'m Places<M>)> {
        let kind = Kind::of_channel(sharded);
        let by_name = self.names.named(sharded, channel).into_iter();
        let by_name = by_name.map(move |places| (kind, channel, places));
        let by_pattern = (!sharded).then(|| self.names.patterns.matching(channel));
        let by_pattern = by_pattern.into_iter().flatten();
        by_name.chain(by_pattern.map(|(name, places)| (Kind::Pattern, name, places)))
    }

    /// How many subscribers of a name have not gone.
    fn living(&self, kind: Kind, name: &[u8], places: &Places<M>) -> usize {
        let departed = self.departed.iter();
        let departed = departed.filter(|these| these.lock().is_known(kind, name));
        places.subscribers() - departed.count()
    }

    /// One subscriber of a name fewer.
    fn forget(&mut self, kind: Kind, name: &[u8], inbox: &Arc<Inbox<M>>) {
        let Some(places) = self.names.get_mut(kind, name) else {
            return;
        };
        places.remove(inbox);
        if places.0.is_empty() {
            self.names.remove(kind, name);
        }
        if kind == Kind::Pattern {
            self.by_pattern.remove(inbox);
        }
    }
}
