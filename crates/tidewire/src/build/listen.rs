//! Where to listen, and the options of the connections that come in.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};

use crate::admission::Admission;
use crate::build::socket_file::{Access, SocketFile};
use crate::vocabulary::endpoint::{Endpoint, EndpointError};

/// Pauses between attempts to listen where another process does, in milliseconds: about a second in
/// all. After a kill of a process on io_uring, the kernel lets go of its listeners only a moment
/// later, and a restart at once must not fail for that. The attempts are few, because a process
/// that does listen at a Unix socket hears of each.
const LET_GO_PAUSES: [u64; 5] = [30, 60, 120, 240, 480];

/// Socket options. Options are set on the listener, from which Linux copies them to accepted
/// sockets, and on dialled sockets before they connect. On Unix sockets, only the backlog and the
/// buffer sizes apply; the TCP options are ignored.
///
/// ```
/// use tidewire::{Listen, TcpOptions};
///
/// let patient = TcpOptions { backlog: 128, congestion: Some("cubic".into()), ..TcpOptions::default() };
/// let listen = Listen::at("127.0.0.1:0").options(patient);
/// ```
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// Send small segments at once (`TCP_NODELAY`). Default true: replies are gathered already.
    pub nodelay: bool,
    /// Silence after which the kernel asks the peer whether it is still there: three times, a third
    /// of this apart, so that a connection whose peer's host has vanished fails after twice this
    /// time. In whole seconds, from one to [`KEEPALIVE_MAX`](TcpOptions::KEEPALIVE_MAX); values
    /// beyond are clamped. Default `None`: no probes.
    pub keepalive: Option<Duration>,
    /// Connections that may wait to be accepted; the kernel limits the number to
    /// `net.core.somaxconn`. Default 4096.
    pub backlog: i32,
    /// Kernel receive buffer in bytes. Default `None`: sized by the kernel.
    pub receive_buffer: Option<usize>,
    /// Kernel send buffer in bytes. Default `None`: sized by the kernel.
    pub send_buffer: Option<usize>,
    /// Congestion control, such as `cubic`. Default `None`: the system's.
    pub congestion: Option<String>,
    /// A listener at an IPv6 address takes IPv6 connections only (`IPV6_V6ONLY`). Default true. If false, one at `[::]`
    /// takes IPv4 connections as well.
    pub ipv6_only: bool,
}

impl Default for TcpOptions {
    fn default() -> TcpOptions {
        TcpOptions {
            nodelay: true,
            keepalive: None,
            backlog: 4096,
            receive_buffer: None,
            send_buffer: None,
            congestion: None,
            ipv6_only: true,
        }
    }
}

/// Probes without an answer after which a connection has failed.
const KEEPALIVE_PROBES: u32 = 3;

impl TcpOptions {
    /// The longest silence that Linux takes for [`keepalive`](TcpOptions::keepalive): nine hours.
    ///
    /// ```
    /// assert_eq!(tidewire::TcpOptions::KEEPALIVE_MAX.as_secs(), 32_767);
    /// ```
    pub const KEEPALIVE_MAX: Duration = Duration::from_secs(32_767);

    pub(crate) fn apply(&self, socket: &Socket, tcp: bool) -> io::Result<()> {
        if tcp {
            self.apply_tcp(socket)?;
        }
        if let Some(n) = self.receive_buffer {
            socket.set_recv_buffer_size(n)?;
        }
        if let Some(n) = self.send_buffer {
            socket.set_send_buffer_size(n)?;
        }
        Ok(())
    }

