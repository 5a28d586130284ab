//! What a client written from docs/formats/protocol.md alone stumbles over: ends in the middle of
//! something, places that do not exist, bad names.

use crate::native;
use std::time::Duration;

use crate::native::{Frame, World, hello, messages, produce, reader, refusal, settings, subscribe};
use tidewire_ingest::native::codec::{
    Begin, Hello, Produce, Read, ReaderFrame, Reason, ServerFrame, Subscribe,
};
use tidewire_ingest::testing::SteppedLog;
use tidewire_log::{Log, StreamId};

/// A stream of so many messages, one a batch.
fn filled(n: u64) -> World {
    let mut world = World::new(SteppedLog::new().auto());
    let a = world.producer(produce("a"));
    world.send(a, &messages(1..=n));
    world
}

/// What is said to a reader, and that it is all.
fn only(world: &mut World, subscribe: Subscribe<'_>) -> Vec<Frame> {
    let mut r = reader(world, subscribe);
    let frames = world.frames(&mut r);
    assert!(world.ended(r), "{frames:?}");
    frames
}

#[test]
fn a_hello_that_is_cut_short_or_late_is_told_so() {
    let mut world = World::new(SteppedLog::new().auto());
    let whole = hello(Hello::Produce(produce("a")));
    for cut in [1, 5, 8, whole.len() - 1] {
        let mut client = world.connect();
        world.send(client, &whole[..cut]);
        world.sim.finish(client.peer);
        assert_eq!(world.frames(&mut client), [refusal(0, Reason::Malformed)]);
        assert!(world.ended(client));
    }
    // A client that says nothing is told nothing: it may be a probe.
    let mut client = world.connect();
    world.sim.finish(client.peer);
    assert_eq!(world.frames(&mut client), []);
    assert!(world.ended(client));

    let mut client = world.connect();
    world.send(client, &whole[..9]);
    world.sim.run_for(Duration::from_secs(6));
    assert_eq!(world.frames(&mut client), [refusal(0, Reason::TooSlow)]);
    assert_eq!(world.counters().hello_timeouts, 1);
}

#[test]
fn a_reader_that_ends_in_the_middle_of_a_frame_is_told_so() {
    let mut world = filled(3);
    let mut r = reader(
        &mut world,
        Subscribe {
            follow: true,
            ..subscribe()
        },
    );
    world.frames(&mut r);
    world.send(r, &[1, 0, 0]);
    world.sim.finish(r.peer);
    assert_eq!(world.frames(&mut r), [refusal(3, Reason::Malformed)]);
}

#[test]
fn a_producer_that_half_closes_before_its_welcome_is_served() {
    let mut world = World::new(SteppedLog::new());
    let older = world.producer(produce("a"));
    world.send(older, &messages(1..=3));
    // The newer welcome waits for what the older session handed over.
    let mut newer = world.client(Hello::Produce(produce("a")));
    world.sim.finish(newer.peer);
    assert_eq!(world.frames(&mut newer), []);
    world.log.commit_all();
    let frames = world.frames(&mut newer);
    assert!(
        matches!(
            frames[..],
            [Frame::Welcome {
                last_id: Some(3),
                ..
            }]
        ),
        "{frames:?}"
    );
    assert!(world.ended(newer));
}

#[test]
fn there_is_nothing_behind_the_end() {
    let mut world = filled(10);
    let at = |at| Subscribe {
        begin: Begin::Position(at),
        ..subscribe()
    };
    // At the end is not beyond it.
    assert_eq!(only(&mut world, at(10)).last(), Some(&Frame::End(10)));
    assert_eq!(only(&mut world, at(11)), [refusal(10, Reason::BeyondEnd)]);
    assert_eq!(
        only(&mut world, at(u64::MAX)),
        [refusal(10, Reason::BeyondEnd)]
    );

    let named = Subscribe {
        begin: Begin::Cursor,
        cursor: "c",
        follow: true,
        ..subscribe()
    };
    let mut r = reader(&mut world, named);
    world.frames(&mut r);
    world.say(r, ReaderFrame::CommitCursor(11));
    assert_eq!(world.frames(&mut r), [refusal(10, Reason::BeyondEnd)]);
    assert_eq!(world.log.cursor("default", "c"), None);
    // A cursor that was left behind the end, say by a log that has lost its tail.
    world.log.set_cursor("default", "c", 99).unwrap();
    assert_eq!(only(&mut world, named), [refusal(10, Reason::BeyondEnd)]);
    assert_eq!(world.counters().refused_beyond_end, 4);
}

#[test]
fn a_stream_that_does_not_exist_is_refused_or_waited_for() {
    let mut world = filled(1);
    let later = Subscribe {
        stream: "later",
        ..subscribe()
    };
    assert_eq!(only(&mut world, later), [refusal(0, Reason::NoStream)]);
    let follow = Subscribe {
        follow: true,
        ..later
    };
    assert_eq!(only(&mut world, follow), [refusal(0, Reason::NoStream)]);
    let mut r = reader(
        &mut world,
        Subscribe {
            may_be_absent: true,
            ..follow
        },
    );
    assert!(matches!(
        world.frames(&mut r)[..],
        [Frame::ReaderWelcome { next: 0, .. }]
    ));
    let a = world.producer(native::produce_to("later"));
    world.send(a, &messages(1..=1));
    assert!(matches!(
        world.frames(&mut r)[..],
        [Frame::Batch { first: 0, .. }]
    ));
    // The default stream is there from the beginning.
    let mut empty = World::new(SteppedLog::new().auto());
    assert_eq!(only(&mut empty, subscribe()).last(), Some(&Frame::End(0)));
}

