//! Servers of one home that take it over by themselves: each is followed, owned, killed, stopped and cut off by a seed, and its clock runs
//! at a speed of its own. No two of them may ever hold the lease at one moment, and where nothing goes wrong any more there is an owner
//! soon, which stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{EmbeddedLog, Settings as LogSettings};
use tidewire_replicate::{
    ADDRESS, Answer, Ask, Found, Held, Home, Lease, Mistakes, Owner, Replicator, Settings,
    Transaction, Verdict as Decision, Watchman, Witness, address_word,
};

use crate::home::{Cluster, SimHome};
use crate::seeds::{self, Verdict, ensure, trace};

const SERVERS: usize = 3;
const LEASE: Duration = Duration::from_secs(5);
/// How long a turn of the world is.
const TURN: Duration = Duration::from_millis(100);
/// How long the home may take to have an owner that stays, once nothing goes wrong.
const SOON: Duration = Duration::from_secs(60);

struct Server {
    number: u64,
    /// How much of the time of the world passes here: in thousandths.
    speed: u64,
    state: State,
    watchman: Watchman,
    witness: Witness,
    lives: u64,
    is_stopped: bool,
    /// The marks as they were read last.
    read: Held,
    reached: bool,
}

enum State {
    Dead,
    Follows(SimHome),
    /// The claim, from the owner with this log: what was asked last, and since when.
    Claims {
        home: SimHome,
        from: Option<Owner>,
        asked: u64,
        is_open: bool,
        since: Duration,
    },
    Owns {
        home: SimHome,
        is_lost: Arc<AtomicBool>,
        replicator: Box<Replicator>,
        lease: Lease,
    },
}

impl Server {
    fn new(number: u64, speed: u64) -> Server {
        let mut server = Server {
            number,
            speed,
            state: State::Dead,
            watchman: Watchman::new(Witness::default()),
            witness: Witness::default(),
            lives: 0,
            is_stopped: false,
            read: Held::default(),
            reached: false,
        };
        server.forget();
        server
    }

    fn forget(&mut self) {
        self.witness = Witness::default();
        self.watchman = Watchman::new(self.witness.clone());
        self.read = Held::default();
    }

    /// The clock of this server.
    fn clock(&self, now: Duration) -> Duration {
        now * u32::try_from(self.speed).expect("small") / 1000
    }

    fn client(&self) -> u64 {
        self.number * 1000 + self.lives
    }

    fn start(&mut self, cluster: &Cluster) {
        self.lives += 1;
        self.is_stopped = false;
        self.forget();
        self.state = State::Follows(SimHome::new(cluster, self.client()));
    }

    /// Whether it serves.
    fn serves(&self, now: Duration) -> bool {
        match &self.state {
            State::Owns { lease, .. } => lease.is_held(self.clock(now)),
            _ => false,
        }
    }

    fn owner(&self) -> Owner {
        Owner {
            log: self.client(),
            session: 1,
        }
    }

    fn claim(&self, witness: Witness, home: SimHome, mistakes: Mistakes) -> State {
        let owner = self.owner();
        let opened = EmbeddedLog::open(SimDisk::new(self.client()), LogSettings::default());
        let (log, _, _) = opened.expect("a log");
        let settings = Settings {
            lease: LEASE,
            witness,
            mistakes,
            retry_last: Duration::from_secs(1),
            answer_within: Duration::from_secs(3),
            ..Settings::default()
        };
        let is_lost = Arc::new(AtomicBool::new(false));
        let lost = is_lost.clone();
        let replicator = Replicator::new(Arc::new(log), owner.log, owner.session, settings);
        let replicator = replicator.when_lost(move |_| lost.store(true, SeqCst));
        State::Owns {
            home,
            is_lost,
            lease: replicator.lease(),
            replicator: Box::new(replicator),
        }
    }

