//! What is sent, from the command line.

use std::str::FromStr;

use tidewire_ingest::classic::Mode;
use tidewire_ingest::{Level, UnknownLevel, client};
use tidewire_load::workload::{
    AckLoad, Checks, ConnectLoad, DiscardLoad, EchoLoad, Extent, IdleLoad, NativeLoad, Preset,
    Rounds, Workload,
};

use tidewire_command::count;
use tidewire_command::exit::Failure;

use super::url::Url;

/// Most bytes of one write: a whole batch is in memory for each connection.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// The options of one kind of load.
pub(crate) trait LoadArgs: clap::Args + Clone + Sync {
    /// Checks them.
    fn load(&self) -> Result<Load, Failure>;

    /// What each server is loaded with once, before anything is measured.
    fn first(&self) -> Result<Vec<First>, Failure> {
        Ok(Vec::new())
    }

    /// Where the server is, if that is a part of the load.
    fn url(&self) -> Option<&Url> {
        None
    }

    /// Says how many messages a write has, which only a load without a rate can.
    fn says_batch(&self) -> bool {
        false
    }

    /// Default messages a second on so many connections; `None` is as many as are answered.
    fn own_rate(&self, connections: usize) -> Option<f64> {
        let _ = connections;
        None
    }
}

/// What a server is loaded with before anything is measured.
pub(crate) struct First {
    pub(crate) workload: Workload,
    pub(crate) extent: Extent,
    /// What it means if the server answers otherwise; `None` is a wrong answer as any other.
    pub(crate) refused: Option<&'static str>,
}

/// A load, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) workload: Workload,
    /// What its clients in the field set; `None` is what is best for the load.
    pub(crate) nodelay: Option<bool>,
}

impl Load {
    /// Default length of a run: rounds where the load has them.
    pub(crate) fn own_extent(&self) -> Option<Extent> {
        match self.workload {
            Workload::Ack(AckLoad {
                rounds: Some(_), ..
            }) => Some(Extent::Rounds),
            _ => None,
        }
    }

    /// How many rounds it has on each connection.
    pub(crate) fn rounds(&self) -> u64 {
        match self.workload {
            Workload::Ack(AckLoad {
                rounds: Some(of), ..
            }) => of.rounds,
            _ => 0,
        }
    }

    /// This load without rounds of its own, for runs of a given length.
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
    #[arg(long, default_value = "512", value_name = "BYTES", value_parser = count::bytes)]
    size: usize,
    /// Messages in flight on each connection
    #[arg(long, default_value = "1", value_name = "N", value_parser = count::some)]
    pipeline: u32,
    /// Messages in each write; 0 is as many as the pipeline has room for. Not with --rate
    #[arg(long, default_value = "0", value_name = "N", value_parser = count::small)]
    batch: u32,
}

impl LoadArgs for EchoArgs {
    fn load(&self) -> Result<Load, Failure> {
        at_least_one("--size", self.size)?;
        let most = if self.batch == 0 {
            self.pipeline
        } else {
            self.batch
        };
        bounded(self.size, most.min(self.pipeline))?;
        Ok(Load {
            workload: Workload::Echo(EchoLoad {
                size: self.size,
                pipeline: self.pipeline,
                batch: self.batch,
            }),
            nodelay: None,
        })
    }

    fn says_batch(&self) -> bool {
        self.batch != 0
    }
}

/// The load of connections that are held.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct IdleArgs {
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

impl LoadArgs for IdleArgs {
    fn load(&self) -> Result<Load, Failure> {
        at_least_one("--size", self.size)?;
        bounded(self.size, 1)?;
        if !(0.0..=100.0).contains(&self.active) {
            return Err(Failure::usage("--active must be from 0 to 100"));
        }
        Ok(Load {
            workload: Workload::Idle(self.idle()),
            nodelay: None,
        })
    }

    fn own_rate(&self, connections: usize) -> Option<f64> {
        let active = self.idle().active_of(connections);
        (active > 0).then_some(active as f64)
    }
}

