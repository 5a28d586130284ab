//! What processes write to disks.

use super::{Process, field, read};

impl Process {
    /// Bytes that all that are measured have had the kernel write to block devices, at once or later; a memory file system
    /// is none. `None` where the kernel does not say, or not to this user.
    pub fn written_bytes(&self) -> Option<u64> {
        let members = self.members();
        let written = members.iter().map(|process| -> Option<u64> {
            let text = read(&process.dir.join("io")).ok()?;
            field(&text, "write_bytes")?.trim().parse().ok()
        });
        written.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, remove_file};
    use std::io::Write;

    #[test]
    fn what_is_written_to_a_disk_counts() {
        let Some(before) = Process::current().written_bytes() else {
            println!("skipped: the kernel does not count what processes write");
            return;
        };
        // Programs are built on a disk, hardly ever in memory.
        let path = std::env::current_exe().unwrap().with_extension("written");
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_data().unwrap();
        let written = Process::current().written_bytes().unwrap() - before;
        remove_file(path).unwrap();
        assert!(written >= 1 << 20, "{written}");
    }
}
