//! Acknowledgement policies: which messages are acknowledged when.

use std::time::Duration;

use tidewire::Limits;

use crate::classic::ack::AckForm;
use crate::classic::codec::{ByteOrder, HEADER, Parser};
use crate::classic::mode::Mode;

/// Default of [`Classic::payload_max`]: 16 MiB.
pub const PAYLOAD_MAX: u32 = 16 << 20;

/// When acknowledgements are sent.
///
/// All but [`EachMessage`](AckPolicy::EachMessage) are cumulative: one acknowledgement covers all
/// messages before it. Cumulative policies never stop reading when the client does not take its
/// acknowledgements: an acknowledgement that cannot be sent is covered by the next one. Only
/// `EachMessage` pauses reading while its output is full.
///
/// A chunk is the input of one call of [`received`](tidewire::Protocol::received); only chunks that
/// complete a message count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPolicy {
    /// One acknowledgement for each message, in order.
    EachMessage,
    /// One acknowledgement for each chunk, from within the receive path.
    EachChunk,
    /// One acknowledgement after this many chunks, or when no chunk has come for a while.
    EveryChunks {
        /// Chunks until an acknowledgement is sent; 0 counts as 1.
        n: u32,
        /// Time after the last chunk until one is sent nevertheless.
        or_idle: Duration,
    },
    /// By a clock that starts when the connection does, while there is something to acknowledge.
    Every {
        /// The time between two ticks, at least a microsecond.
        interval: Duration,
    },
}

/// A dialect of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classic {
    /// How the size of a payload is written.
    pub order: ByteOrder,
    /// How acknowledgements are written.
    pub form: AckForm,
    /// When acknowledgements are sent.
    pub policy: AckPolicy,
    /// Largest payload in bytes, default [`PAYLOAD_MAX`]. A larger payload ends the connection:
    /// complete messages before it are acknowledged, then the connection is finished, logged and
    /// counted in [`Counters::oversized`](crate::classic::Counters::oversized).
    pub payload_max: u32,
    /// Resets connections from other hosts: these protocols know no secret. Default false, which suits
    /// messages that are counted and dropped.
    pub protected: bool,
}

/// Largest chunk that a builder allows, and so the most bytes that may follow a message that is
/// just complete.
const CHUNK_MAX: usize = 1 << 20;

/// Bytes of acknowledgements that may wait to be sent: as many as fit into one Ethernet segment. So
/// a client that can only read whole acknowledgements gets whole ones.
const QUEUED_MAX: usize = 1200;

impl Classic {
    /// The protocol that clients of `mode` speak.
    #[must_use]
    pub const fn preset(mode: Mode) -> Classic {
        let tick = Duration::from_millis(5);
        let (order, form, policy) = match mode {
            Mode::RequestReply => (ByteOrder::Big, AckForm::IdOnly, AckPolicy::EachMessage),
            Mode::Throttled | Mode::HeadRest => (
                ByteOrder::Little,
                AckForm::IdAndSkipped,
                AckPolicy::Every { interval: tick },
            ),
            Mode::Sync => (
                ByteOrder::Little,
                AckForm::IdAndSkipped,
                AckPolicy::EachChunk,
            ),
            Mode::Async => (
                ByteOrder::Little,
                AckForm::IdAndSkipped,
                AckPolicy::EveryChunks {
                    n: 22,
                    or_idle: tick,
                },
            ),
        };
        Classic {
            order,
            form,
            policy,
            payload_max: PAYLOAD_MAX,
            protected: false,
        }
    }

    /// The limits that go with it: a silence of 5 s ends the connection, a frame of the largest
    /// payload may be carried, and cumulative acknowledgements do not pile up in the output.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let defaults = Limits {
            idle: Some(Duration::from_secs(5)),
            carried: HEADER + self.payload_max as usize + CHUNK_MAX,
            ..Limits::default()
        };
        match self.policy {
            AckPolicy::EachMessage => defaults,
            _ => Limits {
                output_low: 0,
                output_high: QUEUED_MAX,
                ..defaults
            },
        }
    }

    pub(crate) fn parser(&self) -> Parser {
        Parser {
            order: self.order,
            payload_max: self.payload_max,
        }
    }
}
