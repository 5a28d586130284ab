//! Sending: until there is no more, the kernel takes no more, or the connection's share of the turn is sent.

use std::io::{self, IoSlice};

use rustix::io::Errno;

use crate::driver::readiness::Poller;
use crate::driver::readiness::sockets::Sockets;
use crate::kernel::calls::{Behind, Sys};
use crate::mistakes::{Mistake, mistaken};
use crate::reactor::env::Env;
use crate::reactor::sending::FREE;
use crate::reactor::state::State;

/// Slices given to one `sendmsg`.
const SLICES: usize = 64;

fn sum(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

impl<P: Poller> Sockets<P> {
    /// Sends the queued output.
    pub(super) fn send(&mut self, state: &mut State, env: &mut Env) {
        let index = state.id.index;
        let Some(sock) = self.socks.get(index as usize) else {
            return;
        };
        let mut most = env.sending.share_of(state);
        while most > 0 {
            env.counters.sends.add(1);
            let sent = match state.out.single() {
                Some(bytes) => {
                    let behind = Behind::these(bytes.len() > most);
                    let bytes = &bytes[..bytes.len().min(most)];
                    self.poller.sys().send(&sock.fd, bytes, behind)
                }
                None => {
                    let mut slices = [IoSlice::new(&[]); SLICES];
                    let n = state.out.slices(&mut slices, most);
                    let (slices, all) = (&slices[..n], state.out.sendable());
                    let behind = Behind::these(all > most || n == SLICES && all > sum(slices));
                    self.poller.sys().send_several(&sock.fd, slices, behind)
                }
            };
            match sent {
                Ok(n) => {
                    if most != FREE {
                        env.sending.charge(n);
                        most -= n;
                    }
                    if env.sent(state, n) == 0 {
                        return;
                    }
                    if most == 0 {
                        // A peer that keeps up with a large reply must not keep the others waiting.
                        most = env.sending.share_of(state);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    state.block_sending();
                    return;
                }
                Err(_) if mistaken(Mistake::FailedSendAwaited) => return state.block_sending(),
                Err(e) => return env.failed(state, io::Error::from(e).kind()),
            }
        }
    }
}
