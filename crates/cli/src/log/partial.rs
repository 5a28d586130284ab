//! A directory that is made under a temporary name until it is complete, by one process at a time.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

/// How many times the directory is begun again because another process had just finished with it.
const TRIES: u32 = 10;

/// The directory that the module describes. The directory stays locked until the value is dropped.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    to: PathBuf,
    _locked: OwnedFd,
}

impl Partial {
    /// Begins a directory that will be at `to`; removes what an interrupted attempt has left.
    ///
    /// # Errors
    /// The error, as text: another process makes the directory, something else is in its place, no directory can be put there
    /// as a whole, or the operating system refuses.
    pub(super) fn begin(to: &Path) -> Result<Partial, String> {
        let to = meant(to)?;
        let path = beside(&to);
        let shown = path.display().to_string();
        let failed = |what: &str, e: io::Error| format!("cannot {what} {shown}: {e}");
        for _ in 0..TRIES {
            match fs::create_dir(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let above = path.parent().unwrap_or(Path::new("."));
                    fs::create_dir_all(above)
                        .map_err(|e| failed("make the parent directory of", e))?;
                    continue;
                }
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed("make", e));
                }
                _ => {}
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let locked = match rustix::fs::open(&path, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                Err(e @ (Errno::NOTDIR | Errno::LOOP)) => {
                    return Err(format!("{shown} is in the way, and no directory: {e}"));
                }
                opened => opened.map_err(|e| failed("open", e.into()))?,
            };
            match rustix::fs::flock(&locked, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::AGAIN) => {
                    return Err(format!(
                        "another process is making it, in {shown}: wait, or name another directory"
                    ));
                }
                // Where directories know no locks, another process is not noticed.
                Err(Errno::BADF | Errno::INVAL | Errno::NOTSUP | Errno::NOLCK | Errno::NOSYS) => {}
                taken => taken.map_err(|e| failed("lock", e.into()))?,
            }
            // Another process may have given it its name meanwhile, or removed it.
            let is_there = || {
                let ours = File::from(locked.try_clone()?).metadata()?;
                let there = fs::symlink_metadata(&path)?;
                Ok::<_, io::Error>((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
            };
            if is_there().unwrap_or(false) {
                let partial = Partial {
                    path,
                    to,
                    _locked: locked,
                };
                partial.clear()?;
                return Ok(partial);
            }
        }
        Err(format!("{shown} changes all the time"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the contents of the directory.
    ///
    /// # Errors
    /// The error of the operating system, as text.
    pub(super) fn clear(&self) -> Result<(), String> {
        let clear = || {
            for entry in fs::read_dir(&self.path)? {
                let entry = entry?;
                match entry.file_type()?.is_dir() {
                    true => fs::remove_dir_all(entry.path())?,
                    false => fs::remove_file(entry.path())?,
                }
            }
            Ok::<_, io::Error>(())
        };
        clear().map_err(|e| format!("cannot remove the contents of {}: {e}", self.path.display()))
    }

    /// Gives the directory its final name, durably.
    ///
    /// # Errors
    /// The system's error, as text; the directory is removed then.
    pub(super) fn finish(self) -> Result<(), String> {
        // Files in the directory may have got their names after the last sync.
        let synced = File::open(&self.path).and_then(|directory| directory.sync_all());
        if let Err(e) = synced.and_then(|()| fs::rename(&self.path, &self.to)) {
            self.give_up();
            return Err(e.to_string());
        }
        let above = std::path::absolute(&self.to).map_err(|e| e.to_string())?;
        let above = File::open(above.parent().unwrap_or(Path::new("/")));
        above
            .and_then(|above| above.sync_all())
            .map_err(|e| e.to_string())
    }

    /// Removes the directory: a part must not be taken for the whole.
    pub(super) fn give_up(self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The final path of the directory, with links resolved. If the directory could not take that name in the end, the error
/// comes before anything is done.
///
/// # Errors
/// As text.
fn meant(to: &Path) -> Result<PathBuf, String> {
    let shown = to.display();
    if fs::symlink_metadata(to).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return match to.file_name() {
            Some(_) => Ok(to.to_owned()),
            None => Err(format!("{shown} is no name for a new directory")),
        };
    }
    let meant = fs::canonicalize(to).map_err(|e| format!("{shown}: {e}"))?;
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let found = rustix::fs::statx(CWD, &meant, flags, StatxFlags::BASIC_STATS);
    let is_root = found.is_ok_and(|it| it.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    match is_root || meant.file_name().is_none() {
        true => Err(format!(
            "{shown} is a mount point, which cannot be replaced: name a directory below it"
        )),
        false => Ok(meant),
    }
}

/// The temporary name of the directory.
fn beside(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    to.with_file_name(name)
}

/// Whether the path is free, or an empty directory.
///
/// # Errors
/// The error of the operating system.
pub(super) fn is_free(to: &Path) -> io::Result<bool> {
    match fs::read_dir(to) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e),
        Ok(mut entries) => Ok(entries.next().is_none()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_what_was_broken_off_is_removed() {
        let above = tempfile::tempdir().expect("a directory");
        let to = above.path().join("not/yet/copy");
        let first = Partial::begin(&to).expect("nobody else");
        fs::write(first.path().join("file"), "1").expect("writing");
        let second = Partial::begin(&to).expect_err("the first one");
        assert!(
            second.contains("another process") && second.contains("copy.partial"),
            "{second}"
        );
        assert!(first.path().join("file").exists());
        // The drop leaves the directory as a killed process would.
        drop(first);
        let third = Partial::begin(&to).expect("nobody else");
        assert!(!third.path().join("file").exists());
        fs::create_dir(third.path().join("inner")).expect("a directory");
        fs::write(third.path().join("inner/file"), "3").expect("writing");
        third.clear().expect("removing");
        fs::write(third.path().join("file"), "3").expect("writing");
        third.finish().expect("renaming");
        assert_eq!(fs::read(to.join("file")).expect("reading"), b"3");
        // A process that began before that directory was there.
        let late = Partial::begin(&to).expect("nobody else");
        let path = late.path().to_owned();
        assert!(late.finish().is_err());
        assert!(to.join("file").exists() && !path.exists());
    }

    #[test]
    fn links_are_followed_and_what_nothing_can_take_the_place_of_is_told_at_once() {
        let above = tempfile::tempdir().expect("a directory");
        let (real, link) = (above.path().join("real"), above.path().join("link"));
        fs::create_dir(&real).expect("a directory");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        for to in [link.clone(), real.join("."), real.join("../real")] {
            let partial = Partial::begin(&to).expect("an empty directory");
            fs::write(partial.path().join("file"), "1").expect("writing");
            partial.finish().expect("renaming");
            assert!(link.is_symlink() && real.join("file").exists());
            fs::remove_file(real.join("file")).expect("removing");
        }
        let nowhere = above.path().join("nowhere");
        std::os::unix::fs::symlink(above.path().join("gone"), &nowhere).expect("a link");
        for (to, told) in [
            (Path::new("/proc"), "mount point"),
            (Path::new("/"), "mount point"),
            (&nowhere, "No such file"),
            (
                &above.path().join("not/.."),
                "is no name for a new directory",
            ),
        ] {
            let why = Partial::begin(to).expect_err("nothing can be there");
            assert!(why.contains(told), "{why}");
        }
    }

    #[test]
    fn what_is_no_directory_is_left_alone() {
        let above = tempfile::tempdir().expect("a directory");
        let to = above.path().join("copy");
        let precious = above.path().join("precious");
        fs::create_dir(&precious).expect("a directory");
        fs::write(precious.join("file"), "1").expect("writing");
        let path = above.path().join("copy.partial");
        std::os::unix::fs::symlink(&precious, &path).expect("a link");
        assert!(
            Partial::begin(&to)
                .expect_err("a link")
                .contains("in the way")
        );
        assert!(precious.join("file").exists());
        fs::remove_file(&path).expect("removing");
        fs::write(&path, "1").expect("writing");
        assert!(
            Partial::begin(&to)
                .expect_err("a file")
                .contains("in the way")
        );
        assert_eq!(fs::read(&path).expect("reading"), b"1");
    }
}
