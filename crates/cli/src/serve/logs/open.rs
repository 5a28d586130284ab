//! The durable logs of the services that need one: the log of messages and the logs of products,
//! each in its own directory, because each is shortened by its own rules.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use tidewire_admin::catalogue::log as metrics;
use tidewire_admin::{Panel, Snapshot, Value};
use tidewire_log::{EmbeddedLog, Log, OpenError, Opening, Recovery, Settings};
use tidewire_replicate::{Owners, Shown};

use crate::data::refuse_other;
use crate::exit::Failure;
use crate::serve::logs::options::{LogOptions, PolicyName};
use crate::serve::logs::replica::{Replica, collect};

/// The logs that are needed.
#[derive(Default)]
pub(crate) struct Logs {
    pub(crate) messages: Option<OpenLog>,
    /// Logs of products, by the names of their services.
    pub(crate) own: Vec<(&'static str, OpenLog)>,
}

impl Logs {
    pub(crate) fn each(&mut self) -> impl Iterator<Item = &mut OpenLog> {
        let own = self.own.iter_mut().map(|(_, log)| log);
        self.messages.iter_mut().chain(own)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_none() && self.own.is_empty()
    }

    /// The log of a service.
    pub(crate) fn of(&self, service: &str) -> Option<&OpenLog> {
        let own = self.own.iter().find(|(of, _)| *of == service);
        own.map(|(_, log)| log)
    }

    /// Commits all records, and lets another process have the logs.
    pub(crate) fn release(&mut self) {
        for log in self.each() {
            log.replica = None;
            log.log.release();
        }
    }

    /// Closes all, whatever becomes of the first.
    pub(crate) fn close(self) -> Result<(), Failure> {
        let own = self.own.into_iter().map(|(_, log)| log.close());
        let own = own.fold(Ok(()), Result::and);
        self.messages.map_or(Ok(()), OpenLog::close).and(own)
    }
}

/// An open log, and its directory.
pub(crate) struct OpenLog {
    log: Arc<EmbeddedLog>,
    replica: Option<Replica>,
    pub(crate) directory: PathBuf,
    told: bool,
}

impl OpenLog {
    /// Opens the log, logs what was found, and reports the progress if that takes long. While another process has
    /// the log open, calls `awaits`, which waits a while and says whether to try again.
    pub(crate) fn open(
        options: &LogOptions,
        owners: Option<&Owners>,
        panel: &Panel,
        awaits: &mut dyn FnMut(&Path) -> bool,
    ) -> Result<OpenLog, Failure> {
        let settings = options.settings()?;
        let payload_max = settings.payload_max;
        let target = Replica::target(options, &settings)?;
        let mut log = OpenLog::open_at(options.dir.clone(), settings, Some(panel), awaits)?;
        if let Some(target) = target {
            let replica = Replica::start(&log.log, &target, options, payload_max, owners)?;
            log.replica = Some(replica);
        }
        Ok(log)
    }

    /// Opens a log with these settings; new findings are reported as in [`open`](OpenLog::open).
    pub(crate) fn open_at(
        directory: PathBuf,
        settings: Settings,
        panel: Option<&Panel>,
        awaits: &mut dyn FnMut(&Path) -> bool,
    ) -> Result<OpenLog, Failure> {
        if let Some(kind) = settings.kind {
            refuse_other(&directory, kind)?;
        }
        let mut told = Instant::now();
        let mut watch = |opening: Opening| {
            if told.elapsed() >= OPENING {
                told = Instant::now();
                let Opening {
                    segments,
                    done,
                    bytes,
                    ..
                } = opening;
                let directory = directory.display();
                tracing::info!(%directory, done, segments, bytes, "opening the log");
                if let Some(panel) = panel {
                    panel.set_doing(format!(
                        "opening the log in {directory}, {done} of {segments} segments done, {} MB read",
                        bytes / 1_000_000
                    ));
                }
            }
        };
        let (log, recovery) = loop {
            match EmbeddedLog::start_watched(&directory, settings.clone(), &mut watch) {
                Ok(opened) => break opened,
                Err(e) if is_held(&e) && awaits(&directory) => {}
                Err(e) => return Err(cannot_open(&directory, &e)),
            }
        };
        report(&directory, &recovery);
        Ok(OpenLog {
            log: Arc::new(log),
            replica: None,
            directory,
            told: false,
        })
    }

