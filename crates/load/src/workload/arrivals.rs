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
    /// Each message has its time, however long replies take.
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

/// Messages by the clock. One that finds no room in the pipeline or window goes out as soon as there is
/// some; none is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rate {
    /// Messages a second, over all connections; more than 0.
    pub per_second: f64,
    /// How they are spread over time.
    pub spacing: Spacing,
    /// Time over which the rate rises evenly from a tenth of it; zero begins with all of it.
    pub ramp: Duration,
    /// Where chance begins; the same seed gives the same times.
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
