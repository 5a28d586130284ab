//! Scripted peers: what each sends and when, when it looks away, and how it ends.

use std::time::Duration;

use crate::reactor::random::Rng;
use crate::sim::kernel::Kernel;
use crate::sim::net::Owner;
use crate::sim::net::address;
use crate::sim::plain::{Plain, PlainState};
use crate::vocabulary::endpoint::Endpoint;

/// The byte of a stream at a position.
pub(super) fn byte_at(stream: u64, at: usize) -> u8 {
    (mix(stream.wrapping_mul(1 << 20) ^ (at as u64 / 8)) >> (8 * (at % 8))) as u8
}

pub(super) fn mix(n: u64) -> u64 {
    let h = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (h ^ (h >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (h >> 32)
}

/// A number for an address.
pub(super) fn number(of: &Endpoint) -> u64 {
    match of.tcp() {
        Some(std::net::SocketAddr::V4(at)) => {
            u64::from(u32::from(*at.ip())) << 16 | u64::from(at.port())
        }
        _ => 0,
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(usize),
    LookAway,
    Look,
    Finish,
    Close { reset: bool },
}

pub(super) struct Peer {
    pub(super) plain: Plain,
    actor: usize,
    pub(super) from: Endpoint,
    /// The remaining steps, the next one last.
    steps: Vec<(u64, Step)>,
    pub(super) sent: usize,
    looked: usize,
    /// Whether the peer has let go of its connection.
    gone: bool,
    /// The peer does nothing before that time.
    pub(super) late_until: u64,
    /// Sends all, finishes, and reads to the end.
    pub(super) is_clean: bool,
}

impl Peer {
    pub(super) fn new(kernel: &mut Kernel, rng: &mut Rng, to: &Endpoint, script: &Script) -> Peer {
        let actor = kernel.net.inboxes.len();
        let from = address(actor, 1024);
        let owner = Owner {
            actor,
            conn: 0,
            generation: 0,
        };
        kernel.net.inboxes.push(std::collections::VecDeque::new());
        let end = kernel.net.connect(owner, from.clone(), to.clone());
        let is_clean = rng.below(4) > 0;
        Peer {
            plain: Plain::new(end),
            actor,
            from,
            steps: script.drawn(rng, is_clean),
            sent: 0,
            looked: 0,
            gone: false,
            late_until: 0,
            is_clean,
        }
    }

    fn has_news(&self, kernel: &Kernel) -> bool {
        !kernel.net.inboxes[self.actor].is_empty()
    }

    pub(super) fn hear(&mut self, kernel: &mut Kernel) {
        let notices = std::mem::take(&mut kernel.net.inboxes[self.actor]);
        if self.gone {
            return;
        }
        self.plain.turn(&mut kernel.net, notices);
    }

    /// Whether the peer would do a step now.
    pub(super) fn goes_on(&self, kernel: &Kernel, now: u64) -> bool {
        self.late_until <= now && (self.has_news(kernel) || self.step_due(now))
    }

    pub(super) fn step_due(&self, now: u64) -> bool {
        self.steps.last().is_some_and(|(at, _)| *at <= now)
    }

    /// When the peer would do a step by itself.
    pub(super) fn next_time(&self, now: u64) -> Option<u64> {
        let late = (self.late_until > now).then_some(self.late_until);
        late.or(self.steps.last().map(|(at, _)| *at))
    }

    pub(super) fn step(&mut self, kernel: &mut Kernel) {
        let Some((_, step)) = self.steps.pop() else {
            return;
        };
        let net = &mut kernel.net;
        match step {
            Step::Send(n) => {
                let stream = number(&self.from);
                let bytes: Vec<u8> = (self.sent..self.sent + n)
                    .map(|at| byte_at(stream, at))
                    .collect();
                self.sent += n;
                self.plain.send(net, &bytes);
            }
            Step::LookAway => self.plain.reading = false,
            Step::Look => {
                self.plain.reading = true;
                self.plain.go_on(net);
            }
            Step::Finish => self.plain.finish(net),
            Step::Close { reset } => self.plain.close(net, reset),
        }
    }

    /// The fault in the bytes that the peer has read since the last look, if any.
    pub(super) fn look(&mut self) -> Option<String> {
        let stream = number(&self.from);
        for (at, byte) in self.plain.received.iter().enumerate().skip(self.looked) {
            if at >= self.sent || *byte != byte_at(stream, at) {
                return Some(format!("{}: byte {at} came back wrong", self.from));
            }
        }
        self.looked = self.plain.received.len();
        None
    }

    /// Whether the peer has no step left to do, and its connection is over.
    pub(super) fn is_done(&self) -> bool {
        let going = matches!(self.plain.state, PlainState::Connecting | PlainState::Open);
        self.steps.is_empty() && !going
    }

    /// Closes the connection, like a peer that has seen its end.
    pub(super) fn let_go(&mut self, kernel: &mut Kernel) {
        if self.plain.state == PlainState::Ended && self.steps.is_empty() && !self.gone {
            self.gone = true;
            kernel.net.close(self.plain.end, false);
        }
    }
}

/// The steps of a peer.
pub(super) struct Script {
    /// In nanoseconds.
    pub(super) begins: u64,
    /// Peers send pieces of up to two to this power of bytes.
    pub(super) largest: u64,
    /// Peers may stay for ever.
    pub(super) may_stay: bool,
}

impl Script {
    fn drawn(&self, rng: &mut Rng, is_clean: bool) -> Vec<(u64, Step)> {
        let (now, largest) = (self.begins, self.largest);
        let mut at = now;
        let mut steps = Vec::new();
        let pace = 1u64 << (8 + rng.below(14));
        for _ in 0..1 + rng.below(5) {
            at += rng.below(pace);
            let most = 1 << rng.below(largest);
            let n = 1 + rng.below(most) as usize;
            steps.push((at, Step::Send(n)));
            if rng.below(4) == 0 {
                steps.push((at, Step::LookAway));
                at += rng.below(4 * pace);
                steps.push((at, Step::Look));
            }
        }
        at += rng.below(pace);
        if is_clean {
            steps.push((at, Step::Finish));
        } else {
            match rng.below(5) {
                0 => steps.push((at, Step::Close { reset: true })),
                // Reads nothing.
                4 if self.may_stay => steps.insert(0, (now, Step::LookAway)),
                1 => steps.push((at, Step::Close { reset: false })),
                2 => {
                    steps.push((at, Step::Finish));
                    at += rng.below(2 * pace);
                    steps.push((
                        at,
                        Step::Close {
                            reset: rng.below(2) == 0,
                        },
                    ));
                }
                _ => {
                    steps.insert(0, (now, Step::LookAway));
                    at += Duration::from_secs(1).as_nanos() as u64;
                    steps.push((at, Step::Close { reset: true }));
                }
            }
        }
        steps.reverse();
        steps
    }
}
