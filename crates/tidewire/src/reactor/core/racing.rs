//! Dials to names: what is asked, which addresses are tried, and what becomes of the attempts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::reach::names::Asking;
use crate::reactor::core::Core;
use crate::reactor::driver::Transport;
use crate::reactor::facts::Phase;
use crate::reactor::race::{Family, Race, Step};
use crate::vocabulary::answer::Answer;
use crate::vocabulary::closed::Closed;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::dial::Route;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::target::is_localhost;

/// What `localhost` means.
const LOCALHOST: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::LOCALHOST),
    IpAddr::V4(Ipv4Addr::LOCALHOST),
];

impl Core {
    /// A dial to a host begins a round.
    pub(super) fn begin_race(
        &mut self,
        io: &mut impl Transport,
        index: u32,
        from: Option<SocketAddr>,
    ) {
        let now = self.env.now;
        let state = &mut self.states[index as usize];
        let id = state.id;
        let attempts = state.attempts.as_mut().expect("only called while dialling");
        let ends = now + attempts.dial.timeout;
        let mut race = Race::new(ends, from.map(|from| Family::of(from.ip())));
        let name = attempts.dial.name().expect("it is to a host").clone();
        if is_localhost(&name) {
            race.add(&LOCALHOST);
            race.complete();
        } else {
            self.env.counters.lookups.add(1);
            match self.names.ask(&name, &self.waker, id.to_bits(), now) {
                Asking::Known(all) => {
                    race.add(&all);
                    race.complete();
                }
                Asking::Comes(some) => {
                    let service = state.service as usize;
                    self.hosts[service].await_others();
                    race.add(&some);
                }
                Asking::Refused(why) => {
                    self.env.counters.lookups_refused.add(1);
                    let error = io::Error::other(format!("cannot look up {name}: {why}"));
                    if let Some(held_back) = self.env.throttles.lookups.pass(now) {
                        tracing::warn!(host = %name, %error, held_back, "lookup refused");
                    }
                    return self.connect_failed(index, &error);
                }
            }
        }
        attempts.race = Some(Box::new(race));
        self.race_on(io, index);
    }

    /// Tries what is due of a dial's addresses.
    pub(super) fn race_on(&mut self, io: &mut impl Transport, index: u32) {
        loop {
            let now = self.env.now;
            let state = &mut self.states[index as usize];
            let Some(race) = state.race().filter(|race| !race.is_won) else {
                return;
            };
            match race.step(now) {
                Step::Connect(ip) => self.try_address(io, index, ip),
                Step::Wait(until) => {
                    state.phase_ends = Some(until);
                    return self.rearm(index);
                }
                Step::Over => {
                    let none = || io::Error::new(io::ErrorKind::NotFound, "it has no address");
                    let was_tried = race.was_tried();
                    let error = race.error.take().unwrap_or_else(none);
                    if !was_tried {
                        self.count_failure(index);
                    }
                    return self.round_failed(io, index, &error);
                }
            }
        }
    }

    fn try_address(&mut self, io: &mut impl Transport, index: u32, ip: IpAddr) {
        let state = &mut self.states[index as usize];
        let (service, origin) = (state.service, state.peer.origin);
        let attempts = state.attempts.as_mut().expect("only called while dialling");
        let Ok(Route::Host { port, from, .. }) = attempts.dial.route() else {
            unreachable!("it is to a host");
        };
        let to = Endpoint::Tcp((ip, port).into());
        let attempt = self.insert(service, Peer::new(to.clone(), origin));
        self.states[attempt as usize].phase = Phase::Racing(index);
        if let Some(race) = self.states[index as usize].race() {
            race.attempts.push(attempt);
        }
        io.connect(self, attempt, to, from);
    }

    /// An attempt has failed; the engine has dropped its socket.
    pub(super) fn address_failed(&mut self, index: u32, dial: u32, error: &io::Error) {
        self.count_failure(index);
        let to = self.states[index as usize].peer.endpoint.clone();
        let state = &mut self.states[dial as usize];
        if let Some(held_back) = self.env.throttles.attempts.pass(self.env.now)
            && let Some(attempts) = &state.attempts
        {
            let (host, token) = (attempts.dial.target(), attempts.dial.token);
            tracing::debug!(%host, peer = %to, token, %error, held_back, "connecting failed");
        }
        let id = state.id;
        if let Some(race) = state.race() {
            race.attempts.retain(|&other| other != index);
            race.error.get_or_insert_with(|| {
                let what = format!("{to}: {error}");
                io::Error::new(error.kind(), what)
            });
            self.env.go_on_dialling(id);
        }
        self.free(index);
    }

