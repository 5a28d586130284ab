//! One seed's world: a home, a node or two, and producers that wait until their messages are at
//! home.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tidewire_log::disk::sim::SimDisk;
use tidewire_log::{ProducerId, Selection, Ticket};
use tidewire_replicate::Mistakes;

use crate::home::Cluster;
use crate::node::{Carriage, Node};
use crate::seeds::{Verdict, ensure, trace};

const PRODUCERS: usize = 4;
/// The last of them, whose stream may not be one that goes home.
const LOCAL: usize = PRODUCERS - 1;
/// Turns after which cursors have followed their records, where nothing goes wrong.
const CURSORS_LATE: u32 = 50;

/// Runs a seed with so many nodes at most. The second is a copy of the first, made at some moment.
pub(crate) fn run(seed: u64, nodes: usize, mistakes: Mistakes) -> Verdict {
    let mut world = World::new(seed, mistakes);
    let acts = world.random.usize(50..400);
    for _ in 0..acts {
        world.act(nodes)?;
        world.observe()?;
    }
    world.heal()
}

struct World {
    random: Rng,
    cluster: Cluster,
    nodes: Vec<Node>,
    producers: Vec<Producer>,
    checker: Checker,
    sessions: u64,
    carriage: Carriage,
    /// Which streams go home changes now and then.
    changes: bool,
    now: Duration,
}

struct Producer {
    stream: String,
    name: String,
    /// The highest id that it was told is at home.
    acked: u64,
    conn: Option<Conn>,
}

struct Conn {
    node: usize,
    life: u64,
    producer: ProducerId,
    next: u64,
    owed: VecDeque<(Ticket, u64)>,
}

/// What stands at home.
#[derive(Default)]
struct Checker {
    seen: usize,
    /// The last id of each producer.
    last: BTreeMap<String, u64>,
    /// Where each stream ends.
    ends: BTreeMap<Arc<str>, u64>,
}

/// Some that go home, or all.
fn streams(random: &mut Rng) -> Selection {
    let some = ["s*", "local"].into_iter().take(random.usize(0..3));
    Selection::of(some).expect("names of streams")
}

impl World {
    fn new(seed: u64, mistakes: Mistakes) -> World {
        let mut random = Rng::with_seed(seed);
        let cluster = Cluster::new(random.u64(..));
        let mut node = Node::new(SimDisk::new(random.u64(..)));
        let carriage = Carriage {
            bytes: if random.bool() { 200 } else { 2000 },
            // A message is a record, or some are.
            record: if random.bool() { 60 } else { 1 },
            streams: streams(&mut random),
            mistakes,
        };
        node.start(1, &cluster, &carriage);
        let changes = random.bool();
        let producer = |number: usize| Producer {
            stream: match number {
                LOCAL => "local".into(),
                _ => format!("s{}", number % 2),
            },
            name: format!("p{number}"),
            acked: 0,
            conn: None,
        };
        World {
            random,
            cluster,
            nodes: vec![node],
            producers: (0..PRODUCERS).map(producer).collect(),
            checker: Checker::default(),
            sessions: 1,
            carriage,
            changes,
            now: Duration::from_secs(1),
        }
    }

