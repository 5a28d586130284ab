//! The admin listener of `serve`: where it is, who may ask it, and what it shows.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;
use serde::de::{self, Deserializer};
use tidewire::{Endpoint, Listen, StartError};
use tidewire_admin::catalogue::admin as metrics;
use tidewire_admin::{Admin, Levels, Panel, Token};

use super::settings::Settings;
use crate::exit::Failure;
use crate::logging::{self, Logging};
use crate::secret::{self, Secret};

/// Where it is if nobody says.
const PORT: u16 = 7480;

/// Settings of the admin listener; in the file the table `[admin]`, without `admin-`, and `addr`.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct AdminOptions {
    /// Serves metrics, health and a dashboard over HTTP at IP:PORT, PORT on this host, or a Unix socket
    /// (unix:/PATH); off does not. The default is left out, with a warning, where its port is taken
    /// [default: 127.0.0.1:7480]
    #[arg(long, value_name = "ADDR")]
    #[serde(rename = "addr", alias = "admin")]
    pub(crate) admin: Option<At>,

    /// A file whose one line must be shown by those who ask, as a bearer token or as the password of a
    /// browser's prompt; the environment's TIDEWIRE_ADMIN_TOKEN does too. Without one nothing can be
    /// changed, and only this host is served [default: none]
    #[arg(long, value_name = "FILE")]
    #[serde(rename = "token-file", alias = "admin-token-file")]
    pub(crate) admin_token_file: Option<PathBuf>,

    /// A name under which the admin listener is reached, beside addresses and localhost; may be repeated
    #[arg(long, value_name = "NAME")]
    #[serde(rename = "host", alias = "admin-host")]
    pub(crate) admin_host: Vec<String>,

    /// The same in the environment; no flag, which others could see.
    #[arg(skip)]
    #[serde(skip)]
    pub(crate) token: Option<Secret>,
}

impl AdminOptions {
    /// Takes the token that the environment holds, if no flag says where it is.
    pub(crate) fn take_secret(&mut self) -> Result<(), Failure> {
        if self.admin_token_file.is_none() {
            self.token = Secret::from_environment("TIDEWIRE_ADMIN_TOKEN")?;
        }
        Ok(())
    }

    pub(crate) fn has_token(&self) -> bool {
        self.admin_token_file.is_some() || self.token.is_some()
    }

    fn token(&self) -> Result<Option<Token>, Failure> {
        let secret = match (&self.token, &self.admin_token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => Some(Secret::from_file(path)?),
            (None, None) => None,
        };
        Ok(secret.map(|secret| Token::new(&secret.into_text())))
    }

    /// These, and where one is absent, that of `base`.
    pub(crate) fn over(self, base: AdminOptions) -> AdminOptions {
        // One secret, whichever way it is given.
        let secret = match self.has_token() {
            true => (self.admin_token_file, self.token),
            false => (base.admin_token_file, base.token),
        };
        AdminOptions {
            admin: self.admin.or(base.admin),
            admin_token_file: secret.0,
            token: secret.1,
            admin_host: match self.admin_host.is_empty() {
                true => base.admin_host,
                false => self.admin_host,
            },
        }
    }

    /// Where it is asked for, as `--admin` takes it.
    pub(crate) fn shown(&self) -> String {
        match &self.admin {
            None => format!("127.0.0.1:{PORT}"),
            Some(At::Off) => "off".into(),
            Some(At::Place(place)) => place.to_string(),
        }
    }
}

/// Where the admin listener is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Off,
    Place(Endpoint),
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        if text == "off" {
            return Ok(At::Off);
        }
        if let Ok(port) = text.parse::<u16>() {
            return Ok(At::Place(
                SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into(),
            ));
        }
        let place = text.parse().map(At::Place);
        place.map_err(|e| format!("{e}; IP:PORT, PORT, unix:/PATH or off"))
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<At, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(de::Error::custom)
    }
}

struct OfLogging(logging::Levels);

