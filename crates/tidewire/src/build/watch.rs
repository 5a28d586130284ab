//! Watching loops from a thread beside them. A loop that is stuck in a callback cannot report that. A separate
//! thread looks at all loops a few times in each threshold: it reads what the loops store as they run
//! ([`Activity`]), and now and then measures how late they answer.
//!
//! [`Activity`]: crate::reactor::activity::Activity

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::kernel::clock::Clock;
use crate::reach::sync::{Mutex, lock};
use crate::reactor::life::{Registered, Registry};
use crate::reactor::throttle::Throttle;

/// How often loops are asked how late they are.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// A stall is seen that lasts this much longer than the threshold, as a part of the threshold.
const LOOKS: u32 = 4;
/// Between two looks.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// Different places that are told apart.
const PLACES_MAX: usize = 256;

/// Where a loop was stuck, and for how long.
///
/// ```
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use tidewire::{Builder, on_input};
///
/// let mut builder = Builder::new();
/// let slow = builder.service(on_input(|input, link| {
///     std::thread::sleep(Duration::from_millis(100)); // what should never be done
///     link.forward_all(input)
/// }));
/// builder.name(slow, "slow").listen(slow, "127.0.0.1:0");
/// builder.watch(Duration::from_millis(10));
/// let running = builder.start()?;
///
/// let mut client = std::net::TcpStream::connect(&running.addrs()[0])?;
/// let mut stalls = Vec::new();
/// for _ in 0..100 {
///     client.write_all(b"x")?;
///     client.read_exact(&mut [0])?;
///     stalls = running.observer().stalls();
///     if !stalls.is_empty() {
///         break;
///     }
/// }
/// assert_eq!((&*stalls[0].service, stalls[0].callback), ("slow", "received"));
/// running.stop(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stall {
    /// The loop's name, as in [`LoopView`](crate::LoopView).
    pub name: Arc<str>,
    /// The service that was called last; empty if no service was called in that turn.
    pub service: Arc<str>,
    /// The callback that was called last, such as `received`. `none` if no callback was called: then the
    /// toolkit or the system takes the time, or the machine has no processor for the loop.
    pub callback: &'static str,
    /// How often.
    pub count: u64,
    /// The whole time of the stalls.
    pub time: Duration,
}

type Place = (Arc<str>, Arc<str>, &'static str);

/// All stalls so far.
#[derive(Debug, Default)]
pub(crate) struct Board(BTreeMap<Place, (u64, Duration)>);

impl Board {
    pub(crate) fn stalls(&self) -> Vec<Stall> {
        let stall = |(place, count): (&Place, &(u64, Duration))| Stall {
            name: place.0.clone(),
            service: place.1.clone(),
            callback: place.2,
            count: count.0,
            time: count.1,
        };
        self.0.iter().map(stall).collect()
    }

    fn add(&mut self, place: &Place, count: u64, time: Duration) {
        if self.0.len() < PLACES_MAX || self.0.contains_key(place) {
            let sum = self.0.entry(place.clone()).or_default();
            sum.0 += count;
            sum.1 += time;
        }
    }
}

/// The watching thread; it ends when this value is dropped.
pub(crate) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(crate) fn start(
        threshold: Duration,
        registry: Arc<Mutex<Registry>>,
        services: Arc<[Arc<str>]>,
        board: Arc<Mutex<Board>>,
    ) -> io::Result<Watch> {
        let (stop, stopped) = channel();
        let watched = std::thread::Builder::new().name("tidewire-watch".into());
        let thread = watched.spawn(move || {
            let pause = (threshold / LOOKS).clamp(LOOK_MIN, ASK_EVERY);
            let mut watcher = Watcher::new(threshold, services, board);
            let mut asked = Instant::now();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let live = lock(&registry).live().to_vec();
                watcher.look(&live, Instant::now());
                if asked.elapsed() >= ASK_EVERY {
                    asked = Instant::now();
                    live.iter().for_each(ask);
                }
            }
        })?;
        Ok(Watch {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported, and has hurt no connection.
            let _ = thread.join();
        }
    }
}

fn ask(of: &Registered) {
    // Threads of single connections come and go; to make each a descriptor for this would be too much.
    if !of.is_passing && of.counters.activity.ask(Clock::System.monotonic()) {
        of.waker.wake();
    }
}

/// The watching thread's state of a loop.
struct Known {
    turns: u64,
    /// When the loop was last seen to go on.
    since: Instant,
    stuck: Option<Stuck>,
    /// The round in which the loop was looked at last.
    round: u64,
}

struct Stuck {
    place: Place,
    /// The time up to which the loop's time is on the board.
    counted: Instant,
}

