//! The example `mqtt`: what was acknowledged reaches each subscriber, on simulated networks and on this machine's; retained
//! publications, wills, and a stock client where Python has one (`paho-mqtt`).

#[path = "../examples/mqtt/broker.rs"]
mod broker;
#[path = "shared/example.rs"]
#[allow(dead_code, reason = "shared by several tests")]
mod example;
#[path = "../examples/mqtt/packet.rs"]
mod packet;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use broker::Broker;
use example::{PATIENCE, Serving};
use packet::{Packet, first, matches, publish};
use tidewire::sim::{Conditions, PlainId, PlainState, Sim, for_each_seed};
use tidewire::{Builder, EngineChoice, Limits, Placement};

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes(), text.as_bytes()].concat()
}

fn packet(kind: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128);
    [&[kind, body.len() as u8], body].concat()
}

fn connect(client: &str, will: Option<(&str, &str)>) -> Vec<u8> {
    let mut body = text("MQTT");
    let flags = if will.is_some() { 2 | 4 | 8 } else { 2 };
    body.extend([4, flags, 0, 0]);
    body.extend(text(client));
    if let Some((topic, words)) = will {
        body.extend([text(topic), text(words)].concat());
    }
    packet(0x10, &body)
}

fn subscribe(filter: &str, qos: u8) -> Vec<u8> {
    packet(0x82, &[&[0, 1], &text(filter)[..], &[qos]].concat())
}

/// A topic, what was published there, and whether it was retained.
type Heard = (String, Vec<u8>, bool);

/// The publications and the ids of acknowledgements in what a client was sent.
fn heard(bytes: &[u8]) -> (Vec<Heard>, Vec<u16>) {
    let (mut rest, mut published, mut acknowledged) = (bytes, Vec::new(), Vec::new());
    while rest.len() >= 2 {
        // What a broker sends besides is short.
        let len = match rest[0] {
            0x20 | 0x40 | 0x90 | 0xb0 | 0xd0 => 2 + usize::from(rest[1]),
            _ => match first(rest).expect("a packet") {
                Some((Packet::Publish { publish, .. }, len)) => {
                    let topic = publish.topic.to_owned();
                    published.push((topic, publish.payload.to_vec(), publish.retain));
                    len
                }
                Some((other, _)) => panic!("{other:?}"),
                None => break,
            },
        };
        if rest.len() < len {
            break; // cut off by a reset
        }
        if rest[0] == 0x40 {
            acknowledged.push(u16::from_be_bytes([rest[2], rest[3]]));
        }
        rest = &rest[len..];
    }
    (published, acknowledged)
}

#[test]
fn filters_mean_topics() {
    for (filter, topic, is) in [
        ("a/b", "a/b", true),
        ("a/+", "a/b", true),
        ("a/+", "a/b/c", false),
        ("a/#", "a", true),
        ("a/#", "a/b/c", true),
        ("#", "a/b", true),
        ("#", "$SYS/x", false),
        ("$SYS/#", "$SYS/x", true),
        ("+/b", "/b", true),
        ("a/b", "a/b/", false),
    ] {
        assert_eq!(matches(filter, topic), is, "{filter} {topic}");
    }
    for filter in ["a/#/b", "a+", "", "a#"] {
        assert!(first(&subscribe(filter, 1)).is_err(), "{filter}");
    }
    for len in 0..40_u8 {
        // Parts of packets are waited for, and never a panic.
        let _ = first(&connect("me", Some(("will", "words")))[..usize::from(len.min(26))]);
        let _ = first(&[0x10, len, 0, 4, 77]);
    }
    assert!(first(&[0x30, 0xff, 0xff, 0xff, 0xff, 1]).is_err());
}

#[test]
fn retained_publications_and_wills_are_told() {
    let mut sim = Sim::under(7, Conditions::calm());
    let at = sim.serve(Broker::default(), Limits::default());
    let second = Duration::from_secs(1);
    let dying = sim.plain(&at);
    sim.send(dying, &connect("dying", Some(("wills/dying", "farewell"))));
    sim.send(dying, &publish("kept", b"old", true, Some(1)));
    sim.send(dying, &publish("kept", b"new", true, Some(2)));
    let leaving = sim.plain(&at);
    sim.send(
        leaving,
        &connect("leaving", Some(("wills/leaving", "not said"))),
    );
    sim.run_for(second);
    let listening = sim.plain(&at);
    sim.send(listening, &connect("listening", None));
    sim.send(listening, &subscribe("#", 1));
    sim.run_for(second);
    sim.send(leaving, &[0xe0, 0]);
    sim.close(dying, true);
    sim.run_for(second);
    let (told, _) = heard(sim.received(listening));
    let told: Vec<_> = told.iter().map(|(t, p, r)| (&t[..], &p[..], *r)).collect();
    let wanted: [(&str, &[u8], bool); 2] =
        [("kept", b"new", true), ("wills/dying", b"farewell", false)];
    assert_eq!(told, wanted);
    // A second one of the name takes the first one's place.
    let again = sim.plain(&at);
    sim.send(again, &connect("listening", None));
    sim.run_for(second);
    assert!(matches!(sim.state(listening), PlainState::Failed(_)));
    assert_eq!(sim.state(again), PlainState::Open);
}

