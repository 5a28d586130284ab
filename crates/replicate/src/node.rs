//! A member of a fleet: it replicates its own partitions, says which they are, and hands partitions over to
//! other members.
//!
//! The one idea: the group says which member should have a partition, and the home says which
//! member has it. So a node never decides by the group's word alone: it opens or releases a home
//! because of it, and then believes the marks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidewire_log::{Carried, Failure, Log, Step, Tenure, Ticket};

use crate::hold::{Ending, Hold};
use crate::home::Home;
use crate::look::Look;
use crate::membership::{Event, Membership};
use crate::owners::Owners;
use crate::replicator::{CURSOR, CURSOR_EVERY, RELEASED, Replicator};
use crate::settings::Settings;
use crate::share::Share;
use crate::status::{Fleet, Phase, Shown, Status};

/// Where the homes of shares are had from.
pub trait Homes: Send {
    /// A home for this share. The client connects at the first request.
    ///
    /// # Errors
    /// The reason why the home cannot be reached; the node tries again.
    fn home(&mut self, share: Share) -> Result<Box<dyn Home>, Arc<str>>;
}

/// The fleet and this node's part in it.
pub struct Member {
    /// How many partitions there are; at least 1.
    pub partitions: u32,
    /// The homes of the partitions.
    pub homes: Box<dyn Homes>,
    /// The group's decision which partitions are this node's.
    pub membership: Box<dyn Membership>,
    /// The place where the node publishes which producers it has.
    pub owners: Owners,
    /// Draws a random number that no session has had.
    pub session: Box<dyn FnMut() -> u64 + Send>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member(of {} partitions)", self.partitions)
    }
}

/// The module's comment describes the type. Driven by steps, as a [`Replicator`] is.
pub struct Node {
    log: Arc<dyn Log>,
    identity: u64,
    settings: Settings,
    member: Member,
    /// Anonymous messages; `None` before there is a home for them.
    own: Option<Carrier>,
    parts: BTreeMap<u32, Part>,
    /// The partitions that the group has given to this node.
    given: BTreeSet<u32>,
    /// Partitions that are tried again, and the earliest time for that.
    again: BTreeMap<u32, Duration>,
    places: BTreeMap<u32, Arc<str>>,
    look: Look,
    owners: Owners,
    /// The totals of carriers that have ended.
    before: Status,
    fleet: Fleet,
    told: Told,
    /// The process ends.
    leaves: bool,
    /// The state of a hold has changed since watchers were told.
    has_ended: bool,
    /// When cursors are written next, at the earliest.
    remember_due: Duration,
    remembered: BTreeMap<Arc<str>, u64>,
    /// By streams: what is over and lies before this needs not be kept.
    released: BTreeMap<Arc<str>, u64>,
    shown: Shown,
}

/// A replicator and its home.
pub(crate) struct Carrier {
    replicator: Replicator,
    home: Box<dyn Home>,
}

/// A partition that is carried, or is about to be.
struct Part {
    carrier: Carrier,
    leaving: Option<Leaving>,
}

/// A partition that is handed over.
struct Leaving {
    until: Duration,
    /// Appending has ended, and all up to this ticket is to go home.
    reach: Option<Ticket>,
}

/// The watermarks that the log was told last.
#[derive(Default, PartialEq, Eq)]
struct Told {
    home: BTreeMap<Arc<str>, u64>,
    /// How far anonymous messages are, and the partitions.
    own: Option<Ticket>,
    parts: Vec<Option<Ticket>>,
    replicates: bool,
    seeks_home: bool,
    away: Option<Failure>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({:?})", self.fleet)
    }
}

impl Node {
    /// A node for `log`, whose random number is `identity`. The log must sync its commits.
    pub fn new(log: Arc<dyn Log>, identity: u64, settings: Settings, member: Member) -> Node {
        let owners = member.owners.clone();
        let mut node = Node {
            log,
            identity,
            settings,
            member,
            own: None,
            parts: BTreeMap::new(),
            given: BTreeSet::new(),
            again: BTreeMap::new(),
            places: BTreeMap::new(),
            look: Look::default(),
            owners,
            before: Status::default(),
            fleet: Fleet::default(),
            told: Told::default(),
            leaves: false,
            has_ended: false,
            remember_due: Duration::ZERO,
            remembered: BTreeMap::new(),
            released: BTreeMap::new(),
            shown: Shown::default(),
        };
        for stream in node.log.streams("", usize::MAX) {
            if let Some(before) = node.log.cursor(&stream.name, RELEASED) {
                node.released.insert(stream.name.clone(), before);
            }
            if let Some(home) = node.log.cursor(&stream.name, CURSOR) {
                node.remembered.insert(stream.name, home);
            }
        }
        node.told.home = node.remembered.clone();
        node.log.carried(Carried {
            home: node.remembered.clone(),
            seeks_home: true,
            ..Carried::default()
        });
        node
    }