impl Levels for OfLogging {
    fn shown(&self) -> String {
        self.0.shown()
    }

    fn set(&self, filter: &str) -> Result<(), String> {
        self.0.set(filter)
    }
}

/// What is to be seen of a server with these settings.
pub(crate) fn panel(settings: &Settings, logging: &Logging) -> Panel {
    let panel = Panel::new(settings.shown());
    panel.set_levels(OfLogging(logging.levels()));
    let counts = logging.counts();
    panel.add(move |to| {
        let counts = counts();
        to.add(&metrics::LOG_LINES, &[], counts.lines);
        to.add(&metrics::LOG_LINES_DROPPED, &[], counts.dropped);
        to.add(&metrics::LOG_WRITES_FAILED, &[], counts.failed);
    });
    panel
}

/// Starts the listener, unless it is off, or its default address is taken.
pub(crate) fn start(
    options: &AdminOptions,
    panel: &Panel,
    inherited: Option<(Endpoint, Listen)>,
) -> Result<Option<Admin>, Failure> {
    let (place, asked) = match &options.admin {
        Some(At::Off) => return Ok(None),
        Some(At::Place(place)) => (place.clone(), true),
        None => {
            let default = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
            (default.into(), false)
        }
    };
    // What is asked for at another place moves, as this is no service.
    let same = |at: &Endpoint| *at == place || (place.port() == Some(0) && at.ip() == place.ip());
    let (place, listen) = match inherited {
        Some((at, listen)) if !asked || same(&at) => (at, listen),
        _ => (place.clone(), Listen::at(&place)),
    };
    let token = options.token()?;
    let beyond = place
        .ip()
        .is_some_and(|ip| !ip.to_canonical().is_loopback());
    if beyond && token.is_none() {
        return Err(Failure::usage(format!(
            "--admin {place}: other hosts reach it, and it asks nobody for a secret: add \
             --admin-token-file FILE, or listen on 127.0.0.1"
        )));
    }
    if let Some(path) = &options.admin_token_file
        && secret::is_exposed(path)
    {
        tracing::warn!(file = %path.display(), "others may read this secret: chmod 600");
    }
    match Admin::start(listen, panel, token, options.admin_host.clone()) {
        Ok(admin) => Ok(Some(admin)),
        Err(StartError::Listen { addr, source })
            if !asked && source.kind() == io::ErrorKind::AddrInUse =>
        {
            tracing::warn!(
                addr,
                "no admin listener: its default address is taken; --admin ADDR chooses another, \
                 --admin off says that none is meant"
            );
            Ok(None)
        }
        Err(e) => Err(Failure::usage(format!(
            "the admin listener: {e}; --admin chooses another address, or none (off)"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_a_table() {
        let text = "addr = '127.0.0.1:0'\ntoken-file = 't'\nhost = ['a', 'b']\n";
        let options: AdminOptions = toml::from_str(text).unwrap();
        assert_eq!(options.shown(), "127.0.0.1:0");
        assert_eq!(options.admin_host, ["a", "b"]);
        assert!(options.has_token());
        assert!(
            toml::from_str::<AdminOptions>("token = 'x'").is_err(),
            "not in the file"
        );
    }

    #[test]
    fn places_are_addresses_ports_sockets_or_off() {
        for (text, shown) in [
            ("off", "off"),
            ("7000", "127.0.0.1:7000"),
            ("0.0.0.0:7480", "0.0.0.0:7480"),
            ("[::1]:1", "[::1]:1"),
            ("unix:/run/tidewire-admin", "unix:/run/tidewire-admin"),
        ] {
            let options = AdminOptions {
                admin: Some(text.parse().unwrap()),
                ..AdminOptions::default()
            };
            assert_eq!(options.shown(), shown);
        }
        for wrong in ["", "on", "70000", "127.0.0.1"] {
            assert!(wrong.parse::<At>().is_err(), "{wrong}");
        }
    }
}
