//! Hosts by name or by address. A name is looked up once, when the command starts.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::Duration;

/// An IP address, or the name of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name, not yet looked up.
    Name(String),
}

/// A host by its name, and a port. An IP address is not taken for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Host, String> {
        match text.parse() {
            Ok(ip) => Ok(Host::Ip(ip)),
            Err(_) if is_name(text) => Ok(Host::Name(text.to_owned())),
            Err(_) => Err(format!("{text:?} is neither an IP address nor a host")),
        }
    }
}

impl Host {
    /// Addresses of the host that can be listened to here.
    pub fn here(&self) -> Result<Vec<IpAddr>, String> {
        match self {
            Host::Ip(ip) => Ok(vec![*ip]),
            Host::Name(host) => {
                let all = HostPort {
                    host: host.clone(),
                    port: 0,
                };
                Ok(all.here()?.iter().map(SocketAddr::ip).collect())
            }
        }
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPort, String> {
        let wrong = || format!("{text:?} is not HOST:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        match port.parse() {
            // A text with this beginning is a Unix socket.
            Ok(port) if is_name(host) && host != "unix" => Ok(HostPort {
                host: host.to_owned(),
                port,
            }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl HostPort {
    /// All its addresses, at least one.
    fn look_up(&self) -> Result<Vec<SocketAddr>, String> {
        let found = (&*self.host, self.port).to_socket_addrs();
        let found = found.map_err(|e| {
            let e = e.to_string();
            // The caller says what was attempted.
            let why = e.rsplit(": ").next().unwrap_or(&e);
            format!("cannot find the host {}: {why}", self.host)
        })?;
        let mut all: Vec<SocketAddr> = Vec::new();
        for addr in found {
            if !all.contains(&addr) {
                all.push(addr);
            }
        }
        match all.is_empty() {
            true => Err(format!("the host {} has no address", self.host)),
            false => Ok(all),
        }
    }

    /// Addresses that can be listened to. Of a name such as localhost, addresses of a protocol that
    /// this machine does not have are left out.
    pub fn here(&self) -> Result<Vec<SocketAddr>, String> {
        let all = self.look_up()?;
        let mut last = None;
        let mut own = |addr: &SocketAddr| match TcpListener::bind((addr.ip(), 0)) {
            Err(e) if is_elsewhere(&e) => {
                last = Some(e);
                false
            }
            _ => true,
        };
        let here: Vec<SocketAddr> = all.into_iter().filter(|addr| own(addr)).collect();
        match last {
            Some(e) if here.is_empty() => Err(format!(
                "the host {} has no address of this machine: {e}",
                self.host
            )),
            _ => Ok(here),
        }
    }

    /// The first address at which a server accepts; if none accepts, the first address.
    fn there(&self) -> Result<SocketAddr, String> {
        let all = self.look_up()?;
        let accepts = |addr: &&SocketAddr| TcpStream::connect_timeout(addr, CONNECT).is_ok();
        let found = all.iter().find(accepts);
        Ok(*found.unwrap_or(&all[0]))
    }
}

/// How long an address of several has to accept.
const CONNECT: Duration = Duration::from_secs(2);

/// Where a server is: `IP:PORT`, or `HOST:PORT`, which is looked up.
pub fn server(text: &str) -> Result<SocketAddr, String> {
    match text.parse() {
        Ok(addr) => Ok(addr),
        Err(_) => {
            let host: Result<HostPort, _> = text.parse();
            let host = host.map_err(|_| format!("{text:?} is neither IP:PORT nor HOST:PORT"))?;
            host.there()
        }
    }
}

/// All addresses where a server may come to be: of a name, all its addresses.
pub fn servers(text: &str) -> Result<Vec<SocketAddr>, String> {
    match text.parse() {
        Ok(addr) => Ok(vec![addr]),
        Err(_) => {
            let host: Result<HostPort, _> = text.parse();
            let host = host.map_err(|_| format!("{text:?} is neither IP:PORT nor HOST:PORT"))?;
            host.look_up()
        }
    }
}

fn is_elsewhere(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let no_family = e.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
    no_family || e.kind() == io::ErrorKind::AddrNotAvailable
}

/// Whether it can be the name of a host: labels of letters, digits, - and _, and not all of them numbers.
fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(fits) && !label.starts_with('-')
    };
    let text = text.strip_suffix('.').unwrap_or(text);
    let last = text.rsplit('.').next().unwrap_or(text);
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit());
    text.len() <= 253 && text.split('.').all(label) && !is_number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_addresses_and_mistakes() {
        for name in [
            "localhost:1",
            "a.example:80",
            "a-b_c.example.:65535",
            "x1:0",
        ] {
            let host: HostPort = name.parse().unwrap();
            assert_eq!(host.to_string(), name);
        }
        for wrong in [
            "",
            "localhost",
            "localhost:",
            "localhost:65536",
            ":80",
            "a b:1",
            "-a:1",
            "a..b:1",
            "1.2.3:80",
            "127.0.0.1:80",
            "[::1]:80",
            "::1:80",
            "unix:1",
            "a/b:1",
            "off",
        ] {
            assert!(wrong.parse::<HostPort>().is_err(), "{wrong}");
        }
        assert_eq!("::1".parse(), Ok(Host::Ip("::1".parse().unwrap())));
        assert_eq!("a.b".parse(), Ok(Host::Name("a.b".into())));
        assert!("127.0.0.300".parse::<Host>().is_err());
    }

    #[test]
    fn a_name_is_looked_up() {
        let local: HostPort = "localhost:7".parse().unwrap();
        let here = local.here().unwrap();
        assert!(
            here.iter()
                .all(|addr| addr.ip().is_loopback() && addr.port() == 7)
        );
        assert_eq!(
            "localhost".parse::<Host>().unwrap().here().unwrap().len(),
            here.len()
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(
            server(&format!("localhost:{port}")).unwrap(),
            listener.local_addr().unwrap()
        );
        assert!(
            server("no-such-host.invalid:1")
                .unwrap_err()
                .contains("no-such-host.invalid")
        );
        assert!(server("here").unwrap_err().contains("HOST:PORT"));
    }
}
