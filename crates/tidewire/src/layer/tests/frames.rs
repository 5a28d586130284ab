//! A layer that hands on whole frames only, with a farewell of its own: what is a byte to the wire is nothing to the protocol
//! inside, and the end of the stream may be the peer's word or not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::layer::{Around, Layer, Layered, Wrap};
use crate::sim::{Conditions, PlainId, PlainState, Shape, Sim};
use crate::{Closed, Cx, Input, Limits, Next, Peer, Protocol, Refusal, Service, Turn, service_fn};

/// A frame is a byte that says how long it is, and so many behind it. An empty one is the farewell.
#[derive(Default)]
struct Frames {
    partial: Vec<u8>,
    has_ended: bool,
}

impl Wrap for Frames {
    type Layer = Frames;

    fn wrap(&self, _: &Peer) -> Result<Option<Frames>, Refusal> {
        Ok(Some(Frames::default()))
    }
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![bytes.len() as u8];
    frame.extend_from_slice(bytes);
    frame
}

impl Layer for Frames {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let peer = at.peer().clone();
        let _ = at.accept(peer);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        _: &mut Around<'_, '_, S, Self>,
    ) -> Next {
        self.partial.extend_from_slice(input.bytes());
        input.consume(input.len());
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        loop {
            while let Some(&len) = self.partial.first()
                && self.partial.len() > usize::from(len)
                && at.wants_input()
                && !self.has_ended
            {
                let frame: Vec<u8> = self.partial.drain(..=usize::from(len)).skip(1).collect();
                match frame.is_empty() {
                    false => at.received(&frame),
                    true => {
                        self.has_ended = true;
                        at.peer_finished();
                    }
                }
            }
            let took = at.take_output(|link, bytes| {
                link.write(bytes);
                bytes.len()
            });
            if took == 0 {
                return;
            }
        }
    }

    fn peer_finished<S: Service>(&mut self, _: usize, at: &mut Around<'_, '_, S, Self>) {
        if !self.has_ended {
            at.cut_short("no farewell");
        }
    }
}

const SHAPES: [Shape; 3] = [Shape::Readiness, Shape::Completion, Shape::Threads];

/// A client of a service behind frames, which has sent these bytes and that it is done, after a while.
fn client_of<S: Service>(shape: Shape, service: S, bytes: &[u8]) -> (Sim, PlainId) {
    let mut sim = Sim::under(1, Conditions::calm());
    sim.shape(shape);
    let addr = sim.serve(Layered::new(Frames::default(), service), Limits::default());
    let peer = sim.plain(addr);
    sim.send(peer, bytes);
    sim.finish(peer);
    sim.run_for(Duration::from_secs(10));
    (sim, peer)
}

/// Sends back what it gets, and notes why it ends.
struct Echo(Noted);

type Noted = Arc<Mutex<Vec<String>>>;

impl Protocol for Echo {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        cx.link.forward_all(input)
    }

    fn closed(self, why: Closed, _: &mut Turn<'_, Self>) {
        self.0.lock().unwrap().push(why.to_string());
    }
}

/// A frame that comes a byte at a time is no progress to what is inside, neither before the first one nor between two, nor
/// through another layer.
#[test]
fn what_drips_into_a_layer_is_no_progress() {
    for (shape, speaks_first, is_twice) in SHAPES.into_iter().flat_map(|shape| {
        [
            (shape, false, false),
            (shape, true, false),
            (shape, true, true),
        ]
    }) {
        let limits = Limits {
            idle: Some(Duration::from_secs(3)),
            ..Limits::default()
        };
        let noted = Noted::default();
        let theirs = noted.clone();
        let echo = service_fn(move |_| Echo(theirs.clone()));
        let inside = Layered::with_limits(Frames::default(), echo, limits.clone());
        let mut sim = Sim::under(1, Conditions::calm());
        sim.shape(shape);
        let addr = match is_twice {
            true => sim.serve(Layered::with_limits(Bare, inside, limits.clone()), limits),
            false => sim.serve(inside, limits),
        };
        let peer = sim.plain(addr);
        if speaks_first {
            sim.send(peer, &framed(b"hello"));
        }
        let mut seconds = 0;
        for byte in framed(&[7; 60]) {
            sim.send(peer, &[byte]);
            sim.run_for(Duration::from_secs(1));
            if sim.state(peer) != PlainState::Open {
                break;
            }
            seconds += 1;
        }
        sim.finish(peer);
        sim.run_for(Duration::from_secs(1));
        let what = format!("{shape:?}, {speaks_first}, {is_twice}: open for {seconds} s");
        assert!((2..=4).contains(&seconds), "{what}");
        assert_eq!(*noted.lock().unwrap(), ["idle"], "{what}");
    }
}

