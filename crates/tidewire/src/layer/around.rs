//! What a layer is asked for, and what it may do: [`Wrap`], [`Layer`], [`Around`].

use std::sync::Arc;

use crate::layer::Inner;
use crate::layer::layered::{LayeredConn, Shared, Within};
use crate::protocol::input::Input;
use crate::protocol::link::Link;
use crate::protocol::traits::{Cx, Service};
use crate::vocabulary::closed::{Closed, Refusal};
use crate::vocabulary::next::Next;
use crate::vocabulary::peer::Peer;
use crate::vocabulary::time::Instant;

/// Makes the layer of each connection of a [`Layered`](crate::Layered) service: the settings of TLS,
/// say, where [`Layer`] is one connection's records and keys.
pub trait Wrap: Send + Sync + 'static {
    /// One connection's layer.
    type Layer: Layer;

    /// Makes the layer for a new connection, accepted or dialled, or turns it away. `None` goes
    /// without: the inner service accepts the connection as it is.
    ///
    /// # Errors
    /// A [`Refusal`] resets the connection and is counted.
    fn wrap(&self, from: &Peer) -> Result<Option<Self::Layer>, Refusal>;

    /// Whether this peer hears what the inner service says as it is, also before the layer has read anything: so
    /// that one who is turned away can be told in the service's words
    /// ([`Service::refusal_reply`](crate::Service::refusal_reply)). Default: no, so that he is reset.
    fn is_transparent(&self, from: &Peer) -> bool {
        let _ = from;
        false
    }

    /// Whether this peer is a proxy that will say for whom it speaks: see
    /// [`Service::speaks_for_others`](crate::Service::speaks_for_others). Default: it is not.
    fn speaks_for_others(&self, from: &Peer) -> bool {
        let _ = from;
        false
    }
}

/// A layer around a protocol, for one connection: it reads the first bytes, says who the peer is by
/// [`accept`](Around::accept) or [`hand_over`](Around::hand_over), and from `accept` on stands
/// between the connection and the inner protocol. The inner protocol cannot tell: its link keeps the
/// same contracts.
///
/// All other events of the connection are passed on by the toolkit. Before the inner protocol is
/// accepted it knows of none of them: an idle or stopping connection is finished then.
pub trait Layer: Sized + 'static {
    /// The connection is established: the place to set a deadline for the first bytes, and to write
    /// one's own.
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let _ = at;
    }

    /// Bytes have come, as in [`Protocol::received`](crate::Protocol::received). What it returns
    /// counts unless the inner protocol waits for its output to drain.
    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next;

    /// Moves what can move, after every event: output of the inner protocol outwards, above all.
    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let _ = at;
    }

    /// The peer has finished sending, and `unread` bytes of it were left unconsumed. Default: the
    /// inner protocol is told; if there is none yet, the connection is aborted.
    fn peer_finished<S: Service>(&mut self, unread: usize, at: &mut Around<'_, '_, S, Self>) {
        let _ = unread;
        if at.is_accepted() {
            at.peer_finished();
        } else {
            at.link()
                .abort_because("the peer finished before it had said who it is");
        }
    }

    /// When [`expired`](Layer::expired) is to be called once the inner protocol was accepted, whose the connection's
    /// own timer is then. Asked after every event. Default: never.
    fn timer(&self) -> Option<Instant> {
        None
    }

    /// The timer has expired that was set before the inner protocol was accepted, or [`timer`](Layer::timer)
    /// afterwards. Default: abort.
    fn expired<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.link()
            .abort_because("the peer took too long to say who it is");
    }

    /// The connection is gone; `now` is the time. Not called once the layer has handed over.
    fn closed(self, why: Closed, now: Instant) {
        let _ = (why, now);
    }
}

/// A connection as its [`Layer`] sees it: the link on one side, the inner protocol on the other.
pub struct Around<'a, 'b, S: Service, L: Layer> {
    pub(super) within: &'a mut Within<S::Conn>,
    pub(super) shared: &'a Arc<Shared<S>>,
    pub(super) cx: &'a mut Cx<'b, LayeredConn<S, L>>,
}

