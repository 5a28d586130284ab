//! A follower of a key-value store, with brokers within this process that are away now and then.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidewire_kafka::mock::Brokers;
use tidewire_kafka::{Settings, Target};
use tidewire_replicate::Share;

use crate::common::durable::{Place, assert_code};
use crate::common::kv::{Client, Reply, text};
use crate::common::{PATIENCE, Running, addr, run, stderr};
use crate::kv_home::lag_seconds;

/// A follower of an empty store.
struct Follower {
    brokers: Brokers,
    target: Target,
    _place: Place,
    server: Running,
    at: String,
    client: Client,
}

impl Follower {
    fn start(topic: &str) -> Follower {
        let (brokers, target) = Brokers::start(topic).expect("brokers");
        let place = Place::new();
        let (data, home) = (place.path("data"), target.to_string());
        let flags = ["--data", &data, "--follow", &home, "--admin", "off"];
        let serve = ["serve", "kv", "--listen", "kv/resp=0"];
        let mut server = Running::start(&[&serve[..], &flags].concat());
        let at = addr(&server.line());
        let client = Client::connect(at).expect("it listens");
        let mut follower = Follower {
            brokers,
            target,
            _place: place,
            server,
            at: at.to_string(),
            client,
        };
        follower.wait("home_link", "up");
        follower
    }

    fn field(&mut self, name: &str) -> String {
        let info = text(self.client.ask("INFO replication").expect("an answer"));
        let mut lines = info.lines();
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.expect("a follower says so").to_owned()
    }

    fn wait(&mut self, name: &str, value: &str) {
        let since = Instant::now();
        while self.field(name) != value {
            assert!(since.elapsed() < PATIENCE, "{name} never is {value}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn reach(&self, is_reached: bool) {
        self.brokers
            .reach(is_reached)
            .expect("they do what they are told");
    }

    fn link(&mut self) -> String {
        let Reply::Array(role) = self.client.ask("ROLE").expect("an answer") else {
            panic!("a role is an array");
        };
        text(role[3].clone())
    }
}

#[test]
fn a_follower_that_is_cut_off_from_the_brokers_says_so() {
    let mut follower = Follower::start("cut-off");
    follower.wait("home_lag", "0");
    follower.wait("home_lag_seconds", "0.000");
    assert_eq!(follower.link(), "connected");
    follower.reach(false);
    follower.wait("home_link", "down");
    assert_eq!(follower.field("master_link_status"), "down");
    assert_eq!(follower.link(), "connect");
    assert!(!follower.field("home_trouble").is_empty());
    let before = lag_seconds(&mut follower.client);
    let since = Instant::now();
    while lag_seconds(&mut follower.client) < before + 1.0 {
        assert!(since.elapsed() < PATIENCE, "it never gets older");
        thread::sleep(Duration::from_millis(50));
    }
    // The follower serves what it has, and comes back though nothing was written meanwhile.
    assert_eq!(follower.client.ask("GET k").unwrap(), Reply::Bulk(None));
    follower.reach(true);
    follower.wait("home_link", "up");
    follower.wait("home_lag_seconds", "0.000");
    assert_eq!(follower.link(), "connected");
    follower.server.signal(Signal::TERM);
    assert_code(&follower.server.end(), 0);
}

#[test]
fn a_cancelled_promotion_is_not_done_when_the_brokers_are_back() {
    let mut follower = Follower::start("given-up");
    follower.reach(false);
    follower.wait("home_link", "down");
    let promote = ["kv", "promote", "--to", &follower.at, "--within"];
    let output = run(&[&promote[..], &["1s"]].concat());
    assert_code(&output, 1);
    assert!(
        stderr(&output).contains("may or may not have been promoted"),
        "{}",
        stderr(&output)
    );
    follower.server.hear("promotion cancelled");
    follower.wait("home_role", "follower");
    follower.reach(true);
    follower.wait("home_link", "up");
    assert_eq!(follower.field("home_role"), "follower");
    let held = tidewire_kafka::held(&follower.target, Share::Whole, &Settings::default());
    assert_eq!(held.expect("brokers").owner, None);
}
