//! Bounded channels between connections, loops and threads, with backpressure: a sender that finds no room is told when there
//! is some, once, in the order of waiting, and can stop reading its own peer meanwhile.
//!
//! Places are promised: when the receiver takes something, the one that has waited longest is told, and the place is kept for
//! it until it sends, [forgoes](Sender::forgo) it, or is dropped; where its connection has ended meanwhile, or finishes, the next
//! one is told instead. So as many are told as places were freed, and each that is told finds room. Nothing is polled, and no
//! timer is involved.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use std::time::Duration;
//! use tidewire::channel::{self, Receiver, SendError, Sender};
//! use tidewire::sim::{Conditions, Sim};
//! use tidewire::{Cx, Input, Limits, Next, Peer, Protocol, service_fn};
//!
//! const CHANNEL: u64 = 0;
//!
//! /// The first connection prints what all others say.
//! enum Conn {
//!     Printer(Receiver<u8>),
//!     Talker(Sender<u8>),
//! }
//!
//! impl Conn {
//!     fn print(lines: &mut Receiver<u8>, cx: &mut Cx<'_, Conn>) {
//!         while !cx.link.full() {
//!             match lines.take() {
//!                 Some(byte) => cx.link.write(&[byte]),
//!                 None => return, // it is told when something comes
//!             }
//!         }
//!     }
//! }
//!
//! impl Protocol for Conn {
//!     type Local = ();
//!     type Message = ();
//!
//!     fn opened(&mut self, cx: &mut Cx<'_, Conn>) {
//!         match self {
//!             Conn::Printer(lines) => lines.notify(&cx.handle(), CHANNEL),
//!             Conn::Talker(printer) => printer.notify(&cx.handle(), CHANNEL),
//!         }
//!     }
//!
//!     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Conn>) -> Next {
//!         let Conn::Talker(printer) = self else { return Next::More };
//!         while let Some(&byte) = input.bytes().first() {
//!             match printer.try_send(byte) {
//!                 Ok(()) => input.consume(1),
//!                 Err(SendError::NoRoom(_)) => return Next::Paused,
//!                 Err(SendError::Gone(_)) => {
//!                     cx.link.abort();
//!                     break;
//!                 }
//!             }
//!         }
//!         Next::More
//!     }
//!
//!     fn notified(&mut self, _: u64, cx: &mut Cx<'_, Conn>) {
//!         match self {
//!             Conn::Printer(lines) => Conn::print(lines, cx),
//!             Conn::Talker(_) => cx.link.resume(), // and what was left is offered again
//!         }
//!     }
//!
//!     fn writable(&mut self, cx: &mut Cx<'_, Conn>) {
//!         if let Conn::Printer(lines) = self {
//!             Conn::print(lines, cx);
//!         }
//!     }
//! }
//!
//! let (sender, receiver) = channel::bounded(2);
//! let printer = Mutex::new(Some(receiver));
//! let service = service_fn(move |_: &Peer| match printer.lock().unwrap().take() {
//!     Some(receiver) => Conn::Printer(receiver),
//!     None => Conn::Talker(sender.clone()),
//! });
//! let mut sim = Sim::under(1, Conditions::calm());
//! let addr = sim.serve(service, Limits::default());
//! let printer = sim.plain(addr.clone());
//! sim.run_for(Duration::from_secs(1));
//! let talker = sim.plain(addr);
//! sim.send(talker, b"far more than two");
//! sim.run_for(Duration::from_secs(1));
//! assert_eq!(sim.received(printer), b"far more than two");
//! ```

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use crate::reach::mailbox::Handle;
use crate::reach::nudges::{Nudge, Promised, Promises};
use crate::reach::stop::StopClock;
use crate::reach::sync::{Condvar, Mutex, lock};

