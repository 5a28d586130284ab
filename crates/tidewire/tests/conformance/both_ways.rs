//! A connection that always has something to write reads all the same, one that always has
//! something to read writes, and neither goes on without bound where the peer does not do its part.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tidewire::{Input, Layered, Limits, Next, Peer};

use crate::case::{Case, case};
use crate::client::{Client, PATIENCE};
use crate::fixture::{Server, Setup};
use crate::hosting::host;
use crate::layers::{Inverts, inverted};
use crate::probe::{Context, Probes, Role};
use crate::record::{Event, Record};
use crate::shares::all_at_once;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_constant_writer_reads_all_the_same),
        case!(several_constant_writers_read_all_the_same),
        case!(a_constant_writer_inside_a_layer_reads_all_the_same),
        case!(a_constant_writer_hears_the_end),
        case!(a_constant_writer_takes_a_flood),
        case!(a_constant_reader_writes_all_the_same),
        case!(little_is_kept_of_what_waits_for_a_turn),
        case!(a_connection_that_takes_no_input_is_not_read_from),
        case!(a_constant_writer_hears_a_stop),
    ]
}

/// What is written at once; more than what does not count for a turn.
const PIECE: usize = 20 << 10;
/// What each peer sends. It fits into the kernel's buffers.
const INPUT: usize = 48 << 10;
/// What a connection has written at the most when it has not seen all that had come before it
/// began. It must be less than what kernels take of us without a pause, because a connection whose
/// output is not taken reads in any case.
const EARLY: usize = 1 << 20;
/// What is written at the most, so that a case that fails ends.
const MOST: usize = 64 << 20;

/// Looks away from the first byte on. Shown it again, writes whenever its link has room, to the end of the case; takes all that it is
/// sent, and says goodbye when that is all.
struct Fountain {
    flows: bool,
    seen: usize,
    made: usize,
    /// Sums of all connections, of what was seen by connections that have seen all, and of what
    /// they had written then.
    done: Arc<Done>,
}

#[derive(Default)]
struct Done {
    seen: AtomicUsize,
    made: AtomicUsize,
}

impl Fountain {
    fn new(done: &Arc<Done>) -> Fountain {
        Fountain {
            flows: false,
            seen: 0,
            made: 0,
            done: done.clone(),
        }
    }

    fn pour(&mut self, cx: &mut Context<'_>) {
        while self.flows && !cx.link.full() {
            if self.made >= MOST {
                return cx.link.abort();
            }
            cx.link.write(&[7; PIECE]);
            self.made += PIECE;
        }
    }
}

impl Role for Fountain {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        if !std::mem::replace(&mut self.flows, true) {
            return Next::Paused;
        }
        self.seen += input.len();
        input.consume(input.len());
        if self.seen == INPUT {
            self.done.seen.fetch_add(self.seen, SeqCst);
            self.done.made.fetch_add(self.made, SeqCst);
            cx.link.finish();
        }
        self.pour(cx);
        Next::More
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        self.pour(cx);
    }

    fn peer_finished(&mut self, _unread: usize, cx: &mut Context<'_>) {
        self.done.made.fetch_add(self.made, SeqCst);
        cx.link.finish();
    }
}

/// Reads to the end, whatever that is.
fn drain(mut client: Client) {
    let mut buffer = vec![0; 1 << 20];
    while let Ok(1..) = std::io::Read::read(&mut client, &mut buffer) {}
}

/// These connections have sent all that they have to send while the server looked away. Begins the writing of all in one turn, and
/// reads it.
fn pours(clients: Vec<Client>, record: &Record) {
    let begun = clients.len();
    let readers: Vec<_> = clients
        .into_iter()
        .map(|client| world::spawn(move || drain(client)))
        .collect();
    all_at_once(record, begun, |cx| cx.link.resume());
    for reader in readers {
        reader.join().expect("a reader");
    }
}

impl Done {
    fn check(&self, connections: usize) {
        let (seen, made) = (self.seen.load(SeqCst), self.made.load(SeqCst));
        assert_eq!(seen, connections * INPUT, "not all of it was read");
        assert!(
            made <= connections * EARLY,
            "{made} bytes were written first"
        );
    }
}

