//! Messages are not cut without need: what is there when a turn looks at a connection is one chunk, and what one callback has
//! written leaves by one send. Counted in chunks and calls, with the loop held up until a message is there.

use std::os::fd::AsRawFd;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use tidewire::bytes::Bytes;
use tidewire::{Input, Next};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::{Server, Setup};
use crate::probe::{Context, Message, Role};
use crate::record::{Event, Record};
use crate::roles::{Receives, echo, noise};
use crate::variant::Variant;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(messages_arrive_and_leave_in_one_piece),
        case!(a_message_that_is_there_costs_one_receive),
        case!(a_reply_of_many_slices_arrives_in_one_piece),
        case!(
            messages_arrive_in_one_piece_where_buffers_are_few,
            on = |v| v.loops == 1 && !v.is_threads()
        ),
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

pub(crate) type Chunks = Arc<Mutex<Vec<usize>>>;

/// Sends back what it gets, and notes how long each chunk of it was.
pub(crate) struct Notes(pub(crate) Chunks);

impl Role for Notes {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        self.0.lock().expect("not poisoned").push(input.len());
        echo(input, cx)
    }
}

/// With several loops, the one that is told of a later connection may be the first to take one in.
fn opened(server: &Server, conn: u64) {
    let record = &server.record;
    record.until("the connection", |r| r.has(conn, &Event::Opened));
}

/// Keeps the loop of this connection in a callback until what is returned is dropped.
fn hold(server: &Server, conn: u64) -> Sender<()> {
    opened(server, conn);
    hold_loop_of(&server.record, conn)
}

/// Holds the loop of a connection of any service with this record.
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

/// No receive finds out in vain that there is no more, up to 64 KiB and what frames them.
fn a_message_that_is_there_costs_one_receive(v: Variant) {
    const LEARNING: usize = 4;
    const COUNTED: u64 = 8;
    let chunks = Chunks::default();
    let server = Setup::on(v)
        .reachable()
        .start(move || Notes(chunks.clone()));
    for (conn, length) in [700, 4096, 40_000, 65_535, 65_536, 65_800]
        .into_iter()
        .enumerate()
    {
        let mut client = server.connect();
        opened(&server, conn as u64);
        let message = noise(7, length);
        let mut receives = 0;
        for n in 0..=LEARNING + COUNTED as usize {
            // Whatever the message before has cost is counted by then.
            let release = hold(&server, conn as u64);
            if n == LEARNING {
                receives = server.counters().receives;
            }
            if n == LEARNING + COUNTED as usize {
                // One for each, but where the kernel let a part of a message come late; in vain it would be two.
                let received = server.counters().receives - receives;
                let few_late = COUNTED..=COUNTED + COUNTED / 2;
                assert!(few_late.contains(&received), "{length} bytes: {received}");
            }
            client.send(&message);
            drop(release);
            client.expect(&message);
        }
    }
    server.cut();
}

/// Segments with data that have come in: `tcpi_data_segs_in` of `TCP_INFO`.
fn segments_in(client: &Client) -> u32 {
    const AT: usize = 152;
    let mut info = [0u8; 256];
    let mut len = info.len() as libc::socklen_t;
    let (fd, info_at) = (client.socket().as_raw_fd(), info.as_mut_ptr().cast());
    // SAFETY: the kernel writes at most `len` bytes to `info`.
    let got = unsafe {
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(fd, level, name, info_at, &raw mut len)
    };
    assert!(got == 0 && len as usize >= AT + 4, "no TCP_INFO");
    u32::from_ne_bytes(info[AT..AT + 4].try_into().expect("four bytes"))
}

/// A reply of more slices than one call takes, and less than a segment, is one segment.
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
    for n in 0..20 {
        client.send(b"?");
        client.take(SLICES * SLICE.len());
        assert_eq!(segments_in(&client), n + 1);
    }
    drop(client);
    server.stop();
}

/// Many new clients that each say more than a small buffer holds, all before the loop looks, and few buffers of a chunk for
/// what is put together.
fn messages_arrive_in_one_piece_where_buffers_are_few(v: Variant) {
    const CLIENTS: usize = 40;
    const BUFFERS: usize = 8;
    for length in [5000, 25_000, 60_000] {
        let chunks = Chunks::default();
        let theirs = chunks.clone();
        let server = Setup::on(v)
            .reachable()
            .buffers(BUFFERS)
            .start(move || Notes(theirs.clone()));
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
        (0..CLIENTS as u64).for_each(|conn| opened(&server, conn));
        let message = noise(7, length);
        let release = hold(&server, 0);
        clients.iter_mut().for_each(|client| client.send(&message));
        drop(release);
        clients
            .iter_mut()
            .for_each(|client| client.expect(&message));
        let came = std::mem::take(&mut *chunks.lock().expect("not poisoned"));
        assert_eq!(came, [length; CLIENTS]);
        drop(clients);
        server.cut();
    }
}

/// All ask before the loop looks: what it sends in a turn ends within a reply.
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