/// A channel for at most `bound` items, at least 1. Each end belongs to one connection or thread.
///
/// ```
/// use tidewire::channel::{self, SendError};
///
/// let (mut sender, mut receiver) = channel::bounded(1);
/// assert!(sender.try_send('a').is_ok());
/// assert!(matches!(sender.try_send('b'), Err(SendError::NoRoom('b'))));
/// assert_eq!((receiver.take(), receiver.take()), (Some('a'), None));
/// assert_eq!(receiver.delayed(), 1);
/// drop(receiver);
/// assert!(matches!(sender.try_send('b'), Err(SendError::Gone('b'))));
/// ```
#[must_use]
pub fn bounded<T: Send + 'static>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new_cyclic(|me| Shared {
        me: me.clone(),
        queue: Mutex::new(Queue {
            items: VecDeque::new(),
            bound: bound.max(1),
            senders: 1,
            waiting: VecDeque::new(),
            promised: BTreeSet::new(),
            next: 0,
            delayed: 0,
            receiver: Reading {
                nudge: None,
                is_told: false,
                is_gone: false,
            },
        }),
        promises: Condvar::new(),
    });
    let sender = Sender {
        shared: shared.clone(),
        nudge: None,
        ticket: None,
    };
    (sender, Receiver { shared })
}

struct Shared<T> {
    /// This channel, named to the senders to which it has promised a place.
    me: Weak<Shared<T>>,
    queue: Mutex<Queue<T>>,
    /// Threads that wait for a place.
    promises: Condvar,
}

struct Queue<T> {
    items: VecDeque<T>,
    bound: usize,
    senders: usize,
    /// Senders that found no room, in order: a ticket each, and the connection to tell; `None` for a thread, which waits itself.
    waiting: VecDeque<(u64, Option<Nudge>)>,
    /// Tickets of senders that were told of room and have not used it. With the items they are never more than `bound`.
    promised: BTreeSet<u64>,
    /// The next ticket.
    next: u64,
    /// Sends that found no room.
    delayed: u64,
    receiver: Reading,
}

/// The receiving end.
struct Reading {
    nudge: Option<Nudge>,
    /// The receiver was told that there is something, and has not found the channel empty since.
    is_told: bool,
    is_gone: bool,
}

/// Which end is told when the lock is free again.
enum Told {
    None,
    Receiver(Nudge),
    /// The sender with this ticket, for which a place is kept; no nudge for a thread.
    Waiter(u64, Option<Nudge>),
}

impl<T> Queue<T> {
    fn has_room(&self) -> bool {
        self.items.len() + self.promised.len() < self.bound
    }

    /// Something has come, or the last sender has gone.
    fn tell_receiver(&mut self) -> Told {
        let reading = &mut self.receiver;
        if std::mem::replace(&mut reading.is_told, true) {
            return Told::None;
        }
        reading.nudge.clone().map_or(Told::None, Told::Receiver)
    }

    /// Promises a place that is free to the one that has waited longest.
    fn promise(&mut self) -> Told {
        if !self.has_room() {
            return Told::None;
        }
        let Some((ticket, nudge)) = self.waiting.pop_front() else {
            return Told::None;
        };
        self.promised.insert(ticket);
        Told::Waiter(ticket, nudge)
    }

    /// Takes back what this ticket waits for or was promised.
    fn give_up(&mut self, ticket: u64) -> Told {
        self.waiting.retain(|&(waits, _)| waits != ticket);
        match self.promised.remove(&ticket) {
            true => self.promise(),
            false => Told::None,
        }
    }
}

impl<T: Send + 'static> Shared<T> {
    fn tell(&self, told: Told) {
        let mut told = told;
        loop {
            match told {
                Told::None => return,
                Told::Receiver(nudge) => {
                    nudge.give(None);
                    return;
                }
                Told::Waiter(ticket, Some(nudge)) => {
                    let by = self.me.clone();
                    if nudge.give(Some(Promised { by, ticket })) {
                        return;
                    }
                    // The sender's loop has ended: the next sender is told.
                    told = lock(&self.queue).give_up(ticket);
                }
                // Each waiting thread checks whether the notice is meant for it.
                Told::Waiter(_, None) => return self.promises.notify_all(),
            }
        }
    }
}

impl<T: Send + 'static> Promises for Shared<T> {
    fn decline(&self, ticket: u64) {
        let told = lock(&self.queue).give_up(ticket);
        self.tell(told);
    }
}

