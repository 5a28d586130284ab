//! Faults from a seed, in front of any service: what a bad network does to a protocol, on every engine and in
//! the simulator.
//!
//! [`Faults`] is a [`Wrap`]: put it around a service with [`Layered`](crate::Layered), as the innermost layer or
//! outside of another, on the accepting side or the dialling one. Each connection draws its faults from the seed
//! and its number, so that equal orders of connections, pieces and times give equal faults.
//!
//! ```
//! use std::time::Duration;
//! use tidewire::fault::Faults;
//! use tidewire::sim::{Conditions, Sim};
//! use tidewire::{Layered, Limits};
//!
//! let faults = Faults::none(7).delays(2, Duration::from_millis(1)..=Duration::from_millis(30)).splits(1, 3);
//! let echo = tidewire::on_input(|input, link| link.forward_all(input));
//!
//! let mut sim = Sim::under(1, Conditions::calm());
//! let addr = sim.serve(Layered::new(faults.clone(), echo), Limits::default());
//! let peer = sim.plain(addr);
//! sim.send(peer, b"what is whole in the end");
//! sim.run_for(Duration::from_secs(10));
//! assert_eq!(sim.received(peer), b"what is whole in the end");
//! assert!(faults.injected().delays > 0 && faults.injected().splits > 0);
//! ```

mod gate;
mod rates;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::layer::{Around, Layer, Wrap};
use crate::protocol::input::Input;
use crate::protocol::service::Service;
use crate::reactor::random::Rng;
use crate::vocabulary::closed::Refusal;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;
use gate::{Gate, Passing};
use rates::{Rates, Shared, one_in};

/// The kinds of faults and their frequencies; "one in n" is a probability of 1/n, and 0 is never. A *piece* is the
/// data of one receive or one send, after it was split.
///
/// ```
/// use std::time::Duration;
/// use tidewire::fault::Faults;
/// use tidewire::{Layered, on_input};
///
/// // One piece in a hundred ends its connection, one in ten comes late.
/// let faults = Faults::none(7).cuts(100).delays(10, Duration::ZERO..=Duration::from_millis(20));
/// let echo = on_input(|input, link| link.forward_all(input));
/// let service = Layered::new(faults.clone(), echo); // for a builder, or a simulation
/// assert_eq!(faults.injected().cut, 0);
/// # drop(service);
/// ```
#[derive(Clone)]
pub struct Faults {
    seed: u64,
    rates: Rates,
    shared: Arc<Shared>,
}

/// How many faults were injected.
///
/// ```
/// use tidewire::fault::{Faults, Injected};
///
/// assert_eq!(Faults::none(7).injected(), Injected::default());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Injected {
    /// Connections turned away.
    pub refused: u64,
    /// Connections reset.
    pub cut: u64,
    /// Pieces held back, by chance or by the window.
    pub delays: u64,
    /// Pieces split off.
    pub splits: u64,
    /// Bits turned over.
    pub flips: u64,
}

impl Faults {
    /// No faults, until some are asked for.
    #[must_use]
    pub fn none(seed: u64) -> Faults {
        let rates = Rates {
            refuse_one_in: 0,
            cut_one_in: 0,
            delay_one_in: 0,
            delay: Duration::from_millis(1)..=Duration::from_millis(20),
            split_one_in: 0,
            split_max: 0,
            window: usize::MAX,
            flip_one_in: 0,
        };
        Faults {
            seed,
            rates,
            shared: Arc::default(),
        }
    }

    /// A few of all faults that a TCP connection may meet: one connection in 20 is refused; one
    /// piece in 200 is cut, one in 8 is held back for 1 to 20 ms, one in 4 is split into 1 to 100
    /// bytes. No bits are flipped, because TCP has checksums.
    #[must_use]
    pub fn usual(seed: u64) -> Faults {
        Faults::none(seed)
            .refusals(20)
            .cuts(200)
            .delays(8, Duration::from_millis(1)..=Duration::from_millis(20))
            .splits(4, 100)
    }

    /// Turns one connection in `n` away.
    #[must_use]
    pub fn refusals(mut self, one_in: u64) -> Faults {
        self.rates.refuse_one_in = one_in;
        self
    }

    /// Resets the connection at one piece in `n`, in place of handing it on.
    #[must_use]
    pub fn cuts(mut self, one_in: u64) -> Faults {
        self.rates.cut_one_in = one_in;
        self
    }

    /// Holds one piece in `n` back for a time out of `delay`, together with the pieces behind it in
    /// the same direction.
    ///
    /// # Panics
    /// Panics if the range is empty.
    #[must_use]
    pub fn delays(mut self, one_in: u64, delay: RangeInclusive<Duration>) -> Faults {
        assert!(!delay.is_empty(), "no delay in {delay:?}");
        self.rates.delay_one_in = one_in;
        self.rates.delay = delay;
        self
    }

    /// Hands one piece in `n` on in parts, the first of which has 1 to `most` bytes; the rest follows in a later turn
    /// of the loop, and is a piece too.
    #[must_use]
    pub fn splits(mut self, one_in: u64, most: usize) -> Faults {
        self.rates.split_one_in = one_in;
        self.rates.split_max = most.max(1);
        self
    }

