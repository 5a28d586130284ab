//! Readers of the native protocol on the simulated network: what they get, in what order, and what
//! they cost when they are slow or gone.

use crate::native;
use std::time::Duration;

use crate::native::{
    Client, Frame, World, hello, message, messages, payload, produce, reader, refusal, settings,
    subscribe,
};
use tidewire_ingest::native::codec::{
    AdminFrame, Administer, Begin, Hello, Produce, ReaderFrame, Reason, Subscribe,
};
use tidewire_ingest::native::{Settings, Token};
use tidewire_ingest::testing::SteppedLog;
use tidewire_log::{Change, Log};

/// A world whose log has messages 1 to `n` of the producer `a`, each batch of ten.
fn filled(n: u64, settings: Settings) -> World {
    let mut world = World::with(SteppedLog::new(), settings, 3);
    let a = world.producer(produce("a"));
    for from in (1..=n).step_by(10) {
        world.send(a, &messages(from..=n.min(from + 9)));
        world.sim.run_for(Duration::from_millis(1));
    }
    world.log.commit_all();
    world.quiet();
    world
}

/// The ids in batches, whose positions must follow each other from `position` on.
fn ids(frames: &[Frame], position: &mut u64) -> Vec<u64> {
    let mut ids = Vec::new();
    for frame in frames {
        let Frame::Batch {
            first, messages, ..
        } = frame
        else {
            continue;
        };
        assert_eq!(first, position, "{frames:?}");
        *position += messages.len() as u64;
        for (id, text) in messages {
            assert_eq!(*text, payload(*id));
            ids.push(*id);
        }
    }
    ids
}

#[test]
fn all_of_a_stream_and_then_the_end() {
    let mut world = filled(95, settings());
    let mut r = reader(&mut world, subscribe());
    let frames = world.frames(&mut r);
    let welcome = Frame::ReaderWelcome {
        first: 0,
        next: 95,
        start: 0,
    };
    assert_eq!(frames[0], welcome);
    assert_eq!(ids(&frames, &mut 0), (1..=95).collect::<Vec<_>>());
    assert!(matches!(&frames[1], Frame::Batch { producer, .. } if producer == "a"));
    assert_eq!(frames.last(), Some(&Frame::End(95)));
    assert!(world.ended(r));
    let counters = world.counters();
    assert_eq!((counters.readers, counters.read_messages), (1, 95));
}

#[test]
fn a_stream_that_is_not_there_is_empty_until_it_is() {
    let mut world = World::new(SteppedLog::new().auto());
    let mut r = reader(&mut world, subscribe());
    let nothing = Frame::ReaderWelcome {
        first: 0,
        next: 0,
        start: 0,
    };
    assert_eq!(world.frames(&mut r), [nothing.clone(), Frame::End(0)]);
    let follow = Subscribe {
        follow: true,
        ..subscribe()
    };
    let mut r = reader(&mut world, follow);
    assert_eq!(world.frames(&mut r), [nothing]);
    let a = world.producer(produce(""));
    world.send(a, &messages(1..=3));
    let frames = world.frames(&mut r);
    assert_eq!(ids(&frames, &mut 0), [1, 2, 3]);
}

#[test]
fn places_to_begin() {
    let mut world = filled(100, settings());
    let records = world.log.records("default");
    world.log.retain_from("default", 10);
    for (begin, start) in [
        (Begin::Position(0), 10),
        (Begin::Position(57), 57),
        (Begin::Tail, 100),
        (Begin::Timestamp(0), 10),
        (Begin::Timestamp(records[50].timestamp_us), 50),
        (Begin::Timestamp(records[50].timestamp_us + 1), 60),
        (Begin::Timestamp(u64::MAX), 100),
    ] {
        let mut r = reader(
            &mut world,
            Subscribe {
                begin,
                ..subscribe()
            },
        );
        let frames = world.frames(&mut r);
        let welcome = Frame::ReaderWelcome {
            first: 10,
            next: 100,
            start,
        };
        assert_eq!(frames[0], welcome, "{begin:?}");
        let all: Vec<u64> = (start + 1..=100).collect();
        assert_eq!(ids(&frames, &mut { start }), all, "{begin:?}");
        assert_eq!(frames.last(), Some(&Frame::End(100)));
    }
}

