//! The effects that a store shows: applied to another store at another time, they give the same
//! keys.

use std::sync::{Arc, Mutex};

use tidewire_kv::commands::find;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Effect, Effects, Settings, Store, Units};

const NOW: u64 = 1_700_000_000_000;

/// The commands that were shown, each with its database.
#[derive(Default)]
struct Log(Mutex<Vec<(u16, Vec<Vec<u8>>)>>);

impl Effects for Log {
    fn commit(&self, units: &Units, _: usize) -> u64 {
        let mut log = self.0.lock().unwrap();
        units.each(|unit| {
            for (db, effect) in unit {
                let command = match effect {
                    Effect::Command(args) => args.iter().map(|arg| arg.to_vec()).collect(),
                    Effect::Removed(key, _) => vec![b"DEL".to_vec(), key.to_vec()],
                };
                log.push((*db, command));
            }
        });
        1
    }
}

fn run(store: &Store, now_ms: u64, db: u16, args: &[&[u8]]) -> Vec<u8> {
    let mut reply = Reply::new(Proto::Resp2);
    let mut runner = store.runner(now_ms, now_ms);
    runner.run(find(args[0]).unwrap(), db, args, &mut reply);
    reply.take()
}

fn line(store: &Store, now_ms: u64, line: &str) -> String {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    String::from_utf8(run(store, now_ms, 0, &args)).unwrap()
}

#[test]
fn effects_give_the_same_keys_at_another_time() {
    let log = Arc::new(Log::default());
    let store = Store::new(Settings {
        effects: Some(log.clone()),
        ..Settings::default()
    });
    for command in [
        "SET a 1 EX 100",
        "SETEX b 50 x",
        "PSETEX c 1500 x",
        "INCRBYFLOAT a 1.5",
        "SET d 1",
        "EXPIRE d 7",
        "GETEX b EX 9",
        "SET e 1 PX 5",
        "APPEND f abc",
        "GETEX f PERSIST",
        "SET g x NX",
        "SET g y NX",
        "RENAME g h",
        "SET p x EX 10",
        "PERSIST p",
        "COPY a i",
        "EXPIRE h -1",
    ] {
        assert!(!line(&store, NOW, command).starts_with('-'), "{command}");
    }
    // A read finds that its time has come.
    assert_eq!(line(&store, NOW + 5, "GET e"), "$-1\r\n");

    let other = Store::new(Settings::default());
    for (db, command) in &*log.0.lock().unwrap() {
        let args: Vec<&[u8]> = command.iter().map(|arg| &arg[..]).collect();
        run(&other, NOW + 4, *db, &args);
    }
    for key in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "p"] {
        for read in ["GET", "PEXPIRETIME"] {
            let command = format!("{read} {key}");
            assert_eq!(
                line(&store, NOW + 6, &command),
                line(&other, NOW + 6, &command),
                "{command}"
            );
        }
    }
}

#[test]
fn what_changes_nothing_has_no_effect() {
    let log = Arc::new(Log::default());
    let store = Store::new(Settings {
        effects: Some(log.clone()),
        ..Settings::default()
    });
    for command in [
        "GET a",
        "DEL a",
        "EXPIRE a 10",
        "SET a 1 XX",
        "PERSIST a",
        "SCAN 0",
    ] {
        line(&store, NOW, command);
    }
    assert!(log.0.lock().unwrap().is_empty());
}