/// Whether a welcome says that records before `start` were skipped.
fn skipped(world: &mut World, subscribe: Subscribe<'_>) -> (u64, bool) {
    let r = reader(world, subscribe);
    world.quiet();
    let bytes = world.sim.received(r.peer).to_vec();
    match ServerFrame::decode(&bytes, 1024) {
        Ok(Read::Whole(ServerFrame::ReaderWelcome(w), _)) => (w.start, w.skipped),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_reader_that_begins_later_than_it_asked_for_is_told_so() {
    let mut world = filled(10);
    world.log.set_cursor("default", "old", 3).unwrap();
    world.log.set_cursor("default", "new", 7).unwrap();
    world.log.retain_from("default", 5);
    let begin = |begin, cursor| Subscribe {
        begin,
        cursor,
        ..subscribe()
    };
    // The oldest is what 0 asks for.
    assert_eq!(
        skipped(&mut world, begin(Begin::Position(0), "")),
        (5, false)
    );
    assert_eq!(
        skipped(&mut world, begin(Begin::Position(4), "")),
        (5, true)
    );
    assert_eq!(
        skipped(&mut world, begin(Begin::Position(5), "")),
        (5, false)
    );
    assert_eq!(skipped(&mut world, begin(Begin::Cursor, "old")), (5, true));
    assert_eq!(skipped(&mut world, begin(Begin::Cursor, "new")), (7, false));
    assert_eq!(
        skipped(&mut world, begin(Begin::Cursor, "never set")),
        (5, false)
    );
}

#[test]
fn an_end_short_of_the_tail_is_marked() {
    let mut world = World::with(
        SteppedLog::new().auto(),
        native_settings_with_small_reads(),
        7,
    );
    let a = world.producer(produce("a"));
    world.send(a, &messages(1..=50));
    let mut r = reader(
        &mut world,
        Subscribe {
            credit: 1,
            ..subscribe()
        },
    );
    let frames = world.frames(&mut r);
    let Some(Frame::Batch { messages: some, .. }) = frames.last() else {
        panic!("{frames:?}");
    };
    let read = some.len() as u64;
    assert!(read < 50);
    world.sim.finish(r.peer);
    assert_eq!(world.frames(&mut r), [Frame::Short(read)]);
    assert!(world.ended(r));
    // The last of it took all credit: that is the tail nevertheless.
    let mut r = reader(
        &mut world,
        Subscribe {
            begin: Begin::Position(49),
            credit: 1,
            ..subscribe()
        },
    );
    world.frames(&mut r);
    world.sim.finish(r.peer);
    assert_eq!(world.frames(&mut r), [Frame::End(50)]);
}

fn native_settings_with_small_reads() -> tidewire_ingest::native::Settings {
    tidewire_ingest::native::Settings {
        read_max: 40,
        ..settings()
    }
}

#[test]
fn names_have_no_control_characters() {
    let mut world = World::new(SteppedLog::new().auto());
    for name in ["a\nb", "\x1b[2J", "\u{85}", "\0"] {
        let hellos = [
            Hello::Produce(produce(name)),
            Hello::Produce(Produce {
                stream: name,
                ..produce("")
            }),
            Hello::Subscribe(Subscribe {
                cursor: name,
                ..subscribe()
            }),
        ];
        for said in hellos {
            let mut client = world.client(said);
            assert_eq!(world.frames(&mut client), [refusal(0, Reason::Malformed)]);
        }
    }
    assert_eq!(world.log.range("a\nb"), None);
    assert_eq!(
        world.log.stream("default"),
        Ok(StreamId(0)),
        "no stream came into being"
    );
}

#[test]
fn a_cursor_waits_for_room_in_the_queue() {
    let mut world = World::new(SteppedLog::new());
    let a = world.producer(produce("a"));
    world.send(a, &messages(1..=10));
    world.log.commit_all();
    let mut r = reader(
        &mut world,
        Subscribe {
            cursor: "c",
            follow: true,
            ..subscribe()
        },
    );
    world.frames(&mut r);
    world.log.busy_for_cursors(true);
    world.say(r, ReaderFrame::CommitCursor(4));
    world.say(r, ReaderFrame::CommitCursor(5));
    world.sim.finish(r.peer);
    assert_eq!(world.frames(&mut r), []);
    world.log.busy_for_cursors(false);
    assert_eq!(world.frames(&mut r), [Frame::End(10)]);
    assert_eq!(world.log.cursor("default", "c"), Some(5));
}

#[test]
fn a_producer_that_was_forgotten_is_told_so() {
    let mut world = filled(3);
    world.log.forget("a");
    let client = world.client(Hello::Produce(produce("a")));
    world.quiet();
    let bytes = world.sim.received(client.peer).to_vec();
    match ServerFrame::decode(&bytes, 1024) {
        Ok(Read::Whole(ServerFrame::Welcome(w), _)) => {
            assert_eq!((w.last_id, w.forgotten), (None, true));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(world.counters().forgotten, 1);
    // A producer that was never here is not counted as forgotten.
    world.producer(produce("new"));
    assert_eq!(world.counters().forgotten, 1);
}
