//! One small test for each bug that the seeds of `simulated` have found.

use std::time::Duration;

use tidewire_log::disk::sim::{Faults, SimDisk};
use tidewire_log::{
    Credit, EmbeddedLog, Log, Now, Policy, ProducerId, ReadError, Recovery, Refused, Run, Settings,
    Ticket, Writer,
};

/// A log that is driven by hand, with one stream and anonymous messages.
struct Driven {
    disk: SimDisk,
    log: EmbeddedLog<SimDisk>,
    writer: Writer<SimDisk>,
    now: Now,
    id: u64,
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 4096,
        group_bytes: 1024,
        payload_max: 900,
        full_retry: Duration::from_millis(1),
        identity: Some(1),
        ..Settings::default()
    }
}

fn open(disk: &SimDisk, settings: Settings) -> (Driven, Recovery) {
    let (log, writer, recovery) = EmbeddedLog::open(disk.clone(), settings).unwrap();
    (
        Driven {
            disk: disk.clone(),
            log,
            writer,
            now: Now::default(),
            id: 0,
        },
        recovery,
    )
}

impl Driven {
    fn append(&mut self, payload: &[u8]) -> Result<Ticket, Refused> {
        self.id += 1;
        let mut frames = self.id.to_le_bytes().to_vec();
        frames.extend_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        frames.extend_from_slice(payload);
        self.log.append(Run {
            stream: self.log.stream("s")?,
            producer: ProducerId::ANONYMOUS,
            frames: &frames,
            count: 1,
            last_id: self.id,
            timestamp_us: self.now.unix_us,
        })
    }

    fn step(&mut self, after: Duration) {
        self.now.monotonic += after;
        self.now.unix_us += u64::try_from(after.as_micros()).unwrap();
        self.writer.step(self.now);
    }

    /// Appends, and steps a second at a time until it is committed.
    fn commit(&mut self, payload: &[u8]) {
        let ticket = self.append(payload).unwrap();
        for _ in 0..20 {
            if self.log.progress().committed >= ticket {
                return;
            }
            self.step(Duration::from_secs(1));
        }
        panic!("not committed in 20 steps: {:?}", self.log.progress());
    }
}

/// What a reader remembers of where it stopped is of no use when that segment is gone.
#[test]
fn a_reader_goes_on_after_the_segment_it_stopped_in_was_removed() {
    let limits = Settings {
        retention_bytes: Some(1),
        ..settings()
    };
    let (mut driven, _) = open(&SimDisk::new(1), limits);
    driven.commit(&[1; 900]);
    let stopped = driven.log.read("s", 0, Credit(10_000)).unwrap().next;
    for _ in 0..20 {
        driven.commit(&[2; 900]);
        driven.step(Duration::from_secs(60));
        driven.step(Duration::from_secs(60));
        let range = driven.log.range("s").unwrap();
        if range.first >= stopped {
            let from = range.first;
            let read = driven.log.read("s", from, Credit(10_000)).unwrap();
            assert!(read.next > from);
            return;
        }
        if range.first == 0 {
            let read = driven.log.read("s", stopped, Credit(10_000)).unwrap();
            assert_eq!(read.next, range.next);
        }
    }
    panic!("nothing was removed");
}

/// Trying again to reserve the next segment must not keep the writer from what it has accepted.
#[test]
fn what_was_accepted_is_committed_while_there_is_no_room_for_a_spare() {
    let roomy = Settings {
        segment_bytes: 64 << 10,
        ..settings()
    };
    let disk = SimDisk::new(1);
    let (mut driven, _) = open(&disk, roomy);
    driven.commit(b"first");
    disk.set_capacity(0);
    driven.step(Duration::from_secs(1));
    driven.commit(b"second");
}

/// Only a write shows that the power is gone.
#[test]
fn a_spare_that_can_not_be_made_does_not_hide_a_failing_disk() {
    let disk = SimDisk::new(1);
    let (mut driven, _) = open(
        &disk,
        Settings {
            segment_bytes: 64 << 10,
            ..settings()
        },
    );
    driven.commit(b"first");
    disk.set_faults(Faults {
        power: Some(1),
        ..Faults::default()
    });
    let ticket = driven.append(b"second").unwrap();
    for _ in 0..20 {
        driven.step(Duration::from_secs(1));
    }
    let progress = driven.log.progress();
    assert!(
        progress.committed < ticket && progress.failure.is_some(),
        "{progress:?}"
    );
}