/// Why a value was not sent; the value comes back.
///
/// ```
/// use tidewire::channel::SendError;
///
/// fn what_now(error: &SendError<String>) -> &'static str {
///     match error {
///         SendError::NoRoom(_) => "wait to be notified",
///         SendError::Gone(_) => "it will never be taken",
///     }
/// }
/// ```
#[derive(Debug, thiserror::Error)]
pub enum SendError<T> {
    /// The channel is full, or what is free is promised to others that have waited longer.
    #[error("the channel has no room")]
    NoRoom(T),
    /// The receiver is gone.
    #[error("the channel's receiver is gone")]
    Gone(T),
}

/// The sending end of a [channel](bounded). A clone is another sender, which waits for itself.
///
/// ```
/// use tidewire::Handle;
/// use tidewire::channel::{self, Sender};
///
/// // Threads wait.
/// let (mut sender, mut receiver) = channel::bounded(1);
/// let thread = std::thread::spawn(move || (0..100).all(|n| sender.send(n).is_ok()));
/// let mut taken = 0;
/// while taken < 100 {
///     taken += receiver.take().map_or(0, |_| 1);
/// }
/// assert!(thread.join().unwrap());
///
/// /// A connection is told; this one only asks once.
/// fn offer(to: &mut Sender<u64>, me: &Handle<()>) -> bool {
///     to.notify(me, 1);
///     let is_sent = to.try_send(7).is_ok();
///     to.forgo();
///     is_sent
/// }
/// ```
pub struct Sender<T: Send + 'static> {
    shared: Arc<Shared<T>>,
    nudge: Option<Nudge>,
    /// The sender waits, or was promised a place.
    ticket: Option<u64>,
}

impl<T: Send + 'static> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sender(waits: {})", self.ticket.is_some())
    }
}

impl<T: Send + 'static> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        lock(&self.shared.queue).senders += 1;
        Sender {
            shared: self.shared.clone(),
            nudge: None,
            ticket: None,
        }
    }
}

impl<T: Send + 'static> Sender<T> {
    /// Has this connection [notified](crate::Protocol::notified) with `key` when there is room after a send of this sender
    /// found none, or when the receiver has gone meanwhile.
    pub fn notify<M>(&mut self, connection: &Handle<M>, key: u64) {
        self.forgo();
        self.nudge = Some(connection.nudge(key));
    }

    /// Sends if there is room. Where there is none, this sender waits from now on, if a connection is to be
    /// [notified](Sender::notify) for it.
    ///
    /// # Errors
    /// [`SendError`]; the item comes back.
    pub fn try_send(&mut self, item: T) -> Result<(), SendError<T>> {
        let sent = self.offer(item, self.nudge.is_some());
        if let (Err(SendError::NoRoom(_)), Some(nudge)) = (&sent, &self.nudge) {
            nudge.delayed();
        }
        sent
    }

    /// Sends, and waits for room: for threads that are no loops. On the thread of a loop, which may not wait, it is
    /// [`try_send`](Sender::try_send); so it is for callbacks.
    ///
    /// # Errors
    /// [`SendError`]; the item comes back.
    pub fn send(&mut self, item: T) -> Result<(), SendError<T>> {
        if StopClock::is_any_here() {
            return self.try_send(item);
        }
        self.forgo();
        self.nudge = None;
        let mut item = item;
        loop {
            match self.offer(item, true) {
                Err(SendError::NoRoom(back)) => item = back,
                other => return other,
            }
            let ticket = self.ticket.expect("it waits");
            let mut q = lock(&self.shared.queue);
            while !q.receiver.is_gone && !q.promised.contains(&ticket) {
                let woken = self.shared.promises.wait(q);
                q = woken.unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Gives up waiting, or the place that was promised, which goes to the next one that waits.
    pub fn forgo(&mut self) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let told = lock(&self.shared.queue).give_up(ticket);
        self.shared.tell(told);
    }

    /// Sends if there is room for this sender, else waits if it is to.
    fn offer(&mut self, item: T, waits: bool) -> Result<(), SendError<T>> {
        let told = {
            let q = &mut *lock(&self.shared.queue);
            if q.receiver.is_gone {
                self.ticket = None;
                return Err(SendError::Gone(item));
            }
            let is_promised = self.ticket.is_some_and(|ticket| q.promised.remove(&ticket));
            let is_free = self.ticket.is_none() && q.waiting.is_empty() && q.has_room();
            if !is_promised && !is_free {
                q.delayed += 1;
                if waits && self.ticket.is_none() {
                    self.ticket = Some(q.next);
                    q.waiting.push_back((q.next, self.nudge.clone()));
                    q.next += 1;
                }
                return Err(SendError::NoRoom(item));
            }
            self.ticket = None;
            q.items.push_back(item);
            q.tell_receiver()
        };
        self.shared.tell(told);
        Ok(())
    }
}

impl<T: Send + 'static> Drop for Sender<T> {
    fn drop(&mut self) {
        self.forgo();
        let told = {
            let q = &mut *lock(&self.shared.queue);
            q.senders -= 1;
            match q.senders {
                0 => q.tell_receiver(),
                _ => Told::None,
            }
        };
        self.shared.tell(told);
    }
}

