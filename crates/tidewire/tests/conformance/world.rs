//! The world that a case lives in: this machine, or a simulated network in virtual time.
//!
//! Cases are written once, with calls that block. In a simulated world such a call has the simulation
//! go on until what it waits for is there. The simulation lives on the case's own thread; other threads of the
//! case ask there, and only one of them runs at a time, so that the same seed gives the same run.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidewire::sim::Sim;

use crate::client::PATIENCE;

/// Longest wait, in real time, for a thread of a case to say what it waits for.
const STUCK: Duration = Duration::from_secs(60);

/// Longer than any case waits, in virtual time.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// Looks whether what a thread waits for is there; `true` says that there is no more time.
type Look = Box<dyn FnMut(&mut Sim, bool) -> bool + Send>;

/// What another thread of the case waits for.
struct Ask {
    most: Duration,
    /// Set when it is first looked at.
    until: Option<tidewire::Instant>,
    look: Look,
    /// The asking thread. It alone is woken by the answer: with a hundred others waiting, waking
    /// all of them for each answer was most of what the suite cost.
    asker: thread::Thread,
}

#[derive(Default)]
struct Others {
    /// Threads that do not wait.
    running: usize,
    asks: Vec<Ask>,
    /// Ports that were given out.
    ports: u16,
    /// The case is over.
    over: bool,
}

#[derive(Default)]
struct Shared {
    others: Mutex<Others>,
    /// Fewer run than before: for the thread that has them go on, one after the other.
    fewer_run: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, others: MutexGuard<'a, Others>) -> MutexGuard<'a, Others> {
        let waited = self.fewer_run.wait_timeout(others, STUCK);
        let (others, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(
            !timeout.timed_out(),
            "a thread of the case waits for something real"
        );
        others
    }
}

#[derive(Clone)]
enum World {
    Here(Rc<RefCell<Sim>>, Arc<Shared>),
    Elsewhere(Arc<Shared>),
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn world() -> Option<World> {
    WORLD.with_borrow(Clone::clone)
}

/// Whether this thread is of a case in a simulated world.
pub(crate) fn is_simulated() -> bool {
    WORLD.with_borrow(Option::is_some)
}

/// Runs a case in a simulated world; a hash of everything that happened on its network.
pub(crate) fn simulated(sim: Sim, case: impl FnOnce()) -> u64 {
    struct Over(Arc<Shared>);
    impl Drop for Over {
        fn drop(&mut self) {
            let mut others = self.0.lock();
            others.over = true;
            others.asks.iter().for_each(|ask| ask.asker.unpark());
            drop(others);
            WORLD.set(None);
        }
    }
    let shared = Arc::<Shared>::default();
    let _over = Over(shared.clone());
    let sim = Rc::new(RefCell::new(sim));
    WORLD.set(Some(World::Here(sim.clone(), shared)));
    case();
    sim.borrow().trace_hash()
}

/// An unused port on the case's network.
pub(crate) fn unused_port() -> u16 {
    match world().expect("only called in simulated worlds") {
        World::Here(_, shared) | World::Elsewhere(shared) => {
            let mut others = shared.lock();
            others.ports += 1;
            20_000 + others.ports
        }
    }
}

/// Has the simulation do something at once.
pub(crate) fn with<R: Send + 'static>(f: impl FnOnce(&mut Sim) -> R + Send + 'static) -> R {
    if let Some(World::Here(sim, _)) = world() {
        return f(&mut sim.borrow_mut());
    }
    let mut f = Some(f);
    let once = move |sim: &mut Sim| f.take().map(|f| f(sim));
    wait(PATIENCE, once).expect("is answered at once")
}

/// As [`with`], where there may be no simulation any more: values of the case are dropped after it.
pub(crate) fn at_the_end(f: impl FnOnce(&mut Sim) + Send + 'static) {
    match world() {
        Some(World::Here(sim, _)) => {
            if let Ok(mut sim) = sim.try_borrow_mut() {
                f(&mut sim);
            }
        }
        Some(World::Elsewhere(shared)) if !shared.lock().over && !thread::panicking() => with(f),
        Some(World::Elsewhere(_)) | None => {}
    }
}

/// Waits until something is there, in virtual time; `None` if it is not within `most`.
pub(crate) fn wait<R: Send + 'static>(
    most: Duration,
    mut look: impl FnMut(&mut Sim) -> Option<R> + Send + 'static,
) -> Option<R> {
    match world().expect("only called in simulated worlds") {
        World::Here(sim, shared) => {
            let mut found = None;
            drive(&sim, &shared, most, &mut || {
                found = look(&mut sim.borrow_mut());
                found.is_some()
            });
            found
        }
        World::Elsewhere(shared) => {
            let found = Arc::new(Mutex::new(None));
            let theirs = found.clone();
            let look: Look = Box::new(move |sim, late| {
                let there = look(sim);
                let over = there.is_some() || late;
                if over {
                    *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(there);
                }
                over
            });
            let mut others = shared.lock();
            others.asks.push(Ask {
                most,
                until: None,
                look,
                asker: thread::current(),
            });
            others.running -= 1;
            shared.fewer_run.notify_all();
            loop {
                let answer = found.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(answer) = answer {
                    return answer;
                }
                if others.over {
                    others.running += 1;
                    drop(others);
                    panic!("the case is over");
                }
                drop(others);
                thread::park();
                others = shared.lock();
            }
        }
    }
}