    fn apply_tcp(&self, socket: &Socket) -> io::Result<()> {
        socket.set_tcp_nodelay(self.nodelay)?;
        // A byte that is marked urgent is a byte of the stream (RFC 6093, section 4): dropping it
        // would tear a frame.
        socket.set_out_of_band_inline(true)?;
        if let Some(idle) = self.keepalive {
            socket.set_tcp_keepalive(&probes(idle))?;
        }
        if let Some(name) = &self.congestion {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        Ok(())
    }
}

fn probes(idle: Duration) -> TcpKeepalive {
    let idle = idle.clamp(Duration::from_secs(1), TcpOptions::KEEPALIVE_MAX);
    let apart = (idle / KEEPALIVE_PROBES).max(Duration::from_secs(1));
    TcpKeepalive::new()
        .with_time(idle)
        .with_interval(apart)
        .with_retries(KEEPALIVE_PROBES)
}

/// A listener to be: an endpoint to bind, or a socket inherited from elsewhere.
///
/// # Unix sockets
///
/// If the path holds a socket on which no process listens, for instance that of a killed process,
/// the socket is replaced. If a process listens there, or the path is no socket, starting fails. At
/// a stop the file is removed if it is still the file that was made. Loops that accept for
/// themselves share one Unix socket, and the kernel does not spread its connections evenly over
/// them: [`Placement::Acceptor`](crate::Placement::Acceptor) does.
///
/// ```
/// use tidewire::Listen;
///
/// let tcp = Listen::at("[::]:7400");
/// let also = Listen::at(([127, 0, 0, 1], 7400));
/// let unix = Listen::at("unix:/run/tidewire.sock").mode(0o660).owner(None, Some(33));
/// ```
#[derive(Debug)]
pub struct Listen {
    place: Place,
    options: TcpOptions,
    access: Access,
    /// The file of an inherited Unix socket is removed in the end.
    owns_file: bool,
    /// Whether the listener was inherited and no other process has it.
    exclusive: bool,
    admission: Option<Admission>,
}

/// A listener that was bound.
pub(crate) struct Bound {
    pub(crate) endpoint: Endpoint,
    /// One socket for each loop, in turn; surplus sockets are shared out too.
    pub(crate) sockets: Vec<OwnedFd>,
    /// The socket file, to be removed in the end.
    pub(crate) file: Option<SocketFile>,
    /// Whether the listener is TCP and no other process has it.
    pub(crate) is_private: bool,
    /// A predecessor's file that becomes ours when the loops run.
    pub(crate) left: Option<PathBuf>,
}

#[derive(Debug)]
enum Place {
    At(Result<Endpoint, EndpointError>),
    /// Sockets of one place.
    Inherited(Vec<OwnedFd>),
}

/// A listener with default options at this place.
impl From<Endpoint> for Listen {
    fn from(place: Endpoint) -> Listen {
        Listen::at(place)
    }
}

impl From<SocketAddr> for Listen {
    fn from(place: SocketAddr) -> Listen {
        Listen::at(place)
    }
}

/// Text that is no endpoint is an error of [`Builder::start`](crate::Builder::start).
impl From<&str> for Listen {
    fn from(place: &str) -> Listen {
        Listen::at(place)
    }
}

impl From<&String> for Listen {
    fn from(place: &String) -> Listen {
        Listen::at(place.as_str())
    }
}

impl From<String> for Listen {
    fn from(place: String) -> Listen {
        Listen::at(place.as_str())
    }
}

impl Listen {
    /// Binds when the loops start; TCP port 0 takes any free port. An IPv6 address takes IPv6
    /// connections only, unless [`TcpOptions::ipv6_only`] is false. The place may be given as an [`Endpoint`], an address, a tuple, a path, or
    /// as text; text that is no endpoint is an error of [`Builder::start`](crate::Builder::start).
    #[must_use]
    pub fn at<E>(place: E) -> Listen
    where
        E: TryInto<Endpoint>,
        E::Error: Into<EndpointError>,
    {
        Listen {
            place: Place::At(place.try_into().map_err(Into::into)),
            options: TcpOptions::default(),
            access: Access::default(),
            owns_file: false,
            exclusive: false,
            admission: None,
        }
    }

    /// Accepts from a stream socket that listens already, TCP or Unix, such as one handed over by a
    /// predecessor or a service manager. The file of a Unix socket is left where it is.
    #[must_use]
    pub fn inherited(listener: impl Into<OwnedFd>) -> Listen {
        Listen::inherited_group([listener.into()])
    }

