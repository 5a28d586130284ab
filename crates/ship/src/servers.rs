//! The real network: a blocking producer, with its thread, for each lane.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tidewire_ingest::client::{Broken, Error, News, Persistence, Producer, Producing, To};
use tidewire_ingest::native::codec::Reason;

use crate::network::{Ended, Lane, Matter, Network, Stand};

/// Rings when an event has happened that a step should look at.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<(Mutex<bool>, Condvar)>);

impl Bell {
    /// Wakes the waiting thread, or the next that waits.
    pub fn ring(&self) {
        let (rung, wake) = &*self.0;
        *rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        wake.notify_one();
    }

    /// Until it rings, at most so long.
    pub fn wait(&self, most: Duration) {
        let (rung, wake) = &*self.0;
        let rung = rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = wake.wait_timeout_while(rung, most, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

/// Servers of the native protocol.
#[derive(Debug)]
pub struct Servers {
    /// Names, and how to reach the servers that have them.
    to: Vec<(String, To)>,
    /// What every producer wants; names are filled in.
    producing: Producing,
    persistence: Persistence,
    bell: Bell,
}

impl Servers {
    /// Servers by their names, and producers that want `producing` of a server and try for as long as `persistence` says before
    /// the next server has its turn. Their news ring `bell`.
    #[must_use]
    pub fn new(
        to: Vec<(String, To)>,
        producing: Producing,
        persistence: Persistence,
        bell: Bell,
    ) -> Servers {
        Servers {
            to,
            producing: Producing {
                sparse: true,
                first_id: 1,
                ..producing
            },
            persistence,
            bell,
        }
    }
}

impl Network for Servers {
    type Lane = ServerLane;

    fn open(&mut self, server: &str, producer: &str) -> Result<ServerLane, Ended> {
        let producing = Producing {
            producer: producer.into(),
            ..self.producing.clone()
        };
        let bell = self.bell.clone();
        let news = News(Arc::new(move || bell.ring()));
        let to = self.to.iter().find(|(name, _)| name == server);
        let to = to.map_or_else(|| To::from(server), |(_, to)| to.clone());
        let started = Producer::start(to, producing, self.persistence, Some(news));
        started.map(ServerLane).map_err(|e| ended(&e))
    }
}

/// A lane to a real server.
#[derive(Debug)]
pub struct ServerLane(Producer);

impl Lane for ServerLane {
    fn stand(&self) -> Stand {
        if let Some(error) = self.0.failure() {
            return Stand::Ended(ended(&error));
        }
        let welcomed = self.0.welcomed();
        // Asked after the welcome was seen, which brings the mark.
        let status = self.0.status();
        match welcomed {
            None => Stand::Connecting(status.trouble),
            Some(welcome) => Stand::Open {
                settled: status.settled,
                forgotten: welcome.forgotten,
                payload_max: welcome.payload_max,
                trouble: status.trouble,
            },
        }
    }

    fn offer(&mut self, messages: &mut dyn Iterator<Item = (u64, &[u8])>) -> usize {
        // What is final shows when it is asked how it stands.
        self.0.try_send_each_as(messages).unwrap_or(0)
    }
}

fn ended(error: &Error) -> Ended {
    let advice = match error.last() {
        Error::Broken {
            source: level @ Broken::Level { .. },
            ..
        } => &format!("; {}", level.remedy()),
        Error::Broken {
            source: Broken::Forgotten,
            ..
        } => "; --accept-loss goes on behind what was acknowledged",
        _ => "",
    };
    let of_producer =
        |broken: &Broken| matches!(broken, Broken::Forgotten | Broken::NameTaken { .. });
    let is_crowded = |broken: &Broken| {
        let reason = match broken {
            Broken::Refused { reason, .. } => Some(*reason),
            _ => None,
        };
        reason == Some(Reason::TooMany)
    };
    let is_set_back = matches!(error.broken(), Some(Broken::Lost { .. }));
    let matter = if is_set_back {
        Matter::SetBack
    } else if error.is_passing() || error.last().is_passing() {
        Matter::Passing
    } else if error.broken().is_some_and(of_producer) {
        Matter::Producer
    } else if error.broken().is_some_and(is_crowded) {
        Matter::Crowded
    } else {
        Matter::Server
    };
    Ended {
        why: format!("{error}{advice}"),
        matter,
    }
}
