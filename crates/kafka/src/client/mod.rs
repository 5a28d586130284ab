//! The client: what blocks does so on a thread of its own.

mod marks;
mod reader;
mod topics;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use tidewire_replicate::{Answer, Ask, Bell, Held, Home};

use crate::{Settings, Target, Unavailable};
pub use reader::Reader;
use worker::Worker;

/// The home at a target. Nothing is connected to before it is asked for something; `bell` is rung when it has
/// answered.
///
/// # Errors
/// A setting that the client does not know, or no thread.
pub fn home(
    target: &Target,
    settings: &Settings,
    bell: Bell,
) -> Result<Box<dyn Home>, Unavailable> {
    let mut worker = Worker::new(target.clone(), settings.clone());
    worker
        .try_settings()
        .map_err(|error| Unavailable::Client(told(&error)))?;
    let (asks, asked) = channel::<(u64, Ask)>();
    let (said, answers) = channel();
    let thread = Builder::new().name("tidewire-kafka".into()).spawn(move || {
        // Not joined: it may wait for a broker, and ends when nobody asks any more.
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

/// What the marks of a home say.
///
/// # Errors
/// What the client says.
pub fn held(target: &Target, settings: &Settings) -> Result<Held, Unavailable> {
    marks::read(target, settings, marks::Until::Soon).map_err(Unavailable::Client)
}

struct Asker {
    asks: Sender<(u64, Ask)>,
    answers: Receiver<(u64, Answer)>,
}

impl Home for Asker {
    fn ask(&mut self, number: u64, ask: Ask) {
        // A worker that has panicked answers nothing, and that is what its asker finds.
        let _ = self.asks.send((number, ask));
    }

    fn answer(&mut self) -> Option<(u64, Answer)> {
        self.answers.try_recv().ok()
    }
}

/// What all clients of a target are set to.
fn config(target: &Target, settings: &Settings) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("client.id", "tidewire");
    for (name, value) in &settings.client {
        config.set(name, value);
    }
    config.set("bootstrap.servers", target.brokers.join(","));
    config
}

/// An error as people read it.
fn told(error: &KafkaError) -> String {
    match error {
        KafkaError::Transaction(error) => format!("Kafka: {} ({})", error.string(), error.name()),
        error => format!("Kafka: {error}"),
    }
}

fn failed(error: &KafkaError) -> Arc<str> {
    told(error).into()
}