/// The load of connections that are opened and closed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// Bytes of the message that each connection has echoed before it is closed, which shows that a server
    /// has accepted it; 0 closes it at once
    #[arg(long, default_value = "64", value_name = "BYTES", value_parser = count::bytes)]
    size: usize,
}

impl LoadArgs for ConnectArgs {
    fn load(&self) -> Result<Load, Failure> {
        bounded(self.size, 1)?;
        Ok(Load {
            workload: Workload::Connect(ConnectLoad { size: self.size }),
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
    #[arg(long, value_name = "BYTES", value_parser = payload)]
    size: Option<u32>,
    /// What the messages are framed by: classic (to the service ack) or native (to ingest)
    #[arg(long, default_value = "classic", value_name = "PROTOCOL")]
    protocol: Protocol,
    /// What acknowledgements are to mean: none, received, durable, or replicated at a server with a
    /// home (--addr). With the native protocol the client asks for it; with the classic one it is a
    /// setting of the server that is started [default: none, native durable]
    #[arg(long, visible_alias = "server-level", value_name = "LEVEL")]
    level: Option<Wanted>,
    /// Gives each connection's producer a name (native protocol)
    #[arg(long)]
    named: bool,
    /// Messages in each write; with --rate, the messages that are due [default: 150, in request-reply mode 1]
    #[arg(long, value_name = "N", value_parser = count::some)]
    batch: Option<u32>,
    /// Most messages sent and not acknowledged; 0 is no limit [default: 0, in request-reply mode 1]
    #[arg(long, value_name = "N", value_parser = count::count)]
    window: Option<u64>,
}

/// A level, of either protocol.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Level(Level),
    Replicated,
}

impl FromStr for Wanted {
    type Err = UnknownLevel;

    fn from_str(name: &str) -> Result<Wanted, UnknownLevel> {
        match name {
            "replicated" => Ok(Wanted::Replicated),
            name => name.parse().map(Wanted::Level),
        }
    }
}

fn payload(text: &str) -> Result<u32, String> {
    u32::try_from(count::bytes(text)?).map_err(|_| format!("{text:?} is too large"))
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
    #[arg(long, value_name = "N", value_parser = count::count)]
    rounds: Option<u64>,
    /// Messages of a round [default: the preset's, else 1000000]
    #[arg(long, value_name = "N", value_parser = count::count)]
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

    fn says_batch(&self) -> bool {
        self.ack.says_batch()
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
                None | Some(Wanted::Level(Level::Durable)) => client::Level::Durable,
                Some(Wanted::Level(Level::Received)) => client::Level::Received,
                Some(Wanted::Replicated) => client::Level::Replicated,
                Some(Wanted::Level(Level::None)) => {
                    return Err(Failure::usage(
                        "--level none: the native protocol has received, durable and replicated",
                    ));
                }
            },
            named: self.named,
            payload: self.size.unwrap_or(5),
            batch: self.batch.unwrap_or(150),
            window: self.window.unwrap_or(0),
        };
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
        if self.named {
            return Err(Failure::usage("--named goes with --protocol native"));
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
            level: match self.level {
                None => base.level,
                Some(Wanted::Level(level)) => level,
                Some(Wanted::Replicated) => {
                    return Err(Failure::usage(
                        "--level replicated goes with --protocol native",
                    ));
                }
            },
            payload: self.size.unwrap_or(base.payload),
            batch: self.batch.unwrap_or(base.batch),
            window: self.window.unwrap_or(base.window),
            ..base
        };
        bounded(load.message_len(), load.batch)?;
        Ok(Load {
            workload: Workload::Ack(load),
            nodelay: self.preset.map(Preset::nodelay),
        })
    }

    fn says_batch(&self) -> bool {
        self.batch.is_some()
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

/// The discard load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DiscardArgs {
    /// Bytes of a message
    #[arg(long, default_value = "17", value_name = "BYTES", value_parser = count::bytes)]
    size: usize,
    /// Messages in each write; with --rate, most of them
    #[arg(long, default_value = "4096", value_name = "N", value_parser = count::some)]
    batch: u32,
}

impl LoadArgs for DiscardArgs {
    fn load(&self) -> Result<Load, Failure> {
        at_least_one("--size", self.size)?;
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
