//! A loop as seen by the callbacks that belong to no open connection.

use std::time::Duration;

use crate::build::dial::Dial;
use crate::protocol::traits::Protocol;
use crate::reach::home::Home;
use crate::reach::mailbox::NoRoom;
use crate::reactor::env::Env;
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::time::Instant;

/// What a callback is given that has no open connection: [`Protocol::closed`] and
/// [`Service::dial_failed`](crate::Service::dial_failed).
///
/// ```
/// use std::time::Duration;
/// use tidewire::{Closed, Cx, Dial, Input, Next, Protocol, Turn};
///
/// /// Connects again when its connection is lost.
/// struct Faithful {
///     to: Dial,
/// }
///
/// impl Protocol for Faithful {
///     type Local = ();
///     type Message = ();
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
///         input.consume(input.len());
///         Next::More
///     }
///
///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
///         if why == Closed::Reset {
///             turn.dial(self.to);
///         }
///     }
/// }
/// ```
pub struct Turn<'a, P: Protocol> {
    /// The service's state on this loop.
    pub local: &'a mut P::Local,
    pub(crate) env: &'a mut Env,
    pub(crate) home: &'a Home<P::Message>,
}

impl<P: Protocol> Turn<'_, P> {
    /// The time of this turn of the loop.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.env.now
    }

    /// Time since 1970-01-01T00:00:00Z by the wall clock, which may jump.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.env.clock.wall()
    }

    /// Makes an outgoing connection of this service on this loop, when the callback has returned. If
    /// it cannot be made, [`dial_failed`](crate::Service::dial_failed) is called.
    pub fn dial(&mut self, dial: Dial) {
        self.env.dials.push((self.home.mail.service(), dial));
    }

    /// Tells a connection of this service on this loop something, as [`Cx::tell`](crate::Cx::tell)
    /// does. If it is gone when the message is delivered, that is counted and the message dropped.
    ///
    /// # Errors
    /// [`NoRoom`] when [`TELLS_MAX`](crate::TELLS_MAX) messages wait.
    ///
    /// ```
    /// use tidewire::{Closed, ConnId, Cx, Input, Next, Protocol, Turn};
    ///
    /// /// Tells its partner when it is gone.
    /// struct Half {
    ///     partner: ConnId,
    /// }
    ///
    /// impl Protocol for Half {
    ///     type Local = Vec<String>;
    ///     type Message = String;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
    ///         let line = format!("{} s: {why} on loop {}", turn.wall().as_secs(), turn.number());
    ///         turn.local.push(line.clone());
    ///         let _ = turn.tell(self.partner, line); // one that is gone too needs no word
    ///         turn.wake_service(); // which looks through `Local`
    ///         assert!(turn.now() <= turn.now());
    ///     }
    /// }
    /// # use tidewire::sim::chunking::collect;
    /// # use tidewire::service_fn;
    /// # let half = service_fn(|_| Half { partner: ConnId::from_bits(7) });
    /// # assert_eq!(collect(half, b"", &[], true).closed, Some(Closed::Finished));
    /// ```
    pub fn tell(&mut self, to: ConnId, message: P::Message) -> Result<(), NoRoom<P::Message>> {
        self.env.told = true;
        self.home.tell(to, None, message)
    }

    /// Has [`Service::woken`](crate::Service::woken) called on this loop after this callback.
    pub fn wake_service(&mut self) {
        self.home.mail.signal_from_loop();
        self.env.self_signalled = true;
    }

    /// The loop's number: see [`LoopHandle::number`](crate::LoopHandle::number).
    #[must_use]
    pub fn number(&self) -> u32 {
        self.home.mail.waker.number()
    }

    /// The same for a protocol inside, whose layer this is.
    ///
    /// ```
    /// use tidewire::{Closed, Cx, Input, Next, Protocol, Turn};
    ///
    /// /// Drops all input, and tells the protocol inside how it ended.
    /// struct Deaf<P>(P);
    ///
    /// impl<P: Protocol> Protocol for Deaf<P> {
    ///     type Local = P::Local;
    ///     type Message = P::Message;
    ///
    ///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
    ///         input.consume(input.len());
    ///         Next::More
    ///     }
    ///
    ///     fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
    ///         self.0.closed(why, &mut turn.of());
    ///     }
    /// }
    /// ```
    pub fn of<Q>(&mut self) -> Turn<'_, Q>
    where
        Q: Protocol<Local = P::Local, Message = P::Message>,
    {
        Turn {
            local: &mut *self.local,
            env: &mut *self.env,
            home: self.home,
        }
    }
}
