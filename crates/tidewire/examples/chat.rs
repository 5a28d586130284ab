//! A chat room: each line goes to all other clients, on whatever loop they are.
//!
//! A connection cannot call another one. It puts its line into state that the loops share and
//! signals them; each loop's `woken` then hands the new lines to its connections. Any number of
//! lines costs a loop one wake-up. A client that does not read is not waited for: lines are dropped
//! for a connection that is full.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{
    Builder, Conns, Cx, Input, Listen, LoopHandle, Next, Peer, Protocol, Refusal, Service, codec,
};

const LINE_MAX: usize = 4096;
/// Lines kept for loops that have not come round yet.
const BACKLOG: usize = 1024;

/// What all loops share.
#[derive(Default)]
struct Room {
    lines: Mutex<Lines>,
    loops: Mutex<HashMap<u32, LoopHandle<()>>>,
}

#[derive(Default)]
struct Lines {
    /// Number of the oldest line kept.
    first: u64,
    kept: VecDeque<Line>,
}

#[derive(Clone)]
struct Line {
    /// The loop's number, and the connection's.
    from: (u32, u64),
    text: Arc<[u8]>,
}

/// What one loop knows.
struct OnLoop {
    number: u32,
    room: Arc<Room>,
    seen: u64,
}

struct Guest(codec::Lines);

impl Protocol for Guest {
    type Local = OnLoop;
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        loop {
            match self.0.take(input) {
                Ok(Some(text)) => cx.local.room.say(Line {
                    // Connections' names are per loop; the number tells loops apart.
                    from: (cx.number(), cx.link.id().to_bits()),
                    text: [text, b"\n"].concat().into(),
                }),
                Ok(None) => return Next::More,
                Err(_) => {
                    cx.link.finish_because("a line too long");
                    return Next::More;
                }
            }
        }
    }
}

impl Room {
    fn say(&self, line: Line) {
        {
            let mut lines = self.lines.lock().unwrap();
            lines.kept.push_back(line);
            if lines.kept.len() > BACKLOG {
                lines.kept.pop_front();
                lines.first += 1;
            }
        }
        for each in self.loops.lock().unwrap().values() {
            each.signal();
        }
    }
}

struct Chat(Arc<Room>);

impl Service for Chat {
    type Conn = Guest;

    fn on_loop(&self, at: LoopHandle<()>) -> OnLoop {
        let number = at.number();
        self.0.loops.lock().unwrap().insert(number, at);
        let lines = self.0.lines.lock().unwrap();
        let seen = lines.first + lines.kept.len() as u64;
        OnLoop {
            number,
            room: self.0.clone(),
            seen,
        }
    }

    /// With a thread per connection, loops come and go.
    fn loop_ended(&self, local: OnLoop) {
        self.0.loops.lock().unwrap().remove(&local.number);
    }

    fn accept(&self, _: &Peer, _: &mut OnLoop) -> Result<Guest, Refusal> {
        Ok(Guest(codec::Lines::new(LINE_MAX)))
    }

    fn woken(&self, local: &mut OnLoop, all: &mut Conns<'_, Guest>) {
        let fresh: Vec<Line> = {
            let lines = self.0.lines.lock().unwrap();
            let skip = local.seen.saturating_sub(lines.first) as usize;
            local.seen = lines.first + lines.kept.len() as u64;
            lines.kept.iter().skip(skip).cloned().collect()
        };
        all.each(local, |_, cx| {
            let me = (cx.number(), cx.link.id().to_bits());
            for line in fresh.iter().filter(|l| l.from != me) {
                if !cx.link.full() {
                    cx.link.write(&line.text);
                }
            }
        });
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // threads, epoll, uring, or auto: the best that works here.
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    let chat = builder.service(Chat(Arc::default()));
    builder.listen(chat, Listen::at("127.0.0.1:0"));
    let running = builder.start()?;
    println!(
        "listening on {} by {}",
        running.addrs()[0],
        running.engine()
    );
    Signals::new([SIGINT, SIGTERM])?.forever().next();
    println!("{}", running.stop(Duration::from_secs(5)));
    Ok(())
}
