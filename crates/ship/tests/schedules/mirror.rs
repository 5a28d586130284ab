//! What happens to the files in memory, done to real ones.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

/// A real directory, below which the paths of the simulation are.
pub(crate) struct Mirror(tempfile::TempDir);

impl Mirror {
    pub(crate) fn new() -> Mirror {
        Mirror(tempfile::tempdir().unwrap())
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }

    pub(crate) fn create(&self, path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        File::create_new(path).unwrap();
    }

    pub(crate) fn append(&self, path: &Path, bytes: &[u8]) {
        let mut file = OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(bytes).unwrap();
    }

    pub(crate) fn truncate(&self, path: &Path) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(0).unwrap();
    }

    pub(crate) fn rename(&self, from: &Path, to: &Path) {
        fs::rename(from, to).unwrap();
    }

    pub(crate) fn remove(&self, path: &Path) {
        fs::remove_file(path).unwrap();
    }

    /// Fills a file that was created with what another one holds, compressed, as gzip does.
    pub(crate) fn pack(&self, path: &Path, packed: &Path) {
        let held = fs::read(path).unwrap();
        let file = OpenOptions::new().write(true).open(packed).unwrap();
        let mut encoder = GzEncoder::new(file, Compression::fast());
        encoder.write_all(&held).unwrap();
        let file = encoder.finish().unwrap();
        let written = fs::metadata(path).unwrap().modified().unwrap();
        file.set_modified(written).unwrap();
    }
}