fn fountains(v: Variant, done: &Arc<Done>) -> Server {
    let theirs = done.clone();
    Setup::on(v)
        .reachable()
        .large_buffers()
        .start(move || Fountain::new(&theirs))
}

/// A connection of which the server has seen a byte, and more than which it does not want to see yet.
fn connects(server: &Server, number: u64) -> Client {
    let mut client = server.connect();
    client.send(&[1]);
    server.until("the first byte", |c| c.bytes_in > number);
    client
}

fn reads_all_the_same(v: Variant, connections: usize) {
    let done = Arc::<Done>::default();
    let server = fountains(v, &done);
    let mut clients: Vec<Client> = (0..connections as u64)
        .map(|number| connects(&server, number))
        .collect();
    for client in &mut clients {
        client.send(&[1; INPUT - 1]);
    }
    pours(clients, &server.record);
    done.check(connections);
    server.cut();
}

fn a_constant_writer_reads_all_the_same(v: Variant) {
    reads_all_the_same(v, 1);
}

fn several_constant_writers_read_all_the_same(v: Variant) {
    reads_all_the_same(v, 6);
}

fn a_constant_writer_inside_a_layer_reads_all_the_same(v: Variant) {
    const CONNECTIONS: usize = 3;
    let done = Arc::<Done>::default();
    let theirs = done.clone();
    let record = Arc::<Record>::default();
    let probes = Probes {
        record: record.clone(),
        make: Box::new(move |_: &Peer| Ok(Box::new(Fountain::new(&theirs)) as Box<dyn Role>)),
        woken: None,
        keep_handles: true,
    };
    let loops = host(v, Layered::new(Inverts, probes), Limits::default());
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS as u64 {
        let mut client = loops.connect();
        client.send(&inverted(&[1]));
        record.until("the first byte", |_| loops.counters().bytes_in > number);
        clients.push(client);
    }
    for client in &mut clients {
        client.send(&inverted(&[1; INPUT - 1]));
    }
    pours(clients, &record);
    done.check(CONNECTIONS);
    loops.stop(Duration::ZERO);
    record.check();
}

fn a_constant_writer_hears_the_end(v: Variant) {
    let done = Arc::<Done>::default();
    let server = fountains(v, &done);
    let client = connects(&server, 0);
    client.finish();
    server
        .record
        .until("the hang-up", |r| r.has(0, &Event::HungUp));
    pours(vec![client], &server.record);
    assert!(server.record.lock().has(0, &Event::PeerFinished(0)));
    let made = done.made.load(SeqCst);
    assert!(made <= EARLY, "{made} bytes were written first");
    server.cut();
}

/// More than any kernel keeps, so that it is taken while the other side writes or not at all.
fn a_constant_writer_takes_a_flood(v: Variant) {
    const FLOOD: usize = 12 << 20;
    let server = Setup::on(v).start(|| Until { left: FLOOD });
    let mut client = server.connect();
    let mut writer = client.second();
    let flood = world::spawn(move || writer.send(&vec![1; FLOOD]));
    let mut buffer = vec![0; 1 << 20];
    while std::io::Read::read(&mut client, &mut buffer).expect("what is written") > 0 {}
    flood.join().expect("the flood");
    drop(client);
    server.stop();
}

/// Writes whenever its link has room, until it has been sent so much.
struct Until {
    left: usize,
}

impl Role for Until {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        self.left -= input.len();
        input.consume(input.len());
        match self.left {
            0 => cx.link.finish(),
            _ => self.writable(cx),
        }
        Next::More
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        while !cx.link.full() {
            cx.link.write(&[7; PIECE]);
        }
    }
}

/// Takes all that comes, and writes so much meanwhile.
struct Talks {
    left: usize,
}

impl Talks {
    fn go_on(&mut self, cx: &mut Context<'_>) {
        while self.left > 0 && !cx.link.full() {
            let n = self.left.min(PIECE);
            cx.link.write(&vec![7; n]);
            self.left -= n;
        }
    }
}

impl Role for Talks {
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        input.consume(input.len());
        self.go_on(cx);
        Next::More
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        self.go_on(cx);
    }
}

