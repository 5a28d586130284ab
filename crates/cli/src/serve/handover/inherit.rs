//! Listeners that come from elsewhere, a predecessor or the service manager, and the places of the settings that
//! they are for.

use tidewire::{Listen, Unserved};
use tidewire_admin::Admin;
use tidewire_handover::{Control, Handed};

use crate::serve::listeners::endpoint::Endpoint;
use crate::serve::listeners::kind::{self, Named};
use crate::serve::listeners::listen_at::{ListenAt, Place, Shield};
use crate::serve::settings::frame::Settings;

/// The name of the admin listener among the listeners that are handed over.
pub(crate) const ADMIN: &str = "admin";

/// Listeners from elsewhere that have not been used yet.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    all: Vec<Handed>,
    /// Whether another process has the listeners too, and may keep them.
    shared: bool,
    /// Connections of this server's own that a successor was to have, which has not come to serve.
    connections: Vec<Unserved>,
}

impl Inherited {
    pub(crate) fn new(all: Vec<Handed>) -> Inherited {
        Inherited {
            all,
            ..Inherited::default()
        }
    }

    /// With connections that a successor was to have.
    pub(crate) fn with_connections(mut self, connections: Vec<Unserved>) -> Inherited {
        self.connections = connections;
        self
    }

    pub(crate) fn take_connections(&mut self) -> Vec<Unserved> {
        std::mem::take(&mut self.connections)
    }

    /// Marks the listeners as shared: another process has them too, and may keep them.
    pub(crate) fn sharing(mut self) -> Inherited {
        self.shared = true;
        self
    }

    /// The sockets of the service manager, as if `--listen` had asked for them. Each socket that the
    /// manager passes on has to be served.
    pub(crate) fn given(&self) -> Result<Vec<ListenAt>, String> {
        let services = self.all.iter().filter(|handed| {
            handed.is_given && handed.service != ADMIN && handed.service != Control::SERVICE
        });
        let listen = |handed: &Handed| {
            let Handed { service, at, .. } = handed;
            let named: Result<Named, _> = service.parse();
            let Ok([kind]) = named.as_ref().map(|named| &named.0[..]) else {
                let kinds = kind::services().flat_map(|service| service.kinds());
                let kinds: Vec<String> = kinds.map(|kind| kind.to_string()).collect();
                return Err(format!(
                    "the service manager passes a socket at {at} under the name {service:?}, \
                     which is no service: set FileDescriptorName={} or admin, one for each \
                     socket unit",
                    kinds.join(", ")
                ));
            };
            Ok(ListenAt {
                kind: *kind,
                place: Place::At(at.clone()),
                shield: Shield::default(),
            })
        };
        services.map(listen).collect()
    }

    /// Matches every inherited socket with a listener of the settings. A socket from a predecessor must be served by
    /// the same service as before, because connections may wait there; listeners without an inherited socket are
    /// bound as usual. A listener with port 0 takes any port of its service and address.
    pub(crate) fn settle(&self, endpoints: &mut [Endpoint]) -> Result<(), String> {
        let mut taken = vec![false; endpoints.len()];
        // Exact matches come first.
        for exactly in [true, false] {
            for handed in self.services() {
                let exact = endpoints.iter().any(|e| is_for(handed, e));
                if exact != exactly {
                    continue;
                }
                let fits = |(e, taken): &(&Endpoint, &bool)| {
                    !**taken
                        && if exact {
                            is_for(handed, e)
                        } else {
                            may_be_for(handed, e)
                        }
                };
                let Some(at) = endpoints.iter().zip(&taken).position(|pair| fits(&pair)) else {
                    return Err(not_served(handed, endpoints));
                };
                taken[at] = true;
                endpoints[at].place = handed.at.clone();
            }
        }
        Ok(())
    }

    /// The inherited sockets of an endpoint, if there are any.
    pub(crate) fn listen(&mut self, endpoint: &Endpoint) -> Option<Listen> {
        let at = self
            .all
            .iter()
            .position(|handed| is_for(handed, endpoint))?;
        let handed = self.all.swap_remove(at);
        Some(listen(handed, self.shared))
    }

    /// Whether the service manager passes an admin listener.
    pub(crate) fn gives_admin(&self) -> bool {
        self.all.iter().any(|of| of.is_given && of.service == ADMIN)
    }

    /// Takes the inherited control socket, if there is one.
    pub(crate) fn take_control(&mut self) -> Option<Handed> {
        self.take(Control::SERVICE)
    }

    /// Takes the inherited admin listener and its address, if there is one.
    pub(crate) fn take_admin(&mut self) -> Option<(tidewire::Endpoint, Listen)> {
        let handed = self.take(ADMIN)?;
        Some((handed.at.clone(), listen(handed, self.shared)))
    }

    fn take(&mut self, service: &str) -> Option<Handed> {
        let at = self.all.iter().position(|handed| handed.service == service);
        at.map(|at| self.all.swap_remove(at))
    }

    fn services(&self) -> impl Iterator<Item = &Handed> {
        let others = [ADMIN, Control::SERVICE];
        self.all
            .iter()
            .filter(move |handed| !others.contains(&&*handed.service))
    }
}

fn listen(handed: Handed, shared: bool) -> Listen {
    let listen = Listen::inherited_group(handed.sockets);
    // A service manager keeps its own sockets, and a predecessor ends.
    let listen = match handed.is_given || shared {
        true => listen,
        false => listen.exclusive(),
    };
    match handed.owns_file {
        true => listen.owning_file(),
        false => listen,
    }
}

