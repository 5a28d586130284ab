//! A small file system of a test's own, which outlives the servers on it and goes with the test.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::durable::Place;

/// A tmpfs in a mount namespace that a process of its own keeps.
pub(crate) struct SmallDisk {
    pub(crate) place: Place,
    keeper: Child,
}

impl SmallDisk {
    /// A disk of so many MiB; `None`, and the reason is printed, where this machine does not let it
    /// be mounted.
    pub(crate) fn mount(mib: u64) -> Option<SmallDisk> {
        if !rustix::process::getuid().is_root() {
            eprintln!("skipped: mounting a file system needs root");
            return None;
        }
        let place = Place::new();
        let path = place.0.to_str().unwrap();
        // Ends with the test, whose end of its input it waits for.
        let script =
            format!("mount -t tmpfs -o size={mib}m none '{path}' && echo mounted && read -r end");
        let keeper = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut keeper) = keeper else {
            eprintln!("skipped: there is no unshare here");
            return None;
        };
        let mut line = String::new();
        let stdout = keeper.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        if line.trim() != "mounted" {
            eprintln!("skipped: no file system can be mounted in a namespace of one's own here");
            let _ = keeper.wait();
            return None;
        }
        Some(SmallDisk { place, keeper })
    }

    /// The command, run where the file system is.
    pub(crate) fn tidewire(&self, args: &[&str]) -> Command {
        let mut command = self.command(env!("CARGO_BIN_EXE_tidewire"));
        command.args(args);
        command
    }

    /// Any program, run there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let namespace = format!("--mount=/proc/{}/ns/mnt", self.keeper.id());
        command.args([&namespace, "--", program]);
        command
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn path(&self) -> &Path {
        &self.place.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
