//! Directories for the logs of servers that are started here, removed with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tidewire_command::exit::Failure;

/// A directory for as long as this lives.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes one below `parent`, or below the system's place for temporary files.
    pub(crate) fn new(parent: Option<&Path>) -> Result<Scratch, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = parent.join(format!("tidewire-bench-{process}-{number}"));
        fs::create_dir_all(&path).map_err(|e| {
            Failure::failed(format!(
                "cannot make {} for the server's log: {e}; see --data",
                path.display()
            ))
        })?;
        Ok(Scratch(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed stays among temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
