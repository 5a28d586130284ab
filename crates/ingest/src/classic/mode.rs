//! The dialects in use, by name.

use std::fmt;
use std::str::FromStr;

/// A dialect that existing clients speak; [`Classic::preset`](crate::classic::Classic::preset)
/// gives its settings.
///
/// ```
/// use tidewire_ingest::classic::Mode;
///
/// let mode: Mode = "head-rest".parse().unwrap();
/// assert_eq!(mode.to_string(), "head-rest");
/// assert_eq!(mode.default_port(), 8003);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// An acknowledgement for each message, in lock-step.
    RequestReply,
    /// Acknowledgements by a 5 ms clock.
    Throttled,
    /// Acknowledgements by a 5 ms clock; clients send many messages at once.
    HeadRest,
    /// An acknowledgement for each chunk.
    Sync,
    /// An acknowledgement for every 22 chunks, or 5 ms after the last one.
    Async,
}

impl Mode {
    /// Every mode, by port.
    pub const ALL: [Mode; 5] = [
        Mode::RequestReply,
        Mode::Throttled,
        Mode::HeadRest,
        Mode::Sync,
        Mode::Async,
    ];

    /// The port to which clients of this mode connect. Request-reply has an older one, 8000, as
    /// well.
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Mode::RequestReply => 8001,
            Mode::Throttled => 8002,
            Mode::HeadRest => 8003,
            Mode::Sync => 8004,
            Mode::Async => 8005,
        }
    }

    /// Name of the mode, as in settings and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mode::RequestReply => "request-reply",
            Mode::Throttled => "throttled",
            Mode::HeadRest => "head-rest",
            Mode::Sync => "sync",
            Mode::Async => "async",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no mode has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no mode is called {0:?}: request-reply, throttled, head-rest, sync or async")]
pub struct UnknownMode(pub String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Mode, UnknownMode> {
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == name);
        found.ok_or_else(|| UnknownMode(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for mode in Mode::ALL {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let error = "Sync".parse::<Mode>().unwrap_err().to_string();
        assert!(Mode::ALL.iter().all(|mode| error.contains(mode.name())));
    }
}