/// Waits until `done` says so, which is asked whenever something has happened.
pub(crate) fn wait_here(most: Duration, mut done: impl FnMut() -> bool) -> bool {
    match world().expect("only called in simulated worlds") {
        World::Here(sim, shared) => drive(&sim, &shared, most, &mut done),
        World::Elsewhere(_) => {
            let until = Moment::now();
            while !done() {
                if until.elapsed() >= most {
                    return false;
                }
                let mut asked = false;
                wait(most, move |_| {
                    std::mem::replace(&mut asked, true).then_some(())
                });
            }
            true
        }
    }
}

/// Has the simulation go on until `done` says so, or `most` has passed.
fn drive(
    sim: &RefCell<Sim>,
    shared: &Shared,
    most: Duration,
    done: &mut dyn FnMut() -> bool,
) -> bool {
    let until = sim.borrow().now() + most.min(FOR_EVER);
    loop {
        answer(&mut sim.borrow_mut(), shared);
        if done() {
            return true;
        }
        let sim = &mut *sim.borrow_mut();
        let now = sim.now();
        if now >= until {
            return false;
        }
        let mut looks = 0;
        sim.run_until(Duration::ZERO, |_| {
            looks += 1;
            false
        });
        if looks > 1 {
            // Something happened at this time: perhaps it is there now.
            continue;
        }
        let others = shared.lock();
        let asked = others.asks.iter().filter_map(|ask| ask.until);
        let next = asked.fold(until, tidewire::Instant::min) - now;
        drop(others);
        if !sim.run_until(next, |sim| sim.now() > now) {
            sim.run_for(next);
        }
    }
}

/// Lets the other threads of the case go on, one after the other, until all of them wait.
fn answer(sim: &mut Sim, shared: &Shared) {
    let mut others = shared.lock();
    loop {
        while others.running > 0 {
            others = shared.wait(others);
        }
        let now = sim.now();
        let answered = others.asks.iter_mut().position(|ask| {
            let most = ask.most.min(FOR_EVER);
            let until = *ask.until.get_or_insert(now + most);
            (ask.look)(sim, now >= until)
        });
        let Some(answered) = answered else { return };
        let answered = others.asks.remove(answered);
        others.running += 1;
        answered.asker.unpark();
    }
}

/// Another thread of a case.
pub(crate) struct Joined<T> {
    thread: thread::JoinHandle<T>,
    /// The thread waits for nothing any more.
    ended: Arc<AtomicBool>,
}

impl<T> Joined<T> {
    pub(crate) fn is_finished(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Waits for its end.
    pub(crate) fn join(self) -> thread::Result<T> {
        if is_simulated() {
            wait_here(PATIENCE * 10, || self.is_finished());
        }
        self.thread.join()
    }
}

/// Says so when it is dropped: at the end of a thread, also by a panic.
struct Ending {
    shared: Option<Arc<Shared>>,
    ended: Arc<AtomicBool>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.ended.store(true, SeqCst);
        if let Some(shared) = &self.shared {
            shared.lock().running -= 1;
            shared.fewer_run.notify_all();
        }
    }
}

/// Starts one.
pub(crate) fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Joined<T> {
    let ended = Arc::new(AtomicBool::new(false));
    let (shared, others_run) = match world() {
        Some(World::Here(_, shared)) => (Some(shared), 0),
        Some(World::Elsewhere(shared)) => (Some(shared), 1),
        None => (None, 0),
    };
    if let Some(shared) = &shared {
        shared.lock().running += 1;
    }
    let ending = Ending {
        shared: shared.clone(),
        ended: ended.clone(),
    };
    let thread = thread::spawn(move || {
        WORLD.set(ending.shared.clone().map(World::Elsewhere));
        let _ending = ending;
        f()
    });
    // The thread comes first, as far as it gets.
    if let Some(shared) = shared {
        let mut others = shared.lock();
        while others.running > others_run {
            others = shared.wait(others);
        }
    }
    Joined { thread, ended }
}

/// Waits for a time.
pub(crate) fn sleep(time: Duration) {
    match is_simulated() {
        true => {
            wait(time, |_| None::<()>);
        }
        false => thread::sleep(time),
    }
}

/// A time in the case's world.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    Real(Instant),
    Simulated(tidewire::Instant),
}

impl Moment {
    pub(crate) fn now() -> Moment {
        match is_simulated() {
            true => Moment::Simulated(with(|sim| sim.now())),
            false => Moment::Real(Instant::now()),
        }
    }

    pub(crate) fn elapsed(self) -> Duration {
        match self {
            Moment::Real(at) => at.elapsed(),
            Moment::Simulated(at) => with(move |sim| sim.now() - at),
        }
    }
}
