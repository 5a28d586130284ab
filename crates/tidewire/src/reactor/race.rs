//! Which address of a host is tried when, so that one that does not answer holds no dial up for long ("Happy
//! Eyeballs", RFC 8305). Decides only: sockets and timers are the caller's.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use crate::reach::names::ADDRESSES_MAX;
use crate::vocabulary::time::Instant;

/// "Connection Attempt Delay": so long after an attempt the next one begins.
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// "Resolution Delay": so long IPv4 waits for IPv6.
pub(crate) const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// What is to be done next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Try this address now, and ask again.
    Connect(IpAddr),
    /// Nothing until this time, an answer or an attempt's end.
    Wait(Instant),
    /// All have failed.
    Over,
}

/// One round of a dial over the addresses of its host.
pub(crate) struct Race {
    v6: VecDeque<IpAddr>,
    v4: VecDeque<IpAddr>,
    seen: Vec<IpAddr>,
    /// The family whose turn it is; none before the first attempt.
    turn: Option<Family>,
    /// The family of the first address that was found.
    first: Option<Family>,
    /// No more addresses come.
    is_complete: bool,
    /// IPv4 does not begin before this.
    held_until: Option<Instant>,
    /// The next attempt does not begin before this while another is under way.
    next_at: Instant,
    /// Only this family can be reached from where the dial is bound.
    only: Option<Family>,
    /// Records of the attempts under way.
    pub(crate) attempts: Vec<u32>,
    /// One has succeeded.
    pub(crate) is_won: bool,
    /// All of it is to be over by then.
    pub(crate) ends: Instant,
    /// Why the first attempt, or the question, has failed.
    pub(crate) error: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) fn of(ip: IpAddr) -> Family {
        match ip {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    fn other(self) -> Family {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }
}

impl Race {
    pub(crate) fn new(ends: Instant, only: Option<Family>) -> Race {
        Race {
            v6: VecDeque::new(),
            v4: VecDeque::new(),
            seen: Vec::new(),
            turn: None,
            first: None,
            is_complete: false,
            held_until: None,
            next_at: ends,
            only,
            attempts: Vec::new(),
            is_won: false,
            ends,
            error: None,
        }
    }

    /// Addresses, best first.
    pub(crate) fn add(&mut self, addresses: &[IpAddr]) {
        for &ip in addresses {
            let family = Family::of(ip);
            let fits = self.only.is_none_or(|only| only == family);
            if !fits || self.seen.len() >= ADDRESSES_MAX || self.seen.contains(&ip) {
                continue;
            }
            self.seen.push(ip);
            self.first.get_or_insert(family);
            match family {
                Family::V4 => self.v4.push_back(ip),
                Family::V6 => self.v6.push_back(ip),
            }
        }
    }

    /// No more addresses come.
    pub(crate) fn complete(&mut self) {
        self.is_complete = true;
    }

    /// Whether more addresses may come.
    pub(crate) fn awaits_answer(&self) -> bool {
        !self.is_complete
    }

    /// Whether any address was tried.
    pub(crate) fn was_tried(&self) -> bool {
        self.turn.is_some()
    }

    pub(crate) fn step(&mut self, now: Instant) -> Step {
        if self.v4.is_empty() && self.v6.is_empty() {
            return match self.is_complete && self.attempts.is_empty() {
                true => Step::Over,
                false => Step::Wait(self.ends),
            };
        }
        let knows_v6 = self.seen.iter().any(IpAddr::is_ipv6);
        if self.turn.is_none() && !self.is_complete && !knows_v6 && self.only.is_none() {
            let until = *self.held_until.get_or_insert(now + RESOLUTION_DELAY);
            if now < until {
                return Step::Wait(until.min(self.ends));
            }
        }
        if self.turn.is_some() && !self.attempts.is_empty() && now < self.next_at {
            return Step::Wait(self.next_at.min(self.ends));
        }
        let leads = match self.first {
            // What came in one answer is in the order of the resolver (RFC 6724); IPv6 leads otherwise.
            Some(Family::V4) if self.is_complete && self.held_until.is_none() => Family::V4,
            _ => Family::V6,
        };
        let wanted = self.turn.unwrap_or(leads);
        let (queue, family) = match (wanted, self.v4.is_empty(), self.v6.is_empty()) {
            (Family::V4, false, _) | (_, false, true) => (&mut self.v4, Family::V4),
            _ => (&mut self.v6, Family::V6),
        };
        let ip = queue.pop_front().expect("one of the two has one");
        self.turn = Some(family.other());
        self.next_at = now + ATTEMPT_DELAY;
        Step::Connect(ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::default() + Duration::from_millis(ms)
    }

    fn v4(n: u8) -> IpAddr {
        [192, 0, 2, n].into()
    }

    fn v6(n: u16) -> IpAddr {
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, n].into()
    }

    fn race(addresses: &[IpAddr]) -> Race {
        let mut race = Race::new(at(10_000), None);
        race.add(addresses);
        race.complete();
        race
    }

    /// All addresses in the order in which they are tried while none answers, and when.
    fn order(mut race: Race) -> Vec<(u64, IpAddr)> {
        let (mut now, mut order) = (0, Vec::new());
        loop {
            match race.step(at(now)) {
                Step::Connect(ip) => {
                    race.attempts.push(order.len() as u32);
                    order.push((now, ip));
                }
                Step::Wait(until) if until == race.ends => return order,
                Step::Wait(until) => now = (until - at(0)).as_millis() as u64,
                Step::Over => panic!("attempts are under way"),
            }
        }
    }

    #[test]
    fn families_alternate_a_quarter_second_apart() {
        let all = [v6(1), v6(2), v6(3), v4(1), v4(2), v6(1)];
        let wanted = [
            (0, v6(1)),
            (250, v4(1)),
            (500, v6(2)),
            (750, v4(2)),
            (1000, v6(3)),
        ];
        assert_eq!(order(race(&all)), wanted);
        // The resolver's order says which family leads.
        let wanted = [(0, v4(1)), (250, v6(1)), (500, v4(2))];
        assert_eq!(order(race(&[v4(1), v4(2), v6(1)])), wanted);
    }

    #[test]
    fn an_attempt_that_fails_lets_the_next_begin_at_once() {
        let mut race = race(&[v6(1), v4(1)]);
        assert_eq!(race.step(at(0)), Step::Connect(v6(1)));
        race.attempts.push(0);
        assert_eq!(race.step(at(10)), Step::Wait(at(250)));
        race.attempts.clear();
        assert_eq!(race.step(at(20)), Step::Connect(v4(1)));
        race.attempts.push(1);
        assert_eq!(race.step(at(20)), Step::Wait(race.ends));
        race.attempts.clear();
        assert_eq!(race.step(at(30)), Step::Over);
    }

    #[test]
    fn ipv4_waits_a_moment_for_ipv6() {
        let mut race = Race::new(at(10_000), None);
        assert_eq!(race.step(at(0)), Step::Wait(at(10_000)));
        race.add(&[v4(1)]);
        assert_eq!(race.step(at(5)), Step::Wait(at(55)));
        race.add(&[v6(1)]);
        assert_eq!(
            race.step(at(30)),
            Step::Connect(v6(1)),
            "it has come in time"
        );

        let mut race = Race::new(at(10_000), None);
        race.add(&[v4(1)]);
        assert_eq!(race.step(at(5)), Step::Wait(at(55)));
        assert_eq!(race.step(at(55)), Step::Connect(v4(1)));
        race.attempts.push(0);
        race.add(&[v6(1)]);
        assert_eq!(race.step(at(60)), Step::Wait(at(305)));
        assert_eq!(race.step(at(305)), Step::Connect(v6(1)));
    }

    #[test]
    fn what_ends_first_is_waited_for() {
        let mut race = Race::new(at(20), None);
        race.add(&[v4(1)]);
        assert_eq!(race.step(at(5)), Step::Wait(at(20)));
    }

    #[test]
    fn addresses_are_bounded_and_of_the_family_that_is_bound_to() {
        let many: Vec<IpAddr> = (0..100).map(v6).collect();
        assert_eq!(order(race(&many)).len(), ADDRESSES_MAX);
        let mut bound = Race::new(at(10_000), Some(Family::V4));
        bound.add(&[v6(1), v4(1)]);
        assert_eq!(bound.step(at(0)), Step::Connect(v4(1)));
    }
}
