//! Producers of the native protocol on the simulated network: what is acknowledged when, what is
//! refused, and what is stored.

use std::time::Duration;

use crate::native::{Frame, World, hello, message, messages, produce, settings};
use tidewire_ingest::native::codec::{
    AdminFrame, Administer, Begin, Hello, Level, Produce, Reason, Subscribe, message_header,
};
use tidewire_ingest::native::{Quota, Rights, Settings, Token};
use tidewire_ingest::testing::SteppedLog;
use tidewire_log::Policy;

fn refusal(id: u64, reason: Reason) -> Frame {
    Frame::Refusal {
        id,
        reason,
        retry_after_ms: 0,
    }
}

fn welcome(last_id: Option<u64>) -> Frame {
    Frame::Welcome {
        level: Level::Durable,
        last_id,
    }
}

#[test]
fn durable_is_acknowledged_after_the_commit_and_once_for_each() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(produce("a"));
    world.send(a, &messages(1..=10));
    world.send(a, &messages(11..=20));
    world.send(a, &messages(21..=21));
    assert_eq!(world.frames(&mut a), []);
    assert_eq!(world.log.taken(), (3, 21));
    world.log.commit(2);
    assert_eq!(world.frames(&mut a), [Frame::Ack(20)]);
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(21)]);
    assert_eq!(world.stored("a"), (1..=21).collect::<Vec<_>>());
    let counters = world.counters();
    assert_eq!(
        (counters.messages, counters.batches, counters.acks),
        (21, 3, 2)
    );
}

#[test]
fn received_is_acknowledged_when_it_is_handed_over() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(Produce {
        level: Some(Level::Received),
        ..produce("")
    });
    world.send(a, &messages(1..=10));
    assert_eq!(world.frames(&mut a), [Frame::Ack(10)]);
    assert_eq!(world.stored(""), []);
    world.sim.finish(a.peer);
    assert!(world.ended(a));
}

#[test]
fn a_log_that_cannot_promise_durable_grants_received() {
    let mut world = World::new(SteppedLog::new().policy_of(Policy::Os));
    let mut a = world.client(Hello::Produce(produce("a")));
    let received = Frame::Welcome {
        level: Level::Received,
        last_id: None,
    };
    assert_eq!(world.frames(&mut a), [received]);
}

#[test]
fn half_closing_waits_for_the_commit() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(produce("a"));
    world.send(a, &messages(1..=10));
    world.sim.finish(a.peer);
    assert!(!world.ended(a));
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(10)]);
    assert!(world.ended(a));
}

#[test]
fn stopping_waits_for_the_commit_and_says_so() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(produce("a"));
    let mut idle = world.producer(produce("idle"));
    world.send(a, &messages(1..=10));
    world.sim.stop(world.at, Duration::from_secs(5));
    assert_eq!(world.frames(&mut a), []);
    assert_eq!(world.frames(&mut idle), [refusal(1, Reason::Stopping)]);
    world.log.commit_all();
    assert_eq!(
        world.frames(&mut a),
        [Frame::Ack(10), refusal(11, Reason::Stopping)]
    );
}

#[test]
fn duplicates_are_acknowledged_and_not_stored_again() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(produce("a"));
    world.send(a, &messages(1..=10));
    // Not yet committed: acknowledged with it.
    world.send(a, &messages(5..=10));
    assert_eq!(world.frames(&mut a), []);
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(10)]);
    world.send(a, &messages(3..=10));
    assert_eq!(world.frames(&mut a), [Frame::Ack(10)]);
    // Some old, some new.
    world.send(a, &messages(8..=15));
    assert_eq!(world.frames(&mut a), [Frame::Ack(10)]);
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(15)]);
    // On a new connection they are known, and from another producer they are new.
    let mut again = world.client(Hello::Produce(produce("a")));
    assert_eq!(world.frames(&mut again), [welcome(Some(15))]);
    world.send(again, &messages(14..=16));
    world.log.commit_all();
    assert_eq!(world.frames(&mut again), [Frame::Ack(15), Frame::Ack(16)]);
    let b = world.producer(produce("b"));
    world.send(b, &messages(1..=3));
    world.log.commit_all();
    world.quiet();
    assert_eq!(world.stored("a"), (1..=16).collect::<Vec<_>>());
    assert_eq!(world.stored("b"), [1, 2, 3]);
    assert_eq!(world.counters().duplicates, 6 + 8 + 3 + 2);
}

