//! One seed's world: a group, brokers, three members, and producers that connect to any of them.

use std::collections::VecDeque;
use std::time::Duration;

use fastrand::Rng;
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{Log, ProducerId, Ticket};
use tidewire_replicate::{Ending, Guest, Mistakes, Share, Whose};

use super::checker::Checker;
use super::group::{Group, PARTITIONS};
use super::homes::Brokers;
use super::member::Member;
use crate::seeds::{Verdict, ensure, trace};

const MEMBERS: usize = 3;
const PRODUCERS: usize = 5;

/// Runs a seed.
pub(crate) fn run(seed: u64, mistakes: Mistakes) -> Verdict {
    let mut world = World::new(seed, mistakes);
    let acts = world.random.usize(100..700);
    for _ in 0..acts {
        world.act()?;
        world.observe()?;
    }
    world.heal()
}

struct World {
    random: Rng,
    group: Group,
    brokers: Brokers,
    members: Vec<Member>,
    producers: Vec<Producer>,
    checker: Checker,
    mistakes: Mistakes,
    /// The number of the last message.
    number: u64,
    now: Duration,
}

struct Producer {
    stream: String,
    name: String,
    partition: u32,
    /// Acknowledgements of this producer wait for the home; others for durability.
    waits_for_home: bool,
    /// The highest id that it was told is at home.
    acked: u64,
    conn: Option<Conn>,
}

struct Conn {
    member: usize,
    life: u64,
    guest: Guest,
    producer: ProducerId,
    next: u64,
    /// Tickets, with the last id and number.
    owed: VecDeque<(Ticket, u64, u64)>,
}

impl World {
    fn new(seed: u64, mistakes: Mistakes) -> World {
        let mut random = Rng::with_seed(seed);
        let producer = |number: usize| Producer {
            stream: format!("s{}", number % 2),
            name: format!("p{number}"),
            partition: number as u32 % PARTITIONS,
            waits_for_home: number % 5 != 4,
            acked: 0,
            conn: None,
        };
        let mut world = World {
            group: Group::new(random.u64(..)),
            brokers: Brokers::new(random.u64(..1 << 60)),
            members: Vec::new(),
            producers: (0..PRODUCERS).map(producer).collect(),
            checker: Checker::default(),
            mistakes,
            number: 0,
            now: Duration::from_secs(1),
            random,
        };
        for member in 0..MEMBERS {
            let disk = SimDisk::new(world.random.u64(..));
            world.members.push(Member::new(member, disk));
            world.start(member);
        }
        world
    }

    fn start(&mut self, member: usize) {
        self.members[member].start(&self.group, &self.brokers, self.mistakes);
    }

    fn act(&mut self) -> Verdict {
        self.now += Duration::from_micros(self.random.u64(0..4000));
        let member = self.random.usize(..MEMBERS);
        match self.random.u8(0..100) {
            0..=19 => self.members[member].write(self.now),
            20..=49 => {
                for _ in 0..self.random.u8(1..4) {
                    self.members[member].carry(self.now);
                }
                trace(|| {
                    let status = self.members[member].status();
                    format!(
                        "{:?}: {member}: {:?} {:?}",
                        self.now, status.home, status.fleet
                    )
                });
            }
            50..=69 => self.deliver(),
            70..=87 => self.produce()?,
            88 => self.say(member),
            89..=91 => {
                self.group.state().act();
            }
            92 => {
                let away = self.random.u8(0..4) == 0;
                self.group.state().is_away = away;
                trace(|| format!("{:?}: the group is away: {away}", self.now));
            }
            93 => {
                let away = self.random.bool();
                let all = self.brokers.all();
                if let Some(at) = self.random.usize(..=all.len()).checked_sub(1) {
                    all[at].1.state().is_away = away;
                }
            }
            94 => {
                for (_, cluster) in self.brokers.all() {
                    cluster.state().finish();
                }
            }
            95 => {
                let is_crash = self.random.bool();
                trace(|| format!("{:?}: member {member} ends, crash: {is_crash}", self.now));
                self.forget(member);
                self.members[member].end(is_crash);
                self.start(member);
            }
            _ => self.now += Duration::from_millis(self.random.u64(0..150)),
        }
        Ok(())
    }

    /// Disconnects the producers that are connected there.
    fn forget(&mut self, member: usize) {
        for producer in &mut self.producers {
            producer.conn.take_if(|conn| conn.member == member);
        }
    }

    fn deliver(&mut self) {
        let all = self.brokers.all();
        if !all.is_empty() {
            let at = self.random.usize(..all.len());
            all[at].1.state().deliver();
        }
    }

    /// An anonymous producer sends a message.
    fn say(&mut self, member: usize) {
        self.number += 1;
        let message = [(self.number, self.number)];
        let stream = format!("s{}", self.number % 2);
        let _ = self.members[member].append(&stream, ProducerId::ANONYMOUS, &message, self.now);
    }