/// The receiving end of a [channel](bounded).
///
/// ```
/// use tidewire::channel::{self, Receiver};
/// use tidewire::{Cx, Protocol};
///
/// /// Has the connection notified with 0 when something comes, and looks at once.
/// fn watch<P: Protocol>(from: &mut Receiver<String>, cx: &mut Cx<'_, P>) {
///     from.notify(&cx.handle(), 0);
///     while let Some(text) = from.take() {
///         cx.link.write(text.as_bytes());
///     }
///     if from.is_over() {
///         cx.link.finish();
///     }
/// }
///
/// let (mut sender, receiver) = channel::bounded(2);
/// assert!(receiver.is_empty());
/// sender.send("a".to_string())?;
/// assert_eq!((receiver.len(), receiver.delayed()), (1, 0));
/// # Ok::<(), channel::SendError<String>>(())
/// ```
///
/// Dropping the receiver tells all waiting senders, and drops the values that were not taken.
pub struct Receiver<T: Send + 'static> {
    shared: Arc<Shared<T>>,
}

impl<T: Send + 'static> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver({} items)", self.len())
    }
}

impl<T: Send + 'static> Receiver<T> {
    /// Has this connection [notified](crate::Protocol::notified) with `key` when something comes, and when the last sender has
    /// gone. The connection is told again only after [`take`](Receiver::take) has found nothing.
    pub fn notify<M>(&mut self, connection: &Handle<M>, key: u64) {
        let told = {
            let q = &mut *lock(&self.shared.queue);
            q.receiver.nudge = Some(connection.nudge(key));
            q.receiver.is_told = false;
            match q.items.is_empty() && q.senders > 0 {
                true => Told::None,
                false => q.tell_receiver(),
            }
        };
        self.shared.tell(told);
    }

    /// Takes the oldest item, and tells the sender that has waited longest that there is room.
    pub fn take(&mut self) -> Option<T> {
        let (item, told) = {
            let q = &mut *lock(&self.shared.queue);
            let item = q.items.pop_front();
            q.receiver.is_told &= item.is_some();
            (item, q.promise())
        };
        self.shared.tell(told);
        item
    }

    /// Whether nothing is left and no sender either.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let q = lock(&self.shared.queue);
        q.items.is_empty() && q.senders == 0
    }

    /// Items that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.shared.queue).items.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends that found no room so far.
    #[must_use]
    pub fn delayed(&self) -> u64 {
        lock(&self.shared.queue).delayed
    }
}