#[test]
fn a_gap_is_refused_after_what_comes_before_it() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(produce("a"));
    let mut bytes = messages(1..=3);
    bytes.extend(messages(5..=6));
    world.send(a, &bytes);
    assert_eq!(world.frames(&mut a), []);
    world.log.commit_all();
    assert_eq!(
        world.frames(&mut a),
        [Frame::Ack(3), refusal(4, Reason::OutOfOrder)]
    );
    assert!(world.ended(a));
    assert_eq!(world.stored("a"), [1, 2, 3]);
    // The first one counts too.
    let mut a = world.producer(produce("b"));
    world.send(a, &messages([0]));
    assert_eq!(world.frames(&mut a), [refusal(1, Reason::OutOfOrder)]);
}

#[test]
fn sparse_ids_only_rise() {
    let mut world = World::new(SteppedLog::new().auto());
    let mut a = world.producer(Produce {
        sparse: true,
        first_id: 10,
        ..produce("a")
    });
    world.send(a, &messages([10, 20, 21, 500]));
    assert_eq!(world.frames(&mut a), [Frame::Ack(500)]);
    world.send(a, &messages([30, 499, 501]));
    assert_eq!(world.frames(&mut a), [Frame::Ack(500), Frame::Ack(501)]);
    assert_eq!(world.stored("a"), [10, 20, 21, 500, 501]);
    let mut b = world.producer(Produce {
        sparse: true,
        first_id: 10,
        ..produce("b")
    });
    world.send(b, &messages([9]));
    assert_eq!(world.frames(&mut b), [refusal(10, Reason::OutOfOrder)]);
}

#[test]
fn ids_end_where_numbers_do() {
    let mut world = World::new(SteppedLog::new().auto());
    let max = u64::MAX;
    let mut a = world.producer(Produce {
        first_id: max - 1,
        ..produce("a")
    });
    world.send(a, &messages([max - 1, max]));
    assert_eq!(world.frames(&mut a), [Frame::Ack(max)]);
    world.send(a, &messages([0, 1]));
    assert_eq!(world.frames(&mut a), [Frame::Ack(max)]);
    assert_eq!(world.stored("a"), [max - 1, max]);
}

#[test]
fn a_producer_that_does_not_say_gets_the_level_of_the_settings() {
    for level in [Level::Durable, Level::Received] {
        let settings = Settings {
            level,
            ..settings()
        };
        let mut world = World::with(SteppedLog::new(), settings, 1);
        let mut a = world.client(Hello::Produce(Produce {
            level: None,
            ..produce("a")
        }));
        let last_id = None;
        assert_eq!(world.frames(&mut a), [Frame::Welcome { level, last_id }]);
    }
}

#[test]
fn what_a_crash_lost_is_adopted_at_level_received_only() {
    let received = Produce {
        level: Some(Level::Received),
        adopt: true,
        ..produce("a")
    };
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(received);
    world.send(a, &messages(1..=10));
    world.log.commit_all();
    world.send(a, &messages(11..=20));
    assert_eq!(world.frames(&mut a), [Frame::Ack(10), Frame::Ack(20)]);
    let mut world = World::new(world.log.crash());
    let mut a = world.client(Hello::Produce(Produce {
        first_id: 21,
        ..received
    }));
    let level = Level::Received;
    let last_id = Some(10);
    assert_eq!(world.frames(&mut a), [Frame::Welcome { level, last_id }]);
    world.send(a, &messages(21..=22));
    assert_eq!(world.frames(&mut a), [Frame::Ack(22)]);
    world.log.commit_all();
    let expected: Vec<u64> = (1..=10).chain(21..=22).collect();
    assert_eq!(world.stored("a"), expected);
    let counters = world.counters();
    assert_eq!((counters.adopted, counters.adopted_ids), (1, 10));
    // Without the flag it is a gap.
    let mut b = world.producer(Produce {
        first_id: 30,
        adopt: false,
        ..received
    });
    world.send(b, &messages([30]));
    assert_eq!(world.frames(&mut b), [refusal(23, Reason::OutOfOrder)]);
}

