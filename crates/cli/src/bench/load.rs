//! What is sent, from the command line.

use tidewire_ingest::classic::Mode;
use tidewire_ingest::{Level, client};
use tidewire_load::workload::{
    AckLoad, Checks, DiscardLoad, EchoLoad, Extent, KvLoad, NativeLoad, Preset, Rounds, Wire,
    Workload,
};

use crate::exit::Failure;

/// Most bytes of one write: a whole batch is in memory for each connection.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// The options of one kind of load.
pub(crate) trait LoadArgs: clap::Args {
    /// Checks them.
    fn load(&self) -> Result<Load, Failure>;

    /// What each server is loaded with once, before anything is measured.
    fn first(&self) -> Option<(Workload, Extent)> {
        None
    }
}

/// A load, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) workload: Workload,
    /// What its clients in the field set; `None` is what is best for the load.
    pub(crate) nodelay: Option<bool>,
}

impl Load {
    /// How long a run is if nobody says so: rounds where the load has them.
    pub(crate) fn own_extent(&self) -> Option<Extent> {
        match self.workload {
            Workload::Ack(AckLoad {
                rounds: Some(_), ..
            }) => Some(Extent::Rounds),
            _ => None,
        }
    }

    /// The same load without rounds of its own, for runs of a given length.
    pub(crate) fn endless(mut self) -> Load {
        if let Workload::Ack(load) = &mut self.workload {
            load.rounds = None;
        }
        self
    }
}

/// The echo load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct EchoArgs {
    /// Bytes of a message
    #[arg(long, default_value_t = 512, value_name = "BYTES")]
    size: usize,
    /// Messages in flight on each connection
    #[arg(long, default_value_t = 1, value_name = "N")]
    pipeline: u32,
    /// Messages in each write; 0 is as many as the pipeline has room for
    #[arg(long, default_value_t = 0, value_name = "N")]
    batch: u32,
    /// Messages a second over all connections, each sent at its time as far as the pipeline has
    /// room; latency counts from that time [default: as many as are answered]
    #[arg(long, value_name = "N", conflicts_with = "batch")]
    rate: Option<f64>,
}

impl LoadArgs for EchoArgs {
    fn load(&self) -> Result<Load, Failure> {
        at_least_one("--size", self.size)?;
        at_least_one("--pipeline", self.pipeline as usize)?;
        let most = if self.batch == 0 {
            self.pipeline
        } else {
            self.batch
        };
        bounded(self.size, most.min(self.pipeline))?;
        positive("--rate", self.rate)?;
        Ok(Load {
            workload: Workload::Echo(EchoLoad {
                size: self.size,
                pipeline: self.pipeline,
                batch: self.batch,
                rate: self.rate,
            }),
            nodelay: None,
        })
    }
}

/// The acknowledgement load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AckArgs {
    /// Loads as the classic client of this mode does: request-reply, throttled, head-rest, sync or
    /// async. Other options change it
    #[arg(long)]
    preset: Option<Preset>,
    /// The server's mode: request-reply, throttled, head-rest, sync or async [default: sync]
    #[arg(long)]
    mode: Option<Mode>,
    /// Bytes of a payload; a message has 12 more [default: 5]
    #[arg(long, value_name = "BYTES")]
    size: Option<u32>,
    /// What the messages are framed by: classic (to the service ack) or native (to ingest)
    #[arg(long, default_value = "classic", value_name = "PROTOCOL")]
    protocol: Protocol,
    /// What acknowledgements are to mean: none, received or durable. With the native protocol the
    /// client asks for it; with the classic one it is a setting of the server that is started
    /// [default: none, native durable]
    #[arg(long, visible_alias = "server-level", value_name = "LEVEL")]
    level: Option<Level>,
    /// Gives each connection's producer a name (native protocol)
    #[arg(long)]
    named: bool,
    /// Messages a second over all connections, each sent at its time as far as the window has room;
    /// latency counts from that time (native protocol) [default: as many as are acknowledged]
    #[arg(long, value_name = "N", conflicts_with = "batch")]
    rate: Option<f64>,
    /// Messages in each write [default: 150, in request-reply mode 1]
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
    /// Most messages sent and not acknowledged; 0 is no limit [default: 0, in request-reply mode 1]
    #[arg(long, value_name = "N")]
    window: Option<u64>,
}

