//! The three ways to reach a loop or a connection from elsewhere. One bounded queue for all three
//! would lose wake-ups or refuse answers, so they are separate:
//!
//! * a **signal** ([`LoopHandle::signal`]) cannot be full: many become one call of
//!   [`Service::woken`](crate::Service::woken), which fans out;
//! * a **reserved post** ([`Handle::reserve`]) takes its place before work is submitted, so that
//!   the answer cannot be refused;
//! * a **best-effort post** ([`Handle::try_post`]) is refused when too many wait.
//!
//! Any number of them costs the loop one wake-up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::reach::nudges::{Nudge, Nudges};
use crate::reach::sync::atomic::{AtomicBool, Ordering::SeqCst};
use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::{Command, Unsent, Waker};
use crate::vocabulary::conn_id::ConnId;
use crate::vocabulary::conn_name::ConnName;
use crate::vocabulary::dial::{Dial, NotDialled};

/// Limit of best-effort posts that wait for one service on one loop.
pub const POSTS_MAX: usize = 4096;
/// Reserved places for one service on one loop, used or not.
pub const RESERVED_MAX: usize = 65_536;

/// The mailbox of one service on one loop.
pub(crate) struct Mail<M> {
    queue: Mutex<Queue<M>>,
    signalled: AtomicBool,
    /// Whether `queue` may hold something: spares the loop the lock.
    filled: AtomicBool,
    pub(crate) waker: Arc<Waker>,
    /// Beside the messages, so that connections are told things whose messages cannot leave their loop.
    pub(crate) nudges: Arc<Nudges>,
    pub(crate) service: u16,
}

struct Queue<M> {
    /// Each with the name of its connection as a number, because names cannot leave their loop.
    posts: Vec<(u64, M)>,
    best_effort: usize,
    /// Permits handed out, and reserved posts not yet taken by the loop.
    reserved: usize,
    /// Reserved posts among `posts`.
    reserved_queued: usize,
    closes: BTreeMap<u64, Close>,
    refused: Refused,
}

/// Messages that found no room since the loop last looked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    /// Best-effort posts.
    pub(crate) posts: u64,
    /// Reserved places.
    pub(crate) places: u64,
}

impl Refused {
    pub(crate) fn is_none(self) -> bool {
        self == Refused::default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Close {
    Finish,
    Abort,
}

/// The messages that the loop takes out of a mailbox at once.
pub(crate) struct Batch<M> {
    pub(crate) posts: Vec<(u64, M)>,
    pub(crate) closes: BTreeMap<u64, Close>,
    pub(crate) signalled: bool,
    pub(crate) refused: Refused,
}

impl<M> Mail<M> {
    pub(crate) fn new(waker: Arc<Waker>, service: u16) -> Mail<M> {
        Mail {
            queue: Mutex::new(Queue {
                posts: Vec::new(),
                best_effort: 0,
                reserved: 0,
                reserved_queued: 0,
                closes: BTreeMap::new(),
                refused: Refused::default(),
            }),
            signalled: AtomicBool::new(false),
            filled: AtomicBool::new(false),
            nudges: Arc::new(Nudges::new(waker.clone())),
            waker,
            service,
        }
    }

    /// The service of the mailbox.
    pub(crate) fn service(&self) -> u16 {
        self.service
    }

    /// A signal from the loop itself, which need not be woken.
    pub(crate) fn signal_from_loop(&self) {
        self.signalled.store(true, SeqCst);
    }

    pub(crate) fn take(&self) -> Batch<M> {
        let signalled = self.signalled.load(SeqCst) && self.signalled.swap(false, SeqCst);
        let mut batch = Batch {
            posts: Vec::new(),
            closes: BTreeMap::new(),
            signalled,
            refused: Refused::default(),
        };
        if self.filled.load(SeqCst) && self.filled.swap(false, SeqCst) {
            let mut q = lock(&self.queue);
            batch.posts = std::mem::take(&mut q.posts);
            batch.closes = std::mem::take(&mut q.closes);
            batch.refused = std::mem::take(&mut q.refused);
            q.best_effort = 0;
            q.reserved -= std::mem::take(&mut q.reserved_queued);
        }
        batch
    }

    fn filled(&self) {
        self.filled.store(true, SeqCst);
        self.waker.wake();
    }
}

/// Reaches one connection from any thread. Cheap to clone; outlives the connection harmlessly.
///
/// ```
/// use std::sync::mpsc;
/// use tidewire::{Builder, Cx, EngineChoice, Handle, Input, Next, Protocol, service_fn};
///
/// /// Gives away a handle on itself, and says what comes through it.
/// struct Reachable(mpsc::Sender<Handle<String>>);
///
/// impl Protocol for Reachable {
///     type Local = ();
///     type Message = String;
///
///     fn opened(&mut self, cx: &mut Cx<'_, Self>) {
///         let _ = self.0.send(cx.handle());
///     }
///
///     fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
///         input.consume(input.len());
///         Next::More
///     }
///
///     fn posted(&mut self, message: String, cx: &mut Cx<'_, Self>) {
///         cx.link.write(message.as_bytes());
///         cx.link.finish();
///     }
/// }
///
/// use std::io::Read;
/// let (sender, handles) = mpsc::channel();
/// let running = Builder::new()
///     .engine(EngineChoice::Epoll)
///     .serve("127.0.0.1:0", service_fn(move |_| Reachable(sender.clone())))
///     .start()?;
/// let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
/// // From this thread, which is none of the loops.
/// handles.recv()?.try_post("hello".to_string()).expect("there is room");
/// let mut said = String::new();
/// client.read_to_string(&mut said)?;
/// assert_eq!(said, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Handle<M> {
    /// The connection's name.
    id: u64,
    mail: Arc<Mail<M>>,
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Handle<M> {
        Handle {
            id: self.id,
            mail: self.mail.clone(),
        }
    }
}

impl<M> fmt::Debug for Handle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:?})", self.id())
    }
}