    /// [`inherited`](Listen::inherited), for all sockets of one place, one for each loop that
    /// accepted for itself. Whatever the number of loops that accept now, each socket has one: a
    /// loop takes several where there are more sockets, and loops share where there are fewer.
    /// Sockets of several places, or none, are an error of
    /// [`Builder::start`](crate::Builder::start).
    ///
    /// ```
    /// use std::os::unix::net::UnixListener;
    /// use tidewire::{Builder, EngineChoice, Listen, on_input};
    ///
    /// // What a service manager has opened and passed on.
    /// let path = std::env::temp_dir().join(format!("tidewire-inherited-{}.sock", std::process::id()));
    /// let (tcp, unix) = (std::net::TcpListener::bind("127.0.0.1:0")?, UnixListener::bind(&path)?);
    ///
    /// let mut builder = Builder::new();
    /// let echo = builder.service(on_input(|input, link| link.forward_all(input)));
    /// builder.listen(echo, Listen::inherited(tcp).exclusive());
    /// builder.listen(echo, Listen::inherited_group([unix.into()]).owning_file());
    /// let running = builder.engine(EngineChoice::Epoll).start()?;
    /// drop(running);
    /// assert!(!path.exists(), "it was to be ours");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn inherited_group(listeners: impl IntoIterator<Item = OwnedFd>) -> Listen {
        Listen {
            place: Place::Inherited(listeners.into_iter().collect()),
            options: TcpOptions::default(),
            access: Access::default(),
            owns_file: false,
            exclusive: false,
            admission: None,
        }
    }

    /// The file of an inherited Unix socket is removed at a stop, as if it had been bound here: for
    /// a server that takes over from a [predecessor](crate::Listening) that made it. If starting
    /// fails, the file is left alone. Without a file this has no effect.
    #[must_use]
    pub fn owning_file(mut self) -> Listen {
        self.owns_file = true;
        self
    }

    /// Promises that no other process keeps the inherited sockets after the loops have stopped. Do
    /// not call this if a predecessor hands sockets over and goes on, or if a service manager keeps
    /// them. With this promise a stop refuses new handshakes while it takes in connected clients,
    /// as it does with sockets that were bound here. Without it the stop does not, because the
    /// filter would outlast the stop, and a client that connects at the last moment may be reset.
    #[must_use]
    pub fn exclusive(mut self) -> Listen {
        self.exclusive = true;
        self
    }

