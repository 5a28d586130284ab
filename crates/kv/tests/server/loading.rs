//! What clients hear while the store is being recovered, and behind that.

use std::time::Duration;

use crate::common::{World, on_every_shape};
use tidewire_kv::binary::{encode_read, encode_response, encode_write};
use tidewire_kv::service::{BinaryService, Settings};

const LOADING: &str = "-LOADING Tidewire is loading the dataset in memory|";

fn loading(settings: Settings) -> World {
    let world = World::with(settings);
    world.service.store().begin_loading();
    world
}

#[test]
fn keys_are_refused_and_all_else_is_answered() {
    on_every_shape(|| {
        let mut world = loading(Settings::default());
        let mut c = world.client();
        for line in [
            "PING",
            "GET k",
            "SET k v",
            "DEL k",
            "FLUSHALL",
            "KEYS *",
            "DBSIZE",
            "XREAD STREAMS s 0",
            "WATCH k",
            "EVAL return 0",
            "SCRIPT FLUSH",
            "SAVE",
            "BGSAVE",
            "BGREWRITEAOF",
            "WAIT 0 0",
            "WAITAOF 0 0 0",
        ] {
            world.check(&mut c, line, LOADING);
        }
        world.check(&mut c, "BLPOP k 0", LOADING);
        world.check(&mut c, "ECHO hello", "$5|hello|");
        world.check(&mut c, "SELECT 1", "+OK|");
        world.check(&mut c, "CLIENT SETNAME me", "+OK|");
        world.check(&mut c, "CLIENT GETNAME", "$2|me|");
        world.check(&mut c, "CONFIG SET maxmemory 100mb", "+OK|");
        world.check(&mut c, "ROLE", "*3|$6|master|:0|*0|");
        assert!(world.ask(&mut c, "TIME").starts_with("*2|"));
        assert!(world.ask(&mut c, "COMMAND COUNT").starts_with(':'));
        let info = world.ask(&mut c, "INFO persistence");
        assert!(info.contains("|loading:1|"), "{info}");
        assert!(info.contains("|loading_loaded_perc:0.00|"), "{info}");
        world.service.has_loaded(1, 4);
        let info = world.ask(&mut c, "INFO");
        assert!(info.contains("|loading_loaded_perc:25.00|"), "{info}");
        assert!(info.contains("|loading_eta_seconds:"), "{info}");
        let hello = world.ask(&mut c, "HELLO 3");
        assert!(hello.contains("|:3|"), "{hello}");
        world.check(&mut c, "GET k", LOADING);
        world.check(&mut c, "CLIENT REPLY SKIP", "");
        world.check(&mut c, "GET k", "");
        world.check(
            &mut c,
            "foo",
            "-ERR unknown command 'foo', with args beginning with: |",
        );
        world.service.store().end_loading();
        world.check(&mut c, "PING", "+PONG|");
        world.check(&mut c, "GET k", "_|");
        let info = world.ask(&mut c, "INFO persistence");
        assert!(
            info.contains("|loading:0|") && !info.contains("loading_"),
            "{info}"
        );
        // Later clients never hear of it.
        let mut late = world.client();
        world.check(&mut late, "SET k v", "+OK|");
        world.check(&mut c, "SELECT 0", "+OK|");
        world.check(&mut c, "GET k", "$1|v|");
    });
}

#[test]
fn a_transaction_with_keys_is_given_up_and_one_without_runs() {
    on_every_shape(|| {
        let mut world = loading(Settings::default());
        let mut c = world.client();
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "SET k v", LOADING);
        let discarded = "-EXECABORT Transaction discarded because of previous errors.|";
        world.check(&mut c, "EXEC", discarded);
        world.check(&mut c, "MULTI", "+OK|");
        world.check(&mut c, "ECHO one", "+QUEUED|");
        world.check(&mut c, "EXEC", "*1|$3|one|");
        // A transaction that began then ends as any other.
        world.check(&mut c, "MULTI", "+OK|");
        world.service.store().end_loading();
        world.check(&mut c, "SET k v", "+QUEUED|");
        world.check(&mut c, "EXEC", "*1|+OK|");
    });
}

#[test]
fn strangers_hear_of_the_password_first() {
    on_every_shape(|| {
        let mut world = loading(Settings {
            password: Some("secret".into()),
            ..Settings::default()
        });
        let mut c = world.client();
        world.check(&mut c, "GET k", "-NOAUTH Authentication required.|");
        world.check(&mut c, "AUTH secret", "+OK|");
        world.check(&mut c, "GET k", LOADING);
    });
}

#[test]
fn a_subscriber_during_loading_hears_what_is_published_behind_it() {
    on_every_shape(|| {
        let mut world = loading(Settings::default());
        let (mut s, mut p) = (world.client(), world.client_of(1));
        world.check(&mut s, "SUBSCRIBE c", "*3|$9|subscribe|$1|c|:1|");
        world.check(&mut p, "PUBLISH c one", ":1|");
        assert_eq!(world.answer(&mut s), "*3|$7|message|$1|c|$3|one|");
        world.service.store().end_loading();
        world.check(&mut p, "PUBLISH c two", ":1|");
        assert_eq!(world.answer(&mut s), "*3|$7|message|$1|c|$3|two|");
    });
}

#[test]
fn nothing_expires_before_all_is_there() {
    on_every_shape(|| {
        let mut world = World::new();
        let mut c = world.client();
        world.check(&mut c, "SET k v PX 30", "+OK|");
        world.service.store().begin_loading();
        world.sim.run_for(Duration::from_secs(5));
        assert_eq!(world.service.store().keys(), 1);
        world.service.store().end_loading();
        world.sim.run_for(Duration::from_secs(5));
        assert_eq!(world.service.store().keys(), 0);
    });
}

#[test]
fn requests_of_the_binary_protocol_wait() {
    on_every_shape(|| {
        let mut world = loading(Settings::default());
        let binary = BinaryService::open(world.service.store().clone());
        let at = world.sim.serve(binary, BinaryService::limits());
        let peer = world.sim.plain(&at);
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        encode_write(b"k", b"v", &mut asked);
        encode_read(b"k", &mut asked);
        world.sim.send(peer, &asked);
        // Longer than a client may be silent.
        world.sim.run_for(Duration::from_secs(200));
        assert!(world.sim.received(peer).is_empty());
        world.service.store().end_loading();
        world.sim.run_for(Duration::from_secs(1));
        encode_response(b"v", &mut answered);
        encode_response(b"v", &mut answered);
        assert_eq!(world.sim.received(peer), answered);
    });
}
