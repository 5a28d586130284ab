//! The services, by name.

use std::fmt;
use std::str::FromStr;

use tidewire_ingest::classic::Mode;

/// A service, with its mode where it has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sends back what it gets.
    Echo,
    /// Acknowledges small messages.
    Ack(Mode),
    /// Stores messages, and gives them back.
    Ingest,
    /// Keys and values.
    Kv(KvMode),
    /// Small web endpoints.
    Http,
    /// Receives and drops.
    Discard,
}

/// The protocols of the key-value store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KvMode {
    /// Redis's.
    Resp,
    /// The small binary one.
    Binary,
}

impl KvMode {
    pub(super) const ALL: [KvMode; 2] = [KvMode::Resp, KvMode::Binary];

    pub(crate) fn name(self) -> &'static str {
        match self {
            KvMode::Resp => "resp",
            KvMode::Binary => "binary",
        }
    }
}

impl Kind {
    pub(crate) fn service(self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Ack(_) => "ack",
            Kind::Ingest => "ingest",
            Kind::Kv(_) => "kv",
            Kind::Http => "http",
            Kind::Discard => "discard",
        }
    }

    pub(crate) fn mode(self) -> Option<&'static str> {
        match self {
            Kind::Ack(mode) => Some(mode.name()),
            Kind::Ingest => Some("native"),
            Kind::Kv(mode) => Some(mode.name()),
            Kind::Echo | Kind::Http | Kind::Discard => None,
        }
    }

    /// The ports that clients in the field expect.
    pub(super) fn ports(self) -> Vec<u16> {
        match self {
            Kind::Echo => vec![12345],
            // 8000 is where an older variant of the same protocol listened.
            Kind::Ack(Mode::RequestReply) => vec![8000, 8001],
            Kind::Ack(mode) => vec![mode.default_port()],
            Kind::Ingest => vec![7400],
            Kind::Kv(KvMode::Resp) => vec![6380],
            Kind::Kv(KvMode::Binary) => vec![7000],
            Kind::Http => vec![8080],
            Kind::Discard => vec![12346],
        }
    }
}

/// A service as named on the command line: `echo`, `ack` (all its modes), `ack/sync`, `ingest`,
/// `kv`, `kv/resp`, `http`, `discard`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(pub(crate) Vec<Kind>);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let kinds = match text.split_once('/') {
            None => match text {
                "echo" => vec![Kind::Echo],
                "ingest" => vec![Kind::Ingest],
                "http" => vec![Kind::Http],
                "discard" => vec![Kind::Discard],
                "ack" => Mode::ALL.map(Kind::Ack).to_vec(),
                "kv" => KvMode::ALL.map(Kind::Kv).to_vec(),
                _ => {
                    return Err(format!(
                        "no service is called {text:?}: echo, ack, ingest, kv, http or discard"
                    ));
                }
            },
            Some(("ack", mode)) => {
                let mode = mode.parse::<Mode>();
                vec![Kind::Ack(mode.map_err(|e| e.to_string())?)]
            }
            Some(("ingest", "native")) => vec![Kind::Ingest],
            Some(("kv", mode)) => {
                let known = KvMode::ALL.into_iter().find(|known| known.name() == mode);
                let mode =
                    known.ok_or_else(|| format!("kv has no mode {mode:?}: resp or binary"))?;
                vec![Kind::Kv(mode)]
            }
            Some((service, _)) => {
                return Err(format!("only ack and kv have modes, not {service:?}"));
            }
        };
        Ok(Named(kinds))
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0[..] {
            [Kind::Ack(mode)] => write!(f, "ack/{}", mode.name()),
            [Kind::Kv(mode)] => write!(f, "kv/{}", mode.name()),
            _ => f.write_str(self.0[0].service()),
        }
    }
}