    /// The node's state, for the metrics.
    #[must_use]
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// From now on the node hands over its partitions, and takes none: its process ends. No record
    /// should be appended any more. If the home is unreachable, the node does not wait.
    pub fn leave(&mut self, now: Duration) {
        if !self.leaves {
            self.leaves = true;
            self.happened(Event::Revoked(self.parts.keys().copied().collect()), now);
        }
    }

    /// Whether the node has handed over everything.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.leaves && self.parts.is_empty()
    }

    /// Does some work: see [`Replicator::step`].
    pub fn step(&mut self, now: Duration) -> Step {
        let mut step = Step::Idle;
        while let Some(event) = self.member.membership.event() {
            self.happened(event, now);
            step = Step::Worked;
        }
        step = sooner(step, self.take(now));
        let owned: Vec<u32> = self.parts.keys().copied().collect();
        for partition in owned {
            step = sooner(step, self.drive(partition, now));
        }
        step = sooner(step, self.drive_own(now));
        step = sooner(step, self.settle(now));
        if matches!(step, Step::Worked) {
            let has_changed = self.publish() | std::mem::take(&mut self.has_ended);
            self.tell();
            if has_changed {
                self.owners.wake();
            }
            self.show();
        }
        sooner(step, self.remember(now))
    }

    fn happened(&mut self, event: Event, now: Duration) {
        match event {
            Event::Assigned {
                generation,
                partitions,
            } => {
                tracing::info!(
                    generation,
                    ?partitions,
                    "the fleet's group has assigned partitions to this node"
                );
                self.fleet.generation = generation;
                self.fleet.is_lost = false;
                let count = self.member.partitions;
                self.given = partitions;
                self.given.retain(|&partition| partition < count);
                let gone = self.parts.iter();
                let gone = gone.filter(|(partition, part)| {
                    !self.given.contains(*partition) && part.leaving.is_none()
                });
                let gone: Vec<u32> = gone.map(|(&partition, _)| partition).collect();
                for partition in gone {
                    self.end(
                        partition,
                        "another node has the partition, because this node was unreachable",
                    );
                }
            }
            Event::Revoked(partitions) => {
                tracing::info!(?partitions, "partitions are handed over");
                for partition in partitions {
                    self.given.remove(&partition);
                    let until = now + self.settings.hand_over_within;
                    match self.parts.get_mut(&partition) {
                        Some(part) => {
                            part.leaving = Some(Leaving { until, reach: None });
                            if let Some(hold) = part.carrier.replicator.hold() {
                                hold.ends(Ending::Leaving);
                            }
                        }
                        None => self.member.membership.released(partition),
                    }
                }
            }
            Event::Lost => {
                tracing::warn!(
                    "the fleet's group is unreachable: this node keeps its partitions, and acknowledges at level durable only"
                );
                self.fleet.is_lost = true;
                // A part that has claimed nothing yet has nothing to go on with.
                let begun = self.parts.iter();
                let begun = begun.filter(|(_, part)| !part.carrier.replicator.has_claimed());
                let begun: Vec<u32> = begun.map(|(&partition, _)| partition).collect();
                for partition in begun {
                    self.end(partition, "the group is not reached");
                }
            }
            Event::Places(places) => self.places = places,
        }
    }

    /// Begins to carry the partitions that were given to the node.
    fn take(&mut self, now: Duration) -> Step {
        if self.fleet.is_lost || self.leaves {
            return Step::Idle;
        }
        let mut step = Step::Idle;
        let missing = self.given.iter();
        let missing = missing.filter(|partition| !self.parts.contains_key(*partition));
        for partition in missing.copied().collect::<Vec<u32>>() {
            match self.again.get(&partition) {
                Some(&again) if now < again => step = sooner(step, Step::WaitUntil(again)),
                _ => {
                    let share = Share::Partition {
                        number: partition,
                        count: self.member.partitions,
                    };
                    let Some(carrier) = self.carrier(share) else {
                        let again = now + self.settings.retry_last;
                        self.again.insert(partition, again);
                        continue;
                    };
                    self.again.remove(&partition);
                    let leaving = None;
                    self.parts.insert(partition, Part { carrier, leaving });
                    step = Step::Worked;
                }
            }
        }
        step
    }

    fn carrier(&mut self, share: Share) -> Option<Carrier> {
        let home = self.member.homes.home(share);
        let home = home.inspect_err(|why| tracing::warn!(%share, why = &**why, "there is no home"));
        let session = (self.member.session)();
        let log = self.log.clone();
        let settings = Settings {
            transaction_bytes: transaction_bytes(&self.settings, self.member.partitions),
            ..self.settings.clone()
        };
        Some(Carrier {
            home: home.ok()?,
            replicator: Replicator::of(share, log, self.identity, session, settings),
        })
    }

    /// Drives one partition.
    fn drive(&mut self, partition: u32, now: Duration) -> Step {
        let Some(part) = self.parts.get_mut(&partition) else {
            return Step::Idle;
        };
        let replicator = &mut part.carrier.replicator;
        let step = replicator.step(now, &mut *part.carrier.home);
        if replicator.is_over() {
            self.again.insert(partition, now + self.settings.retry_last);
            if part.leaving.is_some() {
                self.member.membership.released(partition);
            }
            if self.fleet.is_lost {
                // The member that took the partition was told to.
                self.given.remove(&partition);
            }
            self.end(partition, "another node has taken it");
            return Step::Worked;
        }
        let Some(leaving) = &mut part.leaving else {
            return step;
        };
        let is_done = match replicator.hold() {
            None => true,
            Some(_) if self.leaves && !replicator.is_home() => true,
            Some(hold) => {
                hold.ends(Ending::Leaving);
                if leaving.reach.is_none() && !hold.has_guests() {
                    leaving.reach = Some(self.log.progress().committed);
                }
                leaving.reach.is_some() && hold.replicated() >= leaving.reach
            }
        };
        if !is_done && now < leaving.until {
            return sooner(step, Step::WaitUntil(leaving.until));
        }
        if !is_done {
            self.fleet.cut_short += 1;
            let waited_s = self.settings.hand_over_within.as_secs_f64();
            tracing::warn!(
                partition,
                waited_s,
                "a partition was not handed over in time: messages that are not in the home stay on this server"
            );
        }
        self.end(partition, "it is handed over");
        self.member.membership.released(partition);
        Step::Worked
    }

    fn drive_own(&mut self, now: Duration) -> Step {
        let share = Share::Own {
            log: self.identity,
            count: self.member.partitions,
        };
        if self.own.is_none() {
            self.own = self.carrier(share);
        }
        match &mut self.own {
            Some(own) => own.replicator.step(now, &mut *own.home),
            None => Step::WaitUntil(now + self.settings.retry_last),
        }
    }

    /// Ends the carrying of a partition.
    fn end(&mut self, partition: u32, why: &str) {
        let Some(part) = self.parts.remove(&partition) else {
            return;
        };
        tracing::info!(partition, why, "this node has lost a partition");
        let replicator = &part.carrier.replicator;
        if let Some(hold) = replicator.hold_of_any() {
            hold.ends(Ending::Over);
            self.has_ended = true;
        }
        let ended = Status {
            held: 0,
            ..replicator.shown().status()
        };
        self.before.add(&ended);
        self.fleet.ended += 1;
    }

    /// Looks what became of tenures that are over.
    fn settle(&mut self, now: Duration) -> Step {
        let Some(own) = &mut self.own else {
            return Step::Idle;
        };
        let held: BTreeSet<Tenure> = self.parts.values().filter_map(Part::tenure).collect();
        for part in self.parts.values() {
            if let Some(tenure) = part.tenure() {
                let homes = part.carrier.replicator.homes();
                own.replicator.seen().carried(tenure, &homes);
            }
        }
        let count = self.member.partitions;
        let (homes, settings) = (&mut self.member.homes, &self.settings);
        let seen = own.replicator.seen();
        let others = seen.others(|tenure| held.contains(&tenure));
        let open = |number| homes.home(Share::Partition { number, count });
        let step = self
            .look
            .step(now, &others, settings, open, |tenure, found| {
                let is_ours = found.owner.is_some_and(|owner| owner.log == self.identity)
                    && found
                        .claim
                        .is_some_and(|claim| claim.tenure == tenure.number);
                if is_ours {
                    return None;
                }
                Some(seen.settle(tenure, self.identity, found, &self.released))
            });
        let left = self.look.left();
        self.fleet.left_tenures = left.len();
        self.fleet.left_records = seen.records(left.iter().copied());
        step
    }

    /// Publishes which member has what.
    fn publish(&mut self) -> bool {
        let parts = self.parts.iter();
        let held = parts.filter_map(|(&partition, part)| {
            let hold = part.carrier.replicator.hold()?;
            (hold.ending() == Ending::No).then(|| (partition, hold.clone()))
        });
        let mut places = self.places.clone();
        // A producer that goes there comes back.
        places.retain(|partition, _| !self.given.contains(partition));
        self.owners.change(held.collect(), places)
    }

    /// Tells the log how far replication is.
    fn tell(&mut self) {
        let mut told = Told {
            home: self.homes(),
            seeks_home: self.own.is_none(),
            ..Told::default()
        };
        if let Some(own) = &mut self.own {
            told.replicates = own.replicator.has_claimed() && !own.replicator.is_over();
            told.seeks_home = own.replicator.seeks_home();
            told.own = own.replicator.replicated();
            told.away = own.replicator.shown().status().trouble.map(Failure);
        }
        let parts = self.parts.values();
        told.parts = parts
            .map(|part| part.carrier.replicator.replicated())
            .collect();
        if told != self.told {
            self.log.carried(Carried {
                home: told.home.clone(),
                replicated: told.own,
                replicates: told.replicates,
                seeks_home: told.seeks_home,
                away: told.away.clone(),
            });
            self.told = told;
        }
    }

    /// Writes down how far streams are at home, now and then.
    fn remember(&mut self, now: Duration) -> Step {
        if self.told.home == self.remembered {
            return Step::Idle;
        }
        if now < self.remember_due {
            return Step::WaitUntil(self.remember_due);
        }
        self.remember_due = now + CURSOR_EVERY;
        for (stream, &home) in &self.told.home {
            if self.remembered.get(stream) != Some(&home) {
                // A cursor that is refused only costs records that are kept too long after a start
                // without a home.
                let _ = self.log.set_cursor(stream, CURSOR, home);
            }
        }
        self.remembered = self.told.home.clone();
        Step::Idle
    }

    /// The least of all, and nothing that is left behind.
    fn homes(&mut self) -> BTreeMap<Arc<str>, u64> {
        let Some(own) = &mut self.own else {
            return self.told.home.clone();
        };
        let mut homes = own.replicator.homes();
        for part in self.parts.values() {
            // A share that has claimed nothing yet may find that it has to begin at this node's
            // position.
            let of_part = part.carrier.replicator.homes();
            for (stream, home) in &mut homes {
                let least = of_part.get(stream).copied();
                *home = least.unwrap_or(0).min(*home);
            }
        }
        own.replicator.seen().keep(&mut homes);
        homes
    }

    fn show(&mut self) {
        let mut status = self.before.clone();
        if let Some(own) = &self.own {
            let of_own = own.replicator.shown().status();
            status.add(&of_own);
            (status.phase, status.trouble) = (of_own.phase, of_own.trouble);
        }
        self.fleet.partitions.clear();
        for (&partition, part) in &self.parts {
            let of_part = part.carrier.replicator.shown().status();
            status.add(&of_part);
            let phase = match part.leaving {
                Some(_) => Phase::Leaving,
                None => of_part.phase,
            };
            self.fleet.partitions.insert(partition, phase);
            status.trouble = status.trouble.or(of_part.trouble);
        }
        status.home = self.told.home.clone();
        status.fleet = Some(self.fleet.clone());
        self.shown.change(|shown| *shown = status);
    }
}

