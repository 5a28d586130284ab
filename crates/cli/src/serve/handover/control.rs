//! Where a successor asks for the listeners: the control socket of `serve`.

use std::env;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidewire_handover::{Control, Handed};

use crate::exit::Failure;

/// Default name of the control socket.
const NAME: &str = "tidewire.sock";

/// Where the control socket is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlAt {
    Off,
    Path(PathBuf),
}

impl FromStr for ControlAt {
    type Err = String;

    fn from_str(text: &str) -> Result<ControlAt, String> {
        match text {
            "" => Err("a path, or off".into()),
            "off" => Ok(ControlAt::Off),
            path => Ok(ControlAt::Path(
                path.strip_prefix("unix:").unwrap_or(path).into(),
            )),
        }
    }
}

impl fmt::Display for ControlAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlAt::Off => f.write_str("off"),
            ControlAt::Path(path) => path.display().fmt(f),
        }
    }
}

/// The default place: in the directory that the service manager or the session gives to programs
/// that run, else, for root alone, in the machine's. `None` where no such directory exists.
fn default_path() -> Option<PathBuf> {
    let given = |name| {
        let value = env::var_os(name).filter(|value| !value.is_empty())?;
        // A service manager may name several, with colons in between.
        env::split_paths(&value).next()
    };
    let directory = given("RUNTIME_DIRECTORY").or_else(|| given("XDG_RUNTIME_DIR"));
    let roots = || {
        let is_root = rustix::process::geteuid().is_root();
        is_root.then(|| PathBuf::from("/run"))
    };
    directory
        .or_else(roots)
        .map(|directory| directory.join(NAME))
}

/// The path that a successor asks at.
pub(crate) fn path(asked: Option<&ControlAt>) -> Result<PathBuf, Failure> {
    match asked {
        Some(ControlAt::Off) => Err(Failure::usage(
            "--takeover with --control off: name the running server's socket with --control PATH",
        )),
        Some(ControlAt::Path(path)) => Ok(path.clone()),
        None => default_path().ok_or_else(|| {
            Failure::usage(
                "--takeover: neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR says where control sockets \
                 are; name that of the running server with --control PATH",
            )
        }),
    }
}

/// Listens on the control socket, unless it is off; continues with a socket that a predecessor has handed over.
/// If the default socket cannot be made, the server starts without it; a socket that a flag names must work.
pub(crate) fn open(
    asked: Option<&ControlAt>,
    handed: Option<Handed>,
) -> Result<Option<Control>, Failure> {
    if let Some(handed) = handed {
        let inherited = Control::inherit(handed);
        return inherited
            .map(Some)
            .map_err(|e| Failure::failed(format!("the control socket that was handed over: {e}")));
    }
    let path = match asked {
        Some(ControlAt::Off) => return Ok(None),
        Some(ControlAt::Path(path)) => Some(path.clone()),
        None => default_path(),
    };
    let Some(path) = path else { return Ok(None) };
    match Control::listen(&path) {
        Ok(control) => Ok(Some(control)),
        Err(e) if asked.is_none() => {
            left_out(&path, &e);
            Ok(None)
        }
        Err(e) => Err(Failure::failed(format!(
            "the control socket {}: {e}; --control chooses another path, or none (off)",
            path.display()
        ))),
    }
}

fn left_out(path: &Path, error: &io::Error) {
    let path = path.display();
    if error.kind() == io::ErrorKind::AddrInUse {
        tracing::warn!(
            %path, %error,
            "no control socket, so no successor can take over: --control PATH chooses another, --control \
             off does without"
        );
    } else {
        tracing::info!(%path, %error, "no control socket: --control PATH chooses another");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_or_without_its_scheme_or_off() {
        let path = |text: &str| ControlAt::Path(text.into());
        assert_eq!("off".parse(), Ok(ControlAt::Off));
        assert_eq!("/run/a.sock".parse(), Ok(path("/run/a.sock")));
        assert_eq!("unix:/run/a.sock".parse(), Ok(path("/run/a.sock")));
        assert!("".parse::<ControlAt>().is_err());
    }
}
