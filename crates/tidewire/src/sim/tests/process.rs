//! Loops of every shape come, serve and die.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::sim::tests::services::Echo;
use crate::sim::{LoopId, Outcome, PlainState, Shape, Sim, for_each_seed, seeds};
use crate::{
    Cx, Dial, Endpoint, Input, Limits, LoopHandle, Next, Peer, Protocol, Refusal, Service, on_input,
};

const SHAPES: [Shape; 3] = [Shape::Readiness, Shape::Completion, Shape::Threads];
const LONG: Duration = Duration::from_secs(600);

fn serve(sim: &mut Sim, shape: Shape, at: Option<&Endpoint>) -> (LoopId, Endpoint) {
    let on = sim.shape(shape).add_loop();
    let service = sim.service(on, Echo, Limits::default());
    let at = at.cloned().unwrap_or_else(|| sim.listen(service));
    sim.listen_at(service, at.clone());
    (on, at)
}

#[test]
fn loops_of_every_shape_serve_and_stop() {
    for seed in seeds(30) {
        for shape in SHAPES {
            let mut sim = Sim::new(seed);
            let (on, at) = serve(&mut sim, shape, None);
            let peers = [(); 3].map(|()| sim.plain(&at));
            for peer in peers {
                sim.send(peer, b"hello");
            }
            sim.run_for(Duration::from_secs(30));
            for peer in peers {
                assert_eq!(sim.received(peer), b"hello", "seed {seed}, {shape:?}");
            }
            assert_eq!(sim.counters(on).accepted, 3, "seed {seed}, {shape:?}");
            sim.stop(on, Duration::from_secs(1));
            let end = sim.run_until_idle(LONG);
            assert_eq!(end, Outcome::Idle, "seed {seed}, {shape:?}");
            assert!(sim.stopped(on), "seed {seed}, {shape:?}");
        }
    }
}

/// Dials, and counts what comes back.
fn asks(heard: Arc<AtomicU32>) -> impl Service {
    on_input(move |input, link| {
        heard.fetch_add(input.len() as u32, SeqCst);
        input.consume(input.len());
        link.finish();
        Next::More
    })
}

/// Says one byte to every peer.
struct Greets;

impl Service for Greets {
    type Conn = Greets;

    fn on_loop(&self, _: LoopHandle<()>) {}

    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Greets, Refusal> {
        Ok(Greets)
    }
}

impl Protocol for Greets {
    type Local = ();
    type Message = ();

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        cx.link.write(b"!");
    }

    fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
        input.consume(input.len());
        Next::More
    }
}

#[test]
fn loops_of_every_shape_dial() {
    for seed in seeds(30) {
        for shape in SHAPES {
            let mut sim = Sim::new(seed);
            let heard = Arc::new(AtomicU32::new(0));
            let on = sim.shape(shape).add_loop();
            let client = sim.service(on, asks(heard.clone()), Limits::default());
            let at = sim.add_loop();
            let server = sim.service(at, Greets, Limits::default());
            let at = sim.listen(server);
            for _ in 0..3 {
                sim.dial(client, Dial::to(&at));
            }
            let end = sim.run_until_idle(LONG);
            assert_eq!(end, Outcome::Idle, "seed {seed}, {shape:?}");
            assert_eq!(heard.load(SeqCst), 3, "seed {seed}, {shape:?}");
        }
    }
}

/// Peers that it had only just accepted learn of it, too.
#[test]
fn a_process_that_dies_is_followed_by_another() {
    for_each_seed(300, |seed| {
        let shape = SHAPES[(seed % 3) as usize];
        let mut sim = Sim::new(seed);
        let (on, at) = serve(&mut sim, shape, None);
        let peers = [(); 4].map(|()| sim.plain(&at));
        for peer in peers {
            sim.send(peer, &[7; 300]);
        }
        for _ in 0..seed % 97 {
            sim.step();
        }
        sim.kill(on);
        sim.run_for(LONG);
        for peer in peers {
            let state = sim.state(peer);
            if matches!(state, PlainState::Open | PlainState::Connecting) {
                return Err(format!("{shape:?}: somebody is {state:?} for ever"));
            }
        }
        let refused = sim.plain(&at);
        sim.run_for(LONG);
        if !matches!(sim.state(refused), PlainState::Failed(_)) {
            return Err(format!(
                "nobody is there, and yet: {:?}",
                sim.state(refused)
            ));
        }
        serve(&mut sim, shape, Some(&at));
        let again = sim.plain(&at);
        sim.send(again, b"again");
        sim.run_for(Duration::from_secs(30));
        match sim.received(again) {
            b"again" => Ok(()),
            got => Err(format!("{shape:?}: the next one answers {got:?}")),
        }
    });
}