impl<'b, S: Service, L: Layer> Around<'_, 'b, S, L> {
    /// The connection's way out.
    pub fn link(&mut self) -> &mut Link<'b> {
        &mut self.cx.link
    }

    /// Who is at the other end, as far as is known.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        self.cx.link.peer()
    }

    /// Whether the inner protocol has been accepted.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        !matches!(self.within, Within::Nothing)
    }

    /// Has the inner service accept the connection, now that it is known who the peer is, and opens
    /// its protocol inside this layer.
    ///
    /// # Errors
    /// The inner service's [`Refusal`]. It is counted, and the connection is reset with it as the
    /// reason.
    ///
    /// # Panics
    /// If it was accepted already.
    pub fn accept(&mut self, peer: Peer) -> Result<(), Refusal> {
        let protocol = match self.made_for(&peer) {
            Ok(protocol) => protocol,
            Err(why) => {
                self.cx.link.refuse(why, &peer, None);
                return Err(why);
            }
        };
        *self.within = Within::Layer(Inner::new(protocol, self.shared.limits.clone()));
        if let Within::Layer(inner) = self.within {
            inner.open(self.cx);
        }
        Ok(())
    }

    /// [`accept`](Around::accept) for a layer whose part is done: from now on the connection is the
    /// inner protocol's alone, as if there had never been a layer, and costs what it would cost then.
    /// Input that the layer leaves unconsumed is offered to it.
    ///
    /// # Errors
    /// As [`accept`](Around::accept), but the peer hears the words of the inner service if it has any
    /// ([`Service::refusal_reply`](crate::Service::refusal_reply)).
    ///
    /// # Panics
    /// As [`accept`](Around::accept).
    pub fn hand_over(&mut self, peer: Peer) -> Result<(), Refusal> {
        match self.made_for(&peer) {
            Ok(protocol) => *self.within = Within::Alone(protocol),
            Err(why) => {
                let words = self.shared.service.refusal_reply(why, &peer);
                self.cx.link.refuse(why, &peer, words.as_deref());
                return Err(why);
            }
        }
        self.cx.link.clear_timer();
        Ok(())
    }

    /// Whether the inner protocol waits for bytes, or has finished and so discards them.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.inner().is_some_and(Inner::wants_input)
    }

    /// Hands bytes to the inner protocol. If it does not [want](Around::wants_input) any now, they
    /// are kept.
    pub fn received(&mut self, bytes: &[u8]) {
        if let Within::Layer(inner) = self.within {
            inner.received(bytes, self.cx);
        }
    }

    /// The peer has finished sending, and all of it was handed to `received`.
    pub fn peer_finished(&mut self) {
        if let Within::Layer(inner) = self.within {
            inner.peer_finished(self.cx);
        }
    }

    /// Hands output of the inner protocol to `take`, piece by piece, until there is none that may be
    /// sent, the link is full, or `take` takes less than it was given. It returns how many bytes it
    /// took. Returns the sum.
    pub fn take_output(&mut self, mut take: impl FnMut(&mut Link<'_>, &[u8]) -> usize) -> usize {
        match self.within {
            Within::Layer(inner) => {
                inner.take_output(self.cx, |cx, bytes| take(&mut cx.link, bytes))
            }
            _ => 0,
        }
    }

    /// Whether the inner protocol has finished, or finished writing, and all of its output was taken:
    /// time for the layer's own farewell.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.inner()
            .is_some_and(|i| i.is_done() || i.is_done_writing())
    }

    fn inner(&self) -> Option<&Inner<S::Conn>> {
        match &*self.within {
            Within::Layer(inner) => Some(inner),
            _ => None,
        }
    }

    fn made_for(&mut self, peer: &Peer) -> Result<S::Conn, Refusal> {
        assert!(!self.is_accepted(), "a connection is accepted once");
        self.cx.link.meet(peer)?;
        self.shared.service.accept(peer, self.cx.local)
    }
}