    /// Access mode of the socket's file, such as `0o660`: which users may connect. Default: what
    /// the process's umask leaves. Starting fails if there is no file, as with TCP.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Listen {
        self.access.mode = Some(mode);
        self
    }

    /// Owner and group of the socket's file. Default: user and group of the process. Starting fails
    /// if there is no file, as with TCP, or if they may not be given to the file.
    #[must_use]
    pub fn owner(mut self, uid: Option<u32>, gid: Option<u32>) -> Listen {
        (self.access.uid, self.access.gid) = (uid, gid);
        self
    }

    /// Applies these rules of admission, beside the rules of the service and of all services.
    /// Default: all clients are let in.
    #[must_use]
    pub fn admission(mut self, admission: Admission) -> Listen {
        self.admission = Some(admission);
        self
    }

    /// The rules of this listener.
    pub(crate) fn gate(&self) -> Option<&Admission> {
        self.admission.as_ref()
    }

    /// Sets the socket options.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::admission::{Admission, Rules};
    /// use tidewire::{Listen, TcpOptions};
    ///
    /// let mut options = TcpOptions::default();
    /// options.keepalive = Some(Duration::from_secs(60));
    /// let rules = Rules { per_address: Some(10), ..Rules::default() };
    /// let public = Listen::at("[::]:7400").options(options).admission(Admission::new(rules));
    /// // For the group 33 alone.
    /// let private = Listen::at("unix:/run/it.sock").mode(0o660).owner(None, Some(33));
    /// ```
    #[must_use]
    pub fn options(mut self, options: TcpOptions) -> Listen {
        self.options = options;
        self
    }

    /// Makes `copies` sockets that share the place, one for each loop that accepts for itself. A place that is in
    /// use is tried again, see [`LET_GO_PAUSES`].
    pub(crate) fn bind(&self, copies: usize) -> io::Result<Bound> {
        let mut pauses = LET_GO_PAUSES.iter();
        loop {
            match self.bind_once(copies) {
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => match pauses.next() {
                    Some(ms) => thread::sleep(Duration::from_millis(*ms)),
                    None => return Err(e),
                },
                bound => return bound,
            }
        }
    }

    fn bind_once(&self, copies: usize) -> io::Result<Bound> {
        match &self.place {
            Place::Inherited(listeners) => self.take_over(listeners, copies),
            Place::At(Err(e)) => Err(e.clone().into()),
            Place::At(Ok(Endpoint::Tcp(addr))) => {
                self.refuse_access()?;
                self.bind_tcp(*addr, copies)
            }
            Place::At(Ok(endpoint)) => self.bind_unix(endpoint, copies),
        }
    }

    pub(crate) fn wanted(&self) -> String {
        match &self.place {
            Place::At(Ok(endpoint)) => endpoint.to_string(),
            Place::At(Err(_)) => "what was asked for".into(),
            Place::Inherited(listeners) => format!("inherited {listeners:?}"),
        }
    }

    fn take_over(&self, listeners: &[OwnedFd], copies: usize) -> io::Result<Bound> {
        self.refuse_access()?;
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidInput, what);
        let mut common: Option<Endpoint> = None;
        for listener in listeners {
            rustix::io::ioctl_fionbio(listener, true)?;
            let endpoint = Endpoint::of_socket(listener)?;
            let socket = SockRef::from(listener);
            if endpoint.is_tcp() && self.options.keepalive.is_none() {
                // The socket's former owner may have wanted probes.
                socket.set_keepalive(false)?;
            }
            self.options.apply(&socket, endpoint.is_tcp())?;
            if socket.is_listener()? {
                // The second call sets the backlog.
                socket.listen(self.options.backlog)?;
            }
            if common.get_or_insert_with(|| endpoint.clone()) != &endpoint {
                return Err(invalid("the inherited sockets are bound to several places"));
            }
        }
        let endpoint = common.ok_or_else(|| invalid("no socket was inherited"))?;
        let sockets = listeners
            .iter()
            .cycle()
            .take(copies.max(listeners.len()))
            .map(OwnedFd::try_clone)
            .collect::<io::Result<_>>()?;
        let left = endpoint.path().filter(|_| self.owns_file);
        let is_private = self.exclusive && endpoint.is_tcp();
        Ok(Bound {
            left: left.map(Path::to_owned),
            endpoint,
            sockets,
            file: None,
            is_private,
        })
    }

    fn bind_tcp(&self, mut addr: SocketAddr, copies: usize) -> io::Result<Bound> {
        let mut sockets = Vec::with_capacity(copies);
        for copy in 0..copies {
            let socket = self.tcp_socket(addr, copy > 0)?;
            if copies > 1 && copy == 0 {
                // The option is set after the bind, which has failed if another process listens
                // here: with the option set before, two servers would share the port unnoticed.
                socket.set_reuse_port(true)?;
            }
            socket.listen(self.options.backlog)?;
            addr = socket.local_addr()?.as_socket().unwrap_or(addr);
            sockets.push(socket.into());
        }
        Ok(Bound {
            endpoint: addr.into(),
            sockets,
            file: None,
            is_private: true,
            left: None,
        })
    }

    fn tcp_socket(&self, addr: SocketAddr, share: bool) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        socket.set_reuse_address(true)?;
        if addr.is_ipv6() {
            socket.set_only_v6(self.options.ipv6_only)?;
        }
        if share {
            socket.set_reuse_port(true)?;
        }
        self.options.apply(&socket, true)?;
        socket.bind(&addr.into())?;
        Ok(socket)
    }

    fn bind_unix(&self, endpoint: &Endpoint, copies: usize) -> io::Result<Bound> {
        endpoint.check()?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        self.options.apply(&socket, false)?;
        let file = match endpoint {
            Endpoint::Unix(path) => {
                let backlog = self.options.backlog;
                Some(SocketFile::listen_as(&socket, path, self.access, backlog)?)
            }
            _ => {
                self.refuse_access()?;
                rustix::net::bind(&socket, &endpoint.to_kernel()?)?;
                socket.listen(self.options.backlog)?;
                None
            }
        };
        Ok(Bound {
            endpoint: endpoint.clone(),
            sockets: duplicate(&socket, copies)?,
            file,
            is_private: false,
            left: None,
        })
    }

    /// A mode must not seem to protect a socket that has none.
    fn refuse_access(&self) -> io::Result<()> {
        if self.access == Access::default() {
            return Ok(());
        }
        let what =
            "a mode or an owner was asked for, and only a Unix socket bound to a path has them";
        Err(io::Error::new(io::ErrorKind::InvalidInput, what))
    }
}

