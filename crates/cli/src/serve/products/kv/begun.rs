//! The directory of the log that a follower begins when it takes a store over.
//!
//! The one idea: while a marker file exists, the data beside it does not count; the file is made
//! before that data and removed when the server owns the store. Only the process that made the
//! marker may remove the data.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidewire_log::disk::real::RealDisk;

use crate::exit::Failure;

/// A file in the directory of a log that was made to take a store over: as long as it is there nothing was ever taken.
const BEGUN: &str = "taking-over";

/// A file that is made and removed, to find out whether that is possible.
const PROBE: &str = "probe";

/// A follower has no log of its own: removes the rest of a log from a promotion that failed.
pub(super) fn clean(directory: &Path) -> Result<(), Failure> {
    let shown = directory.display();
    let cannot = |e: io::Error| Failure::failed(format!("cannot look into {shown}: {e}"));
    if directory.join(BEGUN).exists() {
        // This may be the log of another process that is about to own the store.
        let locked = RealDisk::open(directory);
        let _locked = locked.map_err(|e| Failure::failed(format!("--follow: {shown}: {e}")))?;
        if !directory.join(BEGUN).exists() {
            return Err(Failure::failed(format!(
                "--follow: another process has just taken the store over with {shown}: start again"
            )));
        }
        tracing::warn!(directory = %shown, "an earlier start began to take the store over and did not finish: its empty log is removed");
        return empty(directory).map_err(cannot);
    }
    if entries(directory).map_err(cannot)?.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--follow: {shown} is not empty, and holds no log of a store: move its contents away"
    )))
}

/// The entries of a directory, if the directory exists.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Removes the contents of a directory, which may be a mount point; the marker file goes last.
fn empty(directory: &Path) -> io::Result<()> {
    let begun = directory.join(BEGUN);
    for path in entries(directory)? {
        if path != begun {
            fs::remove_file(path)?;
        }
    }
    fs::remove_file(begun)
}

/// Whether this server has taken the store over that it was to follow, and may go on as its owner, if the home says so.
pub(super) fn has_taken_over(directory: &Path) -> bool {
    let is_segment = |entry: fs::DirEntry| entry.path().extension().is_some_and(|end| end == "seg");
    let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
    !directory.join(BEGUN).exists() && entries.any(is_segment)
}

/// Refuses the log of a store that was about to be taken over.
pub(super) fn refuse_begun(directory: &Path) -> Result<(), Failure> {
    match directory.join(BEGUN).exists() {
        false => Ok(()),
        true => Err(Failure::usage(format!(
            "the log in {} was made for a takeover that did not finish: start with --follow, and \
             promote the server again",
            directory.display()
        ))),
    }
}

/// Whether nothing is there, a file can be written, and so many bytes are free. Leaves only the directory behind.
pub(super) fn probe(directory: &Path, room: u64) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    is_free(directory)?;
    let probe = directory.join(PROBE);
    fs::File::create(&probe)?.sync_all()?;
    fs::remove_file(&probe)?;
    let disk = rustix::fs::statvfs(directory)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free < room {
        return Err(io::Error::new(
            io::ErrorKind::StorageFull,
            format!("{free} bytes are free, and taking the store over may take {room}"),
        ));
    }
    Ok(())
}

/// Only data that this process has begun may be marked as worthless: another process may own a log
/// there by now.
pub(super) fn begin(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    is_free(directory)?;
    let begun = directory.join(BEGUN);
    fs::File::create_new(&begun)?.sync_all()?;
    if entries(directory)? != [&*begun] {
        fs::remove_file(begun)?;
        return Err(occupied());
    }
    sync(directory)
}

fn is_free(directory: &Path) -> io::Result<()> {
    match entries(directory)?.is_empty() {
        true => Ok(()),
        false => Err(occupied()),
    }
}

fn occupied() -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        "the directory is not empty, and may belong to another server: give each server its own --data",
    )
}

pub(super) fn finish(directory: &Path) -> io::Result<()> {
    fs::remove_file(directory.join(BEGUN))?;
    sync(directory)
}

fn sync(directory: &Path) -> io::Result<()> {
    fs::File::open(directory)?.sync_all()?;
    let above: PathBuf = std::path::absolute(directory)?;
    fs::File::open(above.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_another_server_has_there_is_not_marked_and_does_not_go() {
        let place = tempfile::tempdir().expect("a directory");
        let at = place.path().join("kv");
        probe(&at, 0).expect("nothing there");
        begin(&at).expect("nothing there");
        let locked = RealDisk::open(&at).expect("nobody else has it");
        // The directory cannot be cleaned while the other process takes the store over, and
        // afterwards.
        assert!(clean(&at).is_err() && at.join(BEGUN).exists());
        finish(&at).expect("it was begun");
        for refused in [probe(&at, 0), begin(&at)] {
            let why = refused.expect_err("there is a log").to_string();
            assert!(why.contains("another server"), "{why}");
        }
        assert!(!at.join(BEGUN).exists() && clean(&at).is_err());
        drop(locked);
        assert!(clean(&at).is_err() && at.join("LOCK").exists());
    }

    #[test]
    fn what_was_begun_in_vain_goes_and_the_directory_stays() {
        let place = tempfile::tempdir().expect("a directory");
        let (at, real) = (place.path().join("kv"), place.path().join("disk"));
        fs::create_dir(&real).expect("a directory");
        std::os::unix::fs::symlink(&real, &at).expect("a link");
        begin(&at).expect("nothing there");
        drop(RealDisk::open(&at).expect("nobody else has it"));
        fs::write(at.join("00000000000000000001.seg"), "1").expect("writing");
        clean(&at).expect("it was begun");
        assert_eq!(entries(&at).expect("reading"), Vec::<PathBuf>::new());
        assert!(at.is_symlink());
        begin(&at).expect("nothing there");
    }
}
