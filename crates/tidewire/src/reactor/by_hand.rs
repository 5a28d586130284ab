//! A loop that tests turn by hand, over a kernel of theirs.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::kernel::clock::Clock;
use crate::on_input;
use crate::reach::waker::Waker;
use crate::reactor::core::{Core, Plan};
use crate::reactor::driver::Transport;
use crate::reactor::env::Env;
use crate::reactor::host::host_of;
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::{FREE, SendShares};
use crate::reactor::state::State;
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::time::Instant;
use crate::{Limits, Next, Origin, Peer};

/// A kernel that takes what it is given, and keeps a list of that.
#[derive(Default)]
pub(crate) struct Takes {
    pub(crate) sent: Vec<(u32, usize)>,
    /// The kernel takes nothing.
    pub(crate) is_stuck: bool,
    /// The part of the output that the peers have not taken.
    pub(crate) untaken: Option<usize>,
    /// For how long the loop is held up before it reads `untaken` and its clock.
    pub(crate) held_up: Duration,
    clock: Rc<Cell<u64>>,
}

impl Transport for Takes {
    fn flush(&mut self, state: &mut State, env: &mut Env) {
        while !self.is_stuck {
            let share = env.sending.share_of(state);
            let bytes = state.out.sendable().min(share);
            if bytes == 0 {
                return;
            }
            if share != FREE {
                env.sending.charge(bytes);
            }
            self.sent.push((state.id.index, bytes));
            if env.sent(state, bytes) == 0 {
                return;
            }
        }
    }
    fn set_reading(&mut self, _: &mut State, _: &mut Env, _: bool) {}
    fn untaken(&mut self, _: u32) -> Option<usize> {
        let held_up = self.held_up.as_nanos() as u64;
        self.clock.set(self.clock.get() + held_up);
        self.untaken
    }
    fn has_emptied(&self, _: u32) -> bool {
        true
    }
    fn read_rest(&mut self, _: u32) {}
    fn shut_write(&mut self, _: &mut Core, _: u32) {}
    fn close(&mut self, core: &mut Core, index: u32, _: bool) {
        core.free(index);
    }
    fn connect(&mut self, _: &mut Core, _: u32, _: Endpoint, _: Option<SocketAddr>) {}
    fn cancel_connect(&mut self, _: &mut Core, _: u32) {}
}

/// The loop.
pub(crate) struct ByHand {
    pub(crate) core: Core,
    pub(crate) kernel: Takes,
}

impl ByHand {
    /// A loop with so many connections, whose protocols say nothing by themselves.
    pub(crate) fn new(connections: usize, limits: Limits, shares: SendShares) -> ByHand {
        let hosted = host_of(on_input(|_, _| Next::More), limits);
        let door = hosted.door.clone();
        let plan = Plan {
            hosts: vec![hosted],
            chunk: 4 << 10,
            buffers: 1,
            throttles: Arc::default(),
            log_connections: false,
            made: MakeShares::default(),
            shares,
            received: ReceiveShares::default(),
            memory: Arc::default(),
        };
        let waker = Arc::new(Waker::new());
        let kernel = Takes::default();
        let clock = Clock::Virtual(kernel.clock.clone());
        let rng = Rng::from_seed(1);
        let mut core = Core::new(&plan, waker, Arc::default(), clock, rng);
        for n in 0..connections {
            let peer: SocketAddr = ([127, 0, 0, 1], 1000 + n as u16).into();
            let permit = door.admit(0, &peer.into(), Instant::default()).unwrap();
            let peer = Peer::new(peer, Origin::Accepted(0));
            let index = core.admit(0, peer, permit).unwrap();
            core.open(index);
        }
        let mut this = ByHand { core, kernel };
        this.turn();
        this
    }

    pub(crate) fn write(&mut self, index: u32, bytes: usize) {
        let (state, env) = (&mut self.core.states[index as usize], &mut self.core.env);
        state.out.write(&vec![0; bytes], &mut env.blocks);
        self.core.touch(index);
    }

    /// The bytes that each connection has sent in one turn.
    pub(crate) fn turn(&mut self) -> Vec<(u32, usize)> {
        self.core.env.begin_turn();
        self.core.take_backlog();
        self.core.settle_all(&mut self.kernel);
        std::mem::take(&mut self.kernel.sent)
    }

    /// A turn begins at this time.
    pub(crate) fn at(&mut self, time: Duration) {
        let clock = &self.kernel.clock;
        clock.set(clock.get().max(time.as_nanos() as u64));
        self.core.env.now = self.core.env.clock.monotonic();
    }
}
