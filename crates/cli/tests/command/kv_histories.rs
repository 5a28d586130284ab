//! What concurrent clients of both protocols have heard of single keys, on every engine, from a server at
//! `--durability sync` that is killed again and again: every key has one history, says our checker, and so does
//! Porcupine where it is built. Both find a server out that forgets.

#[path = "../../../kv/tests/concurrent/asks.rs"]
mod asks;
#[path = "../../../kv/tests/concurrent/history.rs"]
mod history;
#[path = "../../../kv/tests/concurrent/porcupine.rs"]
mod porcupine;
#[path = "../../../kv/tests/common/wire.rs"]
mod wire;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use crate::common::kv::serve;
use crate::common::{PATIENCE, engines};
use asks::KEYS;
use history::{Answer, Ask, Op, UNKNOWN, is_linearizable};
use rustix::process::Signal;
use tidewire_kv::binary::{encode_read, encode_write};
use wire::Client;

/// Commands that a client sends at once at most.
const AT_ONCE: usize = 3;
/// Clients of the Redis protocol, and of the binary one.
const CLIENTS: (usize, usize) = (4, 2);

/// Orders what the clients begin and end, in all rounds.
static CLOCK: AtomicU64 = AtomicU64::new(0);
/// The next value, which no other client writes; far apart, so that increments do not make one of
/// two.
static VALUE: AtomicU64 = AtomicU64::new(0);

fn value() -> i64 {
    VALUE.fetch_add(10_000, SeqCst) as i64
}

fn tick() -> u64 {
    CLOCK.fetch_add(1, SeqCst)
}

/// What a client was told: of which key, and what.
type Told = Vec<(usize, Op)>;

/// Asks `each` until the connection ends; what is never answered may have happened.
fn until_the_end(
    mut asks: impl FnMut() -> Vec<(usize, Ask)>,
    mut send: impl FnMut(&[(usize, Ask)]) -> io::Result<()>,
    mut hear: impl FnMut(Ask) -> io::Result<Answer>,
    answers: &AtomicUsize,
) -> Told {
    let mut told = Told::new();
    loop {
        let asked = asks();
        let begin = tick();
        let mut alive = send(&asked).is_ok();
        for (key, ask) in asked {
            let heard = if alive { hear(ask).ok() } else { None };
            alive &= heard.is_some();
            let op = Op {
                ask,
                answer: heard.flatten(),
                begin,
                end: heard.map_or(UNKNOWN, |_| tick()),
            };
            told.push((key, op));
        }
        if !alive {
            return told;
        }
        answers.fetch_add(1, SeqCst);
    }
}

fn by_resp(mut client: Client, keys: &[usize], seed: u64, answers: &AtomicUsize) -> Told {
    let mut rng = fastrand::Rng::with_seed(seed);
    let asks = || {
        let n = rng.usize(1..=AT_ONCE);
        let one = |_| (keys[rng.usize(..keys.len())], asks::any(value(), &mut rng));
        (0..n).map(one).collect()
    };
    let client = std::cell::RefCell::new(&mut client);
    let send = |asked: &[(usize, Ask)]| {
        let lines = asked
            .iter()
            .map(|(key, ask)| wire::command(&asks::line(*ask, *key)));
        let bytes: Vec<u8> = lines.flatten().collect();
        client.borrow_mut().socket.write_all(&bytes)
    };
    let hear = |ask| {
        let reply = client.borrow_mut().next()?;
        Ok(asks::answer(
            ask,
            reply.ok_or(io::ErrorKind::UnexpectedEof)?,
        ))
    };
    until_the_end(asks, send, hear, answers)
}

fn by_binary(mut socket: TcpStream, keys: &[usize], seed: u64, answers: &AtomicUsize) -> Told {
    let mut rng = fastrand::Rng::with_seed(seed);
    let asks = || {
        let ask = [Ask::Get, Ask::Set(value())][rng.usize(..2)];
        vec![(keys[rng.usize(..keys.len())], ask)]
    };
    let mut other = socket.try_clone().unwrap();
    let send = |asked: &[(usize, Ask)]| {
        let mut bytes = Vec::new();
        for (key, ask) in asked {
            let key = format!("key:{key}");
            match ask {
                Ask::Set(v) => encode_write(key.as_bytes(), v.to_string().as_bytes(), &mut bytes),
                _ => encode_read(key.as_bytes(), &mut bytes),
            }
        }
        other.write_all(&bytes)
    };
    let hear = |ask| {
        let mut head = [0; 2];
        socket.read_exact(&mut head)?;
        let mut text = vec![0; head[1].into()];
        socket.read_exact(&mut text)?;
        let number = (!text.is_empty()).then(|| String::from_utf8(text).unwrap().parse().unwrap());
        assert_eq!(head[0], 3);
        match ask {
            // A write is answered with what was written.
            Ask::Set(v) => {
                assert_eq!(number, Some(v));
                Ok(None)
            }
            _ => Ok(number),
        }
    };
    until_the_end(asks, send, hear, answers)
}

