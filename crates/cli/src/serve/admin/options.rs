//! The settings of the admin listener.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use tidewire::Endpoint;
use tidewire_admin::Token;

use crate::exit::Failure;
use crate::host::HostPort;
use crate::secret::Secret;
use crate::serve::listeners::tls::{Front, TlsOptions};
use crate::serve::settings::defaults::with_default;
use crate::serve::settings::given::Need;

/// The port, if none is given.
const PORT: u16 = 7480;

/// Default port of the admin listener.
pub(crate) fn default_place() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, PORT))
}

/// Settings of the admin listener.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct AdminOptions {
    /// Serves metrics, health and a dashboard over HTTP at IP:PORT, HOST:PORT, PORT on this host, or a Unix socket
    /// (unix:/PATH); off does not.
    #[arg(long, value_name = "ADDR",
          help = with_default("Serves metrics, health and a dashboard over HTTP at IP:PORT, HOST:PORT, PORT on this host, or \
                               a Unix socket (unix:/PATH); off does not. The default is left out, with a warning, where \
                               its port is taken. tls: or plain: in front says what is spoken there; else TLS where \
                               --tls-cert is given and other hosts reach it", default_place()))]
    pub(crate) admin: Option<At>,

    /// A file whose one line clients must show, as a bearer token or as the password of a
    /// browser's prompt; the environment's TIDEWIRE_ADMIN_TOKEN does too. Without one nothing can be
    /// changed, and only this host is served [default: none]
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// A name under which the admin listener is reached, beside addresses and localhost; may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) admin_host: Vec<String>,

    /// The token in the environment; not a flag, which other users could see.
    #[arg(skip)]
    pub(crate) token: Option<Secret>,

    /// A certificate of its own, in PEM form; the admin listener speaks TLS then [default: --tls-cert]
    #[arg(id = "admin_tls_cert", long = "admin-tls-cert", value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of --admin-tls-cert, in PEM form [default: --tls-key]
    #[arg(id = "admin_tls_key", long = "admin-tls-key", value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Authorities, in PEM form: clients must show a certificate of one of them [default: --tls-client-ca]
    #[arg(
        id = "admin_tls_client_ca",
        long = "admin-tls-client-ca",
        value_name = "FILE"
    )]
    pub(crate) tls_client_ca: Option<PathBuf>,
}

impl AdminOptions {
    /// The condition under which a flag of this name has an effect.
    pub(crate) fn need(flag: &str) -> Option<Need> {
        (flag != "admin").then_some(Need::Admin)
    }

    /// Takes the token that the environment holds, if no flag says where it is.
    pub(crate) fn take_secret(&mut self) -> Result<(), Failure> {
        if self.admin_token_file.is_none() {
            self.token = Secret::from_environment("TIDEWIRE_ADMIN_TOKEN")?;
        }
        Ok(())
    }

    /// Finds the address of the listener's host, if the host was given by name.
    pub(crate) fn look_up(&mut self) -> Result<(), String> {
        if let Some(At::Host { at, tls }) = &self.admin {
            let (first, tls) = (at.here()?[0], *tls);
            let place = first.into();
            self.admin = Some(At::Place { place, tls });
        }
        Ok(())
    }

    pub(crate) fn is_off(&self) -> bool {
        self.admin == Some(At::Off)
    }

    pub(crate) fn has_token(&self) -> bool {
        self.admin_token_file.is_some() || self.token.is_some()
    }

    /// The token, of a file if one is named.
    pub(crate) fn token(&self) -> Result<Option<Token>, Failure> {
        let secret = match (&self.token, &self.admin_token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(Secret::from_file(path)?),
            (None, None) => None,
        };
        Ok(secret.map(|secret| Token::new(&secret.into_text())))
    }

    fn own_files(&self) -> TlsOptions {
        TlsOptions {
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
            client_ca: self.tls_client_ca.clone(),
        }
    }

    /// The layers in front of the admin listener; `tls` are the settings for all listeners.
    pub(crate) fn front(&self, tls: &TlsOptions) -> Result<Front, Failure> {
        let own = self.own_files();
        let (said, beyond) = match &self.admin {
            None | Some(At::Host { .. }) => (None, false),
            Some(At::Off) => return Ok(Front::default()),
            Some(At::Place { place, tls }) => (*tls, reaches_beyond(place)),
        };
        if said == Some(false) && own.is_some() {
            return Err(Failure::usage("[admin]: TLS files for a plain listener"));
        }
        let wanted = said.unwrap_or(own.is_some() || beyond);
        let files = own.over(tls.clone()).files()?;
        if said == Some(true) && files.is_none() {
            return Err(Failure::usage(
                "--admin tls:...: add --tls-cert and --tls-key",
            ));
        }
        Ok(Front::of_admin(files.filter(|_| wanted)))
    }
}

/// Where the admin listener is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Off,
    Place {
        place: Endpoint,
        /// Whether TLS is spoken there, if that is said.
        tls: Option<bool>,
    },
    /// At the first address of a host that can be listened to.
    Host {
        at: HostPort,
        tls: Option<bool>,
    },
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        if text == "off" {
            return Ok(At::Off);
        }
        let (tls, text) = match text.split_once(':') {
            Some(("tls", text)) => (Some(true), text),
            Some(("plain", text)) => (Some(false), text),
            _ => (None, text),
        };
        let place = match (text.parse::<u16>(), text.parse()) {
            (Ok(port), _) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into(),
            (_, Ok(at)) => return Ok(At::Host { at, tls }),
            _ => text.parse().map_err(|e| {
                format!("{e}; [tls:|plain:] IP:PORT, HOST:PORT, PORT, unix:/PATH; or off")
            })?,
        };
        Ok(At::Place { place, tls })
    }
}

/// Whether other hosts may reach a listener at this place.
pub(crate) fn reaches_beyond(place: &Endpoint) -> bool {
    place
        .ip()
        .is_some_and(|ip| !ip.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::settings::defaults;

    fn shown(options: &AdminOptions) -> String {
        match options.admin.as_ref().unwrap() {
            At::Off => "off".into(),
            At::Place { place, .. } => place.to_string(),
            At::Host { at, .. } => at.to_string(),
        }
    }

    #[test]
    fn places_are_addresses_ports_sockets_or_off() {
        for (text, expected) in [
            ("off", "off"),
            ("7000", "127.0.0.1:7000"),
            ("0.0.0.0:7480", "0.0.0.0:7480"),
            ("[::1]:1", "[::1]:1"),
            ("unix:/run/tidewire-admin", "unix:/run/tidewire-admin"),
            ("tls:7000", "127.0.0.1:7000"),
            ("plain:0.0.0.0:7480", "0.0.0.0:7480"),
            ("tls:unix:/run/a", "unix:/run/a"),
            ("tls:it.example:7480", "it.example:7480"),
        ] {
            let options = AdminOptions {
                admin: Some(text.parse().unwrap()),
                ..defaults::of()
            };
            assert_eq!(shown(&options), expected);
        }
        for wrong in ["", "on", "70000", "127.0.0.1", "tls:", "tls:off"] {
            assert!(wrong.parse::<At>().is_err(), "{wrong}");
        }
    }
}
