//! When messages are sent: as replies come, or by the clock.

use std::time::Duration;

use serde::Serialize;

/// The load model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "model")]
pub enum Arrivals {
    /// Each connection sends as soon as its pipeline or window has room. While the server stands still
    /// nothing is sent, so a stall counts as one slow reply for each place in the pipeline, however
    /// long it lasts.
    #[default]
    Closed,
    /// Each message has its own time, however long replies take.
    Open(Rate),
}

impl Arrivals {
    /// The rate, if there is one.
    pub fn rate(&self) -> Option<&Rate> {
        match self {
            Arrivals::Closed => None,
            Arrivals::Open(rate) => Some(rate),
        }
    }
}

/// An open-loop rate: messages are sent by the clock. A message that finds no room in the pipeline or
/// window is sent as soon as there is some; none is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Messages a second, over all connections; more than 0.
    pub per_second: f64,
    /// How the messages are spread over time.
    pub spacing: Spacing,
    /// Time over which the rate rises evenly from a tenth to the whole; with zero the load begins
    /// with the whole rate.
    pub ramp: Duration,
    /// The seed of the random times; equal seeds give equal times.
    pub seed: u64,
}

impl Rate {
    /// Evenly spaced, from the beginning.
    pub fn constant(per_second: f64) -> Rate {
        Rate {
            per_second,
            spacing: Spacing::Constant,
            ramp: Duration::ZERO,
            seed: 1,
        }
    }
}

/// How arrivals are spread over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Spacing {
    /// Evenly; connections take turns.
    #[default]
    Constant,
    /// Each independent of all others, as from very many users: exponential gaps.
    Poisson,
}
