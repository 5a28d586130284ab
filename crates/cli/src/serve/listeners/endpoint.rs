//! The services, and the addresses on which each listens.

use std::net::IpAddr;

use tidewire::Network;

use crate::exit::Failure;
use crate::serve::listeners::kind::{Kind, Named, services};
use crate::serve::listeners::listen_at::{ListenAt, Place, Shield};
use crate::serve::listeners::tls::{Front, TlsFiles, TlsOptions};

/// A listener to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) kind: Kind,
    pub(crate) place: tidewire::Endpoint,
    /// Whether the service was asked for with its mode (if it has modes) or with a place, not only
    /// as one of several.
    pub(crate) by_name: bool,
    /// The part of `--listen` about TLS and proxies.
    pub(crate) shield: Shield,
    /// The layers in front of this listener, after all settings.
    pub(crate) front: Front,
}

impl Endpoint {
    /// The layers in front of this listener; `tls` and `proxy_from` apply where the listener has no
    /// setting of its own.
    pub(crate) fn front_of(
        &self,
        tls: &TlsOptions,
        proxy_from: &[Network],
    ) -> Result<Front, Failure> {
        let shield = &self.shield;
        let files = shield.files.clone().over(tls.clone()).files()?;
        let wanted = shield.tls.unwrap_or(self.place.is_tcp());
        if shield.tls == Some(true) && files.is_none() {
            return Err(Failure::usage(format!(
                "TLS at {}: add --tls-cert and --tls-key",
                self.place
            )));
        }
        let own = shield.proxy_from.as_deref();
        let files = match self.kind.service.is_http {
            true => files.map(TlsFiles::of_http),
            false => files,
        };
        Ok(Front {
            tls: files.filter(|_| wanted),
            proxy_from: own.unwrap_or(proxy_from).to_vec(),
        })
    }
}

/// The listeners of all services, with their addresses. Services that are named in neither list are
/// left out; if none is named at all, the services run that every server has. A service that has
/// addresses of its own gets no default address.
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
        let default = services().filter(|service| service.is_default);
        kinds.extend(default.flat_map(|service| service.kinds()));
    }
    let placed = |kind: Kind| places.iter().any(|p| p.kind.service == kind.service);
    let mut all: Vec<Endpoint> = Vec::new();
    let mut add = |kind, place: tidewire::Endpoint, by_name, shield| {
        // A service named twice is meant once; two free ports are two.
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
                add(kind, (*ip, *port).into(), by_name(kind), Shield::default());
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
        let shown = |e: Endpoint| format!("{} {}", e.kind, e.place);
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
