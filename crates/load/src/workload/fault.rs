//! The faults of a reply, by name.

use std::fmt;

use serde::Serialize;

/// A fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Fewer bytes came than a reply has.
    ShortReply,
    /// A few bytes are wrong; all bytes around them are right.
    FlippedByte,
    /// A reply came that nothing was sent for.
    ReplyBeforeRequest,
    /// A reply came twice.
    DuplicatedReply,
    /// A reply is missing; the next one came.
    LostReply,
    /// An acknowledgement came for a message that was acknowledged before.
    DuplicatedAck,
    /// An acknowledgement is missing; the next one came.
    LostAck,
    /// An acknowledgement came behind the one that should have followed it.
    ReorderedAck,
    /// The connection ended while something was owed.
    ClosedInTheMiddle,
    /// No reply came for too long.
    NoReply,
    /// Any other difference from the expected reply.
    WrongReply,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::ShortReply => "short reply",
            Fault::FlippedByte => "flipped byte",
            Fault::ReplyBeforeRequest => "reply before the request",
            Fault::DuplicatedReply => "duplicated reply",
            Fault::LostReply => "lost reply",
            Fault::DuplicatedAck => "duplicated acknowledgement",
            Fault::LostAck => "lost acknowledgement",
            Fault::ReorderedAck => "reordered acknowledgement",
            Fault::ClosedInTheMiddle => "close in the middle",
            Fault::NoReply => "no reply",
            Fault::WrongReply => "wrong reply",
        })
    }
}

/// A fault, and the received bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) fault: Fault,
    pub(super) what: String,
}

impl Fault {
    pub(super) fn because(self, what: impl Into<String>) -> Wrong {
        Wrong {
            fault: self,
            what: what.into(),
        }
    }

    /// The kind of fault that the difference between two texts of one length looks like.
    pub(super) fn of_difference(came: &[u8], wanted: &[u8]) -> Fault {
        /// More wrong bytes than this are no flipped bits.
        const FEW: usize = 2;
        let wrong = came.iter().zip(wanted).filter(|(a, b)| a != b).count();
        if (1..=FEW).contains(&wrong) && came.len() > FEW {
            Fault::FlippedByte
        } else {
            Fault::WrongReply
        }
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Wrong {
        Fault::WrongReply.because(what)
    }
}