/// Publications of some publishers reach all subscribers that read, whole and in order, as far as they were acknowledged.
#[test]
fn what_is_acknowledged_is_delivered_whatever_the_network_does() {
    const EACH: u16 = 150;
    let cut = AtomicU64::new(0);
    for_each_seed(40, |seed| {
        let mut sim = Sim::new(seed);
        let at = sim.add_loops(3, Placement::LeastConnections);
        let limits = Limits {
            output_low: 500,
            output_high: 2_000,
            idle: None,
            write: Some(Duration::from_secs(20)),
            ..Limits::default()
        };
        let service = sim.service(at, Broker::default(), limits);
        let addr = sim.listen(service);
        let subscribers: Vec<PlainId> = (0..4).map(|_| sim.plain(&addr)).collect();
        for &subscriber in &subscribers {
            sim.send(subscriber, &connect("", None));
            sim.send(subscriber, &subscribe("t/+", 1));
        }
        sim.run_for(Duration::from_secs(10));
        let stuck = subscribers[0];
        sim.reading(stuck, false);
        let publishers: Vec<PlainId> = (0..3).map(|_| sim.plain(&addr)).collect();
        for (n, &publisher) in publishers.iter().enumerate() {
            sim.send(publisher, &connect("", None));
            for id in 1..=EACH {
                let payload = [&id.to_be_bytes()[..], &[7; 40]].concat();
                sim.send(
                    publisher,
                    &publish(&format!("t/{n}"), &payload, false, Some(id)),
                );
            }
        }
        // One that dies in between, and whose last publications may be lost.
        sim.run_for(Duration::from_millis(seed % 300));
        sim.close(publishers[0], true);
        sim.run_for(Duration::from_secs(3600)); // some networks are slow
        // Where kernels hold all there is, nothing is stuck.
        cut.fetch_add(sim.counters(at).cut_unsent, Relaxed);
        for (n, &publisher) in publishers.iter().enumerate() {
            let (_, acknowledged) = heard(sim.received(publisher));
            if n > 0 {
                assert!(
                    acknowledged.iter().copied().eq(1..=EACH),
                    "{acknowledged:?}"
                );
            }
            for &subscriber in &subscribers[1..] {
                let (told, _) = heard(sim.received(subscriber));
                let topic = format!("t/{n}");
                let of = told.iter().filter(|(t, ..)| *t == topic);
                let ids: Vec<u16> = of
                    .map(|(_, p, _)| u16::from_be_bytes([p[0], p[1]]))
                    .collect();
                assert!(
                    ids.len() >= acknowledged.len(),
                    "{} {}",
                    ids.len(),
                    acknowledged.len()
                );
                assert!(ids.iter().copied().eq(1..=ids.len() as u16), "{ids:?}");
            }
        }
        Ok::<(), String>(())
    });
    let is_alone = std::env::var_os("TIDEWIRE_SEED").is_some();
    assert!(is_alone || cut.into_inner() > 0, "no subscriber was stuck");
}