struct Watcher {
    threshold: Duration,
    services: Arc<[Arc<str>]>,
    board: Arc<Mutex<Board>>,
    loops: HashMap<usize, Known>,
    round: u64,
    lines: Throttle,
}

impl Watcher {
    fn new(threshold: Duration, services: Arc<[Arc<str>]>, board: Arc<Mutex<Board>>) -> Watcher {
        Watcher {
            threshold,
            services,
            board,
            loops: HashMap::new(),
            round: 0,
            lines: Throttle::new(Duration::from_secs(1)),
        }
    }

    fn look(&mut self, live: &[Registered], now: Instant) {
        self.round += 1;
        for of in live {
            self.look_at(of, now);
        }
        let round = self.round;
        self.loops.retain(|_, known| known.round == round);
    }

    fn look_at(&mut self, of: &Registered, now: Instant) {
        let key = Arc::as_ptr(&of.counters) as usize;
        let (turns, asleep) = (of.counters.turns.value(), of.waker.is_asleep());
        let known = self.loops.entry(key).or_insert(Known {
            turns,
            since: now,
            stuck: None,
            round: self.round,
        });
        known.round = self.round;
        if asleep || known.turns != turns {
            known.turns = turns;
            let took = now - std::mem::replace(&mut known.since, now);
            if let Some(stuck) = known.stuck.take() {
                lock(&self.board).add(&stuck.place, 0, now - stuck.counted);
                self.say(&stuck.place, took, true);
            }
        } else if let Some(stuck) = &mut known.stuck {
            let more = now - std::mem::replace(&mut stuck.counted, now);
            lock(&self.board).add(&stuck.place, 0, more);
        } else if now - known.since >= self.threshold {
            let place = place(of, &self.services);
            let took = now - known.since;
            lock(&self.board).add(&place, 1, took);
            known.stuck = Some(Stuck {
                place: place.clone(),
                counted: now,
            });
            self.say(&place, took, false);
        }
    }

    fn say(&self, (name, service, callback): &Place, took: Duration, is_over: bool) {
        let Some(held_back) = self.lines.pass(Clock::System.monotonic()) else {
            return;
        };
        let ms = took.as_millis() as u64;
        let service = if service.is_empty() {
            "none"
        } else {
            &**service
        };
        if is_over {
            tracing::warn!(
                loop_name = &**name,
                service,
                callback,
                ms,
                held_back,
                "a stuck loop goes on"
            );
        } else {
            tracing::warn!(
                loop_name = &**name,
                service,
                callback,
                ms,
                held_back,
                "a loop is stuck: its other connections wait"
            );
        }
    }
}

fn place(of: &Registered, services: &[Arc<str>]) -> Place {
    let (service, callback) = of.counters.activity.last();
    let service = service.and_then(|n| services.get(n).cloned());
    (of.name.clone(), service.unwrap_or_default(), callback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::waker::Waker;
    use crate::reactor::activity::Callback;
    use crate::reactor::counters::LoopCounters;

    fn registered() -> Registered {
        Registered {
            name: "loop-0".into(),
            counters: Arc::new(LoopCounters::default()),
            waker: Arc::new(Waker::new()),
            is_passing: false,
        }
    }

    #[test]
    fn a_stuck_loop_is_found_counted_once_and_timed() {
        let board = Arc::new(Mutex::new(Board::default()));
        let services: Arc<[Arc<str>]> = ["a".into(), "b".into()].into();
        let ms = Duration::from_millis;
        let mut watcher = Watcher::new(ms(100), services, board.clone());
        let live = [registered()];
        let began = Instant::now();
        let mut at = |after: u64| {
            watcher.look(&live, began + ms(after));
            lock(&board).stalls()
        };
        let counters = live[0].counters.clone();
        counters.begin_turn();
        at(0);
        counters.begin_turn();
        assert_eq!(at(150), [], "it has gone on");
        counters.activity.enter(1, Callback::Received);
        assert_eq!(at(240), [], "not long enough");
        let first = at(260);
        assert_eq!((first[0].count, first[0].time), (1, ms(110)));
        assert_eq!((&*first[0].service, first[0].callback), ("b", "received"));
        assert_eq!(at(300)[0].time, ms(150), "it is counted while it lasts");
        counters.begin_turn();
        let last = at(350);
        assert_eq!((last[0].count, last[0].time), (1, ms(200)));
        // From here on nothing is called, and it sleeps half of the time.
        assert!(live[0].waker.may_sleep());
        assert_eq!(at(1000), last, "who sleeps is not stuck");
        live[0].waker.awake();
        assert_eq!(at(1050), last);
        let third = at(1150);
        assert_eq!(third.len(), 2);
        assert_eq!((&*third[0].service, third[0].callback), ("", "none"));
    }
}
