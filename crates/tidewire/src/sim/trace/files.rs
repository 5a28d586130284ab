//! Where traces go of runs that failed.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::{env, fs, io, thread};

use crate::sim::trace::Trace;

thread_local! {
    /// The run that this thread makes once more, to have it recorded.
    static RUN: RefCell<Option<Run>> = const { RefCell::new(None) };
}

struct Run {
    name: String,
    written: Vec<PathBuf>,
}

/// Whether simulations are to record from the start.
pub(in crate::sim) fn is_wanted() -> bool {
    RUN.with_borrow(Option::is_some) || env::var_os("TIDEWIRE_TRACE").is_some()
}

/// Makes a run whose simulations leave their traces; returns where.
pub(in crate::sim) fn recorded<R>(seed: u64, run: impl FnOnce() -> R) -> (R, Vec<PathBuf>) {
    let written = Vec::new();
    let name = name(seed);
    RUN.set(Some(Run { name, written }));
    let result = run();
    let run = RUN.take();
    (result, run.map_or(Vec::new(), |run| run.written))
}

/// A simulation has ended. If `TIDEWIRE_TRACED` is in the environment, the hash of the trace is printed: two processes with the
/// same seed must print the same hash. `TIDEWIRE_TRACED=sizes` leaves the contents out.
#[expect(clippy::print_stdout, reason = "a test reads it")]
pub(in crate::sim) fn dropped(seed: u64, trace: &Trace) {
    match env::var_os("TIDEWIRE_TRACED") {
        None => {}
        Some(what) if what == "sizes" => println!("sizes: {:016x} of seed {seed}", trace.sizes()),
        Some(_) => println!("network: {:016x} of seed {seed}", trace.hash()),
    }
    let again = RUN.with_borrow_mut(|run| {
        let Some(run) = run else { return false };
        let name = match run.written.len() {
            0 => run.name.clone(),
            n => format!("{}-{}", run.name, n + 1),
        };
        run.written.extend(write(&name, trace));
        true
    });
    if !again
        && thread::panicking()
        && is_wanted()
        && let Some(path) = write(&name(seed), trace)
    {
        eprintln!(
            "what happened on the network of seed {seed}: {}",
            path.display()
        );
    }
}

/// Writes a trace in words and as pcap; returns the path of the words. A failure is only printed: it must not
/// hide why the test failed.
pub(in crate::sim) fn write(name: &str, trace: &Trace) -> Option<PathBuf> {
    let directory = env::var_os("TIDEWIRE_TRACE").map(PathBuf::from);
    let directory = directory.unwrap_or_else(|| env::temp_dir().join("tidewire-trace"));
    match written(&directory, name, trace) {
        Ok(path) => Some(path),
        Err(e) => {
            eprintln!("cannot write the trace to {}: {e}", directory.display());
            None
        }
    }
}

fn written(directory: &Path, name: &str, trace: &Trace) -> io::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let path = directory.join(format!("{name}.txt"));
    fs::write(&path, trace.words())?;
    fs::write(path.with_extension("pcap"), trace.pcap())?;
    Ok(path)
}

/// After the test, which has a thread of its own.
fn name(seed: u64) -> String {
    let thread = thread::current();
    let test = thread.name().unwrap_or("test");
    let plain = |c: char| {
        if c.is_alphanumeric() || c == '_' {
            c
        } else {
            '-'
        }
    };
    let test: String = test.chars().map(plain).collect();
    format!("{test}-seed-{seed}")
}
