//! A dial may be asked for in any callback: it is made, or `dial_failed` is called, also where nothing else is due
//! afterwards. (From `opened`, `received`, `expired` and `closed`, and of services: see `partners`.)

use std::time::Duration;

use tidewire::{Dial, Input, Next};

use crate::case::{Case, case};
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::roles::echo;
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(dial_from_posted),
        case!(dial_from_writable),
        case!(dial_from_peer_finished),
        case!(dial_from_hung_up),
        case!(dial_from_idle),
        case!(dial_from_draining),
        case!(dial_from_woken),
    ]
}

const POSTED: u64 = 1;
const WRITABLE: u64 = 2;
const FINISHED: u64 = 3;
const HUNG_UP: u64 = 4;
const IDLE: u64 = 5;
const DRAINING: u64 = 6;
const WOKEN: u64 = 7;

/// Fails at once, on every kernel.
fn nowhere(token: u64) -> Dial {
    Dial::to("nowhere").token(token)
}

struct Dials;

impl Role for Dials {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        match input.bytes()[0] {
            b'w' => cx.link.write(&vec![b'.'; MUCH]),
            b'p' => {
                cx.link.write(b"ok");
                input.consume(1);
                return Next::Paused;
            }
            _ => return echo(input, cx),
        }
        input.consume(input.len());
        Next::More
    }
    fn writable(&mut self, cx: &mut Context<'_>) {
        cx.dial(nowhere(WRITABLE));
    }
    fn peer_finished(&mut self, _: usize, cx: &mut Context<'_>) {
        cx.dial(nowhere(FINISHED));
        cx.link.finish();
    }
    fn hung_up(&mut self, cx: &mut Context<'_>) {
        cx.dial(nowhere(HUNG_UP));
    }
    fn idle(&mut self, cx: &mut Context<'_>) {
        cx.dial(nowhere(IDLE));
        cx.link.finish();
    }
    fn posted(&mut self, _: u64, cx: &mut Context<'_>) {
        cx.dial(nowhere(POSTED));
    }
    fn draining(&mut self, cx: &mut Context<'_>) {
        cx.dial(nowhere(DRAINING));
        cx.link.finish();
    }
}

/// More than the high mark.
const MUCH: usize = 1 << 20;

fn server(v: Variant) -> Server {
    let woken = |_: &mut _, all: &mut tidewire::Conns<'_, _>| all.dial(nowhere(WOKEN));
    let setup = Setup::on(v).limits(|l| l.idle = None).reachable();
    setup.woken(woken).start(|| Dials)
}

fn told(server: &Server, token: u64) {
    let failed = |token| move |(failed, _): &(u64, String)| *failed == token;
    let once = |all: &[(u64, String)]| all.iter().any(failed(token));
    server
        .record
        .until("`dial_failed`", |inner| once(&inner.dials_failed));
}

fn dial_from_posted(v: Variant) {
    let server = server(v);
    let client = server.connect();
    let handle = server.record.handle(0);
    assert!(handle.try_post(Message::Note(0)).is_ok());
    told(&server, POSTED);
    drop(client);
    server.stop();
}

fn dial_from_writable(v: Variant) {
    let server = server(v);
    let mut client = server.connect();
    client.send(b"w");
    client.expect(&vec![b'.'; MUCH]);
    told(&server, WRITABLE);
    drop(client);
    server.stop();
}

fn dial_from_peer_finished(v: Variant) {
    let server = server(v);
    let mut client = server.connect();
    client.finish();
    client.expect_end();
    told(&server, FINISHED);
    server.stop();
}

fn dial_from_hung_up(v: Variant) {
    let server = server(v);
    let mut client = server.connect();
    client.send(b"px");
    client.expect(b"ok");
    client.finish();
    told(&server, HUNG_UP);
    drop(client);
    server.cut();
}

fn dial_from_idle(v: Variant) {
    let limit = Some(Duration::from_millis(40));
    let server = Setup::on(v).limits(|l| l.idle = limit).start(|| Dials);
    let mut client = server.connect();
    client.expect_end();
    told(&server, IDLE);
    server.stop();
}

/// A stop dials no address any more, and says so.
fn dial_from_draining(v: Variant) {
    let server = server(v);
    let mut client = server.connect();
    client.send(b"x");
    client.expect(b"x");
    let end = crate::world::spawn(move || client.expect_end());
    let counters = server.stop();
    end.join().expect("an orderly end");
    assert_eq!(counters.dial_failures, 1, "{counters}");
}

fn dial_from_woken(v: Variant) {
    let server = server(v);
    let client = server.connect();
    server.record.handle(0);
    let loops = server.record.lock().loops.clone();
    loops.iter().for_each(|l| l.signal());
    told(&server, WOKEN);
    drop(client);
    server.cut();
}
