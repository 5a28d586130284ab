//! Counters of the events of loops and connections. Each loop writes its own counters without
//! synchronisation; any thread may read them at any time, and the builder's handle adds them up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::reach::sync::{Mutex, lock};
use crate::reactor::activity::Activity;
use crate::reactor::counter::Counter;
use crate::vocabulary::closed::{Closed, Refusal};

macro_rules! counters {
    (
        service { $($(#[$sdoc:meta])* $sname:ident),* $(,)? }
        loop { $($(#[$ldoc:meta])* $lname:ident),* $(,)? }
    ) => {
        /// The counters of one service on one loop.
        #[derive(Debug, Default)]
        pub(crate) struct ServiceCounters {
            $(pub(crate) $sname: Counter,)*
            pub(crate) refused: [Counter; Refusal::KINDS],
            pub(crate) closed: [Counter; Closed::KINDS],
            /// This lock is taken once for each connection that ends for a protocol's reason.
            reasons: Mutex<Reasons>,
        }

        /// The counters of one loop, and of its services.
        #[derive(Debug, Default)]
        pub(crate) struct LoopCounters {
            $(pub(crate) $lname: Counter,)*
            pub(crate) activity: Activity,
            /// Added to while the loop is set up, and in the simulator.
            services: Mutex<Vec<Arc<ServiceCounters>>>,
        }

        /// Counters added up over all loops, or of one loop, or of one service.
        ///
        /// ```
        /// use std::io::{Read, Write};
        /// use std::time::Duration;
        /// use tidewire::{Builder, Closed, Counters, on_input};
        ///
        /// let echo = on_input(|input, link| link.forward_all(input));
        /// let running = Builder::new().serve("127.0.0.1:0", echo).start()?;
        /// let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
        /// client.write_all(b"hello")?;
        /// client.read_exact(&mut [0; 5])?;
        /// drop(client);
        /// let counters: Counters = running.stop(Duration::from_secs(1));
        /// assert_eq!((counters.accepted, counters.closed_for(Closed::Finished)), (1, 1));
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$sdoc])* pub $sname: u64,)*
            $($(#[$ldoc])* pub $lname: u64,)*
            /// Connections turned away, by [`Refusal`].
            pub refused: [u64; Refusal::KINDS],
            /// Connections closed, by [`Closed`].
            pub closed: [u64; Closed::KINDS],
            /// Connections closed for reasons of their protocols ([`Closed::ByProtocol`]), by the
            /// reason: the first [`REASONS_MAX`] that occur, and `"other reasons"` for the rest.
            pub reasons: Reasons,
        }

        impl Counters {
            /// Adds what a loop counts for itself, without its services.
            pub(crate) fn add_loop(&mut self, of: &LoopCounters) {
                $(self.$lname = self.$lname.wrapping_add(of.$lname.value());)*
            }

            /// Adds what a loop counts for a service.
            pub(crate) fn add_service(&mut self, of: &ServiceCounters) {
                $(self.$sname = self.$sname.wrapping_add(of.$sname.value());)*
                for (sum, c) in self.refused.iter_mut().zip(&of.refused) {
                    *sum = sum.wrapping_add(c.value());
                }
                for (sum, c) in self.closed.iter_mut().zip(&of.closed) {
                    *sum = sum.wrapping_add(c.value());
                }
                for (reason, n) in &*lock(&of.reasons) {
                    count(&mut self.reasons, reason, *n);
                }
            }

            /// Adds other counters to these counters.
            pub(crate) fn merge(&mut self, of: &Counters) {
                $(self.$lname = self.$lname.wrapping_add(of.$lname);)*
                $(self.$sname = self.$sname.wrapping_add(of.$sname);)*
                for (sum, n) in self.refused.iter_mut().zip(&of.refused) {
                    *sum = sum.wrapping_add(*n);
                }
                for (sum, n) in self.closed.iter_mut().zip(&of.closed) {
                    *sum = sum.wrapping_add(*n);
                }
                for (reason, n) in &of.reasons {
                    count(&mut self.reasons, reason, *n);
                }
            }

            /// Every counter with its name, for logs and metrics pages. Characters in a protocol's
            /// reason that are neither letters nor digits become `_` in its name:
            /// `closed_because_not_TLS`.
            pub fn each(&self, mut f: impl FnMut(&str, u64)) {
                $(f(stringify!($sname), self.$sname);)*
                $(f(stringify!($lname), self.$lname);)*
                for (name, n) in self.each_refused() {
                    f(&format!("refused_{name}"), n);
                }
                for (name, n) in self.each_closed() {
                    f(&format!("closed_{name}"), n);
                }
                for (reason, n) in &self.reasons {
                    f(&format!("closed_because_{}", word(reason)), *n);
                }
            }
        }
    };
}

counters! {
    service {
        /// Connections accepted, including ones refused later.
        accepted,
        /// Outgoing connections established.
        dialled,
        /// Attempts to connect that failed, and dials that their loop took with it when it failed.
        dial_failures,
        /// Connections open now.
        open,
        /// Open connections to which all is said: their output has ended, and they wait for the
        /// peer's end.
        lingering,
        /// Bytes received.
        bytes_in,
        /// Bytes sent.
        bytes_out,
        /// Connections that were cut at a limit, or at a stop's deadline, with output queued.
        cut_unsent,
        /// Bytes of output that were lost so.
        bytes_cut,
    }
    loop {
        /// Outgoing connections refused because too many were under way already (see
        /// [`Builder::inbox`](crate::Builder::inbox) and [`Limits::dials`](crate::Limits::dials)), and attempts
        /// refused because memory is short ([`Builder::memory`](crate::Builder::memory)).
        dials_refused,
        /// Names of hosts that dials asked for, also where the answer was known or on its way.
        lookups,
        /// Dials that were told that there is no address, or no more.
        lookup_failures,
        /// Names that dials asked for while as many were being looked up as may be: see
        /// [`Builder::lookups`](crate::Builder::lookups). The attempt has failed.
        lookups_refused,
        /// Bytes that connections hold now in queued output and carried input: see
        /// [`Builder::memory`](crate::Builder::memory).
        memory,
        /// Receive calls, or completions of receive operations.
        receives,
        /// Send calls, or completions of send operations.
        sends,
        /// Times that no receive buffer was free; receiving went on later.
        buffers_exhausted,
        /// Times that accepting paused for want of descriptors or memory.
        accept_pauses,
        /// Times that a connection's output was full and reading it was held back.
        output_pauses,
        /// Times that a connection which would make output had to wait until others had had their share.
        turn_pauses,
        /// Times that a connection which would send much had to wait until others had had their share.
        send_pauses,
        /// Times that a connection had more input than its share of the turn, where many had some: see
        /// [`Builder::turn_receive`](crate::Builder::turn_receive).
        receive_pauses,
        /// Times that a connection was not read from because memory was short: see
        /// [`Builder::memory`](crate::Builder::memory).
        memory_pauses,
        /// Times that the loop was woken from outside.
        wakeups,
        /// Turns of the loop.
        turns,
        /// Waits that busy-polling spared.
        busy_poll_hits,
        /// Posts that found [`POSTS_MAX`](crate::POSTS_MAX) others waiting for their service on their loop.
        posts_refused,
        /// Places for posts that were asked for when [`RESERVED_MAX`](crate::RESERVED_MAX) were taken.
        places_refused,
        /// Messages between connections that found [`TELLS_MAX`](crate::TELLS_MAX) others undelivered.
        tells_refused,
        /// Sends of connections that found no room in a [channel](crate::channel), and waited.
        channels_full,
        /// Posts for connections that had gone.
        posts_undeliverable,
        /// Messages that one connection told another which had gone.
        tells_undeliverable,
        /// Panics of callbacks, of what they drop and of messages that are not delivered: each is
        /// caught, and logged. (One that refuses a connection, in
        /// [`accept`](crate::Service::accept) or
        /// [`speaks_for_others`](crate::Service::speaks_for_others), counts as [`Refusal::Panicked`] instead.)
        panics,
        /// Completion-queue overflows that the kernel reported (io_uring).
        completions_overflowed,
    }
}

/// Counts by reason.
///
/// ```
/// use std::time::Duration;
/// use tidewire::sim::Sim;
/// use tidewire::{Limits, Next, Reasons, on_input};
///
/// let strict = on_input(|_, link| {
///     link.abort_because("not a word is wanted");
///     Next::More
/// });
/// let mut sim = Sim::new(1);
/// let at = sim.add_loop();
/// let service = sim.service(at, strict, Limits::default());
/// let addr = sim.listen(service);
/// let peer = sim.plain(addr);
/// sim.send(peer, b"a word");
/// sim.run_for(Duration::from_secs(1));
/// let reasons: Reasons = sim.counters(at).reasons;
/// assert_eq!(reasons["not a word is wanted"], 1);
/// ```
pub type Reasons = BTreeMap<&'static str, u64>;

/// Reasons of protocols that are counted apart.
pub const REASONS_MAX: usize = 64;
const OTHERS: &str = "other reasons";

fn count(reasons: &mut Reasons, reason: &'static str, n: u64) {
    let known = reasons.len() < REASONS_MAX || reasons.contains_key(reason);
    *reasons
        .entry(if known { reason } else { OTHERS })
        .or_default() += n;
}

fn word(reason: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    reason.chars().map(letter).collect()
}

impl LoopCounters {
    /// A turn of the loop begins.
    #[inline]
    pub(crate) fn begin_turn(&self) {
        self.turns.add(1);
        self.activity.begin();
    }

    /// Counters of one more service.
    pub(crate) fn service(&self) -> Arc<ServiceCounters> {
        let counters = Arc::<ServiceCounters>::default();
        lock(&self.services).push(counters.clone());
        counters
    }

    /// Counters of the service with this number, made if the loop ended before it had come to it.
    pub(crate) fn of_service(&self, number: usize) -> Arc<ServiceCounters> {
        let mut services = lock(&self.services);
        while services.len() <= number {
            services.push(Arc::default());
        }
        services[number].clone()
    }

    /// Counters of each service, in the order of their numbers.
    pub(crate) fn services(&self) -> Vec<Arc<ServiceCounters>> {
        lock(&self.services).clone()
    }

    /// The loop's and its services' counters together.
    pub(crate) fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        sum.add_loop(self);
        lock(&self.services)
            .iter()
            .for_each(|of| sum.add_service(of));
        sum
    }
}

impl ServiceCounters {
    /// A connection was closed for a reason of its protocol.
    #[cold]
    pub(crate) fn closed_because(&self, reason: &'static str) {
        count(&mut lock(&self.reasons), reason, 1);
    }
}

impl Counters {
    /// Connections turned away, by the name of the [`Refusal`]; zeros included.
    pub fn each_refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Refusal::NAMES.into_iter().zip(self.refused)
    }

    /// Connections closed, by the [name](Closed::name) of the reason; zeros included.
    pub fn each_closed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Closed::NAMES.into_iter().zip(self.closed)
    }

    /// Connections closed for this reason of their protocol, as given to
    /// [`Link::finish_because`](crate::Link::finish_because) or `abort_because`.
    #[must_use]
    pub fn closed_because(&self, reason: &str) -> u64 {
        self.reasons.get(reason).copied().unwrap_or(0)
    }

    /// Connections closed for reasons of this kind.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, Sim};
    /// use tidewire::{Closed, Limits, Next, Refusal, on_input};
    ///
    /// let once = on_input(|input, link| {
    ///     link.write(input.bytes());
    ///     input.consume(input.len());
    ///     link.finish_because("one is enough");
    ///     Next::More
    /// });
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let at = sim.add_loop();
    /// let service = sim.service(at, once, Limits { connections: 1, ..Limits::default() });
    /// let addr = sim.listen(service);
    /// let (first, second) = (sim.plain(&addr), sim.plain(&addr));
    /// sim.send(first, b"hello");
    /// sim.finish(first);
    /// sim.run_for(Duration::from_secs(1));
    ///
    /// let counters = sim.counters(at);
    /// assert_eq!(counters.refused_for(Refusal::ConnectionLimit), 1);
    /// assert_eq!((counters.closed_total(), counters.closed_for(Closed::ByProtocol(""))), (1, 1));
    /// assert_eq!(counters.closed_because("one is enough"), 1);
    /// for (name, count) in counters.each_refused().chain(counters.each_closed()) {
    ///     println!("{name} {count}"); // a line of metrics
    /// }
    /// # let _ = second;
    /// ```
    #[must_use]
    pub fn closed_for(&self, why: Closed) -> u64 {
        self.closed[why.kind()]
    }

    /// Connections turned away for reasons of this kind.
    #[must_use]
    pub fn refused_for(&self, why: Refusal) -> u64 {
        self.refused[why.kind()]
    }

    /// All connections closed.
    #[must_use]
    pub fn closed_total(&self) -> u64 {
        self.closed.iter().sum()
    }
}

/// One line, zeros left out.
impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        self.each(|name, n| {
            if n != 0 {
                parts.push(format!("{name}={n}"));
            }
        });
        f.write_str(&parts.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_apart_and_bounded() {
        let (one, two) = (ServiceCounters::default(), ServiceCounters::default());
        for counters in [&one, &two] {
            for _ in 0..3 {
                counters.closed_because("line too long");
            }
        }
        for i in 0..1000 {
            two.closed_because(Box::leak(format!("reason {i}").into_boxed_str()));
        }
        let mut sum = Counters::default();
        sum.add_service(&one);
        sum.add_service(&two);
        assert_eq!(sum.closed_because("line too long"), 6);
        assert!(sum.reasons.len() <= REASONS_MAX + 1);
        assert_eq!(sum.reasons.values().sum::<u64>(), 1006);
        let mut names = Vec::new();
        sum.each(|name, _| names.push(name.to_owned()));
        assert!(names.contains(&"closed_because_line_too_long".into()));
    }
}
