//! What threads that share a store pay for that: nanoseconds of processor time, in turns, for batches of commands on
//! one store by one thread and by several at once, and for the single steps that processors do in turn.
//!
//! `cargo run --release -p tidewire-kv --example sharing steps THREADS`
//! `cargo run --release -p tidewire-kv --example sharing COMMAND THREADS SHARDS PIPELINE [apart]`
//!
//! With `apart` each thread has a store of its own: what several pay then is the machine's doing.
//! COMMAND is get, set, grow (sets of keys that are new) or wrong (a list's command on strings, which is answered with an error).

#![expect(
    clippy::disallowed_methods,
    reason = "it is about what threads pay, and no protocol"
)]

use std::hint::black_box;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Barrier, Mutex, RwLock};
use std::thread;

use tidewire_kv::commands::{Spec, find};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Settings, Store};

const KEYS: usize = 100_000;
const NOW_MS: u64 = 1_700_000_000_000;
const ROUNDS: usize = 15;

/// Processor time of this thread so far; nanoseconds.
fn cpu_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What `work` takes on each of so many threads at once: nanoseconds for each of `times`.
fn on_threads(threads: usize, times: usize, work: impl Fn(usize) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let spent = AtomicU64::new(0);
    thread::scope(|scope| {
        for n in 0..threads {
            let (barrier, spent, work) = (&barrier, &spent, &work);
            scope.spawn(move || {
                barrier.wait();
                let before = cpu_ns();
                work(n);
                spent.fetch_add(cpu_ns() - before, Relaxed);
            });
        }
    });
    spent.into_inner() as f64 / (threads * times) as f64
}

/// Prints the medians for one thread and for several, the quartiles and the ratio.
fn compare(name: &str, threads: usize, mut measure: impl FnMut(usize) -> f64) {
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // In turns, and each first as often as the other.
        let order = if round % 2 == 0 {
            [1, threads]
        } else {
            [threads, 1]
        };
        for n in order {
            let spent = measure(n);
            if n == 1 { &mut one } else { &mut many }.push(spent);
        }
    }
    for all in [&mut one, &mut many] {
        all.sort_by(f64::total_cmp);
    }
    let at = |all: &[f64], part: usize| all[(all.len() - 1) * part / 4];
    println!(
        "{name}: one {:.1} ns ({:.1}..{:.1}), {threads} at once {:.1} ns ({:.1}..{:.1}), ratio {:.2}",
        at(&one, 2),
        at(&one, 1),
        at(&one, 3),
        at(&many, 2),
        at(&many, 1),
        at(&many, 3),
        at(&many, 2) / at(&one, 2),
    );
}

#[repr(align(128))]
#[derive(Default)]
struct Apart<T>(T);

fn steps(threads: usize) {
    const TIMES: usize = 2_000_000;
    let counters: Vec<Apart<AtomicU64>> = (0..threads).map(|_| Apart::default()).collect();
    let locks: Vec<Apart<Mutex<u64>>> = (0..threads).map(|_| Apart::default()).collect();
    let read: Apart<RwLock<u64>> = Apart::default();
    let all: [(&str, &(dyn Fn(usize) + Sync)); 7] = [
        ("load of a line that nobody writes", &|_| {
            black_box(counters[0].0.load(Relaxed));
        }),
        ("fetch_add, a line each", &|at| {
            counters[at].0.fetch_add(1, Relaxed);
        }),
        ("fetch_add, one line", &|_| {
            counters[0].0.fetch_add(1, Relaxed);
        }),
        ("load and store, a line each", &|at| {
            let counter = &counters[at].0;
            counter.store(counter.load(Relaxed) + 1, Relaxed);
        }),
        ("lock and unlock, a line each", &|at| {
            *locks[at].0.lock().expect("not poisoned") += 1;
        }),
        ("lock and unlock, one line", &|_| {
            *locks[0].0.lock().expect("not poisoned") += 1;
        }),
        ("read lock and unlock, one line", &|_| {
            black_box(*read.0.read().expect("not poisoned"));
        }),
    ];
    for (name, step) in all {
        compare(name, threads, |n| {
            on_threads(n, TIMES, |at| (0..TIMES).for_each(|_| step(at)))
        });
    }
}

