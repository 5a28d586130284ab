//! The thread beside sending: it shows progress on a terminal, and gives up when a signal asks for
//! the end and nothing moves.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tidewire_ingest::client::{Producer, Status};

use crate::signals::Signals;
use crate::status_line::StatusLine;

/// How often progress is shown.
const EVERY: Duration = Duration::from_millis(200);
/// How long flushing may take after a signal without any acknowledgement; a second signal does not
/// wait.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) struct Watch {
    signals: Mutex<Signals>,
    began: Instant,
    seen: bool,
}

impl Watch {
    pub(crate) fn new(signals: Signals) -> Watch {
        Watch {
            signals: Mutex::new(signals),
            began: Instant::now(),
            seen: StatusLine::new().is_seen(),
        }
    }

    /// Does `work`, and watches.
    pub(crate) fn during<T>(&self, producer: &Producer, work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            let (over, ended) = mpsc::channel::<()>();
            scope.spawn(move || self.watch(producer, &ended));
            let done = work();
            drop(over);
            done
        })
    }

    /// Watches the producer until the other end of `ended` is dropped.
    fn watch(&self, producer: &Producer, ended: &Receiver<()>) {
        let mut signals = self.signals.lock().expect("used by one thread");
        let mut line = StatusLine::new();
        let mut asked: Option<(Instant, u64)> = None;
        let mut complaint = Complaint::default();
        while ended.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
            let came = signals.wait(Some(AT_ONCE));
            let status = producer.status();
            asked = match asked {
                None if came == 0 => None,
                None => Some((Instant::now(), status.acknowledged)),
                // A second signal came, or no message moves.
                Some((since, _)) if came > 0 || since.elapsed() > GRACE => {
                    producer.abandon();
                    break;
                }
                Some((_, before)) if status.acknowledged > before => {
                    Some((Instant::now(), status.acknowledged))
                }
                waiting => waiting,
            };
            complaint.look(&status, &mut line);
            if self.began.elapsed() > EVERY {
                line.show(&self.described(&status, asked.is_some()));
            }
        }
        line.wipe();
    }

    fn described(&self, status: &Status, ending: bool) -> String {
        let trouble = status
            .trouble
            .as_ref()
            .map_or_else(String::new, |why| format!(", {why}"));
        let ending = if ending { ", flushing" } else { "" };
        format!(
            "{} acknowledged, {} in flight, {:.0} a second{ending}{trouble}",
            status.acknowledged,
            status.unacknowledged.messages,
            self.rate(status),
        )
    }

    fn rate(&self, status: &Status) -> f64 {
        status.acknowledged as f64 / self.began.elapsed().as_secs_f64().max(1e-9)
    }

    /// Prints the summary, if a terminal is there.
    pub(crate) fn summary(&self, status: &Status, skipped: u64, oversized: &str) {
        if self.seen || skipped > 0 || !oversized.is_empty() {
            let skipped = match skipped {
                0 => String::new(),
                n => format!(", {n} skipped because the server has as many"),
            };
            say!(
                "{} messages acknowledged in {:.1} s, {:.0} a second{skipped}{oversized}",
                status.acknowledged,
                self.began.elapsed().as_secs_f64(),
                self.rate(status),
            );
        }
    }
}

/// Reports why no message moves, where no progress is shown.
#[derive(Default)]
struct Complaint {
    told: Option<(Instant, String)>,
}

impl Complaint {
    /// Reports an obstacle when it is new, and then once a minute as long as it lasts.
    fn look(&mut self, status: &Status, line: &mut StatusLine) {
        match (&status.trouble, &self.told) {
            (None, None) => {}
            (None, Some((since, _))) => {
                // A connection that breaks again and again is not news each time.
                if since.elapsed() > SETTLED {
                    self.told = None;
                }
            }
            (Some(why), Some((since, told))) if why == told && since.elapsed() < REPEATED => {}
            (Some(_), Some((since, _))) if since.elapsed() < SETTLED => {}
            (Some(why), _) => {
                line.wipe();
                let waiting = status.unacknowledged.messages;
                say!("tidewire: waiting, {waiting} messages not acknowledged: {why}");
                self.told = Some((Instant::now(), why.clone()));
            }
        }
    }
}

/// How often a trouble that stays is told.
const REPEATED: Duration = Duration::from_secs(60);
/// How long after one was told the next one is.
const SETTLED: Duration = Duration::from_secs(5);
/// How soon a signal is noticed.
const PAUSE: Duration = Duration::from_millis(20);
/// The shortest wait there is.
const AT_ONCE: Duration = Duration::from_micros(1);