/// Names reach the disk in any order: the first segment may be lost and a later one be there.
#[test]
fn without_syncs_a_lost_first_segment_is_a_torn_tail() {
    let os = Settings {
        policy: Policy::Os,
        ..settings()
    };
    for seed in 0..200 {
        let (mut driven, _) = open(&SimDisk::new(seed), os.clone());
        for _ in 0..12 {
            driven.commit(&[3; 900]);
        }
        let after = driven.disk.crash();
        let opened = EmbeddedLog::open(after, os.clone());
        assert!(opened.is_ok(), "seed {seed}: {}", opened.err().unwrap());
    }
}

/// Removals reach the disk in any order too: what recovery removes behind a torn tail must not leave
/// a later segment without the earlier ones.
#[test]
fn a_recovery_that_loses_power_while_it_removes_segments_leaves_a_log_that_opens() {
    let os = Settings {
        policy: Policy::Os,
        ..settings()
    };
    for seed in 0..400 {
        let (mut driven, _) = open(&SimDisk::new(seed), os.clone());
        for _ in 0..20 {
            driven.commit(&[3; 900]);
        }
        let after = driven.disk.crash();
        after.set_faults(Faults {
            power: Some(2 + seed % 6),
            ..Faults::default()
        });
        drop(EmbeddedLog::open(after.clone(), os.clone()));
        let opened = EmbeddedLog::open(after.crash(), os.clone());
        assert!(opened.is_ok(), "seed {seed}: {}", opened.err().unwrap());
    }
}

/// Every bit of what a reader returns is under a checksum that it verifies.
#[test]
fn no_flipped_bit_is_read_as_if_it_were_right() {
    let disk = SimDisk::new(1);
    let (mut driven, _) = open(&disk, settings());
    driven.commit(b"one");
    driven.commit(b"two and some more");
    let right = driven.log.read("s", 0, Credit(1000)).unwrap();
    let name = disk
        .names()
        .into_iter()
        .find(|name| name.ends_with(".seg"))
        .unwrap();
    let used = disk.contents(&name).unwrap();
    let used = used.iter().rposition(|byte| *byte != 0).unwrap() as u64;
    let mut found = 0;
    for offset in 0..=used {
        for bit in 0..8 {
            assert!(disk.flip(&name, offset, bit));
            match driven.log.read("s", 0, Credit(1000)) {
                Ok(read) if read == right => {}
                // What stands before the damage is read, and the next read says what is wrong.
                Ok(read) => {
                    let is_before = right.runs.starts_with(&read.runs);
                    assert!(is_before, "byte {offset}, bit {bit}: {read:?}");
                    let next = driven.log.read("s", read.next, Credit(1000));
                    let is_told = matches!(next, Err(ReadError::Damaged(_)));
                    assert!(is_told, "byte {offset}, bit {bit}: {next:?}");
                    found += 1;
                }
                Err(ReadError::Damaged(text)) => {
                    assert!(text.contains(&name), "{text}");
                    found += 1;
                }
                Err(other) => panic!("{other}"),
            }
            assert!(disk.flip(&name, offset, bit));
        }
    }
    assert!(found > 8 * 40, "{found}");
}

/// What an outside run has found: a sync of the directory failed when retention had removed a
/// segment, the next process went on, and after a power cut the removed segment was there again and
/// the one after it was not: "expected a segment that begins with batch 4914, found 4930".
#[test]
fn a_segment_whose_removal_a_failed_sync_has_hidden_does_not_come_back() {
    let limits = Settings {
        retention_bytes: Some(12 << 10),
        ..settings()
    };
    for seed in 0..30 {
        let (mut driven, _) = open(&SimDisk::new(seed), limits.clone());
        for _ in 0..12 {
            driven.commit(&[2; 900]);
        }
        let removed = driven.disk.names()[0].clone();
        // The next sync of the directory that follows a removal.
        for nth in 1..6 {
            let disk = driven.disk.fork();
            let (mut next, _) = open(&disk.kill(), limits.clone());
            next.disk.set_faults(Faults {
                sync_directory: Some(nth),
                ..Faults::default()
            });
            for _ in 0..40 {
                let _ = next.append(&[3; 900]);
                next.step(Duration::from_secs(1));
            }
            assert!(next.log.progress().failure.is_some());
            let (mut after, _) = open(&next.disk.kill(), limits.clone());
            for _ in 0..12 {
                after.commit(&[4; 900]);
            }
            let committed = after.log.range("s").unwrap();
            let found = EmbeddedLog::open(after.disk.crash(), limits.clone());
            let (log, _, _) = found.unwrap_or_else(|error| panic!("{removed}, {nth}: {error}"));
            assert_eq!(log.range("s").unwrap().next, committed.next);
        }
    }
}
