//! How a log ends and begins again, and what must be in it then.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tidewire_log::disk::sim::{Faults, SimDisk, Survival};
use tidewire_log::tools;
use tidewire_log::{
    Change, EmbeddedLog, Log, Policy, ProducerId, ReadError, Recovery, Refused, Step,
    StreamSettings, Ticket, Writer,
};

use super::{End, Harm, Kind, Open, World};
use crate::model::Stream;
use crate::reading;
use crate::seeds::{Verdict, Violation, ensure, trace};

impl World {
    /// Ends the log and makes the disk as it is found after it.
    pub(crate) fn end(&mut self, end: End) -> Verdict {
        self.observe()?;
        trace(|| format!("end: {end:?}, power {}", self.disk.has_power()));
        trace(|| format!("disk: {:016x}", self.disk_hash()));
        if end == End::Close {
            self.close()?;
        }
        self.open = None;
        let power = self.disk.has_power();
        self.disk = match end {
            End::Close | End::Kill if power => self.disk.kill(),
            End::Close | End::Kill | End::Crash => self.disk.crash(),
        };
        let crashed = !matches!(end, End::Close | End::Kill) || !power;
        let failed = self.model.failed();
        for stream in &mut self.model.streams {
            // Without syncs nothing is promised; what is left must be a prefix all the same.
            let is_os = self.settings.policy == Policy::Os;
            stream.proven = if is_os { 0 } else { stream.committed };
            stream.committed = match crashed {
                true => stream.proven,
                false if failed => stream.committed,
                false => stream.written,
            };
        }
        self.cursors
            .closed(crashed && self.settings.policy == Policy::Os);
        self.model.closed();
        Ok(())
    }

    /// A hash of all that is on the disk, and of how it came there.
    fn disk_hash(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (self.disk.operations(), self.disk.most_used()).hash(&mut hash);
        for name in self.disk.names() {
            (&name, self.disk.contents(&name)).hash(&mut hash);
        }
        hash.finish()
    }

    /// Opens the log, which must succeed, and holds everything in it against the model.
    pub(crate) fn reopen(&mut self) -> Verdict {
        self.opened()?;
        self.verify()
    }

    /// Opens the log again and again while power is lost in the middle of it, at last without.
    pub(crate) fn reopen_with_crashes(&mut self) -> Verdict {
        for _ in 0..self.random.u8(1..4) {
            let power = Some(self.random.u64(1..12));
            self.disk.set_faults(Faults {
                power,
                ..Faults::default()
            });
            match self.try_open() {
                Ok(_) => self.open = None,
                Err(_) if !self.disk.has_power() => {}
                Err(text) => return Err(Violation(format!("does not open: {text}"))),
            }
            self.disk = self.disk.crash();
            for stream in &mut self.model.streams {
                stream.committed = stream.proven;
            }
            self.cursors.closed(self.settings.policy == Policy::Os);
        }
        self.reopen()
    }

    /// Opens the log; why it refuses otherwise.
    pub(crate) fn try_open(&mut self) -> Result<Recovery, String> {
        let opened = EmbeddedLog::open(self.disk.clone(), self.settings.clone());
        trace(|| match &opened {
            Ok((_, _, recovery)) => format!("open: {recovery:?}"),
            Err(error) => format!("open: {error}"),
        });
        let (log, writer, recovery) = opened.map_err(|error| error.to_string())?;
        self.open = Some(Open {
            log,
            writer,
            streams: Vec::new(),
            producers: Vec::new(),
        });
        Ok(recovery)
    }

    pub(super) fn opened(&mut self) -> Verdict<Recovery> {
        self.try_open()
            .map_err(|text| Violation(format!("does not open: {text}")))
    }

