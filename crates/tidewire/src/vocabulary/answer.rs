//! What a resolver has said of a name.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Why a name has no addresses. Told to each dial that waits for them.
#[derive(Clone, Debug)]
pub(crate) struct NotFound {
    kind: io::ErrorKind,
    what: Arc<str>,
}

impl From<io::Error> for NotFound {
    fn from(e: io::Error) -> NotFound {
        NotFound {
            kind: e.kind(),
            what: e.to_string().into(),
        }
    }
}

impl NotFound {
    /// The error of a dial to this name.
    pub(crate) fn of(&self, name: &str) -> io::Error {
        let what = format!("cannot find an address of {name}: {}", self.what);
        io::Error::new(self.kind, what)
    }
}

/// All addresses of a name, and for how long they may be kept.
#[derive(Clone, Debug)]
pub(crate) struct Keep {
    pub(crate) addresses: Arc<[IpAddr]>,
    pub(crate) time: Duration,
}

/// An answer, or a part of one, on its way to a dial.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The dial's id on its loop, as bits.
    pub(crate) dial: u64,
    pub(crate) name: Arc<str>,
    /// The found addresses, or why there are none.
    pub(crate) found: Result<Arc<[IpAddr]>, NotFound>,
    /// No more come.
    pub(crate) is_last: bool,
    pub(crate) keep: Option<Keep>,
}
