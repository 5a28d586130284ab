//! The reasons of a refusal.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// Why a server refuses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
            /// A reason that this version does not know.
            Unknown(u16),
        }

        impl Reason {
            /// All known reasons.
            pub const ALL: &[Reason] = &[$(Reason::$name),*];

            /// Number of the reason in a frame.
            #[must_use]
            pub fn code(self) -> u16 {
                match self {
                    $(Reason::$name => $code,)*
                    Reason::Unknown(code) => code,
                }
            }

            /// The reason of this number.
            #[must_use]
            pub fn of(code: u16) -> Reason {
                match code {
                    $($code => Reason::$name,)*
                    _ => Reason::Unknown(code),
                }
            }
        }

        impl Reason {
            /// The name of the reason.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                    Reason::Unknown(_) => "a reason of a later version",
                }
            }
        }
    };
}

reasons! {
    /// Not this protocol, or a bad field.
    Malformed = 1, "malformed";
    /// A payload above the limit of the welcome.
    TooLarge = 2, "too large";
    /// No room on the disk of the log: try again later.
    DiskFull = 3, "disk full";
    /// Above the rate allowed to a connection: try again later.
    OverQuota = 4, "over quota";
    /// A gap in the ids; the id is the one expected.
    OutOfOrder = 5, "out of order";
    /// A newer session of this producer has begun.
    Fenced = 6, "fenced";
    /// The token is not known, or not for this stream.
    Unauthorised = 7, "unauthorised";
    /// The log has stopped for good: unacknowledged messages may be lost.
    LogFailed = 8, "log failed";
    /// The server is stopping: connect again.
    Stopping = 9, "stopping";
    /// A limit on streams, producers, cursors or sessions.
    TooMany = 10, "too many";
    /// The position has been removed by retention.
    Gone = 11, "gone";
    /// The log cannot be read there.
    Damaged = 12, "damaged";
    /// The position, or that of the cursor, is behind the end of the stream.
    BeyondEnd = 13, "beyond the end";
    /// There is no stream of this name to read.
    NoStream = 14, "no such stream";
    /// The hello did not come in time.
    TooSlow = 15, "too slow";
    /// The stream is at its limit of bytes: try again later.
    StreamFull = 16, "stream full";
    /// There is a stream of this name already.
    Exists = 17, "exists";
    /// A request that is not known, or a setting out of its range.
    Unsupported = 18, "unsupported";
    /// The stream has no cursor of this name.
    NoCursor = 19, "no such cursor";
    /// The producer belongs to another server; the text says where that is.
    Moved = 20, "moved";
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Unknown(code) => write!(f, "reason {code}"),
            known => f.write_str(known.name()),
        }
    }
}

impl Reason {
    /// Whether the connection ends with this refusal. After any other refusal, the client tries
    /// again on the same connection.
    #[must_use]
    pub fn closes(self) -> bool {
        use Reason::{DiskFull, Exists, NoCursor, OverQuota, StreamFull, Unsupported};
        !matches!(
            self,
            DiskFull | OverQuota | StreamFull | Exists | Unsupported | NoCursor
        )
    }
}
