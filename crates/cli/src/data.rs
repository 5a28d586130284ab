//! Finds out what is in a data directory: messages, keys, or both.
//!
//! The one idea: `--data` means one thing to every command. `--data` is the directory of a server's data, with the log of
//! messages in it and the log of keys in `kv` below it. The log of a store alone, for example a backup of `DIR/kv`, is
//! recognised by its kind.

use std::path::{Path, PathBuf};

use tidewire_kv::durable::kind_of;
use tidewire_log::disk::ReadOnlyDisk;
use tidewire_log::{Kind, OpenError};

use crate::exit::Failure;

/// Where the log of the key-value store is, in the directory of the data.
pub(crate) const KV_DIRECTORY: &str = "kv";

/// A log in a directory of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) kind: Kind,
    pub(crate) directory: PathBuf,
    /// The log is in `kv`, and not in the directory itself.
    pub(crate) is_below: bool,
}

impl Part {
    /// Why the log is in the wrong place, if that is certain: messages where every command looks for
    /// keys.
    pub(crate) fn misplaced(&self) -> Option<String> {
        (self.is_below && self.kind == Kind::Messages).then(|| {
            format!(
                "{} holds messages where every command expects keys: `serve` opens it neither as \
                 keys nor as messages; move it to a data directory of its own",
                self.directory.display()
            )
        })
    }

    /// The kind of the log and its directory.
    pub(crate) fn line(&self) -> String {
        format!("{:<11} {}", self.kind.to_string(), self.directory.display())
    }
}

/// The logs in a directory of data, that of messages first; none if there is nothing.
pub(crate) fn parts(data: &Path) -> Vec<Part> {
    let mut parts = Vec::new();
    let own = part(data.to_owned(), false);
    let is_store = own.as_ref().is_some_and(|own| own.kind == Kind::Keys);
    parts.extend(own);
    if !is_store {
        parts.extend(part(data.join(KV_DIRECTORY), true));
    }
    parts
}

fn part(directory: PathBuf, is_below: bool) -> Option<Part> {
    let disk = ReadOnlyDisk::open(&directory).ok()?;
    let is_kv = directory
        .file_name()
        .is_some_and(|name| name == KV_DIRECTORY);
    let by_place = if is_kv { Kind::Keys } else { Kind::Messages };
    // The command that reads the directory reports its faults.
    let kind = kind_of(disk).ok().flatten().unwrap_or(by_place);
    Some(Part {
        kind,
        directory,
        is_below,
    })
}

/// Where the keys of a data directory are, or would be.
pub(crate) fn keys_in(data: &Path) -> PathBuf {
    let mut parts = parts(data).into_iter();
    let keys = parts.find(|part| part.kind == Kind::Keys);
    keys.map_or_else(|| data.join(KV_DIRECTORY), |part| part.directory)
}

/// Refuses a directory with a log of the other kind. A log that records its kind is checked when it is opened; the kind
/// of an older log is found out here.
///
/// # Errors
/// The log is of the other kind, or of a later version.
pub(crate) fn refuse_other(directory: &Path, wanted: Kind) -> Result<(), Failure> {
    let Ok(disk) = ReadOnlyDisk::open(directory) else {
        return Ok(());
    };
    let shown = directory.display();
    let refused =
        |error: OpenError| Failure::wrong(format!("cannot open the log in {shown}: {error}"));
    match kind_of(disk) {
        Ok(Some(found)) if found != wanted => Err(refused(OpenError::Kind { found, wanted })),
        Err(error @ OpenError::Later { .. }) => Err(refused(error)),
        // The code that opens the log reports its faults.
        _ => Ok(()),
    }
}

/// Refuses to make a store below one.
///
/// # Errors
/// That the directory of data is the log of a store itself.
pub(crate) fn refuse_store_in_store(data: &Path) -> Result<(), Failure> {
    let own = part(data.to_owned(), false);
    match own.filter(|own| own.kind == Kind::Keys) {
        None => Ok(()),
        Some(_) => {
            let shown = data.display();
            let advice = match data.file_name().is_some_and(|name| name == KV_DIRECTORY) {
                true => "--data must name the directory above it".to_owned(),
                false => format!(
                    "move it to {KV_DIRECTORY} in a data directory, and name that data directory with --data"
                ),
            };
            Err(Failure::wrong(format!(
                "{shown} is itself the log of a key-value store: {advice}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewire_log::{EmbeddedLog, Log, Settings};

    use super::*;

    fn make(directory: &Path, kind: Kind) {
        let settings = Settings {
            kind: Some(kind),
            ..Settings::default()
        };
        let (log, _) = EmbeddedLog::start(directory, settings).expect("a log");
        // A stream, so that there is a segment; closing commits it.
        for _ in 0..1_000_000 {
            if log.stream("kv").is_ok() {
                return log.close();
            }
            std::thread::yield_now();
        }
        panic!("there is never room");
    }

    fn found(data: &Path) -> Vec<(Kind, bool)> {
        let parts = parts(data).into_iter();
        parts.map(|part| (part.kind, part.is_below)).collect()
    }

    #[test]
    fn a_directory_of_data_has_messages_and_keys() {
        let above = tempfile::tempdir().expect("a directory");
        let data = above.path().join("data");
        assert_eq!(found(&data), []);
        make(&data.join("kv"), Kind::Keys);
        assert_eq!(found(&data), [(Kind::Keys, true)]);
        assert_eq!(found(&data.join("kv")), [(Kind::Keys, false)]);
        make(&data, Kind::Messages);
        assert_eq!(found(&data), [(Kind::Messages, false), (Kind::Keys, true)]);
        assert_eq!(keys_in(&data), data.join("kv"));
        assert_eq!(keys_in(&data.join("kv")), data.join("kv"));
    }

    #[test]
    fn a_log_of_one_kind_is_refused_where_the_other_is_wanted() {
        let above = tempfile::tempdir().expect("a directory");
        let (messages, keys) = (above.path().join("m"), above.path().join("d/kv"));
        make(&messages, Kind::Messages);
        make(&keys, Kind::Keys);
        assert!(refuse_other(&messages, Kind::Messages).is_ok());
        assert!(refuse_other(&keys, Kind::Keys).is_ok());
        assert!(refuse_other(&messages, Kind::Keys).is_err());
        assert!(refuse_other(&keys, Kind::Messages).is_err());
        assert!(refuse_other(&above.path().join("none"), Kind::Keys).is_ok());
        assert!(refuse_store_in_store(&keys).is_err());
        assert!(refuse_store_in_store(&above.path().join("d")).is_ok());
        assert!(refuse_store_in_store(&messages).is_ok());
    }
}
