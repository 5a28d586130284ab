//! One of several processes that make a load together: it is told when to begin, and reports its
//! results.
//!
//! The idea: lines of JSON over the pipes of its stdin and stdout, and times on the monotonic
//! clock, which all processes of a machine share. The member holds nothing that its starter needs:
//! when its stdin ends, so does it.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::generator::{Generator, Progress, Target, now_ns};
use super::part::{Gate, Part, Share};
use super::plan::Plan;
use super::run::run_part;
use crate::histogram::Latencies;

/// How often one that waits for its orders looks whether a connection has failed meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// Longest order.
const ORDER_MAX: u64 = 256;

/// An order to a process of the load.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// To begin to send when the monotonic clock has come to this.
    Begin { at_ns: u64 },
    /// The member is to end before its time.
    Stop,
}

/// A report of a process of the load.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// All connections of the member are there.
    Connected,
    /// How many messages were answered so far, and their latencies if the run is watched.
    Progress {
        requests: u64,
        latencies: Option<Latencies>,
    },
    /// The measured time is over.
    Measured,
    /// The final results.
    Done(Box<Share>),
    /// The part has come to nothing.
    Failed { wrong: bool, what: String },
}

/// Makes one part of a load for the process that started this one with
/// [`Crew::start`](super::Crew::start); `input` and `output` lead to that process. The results, or
/// a failure, are sent there.
///
/// # Errors
/// `output` cannot be written to: the starter has gone.
pub fn serve_part(
    plan: &Plan,
    generator: &Generator,
    target: &Target,
    part: Part,
    input: impl Read + Send + 'static,
    output: impl Write,
) -> io::Result<()> {
    let mouth = Mouth(RefCell::new(Ok(output)));
    let orders = orders(input);
    let mut watch = |at: Progress<'_>| {
        mouth.say(&Said::Progress {
            requests: at.requests,
            latencies: at.latencies.cloned(),
        });
        mouth.is_heard() && matches!(orders.try_recv(), Err(TryRecvError::Empty))
    };
    let mut gate = Waiting {
        orders: &orders,
        mouth: &mouth,
    };
    let done = run_part(plan, generator, target, part, &mut gate, &mut watch);
    mouth.say(&match done {
        Ok(share) => Said::Done(Box::new(share)),
        Err(failure) => Said::Failed {
            wrong: failure.is_wrong_answer(),
            what: failure.to_string(),
        },
    });
    mouth.0.into_inner().map(drop)
}

/// Reads orders until there are no more.
fn orders(input: impl Read + Send + 'static) -> Receiver<Order> {
    let (tell, told) = channel();
    // The thread is not joined: it ends with its input, or with the process.
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        loop {
            let mut line = String::new();
            let read = (&mut input).take(ORDER_MAX).read_line(&mut line);
            let order = match read {
                Ok(1..) => serde_json::from_str(&line).ok(),
                Ok(0) | Err(_) => None,
            };
            let Some(order) = order else { return };
            if tell.send(order).is_err() {
                return;
            }
        }
    });
    told
}

/// Writes messages until a write fails.
struct Mouth<W>(RefCell<io::Result<W>>);

impl<W: Write> Mouth<W> {
    fn say(&self, what: &Said) {
        let mut out = self.0.borrow_mut();
        if let Ok(to) = &mut *out
            && let Err(e) = write_line(to, what)
        {
            *out = Err(e);
        }
    }

    fn is_heard(&self) -> bool {
        self.0.borrow().is_ok()
    }
}

/// Writes one line, at once.
pub(super) fn write_line(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Waits for the other members.
struct Waiting<'a, W> {
    orders: &'a Receiver<Order>,
    mouth: &'a Mouth<W>,
}

impl<W: Write> Gate for Waiting<'_, W> {
    fn connected(&mut self, failed: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.mouth.say(&Said::Connected);
        loop {
            match self.orders.recv_timeout(LOOK) {
                Ok(Order::Begin { at_ns }) => {
                    thread::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns())));
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) if failed() => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Interrupted);
                }
            }
        }
    }

    fn measured(&mut self) {
        self.mouth.say(&Said::Measured);
    }
}
