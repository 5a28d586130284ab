//! Seeds: as many as a test can take, and more by command.

use std::collections::BTreeSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::sim::explore::run::{Outcome, run};
use crate::sim::node::Shape;
use crate::sim::seeds::seeds;
use crate::sim::trace::files;

const SHAPES: [Shape; 3] = [Shape::Readiness, Shape::Completion, Shape::Threads];

/// Seeds that `cargo test` runs.
const SEEDS: u64 = 2_000;
/// Seeds that a thread takes at a time.
const BATCH: u64 = 32;
/// Between two lines of progress.
const SAID: Duration = Duration::from_secs(10);

/// The shape that a seed is for, unless a test wants another.
fn shape(seed: u64) -> Shape {
    SHAPES[(seed % 3) as usize]
}

/// The faults of a run, if any; a panic counts as a fault.
fn wrongs(seed: u64) -> (Vec<String>, u64) {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, shape(seed), false)));
    match outcome {
        Ok(Outcome { wrongs, calls, .. }) => (wrongs, calls),
        Err(_) => (vec!["it panics, as is said above".into()], 0),
    }
}

/// The seeds that are left to try, and the faults found.
struct Search {
    next: AtomicU64,
    end: u64,
    /// The lowest seed that fails, or the highest number.
    failing: AtomicU64,
    done: AtomicU64,
    calls: AtomicU64,
    threads: AtomicUsize,
}

impl Search {
    /// Runs seeds until there are none, or one has failed.
    fn help(&self) {
        loop {
            let first = self.next.fetch_add(BATCH, SeqCst);
            for seed in first..(first + BATCH).min(self.end) {
                if seed > self.failing.load(SeqCst) {
                    return;
                }
                let (wrongs, calls) = wrongs(seed);
                self.calls.fetch_add(calls, SeqCst);
                self.done.fetch_add(1, SeqCst);
                if !wrongs.is_empty() {
                    self.failing.fetch_min(seed, SeqCst);
                }
            }
            if first >= self.end {
                return;
            }
        }
    }
}

fn search(seeds: Range<u64>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let all = seeds.end.saturating_sub(seeds.start);
    let search = Search {
        next: AtomicU64::new(seeds.start),
        end: seeds.end,
        failing: AtomicU64::new(u64::MAX),
        done: AtomicU64::new(0),
        calls: AtomicU64::new(0),
        threads: AtomicUsize::new(threads),
    };
    let began = Instant::now();
    let say = || {
        let done = search.done.load(SeqCst);
        let (rate, calls) = (
            done as f64 / began.elapsed().as_secs_f64(),
            search.calls.load(SeqCst),
        );
        println!("{done} of {all} seeds, {calls} calls of the kernel, {rate:.0} seeds a second");
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                search.help();
                search.threads.fetch_sub(1, SeqCst);
            });
        }
        let mut said = began;
        while search.threads.load(SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(20));
            if said.elapsed() >= SAID {
                said = Instant::now();
                say();
            }
        }
    });
    say();
    let failing = search.failing.load(SeqCst);
    if failing < u64::MAX {
        let ((wrongs, _), traces) = files::recorded(failing, || wrongs(failing));
        let (shape, traces) = (shape(failing), told(&traces));
        panic!(
            "seed {failing} ({shape:?}) fails: {wrongs:#?}\n{traces}\nevery call of the kernel, in words: \
             TIDEWIRE_SEED={failing} cargo test -p tidewire --lib whatever_the_kernel_does -- --nocapture"
        );
    }
}

/// One seed, with everything that happens in words.
fn tell(seed: u64) {
    let (outcome, traces) = files::recorded(seed, || run(seed, shape(seed), true));
    let Outcome { wrongs, words, .. } = outcome;
    println!("{words}seed {seed}, {:?}: {wrongs:#?}", shape(seed));
    println!("{}", told(&traces));
    assert!(wrongs.is_empty());
}

