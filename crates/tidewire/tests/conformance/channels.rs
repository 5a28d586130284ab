//! Channels between connections: who finds no room is told when there is some, once and in turn, also by a receiver that goes;
//! within a loop, across loops, inside a layer, from a seed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidewire::channel::{self, Receiver, SendError, Sender};
use tidewire::{Closed, Input, Layered, Limits, Next, Peer};

use crate::case::{Case, case};
use crate::client::Client;
use crate::fixture::Setup;
use crate::hosting::host;
use crate::layers::{Inverts, inverted};
use crate::probe::{Context, Message, Probes, Role};
use crate::record::{Event, Record};
use crate::roles::noise;
use crate::variant::Variant;
use crate::world;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        case!(a_channel_paces_who_writes_to_a_slow_reader),
        case!(a_channel_paces_inside_a_layer),
        case!(senders_of_a_channel_are_told_in_turn),
        case!(a_receiver_that_has_gone_is_told_to_who_waits),
        case!(a_sender_that_has_gone_passes_its_place_on),
        case!(a_sender_that_finishes_passes_its_place_on),
        case!(a_channel_ends_with_its_last_sender),
    ]
}

const ROOM: u64 = 7;
const ITEMS: u64 = 8;

type Piece = Vec<u8>;

/// The first connection takes, all others send.
enum End {
    /// As much as its link takes; or, if it is asked to, one piece for each message.
    Takes {
        from: Receiver<Piece>,
        one_by_one: bool,
    },
    /// Pieces of its input, as long as there is room.
    Sends { to: Sender<Piece>, piece: usize },
}

use End::{Sends, Takes};

impl End {
    fn take(&mut self, cx: &mut Context<'_>, most: usize) {
        let Takes { from, .. } = self else { return };
        for _ in 0..most {
            if cx.link.full() {
                return;
            }
            match from.take() {
                Some(piece) => cx.link.write(&piece),
                None if from.is_over() => return cx.link.finish(),
                None => return,
            }
        }
    }

    fn goes_on(&mut self, cx: &mut Context<'_>) {
        let paced = matches!(
            self,
            Takes {
                one_by_one: false,
                ..
            }
        );
        self.take(cx, if paced { usize::MAX } else { 0 });
    }
}

impl Role for End {
    fn opened(&mut self, cx: &mut Context<'_>) {
        match self {
            Takes { from, .. } => from.notify(&cx.handle(), ITEMS),
            Sends { to, .. } => to.notify(&cx.handle(), ROOM),
        }
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Context<'_>) -> Next {
        let Sends { to, piece } = self else {
            input.consume(input.len());
            return Next::More;
        };
        while !input.is_empty() {
            let n = (*piece).min(input.len());
            match to.try_send(input.bytes()[..n].to_vec()) {
                Ok(()) => input.consume(n),
                Err(SendError::NoRoom(_)) => return Next::Paused,
                Err(SendError::Gone(_)) => {
                    input.consume(input.len());
                    cx.link.write(b"gone");
                    cx.link.finish();
                }
            }
        }
        Next::More
    }

    fn posted(&mut self, most: u64, cx: &mut Context<'_>) {
        self.take(cx, most as usize);
    }

    fn notified(&mut self, key: u64, cx: &mut Context<'_>) {
        match self {
            Takes { .. } => {
                assert_eq!(key, ITEMS);
                self.goes_on(cx);
            }
            Sends { .. } => {
                assert_eq!(key, ROOM);
                assert!(cx.link.paused(), "told without having waited");
                cx.link.resume();
            }
        }
    }

    fn hung_up(&mut self, cx: &mut Context<'_>) {
        cx.link.finish();
    }

    fn writable(&mut self, cx: &mut Context<'_>) {
        self.goes_on(cx);
    }
}

