//! The blocking producer: its public interface. The work is done by a thread of its own.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};

use super::backoff::Persistence;
use super::clock::Clock;
use super::connect::{Server, To};
use super::courier::Courier;
use super::error::Error;
use super::outbox::Amount;
use super::session::{NotTaken, Session};
use super::settings::Producing;
use super::shared::{News, Shared, State};
use crate::native::codec::{Level, Welcome};

/// Messages taken under one lock, so that what was taken is on its way while more is.
const AT_ONCE: usize = 256;

/// Sends messages and reports which are acknowledged.
///
/// [`send`](Producer::send) hands a message to the resend buffer, from which a thread writes it at
/// once, or together with others while the connection is busy. If the connection breaks, the producer
/// reconnects and sends again what the server does not have; with a producer's name nothing is stored
/// twice. After a final error, every call returns that error.
///
/// May be shared by threads. Dropping the producer gives up its unacknowledged messages: call
/// [`close`](Producer::close) or [`flush`](Producer::flush) before.
///
/// ```
/// use tidewire_ingest::client::{Persistence, Producer, Producing};
/// # let running = tidewire_ingest::testing::server();
/// # let server = running.addrs()[0].to_string();
///
/// let producing = Producing { producer: "web-7".into(), ..Producing::default() };
/// let producer = Producer::connect(&server, producing, Persistence::default())?; // "127.0.0.1:7400", say
/// let id = producer.send(b"hello")?;
/// producer.flush()?; // now it is durable
/// assert!(producer.status().settled >= Some(id));
/// producer.close()?;
/// # Ok::<(), tidewire_ingest::client::Error>(())
/// ```
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    courier: Option<JoinHandle<()>>,
}

/// How a producer stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// All messages up to this id are settled.
    pub settled: Option<u64>,
    /// Messages acknowledged since the producer was made.
    pub acknowledged: u64,
    /// Messages that the caller has sent and the server has not acknowledged.
    pub unacknowledged: Amount,
    /// Connections made, the first included.
    pub connections: u64,
    /// Why the server takes nothing at present, or why there is no connection.
    pub trouble: Option<String>,
}

impl Producer {
    /// Connects and waits for the welcome. `persistence` holds for connections that
    /// are lost later; unless it says otherwise the first failure here is the result.
    ///
    /// # Errors
    /// [`Error`].
    pub fn connect(
        to: impl Into<To>,
        producing: Producing,
        persistence: Persistence,
    ) -> Result<Producer, Error> {
        let producer = Producer::start(to, producing, persistence, None)?;
        producer.wait(None, |state| state.session.granted().is_some())?;
        Ok(producer)
    }