    fn act(&mut self, nodes: usize) -> Verdict {
        self.now += Duration::from_micros(self.random.u64(0..4000));
        let node = self.random.usize(..self.nodes.len());
        match self.random.u8(0..100) {
            0..=24 => self.nodes[node].write(self.now),
            25..=54 => self.nodes[node].carry(self.now),
            55..=74 => {
                self.cluster.state().deliver();
            }
            75..=90 => self.produce()?,
            91..=92 => self.read(node),
            93 => {
                let away = self.random.bool();
                self.cluster.state().is_away = away;
                trace(|| format!("{:?}: the home is away: {away}", self.now));
            }
            94 => self.cluster.state().finish(),
            95..=96 => self.end(node),
            97 => self.now += Duration::from_millis(self.random.u64(0..400)),
            _ if self.nodes.len() < nodes => {
                let copy = self.nodes[0].copy();
                self.nodes.push(Node::new(copy));
                trace(|| format!("{:?}: a copy", self.now));
                self.start(1);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, node: usize) {
        if self.nodes[node].is_open() {
            let is_crash = self.random.bool();
            trace(|| format!("{:?}: node {node} ends, crash: {is_crash}", self.now));
            self.nodes[node].end(is_crash);
            if self.changes && self.nodes.len() == 1 {
                self.carriage.streams = streams(&mut self.random);
            }
        }
        self.start(node);
    }

    fn start(&mut self, node: usize) {
        self.sessions += 1;
        self.nodes[node].start(self.sessions, &self.cluster, &self.carriage);
    }

    fn produce(&mut self) -> Verdict {
        let (random, nodes) = (&mut self.random, &self.nodes);
        let producer = &mut self.producers[random.usize(..PRODUCERS)];
        if random.u8(0..20) == 0 {
            producer.conn = None;
        }
        let Some(conn) = &mut producer.conn else {
            let node = random.usize(..nodes.len());
            let Some((id, mark)) = nodes[node].welcome(&producer.stream, &producer.name) else {
                return Ok(());
            };
            let mark = mark.unwrap_or(0);
            trace(|| {
                format!(
                    "{:?}: {} is welcome at {node} with {mark}",
                    self.now, producer.name
                )
            });
            let comes_home = self.carriage.streams.takes(&producer.stream);
            if mark < producer.acked {
                // This node does not know yet that it is not the owner any more. A client says that something is lost.
                return Ok(());
            }
            if comes_home {
                producer.acked = mark;
            }
            producer.conn = Some(Conn {
                node,
                life: nodes[node].life,
                producer: id,
                next: mark + 1,
                owed: VecDeque::new(),
            });
            let (name, acked) = (producer.name.clone(), producer.acked);
            return self.checker.acknowledged(&self.cluster, &name, acked);
        };
        if nodes[conn.node].life != conn.life {
            producer.conn = None;
            return Ok(());
        }
        let last = conn.next + random.u64(0..6);
        let appended =
            nodes[conn.node].append(&producer.stream, conn.producer, conn.next..=last, self.now);
        if let Ok(ticket) = appended {
            if self.carriage.streams.takes(&producer.stream) {
                conn.owed.push_back((ticket, last));
            }
            conn.next = last + 1;
        }
        Ok(())
    }

    /// A reader moves its cursor, as far as it likes, or gives it up.
    fn read(&mut self, node: usize) {
        let name = format!("c{}", self.random.u8(0..3));
        let of = self.random.usize(..PRODUCERS);
        let stream = self.producers[of].stream.clone();
        let back = (self.random.u8(0..6) > 0).then(|| self.random.u64(0..8));
        trace(|| format!("{:?}: cursor {name} of {stream}, back: {back:?}", self.now));
        self.nodes[node].set_cursor(&stream, &name, back);
    }

    /// Producers hear what is at home.
    fn observe(&mut self) -> Verdict {
        self.checker.look(&self.cluster)?;
        if !self.changes {
            let mut home = self.checker.ends.keys();
            let stray = home.find(|name| !self.carriage.streams.takes(name));
            ensure(stray.is_none(), || {
                format!("{stray:?} is at home, and was to stay")
            })?;
        }
        for producer in &mut self.producers {
            let Some(conn) = &mut producer.conn else {
                continue;
            };
            if self.nodes[conn.node].life != conn.life {
                producer.conn = None;
                continue;
            }
            let replicated = self.nodes[conn.node].progress().replicated;
            while let Some(&(ticket, id)) = conn.owed.front()
                && replicated.is_some_and(|replicated| ticket <= replicated)
            {
                conn.owed.pop_front();
                producer.acked = producer.acked.max(id);
                self.checker
                    .acknowledged(&self.cluster, &producer.name, id)?;
            }
        }
        Ok(())
    }

    /// Nothing goes wrong any more: all that was acknowledged is there, and one node alone gets all home.
    fn heal(&mut self) -> Verdict {
        {
            let mut state = self.cluster.state();
            (state.is_away, state.is_kind) = (false, true);
            state.finish();
        }
        let mut late = 0;
        for _ in 0..2000 {
            self.now += Duration::from_millis(2);
            for node in &mut self.nodes {
                node.write(self.now);
                node.carry(self.now);
            }
            while self.cluster.state().deliver() {}
            self.observe()?;
            let progress = self.nodes[0].progress();
            if self.nodes.len() == 1 && progress.replicated == Some(progress.committed) {
                if self.have_cursors_arrived() {
                    break;
                }
                late += 1;
                ensure(late < CURSORS_LATE, || "the cursors do not follow".into())?;
            }
        }
        for producer in &self.producers {
            self.checker
                .acknowledged(&self.cluster, &producer.name, producer.acked)?;
        }
        if self.nodes.len() == 1 {
            let progress = self.nodes[0].progress();
            ensure(progress.replicated == Some(progress.committed), || {
                format!("not at home in the end: {progress:?}")
            })?;
            let backlog = self.nodes[0].backlog();
            ensure(backlog == 0, || {
                format!("{backlog} bytes wait for nothing in the end")
            })?;
            ensure(self.have_cursors_arrived(), || {
                let (here, home) = (self.nodes[0].cursors(), &self.cluster.state().held.cursors);
                format!("cursors in the end: here {here:?}, at home {home:?}")
            })?;
        }
        Ok(())
    }

    /// Whether the cursors at home equal the cursors of the only node, in streams that have records
    /// at home.
    fn have_cursors_arrived(&self) -> bool {
        let mut here = self.nodes[0].cursors();
        let held = self.cluster.state().held.clone();
        let comes_home = |stream: &str| self.carriage.streams.takes(stream);
        here.retain(|(stream, _), _| held.streams.contains_key(stream) && comes_home(stream));
        let mut home = held.cursors;
        home.retain(|(stream, _), _| comes_home(stream));
        here == home
    }
}

impl Checker {
    /// Every producer's messages are there once and in order.
    fn look(&mut self, cluster: &Cluster) -> Verdict {
        let state = cluster.state();
        for record in &state.records[self.seen..] {
            let last = self.last.entry(record.producer.to_string()).or_default();
            for message in record.frames.chunks(20) {
                let id = u64::from_le_bytes(*message.first_chunk().expect("an id"));
                ensure(id == *last + 1, || {
                    format!("{}: {id} is at home behind {last}", record.producer)
                })?;
                *last = id;
            }
            let end = self.ends.entry(record.stream.clone()).or_default();
            *end = record.first + u64::from(record.count);
        }
        for ((stream, name), &position) in &state.held.cursors {
            let end = self.ends.get(stream).copied().unwrap_or(0);
            ensure(position <= end, || {
                format!(
                    "cursor {name} of {stream} is at {position}, and the stream ends at {end} at home"
                )
            })?;
        }
        self.seen = state.records.len();
        for ((_, producer), &mark) in &state.producers {
            let last = self.last.get(&**producer).copied().unwrap_or(0);
            ensure(mark == last, || {
                format!("{producer}: the mark is {mark}, the last id {last}")
            })?;
        }
        Ok(())
    }

    /// A producer was told that these are at home.
    fn acknowledged(&mut self, cluster: &Cluster, producer: &str, id: u64) -> Verdict {
        self.look(cluster)?;
        let last = self.last.get(producer).copied().unwrap_or(0);
        ensure(id <= last, || {
            format!("{producer}: {id} was acknowledged, {last} is the last one at home")
        })
    }
}