    /// In each direction, at most so many bytes pass at a time, then nothing for as long as
    /// [`delays`](Faults::delays) says (1 to 20 ms if it does not): a narrow line. At least 1.
    #[must_use]
    pub fn window(mut self, bytes: usize) -> Faults {
        self.rates.window = bytes.max(1);
        self
    }

    /// Turns a bit over in one piece in `n`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::fault::Faults;
    /// use tidewire::{Layered, on_input, sim::chunking::collect};
    ///
    /// // Of a hundred connections none is refused, all are split and slowed down, and a byte in a thousand is wrong.
    /// let faults = Faults::usual(7).refusals(0).cuts(0).splits(1, 10).window(100).flips(1000);
    /// let echo = on_input(|input, link| link.forward_all(input));
    /// let got = collect(Layered::new(faults.clone(), echo), &[b'x'; 10_000], &[], true);
    /// println!("{} bytes came back; {:?}", got.output.len(), faults.injected());
    /// ```
    #[must_use]
    pub fn flips(mut self, one_in: u64) -> Faults {
        self.rates.flip_one_in = one_in;
        self
    }

    /// How many there were so far, of all clones together.
    #[must_use]
    pub fn injected(&self) -> Injected {
        let shared = &self.shared;
        Injected {
            refused: shared.refused.load(Relaxed),
            cut: shared.cut.load(Relaxed),
            delays: shared.delays.load(Relaxed),
            splits: shared.splits.load(Relaxed),
            flips: shared.flips.load(Relaxed),
        }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faults({}, {:?})", self.seed, self.rates)
    }
}

impl Wrap for Faults {
    type Layer = Faulty;

    fn wrap(&self, _: &Peer) -> Result<Option<Faulty>, Refusal> {
        let number = self.shared.connections.fetch_add(1, Relaxed);
        let mut rng = Rng::from_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        if one_in(&mut rng, self.rates.refuse_one_in) {
            self.shared.refused.fetch_add(1, Relaxed);
            return Err(Refusal::ByService("a fault was injected: refused"));
        }
        Ok(Some(Faulty {
            rates: self.rates.clone(),
            shared: self.shared.clone(),
            rng,
            inwards: Gate::default(),
            outwards: Gate::default(),
        }))
    }
}

/// The faults that [`Faults`] has drawn for one connection.
///
/// ```
/// use tidewire::fault::{Faults, Faulty};
/// use tidewire::{Origin, Peer, Wrap};
///
/// let peer = Peer::new(([127, 0, 0, 1], 4000), Origin::Accepted(0));
/// let layer: Option<Faulty> = Faults::none(7).wrap(&peer)?;
/// assert!(layer.is_some());
/// # Ok::<(), tidewire::Refusal>(())
/// ```
pub struct Faulty {
    rates: Rates,
    shared: Arc<Shared>,
    rng: Rng,
    inwards: Gate,
    outwards: Gate,
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.rates)
    }
}

const CUT: &str = "a fault was injected: cut";

impl Faulty {
    /// How the next piece of a direction passes.
    fn next(&mut self, which: fn(&mut Faulty) -> &mut Gate, now: Instant, len: usize) -> Passing {
        let mut gate = std::mem::take(which(self));
        let passing = gate.next(now, len, &self.rates, &mut self.rng, &self.shared);
        *which(self) = gate;
        passing
    }

    /// The bytes, or other bytes in their place.
    fn flipped(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if !one_in(&mut self.rng, self.rates.flip_one_in) {
            return None;
        }
        self.shared.flips.fetch_add(1, Relaxed);
        let mut bytes = bytes.to_vec();
        let bit = self.rng.below(8 * bytes.len() as u64) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        Some(bytes)
    }
}

impl Layer for Faulty {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let peer = at.peer().clone();
        // A refusal closes by itself.
        let _ = at.accept(peer);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next {
        while !input.is_empty() && at.wants_input() && !at.link().is_closing() {
            let now = at.link().now();
            match self.next(|layer| &mut layer.inwards, now, input.len()) {
                Passing::Not => return Next::Paused,
                Passing::Cut => at.link().abort_because(CUT),
                Passing::Some(len) => {
                    let bytes = &input.bytes()[..len];
                    let flipped = self.flipped(bytes);
                    at.received(flipped.as_deref().unwrap_or(bytes));
                    input.consume(len);
                }
            }
        }
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let mut cut = false;
        loop {
            let took = at.take_output(|link, bytes| {
                match self.next(|layer| &mut layer.outwards, link.now(), bytes.len()) {
                    Passing::Not => 0,
                    Passing::Cut => {
                        cut = true;
                        0
                    }
                    Passing::Some(len) => {
                        let bytes = &bytes[..len];
                        let flipped = self.flipped(bytes);
                        link.write(flipped.as_deref().unwrap_or(bytes));
                        len
                    }
                }
            });
            if cut {
                return at.link().abort_because(CUT);
            }
            if took == 0 {
                return;
            }
        }
    }

    fn timer(&self) -> Option<Instant> {
        [self.inwards.until(), self.outwards.until()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Pieces that were held back go on with the following events: output is pumped, and reading is
    /// resumed.
    fn expired<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let now = at.link().now();
        self.inwards.open(now);
        self.outwards.open(now);
    }
}

#[cfg(test)]
mod tests;
