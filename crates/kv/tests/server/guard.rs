//! Admission: clients of other hosts without a password, the port that knows none, browsers that a
//! web page sent. What strangers must not do is tried from the simulated network, whose hosts are
//! all others than the server's.

use std::sync::Arc;

use crate::common::{World, on_every_shape};
use tidewire::sim::chunking::{self, Collected, Feed};
use tidewire::sim::{Conditions, PlainState};
use tidewire::{Closed, Limits};
use tidewire_kv::binary::{encode_read, encode_response, encode_write};
use tidewire_kv::service::{BinaryService, RespService, Settings};
use tidewire_kv::store::Store;

fn world(settings: Settings) -> World {
    World::guarded(1, Conditions::calm(), settings)
}

fn service(settings: Settings) -> RespService {
    let store = Store::new(tidewire_kv::store::Settings::default());
    RespService::new(Arc::new(store), settings)
}

fn password() -> Settings {
    Settings {
        password: Some("secret".into()),
        ..Settings::default()
    }
}

fn unprotected() -> Settings {
    Settings {
        protected: false,
        ..Settings::default()
    }
}

/// Has a client of another host say something.
fn say(service: &RespService, text: &str) -> Collected {
    chunking::collect(service.clone(), text.as_bytes(), &[], true)
}

#[test]
fn without_a_password_other_hosts_are_denied_and_told_why() {
    on_every_shape(|| {
        let mut world = world(Settings::default());
        let mut client = world.client();
        let said = world.ask(&mut client, "SET k v");
        assert!(
            said.starts_with("-DENIED this server has no password"),
            "{said}"
        );
        assert!(said.ends_with("opens it to every host.|"), "{said}");
        assert_eq!(said.matches('|').count(), 1, "one line: {said}");
        assert_ne!(world.sim.state(client.peer), PlainState::Open);
        assert_eq!(world.service.counters().commands, 0);
        assert_eq!(world.service.clients(), 0, "it never was one");
    });
}

#[test]
fn what_a_denied_client_sent_ahead_is_not_run() {
    let service = service(Settings::default());
    let got = say(&service, "SET k v\r\nCONFIG SET protected-mode no\r\n");
    assert!(got.output.starts_with(b"-DENIED"));
    assert_eq!(got.closed, Some(Closed::ByProtocol("protected mode")));
    assert!(say(&service, "PING\r\n").output.starts_with(b"-DENIED"));
    assert_eq!(service.counters().commands, 0);
}

#[test]
fn a_password_lets_other_hosts_in_that_show_it() {
    let service = service(password());
    assert!(say(&service, "GET k\r\n").output.starts_with(b"-NOAUTH"));
    let got = say(&service, "AUTH secret\r\nSET k v\r\n");
    assert_eq!(got.output, b"+OK\r\n+OK\r\n");
}

#[test]
fn protection_is_changed_while_the_server_runs() {
    let service = service(unprotected());
    let get = "CONFIG GET protected-mode\r\n";
    assert_eq!(
        say(&service, get).output,
        b"*2\r\n$14\r\nprotected-mode\r\n$2\r\nno\r\n"
    );
    let bad = say(&service, "CONFIG SET protected-mode maybe\r\n").output;
    assert!(bad.starts_with(b"-ERR CONFIG SET failed"), "{bad:?}");
    assert_eq!(
        say(&service, "CONFIG SET protected-mode yes\r\n").output,
        b"+OK\r\n"
    );
    assert!(say(&service, "PING\r\n").output.starts_with(b"-DENIED"));
}

#[test]
fn taking_the_password_away_protects_again() {
    let service = service(password());
    let taken = say(
        &service,
        "AUTH secret\r\nCONFIG SET requirepass \"\"\r\nPING\r\n",
    );
    assert_eq!(taken.output, b"+OK\r\n+OK\r\n+PONG\r\n");
    assert!(say(&service, "PING\r\n").output.starts_with(b"-DENIED"));
}

fn requests() -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    encode_write(b"k", b"v", &mut requests);
    encode_response(b"v", &mut answers);
    encode_read(b"k", &mut requests);
    encode_response(b"v", &mut answers);
    (requests, answers)
}

#[test]
fn the_binary_port_heeds_what_guards_the_other() {
    on_every_shape(|| {
        let (requests, answers) = requests();
        for (settings, let_in) in [
            (password(), false),
            (Settings::default(), false),
            (unprotected(), true),
        ] {
            let binary = BinaryService::guarded(&service(settings));
            let got = chunking::collect(binary.clone(), &requests, &[], true);
            let expected = if let_in { &answers[..] } else { b"" };
            assert_eq!(got.output, expected);
            assert_eq!(binary.counters().writes, u64::from(let_in));
        }
    });
}