/// A framing of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Protocol {
    Classic,
    Native,
}

/// The acknowledgement load in rounds.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AckRoundsArgs {
    #[command(flatten)]
    ack: AckArgs,
    /// Rounds, each of which ends when everything is acknowledged, instead of a duration
    /// [default: the preset's]
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Messages of a round [default: the preset's, else 1000000]
    #[arg(long, value_name = "N")]
    round_messages: Option<u64>,
}

impl LoadArgs for AckRoundsArgs {
    fn load(&self) -> Result<Load, Failure> {
        let mut load = self.ack.load()?;
        let rounds = self.rounds.is_some() || self.round_messages.is_some();
        if rounds && matches!(load.workload, Workload::Native(_)) {
            return Err(Failure::usage(
                "--rounds goes with the classic protocol; see --count",
            ));
        }
        if let Workload::Ack(ack) = &mut load.workload {
            ack.rounds = self.rounds(ack);
            if ack.rounds.is_some_and(|r| r.rounds == 0 || r.messages == 0) {
                return Err(Failure::usage(
                    "--rounds and --round-messages must be at least 1",
                ));
            }
        }
        Ok(load)
    }
}

impl AckRoundsArgs {
    fn rounds(&self, base: &AckLoad) -> Option<Rounds> {
        if base.rounds.is_none() && self.rounds.is_none() && self.round_messages.is_none() {
            return None;
        }
        let base = base.rounds.unwrap_or(Rounds {
            rounds: 1,
            messages: 1_000_000,
            restart_ids: false,
        });
        Some(Rounds {
            rounds: self.rounds.unwrap_or(base.rounds),
            messages: self.round_messages.unwrap_or(base.messages),
            ..base
        })
    }
}

impl AckArgs {
    fn native(&self) -> Result<Load, Failure> {
        if self.preset.is_some() || self.mode.is_some() {
            return Err(Failure::usage(
                "--preset and --mode go with the classic protocol",
            ));
        }
        let load = NativeLoad {
            level: match self.level {
                None | Some(Level::Durable) => client::Level::Durable,
                Some(Level::Received) => client::Level::Received,
                Some(Level::None) => {
                    return Err(Failure::usage(
                        "--level none: the native protocol has received and durable",
                    ));
                }
            },
            named: self.named,
            payload: self.size.unwrap_or(5),
            batch: self.batch.unwrap_or(150),
            window: self.window.unwrap_or(0),
            rate: self.rate,
        };
        positive("--rate", load.rate)?;
        at_least_one("--batch", load.batch as usize)?;
        bounded(load.message_len(), load.batch)?;
        Ok(Load {
            workload: Workload::Native(load),
            nodelay: None,
        })
    }
}

impl LoadArgs for AckArgs {
    fn load(&self) -> Result<Load, Failure> {
        if self.protocol == Protocol::Native {
            return self.native();
        }
        if self.rate.is_some() || self.named {
            return Err(Failure::usage(
                "--rate and --named go with --protocol native",
            ));
        }
        let mode = match (self.preset, self.mode) {
            (Some(Preset(preset)), Some(mode)) if preset != mode => {
                return Err(Failure::usage(format!(
                    "--preset {preset} with --mode {mode}: the preset speaks its own mode's dialect"
                )));
            }
            (Some(Preset(mode)), _) | (None, Some(mode)) => mode,
            (None, None) => Mode::Sync,
        };
        let base = self.preset.map_or_else(|| plain(mode), Preset::load);
        let load = AckLoad {
            level: self.level.unwrap_or(base.level),
            payload: self.size.unwrap_or(base.payload),
            batch: self.batch.unwrap_or(base.batch),
            window: self.window.unwrap_or(base.window),
            ..base
        };
        at_least_one("--batch", load.batch as usize)?;
        bounded(load.message_len(), load.batch)?;
        Ok(Load {
            workload: Workload::Ack(load),
            nodelay: self.preset.map(Preset::nodelay),
        })
    }
}

