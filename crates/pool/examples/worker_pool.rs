//! Counts primes beside the loop: a connection says a number a line and gets, in the order of its
//! lines, how many primes there are below each. Others are answered meanwhile, whatever it asks for.
//!
//! ```text
//! cargo run --release -p tidewire-pool --example worker_pool
//! printf '1000000\n10\n' | nc 127.0.0.1 PORT
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{Builder, Cx, EngineChoice, Input, Listen, Next, Protocol, codec, service_fn};
use tidewire_pool::{Lane, NotDone, Pool, Settings};

/// Work of one connection that may be under way at once.
const UNDER_WAY: usize = 16;
const MOST: u64 = 50_000_000;

struct Primes {
    pool: Pool,
    lines: codec::Lines,
    lane: Lane<Result<u64, NotDone>>,
    /// Nothing more will be asked, so the last answer ends the connection.
    ending: bool,
}

impl Protocol for Primes {
    type Local = ();
    type Message = (u64, Result<u64, NotDone>);

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        loop {
            if self.lane.len() == UNDER_WAY {
                // The rest waits where it is; `posted` goes on with it.
                cx.link.pause();
                return Next::More;
            }
            let most = match self.lines.take(input) {
                Ok(Some(line)) => std::str::from_utf8(line)
                    .ok()
                    .and_then(|l| l.trim().parse().ok()),
                Ok(None) => return Next::More,
                Err(_) => None,
            };
            let Some(most) = most.filter(|most| *most <= MOST) else {
                cx.link.finish_because("not a number up to 50 million");
                return Next::More;
            };
            match self.lane.reserve(&self.pool, &cx.handle()) {
                Ok(place) => self
                    .lane
                    .run(place, move || primes(most), |n, done| (n, done)),
                Err(_) => {
                    cx.link.write(b"busy, come back later\n");
                    cx.link.finish_because("the pool is full");
                    return Next::More;
                }
            }
        }
    }

    fn posted(&mut self, (number, done): Self::Message, cx: &mut Cx<'_, Self>) {
        self.lane.put(number, done);
        while let Some(done) = self.lane.pop() {
            match done {
                Ok(count) => cx.link.write(format!("{count}\n").as_bytes()),
                Err(_) => return cx.link.finish_because("the work went wrong"),
            }
        }
        if self.ending && self.lane.is_empty() {
            return cx.link.finish();
        }
        cx.link.resume();
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.end(cx);
    }

    /// What was asked for is answered first.
    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        self.end(cx);
    }
}

impl Primes {
    fn new(pool: Pool) -> Primes {
        Primes {
            pool,
            lines: codec::Lines::new(64),
            lane: Lane::new(UNDER_WAY),
            ending: false,
        }
    }

    fn end(&mut self, cx: &mut Cx<'_, Self>) {
        self.ending = true;
        if self.lane.is_empty() {
            cx.link.finish();
        }
    }
}

/// How many primes are below `most`: a sieve.
fn primes(most: u64) -> u64 {
    let most = usize::try_from(most).expect("checked");
    let mut composite = vec![false; most];
    let mut count = 0;
    for n in 2..most {
        if !composite[n] {
            count += 1;
            (n * n..most).step_by(n).for_each(|m| composite[m] = true);
        }
    }
    count
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let self_test = words.iter().any(|w| w == "--self-test");
    let engine = words.iter().find_map(|w| w.parse::<EngineChoice>().ok());

    let pool = Pool::new(&Settings::default())?;
    let theirs = pool.clone();
    let mut builder = Builder::new();
    builder.engine(engine.unwrap_or_default());
    let id = builder.service(service_fn(move |_| Primes::new(theirs.clone())));
    builder.listen(id, Listen::at("127.0.0.1:0"));
    let running = builder.start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    if self_test {
        let mut client = TcpStream::connect(&running.addrs()[0])?;
        client.set_read_timeout(Some(Duration::from_secs(30)))?;
        client.write_all(b"2000000\n10\n1000\n")?;
        let answers: Result<Vec<String>, _> = BufReader::new(client).lines().take(3).collect();
        assert_eq!(
            answers?,
            ["148933", "4", "168"],
            "in the order of the lines"
        );
    } else {
        Signals::new([SIGINT, SIGTERM])?.forever().next();
    }
    println!(
        "{}; {}",
        running.stop(Duration::from_secs(10)),
        pool.counters()
    );
    Ok(())
}