impl<T: Send + 'static> Drop for Receiver<T> {
    fn drop(&mut self) {
        let (waiting, items) = {
            let q = &mut *lock(&self.shared.queue);
            q.receiver.is_gone = true;
            q.receiver.nudge = None;
            q.promised.clear();
            (std::mem::take(&mut q.waiting), std::mem::take(&mut q.items))
        };
        for nudge in waiting.into_iter().filter_map(|(_, nudge)| nudge) {
            nudge.give(None);
        }
        self.shared.promises.notify_all();
        drop(items);
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::nudges::{Nudges, decline};
    use crate::reach::waker::Waker;

    fn is_full<T>(sent: Result<(), SendError<T>>) -> bool {
        matches!(sent, Err(SendError::NoRoom(_)))
    }

    fn waits<T: Send + 'static>(channel: &Receiver<T>) -> (usize, usize) {
        let q = lock(&channel.shared.queue);
        (q.waiting.len(), q.promised.len())
    }

    /// A thread has to be seen to wait before something is taken.
    fn until(mut done: impl FnMut() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn threads_wait_for_room_in_their_order() {
        let (mut sender, mut receiver) = bounded(1);
        sender.send(0).unwrap();
        let threads: Vec<_> = (1..4)
            .map(|n| {
                let mut theirs = sender.clone();
                let thread = std::thread::spawn(move || theirs.send(n).unwrap());
                until(|| waits(&receiver).0 == n);
                thread
            })
            .collect();
        for n in 0..4 {
            let mut taken = None;
            until(|| {
                taken = receiver.take();
                taken.is_some()
            });
            assert_eq!(taken, Some(n));
        }
        threads.into_iter().for_each(|t| t.join().unwrap());
        drop(sender);
        assert!(receiver.is_over());
    }

    #[test]
    fn a_promised_place_is_kept_and_passed_on() {
        let (mut first, mut receiver) = bounded(2);
        first.send('a').unwrap();
        first.send('b').unwrap();
        let (mut waits_1, mut waits_2, mut late) = (first.clone(), first.clone(), first.clone());
        assert!(is_full(waits_1.offer('c', true)) && is_full(waits_2.offer('d', true)));
        assert!(is_full(waits_1.offer('c', true)), "it waits already");
        assert_eq!(waits(&receiver), (2, 0));
        assert_eq!(receiver.take(), Some('a'));
        assert_eq!(waits(&receiver), (1, 1), "one is told for one place");
        assert!(is_full(late.try_send('x')) && is_full(waits_2.offer('d', true)));
        // A place that the first waiter does not use goes to the next.
        drop(waits_1);
        assert_eq!(waits(&receiver), (0, 1));
        assert!(is_full(late.try_send('x')));
        waits_2.try_send('d').unwrap();
        assert!(is_full(late.try_send('x')));
        assert_eq!([receiver.take(), receiver.take()], [Some('b'), Some('d')]);
        late.try_send('x').unwrap();
        assert_eq!(receiver.take(), Some('x'));
        assert_eq!(receiver.delayed(), 7);
    }

    #[test]
    fn a_loop_that_has_ended_is_promised_nothing() {
        let waker = Arc::new(Waker::new());
        let nudges = Arc::new(Nudges::new(waker));
        let (mut sender, mut receiver) = bounded(1);
        sender.send(0).unwrap();
        // The owner of these senders is none of the loop's connections, and lives on.
        let mut waiting = [1, 2].map(|n| {
            let mut sender = sender.clone();
            sender.nudge = Some(Nudge::new(nudges.clone(), n, 0));
            assert!(is_full(sender.try_send(n)));
            sender
        });
        assert_eq!(receiver.take(), Some(0));
        assert_eq!(waits(&receiver), (1, 1));
        for promised in nudges.close().names.into_values() {
            decline(promised);
        }
        assert_eq!(waits(&receiver), (0, 0));
        sender.send(3).unwrap();
        assert!(is_full(waiting[0].try_send(1)));
        assert_eq!(receiver.take(), Some(3));
        assert_eq!(waits(&receiver), (0, 0));
    }

    #[test]
    fn a_receiver_that_goes_wakes_all() {
        let (mut sender, receiver) = bounded(1);
        sender.send(0).unwrap();
        let threads: Vec<_> = (1..3)
            .map(|n| {
                let mut theirs = sender.clone();
                let thread = std::thread::spawn(move || theirs.send(n));
                until(|| waits(&receiver).0 == n);
                thread
            })
            .collect();
        drop(receiver);
        for thread in threads {
            assert!(matches!(thread.join().unwrap(), Err(SendError::Gone(_))));
        }
    }
}