    /// Begins to connect to `HOST:PORT` and does not wait: for callers with several producers.
    /// [`welcomed`](Producer::welcomed) says when it is there, and [`failure`](Producer::failure)
    /// that it will not be. Whenever either may have changed, or something was acknowledged, `news`
    /// is called, by the producer's thread and under its lock: it should wake a thread and do no
    /// more.
    ///
    /// # Errors
    /// An [`Error`] that can be known at once, such as a bad setting.
    pub fn start(
        to: impl Into<To>,
        producing: Producing,
        persistence: Persistence,
        news: Option<News>,
    ) -> Result<Producer, Error> {
        let server = Server::named(to.into())?;
        let session = Session::new(producing).map_err(|e| server.broken(e))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| server.failed("make a descriptor to talk to", e.into()))?;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                session,
                asleep: false,
                waiting: 0,
                stop: false,
                failure: None,
                acknowledged: 0,
                connections: 0,
                trouble: None,
            }),
            news: Condvar::new(),
            listener: news,
            wake,
            server,
            clock: Clock::start(),
        });
        let courier = Courier::new(shared.clone(), persistence);
        #[allow(clippy::disallowed_methods, reason = "blocking clients run on no loop")]
        let thread = std::thread::Builder::new()
            .name("tidewire-producer".into())
            .spawn(move || courier.run())
            .map_err(|e| shared.server.failed("start a thread to talk to", e))?;
        Ok(Producer {
            shared,
            courier: Some(thread),
        })
    }

    /// The server's latest welcome: the granted level and limits; `None` before the first.
    #[must_use]
    pub fn welcomed(&self) -> Option<Welcome> {
        self.shared.lock().session.granted().copied()
    }

    /// Waits for the first welcome, at most this long; whether it has come.
    ///
    /// # Errors
    /// The final error, if there is one.
    pub fn welcomed_within(&self, time: Duration) -> Result<bool, Error> {
        match self.wait(Some(time), |state| state.session.granted().is_some()) {
            Ok(()) => Ok(true),
            Err(Error::TimedOut(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// The final error, if there is one.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.lock().failure.clone()
    }

    /// Takes as many messages with ids of the caller's as the resend buffer has room for, and does not
    /// wait; answers how many. For producers with [sparse](Producing::sparse) ids.
    ///
    /// # Errors
    /// As for [`send_as`](Producer::send_as); messages before the refused one were taken.
    pub fn try_send_each_as<'a>(
        &self,
        messages: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> Result<usize, Error> {
        let mut taken = 0;
        let mut state = self.shared.lock();
        state.check()?;
        let mut refused = Ok(());
        for (id, payload) in messages {
            match state.session.push_as(id, payload) {
                Ok(()) => taken += 1,
                Err(NotTaken::Full | NotTaken::NoWelcome) => break,
                Err(why) => {
                    refused = Err(self.final_for(why));
                    break;
                }
            }
        }
        if taken > 0 {
            self.shared.rouse(&mut state);
        }
        refused.map(|()| taken)
    }

    /// Sends a message and returns its id. Waits while the resend buffer is full.
    ///
    /// # Errors
    /// [`Error::TooLarge`], after which the next message may be sent; all others are final.
    pub fn send(&self, payload: &[u8]) -> Result<u64, Error> {
        let mut state = self.shared.lock();
        loop {
            match state.session.push(payload) {
                Ok(id) => {
                    self.shared.rouse(&mut state);
                    return state.check().map(|()| id);
                }
                Err(why) => state = self.room(state, why, payload.len())?,
            }
        }
    }

    /// Sends a message with an id of the caller's, for producers with
    /// [sparse](Producing::sparse) ids.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::Id`], after which the next message may be sent; all others
    /// are final.
    pub fn send_as(&self, id: u64, payload: &[u8]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        loop {
            match state.session.push_as(id, payload) {
                Ok(()) => {
                    self.shared.rouse(&mut state);
                    return state.check();
                }
                Err(why) => state = self.room(state, why, payload.len())?,
            }
        }
    }

    /// Sends many messages, for less than one by one costs; answers how many there were.
    ///
    /// # Errors
    /// As for [`send`](Producer::send); messages before the failure were sent.
    pub fn send_each<P: AsRef<[u8]>>(
        &self,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<u64, Error> {
        let mut sent = 0;
        let mut payloads = payloads.into_iter().peekable();
        while payloads.peek().is_some() {
            let mut state = self.shared.lock();
            state.check()?;
            for payload in payloads.by_ref().take(AT_ONCE) {
                let payload = payload.as_ref();
                while let Err(why) = state.session.push(payload) {
                    state = self.room(state, why, payload.len())?;
                }
                sent += 1;
            }
            self.shared.rouse(&mut state);
        }
        Ok(sent)
    }

    /// Waits until a message of `len` bytes may be tried again after `why`.
    fn room<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        why: NotTaken,
        len: usize,
    ) -> Result<MutexGuard<'a, State>, Error> {
        state.check()?;
        // Messages taken before are sent, whatever becomes of this one.
        self.shared.rouse(&mut state);
        match why {
            NotTaken::Full => {
                while !state.session.has_room(len) {
                    state = self.shared.wait(state, None);
                    state.check()?;
                }
                Ok(state)
            }
            why => Err(self.final_for(why)),
        }
    }

    /// The error for a message that will not be taken.
    fn final_for(&self, why: NotTaken) -> Error {
        match why {
            NotTaken::TooLarge { len, most } => Error::TooLarge {
                to: self.shared.server.name.clone(),
                len,
                most,
            },
            other => Error::Id(other),
        }
    }

    /// Waits until all sent messages are acknowledged.
    ///
    /// # Errors
    /// The final error, if there is one.
    pub fn flush(&self) -> Result<(), Error> {
        self.wait(None, |state| state.session.is_settled())
    }

    /// [`flush`](Producer::flush), at most this long.
    ///
    /// # Errors
    /// [`Error::TimedOut`], after which it may be called again; all others are final.
    pub fn flush_within(&self, time: Duration) -> Result<(), Error> {
        self.wait(Some(time), |state| state.session.is_settled())
    }

    /// Waits until everything sent is acknowledged, and ends the connection.
    ///
    /// # Errors
    /// The final error, if there is one.
    pub fn close(self) -> Result<(), Error> {
        self.flush()
    }

    /// Gives up: every call, including calls that wait in other threads, answers with an error from
    /// now on, unless it has done so already.
    pub fn abandon(&self) {
        let closed = self.shared.server.broken(super::broken::Broken::Abandoned);
        let mut state = self.shared.lock();
        self.shared.fail(&mut state, closed);
        self.shared.stop(&mut state);
    }

    /// The present state of the producer.
    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.shared.lock();
        Status {
            settled: state.session.settled(),
            acknowledged: state.acknowledged,
            unacknowledged: state.session.held(),
            connections: state.connections,
            trouble: state.trouble.clone(),
        }
    }

    /// The id of the next message; `None` if there are no more.
    #[must_use]
    pub fn next_id(&self) -> Option<u64> {
        self.shared.lock().session.next_id()
    }

    /// The server's latest welcome: the granted level and limits.
    #[must_use]
    pub fn granted(&self) -> Welcome {
        *self.shared.lock().session.granted().expect("connected")
    }

    /// The level of acknowledgements: what an acknowledged message survives.
    #[must_use]
    pub fn level(&self) -> Level {
        self.granted().level
    }

    fn wait(&self, time: Option<Duration>, over: impl Fn(&State) -> bool) -> Result<(), Error> {
        let until = time.map(|time| self.shared.clock.now() + time);
        let mut state = self.shared.lock();
        while !over(&state) {
            state.check()?;
            if until.is_some_and(|until| until <= self.shared.clock.now()) {
                return Err(Error::TimedOut(time.unwrap_or_default()));
            }
            state = self.shared.wait(state, until);
        }
        Ok(())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        self.shared.stop(&mut state);
        drop(state);
        if let Some(courier) = self.courier.take() {
            // A panic of the thread has printed its own message, which says more.
            let _ = courier.join();
        }
    }
}
