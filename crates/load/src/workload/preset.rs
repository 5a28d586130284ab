//! How the classic clients load a server.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tidewire_ingest::Level;
use tidewire_ingest::classic::Mode;

use super::ack::{AckLoad, Checks, Rounds};

/// The load of one classic client: one connection, rounds of messages with a 5-byte payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset(pub Mode);

impl FromStr for Preset {
    type Err = String;

    fn from_str(name: &str) -> Result<Preset, String> {
        name.parse().map(Preset).map_err(|_| {
            format!(
                "no preset is called {name:?}: request-reply, throttled, head-rest, sync or async"
            )
        })
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Preset {
    /// The load.
    pub fn load(self) -> AckLoad {
        let (batch, window, rounds, messages) = match self.0 {
            Mode::RequestReply => (1, 1, 100, 10_000),
            Mode::Throttled => (1, 0, 20, 100_000),
            Mode::HeadRest => (50, 0, 20, 200_000),
            Mode::Sync => (50, 0, 50, 1_000_000),
            Mode::Async => (150, 0, 20, 2_000_000),
        };
        AckLoad {
            mode: self.0,
            level: Level::None,
            payload: 5,
            batch,
            window,
            checks: self.checks(),
            rounds: Some(Rounds {
                rounds,
                messages,
                restart_ids: self.0 == Mode::RequestReply,
            }),
        }
    }

    fn checks(self) -> Option<Checks> {
        let ms = Duration::from_millis;
        let (interval, patience) = match self.0 {
            Mode::RequestReply => return None,
            Mode::Throttled | Mode::Sync => (ms(30), ms(1)),
            Mode::HeadRest => (ms(30), ms(10)),
            Mode::Async => (ms(3), ms(1)),
        };
        Some(Checks {
            messages: 1000,
            interval,
            patience,
        })
    }

    /// Whether the client sets `TCP_NODELAY`.
    pub fn nodelay(self) -> bool {
        self.0 == Mode::HeadRest
    }
}
