//! Our side: a store, run in this process.

use std::sync::{Arc, Mutex};

use tidewire_kv::commands::find;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::events::{Classes, parse_classes};
use tidewire_kv::store::{Announce, Effect, Effects, Event, Ran, Settings, Store, Units};
use tidewire_kv::types::{Fit, SetFit};

use crate::value::Value;

/// Limits that short sequences cross again and again.
pub(crate) const LENGTH: usize = 40;
pub(crate) const HASH: usize = 7;
pub(crate) const ZSET: usize = 6;
pub(crate) const SET: usize = 8;
pub(crate) const INTEGERS: usize = 12;

/// The time, which stands still: milliseconds since 1970.
pub(crate) const NOW_MS: u64 = 1_700_000_000_000;

/// The commands that were shown to the hook.
#[derive(Default)]
pub(crate) struct Log(Mutex<Vec<Vec<Vec<u8>>>>);

impl Effects for Log {
    fn commit(&self, units: &Units, _: usize) -> u64 {
        let mut log = self.0.lock().unwrap();
        units.each(|unit| {
            for (_, effect) in unit {
                let command = match effect {
                    Effect::Command(args) => args.iter().map(|arg| arg.to_vec()).collect(),
                    Effect::Removed(key, _) => vec![b"DEL".to_vec(), key.to_vec()],
                };
                log.push(command);
            }
        });
        1
    }
}

/// What became of keys, as channel and key.
#[derive(Default)]
struct Told(Mutex<Vec<(String, Vec<u8>)>>);

impl Announce for Told {
    fn announce(&self, event: &Event, _: Classes, _: u64) -> bool {
        let channel = format!("__keyevent@{}__:{}", event.db, event.name);
        self.0.lock().unwrap().push((channel, event.key.to_vec()));
        true
    }
}

/// Events that are compared: all.
pub(crate) const EVENTS: &str = "EAnm";

pub(crate) struct Ours {
    store: Store,
    told: Arc<Told>,
    proto: Proto,
    log: Arc<Log>,
    seed: u64,
}

impl Ours {
    /// With collections that leave their small forms soon, if `few`.
    pub(crate) fn with_limits(proto: Proto, seed: u64, few: bool) -> Ours {
        let ours = Ours::new(proto, seed);
        if few {
            let limits = ours.store.limits();
            let fit = |entries| Fit {
                entries,
                length: LENGTH,
            };
            limits.set_hash(fit(HASH));
            limits.set_zset(fit(ZSET));
            limits.set_set(SetFit {
                integers: INTEGERS,
                packed: fit(SET),
            });
        }
        ours
    }

    pub(crate) fn new(proto: Proto, seed: u64) -> Ours {
        let log = Arc::new(Log::default());
        let store = Store::new(Settings {
            effects: Some(log.clone()),
            ..Settings::default()
        });
        let told = Arc::new(Told::default());
        store.announce_to(told.clone());
        store.set_events(parse_classes(EVENTS.as_bytes()).unwrap());
        Ours {
            store,
            told,
            proto,
            log,
            seed,
        }
    }

    /// Runs a command as in a transaction, so that it does not wait.
    pub(crate) fn run(&mut self, args: &[Vec<u8>]) -> Value {
        let mut reply = Reply::new(self.proto);
        let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let spec = find(args[0]).unwrap_or_else(|| panic!("no {}", args[0].escape_ascii()));
        if spec.takes(args.len()) {
            self.seed = self.seed.wrapping_add(1);
            let mut runner = self.store.runner(NOW_MS, self.seed);
            let command = || [(spec, &args[..])].into_iter();
            runner.reserve(command()).expect("there is room");
            assert!(runner.begin(command(), Vec::new()));
            let ran = runner.run(spec, 0, &args, &mut reply);
            assert!(matches!(ran, Ran::Done), "nothing waits in a transaction");
            runner.end();
        } else {
            let name = spec.name;
            reply.error(format!(
                "ERR wrong number of arguments for '{name}' command"
            ));
        }
        let (value, len) = Value::parse(reply.bytes()).expect("a whole reply");
        assert_eq!(len, reply.bytes().len(), "one reply");
        value
    }

    /// What became of keys since this was asked last: channels and keys.
    pub(crate) fn events(&self) -> Vec<(String, Vec<u8>)> {
        std::mem::take(&mut *self.told.0.lock().unwrap())
    }

    /// What was shown to the hook since this was asked last.
    pub(crate) fn effects(&self) -> Vec<Vec<Vec<u8>>> {
        std::mem::take(&mut *self.log.0.lock().unwrap())
    }
}