    pub(crate) fn shared(&self) -> Arc<dyn Log> {
        self.log.clone()
    }

    pub(crate) fn embedded(&self) -> Arc<EmbeddedLog> {
        self.log.clone()
    }

    pub(crate) fn policy(&self) -> PolicyName {
        PolicyName(self.log.policy())
    }

    /// The log's part of the metrics.
    pub(crate) fn watched(&self) -> WatchedLog {
        WatchedLog {
            log: self.log.clone(),
            replica: self.replica.as_ref().map(Replica::shown),
            directory: self.directory.clone(),
        }
    }

    /// Why the log accepts no records for now, though its disk is not full.
    pub(crate) fn blocked(&self) -> Option<String> {
        self.log.progress().blocked.map(|why| why.to_string())
    }

    /// Whether the log has stopped for good; logs that once.
    pub(crate) fn has_failed(&mut self) -> bool {
        let Some(failure) = self.log.progress().failure else {
            return false;
        };
        if !self.told {
            self.told = true;
            tracing::error!(
                directory = %self.directory.display(),
                %failure,
                "the durable log has stopped for good: the server acknowledges no more messages. \
                 Check the disk, then start the server again"
            );
        }
        true
    }

    /// Settles all taken records and closes the log. After the loops have stopped.
    ///
    /// # Errors
    /// The log had failed, or has now: the starter of the server has to know.
    pub(crate) fn close(mut self) -> Result<(), Failure> {
        self.replica = None;
        self.log.close();
        if !self.has_failed() {
            return Ok(());
        }
        Err(Failure::wrong(format!(
            "the durable log in {} has failed, and messages that were not acknowledged before \
             may be lost; check the disk, then start the server again",
            self.directory.display()
        )))
    }
}

/// Between two lines about how far the opening of a log has come.
const OPENING: Duration = Duration::from_secs(1);

/// Streams that are shown one by one.
pub(crate) const STREAMS_SHOWN: usize = 100;

/// The log, for a thread that watches it.
pub(crate) struct WatchedLog {
    log: Arc<EmbeddedLog>,
    replica: Option<Shown>,
    directory: PathBuf,
}

impl WatchedLog {
    /// Why the log accepts no records for now, or not any more.
    pub(crate) fn halted(&self) -> Option<String> {
        let progress = self.log.progress();
        let shown = self.directory.display();
        if let Some(why) = progress.failure {
            return Some(format!("the log in {shown} has failed: {why}"));
        }
        if progress.is_full {
            return Some(format!(
                "the log in {shown} accepts no messages: its disk is full"
            ));
        }
        let why = progress.blocked?;
        Some(format!("the log in {shown} accepts no messages: {why}"))
    }