/// Too many posts wait already; the error contains the message.
///
/// ```
/// use tidewire::{NoRoom, Handle};
///
/// /// The message is not lost: the caller decides.
/// fn offer(to: &Handle<String>, message: String) -> Option<String> {
///     match to.try_post(message) {
///         Ok(()) => None,
///         Err(NoRoom(message)) => Some(message),
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[error("too many messages wait for this loop")]
pub struct NoRoom<M>(pub M);

impl<M> Handle<M> {
    pub(crate) fn new(id: ConnId, mail: Arc<Mail<M>>) -> Handle<M> {
        let id = id.to_bits();
        Handle { id, mail }
    }

    /// The connection's name, which is of use on its loop only.
    #[must_use]
    pub fn id(&self) -> ConnId {
        ConnId::from_bits(self.id)
    }

    /// The connection's name among those of all loops.
    ///
    /// ```
    /// # use tidewire::Handle;
    /// fn line(to: &Handle<String>) -> String {
    ///     format!("posts to {:?}", to.name())
    /// }
    /// ```
    #[must_use]
    pub fn name(&self) -> ConnName {
        ConnName::new(self.mail.waker.number(), self.mail.service, self.id())
    }

    /// Makes a nudge, which has this connection notified with `key`.
    pub(crate) fn nudge(&self, key: u64) -> Nudge {
        Nudge::new(self.mail.nudges.clone(), self.id, key)
    }

    /// Posts if there is room. A message for a connection that has gone meanwhile is dropped.
    ///
    /// # Errors
    /// [`NoRoom`] when [`POSTS_MAX`] best-effort posts wait: counted as `posts_refused`, and logged.
    pub fn try_post(&self, message: M) -> Result<(), NoRoom<M>> {
        {
            let mut q = lock(&self.mail.queue);
            if q.best_effort >= POSTS_MAX {
                // The loop, which has been woken for waiting messages, counts it and says so.
                q.refused.posts += 1;
                return Err(NoRoom(message));
            }
            q.best_effort += 1;
            q.posts.push((self.id, message));
        }
        self.mail.filled();
        Ok(())
    }

    /// Takes a place for one message, to be posted later without fail.
    ///
    /// # Errors
    /// [`NoRoom`] when [`RESERVED_MAX`] places are taken: counted as `places_refused`, and logged.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use tidewire::{ConnId, Handle, NoRoom, Permit};
    ///
    /// /// Work that is done elsewhere, with the place of each answer.
    /// struct Queue(HashMap<ConnId, Permit<String>>);
    ///
    /// impl Queue {
    ///     fn ask(&mut self, from: &Handle<String>) -> Result<(), NoRoom<()>> {
    ///         let place = from.reserve()?; // a refusal comes before the work, not after it
    ///         self.0.insert(from.id(), place);
    ///         Ok(())
    ///     }
    ///
    ///     fn answer(&mut self, id: ConnId, answer: String) {
    ///         if let Some(place) = self.0.remove(&id) {
    ///             place.post(answer);
    ///         }
    ///     }
    ///
    ///     fn forbid(&mut self, from: &Handle<String>) {
    ///         self.0.remove(&from.id()); // gives the place back
    ///         from.abort();
    ///     }
    /// }
    /// ```
    pub fn reserve(&self) -> Result<Permit<M>, NoRoom<()>> {
        let mut q = lock(&self.mail.queue);
        if q.reserved >= RESERVED_MAX {
            let is_first = q.refused.is_none();
            q.refused.places += 1;
            drop(q);
            if is_first {
                // Places may be taken for long: nothing else need wake the loop.
                self.mail.filled();
            }
            return Err(NoRoom(()));
        }
        q.reserved += 1;
        Ok(Permit {
            handle: Some(self.clone()),
        })
    }

