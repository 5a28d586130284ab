//! A group from a seed: it gives partitions to members, asks them to hand over, goes on without
//! members that do not answer, and tells every member late.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use fastrand::Rng;
use tidewire_replicate::{Event, Membership};

pub(crate) const PARTITIONS: u32 = 3;

/// Clones are the same one.
#[derive(Clone)]
pub(crate) struct Group(Arc<Mutex<State>>);

pub(crate) struct State {
    random: Rng,
    generation: u64,
    members: BTreeMap<usize, Mailbox>,
    assigned: BTreeMap<u32, usize>,
    /// Revoked partitions, each with its next member.
    moving: BTreeMap<u32, usize>,
    /// The group reaches no member.
    pub(crate) is_away: bool,
    pub(crate) is_kind: bool,
}

#[derive(Default)]
struct Mailbox {
    life: u64,
    events: VecDeque<Event>,
    is_reached: bool,
}

impl Group {
    pub(crate) fn new(seed: u64) -> Group {
        Group(Arc::new(Mutex::new(State {
            random: Rng::with_seed(seed),
            generation: 0,
            members: BTreeMap::new(),
            assigned: BTreeMap::new(),
            moving: BTreeMap::new(),
            is_away: false,
            is_kind: false,
        })))
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("one thread")
    }

    /// A process begins; the partitions of the one before it have another owner.
    pub(crate) fn join(&self, member: usize) -> SimMember {
        let mut state = self.state();
        let mailbox = state.members.entry(member).or_default();
        mailbox.life += 1;
        mailbox.events.clear();
        mailbox.is_reached = true;
        let life = mailbox.life;
        state.assigned.retain(|_, owner| *owner != member);
        state.moving.retain(|_, owner| *owner != member);
        SimMember {
            group: self.clone(),
            member,
            life,
        }
    }
}

impl State {
    /// Something of what a coordinator does.
    pub(crate) fn act(&mut self) {
        if self.is_away {
            return;
        }
        match self.random.u8(0..10) {
            0..=3 => {
                let partition = self.random.u32(0..PARTITIONS);
                self.rebalance(partition);
            }
            4 => {
                // A member that has not handed over in time is passed over.
                let late: Vec<u32> = self.moving.keys().copied().collect();
                for partition in late {
                    self.give(partition);
                }
            }
            5 => self.cut(),
            6 => self.reach(),
            _ => self.tell_places(),
        }
    }

    /// Every member is reached, and every partition has an owner.
    pub(crate) fn heal(&mut self) {
        (self.is_away, self.is_kind) = (false, true);
        let late: Vec<u32> = self.moving.keys().copied().collect();
        for partition in late {
            self.give(partition);
        }
        let members: Vec<usize> = self.members.keys().copied().collect();
        for member in members {
            if let Some(mailbox) = self.members.get_mut(&member) {
                mailbox.is_reached = true;
            }
        }
        for partition in 0..PARTITIONS {
            if !self.assigned.contains_key(&partition) {
                self.rebalance(partition);
            }
        }
        let members: Vec<usize> = self.members.keys().copied().collect();
        for member in members {
            self.assign(member);
        }
        self.tell_places();
    }

    fn reached(&self) -> Vec<usize> {
        let members = self.members.iter();
        let reached = members.filter(|(_, mailbox)| mailbox.is_reached);
        reached.map(|(&member, _)| member).collect()
    }

    fn rebalance(&mut self, partition: u32) {
        let reached = self.reached();
        if reached.is_empty() || self.moving.contains_key(&partition) {
            return;
        }
        let to = reached[self.random.usize(..reached.len())];
        let from = self.assigned.get(&partition).copied();
        match from {
            Some(from) if from == to => {}
            Some(from) if reached.contains(&from) => {
                self.moving.insert(partition, to);
                self.tell(from, Event::Revoked([partition].into()));
            }
            _ => {
                self.moving.insert(partition, to);
                self.give(partition);
            }
        }
    }

    /// A partition that is moving arrives.
    fn give(&mut self, partition: u32) {
        let Some(to) = self.moving.remove(&partition) else {
            return;
        };
        self.assigned.insert(partition, to);
        self.assign(to);
    }

    fn assign(&mut self, member: usize) {
        self.generation += 1;
        let all = self.assigned.iter().filter(|(_, owner)| **owner == member);
        let partitions: BTreeSet<u32> = all.map(|(&partition, _)| partition).collect();
        let generation = self.generation;
        self.tell(
            member,
            Event::Assigned {
                generation,
                partitions,
            },
        );
    }

    /// A member is not reached any more. It hears of that, or not; what it had is given to others, by and by.
    fn cut(&mut self) {
        let reached = self.reached();
        if reached.len() < 2 {
            return;
        }
        let member = reached[self.random.usize(..reached.len())];
        if self.random.bool() {
            self.tell(member, Event::Lost);
        }
        if let Some(mailbox) = self.members.get_mut(&member) {
            mailbox.is_reached = false;
        }
        self.moving.retain(|_, owner| *owner != member);
        let had: Vec<u32> = self.assigned.keys().copied().collect();
        for partition in had {
            if self.assigned[&partition] == member {
                self.moving.remove(&partition);
                self.rebalance(partition);
            }
        }
    }

    fn reach(&mut self) {
        let members = self.members.iter();
        let cut = members.filter(|(_, mailbox)| !mailbox.is_reached);
        let Some(member) = cut.map(|(&member, _)| member).next() else {
            return;
        };
        if let Some(mailbox) = self.members.get_mut(&member) {
            mailbox.is_reached = true;
        }
        self.assign(member);
    }

    fn tell_places(&mut self) {
        let assigned = self.assigned.iter();
        let places: BTreeMap<u32, Arc<str>> = assigned
            .map(|(&partition, member)| (partition, format!("n{member}:1").into()))
            .collect();
        for member in self.reached() {
            self.tell(member, Event::Places(places.clone()));
        }
    }

    fn tell(&mut self, member: usize, event: Event) {
        if let Some(mailbox) = self.members.get_mut(&member)
            && mailbox.is_reached
        {
            mailbox.events.push_back(event);
        }
    }
}

pub(crate) struct SimMember {
    group: Group,
    member: usize,
    life: u64,
}

impl Membership for SimMember {
    fn event(&mut self) -> Option<Event> {
        let mut state = self.group.state();
        if state.is_away || (!state.is_kind && state.random.u8(0..3) > 0) {
            return None;
        }
        let mailbox = state.members.get_mut(&self.member)?;
        (mailbox.life == self.life)
            .then(|| mailbox.events.pop_front())
            .flatten()
    }

    fn released(&mut self, partition: u32) {
        let mut state = self.group.state();
        let is_mine = state.assigned.get(&partition) == Some(&self.member);
        if is_mine && state.members[&self.member].life == self.life {
            // The next member may be gone.
            match state.moving.contains_key(&partition) {
                true => state.give(partition),
                false => state.assign(self.member),
            }
        }
    }
}