#[test]
fn credit_is_overdrawn_once_at_most() {
    let mut world = filled(100, settings());
    let mut r = reader(
        &mut world,
        Subscribe {
            credit: 1,
            ..subscribe()
        },
    );
    let mut position = 0;
    let frames = world.frames(&mut r);
    // A read with so little credit is one record.
    assert_eq!(ids(&frames, &mut position), [1]);
    let mut before = 1;
    for credit in [1, 40, 400, 400, 1] {
        world.say(r, ReaderFrame::Credit(credit));
        let frames = world.frames(&mut r);
        let got = ids(&frames, &mut position).len() as u64;
        let most = credit / 12 + 2;
        assert!(got <= most, "{got} for {credit}");
        before += got;
    }
    assert!(before < 70, "{before}");
    world.say(r, ReaderFrame::Unknown(77));
    world.say(r, ReaderFrame::Credit(u64::MAX));
    world.say(r, ReaderFrame::Credit(u64::MAX));
    let frames = world.frames(&mut r);
    ids(&frames, &mut position);
    assert_eq!((position, frames.last()), (100, Some(&Frame::End(100))));
}

#[test]
fn no_credit_no_batch() {
    let mut world = filled(10, settings());
    let mut r = reader(
        &mut world,
        Subscribe {
            credit: 0,
            ..subscribe()
        },
    );
    assert_eq!(world.frames(&mut r).len(), 1);
    world.sim.run_for(Duration::from_secs(600));
    assert!(!world.ended(r));
    world.say(r, ReaderFrame::Credit(1000));
    assert_eq!(ids(&world.frames(&mut r), &mut 0).len(), 10);
}

#[test]
fn a_follower_sees_each_commit() {
    let mut world = filled(10, settings());
    let follow = Subscribe {
        begin: Begin::Tail,
        follow: true,
        ..subscribe()
    };
    let mut r = reader(&mut world, follow);
    assert_eq!(world.frames(&mut r).len(), 1);
    let a = world.producer(produce("a"));
    let mut position = 10;
    for round in 1..20 {
        let from = 1 + round * 10;
        world.send(a, &messages(from..from + 10));
        assert_eq!(world.frames(&mut r), [], "not committed");
        // Commits of other streams wake it for nothing.
        let b = world.client(Hello::Produce(native::produce_to("other")));
        world.send(b, &messages([1]));
        world.log.commit_all();
        let frames = world.frames(&mut r);
        let expected: Vec<u64> = (from..from + 10).collect();
        assert_eq!(ids(&frames, &mut position), expected);
    }
    // The reader half-closes: it gets records up to the tail, and no further.
    world.sim.finish(r.peer);
    assert_eq!(world.frames(&mut r), [Frame::End(200)]);
    assert!(world.ended(r));
}

#[test]
fn a_reader_that_half_closes_is_served_to_the_end_of_its_credit() {
    let mut world = filled(100, settings());
    let mut r = reader(
        &mut world,
        Subscribe {
            credit: 500,
            follow: true,
            ..subscribe()
        },
    );
    world.sim.finish(r.peer);
    let frames = world.frames(&mut r);
    let got = ids(&frames, &mut 0).len();
    assert!((10..60).contains(&got), "{got}");
    assert!(!matches!(frames.last(), Some(Frame::End(_))));
    assert!(world.ended(r));
}

