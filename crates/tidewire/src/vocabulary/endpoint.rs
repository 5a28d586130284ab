//! Where a connection ends: a TCP address, or the name of a Unix socket.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt::{self, Write};
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix};

/// The longest name of a Unix socket, in bytes (`sun_path`, unix(7), less the byte that ends it).
const NAME_MAX: usize = 107;

/// What an error says where no name of a host can be given.
const NO_NAMES: &str = " (names of hosts are not looked up)";

/// One end of a connection, or what a listener is bound to. Cheap to clone.
///
/// | text | means |
/// |---|---|
/// | `127.0.0.1:80`, `[::1]:80` | a TCP address |
/// | `unix:/run/it.sock` | a Unix socket at this path |
/// | `unix:@it` | a Unix socket in Linux's abstract namespace, which has no file |
/// | `unix:` | a Unix socket without a name, as most clients' are |
///
/// ```
/// use tidewire::Endpoint;
///
/// let tcp: Endpoint = "[::1]:80".parse()?;
/// assert_eq!(tcp.port(), Some(80));
/// assert_eq!(tcp, Endpoint::from((std::net::Ipv6Addr::LOCALHOST, 80)));
///
/// let unix: Endpoint = "unix:/run/it.sock".parse()?;
/// assert_eq!(unix, Endpoint::from(std::path::Path::new("/run/it.sock")));
/// assert_eq!(unix.to_string(), "unix:/run/it.sock");
///
/// assert!("localhost".parse::<Endpoint>().unwrap_err().to_string().contains("127.0.0.1:80"));
/// # Ok::<(), tidewire::EndpointError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix stream socket at a path, of at most 107 bytes.
    Unix(Arc<Path>),
    /// A Unix stream socket in the abstract namespace: any bytes, at most 107.
    Abstract(Arc<[u8]>),
    /// A Unix stream socket without a name.
    Unnamed,
}

/// Text, or a path, that names no endpoint.
///
/// ```
/// use tidewire::{Endpoint, EndpointError};
///
/// let error: EndpointError = "127.0.0.1".parse::<Endpoint>().unwrap_err();
/// println!("{error}"); // says what is missing
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct EndpointError {
    what: String,
}

impl EndpointError {
    pub(crate) fn new(what: String) -> EndpointError {
        EndpointError { what }
    }

    /// Where the name of a host could have been given too.
    pub(crate) fn of_target(self) -> EndpointError {
        let what = self
            .what
            .replace(NO_NAMES, " or, for a host, example.org:80");
        EndpointError { what }
    }
}

impl Endpoint {
    /// The TCP address, if the endpoint is one.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Endpoint::Tcp(addr) => Some(*addr),
            _ => None,
        }
    }

    /// The TCP port, if the endpoint is a TCP address.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.tcp().map(|addr| addr.port())
    }

    /// The IP address, if the endpoint is a TCP address.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.tcp().map(|addr| addr.ip())
    }

    /// The path, if the endpoint is a Unix socket with a path.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Endpoint::Unix(path) => Some(path),
            _ => None,
        }
    }

    /// Whether the endpoint is a TCP address.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        matches!(self, Endpoint::Tcp(_))
    }

    /// Whether the endpoint is a Unix socket, with a name or without.
    ///
    /// ```
    /// use std::path::Path;
    /// use tidewire::Endpoint;
    ///
    /// let tcp = Endpoint::from(([127, 0, 0, 1], 80));
    /// assert!(tcp.is_tcp() && !tcp.is_unix());
    /// assert_eq!(tcp.tcp().map(|addr| addr.ip()), tcp.ip());
    /// let unix: Endpoint = "unix:/run/it.sock".parse()?;
    /// assert_eq!((unix.path(), unix.ip()), (Some(Path::new("/run/it.sock")), None));
    /// # Ok::<(), tidewire::EndpointError>(())
    /// ```
    #[must_use]
    pub fn is_unix(&self) -> bool {
        !self.is_tcp()
    }

    /// Says why a Unix socket cannot have this name.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        let (len, nul) = match self {
            Endpoint::Unix(path) => {
                let bytes = path.as_os_str().as_bytes();
                (bytes.len(), bytes.contains(&0))
            }
            Endpoint::Abstract(name) => (name.len(), false),
            Endpoint::Tcp(_) | Endpoint::Unnamed => return Ok(()),
        };
        if len > NAME_MAX {
            let what = format!(
                "{self} is too long for a Unix socket: {len} bytes where {NAME_MAX} fit; use a \
                 shorter path, perhaps through a link or a relative one"
            );
            return Err(EndpointError::new(what));
        }
        if len == 0 || nul {
            let what = format!("{self} is no name for a Unix socket: empty, or with a zero byte");
            return Err(EndpointError::new(what));
        }
        Ok(())
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(addr) => addr.fmt(f),
            // A relative path that begins like an abstract name.
            Endpoint::Unix(path) if path.as_os_str().as_bytes().starts_with(b"@") => {
                write!(f, "unix:./{}", path.display())
            }
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Abstract(name) => {
                f.write_str("unix:@")?;
                for piece in name.utf8_chunks() {
                    for c in piece.valid().chars() {
                        if c.is_control() {
                            write!(f, "{}", c.escape_default())?;
                        } else {
                            f.write_char(c)?;
                        }
                    }
                    for byte in piece.invalid() {
                        write!(f, "\\x{byte:02x}")?;
                    }
                }
                Ok(())
            }
            Endpoint::Unnamed => f.write_str("unix:"),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let endpoint = match text.strip_prefix("unix:") {
            Some("") => Endpoint::Unnamed,
            Some(name) => match name.strip_prefix('@') {
                Some(name) => Endpoint::Abstract(name.as_bytes().into()),
                None => Endpoint::from(Path::new(name)),
            },
            None => match text.parse().ok().or_else(|| scoped(text)) {
                Some(addr) => Endpoint::Tcp(addr),
                None => {
                    let what = format!(
                        "{text:?} is no endpoint: write it like 127.0.0.1:80, [::1]:80, \
                         [fe80::1%eth0]:80, \
                         unix:/run/it.sock or unix:@it{NO_NAMES}"
                    );
                    return Err(EndpointError::new(what));
                }
            },
        };
        endpoint.check()?;
        Ok(endpoint)
    }
}

