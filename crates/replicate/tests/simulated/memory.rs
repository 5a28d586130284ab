//! What an outage costs in memory: two transactions, however long it lasts.

use std::sync::Arc;
use std::time::Duration;

use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{
    EmbeddedLog, Log, Now, ProducerId, Refused, Run, Settings, Step, StreamId, Writer,
};
use tidewire_replicate::{Answer, Ask, Held, Home, Replicator, Settings as Replicating};

/// Lets itself be opened, and answers no transaction.
#[derive(Default)]
struct Silent {
    answers: Vec<(u64, Answer)>,
    held: Held,
    carried: usize,
}

impl Home for Silent {
    fn ask(&mut self, number: u64, ask: Ask) {
        match ask {
            Ask::Look | Ask::Open => self.answers.push((number, Answer::Held(self.held.clone()))),
            Ask::Carry(transaction) if transaction.records.is_empty() => {
                self.held.owner = Some(transaction.owner);
                self.answers.push((number, Answer::Committed));
            }
            Ask::Carry(_) => self.carried += 1,
        }
    }

    fn answer(&mut self) -> Option<(u64, Answer)> {
        self.answers.pop()
    }
}

/// A log that has a home, and a stream of it.
fn opened(settings: Settings) -> (Arc<EmbeddedLog<SimDisk>>, Writer<SimDisk>, StreamId) {
    let settings = Settings {
        backlog: Some(u64::MAX),
        ..settings
    };
    let opened = EmbeddedLog::open(SimDisk::new(7), settings).expect("a log");
    let (log, writer, _) = opened;
    let stream = log.stream("s").expect("a stream");
    (Arc::new(log), writer, stream)
}

#[test]
fn a_home_that_does_not_answer_is_soon_said_to_be_away() {
    let (log, mut writer, stream) = opened(Settings::default());
    let run = Run {
        stream,
        producer: ProducerId::ANONYMOUS,
        frames: b"12345678\0\0\0\0",
        count: 1,
        last_id: 1,
        timestamp_us: 1,
    };
    log.append(run).expect("room");
    let mut home = Silent::default();
    let mut replicator = Replicator::new(log.clone(), 1, 1, Replicating::default());
    let mut at = |ms: u64| {
        let now = Duration::from_millis(ms);
        while writer.step(Now {
            monotonic: now,
            unix_us: 1,
        }) == Step::Worked
        {}
        for _ in 0..20 {
            replicator.step(now, &mut home);
        }
        let away = log.progress().away.map(|why| why.to_string());
        (home.carried, away, log.progress().replicates)
    };
    let (_, away, _) = at(0);
    assert_eq!(away, None);
    assert_eq!(at(1000), (1, None, true));
    assert_eq!(at(5990), (1, None, true));
    // The record is promised all the same, and waited for.
    let late = Some("the home has not answered for 5 s".to_owned());
    assert_eq!(at(6000), (1, late.clone(), true));
    assert_eq!(at(80_000), (1, late, true));
}

#[test]
fn an_outage_holds_two_transactions_and_no_more() {
    const RUN: usize = 256 << 10;
    const BACKLOG: usize = 40 << 20;
    let settings = Settings {
        group_bytes: 1 << 20,
        payload_max: 1 << 10,
        ..Settings::default()
    };
    let (log, mut writer, stream) = opened(settings);
    let mut frames = Vec::new();
    while frames.len() < RUN {
        frames.extend_from_slice(&1u64.to_le_bytes());
        frames.extend_from_slice(&1000u32.to_le_bytes());
        frames.resize(frames.len() + 1000, b'x');
    }
    let mut now = Duration::from_secs(1);
    let mut appended = 0;
    while appended < BACKLOG {
        let run = Run {
            stream,
            producer: ProducerId::ANONYMOUS,
            frames: &frames,
            count: (frames.len() / 1012) as u32,
            last_id: 1,
            timestamp_us: 1,
        };
        match log.append(run) {
            Ok(_) => appended += frames.len(),
            Err(Refused::Busy) => {}
            Err(other) => panic!("{other}"),
        }
        now += Duration::from_millis(1);
        writer.step(Now {
            monotonic: now,
            unix_us: 1,
        });
    }
    let replicating = Replicating::default();
    // The last record of each may not fit.
    let two = 2 * (replicating.transaction_bytes as u64 + 1012);
    let mut home = Silent::default();
    let mut replicator = Replicator::new(log.clone(), 1, 1, replicating);
    let mut most = 0;
    for _ in 0..20_000 {
        now += Duration::from_millis(20);
        replicator.step(now, &mut home);
        most = most.max(replicator.shown().status().held);
    }
    // The replicator gave up and began anew, again and again, and had two of them in hand each
    // time.
    assert!(home.carried > 2, "{}", home.carried);
    assert!(
        most <= two,
        "{most} bytes are held, {two} would be two transactions"
    );
    assert!(most > two / 2, "{most} bytes are held");
}