/// The flood ends when all that is written has come, and not before.
fn a_constant_reader_writes_all_the_same(v: Variant) {
    const OUTPUT: usize = 8 << 20;
    let server = Setup::on(v).start(|| Talks { left: OUTPUT });
    let mut client = server.connect();
    let mut writer = client.second();
    let over = Arc::<AtomicBool>::default();
    let theirs = over.clone();
    let flood = world::spawn(move || {
        let piece = vec![1; 256 << 10];
        while !theirs.load(SeqCst) {
            writer.send(&piece);
        }
    });
    assert!(client.take(OUTPUT).iter().all(|&byte| byte == 7));
    over.store(true, SeqCst);
    flood.join().expect("the flood");
    client.finish();
    client.expect_end();
    server.stop();
}

/// Writes whenever its link has room, takes what it is offered if it takes any, and notes how much that was at the most.
struct Gushes {
    refuses: bool,
    most: Arc<AtomicUsize>,
}

impl Role for Gushes {
    fn opened(&mut self, cx: &mut Context<'_>) {
        self.writable(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        self.most.fetch_max(input.len(), SeqCst);
        if self.refuses && cx.link.full() {
            return Next::AfterDrain;
        }
        input.consume(input.len());
        self.writable(cx);
        Next::More
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        while !cx.link.full() {
            cx.link.write(&[7; PIECE]);
        }
    }
}

/// What is kept of a connection's input is no more than a chunk and, on a ring, what its small buffers hold.
const KEPT: usize = 384 << 10;

/// Many connections flood the server, and read so much of what it writes through many turns: the bytes that it has received by then.
fn gushes(v: Variant, refuses: bool) -> usize {
    const OUTPUT: usize = 2 << 20;
    let most = Arc::<AtomicUsize>::default();
    let theirs = most.clone();
    let make = move || Gushes {
        refuses,
        most: theirs.clone(),
    };
    let server = Setup::on(v).buffers(8).start(make);
    let mut clients: Vec<Client> = (0..GUSHING).map(|_| server.connect()).collect();
    let floods: Vec<_> = clients
        .iter()
        .map(|client| {
            let mut writer = client.second();
            world::spawn(move || while writer.try_send(&[1; 64 << 10]) {})
        })
        .collect();
    for client in &mut clients {
        client.take(OUTPUT);
    }
    let received = server.counters().bytes_in as usize;
    server.cut();
    for flood in floods {
        flood.join().expect("a flood that ends with its connection");
    }
    let most = most.load(SeqCst);
    assert!(most <= KEPT, "{most} bytes were kept");
    received
}

/// Enough connections that they wait for several turns.
const GUSHING: usize = 12;

fn little_is_kept_of_what_waits_for_a_turn(v: Variant) {
    gushes(v, false);
}

fn a_connection_that_takes_no_input_is_not_read_from(v: Variant) {
    let received = gushes(v, true);
    assert!(received <= GUSHING * KEPT, "{received} bytes");
}

/// Whatever comes meanwhile, it is told, and so ends in order before the stop's deadline cuts it.
fn a_constant_writer_hears_a_stop(v: Variant) {
    const CONNECTIONS: usize = 6;
    let make = || Gushes {
        refuses: false,
        most: Arc::default(),
    };
    let server = Setup::on(v).start(make);
    let others: Vec<_> = (0..CONNECTIONS)
        .flat_map(|_| {
            let client = server.connect();
            let mut writer = client.second();
            let over = Arc::<AtomicBool>::default();
            let theirs = over.clone();
            let writes = world::spawn(move || {
                while !theirs.load(SeqCst) && writer.try_send(&[1; 16 << 10]) {}
                writer.try_finish();
            });
            let reads = world::spawn(move || {
                drain(client);
                over.store(true, SeqCst);
            });
            [writes, reads]
        })
        .collect();
    server.until("all of them", |c| c.bytes_out > 8 << 20);
    let record = server.record.clone();
    let counters = server.stop_within(PATIENCE);
    assert_eq!(record.lock().count(&Event::Draining), CONNECTIONS);
    assert_eq!(counters.cut_unsent, 0);
    for other in others {
        other.join().expect("its connection has ended");
    }
}