#[test]
fn a_newer_session_fences_the_older_and_waits_for_what_it_handed_over() {
    let mut world = World::new(SteppedLog::new());
    let mut old = world.producer(produce("a"));
    world.send(old, &messages(1..=10));
    let mut new = world.client(Hello::Produce(produce("a")));
    assert_eq!(world.frames(&mut old), [refusal(11, Reason::Fenced)]);
    assert_eq!(world.frames(&mut new), []);
    // A session in between is fenced before it was welcomed.
    let mut newest = world.client(Hello::Produce(produce("a")));
    assert_eq!(world.frames(&mut new), [refusal(1, Reason::Fenced)]);
    assert_eq!(world.frames(&mut newest), []);
    world.send(newest, &messages(9..=12));
    world.log.commit(1);
    assert_eq!(
        world.frames(&mut newest),
        [welcome(Some(10)), Frame::Ack(10)]
    );
    world.log.commit_all();
    assert_eq!(world.frames(&mut newest), [Frame::Ack(12)]);
    assert_eq!(world.stored("a"), (1..=12).collect::<Vec<_>>());
    assert_eq!(world.counters().fenced, 2);
    // One name on another stream is another producer.
    let mut other = world.client(Hello::Produce(Produce {
        stream: "other",
        ..produce("a")
    }));
    assert_eq!(world.frames(&mut other), [welcome(None)]);
    world.send(newest, &messages([13]));
    world.log.commit_all();
    assert_eq!(world.frames(&mut newest), [Frame::Ack(13)]);
}

#[test]
fn what_is_owed_to_a_connection_that_has_gone_is_waited_for_too() {
    let mut world = World::new(SteppedLog::new());
    let old = world.producer(produce("a"));
    world.send(old, &messages(1..=10));
    world.sim.close(old.peer, true);
    world.quiet();
    let mut new = world.client(Hello::Produce(produce("a")));
    assert_eq!(world.frames(&mut new), []);
    world.log.commit_all();
    assert_eq!(world.frames(&mut new), [welcome(Some(10))]);
    assert_eq!(world.counters().fenced, 0);
    assert_eq!(world.service.sessions(), 1);
    world.sim.close(new.peer, true);
    world.quiet();
    assert_eq!(world.service.sessions(), 0);
}

#[test]
fn anonymous_producers_do_not_meet() {
    let mut world = World::new(SteppedLog::new().auto());
    let (mut a, mut b) = (world.producer(produce("")), world.producer(produce("")));
    for client in [a, b] {
        world.send(client, &messages(1..=3));
    }
    for client in [&mut a, &mut b] {
        assert_eq!(world.frames(client), [Frame::Ack(3)]);
    }
    assert_eq!(world.stored(""), [1, 2, 3, 1, 2, 3]);
}

#[test]
fn the_window_pauses_reading() {
    let settings = Settings {
        window_messages: 100,
        window_bytes: 10_000,
        ..settings()
    };
    let mut world = World::with(SteppedLog::new(), settings, 1);
    let mut a = world.producer(produce("a"));
    world.send(a, &messages(1..=101));
    world.send(a, &messages(102..=150));
    assert_eq!(world.log.taken().1, 101);
    assert_eq!(world.counters().paused_by_window, 1);
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(101)]);
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(150)]);
    // Bytes count with their headers; one message may always be sent.
    let mut large = Vec::new();
    message(&mut large, 151, &vec![0; 20_000]);
    message(&mut large, 152, b"");
    world.send(a, &large[..20_012]);
    world.send(a, &large[20_012..]);
    assert_eq!(world.log.taken().1, 151);
    world.log.commit_all();
    world.quiet();
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(151), Frame::Ack(152)]);
}

