//! The conditions of a simulation: the network, and the machines on it.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::build::limits::CHUNK;
use crate::reactor::random::Rng;
use crate::sim::kernel::KernelFaults;

/// Conditions of a simulated network, and of the machines on it. Sizes are bytes; whatever happens within them is drawn from
/// the simulation's seed. A `_max` of `usize::MAX` means as many as there are.
///
/// ```
/// use tidewire::sim::Conditions;
/// let one_reset_in_a_hundred = Conditions { reset_one_in: 100, ..Conditions::from_seed(7) };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// How long a piece of a stream, a handshake or the news of room takes from one end to the
    /// other. Drawn evenly for each; pieces of one direction stay in order.
    pub latency: RangeInclusive<Duration>,
    /// A piece travels with 1 to this many bytes.
    pub segment_max: usize,
    /// One call receives between 1 and this many bytes, one chunk at most.
    pub receive_max: usize,
    /// One call sends between 1 and this many bytes; then the writer has to wait for a time out of
    /// `latency`.
    pub accept_max: usize,
    /// The buffer of each sender.
    pub send_buffer: usize,
    /// The buffer of each receiver. Bytes for which the buffer has no room stay with the sender.
    pub receive_buffer: usize,
    /// One piece in this many is lost and the connection with it: both ends see a reset. 0 is
    /// never.
    pub reset_one_in: u64,
    /// One of so many attempts to connect is refused. 0 for never.
    pub refuse_one_in: u64,
    /// Largest number of new bytes in one call of `received`; 1 KiB to [`CHUNK`].
    pub chunk: usize,
    /// Receive buffers of each loop, at least 2.
    pub buffers: usize,
    /// One turn of a loop in this many is late by up to four times the longest latency, as on a
    /// machine where other processes have the processor. The loop then finds all events of that
    /// time at once. One late turn in this many makes all loops late together. 0 is never.
    pub late_one_in: u64,
    /// The faults that the kernel causes to loops.
    pub kernel: KernelFaults,
}

impl Conditions {
    /// No surprises: 50 microseconds from end to end, whole chunks, large buffers, no faults.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::Conditions;
    ///
    /// // As calm as can be, but slow.
    /// let half = Duration::from_millis(100);
    /// let slow = Conditions { latency: half..=half, ..Conditions::calm() };
    /// ```
    #[must_use]
    pub fn calm() -> Conditions {
        let latency = Duration::from_micros(50);
        Conditions {
            latency: latency..=latency,
            segment_max: usize::MAX,
            receive_max: usize::MAX,
            accept_max: usize::MAX,
            send_buffer: 256 << 10,
            receive_buffer: 256 << 10,
            reset_one_in: 0,
            refuse_one_in: 0,
            chunk: CHUNK,
            buffers: 16,
            late_one_in: 0,
            kernel: KernelFaults::none(),
        }
    }

    /// Drawn from `seed`, of every order of magnitude: single bytes and whole chunks, tiny and
    /// large buffers, steady and wild latencies, and [a kernel](KernelFaults::from_seed) that does what kernels may.
    /// Loops are late now and then. No resets and no refusals.
    #[must_use]
    pub fn from_seed(seed: u64) -> Conditions {
        let rng = &mut Rng::from_seed(seed ^ 0x00c0_9d17_1095);
        let shortest = Duration::from_nanos(log_uniform(rng, 1_000, 1_000_000));
        let longest = shortest + Duration::from_nanos(log_uniform(rng, 1_000, 20_000_000));
        Conditions {
            latency: shortest..=longest,
            segment_max: log_uniform(rng, 1, 64 << 10) as usize,
            receive_max: log_uniform(rng, 1, 64 << 10) as usize,
            accept_max: log_uniform(rng, 1, 256 << 10) as usize,
            send_buffer: log_uniform(rng, 16, 256 << 10) as usize,
            receive_buffer: log_uniform(rng, 16, 256 << 10) as usize,
            reset_one_in: 0,
            refuse_one_in: 0,
            chunk: log_uniform(rng, 1 << 10, 64 << 10) as usize,
            buffers: log_uniform(rng, 2, 16) as usize,
            late_one_in: match rng.below(4) {
                0 => 0,
                _ => log_uniform(rng, 4, 128),
            },
            kernel: KernelFaults::from_seed(seed),
        }
    }

    pub(super) fn check(&self) {
        let sizes = [
            self.segment_max,
            self.receive_max,
            self.accept_max,
            self.send_buffer,
            self.receive_buffer,
        ];
        assert!(sizes.iter().all(|&n| n > 0), "a size is zero: {self:?}");
        assert!(!self.latency.is_empty(), "no latency in {:?}", self.latency);
        assert!((1 << 10..=CHUNK).contains(&self.chunk), "chunk: {self:?}");
        assert!(self.buffers >= 2, "too few buffers: {self:?}");
    }
}

/// Every order of magnitude of `least..=most` is about as likely.
fn log_uniform(rng: &mut Rng, least: u64, most: u64) -> u64 {
    let doublings = u64::from((most / least).ilog2()) + 1;
    let low = least << rng.below(doublings);
    (low + rng.below(low)).min(most)
}
