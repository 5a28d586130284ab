//! Any service on simulated networks of every shape, for the tests of crates that serve something: what is said to
//! it in pieces, by several at once, is answered as it is without any accident, or its beginning is; the server dies
//! in some runs, and another follows; in the end it stops in order.

use std::time::Duration;

use tidewire::sim::chunking::splits;
use tidewire::sim::{Conditions, LoopId, PlainId, PlainState, Shape, Sim};
use tidewire::{Endpoint, Limits, Service};

/// What is said on one connection, and then that there is no more.
pub(crate) type Said = Vec<u8>;

/// Far longer than anything takes, in virtual time.
const LONG: Duration = Duration::from_secs(3600);

/// Whether what came back on the connection with this number can be so. If nothing has gone wrong it is `whole`.
pub(crate) type Check<'a> = &'a dyn Fn(usize, &[u8], bool) -> Result<(), String>;

/// A run, from a seed. `make` makes the service, and whatever else there is to be on the network.
pub(crate) fn converse<S: Service>(
    seed: u64,
    make: impl Fn(&mut Sim) -> (S, Limits),
    talks: &[Said],
    check: Check<'_>,
) -> Result<(), String> {
    let mut conditions = Conditions::from_seed(seed);
    let breaks = seed % 5 == 1;
    conditions.reset_one_in = if breaks { 100 } else { 0 };
    // New clients wait then; some of the connections that break do so before they are heard.
    conditions.kernel.accept_fails_one_in = [0, 2, 3, 8][(seed / 3 % 4) as usize];
    conditions.late_one_in = [0, 4, 64][(seed / 5 % 3) as usize];
    conditions.kernel.accept_aborts_one_in = if breaks { 20 } else { 0 };
    conditions.kernel.watch_fails_one_in = if breaks { 20 } else { 0 };
    // Other tests try single bytes: here they would only take long.
    conditions.segment_max = conditions.segment_max.max(40);
    conditions.receive_max = conditions.receive_max.max(40);
    conditions.accept_max = conditions.accept_max.max(40);
    conditions.send_buffer = conditions.send_buffer.max(200);
    conditions.receive_buffer = conditions.receive_buffer.max(200);
    // Between two pieces: short enough for no peer to be late with all of them.
    let pause = conditions.latency.end().mul_f64((seed % 11) as f64 / 20.0);
    let mut scene = Scene {
        sim: Sim::under(seed, conditions),
        shape: [Shape::Readiness, Shape::Completion, Shape::Threads][(seed % 3) as usize],
    };
    let (on, at) = scene.serve(&make, None);
    let peers: Vec<PlainId> = talks.iter().map(|_| scene.sim.plain(&at)).collect();
    let dies = seed % 4 == 1;
    let death = if dies { seed / 4 % 60 } else { u64::MAX };
    let on = match scene.talk((seed, pause), &peers, talks, (on, death)) {
        Some(on) => on,
        None => scene.serve(&make, Some(&at)).0,
    };
    scene.sim.run_for(LONG);
    for (number, &peer) in peers.iter().enumerate() {
        scene.look(number, peer, !dies && !breaks, check)?;
    }
    let late = scene.sim.plain(&at);
    scene.sim.send(late, &talks[0]);
    scene.sim.finish(late);
    scene.sim.run_for(LONG);
    scene.look(0, late, !breaks, check)?;
    scene.stop(on)
}

struct Scene {
    sim: Sim,
    shape: Shape,
}

impl Scene {
    fn serve<S: Service>(
        &mut self,
        make: &impl Fn(&mut Sim) -> (S, Limits),
        at: Option<&Endpoint>,
    ) -> (LoopId, Endpoint) {
        let (service, limits) = make(&mut self.sim);
        let on = self.sim.shape(self.shape).add_loop();
        let service = self.sim.service(on, service, limits);
        match at {
            None => (on, self.sim.listen(service)),
            Some(at) => {
                self.sim.listen_at(service, at.clone());
                (on, at.clone())
            }
        }
    }

    /// Has every peer say all, piece by piece. The server, if it has not died meanwhile.
    fn talk(
        &mut self,
        (seed, pause): (u64, Duration),
        peers: &[PlainId],
        talks: &[Said],
        (on, death): (LoopId, u64),
    ) -> Option<LoopId> {
        let mut rest: Vec<(&[u8], Vec<usize>)> = talks
            .iter()
            .zip(seed..)
            .map(|(said, seed)| (&said[..], splits(seed, said.len())))
            .collect();
        for round in 0..=death {
            if round == death {
                self.sim.kill(on);
                // The next one may be there in time for some.
                for (&peer, (said, _)) in peers.iter().zip(&rest) {
                    self.sim.send(peer, said);
                    self.sim.finish(peer);
                }
                return None;
            }
            let mut more = false;
            for (&peer, (said, pieces)) in peers.iter().zip(&mut rest) {
                let Some(len) = pieces.pop() else { continue };
                let (piece, behind) = said.split_at(len);
                *said = behind;
                self.sim.send(peer, piece);
                if pieces.is_empty() {
                    self.sim.finish(peer);
                }
                more = true;
            }
            self.sim.run_for(pause);
            if !more && death == u64::MAX {
                break;
            }
        }
        Some(on)
    }

    fn look(
        &self,
        number: usize,
        peer: PlainId,
        whole: bool,
        check: Check<'_>,
    ) -> Result<(), String> {
        let (state, got) = (self.sim.state(peer), self.sim.received(peer));
        let ended = state == PlainState::Ended;
        if !(ended || !whole && matches!(state, PlainState::Failed(_))) {
            return Err(format!("connection {number} is {state:?}"));
        }
        check(number, got, whole).map_err(|what| format!("connection {number}: {what}"))
    }

    fn stop(&mut self, on: LoopId) -> Result<(), String> {
        self.sim.stop(on, Duration::from_secs(10));
        self.sim.run_for(LONG);
        let left = self.sim.counters(on).open;
        match self.sim.stopped(on) && left == 0 {
            true => Ok(()),
            false => Err(format!("it does not stop: {left} connections are left")),
        }
    }
}

/// Checks that exactly this comes back, or a beginning of it.
#[allow(dead_code, reason = "a part of it, of some crates' tests")]
pub(crate) fn exactly(got: &[u8], expected: &[u8], whole: bool) -> Result<(), String> {
    if whole && got != expected || !expected.starts_with(got) {
        let same = got.iter().zip(expected).take_while(|(a, b)| a == b).count();
        let (got, expected) = (got.len(), expected.len());
        return Err(format!(
            "{got} bytes came back of {expected}, {same} of them right"
        ));
    }
    Ok(())
}
