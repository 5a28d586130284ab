//! Futures that dial, on simulated networks: what is dialled ends with its streams, and passes on what it should.

#![allow(
    clippy::disallowed_methods,
    reason = "what futures did is kept where the test sees it"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::AsyncWriteExt;
use futures_util::future::{Either, select};
use tidewire::sim::{Conditions, PlainState, ScriptedNames, Shape, Sim, for_each_seed};
use tidewire::{Dial, Endpoint, Limits, on_input};
use tidewire_async::{Stream, relay, serve};

async fn proxy(client: Stream, to: Endpoint) {
    match client.dial(Dial::to(to)).await {
        Ok(server) => drop(relay(&client, &server).await),
        Err(_) => client.abort(),
    }
}

fn proxy_to(sim: &mut Sim, to: &Endpoint, limits: Limits) -> Endpoint {
    let to = to.clone();
    sim.serve(serve(move |client| proxy(client, to.clone())), limits)
}

/// Marks that are reached soon.
fn small() -> Limits {
    Limits {
        output_low: 1_000,
        output_high: 4_000,
        ..Limits::default()
    }
}

#[test]
fn what_is_passed_on_is_whole_whatever_the_network_does() {
    for_each_seed(12, |seed| {
        let mut sim = Sim::new(seed);
        let echo = on_input(|input, link| link.forward_all(input));
        let server = sim.serve(echo, Limits::default());
        let at = proxy_to(&mut sim, &server, small());
        let clients: Vec<_> = (0..3).map(|_| sim.plain(&at)).collect();
        let sent: Vec<u8> = (0..9_000u32).map(|i| (i % 251) as u8).collect();
        for &client in &clients {
            sim.send(client, &sent);
            sim.finish(client);
        }
        let _ = sim.run_until_idle(Duration::from_secs(3600));
        for &client in &clients {
            assert!(
                sim.received(client) == sent,
                "{}",
                sim.received(client).len()
            );
            assert_eq!(sim.state(client), PlainState::Ended);
        }
        Ok::<(), String>(())
    });
}

#[test]
fn resets_and_half_closes_are_passed_on() {
    for shape in [Shape::Readiness, Shape::Completion, Shape::Threads] {
        let mut sim = Sim::under(7, Conditions::calm());
        sim.shape(shape);
        let listener = sim.plain_listener("192.0.2.1:7", 16);
        let to = "192.0.2.1:7".parse().unwrap();
        let at = proxy_to(&mut sim, &to, Limits::default());
        let second = Duration::from_secs(1);
        let pair = |sim: &mut Sim| {
            let client = sim.plain(&at);
            sim.run_for(second);
            let (server, _) = sim.accept(listener).expect("dialled");
            (client, server)
        };
        for client_first in [true, false] {
            let (client, server) = pair(&mut sim);
            let (first, other) = match client_first {
                true => (client, server),
                false => (server, client),
            };
            sim.send(first, b"last words");
            sim.finish(first);
            sim.run_for(second);
            assert_eq!(sim.received(other), b"last words");
            // An end has come through, and the other direction goes on.
            sim.send(other, b"an answer");
            sim.run_for(second);
            assert_eq!(sim.received(first), b"an answer");
            sim.close(other, true);
            sim.run_for(second);
            assert!(
                matches!(sim.state(first), PlainState::Failed(_)),
                "{shape:?}"
            );

            let (client, server) = pair(&mut sim);
            let (first, other) = match client_first {
                true => (client, server),
                false => (server, client),
            };
            sim.close(first, true);
            sim.run_for(second);
            assert!(
                matches!(sim.state(other), PlainState::Failed(_)),
                "{shape:?}"
            );
        }
    }
}