    /// Everything committed is there, nothing else is but what was appended after it, and the marks
    /// say the same. From here on the model has what the log has.
    pub(crate) fn verify(&mut self) -> Verdict {
        let open = self.open.as_mut().expect("the log is open");
        let settings = &self.settings;
        let shortened = settings.retention_age.is_some() || settings.retention_bytes.is_some();
        let mut reborn = Vec::new();
        let mut cuts = Vec::new();
        for stream in &mut self.model.streams {
            let name = &*stream.name;
            let is_gone = open.log.range(name).is_none();
            if is_gone {
                let life = &stream.life;
                ensure(life.may_be_gone(stream.committed), || {
                    format!("{name} is gone: {life:?}")
                })?;
                let made = open.log.administer(Change::Create {
                    stream: name,
                    settings: StreamSettings::default(),
                });
                let ticket = made.map_err(|why| Violation(format!("{name}: {why}")))?;
                let first = reading::range(&open.log, name).first as usize;
                stream.life.reborn(ticket.0, first)?;
                reborn.push(ticket.0);
                cuts.push(vec![first]);
            }
            let found = reading::range(&open.log, &stream.name);
            let next = usize::try_from(found.next).expect("few records");
            ensure(
                (stream.committed..=stream.records.len()).contains(&next),
                || {
                    format!(
                        "{}: {next} records of {} appended and {} committed",
                        stream.name,
                        stream.records.len(),
                        stream.committed
                    )
                },
            )?;
            ensure(found.first <= found.next, || {
                format!("{}: {found:?}", stream.name)
            })?;
            if !is_gone {
                let status = open.log.stream_status(&stream.name).expect("it is there");
                let first = found.first as usize;
                cuts.push(stream.life.found(first, status.settings, shortened)?);
                let is_durable = matches!(settings.policy, Policy::Sync | Policy::Interval(_));
                ensure(!is_durable || found.first >= stream.first, || {
                    format!("{}: from {} on again", stream.name, found.first)
                })?;
            }
            stream.reopened(next);
            stream.first = found.first;
            let credit = self.random.usize(0..4000);
            reading::whole(&open.log, stream, credit)?
                .map_err(|error| Violation(format!("{}: {error}", stream.name)))?;
        }
        for stream in &self.model.streams {
            open.streams
                .push(open.log.stream(&stream.name).map_err(unexpected)?);
        }
        for producer in &mut self.producers {
            let stream = &self.model.streams[producer.stream];
            if producer.name.is_empty() {
                open.producers.push(ProducerId::ANONYMOUS);
                continue;
            }
            let id = open
                .log
                .producer(open.streams[producer.stream], &producer.name);
            let id = id.map_err(unexpected)?;
            open.producers.push(id);
            let mark = open.log.mark(id);
            let cuts = &cuts[producer.stream];
            let held = cuts.iter().map(|&cut| stream.mark(&producer.name, cut));
            let held = held.collect::<Vec<_>>();
            let is_known = held.contains(&mark.appended) && mark.ticket == Ticket(0);
            ensure(is_known, || {
                format!(
                    "{}: {} has {mark:?}, the log {held:?}",
                    stream.name, producer.name
                )
            })?;
            producer.next_id = mark.appended.map_or(1, |id| id + 1);
            producer.stale = false;
        }
        for ticket in reborn {
            self.model.changed(ticket)?;
        }
        self.cursors.reopened(&open.log)?;
        if self.settings.policy != Policy::Os {
            self.model.silent();
        }
        Ok(())
    }

    /// Lets time pass without any message, until all is claimed. The log does all that it has to do at a time, as its
    /// thread would: retention of streams looks at them once a second, and what it cuts off is a group of its own.
    pub(crate) fn fall_silent(&mut self) -> Verdict {
        for _ in 0..200 {
            for _ in 0..50 {
                if self.step()? != Step::Worked {
                    break;
                }
            }
            let is_claimed = |stream: &Stream| stream.silent == stream.committed;
            if self.model.streams.iter().all(is_claimed) {
                return Ok(());
            }
            self.now_us += 1_000_000;
        }
        Err(Violation("not claimed after 200 s of silence".to_owned()))
    }

    /// Like [`World::verify`] on a disk whose file `flipped` is damaged: what is read is right or
    /// said to be damaged, and what something on the disk claims is not gone.
    pub(crate) fn verify_damaged(&mut self, flipped: &str) -> Verdict {
        for stream in &self.model.streams {
            if stream.life.was_deleted() && self.log().range(&stream.name).is_none() {
                // Making it again may have been in what was cut off.
                continue;
            }
            let found = reading::range(self.log(), &stream.name);
            let claimed = match flipped {
                "claims" => stream.claimed,
                _ => stream.claimed.max(stream.silent),
            };
            let allowed = claimed as u64..=stream.records.len() as u64;
            ensure(allowed.contains(&found.next), || {
                format!(
                    "{}: {found:?}, expected the end in {allowed:?}",
                    stream.name
                )
            })?;
            match reading::whole(self.log(), stream, 2000)? {
                Ok(()) => {}
                // Not always the damaged file: a run whose kind has changed is first missed where
                // the next one is.
                Err(ReadError::Damaged(text)) => ensure(text.contains("byte"), || {
                    format!("{flipped} is damaged, reading says: {text}")
                })?,
                Err(gone) => return Err(Violation(format!("{}: {gone}", stream.name))),
            }
        }
        Ok(())
    }