    /// Adds the log's progress, and its size, to the metrics.
    pub(crate) fn collect(&self, log: &str, to: &mut Snapshot) {
        let (progress, usage) = (self.log.progress(), self.log.usage());
        to.add(&metrics::APPENDED_BATCHES, &[log], usage.appended.0);
        to.add(&metrics::WRITTEN_BATCHES, &[log], progress.written.0);
        to.add(&metrics::COMMITTED_BATCHES, &[log], progress.committed.0);
        to.add(&metrics::WRITTEN_GROUPS, &[log], progress.groups);
        let times = self.log.commit_times();
        let commits = Value::Histogram {
            buckets: times.parts.to_vec(),
            sum: times.sum.as_secs_f64(),
        };
        to.add(&metrics::COMMIT_SECONDS, &[log], commits);
        to.add(&metrics::QUEUED_BYTES, &[log], usage.queued_bytes);
        to.add(&metrics::SEGMENTS, &[log], usage.segments);
        to.add(&metrics::USED_BYTES, &[log], usage.used_bytes);
        if let Ok(disk) = statvfs(&self.directory) {
            to.add(&metrics::DISK_SIZE, &[log], disk.f_blocks * disk.f_frsize);
            to.add(&metrics::DISK_FREE, &[log], disk.f_bavail * disk.f_frsize);
        }
        to.add(&metrics::STREAMS, &[log], usage.streams);
        to.add(&metrics::PRODUCERS, &[log], usage.producers);
        for stream in self.log.streams("", STREAMS_SHOWN) {
            let of = [log, &*stream.name];
            to.add(&metrics::STREAM_NEXT, &of, stream.range.next);
            to.add(&metrics::STREAM_FIRST, &of, stream.range.first);
            to.add(&metrics::STREAM_BYTES, &of, stream.bytes);
            to.add(&metrics::STREAM_LAG, &of, stream.lag);
        }
        to.add(&metrics::BLOCKED, &[log, "disk_full"], progress.is_full);
        let is_blocked = progress.blocked.is_some();
        to.add(&metrics::BLOCKED, &[log, "no_room"], is_blocked);
        to.add(&metrics::FAILED, &[log], progress.failure.is_some());
        if let Some(replica) = &self.replica {
            collect(&self.log, replica, to);
        }
    }
}

fn report(directory: &Path, recovery: &Recovery) {
    let Recovery {
        segments,
        batches,
        records,
        ..
    } = recovery;
    tracing::info!(directory = %directory.display(), segments, batches, records, "log open");
    if recovery.room_not_held {
        tracing::warn!(
            directory = %directory.display(),
            "the file system copies blocks when they are written (btrfs, ZFS, bcachefs), so disk \
             space cannot be reserved: if the disk runs full the log may fail instead of \
             refusing messages in time. Keep some space free, or put --data on ext4 or xfs"
        );
    }
    if recovery.claims_lost {
        tracing::warn!(
            directory = %directory.display(),
            "the file `claims` was damaged, and has been written anew: it is unknown whether \
             acknowledged batches are missing at the end of the log"
        );
    }
    if let Some(short) = &recovery.short {
        tracing::warn!(
            directory = %directory.display(),
            file = short.file,
            length = short.length,
            last_batch = short.last,
            durable_through = short.durable_through,
            "the newest segment of the log ends without the space that is reserved behind the \
             last batch, and the log was not closed: the file was shortened, or was copied in \
             part. Acknowledged batches may be missing behind the last one, and it is unknown \
             how many. If there is a complete copy, use it"
        );
    }
    if let Some(cut) = &recovery.cut {
        let kept = match cut.kept_in.is_empty() {
            true => {
                "The bytes that were cut off were not kept: there was no space, or there are \
                 eight files of torn tails (NAME.tail) already, which may be removed"
            }
            false => "`tidewire log dump FILE` shows the bytes that were cut off",
        };
        tracing::warn!(
            at = %cut.at,
            bytes = cut.bytes,
            whole_batches = cut.whole_batches,
            kept_in = ?cut.kept_in,
            "cut off a torn tail; no claim says that it was acknowledged as durable, but it may have been, \
             if the server was killed within a second of its last message and the disk has damaged \
             it. {kept}"
        );
    }
}

/// Whether another process has the log open.
fn is_held(error: &OpenError) -> bool {
    use io::ErrorKind::{ResourceBusy, WouldBlock};
    matches!(error, OpenError::Io { source, .. } if matches!(source.kind(), WouldBlock | ResourceBusy))
}

fn cannot_open(directory: &Path, error: &OpenError) -> Failure {
    let advice = match error {
        _ if is_held(error) => "; stop that process, or choose another directory with --data DIR",
        OpenError::Io { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "; choose a writable directory with --data DIR"
            }
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                "; it is no directory: choose one with --data DIR"
            }
            io::ErrorKind::NotFound => {
                "; it cannot be made there: choose another directory with --data DIR"
            }
            _ => "",
        },
        _ => "",
    };
    let directory = directory.display().to_string();
    let why = match error {
        // The message already names the place.
        OpenError::Io { what, source } if what.contains(&directory) => source.to_string(),
        _ => error.to_string(),
    };
    let message = format!("cannot open the log in {directory}: {why}{advice}");
    match error {
        // No other start finds the log whole.
        OpenError::Damaged { .. } | OpenError::Later { .. } | OpenError::Kind { .. } => {
            Failure::wrong(message)
        }
        _ => Failure::failed(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exported buckets are the log's, in seconds.
    #[test]
    fn the_bounds_are_the_logs() {
        let bounds = tidewire_log::COMMIT_BOUNDS.map(|bound| bound.as_secs_f64());
        assert_eq!(bounds, metrics::COMMIT_BOUNDS);
    }
}