#[test]
fn cursors_stand_where_they_were_put() {
    let mut world = filled(100, settings());
    let named = Subscribe {
        begin: Begin::Cursor,
        cursor: "billing",
        follow: true,
        ..subscribe()
    };
    let mut r = reader(&mut world, named);
    assert_eq!(ids(&world.frames(&mut r), &mut 0).len(), 100);
    world.say(r, ReaderFrame::CommitCursor(60));
    assert_eq!(world.frames(&mut r), []);
    world.sim.close(r.peer, true);
    let mut r = reader(&mut world, named);
    assert_eq!(ids(&world.frames(&mut r), &mut 60).len(), 40);
    // Another name and another stream are other cursors.
    let other = Subscribe {
        cursor: "other",
        ..named
    };
    let mut r = reader(&mut world, other);
    assert_eq!(ids(&world.frames(&mut r), &mut 0).len(), 100);
    assert_eq!(world.counters().cursors, 1);
    let mut r = reader(&mut world, subscribe());
    world.frames(&mut r);
    let mut r = reader(
        &mut world,
        Subscribe {
            follow: true,
            ..subscribe()
        },
    );
    world.frames(&mut r);
    world.say(r, ReaderFrame::CommitCursor(60));
    assert_eq!(world.frames(&mut r), [refusal(100, Reason::Malformed)]);
}

#[test]
fn cursors_of_the_server_itself_are_refused_to_readers() {
    for begin in [Begin::Cursor, Begin::Tail] {
        let mut world = filled(100, settings());
        let stands = world.log.cursor("default", "@home");
        let mut r = reader(
            &mut world,
            Subscribe {
                begin,
                cursor: "@home",
                follow: true,
                ..subscribe()
            },
        );
        assert_eq!(world.frames(&mut r), [refusal(0, Reason::Malformed)]);
        assert!(world.ended(r));
        assert_eq!(world.log.cursor("default", "@home"), stands);
        assert_eq!(world.counters().cursors, 0);
    }
}

/// A replicator needs its cursors; what one that is gone has left behind is an administrator's to delete.
#[test]
fn cursors_of_the_server_itself_are_deleted_where_it_does_not_use_them() {
    for replicated in [true, false] {
        let settings = Settings {
            replicated,
            ..settings()
        };
        let mut world = filled(100, settings);
        world.log.set_cursor("default", "@home", 60).unwrap();
        let mut admin = world.client(Hello::Administer(Administer { token: "" }));
        assert_eq!(world.frames(&mut admin).len(), 1);
        let mut delete = Vec::new();
        let frame = AdminFrame::DeleteCursor {
            stream: "",
            cursor: "@home",
        };
        frame.encode(&mut delete).unwrap();
        world.send(admin, &delete);
        let answered = world.frames(&mut admin);
        let is_refused = answered == [refusal(1, Reason::Unsupported)];
        assert_eq!(is_refused, replicated, "{answered:?}");
        let left = world.log.cursor("default", "@home");
        assert_eq!(left, replicated.then_some(60));
    }
}

#[test]
fn what_retention_removed_meanwhile_is_gone() {
    let mut world = filled(100, settings());
    let mut r = reader(
        &mut world,
        Subscribe {
            credit: 1,
            ..subscribe()
        },
    );
    world.frames(&mut r);
    world.log.retain_from("default", 50);
    world.say(r, ReaderFrame::Credit(1000));
    assert_eq!(world.frames(&mut r), [refusal(1, Reason::Gone)]);
    assert!(world.ended(r));
    assert_eq!(world.counters().refused_gone, 1);
}

#[test]
fn malformed_frames_end_a_reader() {
    for bad in [
        &b"\x01\x00\x01\x00\x08\x00\x00\x00"[..],
        b"\x01\x00\x00\x00\x04\x00\x00\x00abcd",
        b"\x02\x00\x00\x00\x09\x00\x00\x00abcdefghi",
        b"\x09\x00\x00\x00\xff\xff\xff\xff",
    ] {
        let mut world = World::new(SteppedLog::new());
        let mut r = reader(
            &mut world,
            Subscribe {
                follow: true,
                ..subscribe()
            },
        );
        world.frames(&mut r);
        world.send(r, bad);
        assert_eq!(world.frames(&mut r), [refusal(0, Reason::Malformed)]);
        assert!(world.ended(r));
        assert_eq!(world.counters().refused_malformed, 1);
    }
}