/// A line that two threads write in turn: what it takes to come from the other core.
fn hand_over() {
    const TIMES: u64 = 100_000;
    let line: Apart<AtomicU64> = Apart::default();
    let turn = |at: usize| {
        for _ in 0..TIMES {
            let mut spins = 0_u32;
            while line.0.load(Acquire) % 2 != at as u64 {
                spins += 1;
                match spins % 1000 {
                    // The other one may have no processor.
                    0 => thread::yield_now(),
                    _ => std::hint::spin_loop(),
                }
            }
            line.0.store(line.0.load(Relaxed) + 1, Release);
        }
    };
    let mut all: Vec<f64> = (0..ROUNDS)
        .map(|_| on_threads(2, 2 * TIMES as usize, turn))
        .collect();
    all.sort_by(f64::total_cmp);
    println!(
        "a line that goes to the other thread: {:.1} ns ({:.1}..{:.1})",
        all[ROUNDS / 2],
        all[ROUNDS / 4],
        all[ROUNDS * 3 / 4]
    );
}

/// Runs one batch as the service does.
fn batch(store: &Store, spec: &'static Spec, commands: &[Vec<&[u8]>], reply: &mut Reply) {
    let mut runner = store.runner(NOW_MS, 1);
    runner.prefetch(0, commands.iter().map(|args| (spec, &args[..])));
    for args in commands {
        black_box(runner.run(spec, 0, args, reply));
    }
    reply.clear();
}

fn commands(name: &str, threads: usize, shards: usize, pipeline: usize, apart: bool) {
    let spec = |name: &str| find(name.as_bytes()).expect("a command");
    let (set, value) = (spec("set"), [b'v'; 64]);
    let (run, with_value) = match name {
        "wrong" => (spec("llen"), false),
        "get" => (spec("get"), false),
        _ => (set, true),
    };
    let keys: Vec<Vec<u8>> = (0..KEYS)
        .map(|n| format!("{:016}", n * 7919 % KEYS).into_bytes())
        .collect();
    let arguments = |spec: &'static Spec, with_value: bool| -> Vec<Vec<&[u8]>> {
        let command = |key| {
            let mut command: Vec<&[u8]> = vec![spec.name.as_bytes(), key];
            command.extend(with_value.then_some(&value[..]));
            command
        };
        keys.iter().map(|key| command(&key[..])).collect()
    };
    let measured = arguments(run, with_value);
    let fill = |store: &Store| {
        let mut reply = Reply::new(Proto::Resp2);
        for commands in arguments(set, true).chunks(32) {
            batch(store, set, commands, &mut reply);
        }
    };
    let new = || {
        Store::new(Settings {
            shards,
            ..Settings::default()
        })
    };
    let stores = if apart { threads } else { 1 };
    let full: Vec<Store> = (0..stores).map(|_| new()).collect();
    full.iter().for_each(&fill);
    compare(
        &format!("{name}, {shards} shards, pipeline {pipeline}"),
        threads,
        |n| {
            let fresh: Vec<Store> = match name {
                "grow" => (0..stores).map(|_| new()).collect(),
                _ => Vec::new(),
            };
            let stores = if fresh.is_empty() { &full } else { &fresh };
            // Each thread has a part of its own of the keys, all of them in all shards.
            let part = KEYS / threads;
            on_threads(n, part, |at| {
                let mut reply = Reply::new(Proto::Resp2);
                for commands in measured[at * part..][..part].chunks(pipeline) {
                    batch(&stores[at % stores.len()], run, commands, &mut reply);
                }
            })
        },
    );
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let threads = number(1, 2).max(2);
    match args.first().map(String::as_str) {
        None | Some("steps") => {
            steps(threads);
            hand_over();
        }
        Some(name) => commands(
            name,
            threads,
            number(2, 64),
            number(3, 16).max(1),
            args.len() > 4,
        ),
    }
}
