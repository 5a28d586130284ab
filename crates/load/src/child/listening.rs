//! The line by which a server says where it listens.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::Serialize;

/// A listener that a server has announced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listening {
    /// The service: `echo`, `ack`, ...
    pub service: String,
    /// The service's mode, if it has several: `sync`, `request-reply`, ...
    pub mode: Option<String>,
    /// The listening address, with the real port.
    pub addr: SocketAddr,
    /// The engine that runs.
    pub engine: String,
}

/// A line that announces a listener but can't be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("can't understand {line:?}: {reason}")]
pub struct ListeningError {
    /// The line.
    pub line: String,
    /// The reason.
    pub reason: &'static str,
}

/// The engine or mode of a server that does not name one.
const OTHER: &str = "other";

impl Listening {
    /// The place of a server that announces nothing.
    pub(super) fn unannounced(addr: SocketAddr) -> Listening {
        Listening {
            service: OTHER.to_owned(),
            mode: None,
            addr,
            engine: OTHER.to_owned(),
        }
    }
}

impl FromStr for Listening {
    type Err = ListeningError;

    /// Parses a `listening` line. Keys may stand in any order; unknown keys are ignored, so that
    /// later servers can print more. A server that is not Tidewire only needs an address; its
    /// missing properties become `other`.
    fn from_str(line: &str) -> Result<Self, ListeningError> {
        let wrong = |reason| ListeningError {
            line: line.to_owned(),
            reason,
        };
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("listening") {
            return Err(wrong("it doesn't begin with the word listening"));
        }
        let (mut service, mut mode, mut addr, mut engine) = (None, None, None, None);
        for word in words {
            let (key, value) = word
                .split_once('=')
                .ok_or(wrong("a word isn't KEY=VALUE"))?;
            let place = match key {
                "service" => &mut service,
                "mode" => &mut mode,
                "addr" => &mut addr,
                "engine" => &mut engine,
                _ => continue,
            };
            if place.replace(value).is_some() {
                return Err(wrong("a key is given twice"));
            }
        }
        let addr = addr.ok_or(wrong("addr is missing"))?;
        Ok(Self {
            service: service.unwrap_or(OTHER).to_owned(),
            mode: mode.map(str::to_owned),
            addr: addr.parse().map_err(|_| wrong("addr isn't IP:PORT"))?,
            engine: engine.unwrap_or(OTHER).to_owned(),
        })
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "listening service={}", self.service)?;
        if let Some(mode) = &self.mode {
            write!(f, " mode={mode}")?;
        }
        write!(f, " addr={} engine={}", self.addr, self.engine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SYNC: &str = "listening service=ack mode=sync addr=[::1]:8004 engine=uring";

    #[test]
    fn lines_are_parsed() {
        let sync: Listening = SYNC.parse().unwrap();
        assert_eq!(sync.service, "ack");
        assert_eq!(sync.mode.as_deref(), Some("sync"));
        assert_eq!(sync.addr, "[::1]:8004".parse().unwrap());
        assert_eq!(sync.engine, "uring");
        let more: Listening = "listening engine=epoll tls=yes addr=127.0.0.1:1 service=echo"
            .parse()
            .unwrap();
        assert_eq!((more.service.as_str(), more.mode), ("echo", None));
        let foreign: Listening = "listening addr=127.0.0.1:1".parse().unwrap();
        assert_eq!((&*foreign.service, &*foreign.engine), ("other", "other"));
    }

    #[test]
    fn broken_lines_say_what_is_wrong() {
        let reason = |line: &str| line.parse::<Listening>().unwrap_err().reason;
        assert!(reason("hearing service=x").contains("begin"));
        assert!(reason("listening service=x engine=y").contains("addr is missing"));
        assert!(reason("listening addr=localhost:1 service=y engine=z").contains("IP:PORT"));
        assert!(reason("listening addr service=y engine=z").contains("KEY=VALUE"));
        assert!(reason("listening mode=a mode=b addr=127.0.0.1:1").contains("twice"));
    }

    proptest! {
        #[test]
        fn what_is_printed_is_parsed(
            service in "[a-z]{1,8}",
            mode in prop::option::of("[a-z-]{1,12}"),
            ip: std::net::IpAddr,
            port: u16,
            engine in "[a-z]{1,8}",
        ) {
            let listening = Listening { service, mode, addr: SocketAddr::new(ip, port), engine };
            prop_assert_eq!(listening.to_string().parse(), Ok(listening));
        }

        #[test]
        fn no_line_makes_the_parser_panic(line in "(listening )?\\PC{0,60}") {
            let _ = line.parse::<Listening>();
        }
    }
}
