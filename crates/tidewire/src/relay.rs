//! Proxies: a connection that is accepted, one that is dialled for it, and all that each gets passed on to the other.
//!
//! What differs from proxy to proxy is a [`Front`]: it hears a client until it knows what to dial. From then on the two connections
//! live on one loop and pass on what there is: bytes as chunks, which are moved and not copied where they are large; an end of sending alone
//! (half-close); a reset as a reset. A side that its peer does not empty has the other stop reading, so a stuck side costs no more
//! than its [output mark](crate::Limits::output_high). A client that goes takes its dial with it.
//!
//! ```
//! use std::time::Duration;
//! use tidewire::relay::{Front, relay};
//! use tidewire::sim::{Conditions, Sim};
//! use tidewire::{Dial, Endpoint, Limits, Link, on_input};
//!
//! /// All go to one server.
//! struct To(Endpoint);
//!
//! impl Front for To {
//!     fn opened(&mut self, _: &mut Link<'_>) -> Option<Dial> {
//!         Some(Dial::to(&self.0))
//!     }
//! }
//!
//! let mut sim = Sim::under(7, Conditions::calm());
//! let server = sim.serve(on_input(|input, link| link.forward_all(input)), Limits::default());
//! let proxy = sim.serve(relay(move |_| To(server.clone())), Limits::default());
//! let client = sim.plain(proxy);
//! sim.send(client, b"there and back");
//! sim.finish(client);
//! sim.run_for(Duration::from_secs(1));
//! assert_eq!(sim.received(client), b"there and back");
//! ```

use std::fmt;
use std::io;

use crate::memory::buffer::Chunk;
use crate::protocol::connection::{Cx, Protocol, Turn};
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::protocol::service::Service;
use crate::reach::mailbox::LoopHandle;
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::dial::Dial;
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::{Origin, Peer};

/// What a proxy says and hears before it passes on. Each method that returns a [`Dial`] ends that: what the client sends from then
/// on goes to the other side. The dial's token is the relay's own.
///
/// ```
/// use std::io;
/// use tidewire::relay::Front;
/// use tidewire::{Dial, Input, Link};
///
/// /// The client says in a line where it wants to go.
/// struct Asks;
///
/// impl Front for Asks {
///     fn opened(&mut self, link: &mut Link<'_>) -> Option<Dial> {
///         link.write(b"where to?\n");
///         None
///     }
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Link<'_>) -> Option<Dial> {
///         let end = input.bytes().iter().position(|&byte| byte == b'\n')?;
///         let line = String::from_utf8_lossy(&input.bytes()[..end]).into_owned();
///         input.consume(end + 1);
///         Some(Dial::to(line))
///     }
///
///     fn joined(&mut self, link: &mut Link<'_>) {
///         link.write(b"connected\n");
///     }
///
///     fn failed(&mut self, error: io::ErrorKind, link: &mut Link<'_>) {
///         link.write(format!("{error}\n").as_bytes());
///         link.finish();
///     }
/// }
/// # use std::time::Duration;
/// # use tidewire::{Limits, sim::{Conditions, Sim}};
/// # let mut sim = Sim::under(7, Conditions::calm());
/// # let proxy = sim.serve(tidewire::relay::relay(|_| Asks), Limits::default());
/// # let client = sim.plain(proxy);
/// # sim.send(client, b"192.0.2.9:1\n");
/// # sim.run_for(Duration::from_secs(30));
/// # assert_eq!(sim.received(client), b"where to?\nconnection refused\n");
/// ```
pub trait Front: Sized + 'static {
    /// The client is connected. Default: it is to say something.
    fn opened(&mut self, link: &mut Link<'_>) -> Option<Dial> {
        let _ = link;
        None
    }

    /// The client has said something; what is not consumed is offered again with more. Default: nothing is expected, and
    /// the connection is aborted.
    fn received(&mut self, input: &mut Input<'_>, link: &mut Link<'_>) -> Option<Dial> {
        input.consume(input.len());
        link.abort();
        None
    }

    /// The other side is connected. What is written here goes to the client before anything else.
    fn joined(&mut self, link: &mut Link<'_>) {
        let _ = link;
    }

    /// The other side could not be connected. Default: the client is reset.
    fn failed(&mut self, error: io::ErrorKind, link: &mut Link<'_>) {
        let _ = error;
        link.abort();
    }
}

/// A service that passes on between the connections that it accepts, with a [`Front`] each, and those that it dials for them.
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use tidewire::relay::{Front, relay};
/// use tidewire::{Builder, Dial, Endpoint, Link, on_input};
///
/// struct To(Endpoint);
///
/// impl Front for To {
///     fn opened(&mut self, _: &mut Link<'_>) -> Option<Dial> {
///         Some(Dial::to(&self.0))
///     }
/// }
///
/// let server = Builder::new().serve("127.0.0.1:0", on_input(|input, link| link.forward_all(input))).start()?;
/// let at = server.addrs()[0].clone();
/// let proxy = Builder::new().serve("127.0.0.1:0", relay(move |_| To(at.clone()))).start()?;
/// let mut client = std::net::TcpStream::connect(&proxy.addrs()[0])?;
/// client.write_all(b"hello")?;
/// let mut back = [0; 5];
/// client.read_exact(&mut back)?;
/// assert_eq!(&back, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn relay<F, M>(make: M) -> Relay<M>
where
    F: Front,
    M: Fn(&Peer) -> F + Send + Sync + 'static,
{
    Relay { make }
}

/// A service of proxied connections: [`relay`].
///
/// ```
/// use tidewire::relay::{Front, Relay, relay};
/// use tidewire::Peer;
///
/// fn proxy<F: Front>(front: fn(&Peer) -> F) -> Relay<fn(&Peer) -> F> {
///     relay(front)
/// }
/// ```
pub struct Relay<M> {
    make: M,
}