/// An address of this interface, by its name: `[fe80::1%eth0]:80`. The standard library knows numbers only.
fn scoped(text: &str) -> Option<SocketAddr> {
    let (addr, rest) = text.strip_prefix('[')?.split_once('%')?;
    let (name, port) = rest.split_once("]:")?;
    if name.contains('/') {
        return None;
    }
    let index = std::fs::read_to_string(Path::new("/sys/class/net").join(name).join("ifindex"));
    let scope = index.ok()?.trim().parse().ok()?;
    let addr = SocketAddrV6::new(addr.parse().ok()?, port.parse().ok()?, 0, scope);
    Some(addr.into())
}

// ---- What is taken for an endpoint ----

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Endpoint {
        Endpoint::Tcp(addr)
    }
}

impl From<SocketAddrV4> for Endpoint {
    fn from(addr: SocketAddrV4) -> Endpoint {
        Endpoint::Tcp(addr.into())
    }
}

impl From<SocketAddrV6> for Endpoint {
    fn from(addr: SocketAddrV6) -> Endpoint {
        Endpoint::Tcp(addr.into())
    }
}

/// An IP address, in any of its forms, and a port.
impl<I: Into<IpAddr>> From<(I, u16)> for Endpoint {
    fn from(addr: (I, u16)) -> Endpoint {
        Endpoint::Tcp(addr.into())
    }
}

impl From<&Path> for Endpoint {
    fn from(path: &Path) -> Endpoint {
        Endpoint::Unix(path.into())
    }
}

impl From<PathBuf> for Endpoint {
    fn from(path: PathBuf) -> Endpoint {
        Endpoint::Unix(path.into())
    }
}

impl From<&PathBuf> for Endpoint {
    fn from(path: &PathBuf) -> Endpoint {
        Endpoint::from(path.as_path())
    }
}

impl From<&Endpoint> for Endpoint {
    fn from(endpoint: &Endpoint) -> Endpoint {
        endpoint.clone()
    }
}

impl TryFrom<&str> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: &str) -> Result<Endpoint, EndpointError> {
        text.parse()
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Endpoint, EndpointError> {
        text.parse()
    }
}

impl TryFrom<&String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: &String) -> Result<Endpoint, EndpointError> {
        text.parse()
    }
}

impl From<Infallible> for EndpointError {
    fn from(never: Infallible) -> EndpointError {
        match never {}
    }
}

impl From<EndpointError> for io::Error {
    fn from(e: EndpointError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, e)
    }
}

/// For `TcpStream::connect` and similar functions; an error for Unix sockets.
impl ToSocketAddrs for Endpoint {
    type Iter = std::option::IntoIter<SocketAddr>;

    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        match self {
            Endpoint::Tcp(addr) => Ok(Some(*addr).into_iter()),
            other => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{other} is not a TCP address"),
            )),
        }
    }
}