impl Part {
    fn tenure(&self) -> Option<Tenure> {
        let hold: &Arc<Hold> = self.carrier.replicator.hold()?;
        Some(hold.tenure())
    }
}

/// Most bytes that all shares of a node hold in memory, were all of them here; two transactions each.
const HELD_MAX: usize = 128 << 20;
/// The smallest limit of a transaction.
const TRANSACTION_MIN: usize = 64 << 10;

/// The limit of a transaction of one share, such that all together stay bounded, whatever their
/// number.
fn transaction_bytes(settings: &Settings, partitions: u32) -> usize {
    let shares = partitions as usize + 1;
    let most = HELD_MAX / (2 * shares);
    settings.transaction_bytes.min(most.max(TRANSACTION_MIN))
}

/// The earlier one of two steps.
fn sooner(one: Step, other: Step) -> Step {
    match (one, other) {
        (Step::Worked, _) | (_, Step::Worked) => Step::Worked,
        (Step::Idle, step) | (step, Step::Idle) => step,
        (Step::WaitUntil(one), Step::WaitUntil(other)) => Step::WaitUntil(one.min(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_partitions_are_here_what_is_held_is_bounded() {
        for partitions in [1, 12, 100, 1024] {
            let each = transaction_bytes(&Settings::default(), partitions);
            assert!(each >= TRANSACTION_MIN);
            let all = 2 * each * (partitions as usize + 1);
            assert!(all <= HELD_MAX + (1 << 20), "{partitions}: {all}");
        }
        assert_eq!(transaction_bytes(&Settings::default(), 12), 4 << 20);
    }
}