#[test]
fn a_password_set_later_ends_what_the_binary_port_serves() {
    on_every_shape(|| {
        let resp = service(unprotected());
        let binary = BinaryService::guarded(&resp);
        let (requests, answers) = requests();
        let mut world = tidewire::sim::Sim::under(1, Conditions::calm());
        let at = world.serve(binary.clone(), BinaryService::limits());
        let resp_at = world.serve(resp, Limits::default());
        let client = world.plain(at);
        world.send(client, &requests);
        world.run_for(std::time::Duration::from_millis(20));
        assert_eq!(world.received(client), answers);
        let other = world.plain(resp_at);
        world.send(other, b"CONFIG SET requirepass secret\r\n");
        world.run_for(std::time::Duration::from_millis(20));
        assert_eq!(world.received(other), b"+OK\r\n");
        world.send(client, &requests);
        world.run_for(std::time::Duration::from_millis(20));
        assert_eq!(world.received(client), answers, "not a byte more");
        assert_ne!(world.state(client), PlainState::Open);
        assert_eq!(binary.counters().writes, 1);
    });
}

#[test]
fn what_a_browser_sends_is_not_run() {
    let body = "\r\n\r\nSET k stolen\r\n";
    let requests = [
        format!("POST / HTTP/1.1\r\nHost: x{body}"),
        format!("post / HTTP/1.1{body}"),
        format!("PUT / HTTP/1.1\r\nHost: x{body}"),
        format!("GET / HTTP/1.1\r\nhOST: x{body}"),
        "*1\r\n$4\r\nPOST\r\nSET k stolen\r\n".to_string(),
        "MULTI\r\nHost: x\r\nSET k stolen\r\nEXEC\r\n".to_string(),
    ];
    for settings in [unprotected(), password()] {
        for request in &requests {
            let service = service(settings.clone());
            for splits in [&[][..], &[3], &[1; 200]] {
                let got = Feed::new(request.as_bytes())
                    .splits(splits)
                    .run(service.clone());
                assert_eq!(
                    got.closed,
                    Some(Closed::ByProtocol("an HTTP request")),
                    "{request:?}"
                );
            }
            let got = say(&service, "AUTH secret\r\nGET k\r\n").output;
            assert!(
                got.ends_with(b"$-1\r\n"),
                "{request:?}: {}",
                got.escape_ascii()
            );
        }
    }
}

#[test]
fn a_key_may_be_called_like_a_header() {
    let service = service(unprotected());
    let got = say(&service, "SET Host: x\r\nGET Host:\r\nSET post y\r\n");
    assert_eq!(got.output, b"+OK\r\n$1\r\nx\r\n+OK\r\n");
}

#[test]
fn a_client_from_before_the_password_was_removed_is_served() {
    on_every_shape(|| {
        let mut world = world(Settings {
            password: Some("secret".into()),
            protected: false,
            ..Settings::default()
        });
        let (mut early, mut admin) = (world.client(), world.client_of(1));
        world.check(&mut early, "PING", "-NOAUTH Authentication required.|");
        world.check(&mut admin, "AUTH secret", "+OK|");
        world.check(&mut admin, "CONFIG SET requirepass ", "+OK|");
        world.check(&mut early, "PING", "+PONG|");
        // A present client of another host is refused if it would be refused now.
        world.check(&mut admin, "CONFIG SET requirepass other", "+OK|");
        let mut early = world.client();
        world.check(&mut admin, "CONFIG SET protected-mode yes", "+OK|");
        world.check(&mut admin, "CONFIG SET requirepass ", "+OK|");
        world.check(&mut early, "PING", "-NOAUTH Authentication required.|");
        world.check(&mut early, "RESET", "+RESET|");
        world.check(&mut early, "PING", "-NOAUTH Authentication required.|");
    });
}

#[test]
fn a_password_is_not_in_the_slow_log() {
    on_every_shape(|| {
        let mut world = world(unprotected());
        let mut client = world.client();
        world.check(
            &mut client,
            "CONFIG SET slowlog-log-slower-than 0 requirepass secret",
            "+OK|",
        );
        world.check(&mut client, "AUTH secret", "+OK|");
        world.check(&mut client, "CONFIG set RequirePass secret", "+OK|");
        world.check(&mut client, "CONFIG SET requirepass  timeout 7", "+OK|");
        let log = world.ask(&mut client, "SLOWLOG GET 100");
        assert!(log.contains("(redacted)"), "{log}");
        assert!(!log.contains("secret"), "{log}");
    });
}
