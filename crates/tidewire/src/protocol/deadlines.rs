//! Deadlines of one connection, other than its service's.

use std::time::Duration;

use crate::protocol::link::Link;
use crate::reactor::facts::{Flag, Hint};
use crate::vocabulary::closed::Closed;

/// # Deadlines of this connection
///
/// [`Limits`](crate::Limits) has the service's; what is set here holds for this connection instead.
/// `None` is no limit, and less than a millisecond is one.
impl Link<'_> {
    /// Time without a byte received or sent: see [`Limits::idle`](crate::Limits::idle).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidewire::sim::{Conditions, PlainState, Sim};
    /// use tidewire::{Cx, Input, Limits, Next, Protocol, service_fn};
    ///
    /// /// Gives those who have said the word more time than strangers.
    /// struct Guest;
    ///
    /// impl Protocol for Guest {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.set_idle(Some(Duration::from_secs(5)));
    ///         cx.link.set_request_limit(Some(Duration::from_secs(1)));
    ///         cx.link.set_lifetime(Some(Duration::from_secs(20)));
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         if input.bytes() == b"sesame" {
    ///             cx.link.set_idle(None);
    ///             cx.link.set_lifetime(None);
    ///             cx.link.set_write_limit(Some(Duration::from_secs(60)));
    ///         }
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    /// }
    ///
    /// let mut sim = Sim::under(1, Conditions::calm());
    /// let addr = sim.serve(service_fn(|_| Guest), Limits::default());
    /// let (friend, stranger) = (sim.plain(&addr), sim.plain(&addr));
    /// sim.send(friend, b"sesame");
    /// sim.run_for(Duration::from_secs(30));
    /// assert_eq!(sim.state(friend), PlainState::Open);
    /// assert_eq!(sim.state(stranger), PlainState::Ended);
    /// ```
    pub fn set_idle(&mut self, limit: Option<Duration>) {
        self.state.deadlines.set_idle(limit);
        self.own_limits();
    }

    /// Time for a whole request: see [`Limits::request`](crate::Limits::request). A request that is
    /// under way gets the full new time.
    pub fn set_request_limit(&mut self, limit: Option<Duration>) {
        self.state.deadlines.set_request(limit);
        self.env.touch(self.state);
    }

    /// Time in which the peer must take some of the output: see [`Limits::write`](crate::Limits::write).
    pub fn set_write_limit(&mut self, limit: Option<Duration>) {
        self.state.deadlines.set_write(limit);
        self.own_limits();
    }

    /// Time that the connection may be open, from now on: see
    /// [`Limits::lifetime`](crate::Limits::lifetime).
    pub fn set_lifetime(&mut self, limit: Option<Duration>) {
        if self.state.is_open() && !self.state.flags.has(Flag::Outlived) {
            self.state.phase_ends = limit.map(|time| self.env.now + time);
            self.own_limits();
        }
    }

    /// Says that a request has begun whose bytes the protocol consumes piece by piece: the request's
    /// limit counts from this call. Each further call starts the limit anew; so a protocol that is
    /// content with steady progress calls this for each large piece. Without this call, a request lasts
    /// from its first unconsumed byte on.
    ///
    /// ```
    /// use tidewire::{Cx, Input, Next, Protocol};
    ///
    /// /// Counts down the bytes of a body as they come.
    /// struct Body(usize);
    ///
    /// impl Protocol for Body {
    ///     type Local = ();
    ///     type Message = ();
    ///
    ///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
    ///         cx.link.request_began();
    ///     }
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
    ///         self.0 = self.0.saturating_sub(input.len());
    ///         input.consume(input.len());
    ///         if self.0 == 0 {
    ///             cx.link.request_ended();
    ///         }
    ///         Next::More
    ///     }
    /// }
    /// ```
    pub fn request_began(&mut self) {
        self.state.request_began(self.env.now);
        self.env.touch(self.state);
    }

    /// Says that the request which [began](Link::request_began) is complete.
    pub fn request_ended(&mut self) {
        self.state.request_ended();
    }

    /// Aborts for the reason that the loop has suggested.
    pub(crate) fn cut(&mut self) {
        let why = match self.state.hint {
            Hint::Finished => Closed::Aborted,
            hint => hint.into(),
        };
        self.state.kill(why);
        self.env.touch(self.state);
    }

    fn own_limits(&mut self) {
        self.state.flags.add(Flag::OwnLimits);
        self.env.touch(self.state);
    }
}
