//! A layer that changes every byte, and so would show if it lost or delayed one; two of them are
//! invisible.

mod frames;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::Duration;

use proptest::prelude::*;

use super::{Around, Inner, Layer, Layered, Wrap};
use crate::reactor::facts::Flag;
use crate::reactor::making::MakeShares;
use crate::sim::chunking::{self, Feed};
use crate::sim::tests::services::{Echo, Owes, SLEEP, Sleepy, Sums};
use crate::sim::{Conditions, Outcome, PlainState, Sim};
use crate::{
    Closed, ConnId, Conns, Cx, Handle, Input, Limits, LoopHandle, Next, Peer, Protocol, Refusal,
    Service, Turn,
};

/// What is on the wire is the inner protocol's with all bits turned over.
struct Inverted<P: Protocol>(Inner<P>);

fn invert(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|b| !b).collect()
}

impl<P: Protocol> Inverted<P> {
    fn pump(&mut self, cx: &mut Cx<'_, Self>) {
        loop {
            // As if this layer had little room of its own.
            let took = self.0.take_output(cx, |cx, bytes| {
                let n = bytes.len().min(700);
                cx.link.write(&invert(&bytes[..n]));
                n
            });
            if took == 0 {
                break;
            }
        }
        self.0.yield_to(cx);
    }
}

impl<P: Protocol> Protocol for Inverted<P> {
    type Local = P::Local;
    type Message = P::Message;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        self.0.open(cx);
        self.pump(cx);
    }

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if self.0.wants_input() {
            self.0.received(&invert(input.bytes()), cx);
            input.consume(input.len());
        }
        self.pump(cx);
        self.0.next()
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.pump(cx);
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        assert_eq!(unread, 0);
        self.0.peer_finished(cx);
        self.pump(cx);
    }

    fn cut_short(&mut self, _: usize, why: &'static str, cx: &mut Cx<'_, Self>) {
        self.0.cut_short(why, cx);
        self.pump(cx);
    }

    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        self.0.hung_up(cx);
        self.pump(cx);
    }

    fn expired(&mut self, cx: &mut Cx<'_, Self>) {
        self.0.expired(cx);
        self.pump(cx);
    }

    fn idle(&mut self, cx: &mut Cx<'_, Self>) {
        self.0.idle(cx);
        self.pump(cx);
    }

    fn posted(&mut self, message: P::Message, cx: &mut Cx<'_, Self>) {
        self.0.posted(message, cx);
        self.pump(cx);
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        self.0.draining(cx);
        self.pump(cx);
    }

    fn undelivered(&mut self, to: ConnId, message: P::Message, cx: &mut Cx<'_, Self>) {
        self.0.undelivered(to, message, cx);
        self.pump(cx);
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        self.0.closed(why, turn);
    }
}

/// Puts the layer around every connection of a service.
struct Over<S>(S, Limits);

impl<S: Service> Service for Over<S> {
    type Conn = Inverted<S::Conn>;

    fn on_loop(
        &self,
        at: LoopHandle<<S::Conn as Protocol>::Message>,
    ) -> <S::Conn as Protocol>::Local {
        self.0.on_loop(at)
    }

    fn accept(
        &self,
        from: &Peer,
        local: &mut <S::Conn as Protocol>::Local,
    ) -> Result<Self::Conn, Refusal> {
        let protocol = self.0.accept(from, local)?;
        Ok(Inverted(Inner::new(protocol, self.1.clone())))
    }

    fn woken(
        &self,
        local: &mut <S::Conn as Protocol>::Local,
        all: &mut Conns<'_, Inverted<S::Conn>>,
    ) {
        all.each(local, |layer, cx| layer.pump(cx));
    }
}

fn low_marks() -> Limits {
    Limits {
        output_low: 30,
        output_high: 200,
        ..Limits::default()
    }
}