#[test]
fn readers_show_tokens_too_and_are_counted() {
    let settings = Settings {
        readers: 2,
        tokens: vec![Token::new("t", "s3cret", &[])],
        ..settings()
    };
    let mut world = World::with(SteppedLog::new(), settings, 1);
    let mut r = reader(&mut world, subscribe());
    assert_eq!(world.frames(&mut r), [refusal(0, Reason::Unauthorised)]);
    let with_token = Subscribe {
        token: "s3cret",
        follow: true,
        ..subscribe()
    };
    let first = reader(&mut world, with_token);
    let _second = reader(&mut world, with_token);
    let mut third = reader(&mut world, with_token);
    assert_eq!(world.frames(&mut third), [refusal(0, Reason::TooMany)]);
    // A reader that vanishes makes room.
    world.sim.close(first.peer, true);
    world.quiet();
    let mut fourth = reader(&mut world, with_token);
    assert_eq!(world.frames(&mut fourth).len(), 1);
}

#[test]
fn a_slow_reader_holds_a_few_reads_and_gets_everything() {
    const READ: usize = 10_000;
    let settings = Settings {
        read_max: READ,
        ..settings()
    };
    let mut world = World::with(SteppedLog::new().auto(), settings, 5);
    let mut conditions = world.sim.conditions().clone();
    (conditions.send_buffer, conditions.receive_buffer) = (1000, 1000);
    world.sim.set_conditions(conditions);
    let a = world.producer(produce("a"));
    let mut stored = 0;
    for id in 1..=1000 {
        let mut bytes = Vec::new();
        message(&mut bytes, id, &[7; 900]);
        world.send(a, &bytes);
        stored += 912;
    }
    let takes_nothing = |world: &mut World| {
        let client = world.connect();
        world.sim.reading(client.peer, false);
        world.send(client, &hello(Hello::Subscribe(subscribe())));
        client
    };
    let slow = takes_nothing(&mut world);
    let mut quick = reader(&mut world, subscribe());
    assert!(matches!(
        world.frames(&mut quick).last(),
        Some(Frame::End(1000))
    ));
    let read = world.counters().read_bytes as usize - stored;
    assert!(read <= 3 * READ + 2000, "{read} bytes read for nobody");
    // Other readers do not wait for it, and nothing is lost.
    world.sim.reading(slow.peer, true);
    world.quiet();
    let frames = native::frames(world.sim.received(slow.peer));
    let count = |f: &Frame| match f {
        Frame::Batch { messages, .. } => messages.len(),
        _ => 0,
    };
    assert_eq!(frames.iter().map(count).sum::<usize>(), 1000);
    // A reader that takes nothing for long is not cut for that: it goes on, or is told what it
    // missed.
    let late = takes_nothing(&mut world);
    world.sim.run_for(Duration::from_secs(200));
    world.log.retain_from("default", 1000);
    world.sim.reading(late.peer, true);
    assert!(world.ended(late));
    let frames = native::frames(world.sim.received(late.peer));
    let next = frames.iter().map(count).sum::<usize>() as u64;
    assert_eq!(frames.last(), Some(&refusal(next, Reason::Gone)));
}

/// 200 of them once held 357 MB.
#[test]
fn readers_that_take_nothing_are_bounded_together() {
    const LIMIT: usize = 1 << 20;
    let settings = Settings {
        reader_memory: LIMIT,
        ..settings()
    };
    let mut world = filled(0, settings);
    let a = world.producer(produce("big"));
    for id in 1..=300 {
        let mut bytes = Vec::new();
        message(&mut bytes, id, &vec![7; 20_000]);
        world.send(a, &bytes);
    }
    world.log.commit_all();
    let stalled: Vec<Client> = (0..200)
        .map(|_| {
            let client = world.connect();
            world.sim.reading(client.peer, false);
            world.send(client, &hello(Hello::Subscribe(subscribe())));
            client
        })
        .collect();
    world.sim.run_for(Duration::from_secs(5));
    let held = world.service.reader_memory();
    // One record above its share for each that got any.
    assert!(held <= 2 * LIMIT, "{held}");
    assert!(world.counters().paused_by_memory > 0);
    // Readers that take nothing make room for one that does.
    let mut quick = reader(&mut world, subscribe());
    // Four crowds of them in turn: ten seconds until each is told, five quarters of `linger` until it is cut.
    world
        .sim
        .run_for(Duration::from_secs(4 * 10 + 4 * 25 / 4 + 5));
    let frames = world.frames(&mut quick);
    assert_eq!(frames.last(), Some(&Frame::End(300)));
    let told = |world: &mut World, client: &Client| {
        world.sim.reading(client.peer, true);
        world.quiet();
        matches!(
            native::frames(world.sim.received(client.peer)).last(),
            Some(
                Frame::Refusal {
                    reason: Reason::Gone,
                    ..
                } | Frame::End(300)
            )
        )
    };
    let served = stalled.iter().filter(|c| told(&mut world, c)).count();
    assert!(served > 0);
    for client in stalled {
        world.sim.close(client.peer, true);
    }
    world.sim.close(quick.peer, true);
    world.sim.run_for(Duration::from_secs(10));
    assert_eq!(world.service.reader_memory(), 0);
}

