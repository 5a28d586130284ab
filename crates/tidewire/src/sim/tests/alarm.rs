//! A loop's alarm, under a kernel that tells of it late.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::completion::{self, Abilities};
use crate::kernel::clock::Clock;
use crate::reach::waker::{Stop, Waker};
use crate::reactor::Reactor;
use crate::reactor::core::Plan;
use crate::reactor::driver::Driver;
use crate::reactor::making::MakeShares;
use crate::reactor::random::Rng;
use crate::reactor::receiving::ReceiveShares;
use crate::reactor::sending::SendShares;
use crate::reactor::setup::{LoopSetup, Spread};
use crate::sim::kernel::Kernel;
use crate::sim::kernel::queues::SimQueues;
use crate::sim::net::Net;
use crate::sim::{Conditions, KernelFaults};
use crate::vocabulary::time::Instant;

const MS: u64 = 1_000_000;
const STOPPED_BY: u64 = 1_000 * MS;

fn setup() -> LoopSetup {
    LoopSetup {
        plan: Arc::new(Plan {
            throttles: Arc::default(),
            log_connections: false,
            made: MakeShares::default(),
            shares: SendShares::default(),
            received: ReceiveShares::default(),
            memory: Arc::default(),
            hosts: Vec::new(),
            chunk: 4 << 10,
            buffers: 1,
        }),
        dial_options: Arc::default(),
        names: Arc::default(),
        busy_poll: Duration::ZERO,
        direct: false,
        clock: Arc::default(),
        registry: Arc::default(),
        inbox: 1,
        listeners: Vec::new(),
        spread: Spread::Here,
        cpu: None,
    }
}

/// The queue of completions has room for one: that the watch of the alarm has ended is heard when the alarm
/// has been set to another time.
#[test]
fn an_alarm_is_set_again_when_its_watch_has_ended() {
    for seed in 0..8 {
        let time = Rc::new(Cell::new(0));
        let mut net = Net::new(time.clone(), Rng::from_seed(seed), Conditions::calm());
        net.inboxes.push(VecDeque::new());
        let faults = KernelFaults {
            completions: 1,
            ..KernelFaults::none()
        };
        let kernel = Kernel::new(net, time.clone(), 0, Rng::from_seed(seed), faults);
        let (setup, waker) = (setup(), Arc::new(Waker::new()));
        let stop_clock = setup.clock.clone();
        let clock = Clock::Virtual(time.clone());
        let rng = Rng::from_seed(seed);
        let core = setup.core(waker.clone(), Arc::default(), clock, rng);
        let (share, places) = (false, 0);
        let abilities = Abilities { share, places };
        let queues = SimQueues::new(&kernel);
        let driver = completion::driver(queues, &core, Arc::default(), abilities).unwrap();
        let mut reactor = Reactor::new(driver, core, setup, waker.clone()).unwrap();

        assert_eq!(reactor.before_wait(), None);
        assert!(reactor.driver.set_alarm(Instant::from_nanos(10 * MS)));
        reactor.driver.submit().unwrap();
        // The alarm goes off, and a thread wakes the loop: there is room for one of the two.
        time.set(20 * MS);
        stop_clock.set_at(Instant::from_nanos(STOPPED_BY));
        waker.stop(Stop::Graceful);
        reactor.driver.submit().unwrap();
        reactor.after_wait();
        for _ in 0..20 {
            if time.get() < STOPPED_BY {
                let timeout = reactor.before_wait();
                reactor.driver.wait(timeout).unwrap();
                reactor.after_wait();
            }
        }

        let wrongs = kernel.borrow().wrongs().to_vec();
        assert_eq!(wrongs, [""; 0], "seed {seed}");
        assert!(time.get() >= STOPPED_BY, "seed {seed}: {time:?}");
        reactor.driver.finish(reactor.core).unwrap();
    }
}
