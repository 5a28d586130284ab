//! Admission settings: which clients may connect, and how many, for all services, for some, and for
//! one listener.

use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use serde_json::{Value, json};
use tidewire::Network;
use tidewire::admission::{Rate, Rules};

use crate::serve::listeners::kind::{Kind, Named};
use crate::serve::listeners::scoped::{One, Scope, Scoped, of, of_all, scopes, several};
use crate::serve::settings::given::Need;

/// Networks with commas in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Networks(Vec<Network>);

/// Settings of admission.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct AdmissionOptions {
    /// Connections open at once for each service; more are refused. Here and below, SERVICE= in front is
    /// for that service, all= for all of them together; may be repeated. All together are never more than the limit of
    /// descriptors (ulimit -n) less the ones held back for logs, snapshots, admin and control [default: that, and at
    /// most 1000000 for each service]
    #[arg(long, value_name = "[SCOPE=]N")]
    pub(crate) max_connections: Vec<Scoped<usize>>,

    /// Connections open at once of one address; in IPv6, of one network of 64 bits [default: no limit]
    #[arg(long, value_name = "[SCOPE=]N")]
    pub(crate) max_per_address: Vec<Scoped<u32>>,

    /// Connections open at once of one network: of 256 IPv4 addresses, or a site of IPv6 (48 bits)
    /// [default: no limit]
    #[arg(long, value_name = "[SCOPE=]N")]
    pub(crate) max_per_prefix: Vec<Scoped<u32>>,

    /// Connections that may come in a time, such as 1000 (a second), 600/m, or 100/s:20 for at most 20
    /// at once; faster ones are refused [default: no limit]
    #[arg(long, value_name = "[SCOPE=]RATE")]
    pub(crate) accept_rate: Vec<Scoped<Rate>>,

    /// Connections that may come in a time from each address; faster ones are refused [default: no limit]
    #[arg(long, value_name = "[SCOPE=]RATE")]
    pub(crate) accept_rate_per_address: Vec<Scoped<Rate>>,

    /// Networks, such as 10.0.0.0/8,192.0.2.7,unix: if there are any, others are refused. Of all that an
    /// address is in, here and of --deny, the smallest decides [default: all]
    #[arg(long, value_name = "[SCOPE=]NETWORKS")]
    pub(crate) allow: Vec<Scoped<Networks>>,

    /// Networks whose connections are refused [default: none]
    #[arg(long, value_name = "[SCOPE=]NETWORKS")]
    pub(crate) deny: Vec<Scoped<Networks>>,

    /// Bits of an IPv6 address that count as one address
    #[arg(long, value_name = "BITS", default_value_t = Rules::default().address_v6)]
    pub(crate) address_v6: u8,

    /// Bits of an IPv4 address that are its network
    #[arg(long, value_name = "BITS", default_value_t = Rules::default().prefix_v4)]
    pub(crate) prefix_v4: u8,

    /// Bits of an IPv6 address that are its network
    #[arg(long, value_name = "BITS", default_value_t = Rules::default().prefix_v6)]
    pub(crate) prefix_v6: u8,
}

/// Rules of one listener: keys of its table in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListenerRules {
    pub(crate) max_connections: Option<usize>,
    pub(crate) max_per_address: Option<u32>,
    pub(crate) max_per_prefix: Option<u32>,
    pub(crate) accept_rate: Option<Rate>,
    pub(crate) accept_rate_per_address: Option<Rate>,
    pub(crate) allow: Vec<Network>,
    pub(crate) deny: Vec<Network>,
}

impl ListenerRules {
    pub(crate) fn counts_addresses(&self) -> bool {
        self.max_per_address.is_some() || self.accept_rate_per_address.is_some()
    }

    pub(crate) fn counts_prefixes(&self) -> bool {
        self.max_per_prefix.is_some()
    }
}

impl AdmissionOptions {
    /// The condition under which a flag of this name has an effect.
    pub(crate) fn need(flag: &str) -> Option<Need> {
        match flag {
            "address-v6" => Some(Need::Addresses),
            "prefix-v4" | "prefix-v6" => Some(Need::Prefixes),
            _ => None,
        }
    }

    /// Services that rules are for, with the names of the settings.
    pub(crate) fn scopes(&self) -> Vec<(&'static str, Named)> {
        let mut to = Vec::new();
        scopes("--max-connections", &self.max_connections, &mut to);
        scopes("--max-per-address", &self.max_per_address, &mut to);
        scopes("--max-per-prefix", &self.max_per_prefix, &mut to);
        scopes("--accept-rate", &self.accept_rate, &mut to);
        scopes(
            "--accept-rate-per-address",
            &self.accept_rate_per_address,
            &mut to,
        );
        scopes("--allow", &self.allow, &mut to);
        scopes("--deny", &self.deny, &mut to);
        to
    }

    pub(crate) fn counts_addresses(&self) -> bool {
        !self.max_per_address.is_empty() || !self.accept_rate_per_address.is_empty()
    }

    pub(crate) fn counts_prefixes(&self) -> bool {
        !self.max_per_prefix.is_empty()
    }

    /// Most open connections of a service, if a flag sets it.
    pub(crate) fn connections(&self, kind: Kind) -> Option<usize> {
        of(&self.max_connections, kind)
    }