    /// Has the connection finish in order. Never refused.
    pub fn finish(&self) {
        self.close(Close::Finish);
    }

    /// Has the connection aborted. Never refused.
    pub fn abort(&self) {
        self.close(Close::Abort);
    }

    fn close(&self, how: Close) {
        {
            let mut q = lock(&self.mail.queue);
            let entry = q.closes.entry(self.id).or_insert(how);
            *entry = (*entry).max(how);
        }
        self.mail.filled();
    }
}

/// A place in a mailbox, taken before it is needed. Dropping it gives the place back.
///
/// ```
/// use tidewire::{NoRoom, Handle};
///
/// /// Has work done elsewhere; its answer cannot be refused, because its place is taken first.
/// fn compute(to: &Handle<u64>, n: u64) -> Result<(), NoRoom<()>> {
///     let permit = to.reserve()?;
///     std::thread::spawn(move || permit.post((1..=n).product()));
///     Ok(())
/// }
/// ```
pub struct Permit<M> {
    handle: Option<Handle<M>>,
}

impl<M> fmt::Debug for Permit<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permit({:?})", self.handle.as_ref().map(Handle::id))
    }
}

impl<M> Permit<M> {
    /// Posts. A message for a connection that has gone meanwhile is dropped.
    pub fn post(mut self, message: M) {
        let handle = self.handle.take().expect("a permit is used once");
        {
            let mut q = lock(&handle.mail.queue);
            q.reserved_queued += 1;
            q.posts.push((handle.id, message));
        }
        handle.mail.filled();
    }
}

impl<M> Drop for Permit<M> {
    fn drop(&mut self) {
        if let Some(handle) = &self.handle {
            lock(&handle.mail.queue).reserved -= 1;
        }
    }
}

/// Reaches one service on one loop from any thread. Cheap to clone.
///
/// ```
/// use std::sync::Mutex;
/// use tidewire::LoopHandle;
///
/// /// What a service keeps to reach all of its loops.
/// #[derive(Default)]
/// struct Loops(Mutex<Vec<LoopHandle<()>>>);
///
/// impl Loops {
///     /// Has `Service::woken` called on each, once however often this is called meanwhile.
///     fn signal(&self) {
///         for each in self.0.lock().unwrap().iter() {
///             each.signal();
///         }
///     }
/// }
/// ```
pub struct LoopHandle<M> {
    pub(crate) mail: Arc<Mail<M>>,
}

impl<M> Clone for LoopHandle<M> {
    fn clone(&self) -> LoopHandle<M> {
        LoopHandle {
            mail: self.mail.clone(),
        }
    }
}

impl<M> fmt::Debug for LoopHandle<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoopHandle(service {})", self.mail.service)
    }
}

impl<M> LoopHandle<M> {
    pub(crate) fn new(mail: Arc<Mail<M>>) -> LoopHandle<M> {
        LoopHandle { mail }
    }

    /// Has [`Service::woken`](crate::Service::woken) called on that loop soon. Cannot be refused or
    /// lost; many signals become one call.
    pub fn signal(&self) {
        if !self.mail.signalled.swap(true, SeqCst) {
            self.mail.waker.wake();
        }
    }

