//! The layer that records the bytes and events of the protocol inside it.

use std::fmt;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::layer::{Around, Layer, Wrap};
use crate::protocol::input::Input;
use crate::protocol::service::Service;
use crate::reach::sync::{Mutex, lock};
use crate::trace::out::Out;
use crate::trace::pcap::{ACK, FIN, Flow, RST, SYN};
use crate::trace::words::Said;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::endpoint::Endpoint;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::{Origin, Peer};
use crate::vocabulary::time::Instant;

/// Bytes written by default, of words and capture together.
const LIMIT: u64 = 64 << 20;

/// Writes the received and sent bytes of its connections. Clones write to the same places.
///
/// Each event is written where it happens, on the loop, under a lock: for looking at a service, not for serving at
/// speed. When so many bytes are written as [`limit`](Tracer::limit) says, it ends and says so.
///
/// ```
/// use std::io;
/// use tidewire::trace::Tracer;
/// use tidewire::{Builder, Layered};
///
/// let echo = tidewire::on_input(|input, link| link.forward_all(input));
/// // Files, mostly.
/// let tracer = Tracer::named("echo").words(io::stderr()).pcap(io::sink());
/// let running = Builder::new().serve("127.0.0.1:0", Layered::new(tracer, echo)).start()?;
/// # drop(running);
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone)]
pub struct Tracer {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    connections: AtomicU32,
    out: Mutex<Out>,
}

impl Tracer {
    /// A tracer with this name in its lines. The tracer writes nothing until it is told where to.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Tracer {
        Tracer {
            shared: Arc::new(Shared {
                name: name.into(),
                connections: AtomicU32::new(0),
                out: Mutex::new(Out::limited(LIMIT)),
            }),
        }
    }

    /// Writes a line for each event: `    12.003000 ms  client 3 -> kv: 14 bytes 'SET a 1'`. Times count from the first
    /// connection; of long pieces the beginning is shown.
    #[must_use]
    pub fn words(self, to: impl Write + Send + 'static) -> Tracer {
        lock(&self.shared.out).words = Some(Box::new(to));
        self
    }

    /// Writes a pcap file, which Wireshark and tcpdump open: raw IP with times to the nanosecond. Segments and
    /// acknowledgements are made up from what the service received and sent; a listener's end, which the layer does
    /// not know, is port 1 of this host.
    #[must_use]
    pub fn pcap(self, to: impl Write + Send + 'static) -> Tracer {
        lock(&self.shared.out).pcap = Some(Box::new(to));
        self
    }

    /// Bytes to write at most, of words and capture together. Default 64 MiB.
    ///
    /// ```
    /// use std::io::{self, Write};
    /// use std::sync::{Arc, Mutex};
    /// use tidewire::trace::Tracer;
    /// use tidewire::{Layered, on_input, sim::chunking::collect};
    ///
    /// /// A file that is looked at afterwards.
    /// #[derive(Clone, Default)]
    /// struct Kept(Arc<Mutex<Vec<u8>>>);
    ///
    /// impl Write for Kept {
    ///     fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
    ///         self.0.lock().unwrap().write(bytes)
    ///     }
    ///     fn flush(&mut self) -> io::Result<()> {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let (words, pcap) = (Kept::default(), Kept::default());
    /// let tracer = Tracer::named("echo").words(words.clone()).pcap(pcap.clone()).limit(100_000);
    /// let echo = on_input(|input, link| link.forward_all(input));
    /// collect(Layered::new(tracer, echo), b"hello", &[], true);
    /// let words = words.0.lock().unwrap();
    /// assert!(String::from_utf8_lossy(&words).contains("-> echo: 5 bytes 'hello'"));
    /// assert!(!pcap.0.lock().unwrap().is_empty());
    /// ```
    #[must_use]
    pub fn limit(self, bytes: u64) -> Tracer {
        lock(&self.shared.out).left = bytes;
        self
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracer({})", self.shared.name)
    }
}

impl Wrap for Tracer {
    type Layer = Traced;

