//! One `--listen`: a service, an address, and the layers in front of it. In the configuration file it
//! may be a table instead of a text.

use std::path::PathBuf;
use std::str::FromStr;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use tidewire::Network;
use tidewire::admission::Rate;

use crate::host::HostPort;
use crate::serve::listeners::admission::{self, ListenerRules};
use crate::serve::listeners::kind::{Kind, Named};
use crate::serve::listeners::socket_access::SocketAccess;
use crate::serve::listeners::tls::{TlsOptions, networks};

/// `SERVICE[/MODE]=[tls:|plain:]ADDR`, where `ADDR` is `IP:PORT`, `HOST:PORT`, only a port, or a Unix socket:
/// `unix:/PATH`, `unix:@NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListenAt {
    pub(crate) kind: Kind,
    pub(crate) place: Place,
    pub(crate) shield: Shield,
}

/// The place at which a service is to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A port on the address of `--bind`.
    Port(u16),
    At(tidewire::Endpoint),
    /// A port at every address of a host.
    Host(HostPort),
}

/// The layers that are asked for between a listener and its service. Settings that are absent here
/// come from the settings of all listeners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shield {
    /// Whether TLS is spoken. By default, on TCP where there is a certificate.
    pub(crate) tls: Option<bool>,
    /// A certificate of its own.
    pub(crate) files: TlsOptions,
    pub(crate) proxy_from: Option<Vec<Network>>,
    /// Access to the file of a Unix socket.
    pub(crate) access: SocketAccess,
    pub(crate) rules: ListenerRules,
}

impl FromStr for ListenAt {
    type Err = String;

    fn from_str(text: &str) -> Result<ListenAt, String> {
        let (named, addr) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not SERVICE[/MODE]=ADDR"))?;
        ListenAt::new(named, addr)
    }
}

impl ListenAt {
    fn new(named: &str, addr: &str) -> Result<ListenAt, String> {
        let named: Named = named.parse()?;
        let [kind] = named.0[..] else {
            return Err(format!(
                "{named} needs a mode here, such as {named}/{}={addr}",
                named.0[0].mode().unwrap_or_default()
            ));
        };
        let (tls, addr) = match addr.split_once(':') {
            Some(("tls", addr)) => (Some(true), addr),
            Some(("plain", addr)) => (Some(false), addr),
            _ => (None, addr),
        };
        let (addr, access) = SocketAccess::split(addr)?;
        let place = match (addr.parse::<u16>(), addr.parse()) {
            (Ok(port), _) => Place::Port(port),
            (_, Ok(host)) => Place::Host(host),
            _ => {
                let place = addr.parse::<tidewire::Endpoint>();
                Place::At(place.map_err(|e| match addr.starts_with("unix:") {
                    true => e.to_string(),
                    false => format!(
                        "{addr:?} is no place to listen: write it like 127.0.0.1:80, localhost:80, [::1]:80, \
                         unix:/run/it.sock, unix:@it or only a port"
                    ),
                })?)
            }
        };
        let shield = Shield {
            tls,
            access,
            ..Shield::default()
        };
        Ok(ListenAt {
            kind,
            place,
            shield,
        })
    }
}

/// A listener as a table of the file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    service: String,
    at: String,
    mode: Option<String>,
    owner: Option<String>,
    tls: Option<bool>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_client_ca: Option<PathBuf>,
    #[serde(default, deserialize_with = "networks")]
    proxy_from: Option<Vec<Network>>,
    // Each key by itself, because `flatten` would accept unknown keys.
    max_connections: Option<usize>,
    max_per_address: Option<u32>,
    max_per_prefix: Option<u32>,
    #[serde(default, deserialize_with = "admission::rate")]
    accept_rate: Option<Rate>,
    #[serde(default, deserialize_with = "admission::rate")]
    accept_rate_per_address: Option<Rate>,
    #[serde(default, deserialize_with = "admission::networks")]
    allow: Vec<Network>,
    #[serde(default, deserialize_with = "admission::networks")]
    deny: Vec<Network>,
}

impl TryFrom<Table> for ListenAt {
    type Error = String;

