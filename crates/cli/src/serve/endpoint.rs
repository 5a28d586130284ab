//! What listens where.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use tidewire_ingest::classic::Mode;

use super::listen_at::{ListenAt, Place, Shield};
use super::tls::Front;

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
    const ALL: [KvMode; 2] = [KvMode::Resp, KvMode::Binary];

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
    fn ports(self) -> Vec<u16> {
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

/// A listener to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) kind: Kind,
    pub(crate) place: tidewire::Endpoint,
    /// Asked for with its mode, if it has one, or with a place: not only as one of several.
    pub(crate) by_name: bool,
    /// What its `--listen` says of TLS and of proxies.
    pub(crate) shield: Shield,
    /// What stands in front of it, all settings considered.
    pub(crate) front: Front,
}

/// What is to listen where. Services that are named in neither list are left out; if none is named
/// at all, echo, ingest and kv run. A service with places of its own gets none by default.
///
/// # Errors
/// A host has no address.
pub(crate) fn endpoints(
    named: &[Named],
    places: &[ListenAt],
    bind: &[IpAddr],
) -> Result<Vec<Endpoint>, String> {
    let mut kinds: Vec<Kind> = named.iter().flat_map(|named| named.0.clone()).collect();
    let by_name = |kind: Kind| named.iter().any(|named| named.0 == [kind]);
    if kinds.is_empty() {
        kinds.extend([Kind::Echo, Kind::Ingest]);
        kinds.extend(KvMode::ALL.map(Kind::Kv));
    }
    let placed = |kind: Kind| places.iter().any(|p| p.kind.service() == kind.service());
    let mut all: Vec<Endpoint> = Vec::new();
    let mut add = |kind, place: tidewire::Endpoint, by_name, shield| {
        // The same service named twice is meant once; two free ports are two.
        let known = |e: &Endpoint| e.kind == kind && e.place == place;
        if place.port() == Some(0) || !all.iter().any(known) {
            all.push(Endpoint {
                kind,
                place,
                by_name,
                shield,
                front: Front::default(),
            });
        }
    };
    for kind in kinds.into_iter().filter(|kind| !placed(*kind)) {
        for port in kind.ports() {
            for ip in bind {
                add(kind, (*ip, port).into(), by_name(kind), Shield::default());
            }
        }
    }
    for place in places {
        let at: Vec<tidewire::Endpoint> = match &place.place {
            Place::Port(port) => bind.iter().map(|ip| (*ip, *port).into()).collect(),
            Place::At(endpoint) => vec![endpoint.clone()],
            Place::Host(host) => host.here()?.into_iter().map(Into::into).collect(),
        };
        for at in at {
            add(place.kind, at, true, place.shield.clone());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(named: &[&str], places: &[&str]) -> Vec<String> {
        let named: Vec<Named> = named.iter().map(|n| n.parse().unwrap()).collect();
        let places: Vec<ListenAt> = places.iter().map(|p| p.parse().unwrap()).collect();
        let here = ["127.0.0.1".parse().unwrap()];
        let shown = |e: Endpoint| format!("{} {}", Named(vec![e.kind]), e.place);
        endpoints(&named, &places, &here)
            .unwrap()
            .into_iter()
            .map(shown)
            .collect()
    }

    #[test]
    fn by_default_what_most_come_for_listens() {
        assert_eq!(
            shown(&[], &[]),
            [
                "echo 127.0.0.1:12345",
                "ingest 127.0.0.1:7400",
                "kv/resp 127.0.0.1:6380",
                "kv/binary 127.0.0.1:7000",
            ]
        );
    }

    #[test]
    fn the_classic_ports_are_there_when_they_are_asked_for() {
        assert_eq!(
            shown(&["ack"], &[]),
            [
                "ack/request-reply 127.0.0.1:8000",
                "ack/request-reply 127.0.0.1:8001",
                "ack/throttled 127.0.0.1:8002",
                "ack/head-rest 127.0.0.1:8003",
                "ack/sync 127.0.0.1:8004",
                "ack/async 127.0.0.1:8005",
            ]
        );
    }

    #[test]
    fn a_host_is_listened_to_at_each_of_its_addresses() {
        let local = shown(&[], &["echo=localhost:7"]);
        assert!(local.contains(&"echo 127.0.0.1:7".to_owned()), "{local:?}");
        let places = ["echo=no-such-host.invalid:7".parse().unwrap()];
        let e = endpoints(&[], &places, &[]).unwrap_err();
        assert!(e.contains("no-such-host.invalid"), "{e}");
        let two = ["127.0.0.1", "::1"].map(|ip| ip.parse().unwrap());
        let both = endpoints(&["discard".parse().unwrap()], &[], &two).unwrap();
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn a_place_replaces_the_defaults_of_its_service_only() {
        let all = shown(&["echo", "ack"], &["ack/sync=0", "ack/async=[::1]:7"]);
        assert_eq!(
            all,
            [
                "echo 127.0.0.1:12345",
                "ack/sync 127.0.0.1:0",
                "ack/async [::1]:7"
            ]
        );
    }

    #[test]
    fn named_twice_is_meant_once_and_a_place_names_its_service() {
        assert_eq!(shown(&["echo", "echo"], &[]).len(), 1);
        assert_eq!(shown(&["echo"], &["discard=9"]).len(), 2);
        assert_eq!(shown(&["echo"], &["echo=0", "echo=0"]).len(), 2);
    }
}
