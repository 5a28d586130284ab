//! Commands on a store in this process, for a tool that counts instructions:
//! `valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured*' instructions COMMAND PIPELINE KEY_LEN SHARDS`.
//!
//! COMMAND is get, set, hget or hset; the store has 100,000 keys with values of 64 bytes (or one hash
//! of as many fields), and 100,000 commands are measured.

use std::hint::black_box;

use tidewire_kv::commands::{Spec, find};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Settings, Store};

const KEYS: usize = 100_000;
const NOW_MS: u64 = 1_700_000_000_000;

/// One batch, as the service runs it.
fn batch(store: &Store, spec: &'static Spec, commands: &[Vec<&[u8]>], reply: &mut Reply) {
    let mut runner = store.runner(NOW_MS, 1);
    runner.prefetch(0, commands.iter().map(|args| (spec, &args[..])));
    for args in commands {
        black_box(runner.run(spec, 0, args, reply));
    }
    reply.clear();
}

#[inline(never)]
fn measured(store: &Store, spec: &'static Spec, commands: &[Vec<&[u8]>], pipeline: usize) {
    let mut reply = Reply::new(Proto::Resp2);
    for commands in commands.chunks(pipeline) {
        batch(store, spec, commands, &mut reply);
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_else(|| "get".to_string());
    let mut number = |or: usize| args.next().and_then(|arg| arg.parse().ok()).unwrap_or(or);
    let (pipeline, key_len, shards) = (number(16), number(16), number(1));
    let store = Store::new(Settings {
        shards,
        ..Settings::default()
    });
    let keys: Vec<Vec<u8>> = (0..KEYS)
        .map(|n| format!("{:0>key_len$}", n * 7919 % KEYS).into_bytes())
        .collect();
    let value = [b'v'; 64];
    let in_hash = name.starts_with('h');
    let spec = |name: &str| find(name.as_bytes()).expect("a command");
    let set = spec(if in_hash { "hset" } else { "set" });
    let commands = |with_value: bool| -> Vec<Vec<&[u8]>> {
        let command = |key| {
            let mut command: Vec<&[u8]> = vec![name.as_bytes()];
            command.extend(in_hash.then_some(&b"hash"[..]));
            command.push(key);
            command.extend(with_value.then_some(&value[..]));
            command
        };
        keys.iter().map(|key| command(&key[..])).collect()
    };
    batch(&store, set, &commands(true), &mut Reply::new(Proto::Resp2));
    measured(
        &store,
        spec(&name),
        &commands(name.ends_with("set")),
        pipeline,
    );
    println!("{} bytes", store.used_memory());
}