fn frames(bodies: &[Vec<u8>]) -> Vec<u8> {
    let frame = |b: &Vec<u8>| [&(b.len() as u32).to_le_bytes(), &b[..]].concat();
    bodies.iter().flat_map(frame).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_layer_changes_the_bytes_and_nothing_else(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..80),
        last in 0u32..3,
        seed: u64,
        half_close: bool,
        window in 1usize..2000,
    ) {
        // Ends open, with a finish, or with an abort.
        let ending: &[u8] = [&[][..], &[0; 4], &[0xff; 4]][last as usize];
        let plain = [frames(&bodies), ending.to_vec()].concat();
        let splits = chunking::splits(seed, plain.len());
        let feed = |input| {
            let feed = Feed::new(input).splits(&splits).half_close(half_close).window(window);
            feed.limits(low_marks())
        };
        let mut want = feed(&plain).window(usize::MAX).run(Sums);
        if last == 2 {
            // How much an abort drops depends on what had been taken.
            want.output.clear();
        }
        let inverted = invert(&plain);
        let mut once = feed(&inverted).run(Over(Sums, low_marks()));
        let mut twice = feed(&plain).run(Over(Over(Sums, low_marks()), low_marks()));
        once.output = invert(&once.output);
        if last == 2 {
            once.output.clear();
            twice.output.clear();
        }
        prop_assert_eq!(&once, &want);
        prop_assert_eq!(&twice, &want);
    }

    #[test]
    fn echo_through_two_layers_on_a_rough_network(
        input in proptest::collection::vec(any::<u8>(), 0..20_000),
        seed: u64,
    ) {
        let limits = Limits { idle: None, ..low_marks() };
        let mut sim = Sim::new(seed);
        let addr = sim.serve(Over(Over(Echo, low_marks()), low_marks()), limits);
        let peer = sim.plain(addr);
        sim.send(peer, &input);
        sim.finish(peer);
        prop_assert_eq!(sim.run_until_idle(Duration::from_secs(3600)), Outcome::Idle);
        prop_assert_eq!(sim.received(peer), &input);
    }
}

#[test]
fn timers_and_pauses_are_passed_on() {
    let layered = || Over(Over(Sleepy, Limits::default()), Limits::default());
    let feed = Feed::new(b"abc").half_close(false);
    assert_eq!(
        feed.clone().after(SLEEP * 3 / 2).run(layered()).output,
        b"."
    );
    assert_eq!(feed.after(SLEEP * 40).run(layered()).output, b"...");
    let got = Feed::new(b"abc").splits(&[1, 1]).run(layered());
    assert_eq!(
        (got.output, got.closed),
        (b"...".to_vec(), Some(Closed::Finished))
    );
}

/// Takes a byte, then waits to be told what to answer.
#[derive(Clone)]
struct Clerk;

#[derive(Default)]
struct Desk {
    at: Vec<Handle<u8>>,
    log: Vec<&'static str>,
}

impl Service for Clerk {
    type Conn = Clerk;
    fn on_loop(&self, _: LoopHandle<u8>) -> Desk {
        Desk::default()
    }
    fn accept(&self, _: &Peer, _: &mut Desk) -> Result<Clerk, Refusal> {
        Ok(Clerk)
    }
}

impl Protocol for Clerk {
    type Local = Desk;
    type Message = u8;

    fn opened(&mut self, cx: &mut Cx<'_, Self>) {
        cx.local.at.push(cx.handle());
        cx.local.log.push("opened");
    }

    fn received(&mut self, input: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
        input.consume(1);
        Next::Paused
    }

    fn posted(&mut self, message: u8, cx: &mut Cx<'_, Self>) {
        match message {
            b'X' => cx.link.abort(),
            _ => {
                cx.link.write(&[message]);
                cx.link.resume();
            }
        }
    }

    fn hung_up(&mut self, cx: &mut Cx<'_, Self>) {
        cx.local.log.push("hung up");
    }

    fn draining(&mut self, cx: &mut Cx<'_, Self>) {
        cx.local.log.push("draining");
        cx.link.finish();
    }

    fn closed(self, why: Closed, turn: &mut Turn<'_, Self>) {
        turn.local.log.push(why.name());
    }
}

