//! Virtual time: it moves only when no loop has work to do, or one loop is late.

use std::time::Duration;

use crate::sim::node::Node;
use crate::sim::world::{Actor, Sim};
use crate::vocabulary::time::Instant;

/// How a run ended.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::{Outcome, Sim};
///
/// let mut sim = Sim::new(7);
/// let echo = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
/// let peer = sim.plain(echo);
/// sim.send(peer, b"hello");
/// sim.finish(peer);
/// assert_eq!(sim.run_until_idle(Duration::from_secs(60)), Outcome::Idle, "the seed was 7");
/// ```
#[must_use = "a run that did not come to rest is often a failure"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The simulation came to rest: there is nothing more to happen.
    Idle,
    /// The virtual time allowed has passed, and there is more to come.
    TimeUp,
    /// Something goes on and on: see [`Sim::steps_max`].
    StepLimit,
}

impl Sim {
    /// The virtual time. Begins at 0.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_nanos(self.time.get())
    }

    /// Makes one turn of a loop or a peer that has something to do, chosen at random; if none has,
    /// moves time to the next arrival or deadline. False if nothing is left to happen.
    ///
    /// # Panics
    /// If a driver asks of the kernel what no kernel lets pass, such as two sends of one connection
    /// at once. So does everything that runs a simulation.
    pub fn step(&mut self) -> bool {
        self.run_one() || self.next_time_or_timer().is_some_and(|at| self.go_to(at))
    }

    /// Runs until nothing is left to happen, or `most` has passed. Deadlines count: an open
    /// connection has an idle limit, and is closed by it. Timers of services alone do not keep a run
    /// going, for many never end: see [`run_for`](Sim::run_for).
    pub fn run_until_idle(&mut self, most: Duration) -> Outcome {
        self.run(most, |sim| sim.next_time())
    }

    /// Runs until nothing is under way on the network and no loop has anything to do but wait for
    /// its deadlines, or `most` has passed.
    pub fn run_until_quiet(&mut self, most: Duration) -> Outcome {
        self.run(most, |sim| {
            let now = sim.time.get();
            let late = sim.nodes().filter_map(|node| node.stalled(now));
            let under_way = late.chain(sim.next_arrival()).min()?;
            sim.next_time().map(|at| at.min(under_way))
        })
    }

    /// Runs for a time, and lets all of it pass even if nothing happens.
    ///
    /// # Panics
    /// Panics at the limit of steps.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now() + time;
        let outcome = self.run(time, Sim::next_time_or_timer);
        assert_ne!(outcome, Outcome::StepLimit, "the simulation spins");
        self.time.set(self.time.get().max(until.as_nanos()));
    }

    /// Runs until `done` says so; false if nothing is left to happen or `most` has passed first.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Outcome, Sim};
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    /// let peer = sim.plain(addr);
    /// sim.send(peer, b"hello");
    /// let second = Duration::from_secs(1);
    /// assert!(sim.run_until(second, |sim| sim.received(peer) == b"hello"));
    /// assert!(sim.now().as_nanos() < 1_000_000, "four ways of 50 microseconds");
    ///
    /// // Nothing is under way now; the connection is open, and would be idle some time.
    /// assert_eq!(sim.run_until_quiet(second), Outcome::Idle);
    /// assert!(sim.step(), "its deadline is left");
    /// ```
    pub fn run_until(&mut self, most: Duration, mut done: impl FnMut(&mut Sim) -> bool) -> bool {
        let until = self.now() + most;
        for _ in 0..self.steps_max {
            if done(self) {
                return true;
            }
            if self.run_one() {
                continue;
            }
            match self.next_time_or_timer() {
                Some(at) if at <= until => self.go_to(at),
                _ => return false,
            };
        }
        false
    }

    // ---- Inside ----

    fn run(&mut self, most: Duration, next: impl Fn(&Sim) -> Option<Instant>) -> Outcome {
        let until = self.now() + most;
        for _ in 0..self.steps_max {
            if self.run_one() {
                continue;
            }
            match next(self) {
                None => return Outcome::Idle,
                Some(at) if at > until => {
                    self.time.set(until.as_nanos());
                    return Outcome::TimeUp;
                }
                Some(at) => self.go_to(at),
            };
        }
        Outcome::StepLimit
    }

    /// Gives one actor that has something to do its turn.
    fn run_one(&mut self) -> bool {
        let runnable = self.runnable();
        if runnable.is_empty() {
            return false;
        }
        let (chosen, which) = runnable[self.rng.below(runnable.len() as u64) as usize];
        if let Some(until) = self.late() {
            match self.rng.below(4) {
                0 => self.nodes_mut().for_each(|node| node.stall(until)),
                _ => self.stall_one(chosen, which, until),
            }
            return true;
        }
        match &mut self.actors[chosen] {
            Actor::Loop(running) => {
                match &mut running.threads {
                    Some(threads) if which > 0 => {
                        threads.go_on(which - 1, &self.kernel, &mut self.rng);
                    }
                    _ => running.node.go_on(&self.kernel, &mut self.rng),
                }
                let kernel = self.kernel.borrow();
                let wrongs = kernel.wrongs();
                assert!(wrongs.is_empty(), "what no kernel lets pass: {wrongs:?}");
            }
            Actor::Plain(plain) => {
                let net = &mut self.kernel.borrow_mut().net;
                let notices = std::mem::take(&mut net.inboxes[chosen + 1]);
                plain.turn(net, notices);
            }
            Actor::Listener(_) => unreachable!("it has nothing to do"),
        }
        true
    }

    /// Until when the next turn is late, if it is to be.
    fn late(&mut self) -> Option<u64> {
        let one_in = self.conditions.late_one_in;
        if one_in == 0 || self.rng.below(one_in) > 0 {
            return None;
        }
        let most = self.conditions.latency.end().as_nanos() as u64 * 4;
        Some(self.time.get() + 1 + self.rng.below(most.max(1)))
    }

    /// Has an actor that is a loop wait for its processor.
    fn stall_one(&mut self, actor: usize, which: usize, until: u64) {
        if let Actor::Loop(running) = &mut self.actors[actor]
            && let Some(node) = running.nodes_mut().nth(which)
        {
            node.stall(until);
        }
    }

    fn nodes_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        let running = self.actors.iter_mut().filter_map(|actor| match actor {
            Actor::Loop(running) => Some(running),
            Actor::Plain(_) | Actor::Listener(_) => None,
        });
        running.flat_map(|running| running.nodes_mut())
    }

    /// Actors that have something to do; of a loop, it (0) or one of its connections'.
    fn runnable(&mut self) -> Vec<(usize, usize)> {
        let time = &self.time;
        for actor in &mut self.actors {
            if let Actor::Loop(running) = actor
                && let Some(threads) = &mut running.threads
            {
                threads.start(&self.kernel, time, &mut self.rng);
            }
        }
        let kernel = &mut *self.kernel.borrow_mut();
        kernel.catch_up();
        let now = self.time.get();
        let mut runnable = Vec::new();
        for (i, actor) in self.actors.iter().enumerate() {
            match actor {
                Actor::Loop(running) => {
                    let nodes = running.nodes().enumerate();
                    let on = nodes.filter(|(_, node)| node.goes_on(kernel, now));
                    runnable.extend(on.map(|(which, _)| (i, which)));
                }
                Actor::Plain(_) if !kernel.net.inboxes[i + 1].is_empty() => runnable.push((i, 0)),
                Actor::Plain(_) | Actor::Listener(_) => {}
            }
        }
        runnable
    }

    fn next_time(&self) -> Option<Instant> {
        let now = self.time.get();
        let deadlines = self.nodes().filter_map(|node| node.deadline(now));
        deadlines.chain(self.next_arrival()).min()
    }

    fn next_time_or_timer(&self) -> Option<Instant> {
        let now = self.time.get();
        let times = self.nodes().filter_map(|node| node.until(now));
        times.chain(self.next_arrival()).min()
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.kernel.borrow().net.next_arrival()
    }

    /// Time passes, and what arrives at that time does.
    fn go_to(&mut self, at: Instant) -> bool {
        self.time.set(self.time.get().max(at.as_nanos()));
        let net = &mut self.kernel.borrow_mut().net;
        if net.next_arrival().is_some_and(|next| next <= at) {
            net.arrive();
        }
        true
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let running = self.actors.iter().filter_map(|actor| match actor {
            Actor::Loop(running) => Some(running),
            Actor::Plain(_) | Actor::Listener(_) => None,
        });
        running.flat_map(|running| running.nodes())
    }
}
