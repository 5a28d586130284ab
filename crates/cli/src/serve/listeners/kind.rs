//! The services, by name. The list of products says once which kinds there are.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// A service, as it is named on the command line, in metrics and to successors.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// One at least.
    pub(crate) modes: &'static [Mode],
    /// Served where no service is named.
    pub(crate) is_default: bool,
    /// The service's clients send messages, which the log of messages may keep.
    pub(crate) takes_messages: bool,
    /// The service speaks HTTP, as clients of TLS may ask.
    pub(crate) is_http: bool,
    /// The environment variable with the secret of this service's clients. Behind it with `-file` comes the flag that
    /// names a file.
    pub(crate) secret: Option<&'static str>,
}

/// A protocol of a service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    pub(crate) name: Option<&'static str>,
    /// The ports that clients in the field expect.
    pub(crate) ports: &'static [u16],
}

impl Service {
    /// A service that is served only when it is named.
    pub(crate) const fn new(name: &'static str, modes: &'static [Mode]) -> Service {
        Service {
            name,
            modes,
            is_default: false,
            takes_messages: false,
            is_http: false,
            secret: None,
        }
    }

    /// The service's mode of this number.
    pub(crate) fn kind(&'static self, mode: usize) -> Kind {
        Kind {
            service: self,
            mode: &self.modes[mode],
        }
    }

    /// All modes of the service.
    pub(crate) fn kinds(&'static self) -> impl Iterator<Item = Kind> {
        (0..self.modes.len()).map(|mode| self.kind(mode))
    }
}

/// A service in one of its modes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) service: &'static Service,
    mode: &'static Mode,
}

impl Kind {
    pub(crate) fn mode(self) -> Option<&'static str> {
        self.mode.name
    }

    pub(crate) fn ports(self) -> &'static [u16] {
        self.mode.ports
    }
}

/// The service's name, with its mode if the service has several.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.service.name)?;
        match self.mode() {
            Some(mode) if self.service.modes.len() > 1 => write!(f, "/{mode}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

static SERVICES: OnceLock<Vec<&'static Service>> = OnceLock::new();

/// Says which services there are, in the order of lists; the first call counts.
pub(crate) fn there_are(services: impl Iterator<Item = &'static Service>) {
    SERVICES.get_or_init(|| services.collect());
}

/// All services.
pub(crate) fn services() -> impl Iterator<Item = &'static Service> {
    #[cfg(test)]
    tests::list_products();
    let all = SERVICES.get().expect("the list of products was installed");
    all.iter().copied()
}

/// Names as in a sentence.
pub(crate) fn in_words<'a>(names: impl Iterator<Item = &'a str>, last: &str) -> String {
    let names: Vec<&str> = names.collect();
    match &names[..] {
        [before @ .., end] if !before.is_empty() => {
            format!("{} {last} {end}", before.join(", "))
        }
        _ => names.concat(),
    }
}

/// A service as named on the command line: `echo`, `ack` (all its modes), `ack/sync`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named(pub(crate) Vec<Kind>);

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Named, String> {
        let (name, mode) = match text.split_once('/') {
            Some((name, mode)) => (name, Some(mode)),
            None => (text, None),
        };
        let Some(service) = services().find(|service| service.name == name) else {
            let names = in_words(services().map(|service| service.name), "or");
            return Err(format!("no service is called {name:?}: {names}"));
        };
        let Some(mode) = mode else {
            return Ok(Named(service.kinds().collect()));
        };
        let mut kinds = service.kinds();
        match kinds.find(|kind| kind.mode() == Some(mode)) {
            Some(kind) => Ok(Named(vec![kind])),
            None if service.modes.len() > 1 => {
                let modes = service.modes.iter().filter_map(|mode| mode.name);
                let modes = in_words(modes, "or");
                Err(format!("{name} has no mode {mode:?}: {modes}"))
            }
            None => {
                let several = services().filter(|service| service.modes.len() > 1);
                let several = in_words(several.map(|service| service.name), "and");
                Err(format!("only {several} have modes, not {name:?}"))
            }
        }
    }
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0[..] {
            [kind] => kind.fmt(f),
            _ => f.write_str(self.0[0].service.name),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    /// Lists the products for tests, which have no `main` that lists them.
    pub(crate) fn list_products() {
        crate::serve::products::install();
    }
}