fn told(traces: &[PathBuf]) -> String {
    let at: Vec<String> = traces.iter().map(|t| t.display().to_string()).collect();
    let at = at.join(", ");
    format!("what happened on its network, in words, and beside it as pcap: {at}")
}

#[test]
fn a_seed_leaves_what_happened_on_its_network() {
    let (_, traces) = files::recorded(7, || run(7, shape(7), false));
    let [words] = &traces[..] else {
        panic!("one machine, one trace: {traces:?}")
    };
    let said = std::fs::read_to_string(words).unwrap();
    assert!(said.contains(" bytes "), "{said}");
    let pcap = std::fs::read(words.with_extension("pcap")).unwrap();
    assert_eq!(pcap[..4], 0xa1b2_3c4d_u32.to_le_bytes());
    for path in [words.clone(), words.with_extension("pcap")] {
        std::fs::remove_file(path).unwrap();
    }
}

/// `TIDEWIRE_SEEDS` says how many instead, or which (`5000..7000`); `TIDEWIRE_SEED` one alone, which is
/// told in words.
#[test]
fn whatever_the_kernel_does() {
    let chosen = seeds(SEEDS);
    match std::env::var_os("TIDEWIRE_SEED") {
        Some(_) => tell(chosen.start),
        None => search(chosen),
    }
}

/// Four loops with three descriptors each, a listener, and 13 descriptors in all: no client could
/// be accepted.
#[test]
fn loops_leave_a_descriptor_for_a_connection() {
    for seed in [13_314, 109_635] {
        let wrongs = run(seed, shape(seed), false).wrongs;
        assert!(wrongs.is_empty(), "seed {seed}: {wrongs:#?}");
    }
}

/// The kernel takes no operations for a moment as a descriptor is made for a socket in the ring's table, so that it comes when the
/// loop is ending.
#[test]
fn a_descriptor_that_is_made_too_late_is_closed_at_the_end() {
    let seed = 711_679;
    let wrongs = run(seed, shape(seed), false).wrongs;
    assert!(wrongs.is_empty(), "{wrongs:#?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..60 {
        let (one, other) = (run(seed, shape(seed), false), run(seed, shape(seed), true));
        assert_eq!(
            (one.hash, one.calls),
            (other.hash, other.calls),
            "seed {seed}"
        );
        assert_ne!(one.hash, run(seed + 3000, shape(seed), false).hash);
    }
}

/// The hash covers everything that is traced in words: the calls of drivers, and the kernel's
/// reports.
#[test]
fn every_operation_counts_for_the_sameness_of_a_run() {
    const ALL: &str =
        "SO_ERROR accept clear close connect filter linger notify outcome shutdown unread untaken";
    const READINESS: &str = "epoll_add epoll_del epoll_wait event recv send settime";
    const LEVELS: &str = "eventfd poll polled";
    const COMPLETION: &str = "accept* blocking cancel cancelall cancelfd complete enter give install linger* peername poll put \
                              receive receive* send sendmsg settime shut* take_out unregister";
    let told = |which: u64| {
        let words = (0..100).map(|n| run(3 * n + which, shape(which), true).words);
        let call = |line: &str| {
            let (_, told) = line.split_once("  loop ")?.1.split_once("  ")?;
            Some(told.split(' ').next()?.to_owned())
        };
        words
            .flat_map(|w| w.lines().filter_map(call).collect::<Vec<_>>())
            .collect::<BTreeSet<_>>()
    };
    let shapes = [
        vec![ALL, READINESS],
        vec![ALL, COMPLETION],
        vec![ALL, READINESS, LEVELS],
    ];
    for (which, lists) in (0..).zip(shapes) {
        let all = lists
            .iter()
            .flat_map(|l| l.split_whitespace())
            .map(str::to_owned);
        assert_eq!(told(which), all.collect(), "{:?}", shape(which));
    }
}
