//! Outgoing connections: attempts, pauses between them, and what comes of them.

use std::io;
use std::time::Duration;

use crate::admission::Part;
use crate::reactor::activity::Callback;
use crate::reactor::core::Core;
use crate::reactor::counters::LoopCounters;
use crate::reactor::driver::Transport;
use crate::reactor::errand::Errand;
use crate::reactor::facts::Phase;
use crate::reactor::random::Rng;
use crate::reactor::state::Attempts;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::dial::{Dial, Route};
use crate::vocabulary::peer::{Origin, Peer};

/// Why a dial is given up whose connection has ended.
pub(crate) const ORPHANED: &str = "the connection that dialled has ended";

impl Core {
    /// Starts an outgoing connection.
    pub(crate) fn dial(
        &mut self,
        io: &mut impl Transport,
        service: u16,
        dial: Dial,
        by: Option<ConnId>,
    ) {
        let possible = if self.draining {
            Err(io::Error::other("the loops are stopping"))
        } else if self.dialling[service as usize] >= self.limits[service as usize].dials {
            let many = "as many connections are on their way as may be";
            self.env.refuse_dial(service, many);
            Err(io::Error::other(many))
        } else {
            dial.route().map_err(io::Error::from)
        };
        let possible = match by {
            Some(by) if !self.is_there(by) => {
                let gone = io::ErrorKind::ConnectionAborted;
                Err(io::Error::new(gone, ORPHANED))
            }
            _ => possible,
        };
        let to = match possible {
            Ok(Route::Endpoint(to, _)) => to,
            // Until it is known which.
            Ok(Route::Host { port, .. }) => ([0, 0, 0, 0], port).into(),
            Err(e) => {
                self.env.of_service(service).dial_failures.add(1);
                return self.dial_failed(service, dial.token, &e);
            }
        };
        self.dialling[service as usize] += 1;
        let peer = Peer::new(to, Origin::Dialled(dial.token));
        let index = self.insert(service, peer);
        let state = &mut self.states[index as usize];
        state.phase = Phase::Dialling;
        let after = dial.after;
        state.attempts = Some(Box::new(Attempts {
            dial,
            failed: 0,
            connecting: false,
            race: None,
            by,
        }));
        if let Some(by) = by {
            self.tied.tie(state.id, by);
        }
        if after.is_zero() {
            return self.attempt(io, index);
        }
        state.phase_ends = Some(self.env.now + after);
        self.rearm(index);
    }

    /// The attempt under way has succeeded.
    pub(crate) fn connected(&mut self, index: u32) {
        let phase = self.states[index as usize].phase;
        match phase {
            Phase::Dialling => self.end_dialling(index),
            Phase::Racing(dial) if self.address_connected(index, dial) => {}
            _ => return,
        }
        let state = &mut self.states[index as usize];
        state.phase = Phase::Open;
        state.phase_ends = None;
        state.last_progress = self.env.now;
        let service = state.service;
        let Origin::Dialled(token) = state.peer.origin else {
            unreachable!("only what was dialled is connected")
        };
        let door = self.env.door(service).clone();
        let established = door.enter().and_then(|()| {
            let established = self.establish(index);
            established.inspect_err(|_| door.gone(&self.states[index as usize].peer, Part::Whole))
        });
        match established {
            Ok(()) => {
                self.env.of_service(service).dialled.add(1);
                self.waker.carries_more();
                self.open(index);
            }
            Err(why) => {
                let peer = self.states[index as usize].peer.clone();
                self.env.refuse(service, why, &peer);
                self.states[index as usize].kill(Closed::Aborted);
                self.touch(index);
                let refused = io::Error::other(format!("established, but refused: {why}"));
                self.dial_failed(service, token, &refused);
            }
        }
    }

    /// The attempt under way has failed; the engine has dropped its socket.
    pub(crate) fn connect_failed(&mut self, index: u32, error: &io::Error) {
        let state = &self.states[index as usize];
        if let Phase::Racing(dial) = state.phase {
            return self.address_failed(index, dial, error);
        }
        self.env.of_service(state.service).dial_failures.add(1);
        self.attempt_failed(index, error);
    }

