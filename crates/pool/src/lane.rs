//! One connection's work in the order in which the connection asked for it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tidewire::Handle;

use crate::pool::{Place, Pool, Refused};
use crate::work::NotDone;

/// The work that one connection has under way, in order. Keep a lane in the connection's protocol;
/// when the lane is dropped, work that has not begun is not done.
///
/// ```
/// use tidewire::{Cx, Input, Next, Protocol};
/// use tidewire_pool::{Lane, NotDone, Pool};
///
/// /// Answers each byte in order, though some take longer than others.
/// struct InOrder {
///     pool: Pool,
///     lane: Lane<Result<u64, NotDone>>,
/// }
///
/// impl Protocol for InOrder {
///     type Local = ();
///     type Message = (u64, Result<u64, NotDone>);
///
///     fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
///         while let Some(&n) = input.bytes().first() {
///             match self.lane.reserve(&self.pool, &cx.handle()) {
///                 Ok(place) => self.lane.run(
///                     place,
///                     move || (0..u64::from(n)).product(),
///                     |number, result| (number, result),
///                 ),
///                 // `posted` takes it up again.
///                 Err(_) if !self.lane.is_empty() => {
///                     cx.link.pause();
///                     return Next::More;
///                 }
///                 Err(_) => {
///                     cx.link.finish_because("the pool is full");
///                     return Next::More;
///                 }
///             }
///             input.consume(1);
///         }
///         Next::More
///     }
///
///     fn posted(&mut self, (number, result): Self::Message, cx: &mut Cx<'_, Self>) {
///         self.lane.put(number, result);
///         while let Some(result) = self.lane.pop() {
///             cx.link.write(format!("{result:?}\n").as_bytes());
///         }
///         cx.link.resume();
///     }
/// }
/// ```
pub struct Lane<T> {
    most: usize,
    /// The number of the oldest one that was not given out.
    first: u64,
    /// From there on, all that are under way.
    results: VecDeque<Option<T>>,
    /// Made with the first work: an idle connection has none.
    gone: Option<Arc<AtomicBool>>,
}

impl<T> fmt::Debug for Lane<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({} from {})", self.results.len(), self.first)
    }
}

impl<T> Lane<T> {
    /// At most `most` pieces of work, at least 1, are under way at once: asked for, and their results
    /// not yet [given out](Lane::pop).
    #[must_use]
    pub fn new(most: usize) -> Lane<T> {
        Lane {
            most: most.max(1),
            first: 0,
            results: VecDeque::new(),
            gone: None,
        }
    }

    /// Takes a place for work of this lane; see [`Pool::reserve`].
    ///
    /// # Errors
    /// [`Refused`], also if `most` pieces of work are under way.
    pub fn reserve<M: Send + 'static>(
        &self,
        pool: &Pool,
        to: &Handle<M>,
    ) -> Result<Place<M>, Refused> {
        if self.results.len() >= self.most {
            return Err(pool.refused_by_lane());
        }
        pool.reserve(to)
    }

    /// Has `work` done, with the lane's next number; see [`Place::run`]. The message must bring number
    /// and result back to [`put`](Lane::put).
    pub fn run<M: Send + 'static, R>(
        &mut self,
        place: Place<M>,
        work: impl FnOnce() -> R + Send + 'static,
        answer: impl FnOnce(u64, Result<R, NotDone>) -> M + Send + 'static,
    ) {
        let number = self.first + self.results.len() as u64;
        self.results.push_back(None);
        let gone = self.gone.get_or_insert_default().clone();
        place.run_unless(
            move || gone.load(Relaxed),
            work,
            move |result| answer(number, result),
        );
    }

    /// Gives the result of the work with this number. A result of unknown work is dropped.
    pub fn put(&mut self, number: u64, result: T) {
        let place = number.checked_sub(self.first);
        let place = place.and_then(|n| self.results.get_mut(usize::try_from(n).ok()?));
        if let Some(place) = place {
            *place = Some(result);
        }
    }

    /// Gives out the next result in order, if it is there.
    pub fn pop(&mut self) -> Option<T> {
        let result = self.results.front_mut()?.take()?;
        self.results.pop_front();
        self.first += 1;
        if self.results.is_empty() {
            self.results = VecDeque::new();
        }
        Some(result)
    }

    /// Whether no work is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.results.is_empty()
    }

    /// How many pieces of work are under way.
    ///
    /// ```
    /// use tidewire_pool::Lane;
    ///
    /// let lane: Lane<String> = Lane::new(16);
    /// assert_eq!((lane.len(), lane.is_empty()), (0, true));
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.results.len()
    }
}

impl<T> Drop for Lane<T> {
    fn drop(&mut self) {
        if let Some(gone) = &self.gone {
            gone.store(true, Relaxed);
        }
    }
}