/// 20,000 of QoS 1 to eight subscribers, one of which does not read.
fn flood(engine: EngineChoice, patience: Option<Duration>) {
    const PUBLISHERS: usize = 4;
    const EACH: usize = 5_000;
    let limits = Limits {
        write: patience,
        output_hard: 4 << 20,
        ..Limits::default()
    };
    let mut builder = Builder::new();
    builder
        .engine(engine)
        .loops(4)
        .placement(Placement::LeastConnections);
    let broker = builder.service_with(Broker::default(), limits);
    builder.listen(broker, tidewire::Listen::at("127.0.0.1:0"));
    let running = match builder.start() {
        Ok(running) => running,
        Err(e) => return println!("skipped {engine:?}: {e}"),
    };
    let addr = running.addrs()[0].clone();
    let join = || {
        let mut stream = TcpStream::connect(&addr).expect("the broker");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream.write_all(&connect("", None)).expect("sent");
        stream.read_exact(&mut [0; 4]).expect("welcomed");
        stream
    };
    let mut subscribers: Vec<TcpStream> = (0..8).map(|_| join()).collect();
    for subscriber in &mut subscribers {
        subscriber.write_all(&subscribe("t/+", 1)).expect("sent");
        subscriber.read_exact(&mut [0; 5]).expect("subscribed");
    }
    let stuck = subscribers.pop().expect("eight");
    let readers: Vec<_> = subscribers
        .into_iter()
        .map(|mut subscriber| {
            std::thread::spawn(move || {
                let (mut bytes, mut seen, mut at) = (Vec::new(), vec![0; PUBLISHERS], 0);
                let mut buffer = vec![0; 64 << 10];
                while seen.iter().sum::<usize>() < PUBLISHERS * EACH {
                    while let Some((packet, len)) = first(&bytes[at..]).expect("a packet") {
                        let Packet::Publish { publish, id } = packet else {
                            panic!("{packet:?}");
                        };
                        let of = usize::from(publish.payload[0]);
                        let n = u64::from_be_bytes(publish.payload[1..9].try_into().unwrap());
                        assert_eq!(n as usize, seen[of], "in order, and once");
                        seen[of] += 1;
                        let id = id.expect("QoS 1").to_be_bytes();
                        subscriber
                            .write_all(&[0x40, 2, id[0], id[1]])
                            .expect("sent");
                        at += len;
                    }
                    bytes.drain(..std::mem::take(&mut at));
                    if seen.iter().sum::<usize>() < PUBLISHERS * EACH {
                        let n = subscriber.read(&mut buffer).expect("more");
                        assert_ne!(n, 0);
                        bytes.extend(&buffer[..n]);
                    }
                }
            })
        })
        .collect();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|number| {
            let (mut publisher, mut other) = {
                let stream = join();
                (stream.try_clone().expect("a clone"), stream)
            };
            let acknowledged = std::thread::spawn(move || {
                let mut answers = vec![0; 4 * EACH];
                other
                    .read_exact(&mut answers)
                    .expect("all are acknowledged");
                let ids = answers.chunks(4).map(|a| u16::from_be_bytes([a[2], a[3]]));
                assert!(ids.eq(1..=EACH as u16));
            });
            std::thread::spawn(move || {
                let topic = format!("t/{number}");
                for n in 0..EACH {
                    let mut payload = vec![number as u8];
                    payload.extend((n as u64).to_be_bytes());
                    payload.resize(200, 7);
                    let packet = publish(&topic, &payload, false, Some(n as u16 + 1));
                    publisher.write_all(&packet).expect("sent");
                }
                acknowledged.join().expect("the reader");
            })
        })
        .collect();
    if patience.is_none() {
        // The stuck one holds back: publishers wait, and what is held is bounded.
        let waited = std::time::Instant::now();
        while running.counters().channels_full == 0 {
            assert!(
                waited.elapsed() < PATIENCE,
                "nothing holds the publishers back"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(running.counters().memory < 64 << 20);
        drop(stuck);
        publishers
            .into_iter()
            .for_each(|p| p.join().expect("a publisher"));
    } else {
        publishers
            .into_iter()
            .for_each(|p| p.join().expect("a publisher"));
        drop(stuck);
    }
    readers
        .into_iter()
        .for_each(|r| r.join().expect("a subscriber"));
    running.stop(Duration::ZERO);
}

#[test]
fn a_stuck_subscriber_is_cut() {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        flood(engine, Some(Duration::from_secs(1)));
    }
}

#[test]
fn a_stuck_subscriber_holds_publishers_back() {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        flood(engine, None);
    }
}

/// With Python's usual client, if it is installed.
#[test]
fn a_stock_client_publishes_and_subscribes() {
    let there = Command::new("python3")
        .args(["-c", "import paho.mqtt.client"])
        .output();
    if !there.is_ok_and(|output| output.status.success()) {
        return println!("skipped: `pip install paho-mqtt` brings the client");
    }
    let Some(serving) = Serving::start("mqtt", &["auto"]) else {
        return;
    };
    let at = serving.at.split(' ').next().unwrap_or_default().to_owned();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shared/mqtt_paho.py");
    let run = Command::new("python3")
        .args([script, &at])
        .output()
        .expect("python");
    let words = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{words}");
    serving.stop().expect("it ends in order");
}
