//! The log of the key-value store: where it is, and how it is opened.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use tidewire_kv::durable::{KvLog, STREAM};
use tidewire_log::{Policy, Settings};

use crate::data::{KV_DIRECTORY, refuse_store_in_store};
use crate::exit::Failure;
use crate::serve::logs::open::OpenLog;
use crate::serve::logs::options::LogOptions;
use crate::size::Size;

/// The directory of the keys' log.
pub(super) fn kv_directory(options: &LogOptions) -> PathBuf {
    options.dir.join(KV_DIRECTORY)
}

/// A disk has room for so many segments of the key-value store's log, by default.
const SEGMENTS_OF_A_DISK: u64 = 16;

/// Settings of the key-value store's log, with segments that suit the disk of its directory unless their
/// length is given.
pub(crate) fn kv_settings(
    directory: &Path,
    segment: Option<Size>,
    policy: Policy,
) -> Result<Settings, Failure> {
    let own = KvLog::settings(policy);
    if let Some(Size(segment)) = segment {
        return own.with_segments(segment).map_err(|least| {
            Failure::usage(format!(
                "--segment {}: the log of kv needs segments of {} at least",
                Size(segment),
                Size(least)
            ))
        });
    }
    let suits = disk_size(directory).map(|bytes| bytes / SEGMENTS_OF_A_DISK);
    match suits {
        Some(suits) if suits < own.segment_length(0) => {
            let chosen = own.clone().with_segments(suits);
            Ok(chosen
                .or_else(|least| own.with_segments(least))
                .expect("the least that it needs"))
        }
        _ => Ok(own),
    }
}

/// Bytes of the disk of a directory, which may not have been made yet.
pub(super) fn disk_size(directory: &Path) -> Option<u64> {
    let disk = directory.ancestors().find_map(|path| statvfs(path).ok())?;
    Some(disk.f_blocks * disk.f_frsize)
}

/// How the one is opened that is there from the start.
pub(super) fn from_start(
    options: &LogOptions,
    policy: Policy,
    has_home: bool,
) -> Result<Settings, Failure> {
    refuse_store_in_store(&options.dir)?;
    Ok(Settings {
        group_wait: options.group_wait.0,
        backlog: has_home.then(|| options.backlog()),
        ..kv_settings(&kv_directory(options), options.segment, policy)?
    })
}

/// Makes the one of a store that was another server's, whose units go on at this position.
pub(super) fn take_over(
    options: &LogOptions,
    policy: Policy,
    identity: u64,
    position: u64,
) -> Result<OpenLog, Failure> {
    let directory = kv_directory(options);
    let settings = Settings {
        group_wait: options.group_wait.0,
        backlog: Some(options.backlog()),
        identity: Some(identity),
        begins: Some((STREAM.into(), position)),
        ..kv_settings(&directory, options.segment, policy)?
    };
    OpenLog::open_at(directory, settings, None, &mut |_| false)
}