    /// An attempt has succeeded; whether it is the first of its dial.
    pub(super) fn address_connected(&mut self, index: u32, dial: u32) -> bool {
        let state = &mut self.states[dial as usize];
        let id = state.id;
        let race = state.race().expect("as long as an attempt is under way");
        race.attempts.retain(|&other| other != index);
        if std::mem::replace(&mut race.is_won, true) {
            self.states[index as usize].kill(Closed::Aborted);
            self.touch(index);
            return false;
        }
        self.env.won_dialling(id);
        true
    }

    /// What a resolver says.
    pub(crate) fn answered(&mut self, io: &mut impl Transport, answer: Answer) {
        let now = self.env.now;
        if let Some(keep) = answer.keep {
            self.names.keep(&answer.name, keep, now);
        }
        let Some(index) = self.dial_of(ConnId::from_bits(answer.dial)) else {
            return;
        };
        let Some(race) = self.states[index as usize].race() else {
            return;
        };
        match answer.found {
            Ok(found) => race.add(&found),
            Err(why) => {
                self.env.counters.lookup_failures.add(1);
                race.error.get_or_insert_with(|| why.of(&answer.name));
            }
        }
        if answer.is_last {
            race.complete();
        }
        self.race_on(io, index);
    }

    /// A dial's deadline has come, or the time for another address.
    pub(super) fn race_timer(&mut self, io: &mut impl Transport, index: u32) {
        let now = self.env.now;
        let Some(race) = self.states[index as usize].race() else {
            return;
        };
        if race.is_won {
            return;
        }
        if now < race.ends {
            return self.race_on(io, index);
        }
        self.count_failure(index);
        self.round_failed(io, index, &io::ErrorKind::TimedOut.into());
    }

    /// No address of a dial's host could be connected to.
    fn round_failed(&mut self, io: &mut impl Transport, index: u32, error: &io::Error) {
        self.take_back(io, index);
        let attempts = self.states[index as usize].attempts.as_ref();
        let to = attempts.map(|a| a.dial.target().to_string());
        let what = format!("{}: {error}", to.unwrap_or_default());
        self.attempt_failed(index, &io::Error::new(error.kind(), what));
    }

    /// Takes back what is under way of a dial: attempts, or the question.
    pub(super) fn take_back(&mut self, io: &mut impl Transport, index: u32) {
        let state = &mut self.states[index as usize];
        let id = state.id;
        let Some(attempts) = state.attempts.as_mut() else {
            return;
        };
        let Some(race) = attempts.race.take() else {
            if std::mem::take(&mut attempts.connecting) {
                io.cancel_connect(self, index);
            }
            return;
        };
        attempts.connecting = false;
        if race.awaits_answer()
            && let Some(name) = attempts.dial.name()
        {
            self.names.give_up(name, &self.waker, id.to_bits());
        }
        for attempt in race.attempts {
            io.cancel_connect(self, attempt);
            self.free(attempt);
        }
    }

    /// A dial has become a connection: its other attempts are taken back.
    pub(super) fn end_race(&mut self, io: &mut impl Transport, dial: ConnId) {
        if let Some(index) = self.dial_of(dial) {
            self.take_back(io, index);
            self.free(index);
        }
    }

    /// The record of a dial that is under way.
    pub(super) fn dial_of(&self, dial: ConnId) -> Option<u32> {
        let state = self.states.get(dial.index as usize)?;
        (state.id == dial && state.attempts.is_some()).then_some(dial.index)
    }

    /// Gives a dial up; its service is told.
    pub(super) fn cancel_dial(&mut self, io: &mut impl Transport, dial: ConnId, why: &str) {
        let Some(index) = self.dial_of(dial) else {
            return;
        };
        let state = &mut self.states[index as usize];
        if state.race().is_some_and(|race| race.is_won) {
            return;
        }
        self.count_failure(index);
        self.take_back(io, index);
        let state = &self.states[index as usize];
        let (service, Origin::Dialled(token)) = (state.service, state.peer.origin) else {
            unreachable!("it is a dial");
        };
        let error = io::Error::new(io::ErrorKind::ConnectionAborted, why);
        self.dial_failed(service, token, &error);
        self.free(index);
    }

    /// Gives up the dials that are tied to this connection, or those with this token.
    pub(super) fn cancel_tied(
        &mut self,
        io: &mut impl Transport,
        by: ConnId,
        token: Option<u64>,
        why: &str,
    ) {
        for dial in self.tied.of(by) {
            let origin = self
                .dial_of(dial)
                .map(|i| self.states[i as usize].peer.origin);
            let is_meant = token.is_none_or(|token| origin == Some(Origin::Dialled(token)));
            if is_meant {
                self.cancel_dial(io, dial, why);
            }
        }
    }

    fn count_failure(&mut self, index: u32) {
        let service = self.states[index as usize].service;
        self.env.of_service(service).dial_failures.add(1);
    }
}
