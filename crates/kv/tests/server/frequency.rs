//! Keys that are used often stay: the policies allkeys-lfu and volatile-lfu.

use std::time::Duration;

use tidewire_kv::commands::find;
use tidewire_kv::reply::{Proto, Reply};
use tidewire_kv::store::{Policy, Settings, Store};

use crate::common::{World, on_every_shape};

const NOW: u64 = 1_700_000_000_000;

#[test]
fn uses_are_counted_and_forgotten() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        let w = &mut world;
        w.ask(&mut c, "SET k 1");
        let refused = w.ask(&mut c, "OBJECT FREQ k");
        assert!(
            refused.starts_with("-ERR An LFU maxmemory policy is not selected"),
            "{refused}"
        );
        w.check(
            &mut c,
            "CONFIG SET maxmemory-policy allkeys-lfu lfu-log-factor 0",
            "+OK|",
        );
        w.ask(&mut c, "SET n 1");
        w.check(&mut c, "OBJECT FREQ n", ":5|");
        for _ in 0..10 {
            w.ask(&mut c, "GET n");
        }
        w.check(&mut c, "OBJECT FREQ n", ":15|");
        // Asking is no use, nor is what says so.
        w.ask(&mut c, "TTL n");
        w.ask(&mut c, "CLIENT NO-TOUCH ON");
        w.ask(&mut c, "GET n");
        w.ask(&mut c, "CLIENT NO-TOUCH OFF");
        w.check(&mut c, "OBJECT FREQ n", ":15|");
        let refused = w.ask(&mut c, "OBJECT IDLETIME n");
        assert!(
            refused.starts_with("-ERR An LFU maxmemory policy is selected"),
            "{refused}"
        );
        // A value in the place of another keeps the count.
        w.ask(&mut c, "SET n 2");
        w.check(&mut c, "OBJECT FREQ n", ":16|");
        w.sim.run_for(Duration::from_secs(180));
        w.check(&mut c, "OBJECT FREQ n", ":13|");
        w.ask(&mut c, "CONFIG SET lfu-decay-time 0");
        w.sim.run_for(Duration::from_secs(1800));
        w.check(&mut c, "OBJECT FREQ n", ":16|");
        w.ask(
            &mut c,
            "EVAL return(redis.call('restore','r',0,redis.call('dump','n'),'FREQ',77)) 0",
        );
        w.check(&mut c, "OBJECT FREQ r", ":77|");
        w.check(&mut c, "OBJECT FREQ none", "$-1|");
        w.check(&mut c, "CONFIG SET maxmemory-policy noeviction", "+OK|");
        w.check(&mut c, "OBJECT FREQ none", "$-1|");
    });
}

fn run(store: &Store, now_ms: u64, line: &str) -> Vec<u8> {
    let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let mut reply = Reply::new(Proto::Resp2);
    let mut runner = store.runner(now_ms, now_ms);
    runner.run(find(args[0]).unwrap(), 0, &args, &mut reply);
    reply.take()
}

/// What is used often survives ten times as much that is not, however lately that came.
#[test]
fn what_is_used_often_stays() {
    for (policy, expire) in [
        (Policy::AllKeysLfu, ""),
        (Policy::VolatileLfu, " EX 100000"),
    ] {
        let store = Store::new(Settings {
            shards: 1,
            policy,
            ..Settings::default()
        });
        store.set_lfu_log_factor(0);
        let value = "v".repeat(100);
        let mut now = NOW;
        for n in 0..50 {
            run(&store, now, &format!("SET hot:{n} {value}{expire}"));
        }
        for _ in 0..20 {
            for n in 0..50 {
                now += 1;
                run(&store, now, &format!("GET hot:{n}"));
            }
        }
        run(&store, now, &format!("SET kept {value}"));
        store.set_maxmemory(store.used_memory() + 2_000_000);
        for n in 0..30_000 {
            now += 1;
            assert_eq!(
                run(&store, now, &format!("SET cold:{n} {value}{expire}")),
                b"+OK\r\n"
            );
        }
        assert!(store.stats().evicted > 5000, "{policy:?}");
        for n in 0..50 {
            assert_ne!(
                run(&store, now, &format!("GET hot:{n}")),
                b"$-1\r\n",
                "{policy:?} {n}"
            );
        }
        if policy.is_volatile() {
            assert_ne!(run(&store, now, "GET kept"), b"$-1\r\n");
        }
    }
}