    /// The rules of a service, beside the number of its connections.
    pub(crate) fn rules_of(&self, kind: Kind) -> Rules {
        Rules {
            per_address: of(&self.max_per_address, kind),
            per_prefix: of(&self.max_per_prefix, kind),
            rate: of(&self.accept_rate, kind),
            rate_per_address: of(&self.accept_rate_per_address, kind),
            allow: networks_of(&self.allow, kind),
            deny: networks_of(&self.deny, kind),
            ..self.bits()
        }
    }

    /// The rules of all services together.
    pub(crate) fn rules_of_all(&self) -> Rules {
        Rules {
            connections: of_all(&self.max_connections),
            per_address: of_all(&self.max_per_address),
            per_prefix: of_all(&self.max_per_prefix),
            rate: of_all(&self.accept_rate),
            rate_per_address: of_all(&self.accept_rate_per_address),
            ..self.bits()
        }
    }

    /// The rules of one listener.
    pub(crate) fn rules_at(&self, listener: &ListenerRules) -> Rules {
        Rules {
            connections: listener.max_connections,
            per_address: listener.max_per_address,
            per_prefix: listener.max_per_prefix,
            rate: listener.accept_rate,
            rate_per_address: listener.accept_rate_per_address,
            allow: listener.allow.clone(),
            deny: listener.deny.clone(),
            ..self.bits()
        }
    }

    fn bits(&self) -> Rules {
        Rules {
            address_v6: self.address_v6,
            prefix_v4: self.prefix_v4,
            prefix_v6: self.prefix_v6,
            ..Rules::default()
        }
    }
}

/// Lists of networks add up: a list for all services holds for each service.
fn networks_of(all: &[Scoped<Networks>], kind: Kind) -> Vec<Network> {
    let own = all.iter().filter(|scoped| match &scoped.scope {
        Scope::Each | Scope::All => true,
        Scope::Of(named) => named.0.contains(&kind),
    });
    own.flat_map(|scoped| scoped.value.0.iter().copied())
        .collect()
}

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Networks, String> {
        let all = text.split(',').map(|network| network.trim().parse());
        let all: Result<Vec<Network>, _> = all.collect();
        all.map(Networks)
            .map_err(|e: tidewire::NetworkError| e.to_string())
    }
}

pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    let text = One::deserialize(from)?.text();
    text.parse().map(Some).map_err(de::Error::custom)
}

pub(crate) fn networks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Network>, D::Error> {
    let all: Vec<Networks> = several(from)?;
    Ok(all.into_iter().flat_map(|networks| networks.0).collect())
}

/// Rules in the form of `/config`; null where no rule is set.
pub(crate) fn shown(rules: &Rules) -> Value {
    if rules.is_empty() {
        return Value::Null;
    }
    let rate = |rate: &Option<Rate>| rate.map(|rate| rate.to_string());
    let list = |all: &[Network]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
    json!({
        "max-connections": rules.connections,
        "max-per-address": rules.per_address,
        "max-per-prefix": rules.per_prefix,
        "accept-rate": rate(&rules.rate),
        "accept-rate-per-address": rate(&rules.rate_per_address),
        "allow": list(&rules.allow),
        "deny": list(&rules.deny),
        "address-v6": rules.address_v6,
        "prefix-v4": rules.prefix_v4,
        "prefix-v6": rules.prefix_v6,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::sources::in_file;

    fn options(text: &str) -> Result<AdmissionOptions, String> {
        in_file(text).map(|options| options.admission)
    }

    #[test]
    fn what_says_most_of_a_service_counts() {
        let text = "max-connections = [100, 'kv=50', 'kv/resp=20', 'all=1000', 'echo=7', 'echo=8']\n\
                    max-per-address = 5\naccept-rate = ['all=1000', 'kv=600/m:10']\n\
                    deny = ['192.0.2.0/24,192.0.3.0/24', 'kv=10.0.0.0/8', 'all=::1']\n";
        let options = options(text).unwrap();
        let kind = |name: &str| name.parse::<Named>().unwrap().0[0];
        let (resp, echo) = (kind("kv/resp"), kind("echo"));
        let most =
            [resp, kind("kv/binary"), echo, kind("http")].map(|kind| options.connections(kind));
        assert_eq!(most, [Some(20), Some(50), Some(8), Some(100)]);
        let (own, all) = (options.rules_of(resp), options.rules_of_all());
        assert_eq!((own.connections, all.connections), (None, Some(1000)));
        assert_eq!((own.per_address, all.per_address), (Some(5), None));
        assert_eq!(own.rate, Some("600/m:10".parse().unwrap()));
        assert_eq!(all.rate, Some("1000".parse().unwrap()));
        assert_eq!((own.deny.len(), options.rules_of(echo).deny.len()), (4, 3));
        assert!(all.deny.is_empty());
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, said) in [
            ("max-connections = 'gopher=1'", "gopher"),
            ("max-connections = 'many'", "many"),
            ("max-connections = -1", "-1"),
            ("accept-rate = '1/fortnight'", "no rate"),
            ("deny = ['10.0.0.0/8', 'here']", "no network"),
            ("max-per-adress = 1", "max-per-adress"),
        ] {
            let e = options(text).unwrap_err();
            assert!(e.contains(said), "{text}: {e}");
        }
        assert!("kv=".parse::<Scoped<u32>>().is_err());
    }
}