    fn produce(&mut self) -> Verdict {
        let (random, members) = (&mut self.random, &self.members);
        let producer = &mut self.producers[random.usize(..PRODUCERS)];
        if random.u8(0..20) == 0 {
            producer.conn = None;
        }
        let Some(conn) = &mut producer.conn else {
            let at = random.usize(..MEMBERS);
            let Producer {
                stream,
                name,
                partition,
                waits_for_home,
                ..
            } = &*producer;
            let welcome = members[at].welcome(*partition, stream, name, *waits_for_home);
            let Some(welcome) = welcome else {
                return Ok(());
            };
            let mark = welcome.mark.unwrap_or(0);
            let tenure = welcome.guest.hold().tenure();
            trace(|| {
                format!(
                    "{:?}: {name} is welcome at {at}, {tenure:?}, with {mark}",
                    self.now
                )
            });
            if mark < producer.acked {
                // A member that does not know yet that it was replaced. One that has the partition says no such thing.
                let share = Share::Partition {
                    number: producer.partition,
                    count: PARTITIONS,
                };
                let cluster = self.brokers.of(share);
                let claim = cluster.state().held.claim.map(|claim| claim.tenure);
                return ensure(claim != Some(tenure.number), || {
                    format!(
                        "{} is welcome with {mark}, and was told {}",
                        producer.name, producer.acked
                    )
                });
            }
            producer.conn = Some(Conn {
                member: at,
                life: members[at].life,
                guest: welcome.guest,
                producer: welcome.producer,
                next: mark + 1,
                owed: VecDeque::new(),
            });
            return Ok(());
        };
        if conn.guest.hold().ending() != Ending::No {
            return Ok(());
        }
        let count = random.u64(1..6);
        let first = self.number + 1;
        self.number += count;
        let messages: Vec<(u64, u64)> = (0..count).map(|n| (conn.next + n, first + n)).collect();
        let member = &members[conn.member];
        if let Ok(ticket) = member.append(&producer.stream, conn.producer, &messages, self.now) {
            conn.next += count;
            conn.owed.push_back((ticket, conn.next - 1, self.number));
        }
        Ok(())
    }

    /// Producers hear what is at home, and go when they are sent away.
    fn observe(&mut self) -> Verdict {
        self.checker.look(&self.brokers)?;
        for producer in &mut self.producers {
            let Some(conn) = &mut producer.conn else {
                continue;
            };
            let member = &self.members[conn.member];
            if member.life != conn.life {
                producer.conn = None;
                continue;
            }
            let hold = conn.guest.hold().clone();
            let reached = match producer.waits_for_home {
                true => hold.replicated(),
                false => Some(member.log().progress().committed),
            };
            while let Some(&(ticket, id, number)) = conn.owed.front()
                && reached.is_some_and(|reached| ticket <= reached)
            {
                conn.owed.pop_front();
                if producer.waits_for_home {
                    producer.acked = producer.acked.max(id);
                    self.checker
                        .acknowledged(&self.brokers, &producer.name, number)?;
                }
            }
            let is_gone = match hold.ending() {
                Ending::No => false,
                Ending::Leaving => conn.owed.is_empty(),
                Ending::Over => true,
            };
            if is_gone {
                producer.conn = None;
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more: each partition has an owner, and all that was taken in its
    /// tenure is at home, anonymous messages included.
    fn heal(&mut self) -> Verdict {
        self.brokers.heal();
        self.group.state().heal();
        // Long enough for everything that is waited for in vain.
        for turn in 0..2000 {
            self.now += Duration::from_millis(5);
            for member in &mut self.members {
                member.write(self.now);
                member.carry(self.now);
            }
            trace(|| {
                let all = self.members.iter().map(Member::status);
                let all = all.map(|status| (status.home, status.fleet));
                format!("{:?}: {:?}", self.now, all.collect::<Vec<_>>())
            });
            for (_, cluster) in self.brokers.all() {
                while cluster.state().deliver() {}
            }
            self.observe()?;
            let is_over = turn > 100 && turn % 50 == 0 && self.is_settled();
            if is_over && self.checker.nothing_is_forgotten(&self.members).is_ok() {
                break;
            }
        }
        ensure(self.is_settled(), || {
            let states = self.members.iter().map(Member::status);
            format!("not settled in the end: {:#?}", states.collect::<Vec<_>>())
        })?;
        self.checker.look(&self.brokers)?;
        self.checker.nothing_is_forgotten(&self.members)
    }

    fn is_settled(&self) -> bool {
        let owned = (0..PARTITIONS).all(|partition| {
            let mut owners = 0;
            for member in &self.members {
                if let Whose::Held(hold) = member.whose(partition) {
                    let committed = member.log().progress().committed;
                    owners += 1;
                    if hold.replicated() != Some(committed) {
                        return false;
                    }
                }
            }
            owners == 1
        });
        let own = self.members.iter().all(|member| {
            let progress = member.log().progress();
            progress.replicated == Some(progress.committed)
        });
        owned && own
    }
}
