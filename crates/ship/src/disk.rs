//! The file system of this machine.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::file_system::{FileId, FileSystem, Found, Seen};
use crate::packed::{Packed, Packing};
use crate::pattern::Pattern;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

/// An open file.
#[derive(Debug)]
pub struct Opened(Kind);

#[derive(Debug)]
enum Kind {
    Plain(File),
    Packed(Packed),
}

impl FileSystem for Disk {
    type File = Opened;

    fn look(&self, path: &Path) -> io::Result<Option<Seen>> {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Ok(Some(seen(path, &found))),
            Ok(_) => Ok(None),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn find(&self, pattern: &Pattern) -> io::Result<Found> {
        let mut hidden = Vec::new();
        let files = match pattern {
            Pattern::File(path) => Vec::from_iter(self.look(path)?),
            Pattern::Directory(directory) => {
                let mut found = files_in(directory)?;
                found.retain(|seen| pattern.names(&seen.path));
                found
            }
            Pattern::Glob(glob) => {
                let paths = glob::glob_with(glob.as_str(), Pattern::walking())
                    .map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
                let mut found = Vec::new();
                for path in paths {
                    match path {
                        Ok(path) if !Pattern::shows(glob, &path) => {}
                        Ok(path) => found.extend(self.look(&path)?),
                        Err(e) if is_shortage(e.error()) => return Err(e.into()),
                        // The file has gone meanwhile.
                        Err(e) if is_absent(e.error()) => {}
                        // A directory that may not be read hides only what is in it.
                        Err(e) => hidden.push((e.path().to_owned(), e.into())),
                    }
                }
                found
            }
        };
        Ok(Found { files, hidden })
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<Seen>> {
        files_in(directory)
    }

    fn target(&self, path: &Path) -> PathBuf {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => fs::canonicalize(path).unwrap_or(path.to_owned()),
            _ => path.to_owned(),
        }
    }

    fn open(&self, path: &Path) -> io::Result<Opened> {
        // Without waiting for a writer, should it have become a pipe.
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file: File = rustix::fs::open(path, flags, Mode::empty())?.into();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let packing = match ending {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => return Ok(Opened(Kind::Plain(file))),
        };
        Ok(Opened(Kind::Packed(Packed::new(file, packing)?)))
    }

    fn stat(&self, file: &Opened) -> io::Result<Seen> {
        match &file.0 {
            Kind::Plain(file) => Ok(seen(Path::new(""), &file.metadata()?)),
            Kind::Packed(packed) => Ok(Seen {
                len: packed.len,
                ..seen(Path::new(""), &packed.file().metadata()?)
            }),
        }
    }

    fn wall(&self) -> i128 {
        nanos(SystemTime::now())
    }

    fn hole_from(&self, file: &Opened, offset: u64) -> u64 {
        let Kind::Plain(file) = &file.0 else {
            return u64::MAX;
        };
        // On a file system without holes, none is found.
        rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(offset)).unwrap_or(u64::MAX)
    }

    fn data_from(&self, file: &Opened, offset: u64) -> u64 {
        let Kind::Plain(file) = &file.0 else {
            return offset;
        };
        // On a file system without holes, none is found.
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => data,
            // The rest of the file is a hole.
            Err(rustix::io::Errno::NXIO) => file.metadata().map_or(offset, |seen| seen.len()),
            Err(_) => offset,
        }
    }

    fn read_at(&self, file: &Opened, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let file = match &file.0 {
            Kind::Plain(file) => file,
            Kind::Packed(packed) => return packed.read_at(offset, into),
        };
        let mut filled = 0;
        while filled < into.len() {
            match file.read_at(&mut into[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }
}

fn is_absent(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Whether it says nothing about the file: this process, or the machine, has run out of something.
fn is_shortage(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    Errno::from_io_error(e).is_some_and(|e| shortages.contains(&e))
}

fn files_in(directory: &Path) -> io::Result<Vec<Seen>> {
    let entries = match fs::read_dir(directory) {
        Err(e) if is_absent(&e) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path: PathBuf = entry?.path();
        // The file may have gone meanwhile.
        if let Ok(metadata) = fs::metadata(&path)
            && metadata.is_file()
        {
            found.push(seen(&path, &metadata));
        }
    }
    Ok(found)
}

fn nanos(time: SystemTime) -> i128 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => since.as_nanos() as i128,
        Err(before) => -(before.duration().as_nanos() as i128),
    }
}

fn seen(path: &Path, metadata: &fs::Metadata) -> Seen {
    Seen {
        path: path.to_owned(),
        id: FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
            born: metadata.created().ok().map(nanos),
        },
        len: metadata.len(),
        modified: metadata.modified().map_or(0, nanos),
        changed: i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec()),
        removed: metadata.nlink() == 0,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// The second ended everything with a panic.
    #[test]
    fn hidden_names_and_names_that_are_no_text_are_not_found() {
        let place = tempfile::tempdir().unwrap();
        let at = place.path();
        fs::create_dir(at.join(".hidden")).unwrap();
        fs::create_dir(at.join("open")).unwrap();
        let odd = Path::new(OsStr::from_bytes(b"x\xff.log"));
        for name in ["a.log", ".b.log", ".hidden/c.log", "open/d.log"] {
            fs::write(at.join(name), "x\n").unwrap();
        }
        fs::write(at.join(odd), "x\n").unwrap();
        let found = |pattern: &str| {
            let pattern = Pattern::new(&at.join(pattern), false).unwrap();
            let found = Disk.find(&pattern).unwrap().files.into_iter();
            let names = found.map(|seen| seen.path.strip_prefix(at).unwrap().display().to_string());
            let mut names = names.collect::<Vec<_>>();
            names.sort();
            names
        };
        assert_eq!(found("*.log"), ["a.log"]);
        assert_eq!(found(".*.log"), [".b.log"]);
        assert_eq!(found("*/*.log"), ["open/d.log"]);
        assert_eq!(found("**/*.log"), ["a.log", "open/d.log"]);
        assert_eq!(found(".hidden/*.log"), [".hidden/c.log"]);
        assert_eq!(found("[.]*/*.log"), [""; 0]);
    }
}