    fn step(&mut self, world: &mut World) {
        let now = self.clock(world.now);
        let mut state = std::mem::replace(&mut self.state, State::Dead);
        state = match state {
            State::Dead => State::Dead,
            State::Follows(home) => self.follow(home, now, world),
            State::Claims {
                mut home,
                from,
                asked,
                is_open,
                since,
            } => {
                let mut next = None;
                while let Some((number, answer)) = home.answer() {
                    if number == asked {
                        next = Some(answer);
                    }
                }
                match (next, is_open) {
                    (None, _) if now < since + Duration::from_secs(3) => State::Claims {
                        home,
                        from,
                        asked,
                        is_open,
                        since,
                    },
                    (Some(Answer::Held(held)), false)
                        if held.owner == from || held.owner == Some(self.owner()) =>
                    {
                        let mut claim = Transaction::new(self.owner());
                        let word = address_word(self.owner().log, "a:1");
                        claim.notes.insert(ADDRESS.into(), word.into());
                        home.ask(asked + 1, Ask::Carry(claim));
                        State::Claims {
                            home,
                            from,
                            asked: asked + 1,
                            is_open: true,
                            since: now,
                        }
                    }
                    (Some(Answer::Committed), true) => {
                        trace(|| format!("{:?}: {} claims", world.now, self.number));
                        self.claim(self.witness.clone(), home, world.mistakes)
                    }
                    _ => {
                        self.watchman.failed(Some(self.rank(world)), now);
                        State::Follows(SimHome::new(&world.cluster, self.client()))
                    }
                }
            }
            State::Owns {
                mut home,
                is_lost,
                mut replicator,
                lease,
            } => {
                for _ in 0..6 {
                    replicator.step(now, &mut home);
                }
                match is_lost.load(SeqCst) {
                    true => {
                        self.start(&world.cluster);
                        std::mem::replace(&mut self.state, State::Dead)
                    }
                    false => State::Owns {
                        home,
                        is_lost,
                        replicator,
                        lease,
                    },
                }
            }
        };
        self.state = state;
    }

    /// Whether the owner is in the group: one that is stopped or cut off is not, and one that follows by now has not claimed.
    fn is_member(&self, world: &mut World) -> Option<bool> {
        let owner = self.watchman.owner()?.log / 1000;
        if owner == self.number {
            return Some(false);
        }
        let is_alive = world.alive.contains(&owner);
        // Now and then the group goes on without a server that serves.
        let is_missed = world.is_troubled && world.random.u8(0..20) == 0;
        let is_alive = is_alive && !is_missed;
        (!world.is_troubled || world.random.u8(0..5) > 0).then_some(is_alive)
    }

    fn rank(&self, world: &World) -> u32 {
        let before = world.alive.iter().filter(|number| **number < self.number);
        u32::try_from(before.count()).expect("few")
    }

    fn follow(&mut self, mut home: SimHome, now: Duration, world: &mut World) -> State {
        if self.reached {
            // What is committed comes in order, and may come late.
            let held = world.cluster.state().held.clone();
            if world.random.u8(0..4) > 0 {
                self.read = held;
            }
            self.watchman.reads(&self.read, now);
        }
        let found = Found {
            is_current: !world.is_troubled || world.random.u8(0..10) > 0,
            rank: (!world.is_troubled || world.random.u8(0..5) > 0).then(|| self.rank(world)),
            owner_is_member: self.is_member(world),
            chance: Duration::from_millis(world.random.u64(..3000)),
        };
        match self.watchman.decide(&found, now) {
            Decision::Confirm if self.reached => {
                self.read = world.cluster.state().held.clone();
                self.watchman.reads(&self.read, now);
                self.watchman.answers(now);
                State::Follows(home)
            }
            Decision::Claim(_) => {
                home.ask(1, Ask::Open);
                State::Claims {
                    home,
                    from: self.watchman.owner(),
                    asked: 1,
                    is_open: false,
                    since: now,
                }
            }
            _ => State::Follows(home),
        }
    }
}

struct World {
    random: Rng,
    cluster: Cluster,
    now: Duration,
    alive: Vec<u64>,
    is_troubled: bool,
    mistakes: Mistakes,
}

impl World {
    fn turn(&mut self, servers: &mut [Server]) -> Verdict {
        self.now += TURN;
        self.alive = servers
            .iter()
            .filter(|server| !matches!(server.state, State::Dead) && !server.is_stopped)
            .filter(|server| server.reached)
            .map(|server| server.number)
            .collect();
        for server in &mut *servers {
            if !server.is_stopped {
                server.step(self);
            }
            for _ in 0..self.random.usize(0..4) {
                self.cluster.state().deliver();
            }
        }
        let serving: Vec<u64> = servers
            .iter()
            .filter(|server| server.serves(self.now))
            .map(|server| server.number)
            .collect();
        ensure(serving.len() <= 1, || {
            format!("at {:?} {serving:?} hold the lease at once", self.now)
        })
    }

