//! Producers on a simulated network, against the real service over a log in memory: connections
//! break, the log refuses, and every message is stored once, in order.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::sim::{Conditions, Pair, Sim, seeds};
use tidewire::{Dial, Limits};
use tidewire_ingest::client::{Amount, Ended, Handler, Level, Outgoing, Producing, Session};
use tidewire_ingest::native::{IngestService, Settings, codec};
use tidewire_ingest::testing::SteppedLog;

/// Far more virtual time than anything here takes.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What a producer has seen.
#[derive(Debug, Default)]
struct Seen {
    acknowledged: Amount,
    last: Option<u64>,
    welcomes: u32,
    refused: u32,
    ended: Option<String>,
    connections: u64,
}

/// Sends numbered messages of many sizes.
struct Numbers {
    next: u64,
    end: u64,
    seen: Arc<Mutex<Seen>>,
}

fn payload(n: u64) -> Vec<u8> {
    vec![n as u8; (n * 37 % 900) as usize]
}

impl Handler for Numbers {
    fn ready(&mut self, session: &mut Session) -> bool {
        while self.next < self.end && session.push(&payload(self.next)).is_ok() {
            self.next += 1;
        }
        self.next < self.end
    }

    fn connected(&mut self, _: tidewire::Handle<()>) {
        self.seen.lock().unwrap().welcomes += 1;
    }

    fn acknowledged(&mut self, id: u64, newly: Amount) {
        let mut seen = self.seen.lock().unwrap();
        if newly.messages > 0 {
            assert!(seen.last < Some(id), "{id} after {:?}", seen.last);
            seen.last = Some(id);
        }
        seen.acknowledged.messages += newly.messages;
        seen.acknowledged.bytes += newly.bytes;
    }

    fn refused(&mut self, refusal: &codec::Refusal<'_>) {
        assert_eq!(refusal.reason, codec::Reason::DiskFull);
        self.seen.lock().unwrap().refused += 1;
    }

    fn ended(self, _: Session, why: Ended) {
        self.seen.lock().unwrap().ended = Some(why.to_string());
    }
}

/// One producer of 300 messages on a network drawn from the seed.
fn scenario(
    seed: u64,
    conditions: Conditions,
    log: &SteppedLog,
    each: impl FnMut(&mut Sim) -> bool,
) -> Seen {
    let settings = Settings {
        window_messages: 1 + (seed % 50) as u32,
        read_threads: 0,
        // The hosts of the simulated network are all others than the server's.
        protected: false,
        ..Settings::default()
    };
    let limits = settings.limits();
    let service = IngestService::new(Arc::new(log.clone()), settings);
    let outgoing = Outgoing::new();
    let sim = Sim::under(seed, conditions);
    let mut pair = Pair::on(
        sim,
        (service, limits),
        (outgoing.clone(), Limits::default()),
    );
    let seen = Arc::new(Mutex::new(Seen::default()));
    let producing = Producing {
        producer: "p".into(),
        level: if seed.is_multiple_of(2) {
            Level::Durable
        } else {
            Level::Received
        },
        buffer: Amount {
            messages: 40,
            bytes: 20_000,
        },
        ..Producing::default()
    };
    let numbers = Numbers {
        next: 0,
        end: 300,
        seen: seen.clone(),
    };
    let session = Session::new(producing).unwrap();
    let dial = Dial::to(pair.addr()).attempts(u32::MAX);
    let dial = outgoing.add(dial, session, numbers);
    let client = pair.client();
    pair.sim.dial(client, dial);
    let mut each = each;
    let over = |sim: &mut Sim| !each(sim) || seen.lock().unwrap().ended.is_some();
    assert!(pair.sim.run_until(PATIENCE, over), "seed {seed}: {seen:?}");
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.connections = pair.client_counters().dialled;
    seen
}

fn assert_stored(seed: u64, log: &SteppedLog, seen: &Seen) {
    let why = seen.ended.as_deref();
    assert_eq!(why, Some("everything is acknowledged"), "seed {seed}");
    log.commit_all();
    let records = log.records("default");
    let ids: Vec<u64> = records.iter().map(|record| record.id).collect();
    assert_eq!(ids, (1..=300).collect::<Vec<u64>>(), "seed {seed}");
    for (record, n) in records.iter().zip(0..) {
        assert!(record.payload == payload(n), "seed {seed}: message {n}");
    }
}

#[test]
fn every_message_is_stored_once_whatever_the_network() {
    for seed in seeds(60) {
        let log = SteppedLog::new().auto();
        let seen = scenario(seed, Conditions::from_seed(seed), &log, |_| true);
        assert_stored(seed, &log, &seen);
        assert_eq!(seen.acknowledged.messages, 300, "seed {seed}");
        assert_eq!(seen.welcomes, 1, "seed {seed}");
    }
}

#[test]
fn connections_that_break_lose_and_repeat_nothing() {
    let (mut welcomes, mut runs) = (0, 0);
    for seed in seeds(60) {
        runs += 1;
        let conditions = Conditions {
            reset_one_in: 60,
            refuse_one_in: 5,
            segment_max: 20_000,
            ..Conditions::calm()
        };
        let log = SteppedLog::new().auto();
        let seen = scenario(seed, conditions, &log, |_| true);
        assert_stored(seed, &log, &seen);
        welcomes += seen.welcomes;
    }
    // One seed alone may have no luck.
    assert!(
        runs < 60 || welcomes > 80,
        "hardly a connection broke: {welcomes}"
    );
}

#[test]
fn a_disk_that_is_full_now_and_then_is_waited_for() {
    let mut refused = 0;
    for seed in 0..30 {
        let log = SteppedLog::new().auto();
        let (disk, mut steps, mut full) = (log.clone(), 0u64, false);
        let seen = scenario(seed, Conditions::from_seed(seed), &log, |_| {
            // A new producer would not even be welcomed.
            steps += u64::from(disk.taken().0 > 0);
            // Not for ever: on a slow network hardly a message would get through between.
            if full != (steps < 2000 && steps / 50 % 2 == 1) {
                full = !full;
                disk.disk_full(full);
            }
            true
        });
        log.disk_full(false);
        assert_stored(seed, &log, &seen);
        refused += seen.refused;
    }
    assert!(refused > 0, "nothing was ever refused");
}

/// A disk that is full refuses hellos for good connections too: the client comes back when it was told
/// to, and no sooner, and does not give up.
#[test]
fn a_refused_hello_is_repeated_when_the_server_said() {
    for seed in 0..10 {
        let log = SteppedLog::new().auto();
        log.disk_full(true);
        let (disk, mut began) = (log.clone(), None);
        // What `SteppedLog` asks for, ten times.
        let full_for = 10 * Duration::from_millis(50);
        let mut freed = false;
        let seen = scenario(seed, Conditions::calm(), &log, |sim| {
            let began = *began.get_or_insert(sim.now());
            if !freed && sim.now().since(began) > full_for {
                freed = true;
                disk.disk_full(false);
            }
            true
        });
        assert_stored(seed, &log, &seen);
        assert!(
            (5..=12).contains(&seen.connections),
            "{} connections",
            seen.connections
        );
    }
}
