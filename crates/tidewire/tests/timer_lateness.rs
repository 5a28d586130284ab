//! How late timers are, on each engine: sets one of 200 microseconds 5,000 times and says by how much
//! it was missed. It asserts nothing; look before believing a percentile of anything that is paced by
//! timers: `cargo test -p tidewire --test timer_lateness -- --ignored --nocapture`.

use std::net::TcpStream;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tidewire::{
    Builder, Cx, EngineChoice, Input, Instant, Listen, LoopHandle, Next, Peer, Protocol, Refusal,
    Service, StartError,
};

const PERIOD: Duration = Duration::from_micros(200);
const TIMES: usize = 5000;

struct Late {
    due: Instant,
    by: Vec<Duration>,
    done: Sender<Vec<Duration>>,
}

impl Late {
    fn arm(&mut self, cx: &mut Cx<'_, Self>) {
        self.due = cx.link.clock() + PERIOD;
        cx.link.set_timer(self.due);
    }
}

impl Protocol for Late {
    type Local = ();
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.arm(cx);
    }

    fn received(&mut self, _: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
        Next::More
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        self.by.push(cx.link.clock().since(self.due));
        if self.by.len() == TIMES {
            let _ = self.done.send(std::mem::take(&mut self.by));
            return cx.link.finish();
        }
        self.arm(cx);
    }
}

struct Lateness(Sender<Vec<Duration>>);

impl Service for Lateness {
    type Conn = Late;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Late, Refusal> {
        Ok(Late {
            due: Instant::from_nanos(0),
            by: Vec::with_capacity(TIMES),
            done: self.0.clone(),
        })
    }
}

#[test]
#[ignore = "a measurement"]
fn how_late_timers_are() {
    for engine in [
        EngineChoice::Threads,
        EngineChoice::Epoll,
        EngineChoice::Uring,
    ] {
        let (done, late) = channel();
        let mut builder = Builder::new();
        builder.engine(engine);
        builder.serve(Listen::at(([127, 0, 0, 1], 0)), Lateness(done));
        let running = match builder.start() {
            Ok(running) => running,
            Err(StartError::Engine { reason, .. }) => {
                println!("{engine}: does not work here: {reason}");
                continue;
            }
            Err(e) => panic!("{e}"),
        };
        let addr = running.addrs()[0].tcp().expect("TCP");
        let _client = TcpStream::connect(addr).expect("it listens");
        let mut by = late.recv().expect("every timer expires");
        by.sort();
        let at = |share: f64| by[(share * (TIMES - 1) as f64) as usize];
        println!(
            "{engine}: late by {:?} in the median, {:?} at 90 %, {:?} at 99 %",
            at(0.5),
            at(0.9),
            at(0.99)
        );
        running.stop(Duration::from_secs(1));
    }
}