    fn wrap(&self, from: &Peer) -> Result<Option<Traced>, Refusal> {
        let number = self.shared.connections.fetch_add(1, Relaxed);
        let (here, there) = (Endpoint::Unnamed, &from.endpoint);
        let (flow, side, names) = match from.origin {
            Origin::Accepted(_) => {
                let names = [self.shared.name.clone(), format!("client {number}")];
                (Flow::new(there, &here, number), 1, names)
            }
            Origin::Dialled(_) => {
                let names = [
                    format!("{} {number}", self.shared.name),
                    from.endpoint.to_string(),
                ];
                (Flow::new(&here, there, number), 0, names)
            }
        };
        Ok(Some(Traced {
            shared: self.shared.clone(),
            flow,
            side,
            names,
            heard_end: false,
        }))
    }
}

/// The bytes and events of one connection that [`Tracer`] keeps.
///
/// ```
/// use tidewire::trace::{Traced, Tracer};
/// use tidewire::{Origin, Peer, Wrap};
///
/// let peer = Peer::new(([127, 0, 0, 1], 4000), Origin::Accepted(0));
/// let layer: Option<Traced> = Tracer::named("echo").words(std::io::sink()).wrap(&peer)?;
/// assert!(layer.is_some());
/// # Ok::<(), tidewire::Refusal>(())
/// ```
pub struct Traced {
    shared: Arc<Shared>,
    flow: Flow,
    /// The side of the connection: 0 is the side that has connected.
    side: u8,
    /// The names of our end and of the peer.
    names: [String; 2],
    heard_end: bool,
}

impl fmt::Debug for Traced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Traced({}, {})", self.names[0], self.names[1])
    }
}

impl Traced {
    fn tell(&mut self, now: Instant, inwards: bool, flags: u8, bytes: &[u8]) {
        let Traced {
            shared,
            flow,
            names: [here, there],
            ..
        } = self;
        let (from, to, side) = match inwards {
            true => (&*there, &*here, 1 - self.side),
            false => (&*here, &*there, self.side),
        };
        let out = &mut *lock(&shared.out);
        if !bytes.is_empty() {
            out.say(now, || {
                format!("{from} -> {to}: {}", Said(bytes.len(), Some(bytes)))
            });
        }
        out.packet(now, flow, (side, flags), bytes);
    }

    /// The peer has finished sending.
    fn ends(&mut self, now: Instant) {
        self.heard_end = true;
        self.say(now, |_, there| format!("{there} ends its output"));
        self.tell(now, true, FIN | ACK, b"");
    }

    fn say(&self, now: Instant, what: impl FnOnce(&str, &str) -> String) {
        let [here, there] = &self.names;
        lock(&self.shared.out).say(now, || what(here, there));
    }
}

impl Layer for Traced {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let (now, peer) = (at.link().now(), at.peer().clone());
        lock(&self.shared.out).begin(now, at.link().wall());
        let end = peer.endpoint.clone();
        self.say(now, |here, there| match peer.origin {
            Origin::Accepted(_) => format!("{here} accepts {there}, from {end}"),
            Origin::Dialled(_) => format!("{here} is connected to {there}"),
        });
        let connected = self.side == 0;
        self.tell(now, !connected, SYN, b"");
        self.tell(now, connected, SYN | ACK, b"");
        self.tell(now, !connected, ACK, b"");
        if let Err(why) = at.accept(peer) {
            self.say(now, |here, there| {
                format!("{here} turns {there} away: {why}")
            });
        }
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next {
        if !input.is_empty() && at.wants_input() {
            let now = at.link().now();
            self.tell(now, true, ACK, input.bytes());
            at.received(input.bytes());
            input.consume(input.len());
        }
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.take_output(|link, bytes| {
            self.tell(link.now(), false, ACK, bytes);
            link.write(bytes);
            bytes.len()
        });
    }

    fn peer_finished<S: Service>(&mut self, _: usize, at: &mut Around<'_, '_, S, Self>) {
        self.ends(at.link().now());
        at.peer_finished();
    }

    fn cut_short<S: Service>(
        &mut self,
        _: usize,
        why: &'static str,
        at: &mut Around<'_, '_, S, Self>,
    ) {
        self.ends(at.link().now());
        at.cut_short(why);
    }

    fn closed(mut self, why: Closed, now: Instant) {
        self.say(now, |here, there| {
            format!("{here} and {there} are done: {why}")
        });
        let flags = match why {
            Closed::Finished | Closed::Stopped | Closed::Idle => FIN | ACK,
            _ => RST | ACK,
        };
        self.tell(now, false, flags, b"");
        if flags & FIN > 0 && !self.heard_end {
            self.tell(now, true, FIN | ACK, b"");
        }
    }
}
