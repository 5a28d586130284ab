//! Limits of one connection, and of one loop. Every limit has a default, and a documented behaviour
//! when it is reached.

use std::time::Duration;

/// Limits of a service's connections. Sizes are bytes.
///
/// ```
/// use std::time::Duration;
/// let limits = tidewire::Limits { idle: Some(Duration::from_secs(5)), ..Default::default() };
/// assert_eq!(limits.connections, 1_000_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections open at once for one service, over all loops. A further connection is accepted
    /// and reset at once (counted as refused). Default 1,000,000: descriptors run out first, and
    /// then accepting pauses instead.
    pub connections: usize,
    /// Outgoing connections of one service on their way at once, on one loop: being connected, or
    /// waiting for their next attempt. A further dial fails at once, counted as `dials_refused`.
    /// Default 65,536.
    pub dials: usize,
    /// Unconsumed input a connection may carry from one call of `received` to the next, and the
    /// most that [`Next::AtLeast`](crate::Next::AtLeast) may ask for. Beyond it the connection is
    /// closed with [`Closed::CarriedLimit`](crate::Closed::CarriedLimit). Default 17 MiB.
    pub carried: usize,
    /// Queued output at or below which `writable` is called after it had been full. Default 64 KiB.
    ///
    /// `output_low`, `output_high` and `output_hard` count the memory that the output queue ties
    /// up, bytes: queued bytes, a whole receive buffer for each chunk that shares one, the entries
    /// of the queue, the marks of [held](crate::Link::hold_until) output. A piece that is sent in
    /// part counts as a whole, because its memory is freed when its last byte has been sent; shared
    /// bytes count even if other owners hold them too. Up to two blocks (64 KiB each) do not count:
    /// the sent part of the first piece, and the free part of the last block. Memory that shared
    /// bytes keep alive beside themselves does not count here.
    pub output_low: usize,
    /// Queued output at or above which [`Link::full`](crate::Link::full) is true. Default 256 KiB. When many
    /// connections of a loop have much output at once, `full` is true earlier: as soon as the connection has
    /// used its share, a quarter of [`Builder::turn_output`](crate::Builder::turn_output).
    pub output_high: usize,
    /// Queued output beyond which the connection is aborted with
    /// [`Closed::OutputLimit`](crate::Closed::OutputLimit). Chunks that the protocol holds count.
    /// Default 64 MiB. Values above 4 GiB mean 4 GiB, here and in `output_low` and `output_high`.
    pub output_hard: usize,
    /// Input taken from one connection in one turn of its loop before the loop reads from other
    /// connections. Default 256 KiB; at least one chunk is always taken. When more than 16 connections
    /// have input, a connection may get less: [`Builder::turn_receive`](crate::Builder::turn_receive)
    /// limits all of them together.
    pub turn_bytes: usize,
    /// Time without a byte received or sent (at most 49 days, as for `request` and `write`) after which [`Protocol::idle`](crate::Protocol::idle)
    /// is called (default: finish), or, with output waiting, the connection is aborted as stalled.
    /// `None` waits for ever. Default 60 s.
    pub idle: Option<Duration>,
    /// Time from the connection on in which the peer of an accepted connection must have said
    /// something; [`Protocol::overdue`](crate::Protocol::overdue) is called otherwise (default:
    /// cut). Default none: what waits for nothing is closed when it is idle.
    pub first_byte: Option<Duration>,
    /// Time in which the peer must complete a request that it has begun, plus a second for each KiB
    /// of the request that has come; then [`Protocol::overdue`](crate::Protocol::overdue) is called
    /// (default: cut). A request has begun when a protocol leaves input unconsumed and waits for
    /// more, and the next request begins when it consumes some. A protocol that consumes piece by
    /// piece announces its requests itself ([`Link::request_began`](crate::Link::request_began)).
    /// Time in which the loop does not read from the connection does not count. Default 60 s.
    pub request: Option<Duration>,
    /// Time that output may wait while the peer takes none of it, even if the peer sends; then the
    /// connection is aborted as stalled. Bytes that the peer takes out of the kernel's send buffer
    /// count as taken, if they are at least a KiB for each second of the limit. The first look at that
    /// buffer comes after a quarter of the limit (or of `idle`, if that is less), so a peer may have a
    /// quarter more. Default 60 s.
    pub write: Option<Duration>,
    /// Time that a connection may stay open. After this time its protocol is told to finish, as when the
    /// loops [stop](crate::Protocol::draining), and the connection is cut if it has not ended within
    /// `linger`. A finished connection whose peer still takes output is cut too. Without a lifetime, a
    /// slow peer that takes just enough output for `linger` can keep a connection open for hours. Default
    /// none.
    pub lifetime: Option<Duration>,
    /// Time that a finished connection may pass without sending a byte of its output; then, when everything is sent, the time for
    /// the peer to close. Only [`lifetime`](Limits::lifetime) and a stop's deadline bound the sum. A slow reader gets all output
    /// as long as it takes some, at least a KiB a second out of the kernel's buffer; a reader that takes nothing is cut after at
    /// most twice this time. A connection that is cut with output queued is counted (`cut_unsent`, `bytes_cut`) and logged.
    /// Default 5 s.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 1_000_000,
            dials: 65_536,
            carried: 17 << 20,
            output_low: 64 << 10,
            output_high: 256 << 10,
            output_hard: 64 << 20,
            turn_bytes: 256 << 10,
            idle: Some(Duration::from_secs(60)),
            first_byte: None,
            request: Some(Duration::from_secs(60)),
            write: Some(Duration::from_secs(60)),
            lifetime: None,
            linger: Duration::from_secs(5),
        }
    }
}