#[test]
fn a_slow_commit_is_kept_company() {
    let mut world = World::new(SteppedLog::new());
    let mut a = world.producer(produce("a"));
    world.send(a, &messages(1..=3));
    world.sim.run_for(Duration::from_millis(2500));
    assert_eq!(
        world.frames(&mut a),
        [Frame::KeepAlive(0), Frame::KeepAlive(0)]
    );
    world.log.commit_all();
    assert_eq!(world.frames(&mut a), [Frame::Ack(3)]);
    world.sim.run_for(Duration::from_secs(10));
    assert_eq!(world.frames(&mut a), []);
    world.send(a, &messages([4]));
    world.sim.run_for(Duration::from_millis(1500));
    assert_eq!(world.frames(&mut a), [Frame::KeepAlive(3)]);
    world.log.commit_all();
    // Quiet producers are left alone.
    world.sim.run_for(Duration::from_secs(600));
    assert_eq!(world.frames(&mut a), [Frame::Ack(4)]);
    assert!(!world.ended(a));
}

#[test]
fn a_full_disk_refuses_and_goes_on_where_it_stopped() {
    for level in [Level::Durable, Level::Received] {
        let mut world = World::new(SteppedLog::new().auto());
        let mut a = world.producer(Produce {
            level: Some(level),
            ..produce("a")
        });
        world.send(a, &messages(1..=3));
        world.log.disk_full(true);
        world.send(a, &messages(4..=6));
        world.send(a, &messages(7..=9));
        let full = Frame::Refusal {
            id: 4,
            reason: Reason::DiskFull,
            retry_after_ms: 50,
        };
        assert_eq!(world.frames(&mut a), [Frame::Ack(3), full.clone()]);
        // Too early.
        world.send(a, &messages(4..=9));
        assert_eq!(world.frames(&mut a), [full]);
        world.log.disk_full(false);
        // Messages still on their way are dropped.
        world.send(a, &messages(10..=12));
        assert_eq!(world.frames(&mut a), []);
        let mut again = messages(11..=12);
        again.extend(messages(4..=12));
        world.send(a, &again);
        assert_eq!(world.frames(&mut a), [Frame::Ack(12)]);
        assert_eq!(world.stored("a"), (1..=12).collect::<Vec<_>>());
        let counters = world.counters();
        assert_eq!(counters.refused_disk_full, 2);
        assert_eq!(counters.dropped, 6 + 6 + 3 + 2);
    }
}

#[test]
fn a_failed_log_acknowledges_nothing_more() {
    let mut world = World::new(SteppedLog::new());
    let a = world.producer(produce("a"));
    let mut idle = world.producer(produce("idle"));
    let mut received = world.producer(Produce {
        level: Some(Level::Received),
        ..produce("received")
    });
    world.send(a, &messages(1..=3));
    world.log.commit_all();
    world.send(a, &messages(4..=6));
    world.send(a, &messages(7..=9));
    let mut settling = world.client(Hello::Produce(produce("a")));
    let mut b = world.producer(produce("b"));
    world.send(b, &messages(1..=3));
    world.log.fail("the disk is gone");
    assert_eq!(world.frames(&mut b), [refusal(1, Reason::LogFailed)]);
    assert_eq!(world.frames(&mut settling), [refusal(0, Reason::LogFailed)]);
    // Nothing was owed to these.
    assert_eq!(world.frames(&mut idle), []);
    world.send(idle, &messages([1]));
    assert_eq!(world.frames(&mut idle), [refusal(1, Reason::LogFailed)]);
    world.send(received, &messages([1]));
    assert_eq!(world.frames(&mut received), [refusal(1, Reason::LogFailed)]);
    let mut late = world.client(Hello::Produce(produce("late")));
    assert_eq!(world.frames(&mut late), [refusal(0, Reason::LogFailed)]);
    for client in [b, settling, idle, received, late] {
        assert!(world.ended(client));
    }
}

