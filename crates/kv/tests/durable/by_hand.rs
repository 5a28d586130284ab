//! A server on a simulated network whose log moves only when it is told to.

use std::sync::Arc;
use std::time::Duration;

use tidewire::sim::{Conditions, PlainId, Sim};
use tidewire_kv::durable::KvLog;
use tidewire_kv::durable::snapshot::Keeper;
use tidewire_kv::service::{RespService, Settings};
use tidewire_kv::store::Mistakes;
use tidewire_log::disk::sim::{SimDisk, Survival};
use tidewire_log::{Policy, Writer};

use crate::disk::{Opened, dump, now, open_with_log, settings, settle, small};
use crate::wire::command;

/// Where time begins; milliseconds since 1970.
pub(crate) const START: u64 = 1_700_000_000_000;

/// A server with two loops, whose log moves only when it is told to.
pub(crate) struct World {
    pub(crate) sim: Sim,
    pub(crate) writer: Writer<SimDisk>,
    /// The keeper of snapshots, which also moves only when it is told to.
    keeper: Keeper<SimDisk>,
    kv_log: Arc<KvLog>,
    pub(crate) disk: SimDisk,
    log: tidewire_log::Settings,
    clients: [PlainId; 2],
    seen: [usize; 2],
}

impl World {
    pub(crate) fn new(policy: Policy) -> World {
        World::with_log(small(policy))
    }

    /// With a log of other sizes.
    pub(crate) fn with_log(log: tidewire_log::Settings) -> World {
        let disk = SimDisk::new(1);
        let opened =
            open_with_log(log.clone(), &disk, settings(1), Mistakes::default(), START).unwrap();
        let mut sim = Sim::under(1, Conditions::calm());
        let own = Settings {
            protected: false,
            stall: None,
            ..Settings::default()
        };
        let limits = own.limits();
        let (store, kv_log, writer, keeper) = opened.keep();
        let service = RespService::durable(store, own, kv_log.clone());
        let addrs = [(); 2].map(|()| sim.serve(service.clone(), limits.clone()));
        World {
            clients: [0, 1].map(|at| sim.plain(&addrs[at])),
            sim,
            writer,
            keeper,
            kv_log,
            disk,
            log,
            seen: [0; 2],
        }
    }

    pub(crate) fn send(&mut self, who: usize, bytes: &[u8]) {
        self.sim.send(self.clients[who], bytes);
    }

    pub(crate) fn settle(&mut self) {
        settle(&mut self.writer, self.sim.now().as_nanos() / 1_000_000);
    }

    /// Makes the snapshot that was asked for; whether it counts.
    pub(crate) fn save(&mut self) -> bool {
        let asked = self.kv_log.snapshots().ask();
        for _ in 0..10_000 {
            let ms = self.sim.now().as_nanos() / 1_000_000;
            self.keeper.step(now(ms));
            settle(&mut self.writer, ms);
            self.kv_log.update();
            if let Some(counts) = self.kv_log.snapshots().status().outcome(asked) {
                return counts;
            }
        }
        panic!("the snapshot finds no end");
    }

    /// What came since the last time, a while later.
    pub(crate) fn heard(&mut self, who: usize) -> String {
        self.sim.run_for(Duration::from_secs(1));
        let all = self.sim.received(self.clients[who]);
        let new = String::from_utf8_lossy(&all[self.seen[who]..]).replace("\r\n", "|");
        self.seen[who] = all.len();
        new
    }

    /// What comes when the log moves on, for some seconds.
    pub(crate) fn answered(&mut self, who: usize) -> String {
        let mut heard = String::new();
        for _ in 0..4 {
            self.settle();
            heard += &self.heard(who);
        }
        heard
    }

    /// Sends commands, and what they are answered while log and snapshots go on by themselves.
    pub(crate) fn ask_on(&mut self, who: usize, bytes: &[u8]) -> String {
        self.send(who, bytes);
        for _ in 0..40 {
            let ms = self.sim.now().as_nanos() / 1_000_000;
            self.keeper.step(now(ms));
            self.settle();
            self.kv_log.update();
            self.sim.run_for(Duration::from_millis(50));
        }
        self.heard(who)
    }

    /// Changes that were refused because the disk is full.
    pub(crate) fn refused_full(&self) -> u64 {
        self.kv_log.refused_full()
    }

    /// Sends commands, and what they are answered.
    pub(crate) fn ask(&mut self, who: usize, lines: &[&str]) -> String {
        let bytes: Vec<u8> = lines.iter().flat_map(|line| command(line)).collect();
        self.send(who, &bytes);
        self.answered(who)
    }

    /// All keys of the store that is recovered if the power goes now.
    pub(crate) fn recovered(&self) -> Vec<String> {
        dump(&self.after_a_crash().store, START)
    }

    /// The log that is found then.
    pub(crate) fn reopened(&self) -> Arc<KvLog> {
        self.after_a_crash().log
    }

    fn after_a_crash(&self) -> Opened {
        let disk = self.disk.fork().crash_with(Survival::Nothing);
        let log = self.log.clone();
        open_with_log(log, &disk, settings(1), Mistakes::default(), START).unwrap()
    }
}
