//! `tidewire ship --list`: what a state knows, also while another process ships.

use std::fs;
use std::path::Path;

use tidewire_ship::{Checkpoint, Disk, Entry, FileSystem};

use crate::exit::Failure;

pub(super) fn run(state: &Path) -> Result<(), Failure> {
    let path = state.join("checkpoint.json");
    let bytes = fs::read(&path)
        .map_err(|e| Failure::failed(format!("cannot read {}: {e}", path.display())))?;
    let checkpoint = Checkpoint::decode(&bytes)
        .map_err(|why| Failure::failed(format!("{} is damaged: {why}", path.display())))?;
    show_line!("STATE\tSTORED\tLENGTH\tBEHIND\tFILE\tPRODUCER");
    for entry in &checkpoint.files {
        show_line!("{}", row(entry));
    }
    Ok(())
}

fn row(entry: &Entry) -> String {
    // The length is told if the file still has that name.
    let seen = Disk.open(&entry.path).and_then(|file| Disk.stat(&file));
    let here = seen.ok().filter(|seen| seen.id == entry.id);
    let len = here.map(|seen| seen.len);
    let state = match entry {
        Entry { gone: true, .. } => "missing",
        Entry { done: true, .. } => "done",
        _ if len.is_none() => "not there",
        _ => "followed",
    };
    let told = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
    let behind = len.map(|len| len.saturating_sub(entry.acked));
    let path = entry.path.to_string_lossy();
    format!(
        "{state}\t{}\t{}\t{}\t{}\t{}",
        entry.acked,
        told(len),
        told(behind),
        tidewire_ingest::client::printable(&path),
        entry.producer,
    )
}