    /// Repairs a copy of the disk and opens that: every record is there, under its position, but
    /// for the ones that are reported missing, and one flipped bit costs one batch.
    pub(crate) fn verify_repaired(&self, harm: &Harm) -> Verdict {
        let disk = self.disk.fork();
        let failed = |what: &str, error: String| Violation(format!("{what} {harm:?}: {error}"));
        let loss = tools::loss(&disk).map_err(|error| failed("asking", error.to_string()))?;
        let Some(loss) = loss else {
            return Err(failed("nothing to repair after", String::new()));
        };
        let is_flip = matches!(harm.kind, Kind::Flip { .. });
        let is_one = loss.gaps.iter().all(|gap| gap.batches.0 == gap.batches.1);
        ensure(!is_flip || (loss.gaps.len() <= 1 && is_one), || {
            format!("{harm:?} costs {loss:?}")
        })?;
        tools::repair(&disk, &loss).map_err(|error| failed("repairing", error.to_string()))?;
        let (log, mut writer, _) = EmbeddedLog::open(disk, self.settings.clone())
            .map_err(|error| failed("opening after", error.to_string()))?;
        for stream in &self.model.streams {
            let given = stream.committed as u64;
            let Some(range) = log.range(&stream.name) else {
                // Nothing that is left tells its name, or that it was deleted does.
                let first = self.beginning(&log, &mut writer, stream)?;
                ensure(first >= given, || {
                    format!(
                        "{}: begins again at {first}, {given} were given, after the repair of {harm:?}: {loss:?}",
                        stream.name
                    )
                })?;
                continue;
            };
            let mut next = range.first;
            while next < range.next {
                match reading::once(&log, stream, next, 2000)? {
                    Ok(upto) => next = upto,
                    Err(ReadError::Missing { next: to, .. }) if to > next => next = to,
                    Err(other) => return Err(failed("reading after", other.to_string())),
                }
            }
            ensure(range.next >= given, || {
                format!(
                    "{}: {range:?}, {given} were given, after the repair of {harm:?}: {loss:?}",
                    stream.name
                )
            })?;
        }
        Ok(())
    }

    /// Where a stream begins that is made now.
    fn beginning(
        &self,
        log: &EmbeddedLog<SimDisk>,
        writer: &mut Writer<SimDisk>,
        stream: &Stream,
    ) -> Verdict<u64> {
        let mut now = self.now();
        for _ in 0..100 {
            let made = log.stream(&stream.name);
            for _ in 0..50 {
                if writer.step(now) != Step::Worked {
                    break;
                }
            }
            if made.is_ok() {
                return Ok(reading::range(log, &stream.name).first);
            }
            now.monotonic += Duration::from_secs(1);
        }
        Err(Violation(format!("{} cannot be made anew", stream.name)))
    }

    /// Opening once more, after a crash with nothing under way, finds the same and cuts nothing.
    pub(crate) fn opens_the_same_again(&mut self) -> Verdict {
        if self.settings.policy != Policy::Os {
            let crashed = self.disk.fork().crash_with(Survival::Nothing);
            self.end(End::Kill)?;
            self.disk = crashed;
            for stream in &mut self.model.streams {
                stream.committed = stream.records.len();
            }
        } else {
            self.end(End::Kill)?;
        }
        let recovery = self.opened()?;
        ensure(recovery.cut.is_none(), || {
            format!("cut at the second opening: {recovery:?}")
        })?;
        self.verify()
    }

    /// Closes the log, which commits everything accepted unless it fails.
    pub(super) fn close(&mut self) -> Verdict {
        let now = self.now();
        let Open { log, writer, .. } = self.open.take().expect("the log is open");
        log.close();
        writer.close(now);
        let progress = log.progress();
        self.model.progressed(&progress)?;
        ensure(self.model.settled() || progress.failure.is_some(), || {
            format!("closed without committing everything: {progress:?}")
        })?;
        for stream in &self.model.streams {
            if stream.life.seen() != Some(true) {
                continue;
            }
            let range = reading::range(&log, &stream.name);
            ensure(range.next == stream.committed as u64, || {
                format!(
                    "{}: {} committed, closed at {range:?}",
                    stream.name, stream.committed
                )
            })?;
        }
        Ok(())
    }
}

fn unexpected(refused: Refused) -> Violation {
    Violation(format!("refused after opening: {refused}"))
}
