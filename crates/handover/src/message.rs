//! The messages of the two processes, and their encoding.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The version of the conversation.
pub const VERSION: u32 = 1;

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Packet {
    pub(crate) handover: u32,
    #[serde(flatten)]
    pub(crate) message: Message,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Message {
    Hello(Hello),
    Offer(Offer),
    /// Sockets of one listening address travel with this message; many sockets take several
    /// messages in a row.
    Listener(Listener),
    Take {},
    Released {},
    Serving {},
    Go {
        /// `connections` may follow.
        #[serde(default)]
        connections: bool,
    },
    /// Connections travel with this message: one listening address has accepted them, and nothing
    /// was read from them.
    Connections(Connections),
    Refuse {
        why: String,
    },
}

/// The first message of a successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of the program, for the log.
    pub version: String,
    /// Id of the process.
    pub pid: u32,
    /// Data that is kept in memory alone may be forgotten.
    pub forget: bool,
    /// Whether the successor also takes connections of which no byte was read. Before 0.3.0 none
    /// does.
    #[serde(default)]
    pub takes_connections: bool,
}

/// The answer of a running server, before it passes its sockets on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Version of the program, for the log.
    pub version: String,
    /// Id of the process.
    pub pid: u32,
    /// Directories of logs that the running server holds locked, without links or `..`.
    pub logs: Vec<PathBuf>,
    /// Directories among the logs that hold a key-value store. A server before 0.3.0 does not say
    /// so.
    #[serde(default)]
    pub stores: Vec<PathBuf>,
    /// The longest time that the running server takes to release the sockets when it is asked to;
    /// milliseconds.
    pub release_ms: u64,
    /// How many packets with sockets follow.
    pub packets: u32,
}

/// One listening address, or a part of its sockets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listener {
    pub(crate) service: String,
    pub(crate) at: String,
    pub(crate) given: bool,
    pub(crate) owns_file: bool,
    /// How many travel with this packet.
    pub(crate) sockets: usize,
}

/// Connections of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connections {
    pub(crate) service: String,
    pub(crate) at: String,
    /// How many travel with this packet.
    pub(crate) sockets: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A successor of another version reads these packets.
    #[test]
    fn packets_look_as_documented() {
        let text = |message| {
            let handover = VERSION;
            serde_json::to_string(&Packet { handover, message }).unwrap()
        };
        let hello = Hello {
            version: "0.1.0".into(),
            pid: 7,
            forget: false,
            takes_connections: true,
        };
        assert_eq!(
            text(Message::Hello(hello)),
            r#"{"handover":1,"hello":{"version":"0.1.0","pid":7,"forget":false,"takes_connections":true}}"#
        );
        // A successor before 0.3.0.
        let old = r#"{"handover":1,"hello":{"version":"0.2.0","pid":7,"forget":false}}"#;
        let old: Packet = serde_json::from_str(old).unwrap();
        assert!(matches!(old.message, Message::Hello(hello) if !hello.takes_connections));
        assert_eq!(text(Message::Take {}), r#"{"handover":1,"take":{}}"#);
        assert_eq!(
            text(Message::Refuse { why: "no".into() }),
            r#"{"handover":1,"refuse":{"why":"no"}}"#
        );
        let listener = Listener {
            service: "kv/resp".into(),
            at: "[::1]:6380".into(),
            given: false,
            owns_file: false,
            sockets: 2,
        };
        assert_eq!(
            text(Message::Listener(listener)),
            r#"{"handover":1,"listener":{"service":"kv/resp","at":"[::1]:6380","given":false,"owns_file":false,"sockets":2}}"#
        );
        let back: Packet = serde_json::from_str(r#"{"handover":1,"go":{}}"#).unwrap();
        assert_eq!(back.message, Message::Go { connections: false });
        let connections = Connections {
            service: "http".into(),
            at: "127.0.0.1:8080".into(),
            sockets: 3,
        };
        assert_eq!(
            text(Message::Connections(connections)),
            r#"{"handover":1,"connections":{"service":"http","at":"127.0.0.1:8080","sockets":3}}"#
        );
    }
}