#[test]
fn stopping_tells_readers() {
    let mut world = filled(10, settings());
    let mut r = reader(
        &mut world,
        Subscribe {
            follow: true,
            ..subscribe()
        },
    );
    world.frames(&mut r);
    world.sim.stop(world.at, Duration::from_secs(5));
    assert_eq!(world.frames(&mut r), [refusal(10, Reason::Stopping)]);
}

#[test]
fn what_comes_with_the_hello_is_heard() {
    let mut world = filled(100, settings());
    let client = world.connect();
    let mut bytes = hello(Hello::Subscribe(Subscribe {
        credit: 0,
        ..subscribe()
    }));
    ReaderFrame::Credit(1 << 20).encode(&mut bytes);
    world.send(client, &bytes);
    let frames = native::frames(world.sim.received(client.peer));
    assert_eq!(ids(&frames, &mut 0).len(), 100);
}

#[test]
fn a_reader_in_the_middle_of_a_stream_is_told_that_it_was_deleted() {
    // One reader has had the first record, the other is at the beginning still.
    for (credit, position) in [(1, 1), (0, 0)] {
        let mut world = filled(30, settings());
        let mut r = reader(
            &mut world,
            Subscribe {
                follow: true,
                credit,
                ..subscribe()
            },
        );
        assert_eq!(ids(&world.frames(&mut r), &mut 0).len(), position as usize);
        let stream = "default";
        world.log.administer(Change::Delete { stream }).unwrap();
        world.say(r, ReaderFrame::Credit(1 << 20));
        assert_eq!(
            world.frames(&mut r),
            [refusal(position, Reason::NoStream)],
            "at {position}"
        );
    }
}

#[test]
fn a_reader_that_catches_up_is_turned_away_with_its_token() {
    let with = |name: &str| Settings {
        tokens: vec![Token::new(name, name, &[])],
        read_max: 1000,
        ..settings()
    };
    let mut world = World::with(SteppedLog::new().auto(), with("old"), 3);
    let mut conditions = world.sim.conditions().clone();
    (conditions.send_buffer, conditions.receive_buffer) = (1000, 1000);
    world.sim.set_conditions(conditions);
    let a = world.producer(Produce {
        token: "old",
        ..produce("a")
    });
    const COUNT: u64 = 200;
    for id in 1..=COUNT {
        let mut bytes = Vec::new();
        message(&mut bytes, id, &[7; 10_000]);
        world.send(a, &bytes);
    }
    let r = world.connect();
    world.sim.reading(r.peer, false);
    let first = Subscribe {
        token: "old",
        ..subscribe()
    };
    world.send(r, &hello(Hello::Subscribe(first)));
    world.service.change_tokens(with("new").tokens);
    world.sim.reading(r.peer, true);
    world.quiet();
    let frames = native::frames(world.sim.received(r.peer));
    let Some(&Frame::Refusal { id, reason, .. }) = frames.last() else {
        panic!("{:?}", frames.last());
    };
    assert_eq!(reason, Reason::Unauthorised);
    assert!(id < COUNT, "it was given all that there is");
    assert!(world.ended(r));
}