/// Passes everything on as it is.
struct Bare;

impl Wrap for Bare {
    type Layer = Bare;

    fn wrap(&self, _: &Peer) -> Result<Option<Bare>, Refusal> {
        Ok(Some(Bare))
    }
}

impl Layer for Bare {
    fn opened<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        let peer = at.peer().clone();
        let _ = at.accept(peer);
    }

    fn received<S: Service>(
        &mut self,
        input: &mut Input<'_>,
        at: &mut Around<'_, '_, S, Self>,
    ) -> Next {
        if at.wants_input() {
            at.received(input.bytes());
            input.consume(input.len());
        }
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.take_output(|link, bytes| {
            link.write(bytes);
            bytes.len()
        });
    }
}

/// Answers each byte with a thousand, as many as its link takes at a time.
struct Multiplies(Noted);

impl Protocol for Multiplies {
    type Local = ();
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        while let Some(&byte) = input.bytes().first() {
            if cx.link.full() {
                return Next::AfterDrain;
            }
            cx.link.write(&[byte; 1000]);
            input.consume(1);
        }
        Next::More
    }

    fn closed(self, why: Closed, _: &mut Turn<'_, Self>) {
        self.0.lock().unwrap().push(why.to_string());
    }
}

/// Whether the layer has heard a farewell or not: all that came before the end is answered, however much that is.
#[test]
fn what_came_before_the_end_is_answered_inside_a_layer() {
    let requests: Vec<u8> = (0..20).flat_map(|_| framed(&[7; 100])).collect();
    for shape in SHAPES {
        for (farewell, why) in [(&[0][..], "finished"), (&[][..], "no farewell")] {
            let noted = Noted::default();
            let theirs = noted.clone();
            let service = service_fn(move |_| Multiplies(theirs.clone()));
            let bytes = [&requests[..], farewell].concat();
            let (sim, peer) = client_of(shape, service, &bytes);
            assert_eq!(sim.received(peer).len(), 2_000_000, "{shape:?}, {why}");
            assert_eq!(sim.state(peer), PlainState::Ended, "{shape:?}, {why}");
            assert_eq!(*noted.lock().unwrap(), [why], "{shape:?}");
        }
    }
}

/// Tells itself each byte, and answers what it is told.
struct TellsItself;

impl Protocol for TellsItself {
    type Local = ();
    type Message = u8;

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let me = cx.link.id();
        for byte in input.bytes() {
            cx.tell(me, *byte).expect("room");
        }
        input.consume(input.len());
        Next::More
    }

    fn posted(&mut self, byte: u8, cx: &mut Cx<'_, Self>) {
        cx.link.write(&[byte]);
    }
}

/// What is told inside a layer comes before the end also where both came together.
#[test]
fn what_is_told_inside_a_layer_is_heard_before_the_end() {
    for shape in SHAPES {
        for farewell in [&[0][..], &[]] {
            let bytes = [&framed(b"abc")[..], farewell].concat();
            let (sim, peer) = client_of(shape, service_fn(|_| TellsItself), &bytes);
            assert_eq!(sim.received(peer), b"abc", "{shape:?}, {farewell:?}");
            assert_eq!(
                sim.state(peer),
                PlainState::Ended,
                "{shape:?}, {farewell:?}"
            );
        }
    }
}
