//! Why a connection ended, and why one was refused.

use std::fmt;
use std::io;

/// Why a connection was closed. Given to [`Protocol::closed`](crate::Protocol::closed) exactly once
/// and counted by reason.
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Closed, Limits, on_input, sim::chunking::Feed};
///
/// let limits = Limits { idle: Some(Duration::from_secs(1)), ..Limits::default() };
/// let echo = on_input(|input, link| link.forward_all(input));
/// // The peer says something, and then nothing more.
/// let got = Feed::new(b"hello").limits(limits).half_close(false).after(Duration::from_secs(5)).run(echo);
/// assert_eq!(got.closed, Some(Closed::Idle));
/// assert_eq!(Closed::Idle.name(), "idle");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Closed {
    /// This side finished: all output was delivered to the kernel, and the peer closed its side.
    Finished,
    /// This side aborted the connection; the peer sees a reset.
    Aborted,
    /// The protocol ended the connection and gave a reason of its own.
    ByProtocol(&'static str),
    /// The peer reset the connection.
    Reset,
    /// Nothing was received or sent for the idle limit.
    Idle,
    /// The peer said nothing at all within [`Limits::first_byte`](crate::Limits::first_byte).
    FirstByteLate,
    /// The rest of a request did not come within [`Limits::request`](crate::Limits::request).
    RequestLate,
    /// The connection was open for [`Limits::lifetime`](crate::Limits::lifetime).
    Lifetime,
    /// Output was waiting and the peer took none of it for [`Limits::write`](crate::Limits::write), or
    /// nothing moved at all for the idle limit.
    Stalled,
    /// This side finished, and for the linger limit the peer took no output, or did not close.
    LingerExpired,
    /// Output that cannot be paced grew beyond the hard limit.
    OutputLimit,
    /// The protocol left more input unconsumed, or asked for more, than may be carried.
    CarriedLimit,
    /// All connections together held more memory than they may, and this connection held much of
    /// it: see [`Builder::memory`](crate::Builder::memory).
    MemoryLimit,
    /// A callback of the protocol panicked.
    Panicked,
    /// The service inside a [layer](crate::Layered) refused it once its first bytes had named it.
    /// Counted as a refusal, too.
    Refused(Refusal),
    /// A graceful stop finished the connection.
    Stopped,
    /// A graceful stop ran out of time and cut it.
    StopDeadline,
    /// The kernel reported another error.
    Failed(io::ErrorKind),
}

impl Closed {
    /// How many reasons are counted apart.
    pub(crate) const KINDS: usize = 18;

    /// The name used in counters and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Closed::NAMES[self.kind()]
    }

    pub(crate) const NAMES: [&'static str; Closed::KINDS] = [
        "finished",
        "aborted",
        "by_protocol",
        "reset",
        "idle",
        "stalled",
        "linger_expired",
        "output_limit",
        "carried_limit",
        "panicked",
        "stopped",
        "stop_deadline",
        "failed",
        "refused",
        "memory_limit",
        "first_byte_late",
        "request_late",
        "lifetime",
    ];

    pub(crate) const fn kind(self) -> usize {
        match self {
            Closed::Finished => 0,
            Closed::Aborted => 1,
            Closed::ByProtocol(_) => 2,
            Closed::Reset => 3,
            Closed::Idle => 4,
            Closed::Stalled => 5,
            Closed::LingerExpired => 6,
            Closed::OutputLimit => 7,
            Closed::CarriedLimit => 8,
            Closed::Panicked => 9,
            Closed::Stopped => 10,
            Closed::StopDeadline => 11,
            Closed::Failed(_) => 12,
            Closed::Refused(_) => 13,
            Closed::MemoryLimit => 14,
            Closed::FirstByteLate => 15,
            Closed::RequestLate => 16,
            Closed::Lifetime => 17,
        }
    }

    /// Whether the toolkit cut the connection, at a limit or after a panic: neither its peer nor, on
    /// purpose, its protocol did.
    pub(crate) fn is_cut(self) -> bool {
        matches!(
            self,
            Closed::Stalled
                | Closed::LingerExpired
                | Closed::OutputLimit
                | Closed::CarriedLimit
                | Closed::Panicked
                | Closed::StopDeadline
                | Closed::FirstByteLate
                | Closed::RequestLate
                | Closed::Lifetime
        )
    }

    /// Peers that vanish are reported by several errors; all of them mean a reset.
    pub(crate) fn from_error(e: io::ErrorKind) -> Closed {
        match e {
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::NotConnected => Closed::Reset,
            other => Closed::Failed(other),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Closed::ByProtocol(why) => f.write_str(why),
            Closed::Failed(kind) => write!(f, "failed: {kind}"),
            Closed::Refused(why) => write!(f, "refused: {why}"),
            other => f.write_str(other.name()),
        }
    }
}

