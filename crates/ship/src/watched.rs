//! The file system of this machine, which tells at once where names change (inotify), beside being looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;

use crate::disk::{Disk, Opened};
use crate::file_system::{FileSystem, Found, Seen};
use crate::pattern::Pattern;
use crate::servers::Bell;

/// What comes within this time of the first news is one of them.
const GATHERED: Duration = Duration::from_millis(5);
/// How often the thread looks whether it is still wanted.
const WANTED: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// A [`Disk`] whose directories are watched. What is missed is found by looking, as without: the kernel may drop what comes too fast.
#[derive(Debug)]
pub struct WatchedDisk {
    told: Arc<Told>,
    watches: Mutex<Watches>,
    /// Most directories.
    most: usize,
}

/// The kernel's notice.
#[derive(Debug)]
struct Told {
    kernel: OwnedFd,
    has_news: AtomicBool,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Watches {
    by_directory: BTreeMap<PathBuf, i32>,
    has_complained: bool,
}

impl WatchedDisk {
    /// Watches at most so many directories; their news ring `bell`.
    ///
    /// # Errors
    /// The system has no watches for this process: then a plain [`Disk`] does, with a look now and then.
    pub fn new(most: usize, bell: Bell) -> io::Result<WatchedDisk> {
        let kernel = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let told = Arc::new(Told {
            kernel,
            has_news: AtomicBool::new(false),
            bell,
        });
        let weak = Arc::downgrade(&told);
        thread::Builder::new()
            .name("watch".into())
            .spawn(move || listen(&weak))?;
        Ok(WatchedDisk {
            told,
            watches: Mutex::default(),
            most,
        })
    }
}

/// Listens until the watcher is dropped.
fn listen(told: &Weak<Told>) {
    while let Some(told) = told.upgrade() {
        let mut wanted = [PollFd::new(&told.kernel, PollFlags::IN)];
        match poll(&mut wanted, Some(&WANTED)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return,
        }
        thread::sleep(GATHERED);
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&told.kernel, &mut room);
        // Which name it was is found by looking.
        while reader.next().is_ok() {}
        told.has_news.store(true, SeqCst);
        told.bell.ring();
    }
}

impl FileSystem for WatchedDisk {
    type File = Opened;

    fn look(&self, path: &Path) -> io::Result<Option<Seen>> {
        Disk.look(path)
    }

    fn find(&self, pattern: &Pattern) -> io::Result<Found> {
        Disk.find(pattern)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Seen>> {
        Disk.list(directory)
    }

    fn target(&self, path: &Path) -> PathBuf {
        Disk.target(path)
    }

    fn open(&self, path: &Path) -> io::Result<Opened> {
        Disk.open(path)
    }

    fn stat(&self, file: &Opened) -> io::Result<Seen> {
        Disk.stat(file)
    }

    fn read_at(&self, file: &Opened, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        Disk.read_at(file, offset, into)
    }

    fn hole_from(&self, file: &Opened, offset: u64) -> u64 {
        Disk.hole_from(file, offset)
    }

    fn data_from(&self, file: &Opened, offset: u64) -> u64 {
        Disk.data_from(file, offset)
    }

    fn wall(&self) -> i128 {
        Disk.wall()
    }

    fn watch(&self, directories: &BTreeSet<PathBuf>) -> Option<String> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let Watches {
            by_directory,
            has_complained,
        } = &mut *watches;
        by_directory.retain(|directory, watch| {
            let stays = directories.contains(directory);
            if !stays {
                // The watch may have gone with its directory.
                let _ = inotify::remove_watch(&self.told.kernel, *watch);
            }
            stays
        });
        let mut trouble = None;
        for directory in directories {
            if by_directory.len() >= self.most && !by_directory.contains_key(directory) {
                trouble = Some(format!("{} directories are (see --watches)", self.most));
                break;
            }
            let flags = WatchFlags::CREATE
                | WatchFlags::DELETE
                | WatchFlags::MOVED_FROM
                | WatchFlags::MOVED_TO
                | WatchFlags::ONLYDIR;
            // A directory that is watched already, or was removed and made anew, has its watch
            // then.
            match inotify::add_watch(&self.told.kernel, directory, flags) {
                Ok(watch) => drop(by_directory.insert(directory.clone(), watch)),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
                Err(e) => {
                    trouble = Some(format!("{e} (see the sysctl fs.inotify.max_user_watches)"));
                    break;
                }
            }
        }
        let trouble = trouble.filter(|_| !*has_complained)?;
        *has_complained = true;
        Some(format!(
            "not all directories are watched: {trouble}. In the others what happens is seen at the next look"
        ))
    }

    fn has_news(&self) -> bool {
        self.told.has_news.swap(false, SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Far longer than the kernel takes.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn set(directories: &[&Path]) -> BTreeSet<PathBuf> {
        directories.iter().map(|path| path.to_path_buf()).collect()
    }

    #[test]
    fn names_that_change_in_a_watched_directory_are_news() {
        let place = tempfile::tempdir().unwrap();
        let (near, far) = (place.path().join("near"), place.path().join("far"));
        fs::create_dir(&near).unwrap();
        fs::create_dir(&far).unwrap();
        let bell = Bell::default();
        let disk = WatchedDisk::new(1, bell.clone()).unwrap();
        assert_eq!(disk.watch(&set(&[&near])), None);
        let named = near.join("a.log");
        let has_happened = || {
            bell.wait(PATIENCE);
            disk.has_news()
        };
        fs::write(&named, "").unwrap();
        assert!(has_happened());
        fs::rename(&named, near.join("a.log.1")).unwrap();
        assert!(has_happened());
        fs::remove_file(near.join("a.log.1")).unwrap();
        assert!(has_happened());
        // A directory that was made anew has another watch.
        fs::remove_dir(&near).unwrap();
        fs::create_dir(&near).unwrap();
        assert_eq!(disk.watch(&set(&[&near])), None);
        disk.has_news();
        fs::write(&named, "").unwrap();
        assert!(has_happened());
        // Another directory is watched instead.
        assert_eq!(disk.watch(&set(&[&far])), None);
        fs::write(far.join("b.log"), "").unwrap();
        assert!(has_happened());
    }

    #[test]
    fn directories_beyond_the_limit_are_told_once() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (place.path().join("1"), place.path().join("2"));
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        let disk = WatchedDisk::new(1, Bell::default()).unwrap();
        let said = disk.watch(&set(&[&one, &other])).unwrap();
        assert!(said.contains("--watches"), "{said}");
        assert_eq!(disk.watch(&set(&[&one, &other])), None);
    }
}
