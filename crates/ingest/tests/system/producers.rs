//! Producers: the client library on the loops of clients, each with messages that name their
//! producer.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidewire::Dial;
use tidewire::sim::{Sim, SimService};
use tidewire_ingest::client::{
    Amount, Broken, Ended, Handler, Level, Outgoing, Producing, Session,
};
use tidewire_ingest::native::codec::Reason;

use crate::server::NATIVE;

/// A producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who {
    pub(crate) name: &'static str,
    pub(crate) level: Level,
    /// Between one id and the next.
    pub(crate) stride: u64,
}

pub(crate) const PRODUCERS: [Who; 3] = [
    Who {
        name: "dense",
        level: Level::Durable,
        stride: 1,
    },
    Who {
        name: "sparse",
        level: Level::Durable,
        stride: 7,
    },
    Who {
        name: "received",
        level: Level::Received,
        stride: 1,
    },
];

/// What the message with this id says.
pub(crate) fn payload(id: u64) -> Vec<u8> {
    vec![id as u8; (id * 37 % 300) as usize]
}

/// What is known of a producer.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The last id that was acknowledged.
    pub(crate) acked: u64,
    pub(crate) welcomes: u32,
    pub(crate) done: bool,
    pub(crate) wrong: Option<String>,
    /// Given up because the log had failed, until an operator starts it again.
    stopped: Option<(Session, Numbers)>,
}

/// Sends numbered messages.
#[derive(Debug)]
pub(crate) struct Numbers {
    who: Who,
    next: u64,
    left: u64,
    known: Arc<Mutex<Known>>,
}

fn lock(known: &Mutex<Known>) -> MutexGuard<'_, Known> {
    known.lock().unwrap()
}

impl Handler for Numbers {
    fn ready(&mut self, session: &mut Session) -> bool {
        while self.left > 0 && session.push_as(self.next, &payload(self.next)).is_ok() {
            self.next += self.who.stride;
            self.left -= 1;
        }
        self.left > 0
    }

    fn connected(&mut self, _: tidewire::Handle<()>) {
        lock(&self.known).welcomes += 1;
    }

    fn acknowledged(&mut self, id: u64, newly: Amount) {
        let mut known = lock(&self.known);
        if newly.messages > 0 {
            if id <= known.acked {
                known.wrong = Some(format!("{id} is acknowledged behind {}", known.acked));
            }
            known.acked = id;
        }
    }

    fn ended(self, session: Session, why: Ended) {
        let known = self.known.clone();
        let mut known = lock(&known);
        match why {
            Ended::Done => known.done = true,
            Ended::Broken(Broken::Refused {
                reason: Reason::LogFailed,
                ..
            }) => known.stopped = Some((session, self)),
            why => known.wrong = Some(why.to_string()),
        }
    }
}

/// All producers of a world.
pub(crate) struct Producers {
    outgoing: Outgoing<Numbers>,
    on: SimService<Outgoing<Numbers>>,
    all: Vec<Arc<Mutex<Known>>>,
    each: u64,
}

impl Producers {
    pub(crate) fn new(sim: &mut Sim, each: u64) -> Producers {
        let outgoing = Outgoing::new();
        let at = sim.add_loop();
        let on = sim.service(at, outgoing.clone(), tidewire::Limits::default());
        let mut producers = Producers {
            outgoing,
            on,
            all: Vec::new(),
            each,
        };
        for (number, who) in PRODUCERS.into_iter().enumerate() {
            let known = Arc::<Mutex<Known>>::default();
            producers.all.push(known.clone());
            let producing = Producing {
                producer: who.name.into(),
                level: who.level,
                sparse: who.stride > 1,
                buffer: Amount {
                    messages: 12,
                    bytes: 4_000,
                },
                silence: Duration::from_secs(5),
                ..Producing::default()
            };
            let numbers = Numbers {
                who,
                next: 1,
                left: each,
                known,
            };
            let session = Session::new(producing).expect("a short name");
            producers.dial(sim, number, session, numbers);
        }
        producers
    }

    fn dial(&self, sim: &mut Sim, number: usize, session: Session, numbers: Numbers) {
        let dial = Dial::to(NATIVE[number % NATIVE.len()])
            .attempts(u32::MAX)
            .backoff(Duration::from_millis(10), Duration::from_millis(200));
        let dial = self.outgoing.add(dial, session, numbers);
        sim.dial(self.on, dial);
    }

    /// Has producers go on that gave up, as their operators would once the server is there again.
    pub(crate) fn encourage(&self, sim: &mut Sim) {
        for (number, known) in self.all.iter().enumerate() {
            let stopped = lock(known).stopped.take();
            if let Some((session, numbers)) = stopped {
                self.dial(sim, number, session, numbers);
            }
        }
    }

    pub(crate) fn are_done(&self) -> bool {
        self.all.iter().all(|known| lock(known).done)
    }

    /// What is known of each.
    pub(crate) fn known(&self) -> impl Iterator<Item = (Who, MutexGuard<'_, Known>)> {
        PRODUCERS.into_iter().zip(self.all.iter().map(|k| lock(k)))
    }

    /// Whether the ids that a log holds of a producer can be so.
    pub(crate) fn check(&self, who: Who, known: &Known, ids: &[u64]) -> Result<(), String> {
        let name = who.name;
        if let Some(wrong) = &known.wrong {
            return Err(format!("{name}: {wrong}"));
        }
        let all = (0..self.each).map(|n| 1 + n * who.stride);
        let last = ids.last().copied().unwrap_or(0);
        if who.level == Level::Received {
            // A crash may take what was only received; nothing makes two of one, or turns them round.
            return match ids.is_sorted_by(|a, b| a < b) && ids.iter().all(|&id| id <= self.each) {
                true => Ok(()),
                false => Err(format!("{name}: {ids:?}")),
            };
        }
        if !ids.iter().copied().eq(all.take(ids.len())) {
            return Err(format!("{name}: not each once and in order: {ids:?}"));
        }
        if last < known.acked || known.done && ids.len() as u64 != self.each {
            let acked = known.acked;
            return Err(format!("{name}: {acked} was acknowledged, {last} is there"));
        }
        Ok(())
    }
}