/// Why an accepted connection was turned away before it was opened. The peer sees a reset, or hears the
/// service's own words ([`Service::refusal_reply`](crate::Service::refusal_reply)).
///
/// ```
/// use tidewire::{LoopHandle, OnInputConn, Peer, Refusal, Service};
/// # struct Conn;
/// # impl tidewire::Protocol for Conn { type Local = (); type Message = ();
/// #   fn received(&mut self, i: &mut tidewire::Input<'_>, _: &mut tidewire::Cx<'_, Self>) -> tidewire::Next {
/// #     i.consume(i.len()); tidewire::Next::More } }
///
/// /// Serves this host only.
/// struct Private;
///
/// impl Service for Private {
///     type Conn = Conn;
///
///     fn on_loop(&self, _: LoopHandle<()>) {}
///
///     fn accept(&self, from: &Peer, _: &mut ()) -> Result<Conn, Refusal> {
///         if from.is_local() { Ok(Conn) } else { Err(Refusal::Protected) }
///     }
/// }
///
/// // On the simulated network, others are on other hosts.
/// let got = tidewire::sim::chunking::collect(Private, b"hello", &[], true);
/// assert_eq!(got.closed, None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// As many connections are open as the limit allows.
    ConnectionLimit,
    /// The service declined the connection, with a reason.
    ByService(&'static str),
    /// The service panicked while accepting.
    Panicked,
    /// The loops are stopping.
    Stopping,
    /// No thread could be started for the connection (threads engine). Accepting pauses then.
    NoThread,
    /// The client comes from another host, and the service asks for no secret: see
    /// [`Peer::is_local`](crate::Peer::is_local).
    Protected,
    /// Every loop that could carry it has ended: see [`Running::wait`](crate::Running::wait).
    NoLoop,
    /// All connections together hold nearly as much memory as they may: see
    /// [`Builder::memory`](crate::Builder::memory).
    MemoryLimit,
    /// As many connections of the client's address are open as [rules](crate::admission::Rules)
    /// allow.
    AddressLimit,
    /// As many connections of the client's network are open as rules allow.
    PrefixLimit,
    /// More connections come than rules allow.
    AcceptRate,
    /// The client's address opens more connections per second than rules allow.
    AddressRate,
    /// The rules refuse the client's network, or do not list it.
    Denied,
}

impl Refusal {
    pub(crate) const KINDS: usize = 13;
    pub(crate) const NAMES: [&'static str; Refusal::KINDS] = [
        "connection_limit",
        "by_service",
        "panicked",
        "stopping",
        "no_thread",
        "protected",
        "no_loop",
        "memory_limit",
        "address_limit",
        "prefix_limit",
        "accept_rate",
        "address_rate",
        "denied",
    ];

    /// Whether this client may be let in later: another has to go first, or time to pass.
    ///
    /// ```
    /// use tidewire::Refusal;
    ///
    /// assert!(Refusal::ConnectionLimit.is_temporary()); // "try again later"
    /// assert!(!Refusal::Denied.is_temporary()); // "no"
    /// ```
    #[must_use]
    pub const fn is_temporary(self) -> bool {
        matches!(
            self,
            Refusal::ConnectionLimit
                | Refusal::MemoryLimit
                | Refusal::AddressLimit
                | Refusal::PrefixLimit
                | Refusal::AcceptRate
                | Refusal::AddressRate
        )
    }

    pub(crate) const fn kind(self) -> usize {
        match self {
            Refusal::ConnectionLimit => 0,
            Refusal::ByService(_) => 1,
            Refusal::Panicked => 2,
            Refusal::Stopping => 3,
            Refusal::NoThread => 4,
            Refusal::Protected => 5,
            Refusal::NoLoop => 6,
            Refusal::MemoryLimit => 7,
            Refusal::AddressLimit => 8,
            Refusal::PrefixLimit => 9,
            Refusal::AcceptRate => 10,
            Refusal::AddressRate => 11,
            Refusal::Denied => 12,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::ByService(why) => f.write_str(why),
            Refusal::Protected => f.write_str("from another host, without a secret to ask for"),
            other => f.write_str(Refusal::NAMES[other.kind()]),
        }
    }
}
