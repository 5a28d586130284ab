//! The client: what blocks does so on a thread of its own.

mod common;
mod group;
mod marks;
mod members;
pub mod mock;
mod pieces;
mod producer;
mod reader;
mod said;
mod topics;
mod watch;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use tidewire_replicate::{Answer, Ask, Bell, Held, Home, Homes, Membership, Share};

use crate::target::{Settings, Target};
use crate::unavailable::Unavailable;
use common::told;
pub use members::Members;
pub use pieces::{fetch_snapshot, forget, send_snapshot};
pub use reader::{Polled, Reader};
pub use watch::{Watch, Watched};
use worker::Worker;

/// The home at a target. The client connects at the first request; `bell` is rung when the home has answered.
///
/// # Errors
/// A setting that the client does not know, or no thread.
pub fn home(
    target: &Target,
    settings: &Settings,
    bell: Bell,
) -> Result<Box<dyn Home>, Unavailable> {
    share_home(target, Share::Whole, settings, bell)
}

/// The homes of a fleet's shares. The clients connect at the first request.
///
/// # Errors
/// A setting that the client does not know, or no thread.
pub fn homes(
    target: &Target,
    settings: &Settings,
    bell: Bell,
) -> Result<Box<dyn Homes>, Unavailable> {
    // A home without any request ends at once.
    home(target, settings, bell.clone())?;
    Ok(Box::new(Shares {
        target: target.clone(),
        settings: settings.clone(),
        bell,
    }))
}

/// Membership of the group that shares the partitions of a target; `place` is this node's address for clients. The
/// member joins at once, and leaves when the value is dropped.
///
/// # Errors
/// A setting that the client does not know, or no thread.
pub fn membership(
    target: &Target,
    settings: &Settings,
    place: &str,
    bell: Bell,
) -> Result<Box<dyn Membership>, Unavailable> {
    group::join(target, settings, place, bell)
}

struct Shares {
    target: Target,
    settings: Settings,
    bell: Bell,
}

impl Homes for Shares {
    fn home(&mut self, share: Share) -> Result<Box<dyn Home>, Arc<str>> {
        let target = self.target.of(share);
        let home = share_home(&target, share, &self.settings, self.bell.clone());
        home.map_err(|why| why.to_string().into())
    }
}

fn share_home(
    target: &Target,
    share: Share,
    settings: &Settings,
    bell: Bell,
) -> Result<Box<dyn Home>, Unavailable> {
    let mut worker = Worker::new(target.clone(), share, settings.clone());
    worker
        .try_settings()
        .map_err(|error| Unavailable::Client(told(&error)))?;
    let (asks, asked) = channel::<(u64, Ask)>();
    let (said, answers) = channel();
    let thread = Builder::new().name("tidewire-kafka".into()).spawn(move || {
        // The thread is not joined: it may wait for a broker, and ends when the channel is closed.
        while let Ok((number, ask)) = asked.recv() {
            let answer = worker.answer(ask);
            if said.send((number, answer)).is_err() {
                break;
            }
            bell.ring();
        }
    });
    thread.map_err(|error| {
        Unavailable::Client(format!("no thread for the client of Kafka: {error}"))
    })?;
    Ok(Box::new(Asker { asks, answers }))
}

/// The marks of a share's home, including the marks of its producers.
///
/// # Errors
/// The error of Kafka's client.
pub fn held(target: &Target, share: Share, settings: &Settings) -> Result<Held, Unavailable> {
    marks::read_with_producers(&target.of(share), share, settings).map_err(Unavailable::Client)
}

struct Asker {
    asks: Sender<(u64, Ask)>,
    answers: Receiver<(u64, Answer)>,
}

impl Home for Asker {
    fn ask(&mut self, number: u64, ask: Ask) {
        // A worker that has panicked does not answer, and the asker notices that.
        let _ = self.asks.send((number, ask));
    }

    fn answer(&mut self) -> Option<(u64, Answer)> {
        self.answers.try_recv().ok()
    }
}