/// What makes the roles; the channel holds so many pieces.
fn makes(bound: usize, piece: usize, one_by_one: bool) -> impl Fn() -> End + Send + Sync + 'static {
    let (to, from) = channel::bounded(bound);
    let both = Mutex::new((Some(from), to));
    move || {
        let (from, to) = &mut *both.lock().expect("not poisoned");
        match from.take() {
            Some(from) => Takes { from, one_by_one },
            None => Sends {
                to: to.clone(),
                piece,
            },
        }
    }
}

fn opened(record: &Record, conns: u64) {
    record.until("all connections", |r| {
        (0..conns).all(|conn| r.has(conn, &Event::Opened))
    });
}

fn told(record: &Record) -> usize {
    record.lock().count(&Event::Notified(ROOM))
}

fn a_channel_paces_who_writes_to_a_slow_reader(v: Variant) {
    const ALL: usize = 3 << 20;
    const PIECE: usize = 4 << 10;
    const BOUND: usize = 4;
    let server = Setup::on(v)
        .small_buffers()
        .limits(|l| (l.output_low, l.output_high) = (8 << 10, 16 << 10))
        .start(makes(BOUND, PIECE, false));
    let mut reader = server.connect();
    opened(&server.record, 1);
    let writer = server.connect();
    opened(&server.record, 2);
    let sent = noise(3, ALL);
    let bytes = sent.clone();
    let mut half = writer;
    let sender = world::spawn(move || {
        half.send(&bytes);
        half
    });
    // Nothing is read yet: all that is between the two is full, and stays bounded.
    server.record.until("the channel to be full", |_| {
        server.counters().channels_full > 0
    });
    assert!(reader.take(ALL) == sent);
    let waits = server.counters().channels_full;
    assert!(waits > 0 && told(&server.record) as u64 <= waits);
    drop(sender.join().expect("the sender"));
    server.cut();
}

fn a_channel_paces_inside_a_layer(v: Variant) {
    const ALL: usize = 64 << 10;
    let record = Arc::<Record>::default();
    let make = makes(1, 1, false);
    let probes = Probes {
        record: record.clone(),
        make: Box::new(move |_: &Peer| Ok(Box::new(make()) as Box<dyn Role>)),
        woken: None,
        keep_handles: false,
    };
    let loops = host(v, Layered::new(Inverts, probes), Limits::default());
    let mut reader = loops.connect();
    opened(&record, 1);
    let mut writer = loops.connect();
    opened(&record, 2);
    let sent = noise(4, ALL);
    let bytes = inverted(&sent);
    let sender = world::spawn(move || {
        writer.send(&bytes);
        writer
    });
    assert!(reader.take(ALL) == inverted(&sent));
    assert!(told(&record) > 0);
    drop((sender.join().expect("the sender"), reader));
    record.until("both ends", |r| r.closed() == 2);
    loops.stop(Duration::from_secs(10));
    record.check();
}

/// Each of several that always have something is told as often as the others, and all together no more often than places
/// were freed.
fn senders_of_a_channel_are_told_in_turn(v: Variant) {
    const SENDERS: u64 = 4;
    const TAKEN: usize = 40;
    let server = Setup::on(v).reachable().start(makes(1, 1, true));
    let mut reader = server.connect();
    opened(&server.record, 1);
    let mut senders: Vec<Client> = Vec::new();
    for n in 1..=SENDERS {
        let mut sender = server.connect();
        opened(&server.record, n + 1);
        sender.send(&[b'0' + n as u8; 200]);
        senders.push(sender);
    }
    server.until("all to have found no room", |c| c.channels_full >= SENDERS);
    let taker = server.record.handle(0);
    let mut came = Vec::new();
    for n in 0..TAKEN {
        // A piece leaves, and the one that is told sends the next, and waits again.
        assert!(taker.try_post(Message::Note(1)).is_ok());
        came.extend(reader.take(1));
        server.until("the next to wait again", |c| {
            c.channels_full > SENDERS + n as u64
        });
    }
    assert!(told(&server.record) <= TAKEN);
    for n in 1..=SENDERS {
        let of = came[1..].iter().filter(|&&byte| byte == b'0' + n as u8);
        let (of, share) = (of.count(), (TAKEN - 1) / SENDERS as usize);
        assert!((share..=share + 1).contains(&of), "{n}: {of} of {came:?}");
    }
    server.cut();
}

