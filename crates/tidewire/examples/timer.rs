//! A server with a timer: counts the seconds, or other times that it is given, to each client, and hangs up after ten of them or when
//! the client has sent nothing at all for five.
//!
//! A timer belongs to a connection and fires once. Setting it again for every chunk of input costs
//! a store, so "five seconds after the last byte" needs no care.

use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tidewire::{
    Builder, Cx, Input, Instant, Listen, LoopHandle, Next, Peer, Protocol, Refusal, Service,
};

struct Ticker {
    every: Duration,
    left: u32,
    /// When to give up on a client that sends nothing. One timer carries both deadlines.
    silent_until: Instant,
    next_tick: Instant,
}

impl Ticker {
    fn arm(&self, cx: &mut Cx<'_, Self>) {
        cx.link.set_timer(self.next_tick.min(self.silent_until));
    }
}

impl Protocol for Ticker {
    type Local = ();
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.next_tick = cx.link.now() + self.every;
        self.silent_until = cx.link.now() + self.every * 5;
        self.arm(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        input.consume(input.len());
        self.silent_until = cx.link.now() + self.every * 5;
        self.arm(cx);
        Next::More
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        if cx.link.now() >= self.silent_until {
            return cx.link.finish_because("silent for too long");
        }
        if cx.link.now() >= self.next_tick {
            cx.link.write(format!("{}\n", self.left).as_bytes());
            self.left -= 1;
            self.next_tick = self.next_tick + self.every;
            if self.left == 0 {
                return cx.link.finish();
            }
        }
        self.arm(cx);
    }
}

struct Tickers(Duration);

impl Service for Tickers {
    type Conn = Ticker;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, _: &mut ()) -> Result<Ticker, Refusal> {
        let never = Instant::from_nanos(u64::MAX);
        Ok(Ticker {
            every: self.0,
            left: 10,
            silent_until: never,
            next_tick: never,
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // threads, epoll, uring, or auto: the best that works here.
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let every = std::env::args().nth(2).unwrap_or_else(|| "1000".into());
    let every = Duration::from_millis(every.parse()?);
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    let ticker = builder.service(Tickers(every));
    builder.listen(ticker, Listen::at("127.0.0.1:0"));
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
