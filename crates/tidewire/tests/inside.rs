//! A server is stopped, dropped and waited for inside its own callbacks: the call returns, and the loops end.
#![allow(clippy::disallowed_methods, reason = "the clients are plain sockets")]

#[path = "shared/every_engine.rs"]
mod every_engine;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use every_engine::on_every_engine;
use tidewire::{Builder, Cx, Input, Next, Protocol, Running, Waiter, service_fn};

const PATIENCE: Duration = Duration::from_secs(30);

type Shared = Arc<Mutex<Option<Running>>>;
type Act = fn(Running) -> String;

/// Does something with the server that it is part of, at the first byte; then answers with that byte.
struct Acts {
    running: Shared,
    act: Act,
    said: Sender<String>,
}

impl Protocol for Acts {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let running = self.running.lock().unwrap().take();
        if let Some(running) = running {
            self.said.send((self.act)(running)).unwrap();
        }
        cx.link.forward_all(input)
    }
}

/// On every engine: the server does `act` in a callback, which says `expected`, and then ends; in order if it `answers`.
fn inside(act: Act, answers: bool, expected: &str) {
    let running = Shared::default();
    let (said, says) = channel();
    let theirs = running.clone();
    let build = move |builder: &mut Builder| {
        let (running, said) = (theirs.clone(), said.clone());
        let acts = move |_: &tidewire::Peer| Acts {
            running: running.clone(),
            act,
            said: said.clone(),
        };
        builder.serve("127.0.0.1:0", service_fn(acts));
    };
    on_every_engine(build, |started| {
        let engine = started.engine();
        let waiter: Waiter = started.waiter();
        let at = started.addrs()[0].tcp().unwrap();
        *running.lock().unwrap() = Some(started);
        let mut client = TcpStream::connect(at).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(b"x").unwrap();
        let said = says.recv_timeout(PATIENCE).expect("the call returns");
        assert_eq!(said, expected, "{engine}");
        let mut back = Vec::new();
        let end = client.read_to_end(&mut back);
        assert!(!answers || end.is_ok() && back == b"x", "{engine}: {end:?}");
        drop(client);
        assert_eq!(waiter.wait_for(PATIENCE), Some(Ok(())), "{engine}");
    });
}

#[test]
fn a_stop_inside_a_callback_returns_and_is_graceful() {
    inside(
        |running| running.stop(PATIENCE).accepted.to_string(),
        true,
        "1",
    );
}

#[test]
fn a_server_may_be_dropped_inside_a_callback() {
    fn dropped(running: Running) -> String {
        drop(running);
        "dropped".into()
    }
    inside(dropped, false, "dropped");
}

#[test]
fn a_wait_inside_a_callback_says_what_is_wrong() {
    fn waits(running: Running) -> String {
        let why = running.wait().unwrap_err();
        assert_eq!(running.waiter().wait_for(PATIENCE), None);
        let drain = running.drain(PATIENCE);
        assert!(!drain.wait_for(PATIENCE));
        drain.wait();
        why.to_string().split_once(" cannot ").unwrap().1.to_owned()
    }
    inside(
        waits,
        true,
        "be waited for: this is one of its own callbacks",
    );
}