#[test]
fn mail_hanging_up_stopping_and_aborting_reach_through_layers() {
    const SHORT: Duration = Duration::from_millis(10);
    for ending in ["stop", "abort"] {
        let mut sim = Sim::under(1, Conditions::calm());
        let at = sim.add_loop();
        let layered = Over(Over(Clerk, Limits::default()), Limits::default());
        let service = sim.service(at, layered, Limits::default());
        let addr = sim.listen(service);
        let peer = sim.plain(addr);
        sim.send(peer, b"??");
        sim.run_for(SHORT);
        let handle = sim.local(service).at[0].clone();
        handle.try_post(b'!').unwrap();
        sim.run_for(SHORT);
        assert_eq!(sim.received(peer), b"!");
        sim.finish(peer);
        sim.run_for(SHORT);
        assert_eq!(sim.local(service).log, ["opened", "hung up"]);
        if ending == "stop" {
            sim.stop(at, Duration::from_secs(1));
        } else {
            handle.try_post(b'X').unwrap();
        }
        sim.run_for(SHORT);
        let log = &sim.local(service).log[2..];
        match ending {
            "stop" => assert_eq!(log, ["draining", "stopped"]),
            _ => assert_eq!(log, ["aborted"]),
        }
    }
}

#[test]
fn a_panic_inside_ends_the_connection_alone() {
    #[derive(Clone)]
    struct Panics;
    impl Service for Panics {
        type Conn = Panics;
        fn on_loop(&self, _: LoopHandle<()>) {}
        fn accept(&self, _: &Peer, (): &mut ()) -> Result<Panics, Refusal> {
            Ok(Panics)
        }
    }
    impl Protocol for Panics {
        type Local = ();
        type Message = ();
        fn received(&mut self, _: &mut Input<'_>, _: &mut Cx<'_, Self>) -> Next {
            panic!("on purpose");
        }
    }
    let got = Feed::new(b"x").run(Over(Panics, Limits::default()));
    assert_eq!(got.closed, Some(Closed::Panicked));
}

/// Says how much it has got at the first byte and half-closes; takes what follows.
#[derive(Clone)]
struct Brief;

impl Service for Brief {
    type Conn = Brief;
    fn on_loop(&self, _: LoopHandle<()>) -> Vec<u8> {
        Vec::new()
    }
    fn accept(&self, _: &Peer, _: &mut Vec<u8>) -> Result<Brief, Refusal> {
        Ok(Brief)
    }
}

impl Protocol for Brief {
    type Local = Vec<u8>;
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        if cx.local.is_empty() {
            cx.link.write(&[b'.'; 5000]);
            cx.link.finish_writing();
        }
        cx.local.extend_from_slice(input.bytes());
        input.consume(input.len());
        cx.link.write(b"in vain");
        Next::More
    }
}

/// Two layers invert twice, so that a plain peer sees no difference.
fn half_closed<S: Service>(service: impl Fn() -> S)
where
    S::Conn: Protocol<Local = Vec<u8>>,
{
    let said: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    for seed in 0..40 {
        let mut sim = Sim::new(seed);
        let at = sim.add_loop();
        let limits = Limits {
            idle: None,
            ..low_marks()
        };
        let service = sim.service(at, service(), limits);
        let addr = sim.listen(service);
        let peer = sim.plain(addr);
        sim.send(peer, b"?");
        assert_eq!(
            sim.run_until_quiet(Duration::from_secs(3600)),
            Outcome::Idle
        );
        assert_eq!(sim.received(peer), [b'.'; 5000], "seed {seed}");
        assert_eq!(sim.state(peer), PlainState::Ended, "seed {seed}");
        assert_eq!(sim.counters(at).open, 1, "seed {seed}");
        sim.send(peer, &said);
        sim.finish(peer);
        assert_eq!(sim.run_until_idle(Duration::from_secs(3600)), Outcome::Idle);
        let got = &sim.local(service)[1..];
        assert!(got == said, "seed {seed}: {} bytes", got.len());
        assert_eq!(sim.counters(at).closed_for(Closed::Finished), 1);
    }
}

#[test]
fn half_close_reaches_through_layers() {
    half_closed(|| Brief);
    half_closed(|| Over(Over(Brief, low_marks()), low_marks()));
}