fn is_same_service(handed: &Handed, endpoint: &Endpoint) -> bool {
    endpoint.kind.to_string() == handed.service
}

fn is_for(handed: &Handed, endpoint: &Endpoint) -> bool {
    is_same_service(handed, endpoint) && endpoint.place == handed.at
}

fn may_be_for(handed: &Handed, endpoint: &Endpoint) -> bool {
    is_same_service(handed, endpoint)
        && endpoint.place.port() == Some(0)
        && endpoint.place.ip() == handed.at.ip()
}

fn not_served(handed: &Handed, endpoints: &[Endpoint]) -> String {
    let Handed { service, at, .. } = handed;
    match endpoints.iter().find(|endpoint| endpoint.place == *at) {
        Some(other) => {
            let other = other.kind;
            format!(
                "the running server has {service} at {at}, and these settings have {other} there"
            )
        }
        None => format!(
            "the running server listens at {at} for {service}, and these settings do not: connections that wait there would \
             be lost. Add --listen {service}={at}, or stop it instead of taking over"
        ),
    }
}

/// The listeners of a server's services, and of its admin listener, under their names.
pub(crate) fn of_services(settings: &Settings, listening: Vec<tidewire::Listening>) -> Vec<Handed> {
    let mut all: Vec<Handed> = Vec::new();
    let mut last = None;
    for one in listening {
        let number = one.number as usize;
        if last == Some(number)
            && let Some(handed) = all.last_mut()
        {
            handed.sockets.push(one.socket);
            continue;
        }
        last = Some(number);
        all.push(Handed {
            service: settings.endpoints[number].kind.to_string(),
            at: one.endpoint,
            is_given: settings.is_given(&settings.endpoints[number]),
            owns_file: one.owns_file,
            sockets: vec![one.socket],
        });
    }
    all
}

/// The admin listener's.
pub(crate) fn of_admin(admin: &Admin, is_given: bool) -> std::io::Result<Option<Handed>> {
    let mut listening = admin.listeners()?.into_iter();
    Ok(listening.next().map(|one| Handed {
        service: ADMIN.into(),
        at: one.endpoint,
        is_given,
        owns_file: one.owns_file,
        sockets: vec![one.socket],
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::listeners::endpoint::endpoints;

    fn handed(service: &str, at: &str, is_given: bool) -> Handed {
        Handed {
            service: service.into(),
            at: at.parse().unwrap(),
            is_given,
            owns_file: false,
            sockets: Vec::new(),
        }
    }

    fn settled(places: &[&str], all: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let places: Vec<ListenAt> = places.iter().map(|p| p.parse().unwrap()).collect();
        let named: Vec<Named> = places.iter().map(|p| Named(vec![p.kind])).collect();
        let here = ["127.0.0.1".parse().unwrap()];
        let mut endpoints = endpoints(&named, &places, &here).unwrap();
        let all = all.iter().map(|(service, at)| handed(service, at, false));
        Inherited::new(all.collect()).settle(&mut endpoints)?;
        Ok(endpoints.iter().map(|e| e.place.to_string()).collect())
    }

    #[test]
    fn each_finds_its_place_and_port_0_takes_any() {
        let all = [("echo", "127.0.0.1:7"), ("kv/resp", "127.0.0.1:9")];
        let found = settled(&["kv/resp=0", "echo=7", "echo=0"], &all).unwrap();
        assert_eq!(found, ["127.0.0.1:9", "127.0.0.1:7", "127.0.0.1:0"]);
        // Two sockets of one service: the one whose port is named exactly is not given to another
        // listener.
        let all = [("echo", "127.0.0.1:8"), ("echo", "127.0.0.1:7")];
        let found = settled(&["echo=7", "echo=0"], &all).unwrap();
        assert_eq!(found, ["127.0.0.1:7", "127.0.0.1:8"]);
        let unix = [("echo", "unix:/run/e")];
        assert!(settled(&["echo=unix:/run/e", "echo=0"], &unix).is_ok());
    }

    #[test]
    fn what_would_not_be_served_is_refused_with_its_name() {
        let wrong = |places: &[&str], one| settled(places, &[one]).unwrap_err();
        let e = wrong(&["echo=7"], ("echo", "127.0.0.1:8"));
        assert!(
            e.contains("127.0.0.1:8") && e.contains("--listen echo="),
            "{e}"
        );
        let e = wrong(&["echo=7"], ("discard", "127.0.0.1:7"));
        assert!(
            e.contains("has discard") && e.contains("these settings have echo"),
            "{e}"
        );
        let e = wrong(&["echo=0"], ("echo", "127.0.0.2:7"));
        assert!(e.contains("127.0.0.2:7"), "another address: {e}");
        // Two sockets do not go to one listener.
        let two = [("echo", "127.0.0.1:8"), ("echo", "127.0.0.1:9")];
        assert!(settled(&["echo=0"], &two).is_err());
    }

    #[test]
    fn what_the_service_manager_gives_must_be_named_after_a_service() {
        let given = |service| Inherited::new(vec![handed(service, "0.0.0.0:7", true)]).given();
        assert_eq!(given("ack/sync").unwrap()[0].kind.mode(), Some("sync"));
        assert!(given("admin").unwrap().is_empty());
        for wrong in ["tidewire.socket", "unknown", "kv", "ack", ""] {
            assert!(
                given(wrong).unwrap_err().contains("FileDescriptorName"),
                "{wrong}"
            );
        }
        // These listeners are not a predecessor's: the settings decide about them.
        let others = Inherited::new(vec![handed("gopher", "0.0.0.0:7", false)]);
        assert!(others.given().unwrap().is_empty());
    }
}
