//! Messages are not cut without need: what is there when a turn looks at a connection is one chunk, and what one callback has
//! written leaves by one send. Counted in chunks and calls, with the loop held up until a message is there.

use std::io::Read;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use tidewire::bytes::Bytes;
use tidewire::{Input, Next};

use crate::case::{Case, case};
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::record::{Event, Record};
use crate::roles::{Receives, echo, noise};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(messages_arrive_and_leave_in_one_piece),
        case!(a_reply_of_many_slices_arrives_in_one_piece),
        case!(
            many_replies_of_one_turn_leave_in_one_piece_each,
            on = |v| v.loops == 1 && !v.is_threads()
        ),
    ]
}

/// Around the sizes of receive buffers, and far from them.
const LENGTHS: [usize; 14] = [
    1, 700, 4095, 4096, 4097, 5000, 8191, 8193, 12_345, 20_000, 25_000, 40_000, 60_000, 65_536,
];

type Chunks = Arc<Mutex<Vec<usize>>>;

/// Sends back what it gets, and notes how long each chunk of it was.
struct Notes(Chunks);

impl Role for Notes {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        self.0.lock().expect("not poisoned").push(input.len());
        echo(input, cx)
    }
}

/// Of several loops, the one that is told of a later connection may be the first to take one in.
fn opened(server: &Server, conn: u64) {
    let record = &server.record;
    record.until("the connection", |r| r.has(conn, &Event::Opened));
}

/// Keeps the loop of this connection in a callback until what is returned is dropped.
fn hold(server: &Server, conn: u64) -> Sender<()> {
    opened(server, conn);
    hold_loop_of(&server.record, conn)
}

/// The same of whatever service has this record.
pub(crate) fn hold_loop_of(record: &Record, conn: u64) -> Sender<()> {
    let (release, released) = channel::<()>();
    let (holds, held) = channel();
    let message = Message::run(move |_| {
        let _ = holds.send(());
        let _ = released.recv();
    });
    assert!(record.handle(conn).try_post(message).is_ok());
    held.recv().expect("the loop runs");
    release
}

fn messages_arrive_and_leave_in_one_piece(v: Variant) {
    let chunks = Chunks::default();
    let theirs = chunks.clone();
    let server = Setup::on(v)
        .reachable()
        .start(move || Notes(theirs.clone()));
    // Each length by a new connection, which knows nothing of its peer, and by one that has seen others.
    let mut conns = 0;
    let mut old = server.connect();
    opened(&server, conns);
    for length in LENGTHS {
        let message = noise(length as u64, length);
        for is_new in [true, false] {
            let mut new = (is_new).then(|| {
                conns += 1;
                server.connect()
            });
            let conn = if is_new { conns } else { 0 };
            let client = new.as_mut().unwrap_or(&mut old);
            // Twice: with what it has learned of the first.
            for _ in 0..2 {
                let release = hold(&server, conn);
                let sends = server.counters().sends;
                client.send(&message);
                drop(release);
                client.expect(&message);
                let came = std::mem::take(&mut *chunks.lock().expect("not poisoned"));
                assert_eq!(came, [length], "new: {is_new}");
                server.until("the send to be counted", |c| c.sends > sends);
                assert_eq!(
                    server.counters().sends - sends,
                    1,
                    "{length}, new: {is_new}"
                );
            }
        }
    }
    drop(old);
    server.cut();
}

/// Of more slices than one call takes, and less than a segment: the client's first look finds all of it.
fn a_reply_of_many_slices_arrives_in_one_piece(v: Variant) {
    const SLICES: usize = 100;
    const SLICE: &[u8] = &[7; 300];
    let server = Setup::on(v).start(|| {
        Receives(|input: &mut Input<'_>, cx: &mut Context<'_>| {
            input.consume(input.len());
            for _ in 0..SLICES {
                cx.link.write_shared(Bytes::from_static(SLICE));
            }
            Next::More
        })
    });
    let mut client = server.connect();
    for _ in 0..200 {
        client.send(b"?");
        let mut reply = vec![0; 1 << 20];
        let came = client.socket().read(&mut reply).expect("a reply");
        assert_eq!(came, SLICES * SLICE.len());
    }
    drop(client);
    server.stop();
}

/// All ask before the loop looks: what it sends in a turn ends within somebody's reply.
fn many_replies_of_one_turn_leave_in_one_piece_each(v: Variant) {
    const CLIENTS: usize = 50;
    let chunks = Chunks::default();
    let theirs = chunks.clone();
    let server = Setup::on(v)
        .reachable()
        .start(move || Notes(theirs.clone()));
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    for length in [5000, 25_000, 60_000] {
        let message = noise(7, length);
        for _ in 0..4 {
            let release = hold(&server, 0);
            let sends = server.counters().sends;
            clients.iter_mut().for_each(|client| client.send(&message));
            drop(release);
            clients
                .iter_mut()
                .for_each(|client| client.expect(&message));
            let came = std::mem::take(&mut *chunks.lock().expect("not poisoned"));
            assert_eq!(came, [length; CLIENTS]);
            server.until("the sends to be counted", |c| {
                c.sends - sends >= CLIENTS as u64
            });
            assert_eq!(server.counters().sends - sends, CLIENTS as u64, "{length}");
        }
    }
    drop(clients);
    server.cut();
}
