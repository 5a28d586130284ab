//! A server with two loops on the simulated network, and clients that speak to it in plain words.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use tidewire::sim::{Conditions, PlainId, Shape, Sim};
use tidewire_kv::hash::HashKey;
use tidewire_kv::service::{RespService, Settings};
use tidewire_kv::store::Store;

thread_local! {
    /// What the loops of a server are made of. Unless it is said, the seed decides.
    static SHAPE: Cell<Option<Shape>> = const { Cell::new(None) };
}

/// Runs a test with servers of every shape.
pub(crate) fn on_every_shape(test: impl Fn()) {
    for shape in [Shape::Readiness, Shape::Completion, Shape::Threads] {
        println!("{shape:?}");
        SHAPE.set(Some(shape));
        test();
    }
}

/// A simulated network with one server; its clients are [`Client`]s.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) service: RespService,
    addrs: [tidewire::Endpoint; 2],
}

/// A client: where it is, and how much of what it received was looked at.
pub(crate) struct Client {
    pub(crate) peer: PlainId,
    seen: usize,
}

impl World {
    pub(crate) fn new() -> World {
        World::with(Settings::default())
    }

    pub(crate) fn with(settings: Settings) -> World {
        World::under(1, Conditions::calm(), settings)
    }

    /// Clients are on other hosts, and let in without a password.
    pub(crate) fn under(seed: u64, conditions: Conditions, settings: Settings) -> World {
        let protected = false;
        World::guarded(
            seed,
            conditions,
            Settings {
                protected,
                ..settings
            },
        )
    }

    /// As the settings say.
    pub(crate) fn guarded(seed: u64, conditions: Conditions, settings: Settings) -> World {
        let mut sim = Sim::under(seed, conditions);
        if let Some(shape) = SHAPE.get() {
            sim.shape(shape);
        }
        let limits = settings.limits();
        let service = RespService::new(
            Arc::new(Store::new(tidewire_kv::store::Settings {
                // Equal seeds give equal orders of keys.
                hash_key: HashKey::from_seed(seed),
                ..tidewire_kv::store::Settings::default()
            })),
            settings,
        );
        let addrs = [(); 2].map(|()| sim.serve(service.clone(), limits.clone()));
        World {
            sim,
            service,
            addrs,
        }
    }

    /// A client of the first loop.
    pub(crate) fn client(&mut self) -> Client {
        self.client_of(0)
    }

    pub(crate) fn client_of(&mut self, at: usize) -> Client {
        let peer = self.sim.plain(&self.addrs[at]);
        Client { peer, seen: 0 }
    }

    /// Sends a command as an array, waits, and shows what came back.
    pub(crate) fn ask(&mut self, client: &mut Client, line: &str) -> String {
        self.send(client, line);
        self.answer(client)
    }

    /// Asks and compares.
    #[track_caller]
    pub(crate) fn check(&mut self, client: &mut Client, line: &str, expected: &str) {
        let got = self.ask(client, line);
        assert_eq!(got, expected, "{line}");
    }

    /// Sends a command without waiting.
    pub(crate) fn send(&mut self, client: &Client, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.sim.send(client.peer, &bytes);
    }

    /// What has come since it was last looked at; line ends are shown as `|`.
    pub(crate) fn answer(&mut self, client: &mut Client) -> String {
        self.sim.run_for(Duration::from_millis(20));
        let all = self.sim.received(client.peer);
        let new = String::from_utf8_lossy(&all[client.seen..]).replace("\r\n", "|");
        client.seen = all.len();
        new
    }
}