// ---- Sockets ----

impl Endpoint {
    /// Where a socket is bound: one that a service manager has passed on, say.
    ///
    /// # Errors
    /// The descriptor is no socket, or neither TCP's nor a Unix one.
    ///
    /// ```
    /// use tidewire::Endpoint;
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// assert_eq!(Endpoint::of_socket(&listener)?, Endpoint::from(listener.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn of_socket(socket: &impl AsFd) -> io::Result<Endpoint> {
        let bound = rustix::net::getsockname(socket)?;
        Endpoint::from_kernel(bound).ok_or_else(|| {
            let what = "the inherited socket is neither TCP nor a Unix socket";
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })
    }

    /// Converts the kernel's address of a socket's end.
    pub(crate) fn from_kernel(addr: SocketAddrAny) -> Option<Endpoint> {
        if addr.address_family() != AddressFamily::UNIX {
            return SocketAddr::try_from(addr).ok().map(Endpoint::Tcp);
        }
        let unix = SocketAddrUnix::try_from(addr).ok()?;
        // An empty one is what the kernel gives to sockets without a name.
        if let Some(name) = unix.abstract_name().filter(|name| !name.is_empty()) {
            return Some(Endpoint::Abstract(name.into()));
        }
        let path: Option<Cow<'_, std::ffi::CStr>> = unix.path();
        Some(match path {
            Some(path) => Endpoint::Unix(Path::new(OsStr::from_bytes(path.to_bytes())).into()),
            None => Endpoint::Unnamed,
        })
    }

    /// Converts an endpoint to the form that the kernel takes.
    pub(crate) fn to_kernel(&self) -> io::Result<SocketAddrAny> {
        self.check()?;
        Ok(match self {
            Endpoint::Tcp(addr) => (*addr).into(),
            Endpoint::Unix(path) => SocketAddrUnix::new(&**path)?.into(),
            Endpoint::Abstract(name) => SocketAddrUnix::new_abstract_name(name)?.into(),
            Endpoint::Unnamed => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "a Unix socket without a name cannot be reached or bound",
                ));
            }
        })
    }

    pub(crate) fn family(&self) -> AddressFamily {
        match self {
            Endpoint::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Endpoint::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
            _ => AddressFamily::UNIX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for text in [
            "127.0.0.1:80",
            "[::1]:0",
            "unix:/run/a b.sock",
            "unix:relative",
            "unix:./@odd",
            "unix:@name",
            "unix:@with space",
            "unix:",
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        }
        let odd = Endpoint::from(Path::new("@odd"));
        assert_eq!(odd.to_string(), "unix:./@odd");
        let bytes = Endpoint::Abstract(Arc::from(*b"a\0\xff"));
        assert_eq!(bytes.to_string(), "unix:@a\\u{0}\\xff");
    }

    #[test]
    fn an_interface_is_known_by_its_name() {
        let endpoint: Endpoint = "[::1%lo]:80".parse().unwrap();
        let number = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap();
        let same = format!("[::1%{}]:80", number.trim()).parse();
        assert_eq!(Ok(endpoint), same);
        for text in [
            "[::1%no such one]:80",
            "[::1%../lo]:80",
            "[::1%lo]",
            "[127.0.0.1%lo]:80",
            "[::1%]:80",
        ] {
            assert!(text.parse::<Endpoint>().is_err(), "{text}");
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        let wrong = |text: &str| text.parse::<Endpoint>().unwrap_err().to_string();
        for text in ["", "localhost:80", "127.0.0.1", "80", "/run/it.sock"] {
            assert!(wrong(text).contains("unix:/run/it.sock"), "{text}");
        }
        assert!(wrong(&format!("unix:/{}", "x".repeat(107))).contains("108 bytes where 107 fit"));
        assert!(wrong("unix:@").contains("empty"));
        assert!(wrong("unix:a\0b").contains("zero byte"));
    }

    #[test]
    fn is_as_small_as_an_address() {
        assert_eq!(size_of::<Endpoint>(), size_of::<SocketAddr>());
    }

    #[test]
    fn the_kernel_and_back() {
        for text in ["127.0.0.1:80", "[::1]:9", "unix:/run/x", "unix:@name"] {
            let endpoint: Endpoint = text.parse().unwrap();
            let kernel = endpoint.to_kernel().unwrap();
            assert_eq!(Endpoint::from_kernel(kernel), Some(endpoint));
        }
        assert!(Endpoint::Unnamed.to_kernel().is_err());
    }
}