    /// An attempt that was counted has failed: another one follows, or the dial has failed.
    pub(super) fn attempt_failed(&mut self, index: u32, error: &io::Error) {
        let draining = self.draining;
        let state = &mut self.states[index as usize];
        let Some(attempts) = &mut state.attempts else {
            return;
        };
        attempts.connecting = false;
        attempts.failed = attempts.failed.saturating_add(1);
        if let Some(held_back) = self.env.throttles.attempts.pass(self.env.now) {
            let (failed, of) = (attempts.failed, attempts.dial.attempts);
            let to = attempts.dial.target();
            tracing::debug!(peer = %to, token = attempts.dial.token, failed, of, %error, held_back, "connecting failed");
        }
        if !draining && attempts.failed < attempts.dial.attempts {
            let pause = pause_after(&attempts.dial, attempts.failed, &mut self.env.rng);
            state.phase_ends = Some(self.env.now + pause);
            self.rearm(index);
            return;
        }
        let (token, service) = (attempts.dial.token, state.service);
        self.dial_failed(service, token, error);
        self.free(index);
    }

    /// The loop has failed, or there would be none: dials that are under way come to nothing, and
    /// no protocol is told.
    pub(super) fn forget_dials(&mut self) {
        for (_, state) in self.states.iter() {
            if let Some(attempts) = &state.attempts
                && !attempts.race.as_ref().is_some_and(|race| race.is_won)
            {
                forget(&self.env.counters, state.service, attempts.dial.token);
            }
        }
        for errand in std::mem::take(&mut self.env.errands) {
            if let Errand::Dial { service, dial, .. } = errand {
                forget(&self.env.counters, service, dial.token);
            }
        }
    }

    pub(crate) fn dial_failed(&mut self, service: u16, token: u64, error: &io::Error) {
        self.env.enter(service, Callback::DialFailed);
        self.hosts[service as usize].dial_failed(token, error, &mut self.env);
    }

    /// The dial of this record has become its connection.
    fn end_dialling(&mut self, index: u32) {
        let state = &mut self.states[index as usize];
        self.dialling[state.service as usize] -= 1;
        if let Some(by) = state.attempts.take().and_then(|attempts| attempts.by) {
            self.tied.release(state.id, by);
        }
    }

    /// Whether a connection has not ended yet.
    fn is_there(&self, id: ConnId) -> bool {
        let state = self.states.get(id.index as usize);
        state.is_some_and(|state| {
            let has_ended = matches!(state.phase, Phase::Dead { .. } | Phase::Buried(_));
            state.id == id && !has_ended
        })
    }

    pub(super) fn attempt(&mut self, io: &mut impl Transport, index: u32) {
        let state = &mut self.states[index as usize];
        let attempts = state.attempts.as_mut().expect("only called while dialling");
        attempts.connecting = true;
        if self.meter.refuses() {
            // An attempt that fails, so that a retry comes after a pause.
            let much = "connections hold as much memory as they may";
            self.env.refuse_dial(state.service, much);
            return self.connect_failed(index, &io::Error::other(much));
        }
        let (to, from) = match attempts.dial.route().expect("looked at when it began") {
            Route::Endpoint(to, from) => (to, from),
            Route::Host { from, .. } => return self.begin_race(io, index, from),
        };
        state.phase_ends = Some(self.env.now + attempts.dial.timeout);
        self.rearm(index);
        io.connect(self, index, to, from);
    }
}

/// Counts and logs a dial that comes to nothing because its loop has failed.
pub(crate) fn forget(counters: &LoopCounters, service: u16, token: u64) {
    let of_service = counters.of_service(usize::from(service));
    of_service.dial_failures.add(1);
    tracing::warn!(token, "a dial is forgotten: its loop has ended");
}

/// The pause after failed attempt number `failed`, counted from 1.
fn pause_after(dial: &Dial, failed: u32, rng: &mut Rng) -> Duration {
    let doubled = dial
        .backoff_first
        .saturating_mul(1u32 << (failed - 1).min(20));
    let whole = doubled.min(dial.backoff_max).as_nanos();
    let whole = u64::try_from(whole).unwrap_or(u64::MAX);
    Duration::from_nanos(whole / 2 + rng.below(whole / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_stay_below_the_cap_and_differ() {
        let dial =
            Dial::to("127.0.0.1:1").backoff(Duration::from_millis(100), Duration::from_secs(1));
        let mut rng = Rng::from_seed(1);
        for (failed, whole) in [
            (1, 100),
            (2, 200),
            (3, 400),
            (4, 800),
            (5, 1000),
            (60, 1000),
        ] {
            let pauses: Vec<Duration> = (0..50)
                .map(|_| pause_after(&dial, failed, &mut rng))
                .collect();
            let (half, whole) = (
                Duration::from_millis(whole / 2),
                Duration::from_millis(whole),
            );
            assert!(
                pauses.iter().all(|p| (half..=whole).contains(p)),
                "{failed}: {pauses:?}"
            );
            assert!(pauses.iter().any(|p| *p != pauses[0]));
        }
    }
}
