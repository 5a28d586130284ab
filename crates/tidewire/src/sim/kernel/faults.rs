//! The faults that the simulated kernel causes to the programs that call it.

use crate::reactor::random::Rng;

/// How often the simulated kernel misbehaves. Linux may do everything in here as well; a chance of 0 is never.
///
/// ```
/// use tidewire::sim::{KernelFaults, Sim};
///
/// let mut sim = Sim::new(7);
/// sim.kernel_faults(KernelFaults { interrupt_one_in: 3, ..KernelFaults::none() });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFaults {
    /// A call that might wait or retry is interrupted, of so many.
    pub interrupt_one_in: u64,
    /// An event is reported again although nothing new has happened, of so many.
    pub spurious_one_in: u64,
    /// Accepting, or making a descriptor for a socket in the table of a ring, fails for a reason
    /// that passes, of so many times. A new client waits.
    pub accept_fails_one_in: u64,
    /// One of so many clients that are to be accepted has been reset meanwhile.
    pub accept_aborts_one_in: u64,
    /// An attempt to connect fails before it begins, of so many.
    pub connect_fails_one_in: u64,
    /// A descriptor cannot be watched for want of memory, of so many, and whose it is, is cut; never while a loop is
    /// being set up.
    pub watch_fails_one_in: u64,
    /// Receiving or sending fails for want of memory, of so many times, and whose it is, is cut.
    pub bytes_fail_one_in: u64,
    /// Entering a ring, or poll(2), fails for want of memory, of so many times: nothing is handed over, and nothing waited
    /// for.
    pub enter_fails_one_in: u64,
    /// A timer cannot be made or set, nor a socket be put into the table of a ring, of so many times.
    pub setting_fails_one_in: u64,
    /// Something that goes on ends by itself and must be asked for anew, of so many completions.
    pub ends_one_in: u64,
    /// One ready operation in this many is worked on only at the next entering of the ring.
    pub late_one_in: u64,
    /// A refused or reset program may be told something else: that time was up, or no way there.
    pub odd_errors: bool,
    /// A client hears that it is connected a while before a listener has it in its queue, and is
    /// reset if the listener has gone by then.
    pub slow_handshakes: bool,
    /// Descriptors that may be open at once.
    pub descriptors_max: usize,
    /// Events reported by one wait at most.
    pub events_max: usize,
    /// Operations that a ring takes before it is entered.
    pub submissions: usize,
    /// Completions that a ring has room for.
    pub completions: usize,
    /// Connections that wait to be accepted at one listener at most.
    pub backlog: usize,
}

impl KernelFaults {
    /// No faults.
    #[must_use]
    pub fn none() -> KernelFaults {
        KernelFaults {
            interrupt_one_in: 0,
            spurious_one_in: 0,
            accept_fails_one_in: 0,
            accept_aborts_one_in: 0,
            connect_fails_one_in: 0,
            watch_fails_one_in: 0,
            bytes_fail_one_in: 0,
            enter_fails_one_in: 0,
            setting_fails_one_in: 0,
            ends_one_in: 0,
            late_one_in: 0,
            odd_errors: false,
            slow_handshakes: false,
            descriptors_max: 1 << 20,
            events_max: 512,
            submissions: 1024,
            completions: 8192,
            backlog: 1024,
        }
    }

    /// Draws faults from a seed: mostly a little of everything, sometimes much of one kind. These
    /// faults cost a program no connection, and no more time than the network does: no attempt to
    /// accept or to connect fails, no connection is cut, and there are plenty of descriptors and
    /// places in the queues of listeners. If descriptors or places are few, connections are
    /// refused, or wait for others to end. A reset connection is reported as reset.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{KernelFaults, Sim};
    ///
    /// for seed in 0..20 {
    ///     let mut sim = Sim::new(seed);
    ///     sim.kernel_faults(KernelFaults::from_seed(seed));
    ///     let addr = sim.serve(tidewire::on_input(|input, link| link.forward_all(input)), Default::default());
    ///     let peer = sim.plain(addr);
    ///     sim.send(peer, b"hello");
    ///     sim.run_for(Duration::from_secs(60));
    ///     assert_eq!(sim.received(peer), b"hello", "seed {seed}");
    /// }
    /// ```
    #[must_use]
    pub fn from_seed(seed: u64) -> KernelFaults {
        let KernelFaults {
            descriptors_max,
            backlog,
            ..
        } = KernelFaults::none();
        KernelFaults {
            accept_fails_one_in: 0,
            accept_aborts_one_in: 0,
            connect_fails_one_in: 0,
            watch_fails_one_in: 0,
            bytes_fail_one_in: 0,
            odd_errors: false,
            slow_handshakes: false,
            descriptors_max,
            backlog,
            ..KernelFaults::harsh(seed)
        }
    }

    /// Drawn from a seed: all may be few.
    pub(in crate::sim) fn harsh(seed: u64) -> KernelFaults {
        let rng = &mut Rng::from_seed(seed ^ 0x5157_fa17);
        let mut chance = |least: u64| match rng.below(4) {
            0 => 0,
            1 => least,
            _ => least << (1 + rng.below(5)),
        };
        let (interrupt_one_in, spurious_one_in) = (chance(4), chance(4));
        let (accept_fails_one_in, connect_fails_one_in) = (chance(3), chance(4));
        let (ends_one_in, late_one_in) = (chance(3), chance(2));
        let (watch_fails_one_in, accept_aborts_one_in) = (chance(4), chance(16));
        let (enter_fails_one_in, setting_fails_one_in) = (chance(3), chance(2));
        let bytes_fail_one_in = chance(64) * u64::from(seed % 4 == 1);
        let mut one_of = |few: u64, many: u64| match rng.below(3) {
            0 => (few + rng.below(few)) as usize,
            _ => (many / 2 + rng.below(many / 2)) as usize,
        };
        KernelFaults {
            interrupt_one_in,
            spurious_one_in,
            accept_fails_one_in,
            accept_aborts_one_in,
            connect_fails_one_in,
            watch_fails_one_in,
            bytes_fail_one_in,
            enter_fails_one_in,
            setting_fails_one_in,
            ends_one_in,
            late_one_in,
            odd_errors: true,
            slow_handshakes: seed.is_multiple_of(2),
            descriptors_max: one_of(13, 1 << 12),
            events_max: one_of(1, 512),
            submissions: one_of(2, 256),
            completions: one_of(2, 512),
            backlog: one_of(1, 64),
        }
    }
}