/// The load of a mode without a preset.
fn plain(mode: Mode) -> AckLoad {
    let lock_step = mode == Mode::RequestReply;
    AckLoad {
        mode,
        level: Level::None,
        payload: 5,
        batch: if lock_step { 1 } else { 150 },
        window: u64::from(lock_step),
        checks: None::<Checks>,
        rounds: None,
    }
}

/// The key-value load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KvArgs {
    /// How commands are written: resp, or binary for READ and WRITE of the small binary protocol
    #[arg(long, default_value = "resp", value_name = "NAME", value_parser = kv_wire)]
    protocol: Wire,
    /// How many keys there are
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Bytes of a key, 17 to 255
    #[arg(long, default_value_t = 17, value_name = "BYTES", value_parser = clap::value_parser!(u8).range(17..))]
    key_size: u8,
    /// Bytes of a value, at most 8192, in the binary protocol 255
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    size: usize,
    /// Commands sent together; the next follow when all are answered
    #[arg(long, default_value_t = 1, value_name = "N")]
    pipeline: u32,
    /// The share of GET in percent; the others are SET
    #[arg(long, default_value_t = 50.0, value_name = "PERCENT")]
    reads: f64,
    /// Does not set every key first, before anything is measured
    #[arg(long)]
    no_fill: bool,
}

fn kv_wire(name: &str) -> Result<Wire, String> {
    match name {
        "resp" => Ok(Wire::Resp),
        "binary" => Ok(Wire::Binary),
        _ => Err("resp or binary".into()),
    }
}

impl LoadArgs for KvArgs {
    fn load(&self) -> Result<Load, Failure> {
        at_least_one("--pipeline", self.pipeline as usize)?;
        if !(1..=8192).contains(&self.size) {
            return Err(Failure::usage("--size must be from 1 to 8192"));
        }
        if self.protocol == Wire::Binary && self.size > 255 {
            return Err(Failure::usage(
                "--size: the binary protocol has at most 255",
            ));
        }
        if !(0.0..=100.0).contains(&self.reads) {
            return Err(Failure::usage("--reads must be from 0 to 100"));
        }
        Ok(Load {
            workload: Workload::Kv(KvLoad {
                wire: self.protocol,
                keys: self.keys,
                key_size: self.key_size.into(),
                size: self.size,
                pipeline: self.pipeline,
                reads: self.reads / 100.0,
                in_turn: false,
            }),
            nodelay: None,
        })
    }

    fn first(&self) -> Option<(Workload, Extent)> {
        let Ok(Load {
            workload: Workload::Kv(load),
            ..
        }) = self.load()
        else {
            return None;
        };
        (!self.no_fill).then(|| (Workload::Kv(load.fill()), Extent::Count(load.keys)))
    }
}

/// The discard load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DiscardArgs {
    /// Bytes of a message
    #[arg(long, default_value_t = 17, value_name = "BYTES")]
    size: usize,
    /// Messages in each write
    #[arg(long, default_value_t = 4096, value_name = "N")]
    batch: u32,
}

impl LoadArgs for DiscardArgs {
    fn load(&self) -> Result<Load, Failure> {
        at_least_one("--size", self.size)?;
        at_least_one("--batch", self.batch as usize)?;
        bounded(self.size, self.batch)?;
        Ok(Load {
            workload: Workload::Discard(DiscardLoad {
                size: self.size,
                batch: self.batch,
            }),
            nodelay: None,
        })
    }
}

pub(super) fn positive(what: &str, n: Option<f64>) -> Result<(), Failure> {
    if n.is_none_or(|n| n.is_finite() && n > 0.0) {
        return Ok(());
    }
    Err(Failure::usage(format!("{what} must be more than 0")))
}

pub(super) fn at_least_one(what: &str, n: usize) -> Result<(), Failure> {
    if n > 0 {
        return Ok(());
    }
    Err(Failure::usage(format!("{what} must be at least 1")))
}

pub(super) fn bounded(size: usize, batch: u32) -> Result<(), Failure> {
    if size.saturating_mul(batch as usize) <= BATCH_BYTES_MAX {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "a write of {batch} messages of {size} bytes is more than {BATCH_BYTES_MAX} bytes: \
         take smaller messages or a smaller --batch"
    )))
}