/// Owes through a layer, and releases up to a mark at each signal.
struct OwesOver(Arc<AtomicU8>);

impl Service for OwesOver {
    type Conn = Inverted<Owes>;
    fn on_loop(&self, at: LoopHandle<()>) -> LoopHandle<()> {
        at
    }
    fn accept(&self, _: &Peer, _: &mut LoopHandle<()>) -> Result<Inverted<Owes>, Refusal> {
        Ok(Inverted(Inner::new(Owes, Limits::default())))
    }
    fn woken(&self, local: &mut LoopHandle<()>, all: &mut Conns<'_, Inverted<Owes>>) {
        let upto = u64::from(self.0.load(SeqCst));
        all.each(local, |layer, cx| {
            layer.0.release(upto, cx);
            layer.pump(cx);
        });
    }
}

#[test]
fn what_the_inner_protocol_holds_is_not_taken_before_its_release() {
    for seed in 0..30 {
        let mark = Arc::new(AtomicU8::new(0));
        let mut sim = Sim::new(seed);
        let at = sim.add_loop();
        let service = sim.service(at, OwesOver(mark.clone()), Limits::default());
        let addr = sim.listen(service);
        let peer = sim.plain(addr);
        sim.send(peer, &invert(b"abc."));
        let mut run = |upto: u8, want: &[u8]| {
            mark.store(upto, SeqCst);
            sim.local(service).signal();
            // Far longer than an idle or lingering connection is kept.
            assert_eq!(sim.run_until_quiet(Duration::from_secs(600)), Outcome::Idle);
            assert_eq!(sim.received(peer), invert(want), "seed {seed}");
            sim.state(peer)
        };
        assert_eq!(run(b'`', b""), PlainState::Open, "seed {seed}");
        assert_eq!(run(b'b', b"ab"), PlainState::Open, "seed {seed}");
        assert_eq!(run(b'c', b"abc"), PlainState::Ended, "seed {seed}");
    }
}

/// Answers each byte with fifty, each answer behind a mark of its own, as long as its link is not full.
struct Pays(Arc<AtomicU8>);

/// How many it has answered.
struct Paced(u64);

impl Service for Pays {
    type Conn = Paced;
    fn on_loop(&self, at: LoopHandle<()>) -> LoopHandle<()> {
        at
    }
    fn accept(&self, _: &Peer, _: &mut LoopHandle<()>) -> Result<Paced, Refusal> {
        Ok(Paced(0))
    }
    fn woken(&self, _: &mut LoopHandle<()>, all: &mut Conns<'_, Paced>) {
        all.release_all(u64::from(self.0.load(SeqCst)));
    }
}

impl Protocol for Paced {
    type Local = LoopHandle<()>;
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        while let Some(&byte) = input.bytes().first() {
            if cx.link.full() {
                return Next::AfterDrain;
            }
            self.0 += 1;
            cx.link.hold_until(self.0);
            cx.link.write(&[byte; 50]);
            input.consume(1);
        }
        Next::More
    }
}

/// The layer has nothing queued that could drain, and is left with input, and then with its peer's end.
#[test]
fn what_comes_while_the_output_inside_is_held_is_heard_before_the_end() {
    for seed in 0..30 {
        let mark = Arc::new(AtomicU8::new(0));
        let mut sim = Sim::new(seed);
        let at = sim.add_loop();
        let service = sim.service(at, layered(Pays(mark.clone())), Limits::default());
        let addr = sim.listen(service);
        let peer = sim.plain(addr);
        let quiet = |sim: &mut Sim| sim.run_until_quiet(Duration::from_secs(600));
        for part in [b"aaaaa", b"bbbbb"] {
            sim.send(peer, part);
            assert_eq!(quiet(&mut sim), Outcome::Idle);
        }
        sim.finish(peer);
        assert_eq!(quiet(&mut sim), Outcome::Idle);
        assert_eq!(sim.state(peer), PlainState::Open, "seed {seed}");
        for upto in 1..=10 {
            mark.store(upto, SeqCst);
            sim.local(service).signal();
            assert_eq!(quiet(&mut sim), Outcome::Idle);
            let got = sim.received(peer).len();
            assert_eq!(got, 50 * usize::from(upto), "seed {seed}");
        }
        let want = [[b'a'; 250], [b'b'; 250]].concat();
        assert_eq!(sim.received(peer), want, "seed {seed}");
        assert_eq!(sim.state(peer), PlainState::Ended, "seed {seed}");
    }
}