#[test]
fn a_full_queue_pauses_reading_and_loses_nothing() {
    for level in [Level::Durable, Level::Received] {
        let mut world = World::new(SteppedLog::new().queue(2000));
        let names: Vec<String> = (0..20).map(|n| format!("p{n}")).collect();
        let mut clients: Vec<_> = names
            .iter()
            .map(|name| {
                world.producer(Produce {
                    level: Some(level),
                    ..produce(name)
                })
            })
            .collect();
        for &client in &clients {
            world.sim.send(client.peer, &messages(1..=100));
        }
        world.quiet();
        assert!(world.counters().paused_by_log > 0);
        for _ in 0..200 {
            world.log.commit_all();
            world.quiet();
        }
        for (name, client) in names.iter().zip(&mut clients) {
            assert_eq!(
                world.frames(client).last(),
                Some(&Frame::Ack(100)),
                "{level:?}"
            );
            assert_eq!(world.stored(name), (1..=100).collect::<Vec<_>>());
        }
    }
}

#[test]
fn waiting_for_room_is_kept_company_too() {
    let mut world = World::new(SteppedLog::new().queue(100));
    let a = world.producer(produce("a"));
    let mut b = world.producer(Produce {
        level: Some(Level::Received),
        ..produce("b")
    });
    world.send(a, &messages(1..=20));
    world.send(b, &messages(1..=20));
    world.sim.run_for(Duration::from_millis(1500));
    assert_eq!(world.frames(&mut b), [Frame::KeepAlive(0)]);
    world.log.commit_all();
    assert_eq!(world.frames(&mut b), [Frame::Ack(20)]);
}

#[test]
fn what_does_not_fit_a_group_is_halved() {
    let mut world = World::new(SteppedLog::new().runs(100).auto());
    let mut a = world.producer(produce("a"));
    world.send(a, &messages(1..=50));
    assert_eq!(world.stored("a"), (1..=50).collect::<Vec<_>>());
    assert_eq!(world.frames(&mut a).last(), Some(&Frame::Ack(50)));
    let mut large = Vec::new();
    message(&mut large, 51, &[0; 101]);
    world.send(a, &large);
    assert_eq!(world.frames(&mut a), [refusal(51, Reason::TooLarge)]);
}

#[test]
fn a_payload_above_the_limit_is_refused_after_what_was_whole() {
    let mut world = World::new(SteppedLog::new().payloads(1000).auto());
    let mut a = world.producer(produce("a"));
    let mut bytes = messages(1..=2);
    message(&mut bytes, 3, &[3; 1000]);
    bytes.extend_from_slice(&message_header(4, 1001));
    world.send(a, &bytes);
    let frames = world.frames(&mut a);
    assert_eq!(frames.last(), Some(&refusal(4, Reason::TooLarge)));
    assert_eq!(world.log.taken().1, 3);
    assert!(world.ended(a));
    assert_eq!(world.counters().refused_too_large, 1);
}

#[test]
fn a_quota_refuses_and_lets_go_on() {
    let settings = Settings {
        quota: Quota {
            messages: Some(100),
            bytes: None,
        },
        ..settings()
    };
    let mut world = World::with(SteppedLog::new().auto(), settings, 1);
    world.sim.run_for(Duration::from_secs(10));
    let mut a = world.producer(produce("a"));
    // The messages of one chunk are taken whole; this fits a small receive buffer.
    world.send(a, &messages(1..=250));
    assert_eq!(world.frames(&mut a), [Frame::Ack(250)]);
    world.send(a, &messages(251..=260));
    let frames = world.frames(&mut a);
    let [
        Frame::Refusal {
            id: 251,
            reason: Reason::OverQuota,
            retry_after_ms,
        },
    ] = frames[..]
    else {
        panic!("{frames:?}");
    };
    assert!((1490..=1500).contains(&retry_after_ms), "{retry_after_ms}");
    world
        .sim
        .run_for(Duration::from_millis(retry_after_ms.into()));
    world.send(a, &messages(251..=260));
    assert_eq!(world.frames(&mut a), [Frame::Ack(260)]);
    assert_eq!(world.stored("a"), (1..=260).collect::<Vec<_>>());
    assert_eq!(world.counters().refused_over_quota, 1);
}

