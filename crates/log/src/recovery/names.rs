//! Names of files that recovery and repair give and take.

use std::io;

use crate::disk::Disk;
use crate::format::{number_of, segment_name};

/// A segment on its way through recovery: a name for the time that its directory entry is written
/// anew.
pub(crate) const MOVED: &str = "moved";

/// A segment that a repair has found under the name of another one, until it has its own.
pub(crate) const FOUND: &str = "found";

/// The file that a repair writes before it replaces a segment.
pub(crate) const REPAIR: &str = "repair.new";

/// The numbers of all segments, in order.
pub(crate) fn segments<D: Disk>(disk: &D) -> io::Result<Vec<u64>> {
    let names = disk.list()?;
    let mut numbers: Vec<u64> = names
        .iter()
        .filter_map(|name| number_of(name, "seg"))
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes a segment's name durable even if the system has forgotten that it is not: by changing it.
pub(super) fn rename_anew<D: Disk>(disk: &D, number: u64) -> io::Result<()> {
    let (name, moved) = (segment_name(number), format!("{number:020}.{MOVED}"));
    disk.rename(&name, &moved)?;
    disk.rename(&moved, &name)
}

/// A name that no file has: files kept earlier stay.
pub(crate) fn free_name(names: &[String], wanted: &str) -> String {
    let candidates = (2..).map(|count| format!("{wanted}.{count}"));
    std::iter::once(wanted.to_owned())
        .chain(candidates)
        .find(|name| !names.contains(name))
        .expect("there are more numbers than files")
}