/// As without a layer: a peer that is silent because its answer is held back is not idle.
#[test]
fn what_is_silent_while_the_output_inside_is_held_is_not_idle() {
    let mark = Arc::new(AtomicU8::new(0));
    let mut sim = Sim::new(1);
    let at = sim.add_loop();
    let service = sim.service(at, layered(Pays(mark.clone())), Limits::default());
    let addr = sim.listen(service);
    let peer = sim.plain(addr);
    sim.send(peer, b"a");
    sim.run_for(Duration::from_secs(600));
    assert_eq!(sim.state(peer), PlainState::Open);
    mark.store(1, SeqCst);
    sim.local(service).signal();
    sim.run_for(Duration::from_secs(1));
    assert_eq!(sim.received(peer), [b'a'; 50]);
    assert_eq!(sim.state(peer), PlainState::Open);
    sim.run_for(Duration::from_secs(600));
    assert_eq!(sim.state(peer), PlainState::Ended);
}

/// Gives so many bytes when it has heard the first one, and hears what else there is.
struct Gives;

struct Giver {
    left: usize,
    heard_end: bool,
}

/// What a [`Giver`] gives; bytes.
const GIVEN: usize = 20_000;

impl Service for Gives {
    type Conn = Giver;
    fn on_loop(&self, _: LoopHandle<()>) -> usize {
        0
    }
    fn accept(&self, _: &Peer, _: &mut usize) -> Result<Giver, Refusal> {
        Ok(Giver {
            left: GIVEN,
            heard_end: false,
        })
    }
}

impl Giver {
    fn give(&mut self, cx: &mut Cx<'_, Self>) {
        while self.left > 0 && !cx.link.full() {
            let n = self.left.min(100);
            cx.link.write(&vec![7; n]);
            self.left -= n;
        }
        if self.left == 0 && self.heard_end {
            cx.link.finish();
        }
    }
}

impl Protocol for Giver {
    /// Bytes that all have heard.
    type Local = usize;
    type Message = ();

    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        let is_put_off = cx.link.state.flags.has(Flag::AwaitsMaking);
        assert!(!is_put_off, "it is not its turn to answer");
        *cx.local += input.len();
        input.consume(input.len());
        self.give(cx);
        Next::More
    }

    fn writable(&mut self, cx: &mut Cx<'_, Self>) {
        self.give(cx);
    }

    fn peer_finished(&mut self, unread: usize, cx: &mut Cx<'_, Self>) {
        assert_eq!(unread, 0);
        self.heard_end = true;
        self.give(cx);
    }
}

/// The link's marks delay no peer here: only what a turn makes does.
#[test]
fn what_comes_while_a_turn_to_make_output_is_awaited_inside_is_heard_before_the_end() {
    const PEERS: usize = 6;
    let limits = Limits {
        output_low: 200,
        output_high: 1 << 20,
        idle: None,
        ..Limits::default()
    };
    for seed in 0..40 {
        let mut sim = Sim::new(seed);
        sim.made = MakeShares {
            all: 1000,
            one: 300,
            small: 10,
        };
        let at = sim.add_loop();
        let inside = Layered::with_limits(Invert, Gives, limits.clone());
        let service = sim.service(at, inside, limits.clone());
        let addr = sim.listen(service);
        let peers: Vec<_> = (0..PEERS).map(|_| sim.plain(addr.clone())).collect();
        peers.iter().for_each(|&peer| sim.send(peer, b"?"));
        for (n, &peer) in peers.iter().enumerate() {
            sim.run_for(Duration::from_micros(300 * (seed % 7) * n as u64));
            sim.send(peer, b"enough");
            sim.finish(peer);
        }
        assert_eq!(sim.run_until_idle(Duration::from_secs(3600)), Outcome::Idle);
        for peer in peers {
            assert_eq!(sim.received(peer).len(), GIVEN, "seed {seed}");
        }
        assert_eq!(*sim.local(service), PEERS * 7, "seed {seed}");
        assert_eq!(sim.counters(at).closed_for(Closed::Finished), PEERS as u64);
    }
}

