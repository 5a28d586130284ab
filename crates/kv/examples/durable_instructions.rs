//! What durability costs, for a tool that counts instructions: the difference of two COUNTs is what so many
//! SETs or keys cost, in all threads.
//!
//! `valgrind --tool=callgrind durable_instructions set LEVEL COUNT DIR`: COUNT SETs of 64 bytes by 50 connections
//! that each have 16 under way, at LEVEL: none, os, interval or sync. `durable_instructions recover SHARDS DIR`: a store of
//! what the others have left in DIR.
use std::ops::ControlFlow::Continue;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tidewire_kv::commands::find;
use tidewire_kv::durable::{self, Accept, KvLog};
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Settings, Store};
use tidewire_log::{EmbeddedLog, Policy};

const CONNECTIONS: usize = 50;
const PIPELINE: usize = 16;
const NOW_MS: u64 = 1_700_000_000_000;

type Failed = Box<dyn std::error::Error>;

fn store(shards: usize) -> Store {
    Store::new(Settings {
        shards,
        ..Settings::default()
    })
}

fn opened(policy: Policy, store: &mut Store, directory: &Path) -> Result<Opened, Failed> {
    let (log, _) = EmbeddedLog::start(directory, KvLog::settings(policy))?;
    let log = Arc::new(log);
    let go_on = |_: &_, _, _| Continue(());
    let (hook, replayed) = durable::open(log.clone(), store, NOW_MS, Accept::Nothing, go_on)?;
    Ok(Opened {
        log,
        hook,
        records: replayed.records,
    })
}

struct Opened {
    log: Arc<EmbeddedLog>,
    hook: Arc<KvLog>,
    records: u64,
}

/// The connections send at once, and again when the log says that all of them are answered.
fn set(level: &str, count: usize, directory: &Path) -> Result<(), Failed> {
    let policy = match level {
        "none" => None,
        "os" => Some(Policy::Os),
        "interval" => Some(Policy::Interval(Duration::from_secs(1))),
        "sync" => Some(Policy::Sync),
        _ => return Err("LEVEL is none, os, interval or sync".into()),
    };
    let mut store = store(1);
    let opened = policy.map(|policy| opened(policy, &mut store, directory));
    let opened = opened.transpose()?;
    let (woken, wakes) = sync_channel(1);
    let _watch = opened.as_ref().map(|opened| {
        opened.hook.watch(Arc::new(move || {
            let _ = woken.try_send(());
        }))
    });
    let (spec, value) = (find(b"set").ok_or("there is no SET")?, [b'v'; 64]);
    let keys: Vec<Vec<u8>> = (0..count)
        .map(|n| format!("{:0>16}", n * 7919 % count).into_bytes())
        .collect();
    let mut reply = Reply::new(Proto::Resp2);
    let mut waits_for = 0;
    for (number, batch) in keys.chunks(PIPELINE).enumerate() {
        let commands: Vec<[&[u8]; 3]> = batch
            .iter()
            .map(|key| [&b"set"[..], &key[..], &value[..]])
            .collect();
        let mut runner = store.runner(NOW_MS, 1);
        runner.prefetch(0, commands.iter().map(|args| (spec, &args[..])));
        for args in &commands {
            let _ = runner.run(spec, 0, args, &mut reply);
        }
        waits_for = runner.barrier().max(waits_for);
        drop(runner);
        reply.clear();
        if let Some(opened) = &opened
            && number % CONNECTIONS == CONNECTIONS - 1
        {
            while opened.hook.holds_replies() && opened.hook.update() < waits_for {
                let _ = wakes.recv_timeout(Duration::from_secs(1));
            }
        }
    }
    if let Some(opened) = &opened {
        opened.log.close();
    }
    println!("{} bytes", store.used_memory());
    Ok(())
}

fn main() -> Result<(), Failed> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["set", level, count, directory] => set(level, count.parse()?, Path::new(directory)),
        ["recover", shards, directory] => {
            let mut store = store(shards.parse()?);
            let opened = opened(Policy::Os, &mut store, Path::new(directory))?;
            println!("{} records, {} bytes", opened.records, store.used_memory());
            Ok(())
        }
        _ => Err("set LEVEL COUNT DIR | recover SHARDS DIR".into()),
    }
}
