//! What a connection tells is delivered before it is given more input, on every shape of driver: of
//! completions, several of one connection come in one turn.

use std::time::Duration;

use crate::protocol::connection::{Cx, Protocol};
use crate::protocol::input::Input;
use crate::protocol::service_fn::service_fn;
use crate::sim::{Conditions, Shape, Sim};
use crate::vocabulary::next::Next;

/// Tells itself each byte, and writes what it is told; `!` for what it is given out of turn.
#[derive(Default)]
struct TellsItself {
    told: usize,
}

impl TellsItself {
    fn look(&self, cx: &mut Cx<'_, Self>) {
        if self.told > 0 {
            cx.link.write(b"!");
        }
    }
}

impl Protocol for TellsItself {
    type Local = ();
    type Message = u8;

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        self.look(cx);
        let me = cx.link.id();
        for byte in input.bytes() {
            cx.tell(me, *byte).expect("room");
        }
        self.told += input.len();
        input.consume(input.len());
        Next::More
    }

    fn posted(&mut self, byte: u8, cx: &mut Cx<'_, Self>) {
        self.told -= 1;
        cx.link.write(&[byte]);
    }

    fn peer_finished(&mut self, _: usize, cx: &mut Cx<'_, Self>) {
        self.look(cx);
        cx.link.finish();
    }
}

#[test]
fn what_is_told_comes_before_more_input() {
    for shape in [Shape::Readiness, Shape::Completion] {
        for seed in 0..100 {
            // Each byte is a piece of its own, and all of them come at once.
            let latency = Duration::from_micros(50);
            let conditions = Conditions {
                latency: latency..=latency,
                receive_max: 1,
                send_buffer: 1 << 10,
                receive_buffer: 1 << 10,
                ..Conditions::from_seed(seed)
            };
            let mut sim = Sim::under(seed, conditions);
            sim.shape(shape);
            let at = sim.serve(
                service_fn(|_| TellsItself::default()),
                crate::Limits::default(),
            );
            let peer = sim.plain(at);
            sim.send(peer, b"abc");
            sim.run_for(Duration::from_secs(1));
            sim.send(peer, b"def");
            sim.finish(peer);
            sim.run_for(Duration::from_secs(1));
            assert_eq!(sim.received(peer), b"abcdef", "seed {seed}, {shape:?}");
        }
    }
}