/// Dropping a dial's future, or the connection it belongs to, leaves neither a question nor a connection.
#[test]
fn a_dial_that_is_dropped_is_given_up() {
    let mut sim = Sim::under(7, Conditions::calm());
    let names = ScriptedNames::default();
    names.hold("one.test");
    sim.resolver(names.clone());
    let at = sim.add_loop();
    let impatient = serve(|mut client: Stream| async move {
        let dialling = Box::pin(client.dial(Dial::to("one.test:7")));
        let sleep = client.clock().sleep(Duration::from_secs(2));
        let is_late = matches!(select(dialling, sleep).await, Either::Right(_));
        if is_late {
            let _ = client.write_all(b"too late").await;
            client.clock().sleep(Duration::from_secs(5)).await;
        }
    });
    let service = sim.service(at, impatient, Limits::default());
    let addr = sim.listen(service);
    let client = sim.plain(&addr);
    sim.run_for(Duration::from_secs(1));
    let lookup = names.held().pop().expect("asked");
    assert!(lookup.is_wanted());
    sim.run_for(Duration::from_secs(2));
    assert_eq!(sim.received(client), b"too late");
    assert!(!lookup.is_wanted());
    assert_eq!(sim.counters(at).dial_failures, 1);
    drop(lookup);

    let client = sim.plain(&addr);
    sim.run_for(Duration::from_secs(1));
    sim.close(client, true);
    sim.run_for(Duration::from_millis(500));
    assert!(!names.held().pop().expect("asked").is_wanted());
    sim.run_for(Duration::from_secs(10));
    assert_eq!(
        (sim.counters(at).dial_failures, sim.counters(at).open),
        (2, 0)
    );
}

#[test]
fn a_dialled_connection_ends_with_its_streams() {
    let mut sim = Sim::under(7, Conditions::calm());
    let listener = sim.plain_listener("192.0.2.1:7", 16);
    let errors = Arc::new(Mutex::new(Vec::new()));
    let seen = errors.clone();
    let addr = sim.serve(
        serve(move |client: Stream| {
            let seen = seen.clone();
            async move {
                let mut server = client.dial(Dial::to("192.0.2.1:7")).await.unwrap();
                let second = server.clone();
                server.write_all(b"hello").await.unwrap();
                drop(server);
                client.clock().sleep(Duration::from_secs(2)).await;
                drop(second); // and everything was sent
                client.clock().sleep(Duration::from_secs(2)).await;
                let refused = client.dial(Dial::to("192.0.2.9:7")).await;
                seen.lock().unwrap().push(refused.unwrap_err().kind());
            }
        }),
        Limits::default(),
    );
    let client = sim.plain(addr);
    sim.run_for(Duration::from_secs(1));
    let (server, _) = sim.accept(listener).expect("dialled");
    assert_eq!(
        (sim.received(server), sim.state(server)),
        (&b"hello"[..], PlainState::Open)
    );
    sim.run_for(Duration::from_secs(2));
    assert_eq!(sim.state(server), PlainState::Ended);
    sim.run_for(Duration::from_secs(30));
    assert_eq!(sim.state(client), PlainState::Ended);
    let refused = std::io::ErrorKind::ConnectionRefused;
    assert_eq!(*errors.lock().unwrap(), [refused]);
}

/// What waits for a connection that fails is woken, also where it only writes.
#[test]
fn a_relay_hears_of_a_failure_behind_an_end() {
    let mut sim = Sim::under(7, Conditions::calm());
    let listener = sim.plain_listener("192.0.2.1:7", 16);
    let to: Endpoint = "192.0.2.1:7".parse().unwrap();
    let at = sim.add_loop();
    let service = serve(move |client| proxy(client, Endpoint::clone(&to)));
    let service = sim.service(at, service, Limits::default());
    let addr = sim.listen(service);
    let client = sim.plain(addr);
    sim.run_for(Duration::from_secs(1));
    let (server, _) = sim.accept(listener).expect("dialled");
    sim.finish(server);
    sim.run_for(Duration::from_secs(1));
    sim.send(client, b"is taken");
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.received(server), b"is taken");
    sim.close(server, true);
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.counters(at).open, 0, "the client hears of it");
}
