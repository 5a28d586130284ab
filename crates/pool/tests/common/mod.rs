//! A service whose connections have each byte worked on: its number is the answer, in order or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tidewire::{Cx, Input, LoopHandle, Next, Peer, Protocol, Refusal, Service};
use tidewire_pool::{Lane, NotDone, Pool};

/// What a byte asks for.
pub(crate) const PANIC: u8 = b'!';
/// A request whose answer cannot be made.
pub(crate) const MUTE: u8 = b'?';

pub(crate) type Work = Arc<dyn Fn(u8) -> u8 + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Worker {
    pub(crate) pool: Pool,
    pub(crate) in_order: bool,
    pub(crate) lane: usize,
    pub(crate) work: Work,
    /// Connections that are open.
    pub(crate) open: Arc<AtomicUsize>,
}

impl Worker {
    pub(crate) fn new(pool: &Pool) -> Worker {
        Worker {
            pool: pool.clone(),
            in_order: true,
            lane: 64,
            work: Arc::new(|byte| {
                assert_ne!(byte, PANIC, "a byte that was not meant");
                byte
            }),
            open: Arc::default(),
        }
    }
}

impl Service for Worker {
    type Conn = Conn;
    fn on_loop(&self, _: LoopHandle<<Conn as Protocol>::Message>) {}
    fn accept(&self, _: &Peer, (): &mut ()) -> Result<Conn, Refusal> {
        self.open.fetch_add(1, SeqCst);
        Ok(Conn {
            worker: self.clone(),
            lane: Lane::new(self.lane),
        })
    }
}

pub(crate) struct Conn {
    worker: Worker,
    lane: Lane<Result<u8, NotDone>>,
}

impl Conn {
    fn say(result: Result<u8, NotDone>, cx: &mut Cx<'_, Conn>) {
        let byte = match result {
            Ok(byte) => byte,
            Err(NotDone::Panicked(why)) => {
                assert!(why.contains("not meant"), "{why}");
                b'P'
            }
            Err(_) => b'S',
        };
        cx.link.write(&[byte]);
    }
}

impl Protocol for Conn {
    type Local = ();
    type Message = (u64, Result<u8, NotDone>);

    /// `R` is the answer to what is refused.
    fn received(&mut self, input: &mut Input<'_>, cx: &mut Cx<'_, Self>) -> Next {
        for &byte in input.bytes() {
            let work = self.worker.work.clone();
            match self.lane.reserve(&self.worker.pool, &cx.handle()) {
                Ok(place) => self.lane.run(
                    place,
                    move || work(byte),
                    move |n, result| {
                        assert_ne!(byte, MUTE);
                        (n, result)
                    },
                ),
                Err(_) => cx.link.write(b"R"),
            }
        }
        input.consume(input.len());
        Next::More
    }

    fn posted(&mut self, (number, result): Self::Message, cx: &mut Cx<'_, Self>) {
        if !self.worker.in_order {
            self.lane.put(number, result.clone());
            return Conn::say(result, cx);
        }
        self.lane.put(number, result);
        while let Some(result) = self.lane.pop() {
            Conn::say(result, cx);
        }
    }

    fn closed(self, _: tidewire::Closed, _: &mut tidewire::Turn<'_, Self>) {
        self.worker.open.fetch_sub(1, SeqCst);
    }
}