    fn act(&mut self, servers: &mut [Server]) {
        let at = self.random.usize(..servers.len());
        let server = &mut servers[at];
        let client = server.client();
        match self.random.u8(0..12) {
            0 => server.state = State::Dead,
            1..=3 if matches!(server.state, State::Dead) => {
                server.start(&self.cluster);
            }
            4 => server.is_stopped = true,
            5 | 6 => server.is_stopped = false,
            7 => {
                self.cluster.state().cut = Some(client);
                server.reached = false;
            }
            8 | 9 => {
                self.cluster.state().cut = None;
                servers.iter_mut().for_each(|server| server.reached = true);
            }
            10 => self.cluster.state().is_away = true,
            _ => self.cluster.state().is_away = false,
        }
    }
}

impl World {
    /// Nothing goes wrong any more: there is an owner soon, and it stays.
    fn heal(&mut self, servers: &mut [Server]) -> Verdict {
        {
            let mut state = self.cluster.state();
            (state.is_away, state.cut, state.is_kind) = (false, None, true);
        }
        self.is_troubled = false;
        for server in &mut *servers {
            (server.is_stopped, server.reached) = (false, true);
            if matches!(server.state, State::Dead) {
                server.start(&self.cluster);
            }
        }
        let owner = |servers: &[Server], now| servers.iter().position(|of| of.serves(now));
        let until = self.now + SOON;
        while self.now < until {
            self.turn(servers)?;
        }
        let first = owner(servers, self.now);
        ensure(first.is_some(), || {
            let states = servers.iter().map(|server| match &server.state {
                State::Dead => "dead".to_owned(),
                State::Follows(_) => format!("follows {:?}", server.watchman),
                State::Claims { is_open, .. } => format!("claims, open: {is_open}"),
                State::Owns { replicator, .. } => {
                    let status = replicator.shown().status();
                    format!("owns, {:?} {:?}", status.phase, status.trouble)
                }
            });
            let states: Vec<String> = states.collect();
            format!("there is no owner at {:?}: {states:#?}", self.now)
        })?;
        let until = self.now + SOON;
        while self.now < until {
            self.turn(servers)?;
            let now = owner(servers, self.now);
            ensure(now == first, || {
                format!("{first:?} owned the home and nothing went wrong, and {now:?} does")
            })?;
        }
        Ok(())
    }
}

fn run(seed: u64, mistakes: Mistakes) -> Verdict {
    let (mut world, mut servers) = trouble(seed, mistakes)?;
    world.heal(&mut servers)
}

/// The part of a seed in which things go wrong.
fn trouble(seed: u64, mistakes: Mistakes) -> Result<(World, Vec<Server>), seeds::Violation> {
    let mut random = Rng::with_seed(seed);
    let cluster = Cluster::new(random.u64(..));
    let mut servers: Vec<Server> = (1..=SERVERS as u64)
        .map(|number| Server::new(number, random.u64(991..=1009)))
        .collect();
    for server in &mut servers {
        server.reached = true;
        server.start(&cluster);
    }
    let mut world = World {
        random,
        cluster,
        now: Duration::from_secs(1),
        alive: Vec::new(),
        is_troubled: true,
        mistakes,
    };
    for _ in 0..world.random.usize(300..1500) {
        if world.random.u8(0..30) == 0 {
            world.act(&mut servers);
        }
        world.turn(&mut servers)?;
    }
    Ok((world, servers))
}

#[test]
fn two_never_hold_the_lease_and_one_soon_does() {
    seeds::all(
        "failover::two_never_hold_the_lease_and_one_soon_does",
        300,
        |seed| run(seed, Mistakes::default()),
    );
}

/// Whether two hold the lease at once, which the mistake must lead to: that there is no owner would not do.
fn is_torn(seed: u64, mistakes: Mistakes) -> Verdict {
    trouble(seed, mistakes).map(|_| ())
}

#[test]
fn a_lease_that_is_not_waited_for_is_found() {
    let mistakes = Mistakes {
        lease_unwaited: true,
        ..Mistakes::default()
    };
    seeds::some(1000, |seed| is_torn(seed, mistakes));
}

#[test]
fn a_lease_that_counts_from_the_answer_is_found() {
    let mistakes = Mistakes {
        lease_from_answer: true,
        ..Mistakes::default()
    };
    seeds::some(3000, |seed| is_torn(seed, mistakes));
}

#[test]
fn a_lease_that_counts_from_a_proof_which_was_not_the_last_is_found() {
    let mistakes = Mistakes {
        witness_unchecked: true,
        ..Mistakes::default()
    };
    seeds::some(3000, |seed| is_torn(seed, mistakes));
}