fn a_receiver_that_has_gone_is_told_to_who_waits(v: Variant) {
    let server = Setup::on(v).reachable().start(makes(1, 1, true));
    let reader = server.connect();
    opened(&server.record, 1);
    let mut senders: Vec<Client> = (0..3).map(|_| server.connect()).collect();
    for sender in &mut senders {
        sender.send(b"abc");
    }
    server.until("all to wait", |c| c.channels_full >= 3);
    drop(reader);
    for mut sender in senders {
        sender.expect(b"gone");
        sender.expect_end();
    }
    server.cut();
}

fn a_sender_that_has_gone_passes_its_place_on(v: Variant) {
    let server = Setup::on(v).reachable().start(makes(1, 1, true));
    let mut reader = server.connect();
    opened(&server.record, 1);
    let mut senders = Vec::new();
    for (n, byte) in (2..).zip(b"abc") {
        let mut sender = server.connect();
        opened(&server.record, n);
        sender.send(&[*byte; 2]);
        // The first has put one piece there, and waits with its second.
        server.until("it to wait", |c| c.channels_full >= n - 1);
        senders.push(sender);
    }
    // The first of those that wait, and one behind it.
    drop(senders.remove(0));
    drop(senders.remove(0));
    assert_eq!(server.record.why_closed(1), Closed::Finished);
    assert_eq!(server.record.why_closed(2), Closed::Finished);
    let taker = server.record.handle(0);
    let mut come = |most| {
        assert!(taker.try_post(Message::Note(1)).is_ok());
        reader.take(most)
    };
    assert_eq!(come(1), b"a");
    server.until("the last one to send", |c| c.channels_full >= 4);
    assert_eq!(come(1), b"c");
    server.cut();
}

/// A connection that finishes is told nothing any more, and may linger for long.
fn a_sender_that_finishes_passes_its_place_on(v: Variant) {
    let server = Setup::on(v).reachable().start(makes(1, 1, true));
    let mut reader = server.connect();
    opened(&server.record, 1);
    let mut senders = Vec::new();
    for (n, byte) in (2..).zip(b"ab") {
        let mut sender = server.connect();
        opened(&server.record, n);
        sender.send(&[*byte; 2]);
        server.until("it to wait", |c| c.channels_full >= n - 1);
        senders.push(sender);
    }
    let finish = Message::run(|cx| cx.link.finish());
    assert!(server.record.handle(1).try_post(finish).is_ok());
    senders[0].expect_end();
    let taker = server.record.handle(0);
    for piece in [b"a", b"b"] {
        assert!(taker.try_post(Message::Note(1)).is_ok());
        assert_eq!(reader.take(1), piece);
        server.until("what is left to be sent", |c| c.channels_full >= 3);
    }
    assert_eq!(server.record.lock().closed(), 0, "it still lingers");
    server.cut();
}

fn a_channel_ends_with_its_last_sender(v: Variant) {
    let (to, from) = channel::bounded(8);
    let both = Mutex::new((Some(from), Some(to)));
    let server = Setup::on(v).start(move || {
        let (from, to) = &mut *both.lock().expect("not poisoned");
        match from.take() {
            Some(from) => Takes {
                from,
                one_by_one: false,
            },
            None => Sends {
                to: to.take().expect("two connections"),
                piece: 2,
            },
        }
    });
    let mut reader = server.connect();
    opened(&server.record, 1);
    let mut sender = server.connect();
    sender.send(b"the last words");
    sender.finish();
    reader.expect(b"the last words");
    reader.expect_end();
    drop((sender, reader));
    server.stop();
}