    fn try_from(table: Table) -> Result<ListenAt, String> {
        let mut listen = ListenAt::new(&table.service, &table.at)?;
        let shield = &mut listen.shield;
        shield.files = TlsOptions {
            cert: table.tls_cert,
            key: table.tls_key,
            client_ca: table.tls_client_ca,
        };
        if let (Some(text), Some(table)) = (shield.tls, table.tls)
            && text != table
        {
            return Err(format!("`tls = {table}` beside {:?}", listen.place));
        }
        shield.tls = table.tls.or(shield.tls);
        if shield.files.is_some() {
            if shield.tls == Some(false) {
                return Err("TLS files for a plain listener".into());
            }
            shield.tls = Some(true);
        }
        shield.proxy_from = table.proxy_from;
        if let Some(mode) = &table.mode {
            shield.access.set_mode(mode)?;
        }
        if let Some(owner) = &table.owner {
            shield.access.set_owner(owner)?;
        }
        let has_file = matches!(&listen.place, Place::At(at) if at.path().is_some());
        if shield.access.is_some() && !has_file {
            return Err("only a Unix socket with a path has a mode and an owner".into());
        }
        shield.rules = ListenerRules {
            max_connections: table.max_connections,
            max_per_address: table.max_per_address,
            max_per_prefix: table.max_per_prefix,
            accept_rate: table.accept_rate,
            accept_rate_per_address: table.accept_rate_per_address,
            allow: table.allow,
            deny: table.deny,
        };
        Ok(listen)
    }
}

impl<'de> Deserialize<'de> for ListenAt {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<ListenAt, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = ListenAt;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("SERVICE=ADDR, or a table with service, at, tls, tls-cert, ...")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ListenAt, E> {
                text.parse().map_err(de::Error::custom)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ListenAt, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                table.try_into().map_err(de::Error::custom)
            }
        }
        from.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_what_is_wrong() {
        let wrong = |text: &str| text.parse::<ListenAt>().unwrap_err();
        assert!(wrong("echo").contains("SERVICE"));
        assert!(wrong("gopher=1").contains("gopher"));
        assert!(wrong("ack=1").contains("needs a mode"));
        assert!(wrong("ack/slow=1").contains("head-rest"));
        assert!(wrong("kv=1").contains("kv/resp=1"));
        assert!(wrong("kv/text=1").contains("resp or binary"));
        assert!(wrong("echo/sync=1").contains("only ack"));
        assert!(wrong("echo=he re:1").contains("he re:1"));
        assert!(wrong("echo=tls:127.0.0:1").contains("127.0.0:1"));
        assert!(wrong("echo=127.0.0.1").contains("only a port"));
    }

    #[test]
    fn a_place_says_what_is_spoken_there() {
        let tls = |text: &str| text.parse::<ListenAt>().unwrap().shield.tls;
        assert_eq!(tls("echo=7"), None);
        assert_eq!(tls("echo=tls:7"), Some(true));
        assert_eq!(tls("echo=plain:[::1]:7"), Some(false));
        assert_eq!(tls("echo=tls:unix:/run/echo.sock"), Some(true));
    }

    #[derive(Debug, serde::Deserialize)]
    struct File {
        listen: Vec<ListenAt>,
    }

    #[test]
    fn the_file_has_texts_and_tables() {
        let read = |text: &str| toml::from_str::<File>(text).map(|file| file.listen);
        let all = read(
            "[[listen]]\nservice = 'kv/resp'\nat = '0.0.0.0:6390'\ntls-cert = 'c'\ntls-key = 'k'\n\
             proxy-from = ['10.0.0.0/8']\n[[listen]]\nservice = 'echo'\nat = 'plain:7'",
        )
        .unwrap();
        assert_eq!(all[0].shield.tls, Some(true));
        assert_eq!(all[0].shield.proxy_from.as_ref().unwrap().len(), 1);
        assert_eq!(all[1], "echo=plain:7".parse().unwrap());
        assert_eq!(read("listen = ['echo=plain:7']").unwrap()[0], all[1]);
        for wrong in [
            "[[listen]]\nservice = 'echo'",
            "[[listen]]\nservice = 'echo'\nat = '7'\ntsl = true",
            "[[listen]]\nservice = 'echo'\nat = 'plain:7'\ntls = true",
            "[[listen]]\nservice = 'echo'\nat = '7'\ntls = false\ntls-cert = 'c'",
            "[[listen]]\nservice = 'echo'\nat = '7'\nproxy-from = ['everybody']",
            "[[listen]]\nservice = 'echo'\nat = '7'\nmode = '0660'",
            "[[listen]]\nservice = 'echo'\nat = 'unix:/x'\nmode = 'rw'",
            "[[listen]]\nservice = 'echo'\nat = '7'\ndeny = 'everybody'",
            "[[listen]]\nservice = 'echo'\nat = '7'\nmax-conections = 7",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