/// The keys of a round: some of its own, and the keys of the round before, so that each outlives a
/// server.
fn keys(round: usize) -> Vec<usize> {
    (round.saturating_sub(1) * KEYS..(round + 1) * KEYS).collect()
}

/// What the clients of one round were told, until the server was killed.
fn round(
    number: usize,
    (resp, binary): (SocketAddr, SocketAddr),
    kill: impl FnOnce(),
) -> Vec<Told> {
    let (keys, answers) = (&keys(number), &AtomicUsize::new(0));
    let mut rng = fastrand::Rng::new();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for _ in 0..CLIENTS.0 {
            let (client, seed) = (Client::connect(resp), rng.u64(..));
            running.push(scope.spawn(move || by_resp(client, keys, seed, answers)));
        }
        for _ in 0..CLIENTS.1 {
            let (socket, seed) = (TcpStream::connect(binary).unwrap(), rng.u64(..));
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            running.push(scope.spawn(move || by_binary(socket, keys, seed, answers)));
        }
        let (enough, began) = (rng.usize(20..300), Instant::now());
        while answers.load(SeqCst) < enough {
            assert!(began.elapsed() < PATIENCE, "no answers");
            thread::yield_now();
        }
        kill();
        running
            .into_iter()
            .map(|client| client.join().unwrap())
            .collect()
    })
}

/// The history of each key: what each client of each round has heard, and what never was answered.
fn histories(engines: &[&str], durability: &str, data: &Path) -> Vec<Vec<Vec<Op>>> {
    let mut histories = vec![Vec::new(); engines.len() * KEYS];
    for (number, engine) in engines.iter().enumerate() {
        let (server, resp, binary) = serve(engine, durability, data);
        let told = round(number, (resp, binary), || server.signal(Signal::KILL));
        for told in told {
            let mut heard = vec![Vec::new(); histories.len()];
            for (key, op) in told {
                if op.end != UNKNOWN {
                    heard[key].push(op);
                } else if op.ask != Ask::Get {
                    histories[key].push(vec![op]);
                }
            }
            for (key, ops) in heard
                .into_iter()
                .enumerate()
                .filter(|(_, ops)| !ops.is_empty())
            {
                histories[key].push(ops);
            }
        }
    }
    // The final values belong to the history.
    let (_server, resp, _) = serve("auto", durability, data);
    let mut client = Client::connect(resp);
    for (key, history) in histories.iter_mut().enumerate() {
        let begin = tick();
        let answer = asks::answer(Ask::Get, client.ask(&asks::line(Ask::Get, key)));
        history.push(vec![Op {
            ask: Ask::Get,
            answer,
            begin,
            end: tick(),
        }]);
    }
    histories
}

#[test]
fn every_key_has_one_history_on_every_engine_however_often_the_server_is_killed() {
    let data = tempfile::tempdir().unwrap();
    let rounds: Vec<&str> = engines()
        .into_iter()
        .flat_map(|engine| [engine; 3])
        .collect();
    let histories = histories(&rounds, "sync", data.path());
    for (key, ops) in histories.iter().enumerate() {
        assert!(is_linearizable(ops), "key {key}: {ops:#?}");
    }
    let ops = histories.iter().flatten().flatten().count();
    println!(
        "{ops} operations on {} keys in {} rounds",
        histories.len(),
        rounds.len()
    );
    let Some(judged) = porcupine::judged(&histories) else {
        return;
    };
    for (key, is) in judged.into_iter().enumerate() {
        assert!(is, "key {key}, says Porcupine: {:#?}", histories[key]);
    }
}

/// A server that forgets what it has answered is found by both judges; otherwise their silence
/// above would mean nothing.
#[test]
fn a_server_that_forgets_is_found_out() {
    let data = tempfile::tempdir().unwrap();
    let histories = histories(&["auto"; 3], "none", data.path());
    assert!(histories.iter().any(|ops| !is_linearizable(ops)));
    if let Some(judged) = porcupine::judged(&histories) {
        assert!(judged.contains(&false));
    }
}