impl Limits {
    /// Returns an error text if these limits contradict each other or are out of range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let zero = [
            ("connections", self.connections),
            ("carried", self.carried),
            ("turn_bytes", self.turn_bytes),
        ];
        if let Some((name, _)) = zero.into_iter().find(|(_, n)| *n == 0) {
            return Err(format!(
                "`{name}` is 0, so nothing could be served; give at least 1"
            ));
        }
        let (low, high, hard) = (self.output_low, self.output_high, self.output_hard);
        if low >= high {
            return Err(format!(
                "`output_low` ({low}) is not below `output_high` ({high}), so output would be full \
                 and drained at once"
            ));
        }
        if hard < high {
            return Err(format!(
                "`output_hard` ({hard}) is below `output_high` ({high}), so connections would be cut \
                 before they are asked to pause"
            ));
        }
        let times = [
            ("idle", self.idle),
            ("first_byte", self.first_byte),
            ("request", self.request),
            ("write", self.write),
            ("lifetime", self.lifetime),
        ];
        if let Some((name, _)) = times.iter().find(|(_, t)| *t == Some(Duration::ZERO)) {
            return Err(format!(
                "`{name}` is zero, so every connection would be over it; None waits for ever"
            ));
        }
        if self.linger.is_zero() {
            return Err(
                "`linger` is zero, so replies would be cut on their way; 1 ms is the least \
                 that makes sense"
                    .into(),
            );
        }
        Ok(())
    }
}

/// Bytes a second at which a request earns more time: see [`Limits::request`].
pub(crate) const REQUEST_RATE: u64 = 1024;

/// Bytes a second of what the kernel has that a peer must take to be more than stalled: see [`Limits::write`].
pub(crate) const READING_RATE: u128 = 1024;

/// Largest number of new bytes in one call of `received`, on every engine, unless set otherwise with
/// [`Builder::chunk`](crate::Builder::chunk): 68 KiB.
///
/// A receive that fills its buffer does not say whether there is more, and costs another receive that finds nothing. So the
/// buffer holds 64 KiB, the length of many messages, and has room for their framing.
pub const CHUNK: usize = 68 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_meant_is_refused_and_says_which() {
        type Change = fn(&mut Limits);
        let wrong: [(&str, Change); 11] = [
            ("connections", |l| l.connections = 0),
            ("carried", |l| l.carried = 0),
            ("turn_bytes", |l| l.turn_bytes = 0),
            ("output_low", |l| l.output_low = l.output_high),
            ("output_hard", |l| l.output_hard = l.output_high - 1),
            ("idle", |l| l.idle = Some(Duration::ZERO)),
            ("first_byte", |l| l.first_byte = Some(Duration::ZERO)),
            ("request", |l| l.request = Some(Duration::ZERO)),
            ("write", |l| l.write = Some(Duration::ZERO)),
            ("lifetime", |l| l.lifetime = Some(Duration::ZERO)),
            ("linger", |l| l.linger = Duration::ZERO),
        ];
        assert_eq!(Limits::default().check(), Ok(()));
        for (name, change) in wrong {
            let mut limits = Limits::default();
            change(&mut limits);
            let why = limits.check().unwrap_err();
            assert!(why.starts_with(&format!("`{name}`")), "{why}");
            let mut builder = crate::Builder::new();
            let service = crate::on_input(|_, _| crate::Next::More);
            builder.service_with(service, limits);
            let refused = builder.start().unwrap_err().to_string();
            assert!(refused.contains(&why), "{refused}");
        }
    }
}