impl<M> fmt::Debug for Relay<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay")
    }
}

/// One of two connections that pass on to each other.
///
/// ```
/// use tidewire::Service;
/// use tidewire::relay::{Front, RelayConn, relay};
///
/// /// Whatever tells what to dial.
/// fn is_of_halves<F: Front>(front: fn(&tidewire::Peer) -> F) -> impl Service<Conn = RelayConn<F>> {
///     relay(front)
/// }
/// ```
pub struct RelayConn<F> {
    /// The accepted side has one.
    front: Option<F>,
    stage: Stage,
    /// The other side was told to stop reading.
    holds_back: bool,
}

impl<F> fmt::Debug for RelayConn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelayConn({:?})", self.stage)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The front hears the client.
    Front,
    /// The dial is under way.
    Dialling,
    /// Passes on to this connection.
    Joined(ConnId),
}

/// What the sides of a relay tell each other.
///
/// ```
/// use tidewire::Protocol;
/// use tidewire::relay::{Passed, RelayConn};
///
/// fn message<F: tidewire::relay::Front>(passed: Passed) -> <RelayConn<F> as Protocol>::Message {
///     passed
/// }
/// ```
#[derive(Debug)]
pub struct Passed(What);

#[derive(Debug)]
enum What {
    /// The dialled side is there.
    Joined(ConnId),
    /// The dialled side could not be connected.
    Failed(io::ErrorKind),
    Data(Chunk),
    /// The sender's peer takes no more, or takes more again.
    Stop,
    Go,
    /// The sender's peer has said all.
    Finished,
    /// The sender's connection has ended otherwise.
    Gone,
}

impl<F: Front> RelayConn<F> {
    fn tell(&self, what: What, cx: &mut Cx<'_, Self>) {
        if let Stage::Joined(other) = self.stage
            && cx.tell(other, Passed(what)).is_err()
        {
            cx.link.abort_because("too many messages between two sides");
        }
    }

    /// Nothing is read before the other side is there.
    fn dial(&mut self, dial: Dial, cx: &mut Cx<'_, Self>) {
        self.stage = Stage::Dialling;
        let me = cx.link.id().to_bits();
        cx.dial(dial.token(me).tied());
        cx.link.pause();
    }

    /// What is behind the front's own goes to the other side.
    fn hear(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let front = self.front.as_mut().expect("the accepted side has one");
        match front.received(input, &mut cx.link) {
            None => Next::More,
            Some(dial) => {
                self.dial(dial, cx);
                Next::Paused
            }
        }
    }
}

impl<F: Front> Protocol for RelayConn<F> {
    type Local = ();
    type Message = Passed;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        let me = cx.link.id();
        self.tell(What::Joined(me), cx);
        let dial = self.front.as_mut().and_then(|f| f.opened(&mut cx.link));
        if let Some(dial) = dial {
            self.dial(dial, cx);
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        match self.stage {
            Stage::Front => self.hear(input, cx),
            Stage::Dialling => Next::Paused,
            Stage::Joined(_) => {
                let chunk = input.take(input.len());
                self.tell(What::Data(chunk), cx);
                Next::More
            }
        }
    }

    fn posted(&mut self, Passed(what): Passed, cx: &mut Cx<'_, Self>) {
        match what {
            What::Joined(other) => {
                self.stage = Stage::Joined(other);
                if let Some(front) = &mut self.front {
                    front.joined(&mut cx.link);
                }
                cx.link.resume();
            }
            What::Failed(error) => {
                if let Some(front) = &mut self.front {
                    front.failed(error, &mut cx.link);
                }
            }
            What::Data(chunk) => {
                cx.link.write_chunk(chunk);
                if cx.link.full() && !self.holds_back {
                    self.holds_back = true;
                    self.tell(What::Stop, cx);
                }
            }
            What::Stop => cx.link.pause(),
            What::Go => cx.link.resume(),
            What::Finished => cx.link.finish_writing(),
            What::Gone => cx.link.abort(),
        }
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        if std::mem::take(&mut self.holds_back) {
            self.tell(What::Go, cx);
        }
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        match self.stage {
            Stage::Joined(_) => self.tell(What::Finished, cx),
            Stage::Front | Stage::Dialling => cx.link.finish(),
        }
    }

    /// Where a conversation may be cut only its ends know: it goes on until they have finished, or until the stop's deadline.
    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        if self.stage == Stage::Front {
            cx.link.finish();
        }
    }

    fn undelivered(&mut self, _: ConnId, _: Passed, cx: &mut Cx<'_, Self>) {
        cx.link.abort();
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        if let Stage::Joined(other) = self.stage
            && why != Closed::Finished
        {
            let _ = turn.tell(other, Passed(What::Gone));
        }
    }
}

impl<F, M> Service for Relay<M>
where
    F: Front,
    M: Fn(&Peer) -> F + Send + Sync + 'static,
{
    type Conn = RelayConn<F>;

    fn on_loop(&self, _: LoopHandle<Passed>) {}

    fn accept(&self, from: &Peer, (): &mut ()) -> Result<RelayConn<F>, Refusal> {
        let (front, stage) = match from.origin {
            Origin::Accepted(_) => (Some((self.make)(from)), Stage::Front),
            Origin::Dialled(token) => (None, Stage::Joined(ConnId::from_bits(token))),
        };
        Ok(RelayConn {
            front,
            stage,
            holds_back: false,
        })
    }

    fn dial_failed(&self, token: u64, error: &io::Error, turn: &mut Turn<'_, RelayConn<F>>) {
        // A client that has gone need not hear of it.
        let _ = turn.tell(ConnId::from_bits(token), Passed(What::Failed(error.kind())));
    }
}