    /// The loop's number: from 0 in the order of starting, and not used again. Loop 0 lives as long
    /// as the server does, on every engine; the threads engine has one more loop for each connection,
    /// numbered from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.mail.waker.number()
    }

    /// The handle of the connection of this name; `None` if the connection is of another loop or service. If the connection
    /// has closed, posts to the handle are dropped, as with any handle.
    ///
    /// ```
    /// # use tidewire::{ConnName, Handle, LoopHandle};
    /// fn find(loops: &[LoopHandle<String>], name: ConnName) -> Option<Handle<String>> {
    ///     loops.iter().find_map(|at| at.handle(name))
    /// }
    /// ```
    #[must_use]
    pub fn handle(&self, name: ConnName) -> Option<Handle<M>> {
        let is_here = name.number() == self.number() && name.service() == self.mail.service;
        is_here.then(|| Handle::new(name.id(), self.mail.clone()))
    }

    /// Makes an outgoing connection of this service on that loop. A dial that is taken here becomes
    /// a connection, or [`Service::dial_failed`](crate::Service::dial_failed) is called. With the
    /// threads engine, a loop that has ended with its connection leaves dials to a new thread.
    /// Callbacks dial by [`Cx::dial`](crate::Cx::dial).
    ///
    /// # Errors
    /// See [`NotDialled`]; the dial comes back.
    ///
    /// ```
    /// use std::sync::{Arc, OnceLock};
    /// use tidewire::*;
    /// # struct Conn;
    /// # impl Protocol for Conn { type Local = (); type Message = ();
    /// #   fn opened(&mut self, cx: &mut Cx<'_, Self>) { cx.link.write(b"hello"); cx.link.finish(); }
    /// #   fn received(&mut self, i: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next { cx.link.forward_all(i) } }
    ///
    /// /// Keeps the way to its first loop, so that the program can have it connect.
    /// #[derive(Default)]
    /// struct Client {
    ///     first: OnceLock<LoopHandle<()>>,
    /// }
    ///
    /// impl Service for Client {
    ///     type Conn = Conn;
    ///
    ///     fn on_loop(&self, at: LoopHandle<()>) {
    ///         if at.number() == 0 {
    ///             let _ = self.first.set(at);
    ///         }
    ///     }
    ///
    ///     fn accept(&self, _: &Peer, _: &mut ()) -> Result<Conn, Refusal> {
    ///         Ok(Conn) // which says hello
    ///     }
    /// }
    ///
    /// let client = Arc::new(Client::default());
    /// let mut builder = Builder::new();
    /// builder.engine(EngineChoice::Epoll).service(client.clone());
    /// let running = builder.start()?;
    /// let server = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let first = client.first.get().expect("the loop has begun");
    /// first.dial(Dial::to(server.local_addr()?))?;
    /// let mut said = String::new();
    /// std::io::Read::read_to_string(&mut server.accept()?.0, &mut said)?;
    /// assert_eq!(said, "hello");
    /// # drop(running);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dial(&self, dial: Dial) -> Result<(), NotDialled> {
        let service = self.mail.service;
        let sent = self.mail.waker.send(Command::Dial { service, dial });
        sent.map_err(Unsent::into_not_dialled)
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> Handle<u32> {
        let mail = Arc::new(Mail::new(Arc::new(Waker::new()), 0));
        Handle::new(ConnId::new(1, 1), mail)
    }

    #[test]
    fn best_effort_is_bounded_and_reserved_is_not_refused() {
        let h = handle();
        let permit = h.reserve().unwrap();
        for i in 0..POSTS_MAX {
            h.try_post(i as u32).unwrap();
        }
        assert!(h.try_post(7).is_err());
        permit.post(99);
        let batch = h.mail.take();
        assert_eq!((batch.refused.posts, batch.refused.places), (1, 0));
        assert_eq!(batch.posts.len(), POSTS_MAX + 1);
        assert_eq!(batch.posts[POSTS_MAX].1, 99);
        h.try_post(1).unwrap();
        assert_eq!(lock(&h.mail.queue).reserved, 0);
    }

    #[test]
    fn places_come_back_when_dropped_unused() {
        let h = handle();
        // To Miri all places would be the work of an hour.
        if cfg!(miri) {
            lock(&h.mail.queue).reserved = RESERVED_MAX - 64;
        }
        let left = RESERVED_MAX - lock(&h.mail.queue).reserved;
        let permits: Vec<_> = (0..left).map(|_| h.reserve().unwrap()).collect();
        assert!(h.reserve().is_err());
        assert_eq!(h.mail.take().refused.places, 1, "the loop is told of it");
        drop(permits);
        assert!(h.reserve().is_ok());
    }

    #[test]
    fn closes_and_signals_coalesce() {
        let h = handle();
        h.abort();
        h.finish();
        let at = LoopHandle::new(h.mail.clone());
        at.signal();
        at.signal();
        let batch = h.mail.take();
        assert_eq!(
            batch.closes.into_iter().collect::<Vec<_>>(),
            [(h.id().to_bits(), Close::Abort)]
        );
        assert!(batch.signalled && !h.mail.take().signalled);
    }
}
