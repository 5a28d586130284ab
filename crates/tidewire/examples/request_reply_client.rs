//! A client on the same traits: asks an echo server a number of questions, several in flight, checks
//! the answers, and exits.
//!
//! Dialled connections are protocols like accepted ones; only the side that speaks first differs.
//! What the connection has found out reaches `main` through the service's shared state.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tidewire::{
    Builder, Closed, Cx, Dial, Input, Limits, Listen, LoopHandle, Next, Origin, Peer, Protocol,
    Refusal, Service, Turn,
};

const QUESTIONS: u64 = 10_000;
const IN_FLIGHT: u64 = 32;

/// Both ends, told apart by how the connection came about.
enum End {
    Server,
    Client { asked: u64, answered: u64 },
}

impl End {
    fn ask(&mut self, cx: &mut Cx<'_, Self>) {
        if let End::Client { asked, answered } = self {
            while *asked < QUESTIONS && *asked - *answered < IN_FLIGHT {
                cx.link.write(&asked.to_be_bytes());
                *asked += 1;
            }
        }
    }
}

impl Protocol for End {
    type Local = Sender<Result<u64, String>>;
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.ask(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let End::Client { answered, .. } = self else {
            if cx.link.full() {
                return Next::AfterDrain;
            }
            let n = input.len();
            cx.link.forward(input, n);
            return Next::More;
        };
        while let Some(answer) = input.bytes().first_chunk::<8>() {
            if u64::from_be_bytes(*answer) != *answered {
                cx.link.abort_because("a wrong answer");
                return Next::More;
            }
            *answered += 1;
            input.consume(8);
        }
        if *answered == QUESTIONS {
            cx.link.finish();
        }
        self.ask(cx);
        Next::More
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        if let End::Client { answered, .. } = self {
            let result = if why == Closed::Finished {
                Ok(answered)
            } else {
                Err(why.to_string())
            };
            let _ = turn.local.send(result);
        }
    }
}

struct Both(Sender<Result<u64, String>>);

impl Service for Both {
    type Conn = End;

    fn on_loop(&self, _: LoopHandle<()>) -> Sender<Result<u64, String>> {
        self.0.clone()
    }

    fn accept(&self, from: &Peer, _: &mut Sender<Result<u64, String>>) -> Result<End, Refusal> {
        Ok(match from.origin {
            Origin::Accepted(_) => End::Server,
            Origin::Dialled(_) => End::Client {
                asked: 0,
                answered: 0,
            },
        })
    }

    fn dial_failed(&self, _token: u64, error: &std::io::Error, turn: &mut Turn<'_, End>) {
        let _ = turn.local.send(Err(error.to_string()));
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let engine = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let (results, result): (_, Receiver<Result<u64, String>>) = channel();
    let mut builder = Builder::new();
    builder.engine(engine.parse()?);
    let limits = Limits {
        idle: Some(Duration::from_secs(5)),
        ..Limits::default()
    };
    let both = builder.service_with(Both(results), limits);
    builder.listen(both, Listen::at("127.0.0.1:0"));
    let running = builder.start()?;
    let to = &running.addrs()[0];
    let dial = Dial::to(to).attempts(3);
    running.dial(both, dial).expect("room for a dial");
    // The service keeps a sender, so there is a result.
    let answered = result.recv()??;
    println!(
        "{answered} questions answered by {to} over {}",
        running.engine()
    );
    running.stop(Duration::from_secs(1));
    Ok(())
}