fn duplicate(socket: impl AsFd, copies: usize) -> io::Result<Vec<OwnedFd>> {
    let socket = socket.as_fd();
    (0..copies).map(|_| socket.try_clone_to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_share_a_port_but_servers_do_not() {
        let listen = |endpoint: &Endpoint| Listen::at(endpoint).bind(3);
        let bound = listen(&([127, 0, 0, 1], 0).into()).unwrap();
        let (endpoint, sockets) = (bound.endpoint, bound.sockets);
        assert_eq!(sockets.len(), 3);
        for socket in &sockets {
            let socket = socket2::SockRef::from(socket);
            let bound = socket.local_addr().unwrap().as_socket();
            assert!(bound == endpoint.tcp() && socket.is_listener().unwrap());
        }
        let second = listen(&endpoint).err().unwrap();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        drop(sockets);
        assert!(listen(&endpoint).is_ok());
    }

    #[test]
    fn places_are_text_of_any_kind_and_ipv6_may_take_ipv4_too() {
        let place = String::from("[::]:0");
        for (ipv6_only, takes) in [(true, false), (false, true)] {
            let options = TcpOptions {
                ipv6_only,
                ..TcpOptions::default()
            };
            let listen = match ipv6_only {
                true => Listen::from(&place),
                false => Listen::from(place.clone()),
            };
            let bound = listen.options(options).bind(1).unwrap();
            let port = bound.endpoint.tcp().unwrap().port();
            let connected = std::net::TcpStream::connect(("127.0.0.1", port));
            assert_eq!(connected.is_ok(), takes, "{connected:?}");
        }
    }

    #[test]
    fn a_place_that_is_let_go_of_in_a_moment_is_waited_for() {
        let own = format!("tidewire-let-go-{}", std::process::id());
        let path = format!("unix:{}", std::env::temp_dir().join(&own).display());
        let name = format!("unix:@{own}");
        for place in ["127.0.0.1:0", &path, &name] {
            let first = Listen::at(place).bind(1).unwrap();
            let endpoint = first.endpoint.clone();
            let holder = thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                drop(first);
            });
            assert!(Listen::at(&endpoint).bind(1).is_ok(), "{place}");
            holder.join().unwrap();
        }
    }

    #[test]
    fn accepted_sockets_are_probed_as_the_listener_says() {
        let options = |secs: Option<u64>| TcpOptions {
            keepalive: secs.map(Duration::from_secs),
            ..TcpOptions::default()
        };
        let accepted = |listen: Listen| {
            let bound = listen.bind(1).unwrap();
            let listener = bound.sockets.into_iter().next().unwrap();
            let listener = std::net::TcpListener::from(listener);
            let client = std::net::TcpStream::connect(bound.endpoint.tcp().unwrap()).unwrap();
            // The listener was bound as non-blocking; here the handshake is over.
            listener.set_nonblocking(false).unwrap();
            let accepted = Socket::from(listener.accept().unwrap().0);
            drop(client);
            (Listen::inherited(listener), accepted)
        };
        let (again, socket) = accepted(Listen::at("127.0.0.1:0").options(options(Some(300))));
        assert!(socket.keepalive().unwrap());
        assert_eq!(
            (
                socket.tcp_keepalive_time().unwrap().as_secs(),
                socket.tcp_keepalive_interval().unwrap().as_secs(),
                socket.tcp_keepalive_retries().unwrap()
            ),
            (300, 100, 3)
        );
        // A successor's word counts, and what the kernel would refuse becomes the nearest it takes.
        let (again, socket) = accepted(again.options(options(Some(u64::MAX))));
        let longest = socket.tcp_keepalive_time().unwrap();
        assert_eq!(longest, TcpOptions::KEEPALIVE_MAX);
        let (again, socket) = accepted(again.options(options(Some(0))));
        let each = socket.tcp_keepalive_interval().unwrap();
        assert_eq!((socket.keepalive().unwrap(), each.as_secs()), (true, 1));
        let (_, socket) = accepted(again.options(options(None)));
        assert!(!socket.keepalive().unwrap());
    }

    #[test]
    fn what_is_inherited_is_private_only_if_that_is_said() {
        let socket = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!Listen::inherited(socket()).bind(1).unwrap().is_private);
        let exclusive = Listen::inherited(socket()).exclusive();
        assert!(exclusive.bind(1).unwrap().is_private);
    }
}