/// The layer [`Inverted`], around a service.
pub(crate) struct Invert;
pub(crate) struct Inverting;

impl Wrap for Invert {
    type Layer = Inverting;
    fn wrap(&self, _: &Peer) -> Result<Option<Inverting>, Refusal> {
        Ok(Some(Inverting))
    }
}

impl Layer for Inverting {
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
            at.received(&invert(input.bytes()));
            input.consume(input.len());
        }
        Next::More
    }

    fn pump<S: Service>(&mut self, at: &mut Around<'_, '_, S, Self>) {
        at.take_output(|link, bytes| {
            link.write(&invert(bytes));
            bytes.len()
        });
    }
}

/// In two layers, so that a plain peer sees no difference.
fn layered<S: Service>(
    service: S,
) -> impl Service<Conn: Protocol<Local = <S::Conn as Protocol>::Local>> {
    let inside = Layered::with_limits(Invert, service, low_marks());
    Layered::with_limits(Invert, inside, low_marks())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn layers_around_a_service_do_not_show(
        bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..300), 0..80),
        finishes: bool,
        seed: u64,
        half_close: bool,
        window in 1usize..2000,
    ) {
        let ending: &[u8] = if finishes { &[0; 4] } else { &[] };
        let plain = [frames(&bodies), ending.to_vec()].concat();
        let splits = chunking::splits(seed, plain.len());
        let feed = Feed::new(&plain).splits(&splits).half_close(half_close).limits(low_marks());
        let want = feed.clone().run(Sums);
        prop_assert_eq!(feed.window(window).run(layered(Sums)), want);
    }
}

#[test]
fn half_close_reaches_through_layers_around_a_service() {
    half_closed(|| layered(Brief));
}

/// Owes, and says at each wake-up how many connections it sees, releasing what they hold.
struct Payer(Arc<AtomicU8>);

impl Service for Payer {
    type Conn = Owes;
    fn on_loop(&self, at: LoopHandle<()>) -> LoopHandle<()> {
        at
    }
    fn accept(&self, _: &Peer, _: &mut LoopHandle<()>) -> Result<Owes, Refusal> {
        Ok(Owes)
    }
    fn woken(&self, local: &mut LoopHandle<()>, all: &mut Conns<'_, Owes>) {
        let (mut ids, upto) = (Vec::new(), u64::from(self.0.load(SeqCst)));
        all.each(local, |_, cx| ids.push(cx.link.id()));
        for id in &ids {
            assert!(all.with(*id, local, |_, cx| cx.link.id() == *id).unwrap());
        }
        match ids.first() {
            Some(first) if upto % 2 == 0 => assert!(all.release(*first, upto)),
            _ => all.release_all(upto),
        }
    }
}

#[test]
fn a_wake_up_reaches_the_protocols_inside_layers() {
    for seed in 0..30 {
        let mark = Arc::new(AtomicU8::new(0));
        let mut sim = Sim::new(seed);
        let at = sim.add_loop();
        let service = sim.service(at, layered(Payer(mark.clone())), Limits::default());
        let addr = sim.listen(service);
        let peer = sim.plain(addr);
        sim.send(peer, b"abc.");
        let mut run = |upto: u8, want: &[u8]| {
            mark.store(upto, SeqCst);
            sim.local(service).signal();
            assert_eq!(sim.run_until_quiet(Duration::from_secs(600)), Outcome::Idle);
            assert_eq!(sim.received(peer), want, "seed {seed}");
            sim.state(peer)
        };
        assert_eq!(run(b'`', b""), PlainState::Open, "seed {seed}");
        assert_eq!(run(b'b', b"ab"), PlainState::Open, "seed {seed}");
        assert_eq!(run(b'c', b"abc"), PlainState::Ended, "seed {seed}");
    }
}