#[test]
fn tokens_let_in() {
    let settings = Settings {
        tokens: vec![Token::new("one", "s3cret", &["default"])],
        ..settings()
    };
    let mut world = World::with(SteppedLog::new(), settings, 1);
    let with = |token, stream| Produce {
        token,
        stream,
        ..produce("a")
    };
    for (produce, welcome) in [
        (with("", ""), false),
        (with("s3cret", "other"), false),
        (with("s3cre", "default"), false),
        (with("s3cret", ""), true),
        (with("s3cret", "default"), true),
    ] {
        let mut client = world.client(Hello::Produce(produce));
        let frames = world.frames(&mut client);
        if welcome {
            assert!(matches!(frames[..], [Frame::Welcome { .. }]), "{frames:?}");
        } else {
            assert_eq!(frames, [refusal(0, Reason::Unauthorised)]);
        }
    }
    assert_eq!(world.counters().refused_unauthorised, 3);
}

#[test]
fn an_administrator_is_turned_away_with_its_token() {
    let with = |name: &str| {
        let rights = Rights {
            admin: true,
            ..Rights::default()
        };
        let token = Token {
            rights,
            ..Token::new(name, name, &[])
        };
        Settings {
            tokens: vec![token],
            ..settings()
        }
    };
    let mut world = World::with(SteppedLog::new().auto(), with("old"), 1);
    let mut admin = world.client(Hello::Administer(Administer { token: "old" }));
    let welcomed = [Frame::Admin("AdminWelcome".into())];
    assert_eq!(world.frames(&mut admin), welcomed);
    world.service.change_tokens(with("new").tokens);
    let mut list = Vec::new();
    let all = AdminFrame::List { after: "" };
    all.encode(&mut list).unwrap();
    world.send(admin, &list);
    let refused = [refusal(1, Reason::Unauthorised)];
    assert_eq!(world.frames(&mut admin), refused);
    assert!(world.ended(admin));
}

#[test]
fn without_tokens_other_hosts_are_refused() {
    let log = SteppedLog::new();
    let settings = Settings {
        protected: true,
        ..settings()
    };
    let mut world = World::with(log, settings, 1);
    let mut producer = world.client(Hello::Produce(produce("a")));
    world.send(producer, &messages(1..=3));
    let refused = [refusal(0, Reason::Unauthorised)];
    assert_eq!(world.frames(&mut producer), refused);
    let mut reader = world.client(Hello::Subscribe(Subscribe {
        begin: Begin::Tail,
        credit: 1 << 20,
        follow: false,
        may_be_absent: false,
        stream: "",
        cursor: "",
        token: "",
    }));
    assert_eq!(world.frames(&mut reader), refused);
    assert_eq!(world.counters().refused_unauthorised, 2);
    assert!(world.stored("a").is_empty());
}

#[test]
fn too_many_producers_are_refused() {
    let mut world = World::new(SteppedLog::new().producers(1));
    world.producer(produce("a"));
    let mut b = world.client(Hello::Produce(produce("b")));
    assert_eq!(world.frames(&mut b), [refusal(0, Reason::TooMany)]);
    world.producer(produce(""));
}

