//! The end of a loop, for whatever reason: its counters are added to the counters of ended loops,
//! its descriptor is closed, and commands that waited for it are handed on.

use std::sync::Arc;

use crate::reach::sync::{Mutex, lock};
use crate::reach::waker::{Command, Stop, Waker};
use crate::reactor::activity::Lag;
use crate::reactor::core::dialling;
use crate::reactor::counters::{Counters, LoopCounters};
use crate::vocabulary::closed::{Closed, Refusal};

/// Held by a loop's thread for as long as the loop lives.
pub(crate) struct Life {
    pub(crate) registry: Arc<Mutex<Registry>>,
    pub(crate) counters: Arc<LoopCounters>,
    pub(crate) waker: Arc<Waker>,
    /// The loop that takes the dials that come too late.
    pub(crate) heir: Option<Arc<Waker>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        let panicking = std::thread::panicking();
        let heir = self
            .heir
            .take()
            .filter(|_| self.waker.stopping() == Stop::No);
        for command in self.waker.end(heir.clone()) {
            match command {
                Command::Adopt {
                    socket,
                    peer,
                    service,
                    ..
                } => {
                    let why = match panicking {
                        true => Refusal::Panicked,
                        false => Refusal::Stopping,
                    };
                    let counters = self.counters.of_service(usize::from(service));
                    counters.accepted.add(1);
                    counters.refused[why.kind()].add(1);
                    tracing::error!(%peer, reason = %why, "a connection's loop ended before it began");
                    // The peer is to see a reset, not an orderly end.
                    socket.reset_on_close();
                }
                Command::Look | Command::Answered(_) => {}
                Command::Accept { socket, listener } => {
                    tracing::error!(listener, "a connection's loop ended before it began");
                    socket.reset_on_close();
                }
                Command::Dial { service, dial } => {
                    let token = dial.token;
                    let left = heir.as_ref().map(|heir| {
                        let dial = Command::Dial { service, dial };
                        heir.send(dial).is_ok()
                    });
                    if left != Some(true) {
                        dialling::forget(&self.counters, service, token);
                    }
                }
            }
        }
        if panicking {
            // The protocols were not told; they are gone with their loop all the same.
            for counters in self.counters.services() {
                let open = counters.open.value();
                counters.open.sub(open);
                counters.lingering.set(0);
                counters.closed[Closed::Panicked.kind()].add(open);
            }
        }
        lock(&self.registry).retire(&self.counters);
    }
}

/// The counters of all loops, including ended ones.
#[derive(Default)]
pub(crate) struct Registry {
    live: Vec<Registered>,
    ended: Vec<LoopView>,
}

/// A loop that has not ended.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) name: Arc<str>,
    pub(crate) counters: Arc<LoopCounters>,
    pub(crate) waker: Arc<Waker>,
    /// The loop is one of many that come and go with their connections.
    pub(crate) is_passing: bool,
}

impl Registered {
    fn view(&self) -> LoopView {
        let services = self.counters.services().into_iter().map(|of| {
            let mut counters = Counters::default();
            counters.add_service(&of);
            counters
        });
        let mut counters = Counters::default();
        counters.add_loop(&self.counters);
        let passing = self.is_passing;
        LoopView {
            name: self.name.clone(),
            thread: self.counters.activity.thread().filter(|_| !passing),
            counters,
            services: services.collect(),
            lag: self.counters.activity.lag(),
            waits: self.waker.is_asleep(),
        }
    }
}

/// The counters of a loop: see [`Observer::loops`](crate::Observer::loops).
///
/// ```
/// use tidewire::{Builder, EngineChoice, LoopView};
///
/// let running = Builder::new().engine(EngineChoice::Epoll).loops(2).start()?;
/// let loops: Vec<LoopView> = running.observer().loops();
/// assert_eq!((&*loops[1].name, loops[1].counters.receives), ("loop-1", 0));
/// # Ok::<(), tidewire::StartError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoopView {
    /// `loop-0` and so on, `accept`, or `threads` for the connections of the threads engine together.
    pub name: Arc<str>,
    /// The system's number of the loop's thread, as in `/proc/self/task`; `None` if the thread has ended, or
    /// there are several.
    pub thread: Option<u32>,
    /// The loop's own counters; the counters of services are zero here.
    pub counters: Counters,
    /// The loop's counters for each service, in the order of
    /// [`Observer::services`](crate::Observer::services).
    pub services: Vec<Counters>,
    /// How late the loop answered; empty unless the loops are [watched](crate::Builder::watch).
    pub lag: Lag,
    /// The loop waits for something to happen. A loop that does not, and whose turns do not go on,
    /// is stuck.
    pub waits: bool,
}

impl LoopView {
    fn merge(&mut self, of: LoopView) {
        self.counters.merge(&of.counters);
        self.lag.merge(&of.lag);
        self.thread = self.thread.or(of.thread);
        if self.services.len() < of.services.len() {
            self.services
                .resize_with(of.services.len(), Counters::default);
        }
        for (sum, counters) in self.services.iter_mut().zip(&of.services) {
            sum.merge(counters);
        }
    }
}

/// Adds a loop to the loops of its name.
fn list(loops: &mut Vec<LoopView>, mut view: LoopView) {
    match loops.iter_mut().find(|known| known.name == view.name) {
        Some(known) => known.merge(view),
        None => {
            view.thread = None;
            loops.push(view);
        }
    }
}

impl Registry {
    pub(crate) fn add(&mut self, registered: Registered) {
        self.live.push(registered);
    }

    pub(crate) fn retire(&mut self, counters: &Arc<LoopCounters>) {
        let at = |r: &Registered| Arc::ptr_eq(&r.counters, counters);
        if let Some(at) = self.live.iter().position(at) {
            let ended = self.live.swap_remove(at);
            list(&mut self.ended, ended.view());
        }
    }

    /// Loops that have not ended.
    pub(crate) fn live(&self) -> &[Registered] {
        &self.live
    }

    /// The counters of each loop, including ended loops; loops with the same name are added up.
    pub(crate) fn views(&self) -> Vec<LoopView> {
        let mut views = self.ended.clone();
        for registered in &self.live {
            let view = registered.view();
            let thread = view.thread;
            list(&mut views, view);
            if let Some(of) = views.iter_mut().find(|of| of.name == registered.name) {
                of.thread = thread;
            }
        }
        views.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        views
    }

    pub(crate) fn sum(&self) -> Counters {
        let mut sum = Counters::default();
        for of in &self.ended {
            sum.merge(&of.counters);
            of.services.iter().for_each(|of| sum.merge(of));
        }
        for registered in &self.live {
            sum.merge(&registered.counters.sum());
        }
        sum
    }
}
