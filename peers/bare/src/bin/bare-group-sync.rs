//! Writes groups of bytes to a file and syncs each: what the disk gives to a durable log at most.
//!
//! One file, written from the front and again from the front when it is full. The layout says what the
//! blocks are like when a group comes: `extend` (the file grows), `reserve` (`fallocate`, never written),
//! `written` (filled with zeros before the clock starts). Prints one JSON object.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use bare::Args;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};

const FILE_BYTES: u64 = 256 << 20;
/// Groups measured at most, so that the list of times is bounded.
const GROUPS_MAX: usize = 1 << 20;

fn main() -> io::Result<()> {
    let args = Args::parse(
        "bare-group-sync --file PATH [--group BYTES] [--seconds S] [--layout extend|reserve|written] [--cpu N]",
    );
    args.pin();
    let path: String = args
        .value("--file")
        .unwrap_or_else(|| "bare-group-sync.tmp".into());
    let group: usize = args.value("--group").unwrap_or(4096);
    let seconds: f64 = args.value("--seconds").unwrap_or(2.0);
    let layout: String = args.value("--layout").unwrap_or_else(|| "reserve".into());

    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    match layout.as_str() {
        "extend" => {}
        "reserve" => fallocate(&file, FallocateFlags::empty(), 0, FILE_BYTES)?,
        "written" => {
            let zeros = vec![0; 1 << 20];
            for at in (0..FILE_BYTES).step_by(zeros.len()) {
                file.write_all_at(&zeros, at)?;
            }
        }
        _ => return Err(io::Error::other("--layout is extend, reserve or written")),
    }
    file.sync_all()?;

    let bytes: Vec<u8> = (0..group).map(|i| i as u8 | 1).collect();
    let mut times = Vec::new();
    let mut at = 0;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs_f64(seconds) && times.len() < GROUPS_MAX {
        let start = Instant::now();
        file.write_all_at(&bytes, at)?;
        fdatasync(&file)?;
        times.push(start.elapsed());
        at += group as u64;
        if at + group as u64 > FILE_BYTES {
            at = 0;
        }
    }
    let took = begin.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos();
    println!(
        "{{\"layout\":\"{layout}\",\"group\":{group},\"groups\":{},\"bytes_per_second\":{:.0},\"p50_ns\":{},\"p99_ns\":{}}}",
        times.len(),
        (times.len() * group) as f64 / took,
        at(0.5),
        at(0.99),
    );
    Ok(())
}