#[test]
fn a_hello_waits_for_room_in_the_queue_but_not_for_the_disk() {
    let mut world = World::new(SteppedLog::new().queue(100));
    let mut first = world.producer(produce("first"));
    world.send(first, &messages(1..=20));
    let mut a = world.connect();
    let mut bytes = hello(Hello::Produce(produce("a")));
    bytes.extend(messages(1..=5));
    world.send(a, &bytes);
    assert_eq!(world.frames(&mut a), []);
    // Longer than a hello may take.
    world.sim.run_for(Duration::from_secs(20));
    for _ in 0..3 {
        world.log.commit_all();
        world.quiet();
    }
    assert_eq!(world.frames(&mut a), [welcome(None), Frame::Ack(5)]);
    assert_eq!(world.frames(&mut first).last(), Some(&Frame::Ack(20)));
    world.log.disk_full(true);
    let mut b = world.connect();
    let mut bytes = hello(Hello::Produce(produce("b")));
    bytes.extend(messages(1..=5));
    world.send(b, &bytes);
    let full = Frame::Refusal {
        id: 0,
        reason: Reason::DiskFull,
        retry_after_ms: 50,
    };
    assert_eq!(world.frames(&mut b), [full]);
    assert!(world.ended(b));
    // A known producer is let in.
    world.producer(produce("first"));
}

#[test]
fn a_hello_must_come_in_time() {
    let mut world = World::new(SteppedLog::new());
    let silent = world.connect();
    let slow = world.connect();
    let bytes = hello(Hello::Produce(produce("a")));
    world.send(slow, &bytes[..bytes.len() - 1]);
    world.sim.run_for(Duration::from_millis(4900));
    assert!(!world.ended(silent) && !world.ended(slow));
    world.sim.run_for(Duration::from_millis(200));
    assert!(world.ended(silent) && world.ended(slow));
    assert_eq!(world.counters().hello_timeouts, 2);
}

#[test]
fn what_is_not_the_protocol_is_refused_counted_and_stores_nothing() {
    let mut world = World::new(SteppedLog::new().auto());
    let good = hello(Hello::Produce(produce("a")));
    let mut bad: Vec<Vec<u8>> = vec![b"GET / HTTP/1.1\r\n\r\n".to_vec(), vec![0; 100]];
    for (at, byte) in [
        (0, b'X'),
        (4, 9),
        (5, 7),
        (7, 0xff),
        (8, 9),
        (9, 0x80),
        (10, 1),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes.extend(messages(1..=3));
        bad.push(bytes);
    }
    let n = bad.len() as u64;
    for bytes in bad {
        let mut client = world.connect();
        world.send(client, &bytes);
        let frames = world.frames(&mut client);
        assert_eq!(
            frames,
            [refusal(0, Reason::Malformed)],
            "{}",
            bytes.escape_ascii()
        );
        assert!(world.ended(client));
    }
    assert_eq!(world.counters().refused_malformed, n);
    assert_eq!(world.log.taken(), (0, 0));
}

#[test]
fn a_torn_message_is_not_stored() {
    let mut world = World::new(SteppedLog::new().auto());
    let mut a = world.producer(produce("a"));
    let bytes = messages(1..=6);
    world.send(a, &bytes[..bytes.len() - 1]);
    world.sim.finish(a.peer);
    let refused = Frame::Refusal {
        id: 6,
        reason: Reason::Malformed,
        retry_after_ms: 0,
    };
    assert_eq!(world.frames(&mut a), [Frame::Ack(5), refused]);
    assert!(world.ended(a));
    assert_eq!(world.stored("a"), [1, 2, 3, 4, 5]);
    assert_eq!(world.counters().truncated, 1);
}

#[test]
fn a_client_that_reads_nothing_costs_little_and_is_told_the_last() {
    let mut world = World::new(SteppedLog::new().auto());
    let mut a = world.producer(produce("a"));
    world.sim.reading(a.peer, false);
    let mut conditions = world.sim.conditions().clone();
    conditions.receive_max = 100;
    world.sim.set_conditions(conditions);
    world.send(a, &messages(1..=200_000));
    world.sim.reading(a.peer, true);
    let frames = world.frames(&mut a);
    assert_eq!(frames.last(), Some(&Frame::Ack(200_000)));
    assert_eq!(world.counters().messages, 200_000);
}
