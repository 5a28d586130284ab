//! The load of connections that are held, some of which have messages echoed.

use serde::Serialize;
use serde_json::{Value, json};
use tidewire_command::count;

use super::echo::{Echo, EchoLoad};
use super::execution::{Execution, Made};
use super::failure::Failure;
use super::flight::Flight;
use super::generator::Watch;
use super::load::{Baseline, Load, Scripted, Workload};
use super::null::Replies;
use super::options::{Chosen, Kind, Options, Unfit, at_least_one, bounded};

/// Connections that are held, some of which have messages echoed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct IdleLoad {
    /// Bytes of a message, at least 1.
    pub size: usize,
    /// The share of connections that send anything, 0 to 1; at least one where it is not 0.
    pub active: f64,
}

impl Load for IdleLoad {
    fn name(&self) -> &'static str {
        "idle"
    }

    fn service(&self) -> &'static str {
        "echo"
    }

    fn spec(&self) -> Value {
        json!(self)
    }

    fn unit(&self) -> &'static str {
        "requests"
    }

    fn described(&self) -> String {
        format!(
            "connections held, {:.1} % of them with echoes of {} bytes",
            self.active * 100.0,
            self.size
        )
    }

    fn active_of(&self, connections: usize) -> usize {
        let active = (connections as f64 * self.active.clamp(0.0, 1.0)).round() as usize;
        active.max(usize::from(self.active > 0.0)).min(connections)
    }

    fn is_held(&self) -> bool {
        true
    }

    fn counted(&self) -> Option<Scripted> {
        None
    }

    fn baseline(&self) -> Baseline {
        Baseline::Null(Replies::Same)
    }

    fn go(&self, execution: &Execution<'_, '_>, watch: Watch<'_>) -> Result<Made, Failure> {
        let dealt = execution.dealt();
        let active = self.active_of(dealt.connections);
        let echo = EchoLoad {
            size: self.size,
            pipeline: 1,
            batch: 0,
        };
        execution.go(false, watch, move |connection| {
            let sends = connection < active as u64;
            let pace = sends.then(|| dealt.pace(connection, active)).flatten();
            let count = if sends { dealt.count(connection) } else { 0 };
            Echo::new(echo, count, connection, Flight::new(pace))
        })
    }
}

/// Connections that are held.
pub(super) const KIND: Kind = Kind::of::<IdleArgs>(
    "idle",
    "Connections that are held, a share of them active: what they cost",
)
.used(
    &["tidewire bench idle --connections 10000 --duration 10s"],
    &["tidewire bench ab idle --a engine=epoll --b engine=uring"],
)
.briefly(&[("active", "Share that is active [default: 0]")]);

/// The load of connections that are held.
#[derive(Clone, Debug, clap::Args)]
struct IdleArgs {
    /// The share of connections that have messages echoed, in percent; each one a second, unless
    /// --rate says how many all of them have
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    active: f64,
    /// Bytes of such a message
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = count::bytes)]
    size: usize,
}

impl IdleArgs {
    fn idle(&self) -> IdleLoad {
        IdleLoad {
            size: self.size,
            active: self.active / 100.0,
        }
    }
}

impl Options for IdleArgs {
    fn load(&self) -> Result<Chosen, Unfit> {
        at_least_one("--size", self.size)?;
        bounded(self.size, 1)?;
        if !(0.0..=100.0).contains(&self.active) {
            return Err(Unfit::because("--active must be from 0 to 100"));
        }
        Ok(Chosen::of(Workload::of(self.idle())))
    }

    fn own_rate(&self, connections: usize) -> Option<f64> {
        let active = self.idle().active_of(connections);
        (active > 0).then_some(active as f64)
    }
}
